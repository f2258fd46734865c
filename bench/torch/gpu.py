"""What bench/gpu.cpp measures, in PyTorch. On a CPU nothing is captured: graphs are the plain iterations."""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from bench import (
    Report, Samples, check_loss, classes, constants, on_gpu, field, fill, filled, finished, leaf, measure, now,
    parse, place, rand, zeros,
)

LOSS = constants("nets.h")
GPU = constants("gpu.h", "bench::gpu")


def check(options, loss, expected):
    return check_loss(loss, None if options.small else expected)


# ---- graphs ----------------------------------------------------------------------------------------------------------


def capture(step, warm_up):
    """Runs warm_up(), which calls step() some times, on a side stream, as PyTorch asks for before step() is captured;
    returns what replays it."""
    if not on_gpu():
        warm_up()
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        warm_up()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seed_graph(report, options):
    x, y = filled((64, 1000), 1, 1), filled((64, 10), 2, 1)
    w1, w2 = leaf((1000, 100), 3, 0.05), leaf((100, 10), 4, 0.1)
    sgd = torch.optim.SGD([w1, w2], lr=1e-6, fused=True)
    loss, first = None, []

    def step():
        nonlocal loss
        sgd.zero_grad()
        loss = (x.mm(w1).relu().mm(w2) - y).square().sum()
        loss.backward()
        sgd.step()

    def warm_up():
        for _ in range(3):
            step()
            first.append(loss.item())

    start = capture(step, warm_up)

    def replay():
        start()
        return loss.item()

    more = check_loss(first[0], LOSS["kSeedLoss"])
    report.time("gpu.mlp.seed.graph", measure(replay, options.secs), 1e3, "ms", more)


def mnist_graph(report, options):
    batch, batches = 100, 10
    xs, ys = filled((batches * batch, 784), 1, 1), classes(batches * batch, 10)
    x, y = torch.empty_like(xs[:batch]), torch.empty_like(ys[:batch])
    w1, w2, b1, b2 = leaf((256, 784), 3, 0.05), leaf((10, 256), 4, 0.1), zeros(256), zeros(10)
    adam = torch.optim.Adam([w1, b1, w2, b2], lr=1e-3, fused=True, capturable=on_gpu())
    loss, losses, at = None, [], 0

    def step():
        nonlocal loss
        adam.zero_grad()
        loss = F.cross_entropy(F.linear(F.linear(x, w1, b1).relu(), w2, b2), y)
        loss.backward()
        adam.step()

    def load():
        nonlocal at
        x.copy_(xs[at : at + batch])
        y.copy_(ys[at : at + batch])
        at = (at + batch) % len(xs)

    def warm_up():
        for _ in range(3):
            load()
            step()
            losses.append(loss.item())

    start = capture(step, warm_up)

    def replay():
        load()
        start()
        return loss.item()

    while len(losses) < batches:
        losses.append(replay())
    more = check_loss(sum(losses) / batches, LOSS["kMnistLoss"])
    report.time("gpu.mlp.mnist.graph", measure(replay, options.secs), 1e3, "ms", more)


# ---- models ----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shorter = None
        if stride != 1:
            self.shorter = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.shorter(x) if self.shorter else x
        return self.relu(y)


class Resnet18(nn.Module):
    """torchvision's, in fewer lines."""

    def __init__(self, count):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        blocks = []
        for inputs, width in ((64, 64), (64, 128), (128, 256), (256, 512)):
            blocks += [Block(inputs, width, 1 if inputs == width else 2), Block(width, width, 1)]
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(512, count)
        seed = 1
        for parameter in self.parameters():
            if parameter.dim() == 4:
                fill(parameter, seed, math.sqrt(6 / parameter[0].numel()))
                seed += 1
        fill(self.fc.weight, seed, 0.05)
        nn.init.zeros_(self.fc.bias)

    def forward(self, images):
        x = self.blocks(self.pool(self.relu(self.bn1(self.conv1(images)))))
        return self.fc(x.mean((2, 3)))


def resnet(report, options, name):
    """The name says how: "…bf16" under autocast, whose loss is not checked, "….nhwc" with channels last."""
    if not name.endswith(".f32"):
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
    half = ".bf16" in name
    layout = torch.channels_last if name.endswith(".nhwc") else torch.contiguous_format
    batch, size, count = GPU["kSmallImages" if options.small else "kImages"]
    x, y = filled((batch, 3, size, size), 100, 1).contiguous(memory_format=layout), classes(batch, count)
    net = place(Resnet18(count)).to(memory_format=layout)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    loss = None

    def step():
        nonlocal loss
        sgd.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, half):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        sgd.step()

    step()
    first = loss.item()
    more = field("first_pass_loss", first) if half else check(options, first, GPU["kResnetLoss"])
    report.time(name, measure(step, options.secs), 1e3, "ms", more)


def encoder(report, options, name, size):
    dim, heads, hidden, batch, length = GPU["kSmall" + size if options.small else "k" + size]
    layer = nn.TransformerEncoderLayer(dim, heads, hidden, dropout=0, batch_first=True, norm_first=True)
    weights = ["self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"]
    for seed, part in enumerate(weights, 1):
        weight = layer.get_parameter(part)
        fill(weight, seed, math.sqrt(3 / weight.shape[1]))
    for bias in (layer.self_attn.in_proj_bias, layer.self_attn.out_proj.bias, layer.linear1.bias, layer.linear2.bias):
        nn.init.zeros_(bias)
    layer = place(layer).bfloat16()
    x = filled((batch, length, dim), 5, 1).bfloat16().requires_grad_()
    grad = filled((batch, length, dim), 6, 1).bfloat16()
    with torch.no_grad():
        more = check(options, layer(x).float().square().mean().item(), GPU[f"k{size}Loss"])

    def step():
        layer.zero_grad()
        x.grad = None
        layer(x).backward(grad)

    report.time(name, measure(step, options.secs), 1e3, "ms", more)


def lstm(report, options, name, dtype):
    inputs, hidden, batch, length = GPU["kSmallLstm" if options.small else "kLstm"]
    layer = nn.LSTM(inputs, hidden)
    for seed, weight in enumerate((layer.weight_ih_l0, layer.weight_hh_l0), 1):
        fill(weight, seed, math.sqrt(3 / hidden))
    for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
        nn.init.zeros_(bias)
    layer = place(layer).to(dtype)
    x = filled((length, batch, inputs), 3, 1).to(dtype).requires_grad_()
    grad = filled((length, batch, hidden), 4, 1).to(dtype)
    with torch.no_grad():
        more = check(options, layer(x)[0].float().square().mean().item(), GPU["kLstmLoss"])

    def step():
        layer.zero_grad()
        x.grad = None
        layer(x)[0].backward(grad)

    report.time(name, measure(step, options.secs), 1e3, "ms", more)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def gemm(report, options):
    repeats, n = 5, GPU["kSmallGemm" if options.small else "kGemm"]
    a, b = rand(n, n).bfloat16(), rand(n, n).bfloat16()

    def repeat():
        for _ in range(repeats):
            a.mm(b)

    report.rate("gpu.gemm8192.bf16", measure(repeat, options.secs), 2e-12 * repeats * n**3, "TFLOP/s")


def stream(report, options, name, size, moved, f):
    rows, columns, repeats = size
    if options.small:
        rows = GPU["kSmallRows"]
    x, y, weight, bias = rand(rows, columns), rand(rows, columns), rand(columns), rand(columns)

    def time(secs, kernel):
        def repeat():
            for _ in range(repeats):
                kernel()

        return measure(repeat, secs)

    gigabytes = 4e-9 * rows * columns * repeats
    limit = 2 * gigabytes / time(min(options.secs, 0.2), x.clone).wall()
    samples = time(options.secs, lambda: f(x, y, weight, bias))
    report.rate(name, samples, moved * gigabytes, "GB/s", field("limit", limit))


STREAMS = {
    "copy": (2, lambda x, y, weight, bias: x.clone()),
    "add": (3, lambda x, y, weight, bias: x + y),
    "softmax": (2, lambda x, y, weight, bias: torch.softmax(x, 1)),
    "layernorm": (2, lambda x, y, weight, bias: F.layer_norm(x, weight.shape, weight, bias)),
}


def queue(report, options):
    ops, warm_up, least = 1000, 3, 7
    x, y = rand(256), rand(256)
    samples, end, i = Samples(), now()[0] + options.secs, 0
    while i < warm_up + least or now()[0] < end:
        start = finished()
        for _ in range(ops):
            x + y
        if i >= warm_up:
            samples.add(start, now())
        i += 1
    report.time("gpu.queue.add1KiB", samples, 1e6 / ops, "µs")


def main():
    options = parse()
    report = Report(options)

    def run(name, f, *arguments):
        report.run(name, lambda: f(report, options, *arguments))

    run("gpu.mlp.seed.graph", seed_graph)
    run("gpu.mlp.mnist.graph", mnist_graph)
    for how in ("f32", "tf32", "tf32.nhwc", "bf16", "bf16.nhwc"):
        run("gpu.resnet18." + how, resnet, "gpu.resnet18." + how)
    run("gpu.encoder.bf16", encoder, "gpu.encoder.bf16", "Encoder")
    run("gpu.encoder.long.bf16", encoder, "gpu.encoder.long.bf16", "LongEncoder")
    for name, dtype in ("f32", torch.float32), ("bf16", torch.bfloat16):
        run(f"gpu.lstm1024.{name}", lstm, f"gpu.lstm1024.{name}", dtype)
    with torch.inference_mode():
        run("gpu.gemm8192.bf16", gemm)
        for name, *size in GPU["kSizes"]:
            for kernel, (moved, f) in STREAMS.items():
                run(f"gpu.stream.{kernel}.{name}", stream, f"gpu.stream.{kernel}.{name}", size, moved, f)
        run("gpu.queue.add1KiB", queue)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
