"""What PyTorch makes of test/ops/resize.cpp's inputs. Writes resize.safetensors beside itself."""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(1)
x, grid, many = torch.randn(1, 2, 5, 7), torch.randn(1, 3, 4, 2) * 1.5, torch.randn(1, 8, 2, 3)
maps = torch.randn(1, 2, 3)
pins = {"x": x, "grid": grid, "many": many, "maps": maps}
names = ("nearest", "nearest-exact", "bilinear", "bicubic")
for i, mode in enumerate(names):
    for align in (False, True):
        if align and i < 2:
            continue
        more = {"mode": mode, "align_corners": align if i >= 2 else None}
        name = f"{i}.{'align' if align else 'plain'}"
        pins[f"size.{name}"] = F.interpolate(x, size=(8, 3), **more)
        pins[f"scale.{name}"] = F.interpolate(x, scale_factor=(1.7, 0.6), **more)
pins["antialias.2"] = F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True)
pins["antialias.3"] = F.interpolate(x, size=(3, 9), mode="bicubic", antialias=True)
for i in (0, 2, 3):
    for j, padding in enumerate(("zeros", "border", "reflection")):
        for align in (False, True):
            pins[f"grid.{i}{j}.{'align' if align else 'plain'}"] = F.grid_sample(x, grid, names[i], padding, align)
pins["theta"] = F.affine_grid(maps, (1, 2, 3, 4), align_corners=False)
pins["theta.align"] = F.affine_grid(maps, (1, 2, 3, 4), align_corners=True)
pins["shuffle"] = F.pixel_shuffle(many, 2)
pins["channels"] = F.channel_shuffle(many, 4)
save_file({k: v.contiguous() for k, v in pins.items()}, pathlib.Path(__file__).with_suffix(".safetensors"))
