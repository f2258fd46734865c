"""Figures of PyTorch's losses, as test/ops/loss.cpp reads them: python test/reference/loss.py > test/reference/loss.txt

A line a case: the result and its gradient for the first input, each as Σ cos(i) v[i], and the case's name.
"""
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(phase, *shape, scale=2.0, middle=0.0):
    n = math.prod(shape)
    return torch.tensor([middle + scale * math.sin(1.7 * i + phase) for i in range(n)]).reshape(shape)


def checksum(x):
    if x is None:
        return 0.0
    return sum(math.cos(i) * v for i, v in enumerate(x.reshape(-1).tolist()))


def case(name, f, x):
    x = x.clone().requires_grad_()
    y = f(x)
    y.backward(torch.tensor([math.sin(i + 1) for i in range(y.numel())]).reshape(y.shape))
    print(f"{checksum(y):.17g} {checksum(x.grad):.17g} {name}")


x, y = wave(0.1, 5, 4), wave(0.7, 5, 4)
t = torch.tensor([2, 0, 3, 1, 2])
signs = torch.tensor([1, -1, -1, 1, 1])
grid = torch.sign(wave(0.3, 5, 4))
p, q = wave(0.2, 5, 4, scale=0.4, middle=0.5), wave(0.9, 5, 4, scale=0.5, middle=0.5)
w = wave(0.5, 4, scale=0.5, middle=1.0)
v = wave(0.4, 5, 4, scale=0.9, middle=1.0)
z = wave(1.1, 5, 4)
labels = torch.tensor([[1, 3, -1, 0], [0, -1, 2, 2], [3, 2, 1, 0], [-1, 0, 0, 0], [2, 2, -1, 1]])
deep, deep_t = wave(0.6, 2, 4, 3, 2), torch.tensor([[[0, 1], [2, 3], [3, 1]], [[2, 2], [0, 3], [1, 1]]])

for r in ("mean", "sum", "none"):
    case(f"l1 {r}", lambda a: F.l1_loss(a, y, reduction=r), x)
    case(f"mse {r}", lambda a: F.mse_loss(a, y, reduction=r), x)
    case(f"smooth_l1 {r}", lambda a: F.smooth_l1_loss(a, y, reduction=r, beta=1.5), x)
    case(f"huber {r}", lambda a: F.huber_loss(a, y, reduction=r, delta=1.5), x)
    case(f"soft_margin {r}", lambda a: F.soft_margin_loss(a, grid, reduction=r), x)
    for k in (1, 2):
        case(f"multi_margin p={k} {r}", lambda a: F.multi_margin_loss(a, t, p=k, margin=0.8, reduction=r), x)
        case(f"multi_margin weight p={k} {r}",
             lambda a: F.multi_margin_loss(a, t, p=k, weight=w, reduction=r), x)
    case(f"multilabel_margin {r}", lambda a: F.multilabel_margin_loss(a, labels, reduction=r), x)
    case(f"multilabel_soft_margin {r}", lambda a: F.multilabel_soft_margin_loss(a, q, weight=w, reduction=r), x)
    case(f"hinge_embedding {r}", lambda a: F.hinge_embedding_loss(a, grid, margin=0.6, reduction=r), x)
    case(f"margin_ranking {r}", lambda a: F.margin_ranking_loss(a, y, grid, margin=0.3, reduction=r), x)
    case(f"cosine_embedding {r}", lambda a: F.cosine_embedding_loss(a, y, signs, margin=-0.5, reduction=r), x)
    for swap in (False, True):
        case(f"triplet swap={int(swap)} {r}",
             lambda a: F.triplet_margin_loss(a, y, z, margin=2, p=3, eps=0.01, swap=swap, reduction=r), x)
        case(f"triplet distance swap={int(swap)} {r}",
             lambda a: F.triplet_margin_with_distance_loss(
                 a, y, z, distance_function=lambda a, b: (a - b).abs().sum(-1), swap=swap, reduction=r), x)
    case(f"bce {r}", lambda a: F.binary_cross_entropy(a, q, weight=w, reduction=r), p)
    case(f"bce_with_logits {r}", lambda a: F.binary_cross_entropy_with_logits(a, q, reduction=r), x)
    case(f"bce_with_logits weight {r}",
         lambda a: F.binary_cross_entropy_with_logits(a, q, weight=v, pos_weight=w, reduction=r), x)
    for kind, options in (("", {}), (" weight", {"weight": w}), (" ignore", {"ignore_index": 2}),
                          (" weight ignore", {"weight": w, "ignore_index": 2})):
        case(f"nll{kind} {r}", lambda a: F.nll_loss(a, t, reduction=r, **options), x)
        case(f"nll deep{kind} {r}", lambda a: F.nll_loss(a, deep_t, reduction=r, **options), deep)
        for s in (0.0, 0.2):
            case(f"cross_entropy{kind} smoothing={s} {r}",
                 lambda a: F.cross_entropy(a, t, reduction=r, label_smoothing=s, **options), x)
            case(f"cross_entropy deep{kind} smoothing={s} {r}",
                 lambda a: F.cross_entropy(a, deep_t, reduction=r, label_smoothing=s, **options), deep)
    case(f"cross_entropy probabilities {r}",
         lambda a: F.cross_entropy(a, q, weight=w, label_smoothing=0.2, reduction=r), x)
    case(f"cross_entropy one {r}", lambda a: F.cross_entropy(a, t[0], weight=w, label_smoothing=0.2, reduction=r), x[0])
    case(f"nll one {r}", lambda a: F.nll_loss(a, t[0], weight=w, reduction=r), x[0])
    case(f"multi_margin one {r}", lambda a: F.multi_margin_loss(a, t[0], reduction=r), x[0])
    case(f"multilabel_margin one {r}", lambda a: F.multilabel_margin_loss(a, labels[0], reduction=r), x[0])
    case(f"kl_div log {r}", lambda a: F.kl_div(a, y, log_target=True, reduction=r), x)
    case(f"poisson {r}", lambda a: F.poisson_nll_loss(a, v * 2, full=True, reduction=r), x)
    case(f"poisson rate {r}", lambda a: F.poisson_nll_loss(a, v, log_input=False, eps=1e-3, reduction=r), p)
    case(f"gaussian {r}", lambda a: F.gaussian_nll_loss(a, y, v, full=True, reduction=r), x)
    case(f"gaussian rows {r}", lambda a: F.gaussian_nll_loss(a, y, v[:, 0], eps=0.5, reduction=r), x)
    case(f"gaussian var {r}", lambda a: F.gaussian_nll_loss(x, y, a, eps=0.5, reduction=r), v)
steps = torch.log_softmax(wave(0.8, 6, 4, 5), -1)
padded = torch.tensor([[1, 1, 2], [3, 4, 0], [0, 0, 0], [2, 2, 2]])
joined = torch.tensor([1, 1, 2, 3, 4, 2, 2, 2])
ins, outs = torch.tensor([6, 5, 4, 3]), torch.tensor([3, 2, 0, 3])  # the last is too short for its target
for r in ("mean", "sum", "none"):
    case(f"ctc {r}", lambda a: F.ctc_loss(a[:, :3], padded[:3], ins[:3], outs[:3], reduction=r), steps)
    case(f"ctc zero_infinity {r}",
         lambda a: F.ctc_loss(a, joined, ins, outs, reduction=r, zero_infinity=True), steps)
    case(f"ctc one blank=4 {r}",
         lambda a: F.ctc_loss(a, padded[0], ins[0], outs[0], blank=4, reduction=r), steps[:, 0])
for r in ("mean", "sum", "none", "batchmean"):
    case(f"kl_div {r}", lambda a: F.kl_div(a, torch.relu(y), reduction=r), x)
case("cosine_similarity", lambda a: F.cosine_similarity(a, y, dim=0), x)
case("cosine_similarity broadcast", lambda a: F.cosine_similarity(a[:, None], y[None], dim=-1, eps=2), x)
case("cosine_similarity rank", lambda a: F.cosine_similarity(a, y[0], dim=0), x)
case("pairwise_distance", lambda a: F.pairwise_distance(a, y, p=3, eps=0.1, keepdim=True), x)
for k in (0.5, 1, 2, 3, math.inf):
    case(f"cdist p={k}", lambda a: torch.cdist(a, y[:3], p=k), x)

adaptive = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2, head_bias=True)
with torch.no_grad():
    for k, (name, parameter) in enumerate(adaptive.named_parameters()):
        parameter.copy_(wave(0.1 * k, *parameter.shape, scale=0.5))
a_x, a_t = wave(0.2, 6, 8), torch.tensor([3, 12, 0, 19, 4, 9])
case("adaptive output", lambda a: adaptive(a, a_t).output, a_x)
case("adaptive loss", lambda a: adaptive(a, a_t).loss, a_x)
case("adaptive log_prob", lambda a: adaptive.log_prob(a), a_x)
case("adaptive predict", lambda a: adaptive.predict(a) + 0 * a[:, 0], a_x)
