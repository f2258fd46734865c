"""What PyTorch makes of test/ops/pool.cpp's inputs. Writes pool.safetensors beside itself."""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(1)
x, deep = torch.randn(1, 2, 7, 20), torch.randn(1, 1, 3, 4, 9)
samples2, samples3 = torch.rand(1, 2, 2), torch.rand(1, 1, 3)
pins = {"x": x, "deep": deep, "samples2": samples2, "samples3": samples3}


def pin(name, pooled):
    pins[name], pins[name + ".indices"] = pooled[0], pooled[1].int()


pin("max.ceil", F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True))
pin("max.dilated", F.max_pool2d(x, 2, (2, 3), 0, (3, 2), ceil_mode=True, return_indices=True))
pin("max.deep", F.max_pool3d(deep, 2, 2, 1, ceil_mode=True, return_indices=True))
pin("max.adaptive", F.adaptive_max_pool2d(x, (3, 7), return_indices=True))
pin("max.fractional", F.fractional_max_pool2d(x, (2, 3), (4, 9), _random_samples=samples2, return_indices=True))
pin("max.fractional3", F.fractional_max_pool3d(deep, 2, (1, 2, 5), _random_samples=samples3, return_indices=True))
pins["avg.ceil"] = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
pins["avg.inside"] = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
pins["avg.deep"] = F.avg_pool3d(deep, 2, 2, 1, ceil_mode=True)
pins["avg.adaptive"] = F.adaptive_avg_pool2d(x, (3, 7))
pins["lp.ceil"] = F.lp_pool2d(x, 2, 3, 2, ceil_mode=True)
save_file({k: v.contiguous() for k, v in pins.items()}, pathlib.Path(__file__).with_suffix(".safetensors"))
