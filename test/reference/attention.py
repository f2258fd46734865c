"""Figures of PyTorch for attention, transformers, bags of embeddings and parametrizations: attention.safetensors.

Each case is a group of tensors, "case/…": "state/" is a module's state_dict, "in/" what it was called with, "out/" what
it gave and "grad/" the gradients of sum(out * cotangent), where the cotangent is ramp(out's shape).
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

torch.set_default_dtype(torch.float64)
figures = {}


def ramp(*shape, start=0.0):
    n = 1
    for size in shape:
        n *= size
    return torch.sin(torch.arange(n, dtype=torch.float64) + start).reshape(shape)


def fill(module):
    for i, p in enumerate(module.parameters()):
        with torch.no_grad():
            p.copy_(0.5 * ramp(*p.shape, start=i) + (1 if p.dim() == 1 and i % 2 == 0 else 0))
    return module


def keep(case, module, inputs, outputs, of_inputs=(), of_parameters=True):
    figures.update({f"{case}/state/{k}": v.detach().clone() for k, v in module.state_dict().items()})
    figures.update({f"{case}/in/{k}": v.detach().clone() for k, v in inputs.items()})
    figures.update({f"{case}/out/{k}": v.detach().clone() for k, v in outputs.items()})
    module.zero_grad()
    sum((v * ramp(*v.shape)).sum() for v in outputs.values()).backward()
    if of_parameters:
        figures.update({f"{case}/grad/{k}": p.grad.clone() for k, p in module.named_parameters()})
    figures.update({f"{case}/grad_in/{k}": inputs[k].grad.clone() for k in of_inputs})


L, N, S, E, H = 3, 2, 4, 4, 2
padding = torch.tensor([[False, False, True, False], [False, True, False, True]])
square = torch.tensor([[False, True, False, True], [False, False, True, True], [True, False, False, False]])


def attention(case, self_attention=False, masks=None, options=None, call=None, kdim=E, vdim=E):
    options, call = options or {}, call or {}
    mha = fill(nn.MultiheadAttention(E, H, **options))
    order = (lambda a, b, c: (b, a, c)) if options.get("batch_first") else (lambda a, b, c: (a, b, c))
    q = ramp(*order(L, N, E), start=1).requires_grad_()
    k = q if self_attention else ramp(*order(S, N, kdim), start=2).requires_grad_()
    v = q if self_attention else ramp(*order(S, N, vdim), start=3).requires_grad_()
    out, weights = mha(q, k, v, **(masks or {}), **call)
    inputs = {"q": q} if self_attention else {"q": q, "k": k, "v": v}
    keep(case, mha, inputs | (masks or {}), {"output": out} | ({} if weights is None else {"weights": weights}), list(inputs))


attention("mha_self", self_attention=True)
attention("mha_masks", masks={"attn_mask": square, "key_padding_mask": padding}, options={"batch_first": True})
attention("mha_each", masks={"attn_mask": ramp(N * H, L, S)}, call={"average_attn_weights": False})
attention("mha_dims", options={"kdim": 3, "vdim": 5, "bias": False}, kdim=3, vdim=5)
attention("mha_extra", masks={"attn_mask": square, "key_padding_mask": padding},
          options={"add_bias_kv": True, "add_zero_attn": True})

src, tgt = ramp(3, N, E, start=1), ramp(2, N, E, start=2)
short = torch.tensor([[False, False, False], [False, False, True]])
for case, norm_first, activation in [("encoder", False, "relu"), ("encoder_norm_first", True, "gelu")]:
    layer = nn.TransformerEncoderLayer(E, H, 6, activation=activation, norm_first=norm_first)
    encoder = fill(nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(E) if norm_first else None, enable_nested_tensor=False))
    encoder.eval()
    x = src.clone().requires_grad_()
    keep(case, encoder, {"src": x, "src_key_padding_mask": short}, {"output": encoder(x, src_key_padding_mask=short)}, ["src"],
         of_parameters=not norm_first)

model = fill(nn.Transformer(E, H, 1, 1, 6, batch_first=True))
model.eval()
x, y = src.transpose(0, 1).clone().requires_grad_(), tgt.transpose(0, 1).clone().requires_grad_()
causal = nn.Transformer.generate_square_subsequent_mask(2)
keep("transformer", model, {"src": x, "tgt": y, "tgt_mask": causal, "memory_key_padding_mask": short},
     {"output": model(x, y, tgt_mask=causal, memory_key_padding_mask=short)}, ["src", "tgt"], of_parameters=False)

ids, offsets = torch.tensor([1, 0, 4, 2, 2, 1, 3]), torch.tensor([0, 2, 2, 5])
for mode in ["sum", "mean", "max"]:
    bag = fill(nn.EmbeddingBag(5, 3, mode=mode, padding_idx=2, scale_grad_by_freq=mode == "mean"))
    keep(f"bag_{mode}", bag, {"ids": ids, "offsets": offsets}, {"output": bag(ids, offsets)})
factors = ramp(7, start=5).requires_grad_()
bag = fill(nn.EmbeddingBag(5, 3, mode="sum"))
keep("bag_weighted", bag, {"ids": ids, "offsets": offsets, "factors": factors},
     {"output": bag(ids, offsets, per_sample_weights=factors)}, ["factors"])
table = fill(nn.Embedding(5, 3, padding_idx=2, max_norm=0.5, norm_type=1, scale_grad_by_freq=True))
keep("embedding", table, {"ids": ids}, {"output": table(ids)})

x = ramp(2, 3, start=1)
linear = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4), dim=1)
keep("weight_norm", fill(linear), {"x": x}, {"output": linear(x)})
torch.manual_seed(1)
linear = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).eval()
keep("spectral_norm", fill(linear), {"x": x}, {"output": linear(x)})

save_file({k: v.contiguous() for k, v in figures.items()}, pathlib.Path(__file__).with_suffix(".safetensors"))
