"""A small BERT of the transformers package, and what it makes of some word pieces.

Writes config.json and model.safetensors, as save_pretrained writes them, and figures.safetensors.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

here = pathlib.Path(__file__).parent
torch.manual_seed(1)
config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                    max_position_embeddings=7, layer_norm_eps=1e-5)
model = BertModel(config).eval()
for parameter in model.parameters():  # far from the first ones, so that none can be left out unseen
    torch.nn.init.normal_(parameter, 0.2, 0.6)
model.save_pretrained(here)
settings = json.loads((here / "config.json").read_text())
(here / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")

lengths = torch.tensor([3, 1, 7, 2])
ids = torch.randint(0, 20, (13,))
types = torch.randint(0, 2, (13,))
figures = {"ids": ids, "lengths": lengths, "types": types}
with torch.no_grad():
    for activation in ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]:
        config.hidden_act = activation
        changed = BertModel(config).eval()
        changed.load_state_dict(model.state_dict())
        outputs = [changed(input_ids=i[None], token_type_ids=t[None])
                   for i, t in zip(ids.split(lengths.tolist()), types.split(lengths.tolist()))]
        figures["hidden." + activation] = torch.cat([y.last_hidden_state[0] for y in outputs])
    outputs = [model(input_ids=i[None]) for i in ids.split(lengths.tolist())]  # all of type 0
    figures["hidden"] = torch.cat([y.last_hidden_state[0] for y in outputs])
    figures["mean"] = torch.cat([y.last_hidden_state.mean(1) for y in outputs])
    figures["cls"] = torch.cat([y.last_hidden_state[:, 0] for y in outputs])
    figures["pooler"] = torch.cat([y.pooler_output for y in outputs])
save_file({name: value.contiguous() for name, value in figures.items()}, here / "figures.safetensors")
