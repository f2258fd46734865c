"""The taggers of bench/tagger.cpp in PyTorch."""
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from bench import Report, fill, filled, leaf, measure, parse, place, tensor, zeros
from corpus import NER, TAGGER, Tagged


def bilstm(size, hidden):
    lstm = nn.LSTM(size, hidden, bidirectional=True)
    with torch.no_grad():
        for seed, end in ((10, ""), (20, "_reverse")):
            fill(getattr(lstm, "weight_ih_l0" + end), seed, 0.1)
            fill(getattr(lstm, "weight_hh_l0" + end), seed + 1, 0.1)
            getattr(lstm, "bias_ih_l0" + end).zero_()[hidden : 2 * hidden] = 1  # of the forget gate
            getattr(lstm, "bias_hh_l0" + end).zero_()
    return place(lstm)


class Tagger:
    def __init__(self, words, tags):
        e, h, m = TAGGER["kEmbedding"], TAGGER["kHidden"], TAGGER["kMlp"]
        self.embedding, self.lstm = leaf((words, e), 1, 0.1), bilstm(e, h)
        self.hidden, self.out = leaf((m, 2 * h), 30, 0.1), leaf((tags, m), 31, 0.1)

    def optimizers(self):
        dense, rate = [*self.lstm.parameters(), self.hidden, self.out], TAGGER["kLearningRate"]
        return [torch.optim.Adam(dense, lr=rate, fused=True), torch.optim.SparseAdam([self.embedding], lr=rate)]

    def scores(self, words):
        states = self.lstm(F.embedding(words, self.embedding, sparse=True))[0]
        return F.linear(torch.tanh(F.linear(states, self.hidden)), self.out)

    def loss(self, words, tags, _):
        return F.cross_entropy(self.scores(words), tags, reduction="sum")

    def decode(self, words):
        return self.scores(words).argmax(1).cpu().numpy()


class CrfTagger:
    def __init__(self, words, tags):
        e, h = NER["kEmbedding"], NER["kHidden"]
        self.embedding, self.lstm = leaf((words, e), 1, 0.1), bilstm(e, h)
        self.out, self.out_bias = leaf((tags, 2 * h), 30, 0.1), zeros(tags)
        self.transitions = leaf((tags, tags), 31, 0.1)  # [from, to]
        self.start, self.end = leaf((tags,), 32, 0.1), leaf((tags,), 33, 0.1)

    def optimizers(self):
        own = [self.embedding, self.out, self.out_bias, self.transitions, self.start, self.end]
        return [torch.optim.SGD([*self.lstm.parameters(), *own], lr=NER["kLearningRate"])]

    def emissions(self, words):
        return F.linear(self.lstm(F.embedding(words, self.embedding, sparse=True))[0], self.out, self.out_bias)

    def loss(self, words, tags, tag_ids):
        """-log p(tags | words), by the forward algorithm."""
        scores = self.emissions(words)
        first, *steps = scores.unbind(0)
        alpha = self.start + first
        for step in steps:
            alpha = torch.logsumexp(alpha.unsqueeze(1) + self.transitions, 0) + step
        gold = scores.gather(1, tags.unsqueeze(1)).sum() + self.start[tag_ids[0]] + self.end[tag_ids[-1]]
        if steps:
            gold = gold + self.transitions[tags[:-1], tags[1:]].sum()
        return torch.logsumexp(alpha + self.end, 0) - gold

    def decode(self, words):
        """Viterbi's algorithm in NumPy over what PyTorch emits, as that is faster than in tensors."""
        emitted = self.emissions(words).cpu().numpy()
        best, came = self.host[0] + emitted[0], []
        for emission in emitted[1:]:
            paths = best[:, None] + self.host[1]
            came.append(paths.argmax(0))
            best = paths.max(0) + emission
        tags = [int((best + self.host[2]).argmax())]
        for step in reversed(came):
            tags.append(int(step[tags[-1]]))
        return numpy.array(tags[::-1])

    def prepare(self):
        """What decoding reads on the host."""
        self.host = [t.detach().cpu().numpy() for t in (self.start, self.transitions, self.end)]


def train(model, optimizers, examples):
    total = 0
    for example in examples:
        loss = model.loss(*example)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        total += loss.item()
    return total


def infer(model, examples):
    with torch.inference_mode():
        if hasattr(model, "prepare"):
            model.prepare()
        return sum(int(model.decode(words)[0]) for words, _, _ in examples)


def run(report, options, kind, name, files, expected):
    def load():
        data = Tagged(options, files)
        examples = [(tensor(words), tensor(tags), tags) for words, tags in data.sentences]
        return data, kind(data.words, data.tags), examples

    def run_train():
        data, model, examples = load()
        optimizers = model.optimizers()
        more = data.check_loss(train(model, optimizers, examples) / data.tokens, expected)
        samples = measure(lambda: train(model, optimizers, examples), options.secs, 0, 3)
        report.rate(name + ".train", samples, len(examples), "sentences/s", more)

    def run_infer():
        _, model, examples = load()
        samples = measure(lambda: infer(model, examples), options.secs, 1, 3)
        report.rate(name + ".infer", samples, len(examples), "sentences/s")

    report.run(name + ".train", run_train)
    report.run(name + ".infer", run_infer)


def main():
    options = parse()
    report = Report(options)
    run(report, options, Tagger, "tag", TAGGER["kFiles"], TAGGER["kFirstPassLoss"])
    run(report, options, CrfTagger, "ner", NER["kFiles"], NER["kFirstPassLoss"])
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
