"""The Tree-LSTM of bench/treelstm.cpp in PyTorch. The words of a tree are looked up together, and each tree is walked
back by itself, as PyTorch likes it best."""
import sys

import torch
from torch.nn import functional as F

from bench import Report, leaf, measure, parse, tensor, zeros
from corpus import TREE, Treebank

E, H, C = TREE["kEmbedding"], TREE["kHidden"], TREE["kClasses"]


class Model:
    def __init__(self, words):
        self.embedding = leaf((words, E), 1, 0.05)
        self.weight_x, self.bias_x = leaf((3 * H, E), 2, 0.05), zeros(3 * H)
        self.weight_h, self.bias_h = leaf((5 * H, 2 * H), 3, 0.05), zeros(5 * H)
        self.out, self.out_bias = leaf((C, H), 4, 0.05), zeros(C)

    def parameters(self):
        return [self.embedding, self.weight_x, self.bias_x, self.weight_h, self.bias_h, self.out, self.out_bias]

    def leaf(self, x):
        i, o, u = F.linear(x, self.weight_x, self.bias_x).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def inner(self, left, right):
        gates = F.linear(torch.cat((left[0], right[0]), 1), self.weight_h, self.bias_h)
        i, left_f, right_f, o, u = gates.chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(left_f) * left[1] + torch.sigmoid(right_f) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c

    def classify(self, h):
        return F.linear(h, self.out, self.out_bias)


class Example:
    def __init__(self, tree):
        self.tree = tree
        self.words = tensor([word for left, word in zip(tree.left, tree.word) if left < 0])
        self.labels = tensor(tree.label).split(1)


def states(model, example):
    """Hidden states and cells of a tree's nodes."""
    words = iter(F.embedding(example.words, model.embedding, sparse=True).split(1))
    found = []
    for left, right in zip(example.tree.left, example.tree.right):
        found.append(model.leaf(next(words)) if left < 0 else model.inner(found[left], found[right]))
    return found


def backward(model, example):
    """Walks one tree back; returns the sum of its losses."""
    nodes = zip(states(model, example), example.labels)
    loss = torch.stack([F.cross_entropy(model.classify(h), label, reduction="sum") for (h, _), label in nodes]).sum()
    (loss / TREE["kBatch"]).backward()
    return loss.item()


def train(model, optimizer, examples, nodes):
    """One step for every 25 trees; returns the loss a node."""
    total = 0
    for begin in range(0, len(examples), TREE["kBatch"]):
        optimizer.zero_grad()
        total += sum(backward(model, example) for example in examples[begin : begin + TREE["kBatch"]])
        optimizer.step()
    return total / nodes


def infer(model, examples):
    with torch.inference_mode():
        return sum(model.classify(states(model, example)[-1][0]).argmax(1).item() for example in examples)


def main():
    options = parse()
    report = Report(options)

    def load():
        bank = Treebank(options)
        return bank, Model(bank.words), [Example(tree) for tree in bank.trees]

    def run_train():
        bank, model, examples = load()
        adagrad = torch.optim.Adagrad(model.parameters(), lr=TREE["kLearningRate"])
        more = bank.check_loss(train(model, adagrad, examples, bank.nodes))
        samples = measure(lambda: train(model, adagrad, examples, bank.nodes), options.secs, 0, 3)
        report.rate("tree.train.pernode", samples, len(examples), "trees/s", more)

    def run_infer():
        _, model, examples = load()
        report.rate("tree.infer.pernode", measure(lambda: infer(model, examples), options.secs, 1, 3), len(examples), "trees/s")

    report.run("tree.train.pernode", run_train)
    report.run("tree.infer.pernode", run_infer)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
