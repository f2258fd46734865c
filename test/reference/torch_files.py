"""Writes test/reference/torch/*.pt, which test/io/torch_file.cpp reads: python3 test/reference/torch_files.py

libtorch's own needs g++ as well. The weights are 0, 1, 2, ... in the order of state_dict()."""
import os
import subprocess

import torch
from torch.utils import cpp_extension

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
os.makedirs(folder, exist_ok=True)


def at(name):
    return os.path.join(folder, name + ".pt")


def numbered(net):
    first = 0
    for x in net.state_dict().values():
        x.copy_(torch.arange(first, first + x.numel()).reshape(x.shape))
        first += x.numel()
    return net


net = numbered(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
torch.save(net.state_dict(), at("state_dict"))
torch.save(net.state_dict(), at("protocol4"), pickle_protocol=4)
torch.save(net.state_dict(), at("legacy"), _use_new_zipfile_serialization=False)
torch.save(net, at("module"))
torch.jit.script(net).save(at("script"))
torch.save(torch.arange(6.0).reshape(2, 3), at("tensor"))

adam = torch.optim.Adam(net.parameters())
net(torch.ones(4, 3)).sum().backward()
adam.step()
numbered(net)
torch.save({"model": net.state_dict(), "optimizer": adam.state_dict(), "epoch": 3, "name": "a", "lr": 0.1, 7: None,
            "list": [torch.ones(1), (torch.zeros(1),)]}, at("checkpoint"))

grid = torch.arange(12.0).reshape(3, 4)
torch.save({
    "transposed": grid.t(), "row": grid[1], "grid": grid, "columns": grid[:, 1::2], "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(2.5), "expanded": torch.ones(1).expand(4), "bool": torch.tensor([True, False]),
    "int8": torch.tensor([-3], dtype=torch.int8), "int16": torch.tensor([-3], dtype=torch.int16),
    "int32": torch.tensor([-3], dtype=torch.int32), "int64": torch.tensor([-(2**40)]), "uint8": torch.tensor([250], dtype=torch.uint8),
    "bfloat16": torch.full([2], 1.5, dtype=torch.bfloat16), "float16": torch.full([2], 1.5).half(),
    "float64": torch.full([2], 0.1, dtype=torch.float64), "parameter": torch.nn.Parameter(torch.ones(2)),
    "size": torch.Size([1, 2]), "device": torch.device("cpu"), "dtype": torch.float32}, at("kinds"))  # fmt: skip
torch.save({"good": torch.ones(1), "odd": torch.ones(2, dtype=torch.uint16), "complex": torch.ones(1, dtype=torch.complex64)}, at("odd"))

# Tensors with metadata, of odd layouts, and what may stand beside them.
z = torch.tensor([1 + 2j, 3 - 4j])
attributes, parameter = torch.ones(3), torch.nn.Parameter(torch.ones(3))
attributes.note, parameter.note = "x", "y"
torch.save({
    "conj_imag": z.conj().imag, "conj_real": z.conj().real, "imag": z.imag,
    "fft": torch.fft.rfft(torch.tensor([1.0, 2, 4, 8])).conj().imag,
    "windows": torch.arange(10.0).unfold(0, 3, 1), "attributes": attributes, "parameter_attributes": parameter,
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16), "uint32": torch.tensor([2**32 - 1], dtype=torch.uint32),
    "by_tuple": {(0, "a"): torch.full([2], 5.0)}, "set": {1, 2}, "bytes": b"abc", "complex": 1j, "none": None,
    0.5: 1, "layout": torch.strided, "buffer": torch.nn.Buffer(torch.ones(2))}, at("layouts"))  # fmt: skip

program = """
#include <torch/torch.h>
struct Net : torch::nn::Module {
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(3, 2));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
};
int main(int, char** argv) {
  const auto net = std::make_shared<Net>();
  torch::NoGradGuard guard;
  int64_t first = 0;
  for (torch::Tensor x : net->parameters()) {
    x.copy_(torch::arange(first, first + x.numel()).reshape(x.sizes()));
    first += x.numel();
  }
  torch::save(net, argv[1]);
}
"""
source, binary = "/tmp/torch_files.cpp", "/tmp/torch_files"
with open(source, "w") as file:
    file.write(program)
library = cpp_extension.library_paths()[0]
subprocess.run(["g++", "-std=c++20", source, "-o", binary, *["-I" + path for path in cpp_extension.include_paths()],
                "-L" + library, "-Wl,-rpath," + library, "-ltorch", "-ltorch_cpu", "-lc10"], check=True)  # fmt: skip
subprocess.run([binary, at("libtorch")], check=True)
