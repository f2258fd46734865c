"""What one small op costs in PyTorch; the same measurements as bench/ops.cpp."""
import sys

import torch

from bench import Report, Samples, filled, finished, measure, now, parse, rand


def add1(report, secs, name, requires_grad):
    ops = 1000
    a, b = rand(1, requires_grad=requires_grad), rand(1)

    def repeat():
        for _ in range(ops):
            a + b

    report.time(name, measure(repeat, secs), 1e9 / ops, "ns/op")


def chain(report, secs, name, length, leaves, step):
    warm_up, least = 3, 7
    for tensor in leaves:
        tensor.requires_grad_()
    forward, backward, release = Samples(), Samples(), Samples()
    end, i = now()[0] + secs, 0
    while i < warm_up + least or now()[0] < end:
        for tensor in leaves:
            tensor.grad = None
        start = finished()
        y = leaves[0]
        for _ in range(length):
            y = step(y)
        forward_done = finished()
        y.backward(torch.ones_like(y))
        backward_done = finished()
        y = None
        released = now()
        i += 1
        if i > warm_up:
            forward.add(start, forward_done)
            backward.add(forward_done, backward_done)
            release.add(backward_done, released)
    report.time(name + ".fwd", forward, 1e9 / length, "ns/op")
    report.time(name + ".bwd", backward, 1e9 / length, "ns/op")
    report.time(name + ".free", release, 1e9 / length, "ns/op")


def chain_add(report, secs):
    x, b = rand(1), rand(1)
    chain(report, secs, "op.chain_add", 1000, [x], lambda y: y + b)


def chain_addx(report, secs):
    x = rand(1)
    chain(report, secs, "op.chain_addx", 1000, [x], lambda y: y + x)


def chain_tanh(report, secs):
    chain(report, secs, "op.chain_tanh64", 1000, [rand(64)], torch.tanh)


def chain_mm(report, secs):
    x, w = rand(1, 64), filled((64, 64), 3, 0.2)
    chain(report, secs, "op.chain_mm64", 200, [x, w], lambda y: torch.mm(y, w))


def main():
    options = parse()
    report, secs = Report(options), options.secs
    report.run("op.add1.nograd", lambda: add1(report, secs, "op.add1.nograd", False))
    report.run("op.add1.grad", lambda: add1(report, secs, "op.add1.grad", True))
    report.run("op.chain_add", lambda: chain_add(report, secs))
    report.run("op.chain_addx", lambda: chain_addx(report, secs))
    report.run("op.chain_tanh64", lambda: chain_tanh(report, secs))
    report.run("op.chain_mm64", lambda: chain_mm(report, secs))
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
