"""What torchvision's resnet18 computes, with weights that a formula gives, which test/models/resnet.cpp repeats.

Run it as python3 -P: a numpy.py lies beside it. It writes resnet.txt (names and shapes of the state dict, in its order)
and resnet.safetensors (outputs in evaluation and training, some gradients and statistics, and the output of the paper's
resnet20).
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torchvision.models import resnet18

here = pathlib.Path(__file__).parent


def uniform(shape, number):
    """Numbers from 0 to 1 of tensor `number`: the finalizer of a 32-bit hash, of each position."""
    z = (np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * 0x9E3779B9 + number * 0x85EBCA6B) & 0xFFFFFFFF
    z = ((z ^ (z >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    z = ((z ^ (z >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    z = z ^ (z >> 16)
    return (z.astype(np.float64) / 2**32).reshape(shape)


def value(name, shape, number):
    u = uniform(shape, number)
    if name.endswith("num_batches_tracked"):
        u = np.zeros(shape)
    elif len(shape) > 1:
        u = (2 * u - 1) * np.sqrt(3 / np.prod(shape[1:]))
    elif name.endswith("weight") or name.endswith("var"):
        u = u + 0.5
    else:
        u = u - 0.5
    return torch.tensor(u.astype(np.float32))


def fill(net):
    net.load_state_dict({name: value(name, tuple(x.shape), i) for i, (name, x) in enumerate(net.state_dict().items())})


class Block(nn.Module):
    """He et al. 2016, figure 2, with the shortcut of option A."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.more = stride, channels - channels_in

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return F.relu(y + x)


class ResNet20(nn.Module):
    """He et al. 2016, section 4.2."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[Block(16, 16, 1) for _ in range(3)])
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


net = resnet18(weights=None)
fill(net)
x = torch.tensor((2 * uniform((2, 3, 75, 64), 1000) - 1).astype(np.float32))
figures = {}
with torch.no_grad():
    figures["eval"] = net.eval()(x)
y = net.train()(x)
figures["train"] = y.detach()
(y * torch.tensor((2 * uniform((2, 1000), 1001) - 1).astype(np.float32))).sum().backward()
for name in ("bn1.weight", "layer2.0.downsample.1.bias", "layer4.1.bn2.weight"):
    figures["grad." + name] = net.get_parameter(name).grad
figures["layer3.0.downsample.1.running_var"] = net.get_buffer("layer3.0.downsample.1.running_var")
small = ResNet20().eval()
fill(small)
with torch.no_grad():
    figures["resnet20"] = small(x)
with open(here / "resnet.txt", "w") as file:
    for name, tensor in net.state_dict().items():
        print(name, *tensor.shape, file=file)
save_file({name: t.contiguous() for name, t in figures.items()}, here / "resnet.safetensors")
print({name: (t.abs().mean().item(), t.abs().max().item()) for name, t in figures.items()})
