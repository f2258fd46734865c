"""The nets of bench/distributed.cpp in PyTorch: DistributedDataParallel over Gloo, two processes of one thread, beside
the same processes without a connection."""
import os
import resource
import socket
import subprocess
import sys

import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from bench import Random, Samples, classes, field, fill, filled, now, parse, tensor, within
from corpus import TREE, Treebank
from nets import LeNet

RANKS = 2
WORKLOADS = ["ddp.tree", "ddp.lenet", "ddp.mlp2048", "ddp.mlp"]


def linear(inputs, outputs, seed, bound):
    layer = nn.Linear(inputs, outputs)
    fill(layer.weight, seed, bound)
    nn.init.zeros_(layer.bias)
    return layer


def wide():
    w = 2048
    return nn.Sequential(linear(w, w, 3, 0.03), nn.ReLU(), linear(w, w, 4, 0.03), nn.ReLU(), linear(w, 10, 5, 0.03))


def perceptron():
    return nn.Sequential(linear(784, 256, 3, 0.05), nn.ReLU(), linear(256, 10, 4, 0.1))


class Dense:
    """A net on one batch."""

    def __init__(self, net, optimizer, shape, rank):
        self.net, self.x, self.y = net, filled(shape, 1 + rank, 1), classes(shape[0], 10)
        self.optimizer = optimizer(net.parameters())

    def step(self):
        loss = F.cross_entropy(self.net(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class TreeModel(nn.Module):
    """The sum of the losses of all nodes of some trees."""

    def __init__(self, words):
        super().__init__()
        e, h, c = TREE["kEmbedding"], TREE["kHidden"], TREE["kClasses"]
        self.embedding = nn.Embedding(words, e, sparse=True)
        self.x, self.h, self.out = linear(e, 3 * h, 2, 0.05), linear(2 * h, 5 * h, 3, 0.05), linear(h, c, 4, 0.05)
        fill(self.embedding.weight, 1, 0.05)

    def leaf(self, x):
        i, o, u = self.x(x).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def inner(self, left, right):
        i, left_f, right_f, o, u = self.h(torch.cat((left[0], right[0]), 1)).chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(left_f) * left[1] + torch.sigmoid(right_f) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, examples):
        losses = []
        for tree, word_ids, labels in examples:
            words, found = iter(self.embedding(word_ids).split(1)), []
            for left, right in zip(tree.left, tree.right):
                found.append(self.leaf(next(words)) if left < 0 else self.inner(found[left], found[right]))
            losses += [F.cross_entropy(self.out(h), y, reduction="sum") for (h, _), y in zip(found, labels)]
        return torch.stack(losses).sum()


class Trees:
    """Every other tree; ranks get trees of like sizes in each step."""

    def __init__(self, bank, rank):
        self.net = TreeModel(bank.words)
        self.optimizer = torch.optim.Adagrad(self.net.parameters(), lr=TREE["kLearningRate"])
        trees, random = sorted(bank.trees, key=lambda tree: len(tree.label)), Random(1)
        order = list(range(len(trees) // RANKS))
        for i in range(len(order), 1, -1):
            j = random.below(i)
            order[i - 1], order[j] = order[j], order[i - 1]
        self.examples, self.next = [], 0
        for i in order:
            tree = trees[RANKS * i + rank]
            words = tensor([word for left, word in zip(tree.left, tree.word) if left < 0])
            self.examples.append((tree, words, tensor(tree.label).split(1)))

    def step(self):
        batch = [self.examples[(self.next + i) % len(self.examples)] for i in range(TREE["kBatch"])]
        self.next += TREE["kBatch"]
        self.optimizer.zero_grad()
        (self.net(batch) / TREE["kBatch"]).backward()
        self.optimizer.step()


def maker(workload, options, rank):
    if workload == "ddp.tree":
        bank = Treebank(options)
        return lambda: Trees(bank, rank)
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.01, fused=True)
    adam = lambda parameters: torch.optim.Adam(parameters, lr=1e-3, fused=True)
    return {
        "ddp.lenet": lambda: Dense(LeNet(), sgd, (64, 1, 28, 28), rank),
        "ddp.mlp2048": lambda: Dense(wide(), sgd, (100, 2048), rank),
        "ddp.mlp": lambda: Dense(perceptron(), adam, (100, 784), rank),
    }[workload]


def compare(first, second, secs):
    """compare() of bench/distributed.cpp."""

    def timed(step, steps, samples=None):
        distributed.barrier()
        begin = now()[0]
        for _ in range(steps):
            start = now()
            step()
            if samples:
                samples.add(start, now())
        return now()[0] - begin

    warm_up = 3
    timed(first, warm_up), timed(second, warm_up)
    times = torch.tensor([timed(first, warm_up) / warm_up, timed(second, warm_up) / warm_up], dtype=torch.float64)
    distributed.broadcast(times, 0)
    a, b = times.tolist()
    steps = max(1, int(0.2 / max(a, b)))
    rounds = max(5, int(secs / (steps * (a + b))))
    samples, ratios = (Samples(), Samples()), []
    for _ in range(rounds):
        both = torch.tensor([timed(first, steps, samples[0]), timed(second, steps, samples[1])], dtype=torch.float64)
        distributed.all_reduce(both)
        ratios.append((both[0] / both[1]).item())
    return samples, [Samples.at(ratios, q) for q in (0.5, 0.1, 0.9)]


def run_rank(options):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(options.threads)
    distributed.init_process_group("gloo")
    make = maker(options.workload, options, rank)
    alone, together = make(), make()
    together.net = DistributedDataParallel(together.net)
    (first, second), (ratio, low, high) = compare(alone.step, together.step, options.secs)
    if rank == 0:
        say(options, first, second, ratio, low, high)
    distributed.barrier()
    distributed.destroy_process_group()


def say(options, first, second, ratio, low, high):
    ms = [1e3 * second.wall(q) for q in (0.5, 0, 0.1, 0.9)]
    line = (
        f'{{"workload": "{options.workload}", "library": "torch-{torch.__version__}", "device": "cpu", '
        f'"threads": {options.threads}, "median": {ms[0]:.6g}, "unit": "ms", "cpu_median": {1e3 * second.cpu():.6g}, '
        f'"best": {ms[1]:.6g}, "p10": {ms[2]:.6g}, "p90": {ms[3]:.6g}, "n": {len(second.walls)}, '
        f'"peak_rss_mib": {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}, "peak_device_mib": 0, '
        f'"processes": {RANKS}, "beside": "alone", {field("beside_median", 1e3 * first.wall())}, '
        f'{field("ratio", ratio)}, {field("ratio_low", low)}, {field("ratio_high", high)}}}'
    )
    print(line, flush=True)
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def main():
    options = parse()
    if "RANK" in os.environ and not options.list:
        run_rank(options)
        return 0
    good = True
    for workload in WORKLOADS:
        if not within(workload, options.workload):
            continue
        if options.list:
            print(workload)
            continue
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [
            subprocess.Popen(
                [sys.executable, *sys.argv, "--workload", workload],
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port)},
            )
            for rank in range(RANKS)
        ]
        good &= all([rank.wait() == 0 for rank in ranks])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
