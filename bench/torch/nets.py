"""The nets of bench/nets.cpp in PyTorch."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

from bench import Random, Report, check_loss, classes, constants, fill, filled, leaf, measure, parse, place, tensor, zeros

LOSS, KIM = constants("nets.h"), constants("nets.h", "kim")


def mlp_seed(report, secs):
    x, y = filled((64, 1000), 1, 1), filled((64, 10), 2, 1)
    w1, w2 = leaf((1000, 100), 3, 0.05), leaf((100, 10), 4, 0.1)
    sgd = torch.optim.SGD([w1, w2], lr=1e-6, fused=True)

    def step():
        loss = (x.mm(w1).relu().mm(w2) - y).square().sum()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        return loss.item()

    more = check_loss(step(), LOSS["kSeedLoss"])
    report.time("mlp.seed", measure(step, secs), 1e3, "ms", more)


def mlp_mnist(report, secs):
    batch, batches = 100, 10
    xs, ys = filled((batches * batch, 784), 1, 1), classes(batches * batch, 10)
    w1, w2, b1, b2 = leaf((256, 784), 3, 0.05), leaf((10, 256), 4, 0.1), zeros(256), zeros(10)
    adam = torch.optim.Adam([w1, b1, w2, b2], lr=1e-3, fused=True)
    at = 0

    def step():
        nonlocal at
        x, y = xs[at : at + batch], ys[at : at + batch]
        at = (at + batch) % len(xs)
        loss = F.cross_entropy(F.linear(F.linear(x, w1, b1).relu(), w2, b2), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    first = sum(step() for _ in range(batches)) / batches
    report.time("mlp.mnist", measure(step, secs), 1e3, "ms", check_loss(first, LOSS["kMnistLoss"]))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.hidden1, self.hidden2, self.out = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
        bounds = [(self.conv1, 0.2), (self.conv2, 0.1), (self.hidden1, 0.05), (self.hidden2, 0.1), (self.out, 0.1)]
        for seed, (layer, bound) in enumerate(bounds, 2):
            fill(layer.weight, seed, bound)
            nn.init.zeros_(layer.bias)

    def forward(self, image):
        x = F.max_pool2d(self.conv1(image).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        return self.out(self.hidden2(self.hidden1(x.flatten(1)).relu()).relu())


class Kim(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(KIM["kWords"], 300, sparse=True)
        self.convs = nn.ModuleList(nn.Conv1d(300, 100, width) for width in (3, 4, 5))
        self.dropout, self.out = nn.Dropout(0.5), nn.Linear(300, 5)
        fill(self.embedding.weight, 1, 0.25)
        fill(self.out.weight, 9, 0.05)
        nn.init.zeros_(self.out.bias)
        for seed, conv in enumerate(self.convs, 3):
            fill(conv.weight, seed, 0.02)
            nn.init.zeros_(conv.bias)

    def forward(self, words):
        x = self.embedding(words).transpose(1, 2)
        largest = [conv(x).relu().max(2).values for conv in self.convs]
        return self.out(self.dropout(torch.cat(largest, 1)))


def train(report, secs, name, net, optimizer, x, y, expected):
    net.eval()
    with torch.no_grad():
        more = check_loss(F.cross_entropy(net(x), y).item(), expected)
    net.train()

    def step():
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    report.time(name, measure(step, secs), 1e3, "ms", more)


def infer(report, secs, name, net, x):
    net.eval()
    with torch.inference_mode():
        report.time(name, measure(lambda: net(x), secs), 1e3, "ms")


def lenet_train(report, secs):
    net = place(LeNet())
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
    train(report, secs, "cnn.lenet.train", net, sgd, filled((64, 1, 28, 28), 1, 1), classes(64, 10), LOSS["kLenetLoss"])


def words():
    random = Random(5)
    ids = [random.below(KIM["kWords"]) for _ in range(KIM["kBatch"] * KIM["kLength"])]
    return tensor(ids).view(KIM["kBatch"], KIM["kLength"])


def kim_train(report, secs):
    net = place(Kim())
    adagrad = torch.optim.Adagrad(net.parameters(), lr=0.01)
    train(report, secs, "cnn.kim.train", net, adagrad, words(), classes(KIM["kBatch"], 5), LOSS["kKimLoss"])


def main():
    options = parse()
    report, secs = Report(options), options.secs
    report.run("mlp.seed", lambda: mlp_seed(report, secs))
    report.run("mlp.mnist", lambda: mlp_mnist(report, secs))
    report.run("cnn.lenet.train", lambda: lenet_train(report, secs))
    report.run("cnn.lenet.infer", lambda: infer(report, secs, "cnn.lenet.infer", place(LeNet()), filled((64, 1, 28, 28), 1, 1)))
    report.run("cnn.kim.train", lambda: kim_train(report, secs))
    report.run("cnn.kim.infer", lambda: infer(report, secs, "cnn.kim.infer", place(Kim()), words()))
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
