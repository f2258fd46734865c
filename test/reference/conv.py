#!/usr/bin/env python3
"""What PyTorch makes of convolutions, sliding windows and padding: writes conv.safetensors beside this file.

Inputs are multiples of 1/8, so that every result is exact in float32. Of each case it writes the output y and the
gradients of (y * cotangent).sum(); test/ops/conv.cpp makes the inputs by the same formula."""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file


def numbers(*shape, start=0):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + start
    return ((i * 7919 % 31 - 15) / 8).reshape(shape)


def conv(f, x, weight, bias, **options):
    inputs = dict(x=numbers(*x), weight=numbers(*weight, start=5))
    if bias:
        inputs["bias"] = numbers(bias, start=9)
    return (lambda **given: f(given["x"], given["weight"], given.get("bias"), **options)), inputs


def of(f, shape, *args, **options):
    return (lambda x: f(x, *args, **options)), dict(x=numbers(*shape))


cases = {
    "conv1d": conv(F.conv1d, (2, 3, 9), (4, 3, 3), 4, stride=2, padding=1),
    "conv1d.same": conv(F.conv1d, (2, 2, 7), (3, 2, 4), 3, padding="same", dilation=2),
    "conv2d": conv(F.conv2d, (2, 2, 7, 6), (3, 2, 3, 2), 3, stride=(2, 1), padding=(2, 1), dilation=(1, 2)),
    "conv2d.same": conv(F.conv2d, (1, 2, 5, 6), (2, 2, 4, 3), 0, padding="same"),
    "conv2d.groups": conv(F.conv2d, (2, 4, 5, 5), (6, 2, 3, 3), 6, groups=2, padding=1),
    "conv2d.unbatched": conv(F.conv2d, (2, 5, 5), (3, 2, 3, 3), 3),
    "conv3d": conv(F.conv3d, (1, 2, 4, 5, 4), (2, 2, 2, 3, 2), 2, stride=(1, 2, 2), padding=(0, 1, 1)),
    "conv_transpose1d": conv(F.conv_transpose1d, (2, 3, 5), (3, 2, 4), 2, stride=3, padding=2, output_padding=1),
    "conv_transpose2d": conv(F.conv_transpose2d, (2, 4, 4, 3), (4, 3, 3, 2), 6, stride=(2, 3), padding=(1, 0),
                             output_padding=(1, 2), groups=2, dilation=(2, 1)),
    "conv_transpose3d": conv(F.conv_transpose3d, (1, 2, 3, 2, 3), (2, 2, 2, 2, 3), 2, stride=2, output_padding=(1, 0, 1)),
    "unfold": of(F.unfold, (2, 2, 5, 6), (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1)),
    "fold": of(F.fold, (2, 12, 24), (5, 6), (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1)),
    "pad.constant": of(F.pad, (2, 3, 4), (1, -2, -1, 2), value=0.5),
    "pad.reflect": of(F.pad, (2, 4, 5), (4, 2, 1, 3), mode="reflect"),
    "pad.reflect.crop": of(F.pad, (2, 5), (-1, 3), mode="reflect"),
    "pad.replicate": of(F.pad, (1, 2, 3, 2, 2), (1, 2, 0, 3, 2, 1), mode="replicate"),
    "pad.replicate.crop": of(F.pad, (2, 5), (2, -3), mode="replicate"),
    "pad.circular": of(F.pad, (2, 1, 3, 4), (4, 1, 0, 3), mode="circular"),
    "pad.circular.crop": of(F.pad, (2, 5), (-2, 3), mode="circular"),
}

tensors = {}
for name, (call, inputs) in cases.items():
    for tensor in inputs.values():
        tensor.requires_grad_()
    y = call(**inputs)
    cotangent = numbers(*y.shape, start=3)
    gradients = torch.autograd.grad(y, list(inputs.values()), cotangent)
    found = dict(y=y, **{f"grad_{k}": g for k, g in zip(inputs, gradients)})
    for key, value in found.items():
        exact = value.detach().float().contiguous()
        assert (exact.double() == value).all()
        tensors[f"{name}/{key}"] = exact
save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"))
