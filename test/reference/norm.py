"""What PyTorch makes of test/ops/norm.cpp's inputs. Writes norm.safetensors beside itself."""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(1)
x = torch.randn(3, 4, 3, 2, 2) * 2 + 1
weight, bias = torch.rand(3) + 0.5, torch.randn(3)
pins = {"x": x, "weight": weight, "bias": bias}
for kind in ("batch", "instance"):
    mean, var = torch.zeros(3), torch.ones(3)
    for step in x:
        if kind == "batch":
            y = F.batch_norm(step, mean, var, weight, bias, training=True)
        else:
            y = F.instance_norm(step, mean, var, weight, bias, use_input_stats=True)
    pins[f"{kind}.y"], pins[f"{kind}.mean"], pins[f"{kind}.var"] = y, mean, var
    if kind == "batch":
        pins[f"{kind}.eval"] = F.batch_norm(x[0], mean, var, weight, bias)
    else:
        pins[f"{kind}.eval"] = F.instance_norm(x[0], mean, var, weight, bias, use_input_stats=False)
pins["group"] = F.group_norm(x[0], 3, weight, bias)
pins["lrn.even"] = F.local_response_norm(x[0], 2, 0.5, 0.75, 1)
pins["lrn.odd"] = F.local_response_norm(x[0], 3, 0.5, 0.75, 1)
pins["rms"] = F.rms_norm(x[0], (2, 2))
save_file({k: v.contiguous() for k, v in pins.items()}, pathlib.Path(__file__).with_suffix(".safetensors"))
