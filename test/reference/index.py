# What PyTorch says where the meaning of an op is intricate; index.safetensors holds the answers.
import torch
from safetensors.torch import save_file

torch.manual_seed(1)
inf, nan = float("inf"), float("nan")
out = {}


def keep(name, *tensors):
    for i, t in enumerate(tensors):
        out[f"{name}.{i}"] = t.detach().contiguous().clone()


# scatter_reduce: x, index, source, cotangent; then for each reduction and include_self: y, gx, gsource.
x = torch.tensor([[1.0, -2.0, 0.0, 3.0], [0.0, 0.0, 5.0, -1.0]], dtype=torch.float64)
index = torch.tensor([[0, 0, 2, 3, 2], [1, 0, 1, 2, 2]])
source = torch.tensor([[4.0, 1.0, -3.0, 3.0, 0.0], [0.0, 2.0, -7.0, 5.0, 5.0]], dtype=torch.float64)
cotangent = torch.randn(2, 4, dtype=torch.float64)
keep("scatter", x, index, source, cotangent)
for reduce in ["sum", "prod", "mean", "amax", "amin"]:
    for include in [True, False]:
        a, b = x.clone().requires_grad_(), source.clone().requires_grad_()
        y = a.scatter_reduce(1, index, b, reduce, include_self=include)
        y.backward(cotangent)
        keep(f"scatter_reduce.{reduce}.{int(include)}", y, a.grad, b.grad)

# unique
z = torch.tensor([[3, 1, 2], [1, 1, 2], [3, 1, 2], [0, 5, 5], [1, 1, 2]])
keep("unique.x", z)
keep("unique.flat", *torch.unique(z, return_inverse=True, return_counts=True))
keep("unique.rows", *torch.unique(z, dim=0, return_inverse=True, return_counts=True))
keep("unique.columns", *torch.unique(z, dim=1, return_inverse=True, return_counts=True))
keep("unique.consecutive", *torch.unique_consecutive(z, return_inverse=True, return_counts=True))
keep("unique.neighbours", *torch.unique_consecutive(z[[0, 0, 1, 3, 3]], dim=0, return_inverse=True, return_counts=True))

# searchsorted
edges = torch.tensor([-1.0, 0.0, 0.0, 2.0, inf])
values = torch.tensor([[-inf, -1.0, -0.5, 0.0], [1.0, 2.0, inf, nan]])
keep("search", edges, values, torch.searchsorted(edges, values), torch.searchsorted(edges, values, right=True))

# histc
h = torch.tensor([0.0, 0.3, 0.5, 0.5, 1.0, -0.1, 1.1, 0.75, 0.9999, 0.1])
keep("histc", h, torch.histc(h, 4, 0, 1), torch.histc(h, 5), torch.histc(torch.full((3,), 2.0), 3), torch.histc(h, 10, 0, 0.3))

# quantile, median, mode
q = torch.tensor([[3.0, 1.0, nan, 2.0], [4.0, -2.0, 8.0, 0.5], [7.0, 7.0, 1.0, inf]], dtype=torch.float64)
qs = torch.tensor([0.0, 0.25, 0.6, 0.9], dtype=torch.float64)
keep("quantile", q, qs, torch.quantile(q[:2], qs, 1), torch.quantile(q[1:2], qs, 1, keepdim=True), torch.quantile(q[1:], 0.5, 0))
keep("median", *torch.median(q, 1))
keep("nan", torch.nansum(q, 1), torch.nanmean(q, 0), *torch.cummax(q, 1), *torch.aminmax(q, dim=1))

# segment_reduce with offsets [0, 2, 2, 5], ties and NaN
s = torch.tensor([[1.0, 2.0], [1.0, nan], [0.0, 4.0], [-1.0, 4.0], [2.0, 3.0]], dtype=torch.float64)
g = torch.randn(3, 2, dtype=torch.float64)
keep("segment", s, g)
for reduce in ["sum", "max", "min"]:
    a = s.clone().requires_grad_()
    y = torch.segment_reduce(a, reduce, offsets=torch.tensor([0, 2, 2, 5]), axis=0)
    y.backward(g)
    keep(f"segment.{reduce}", y, a.grad)

# cumprod and logcumsumexp with their gradients
c = torch.tensor([[2.0, 0.0, 3.0, 0.0, 1.0], [1.0, -2.0, 0.0, 4.0, 5.0]], dtype=torch.float64)
l = torch.tensor([[-inf, 1.0, 800.0, -3.0, 2.0], [-inf, -inf, 0.0, 1.0, -900.0]], dtype=torch.float64)
k = torch.randn(2, 5, dtype=torch.float64)
for name, f, v in [("cumprod", torch.cumprod, c), ("logcumsumexp", torch.logcumsumexp, l)]:
    a = v.clone().requires_grad_()
    y = f(a, 1)
    y.backward(k)
    keep(name, v, k, y, a.grad)

save_file(out, __file__.replace(".py", ".safetensors"))
