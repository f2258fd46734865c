"""The models of the breadth benchmark for PyTorch, as bench/breadth_models.cpp has them for reel."""
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

from bench import ids, uniform


def fill_parameters(parameters):
    with torch.no_grad():
        for p in parameters:
            bound = (p.shape[0] / p.numel()) ** 0.5
            p.copy_(uniform(-bound, bound, p.shape) if p.dim() > 1 else uniform(0.5, 1, p.shape))


def inputs(*shape):
    return uniform(-1, 1, shape, 1)


def maybe_in_half(mode):
    return torch.autocast("cpu", torch.bfloat16) if mode.endswith("16") else contextlib.nullcontext()


def infer_or_train(mode, optimizer, f):
    """A step of inference, where f() is an output, or of training, where it is a loss."""

    def infer():
        with torch.no_grad(), maybe_in_half(mode):
            return f()

    def train():
        optimizer.zero_grad()
        with maybe_in_half(mode):
            loss = f()
        loss.backward()
        optimizer.step()
        return loss

    return train if mode.startswith("train") else infer


def step_of(net, x, mode):
    """A step of a net from x, whose loss is the mean square of its output."""
    fill_parameters(net.parameters())
    train = mode.startswith("train")
    net.train(train)
    loss = (lambda: net(x).float().square().mean()) if train else (lambda: net(x))
    return infer_or_train(mode, torch.optim.SGD(net.parameters(), 1e-4), loss)


# ---- recurrent nets and Transformers ---------------------------------------------------------------------------------


class Outputs(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0]


def rnn(kind, layers, directions, hidden, batch, mode):
    net = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](hidden, hidden, layers, bidirectional=directions == 2)
    return step_of(Outputs(net), inputs(50, batch, hidden), mode)


def encoder(size, length, batch, mode):
    net = nn.TransformerEncoderLayer(size, 8, 4 * size, batch_first=True)
    step = step_of(net, inputs(batch, length, size), mode)
    return (lambda: [step()][:0]) if mode.startswith("train") else step  # its dropout is random


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.size, self.heads = size, heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.hidden, self.last = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x, cache):
        batch, length, size = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, 2))
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1).transpose(1, 2).reshape(batch, length, size)
        z = x + self.out(y)
        return z + self.last(F.gelu(self.hidden(self.norm2(z)))), (k, v)


TOKENS = 8000


class Gpt(nn.Module):
    def __init__(self, size, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, size), nn.Embedding(1024, size)
        self.blocks = nn.ModuleList(Block(size, size // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, TOKENS)

    def forward(self, tokens, caches, at, only_last):
        x = self.tokens(tokens) + self.positions(torch.arange(at, at + tokens.size(1)))
        for i, block in enumerate(self.blocks):
            x, caches[i] = block(x, caches[i])
        return self.head(self.norm(x[:, -1:] if only_last else x))


def decode(size, layers, tokens, batch, mode):
    net = Gpt(size, layers)
    fill_parameters(net.parameters())
    prompt = ids(TOKENS, (batch, 16))

    def step():
        with torch.no_grad():
            caches, token, first, at = [None] * layers, prompt, None, 0
            for _ in range(tokens):
                y = net(token, caches, at, True)
                first = y if first is None else first
                at += token.size(1)
                token = y.view(batch, -1).argmax(1).view(batch, 1)
            return first

    return step


def gpt(size, layers, length, batch, mode):
    net = Gpt(size, layers)
    fill_parameters(net.parameters())
    x, y = ids(TOKENS, (batch, length)), ids(TOKENS, (batch * length,), 1)
    loss = lambda: F.cross_entropy(net(x, [None] * layers, 0, False).view(-1, TOKENS), y)
    return infer_or_train(mode, torch.optim.AdamW(net.parameters()), loss)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, 768) for n in (30522, 512, 2))
        self.norm = nn.LayerNorm(768)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12)

    def forward(self, tokens, padding):
        x = self.words(tokens) + self.positions(torch.arange(tokens.size(1))) + self.types.weight[0]
        return self.encoder(self.norm(x), src_key_padding_mask=padding)


def bert(kind, mode):
    net = Bert().eval()
    lengths = torch.tensor([128, 17, 45, 96, 64, 23, 110, 38])
    tokens = ids(30000, (8, 128))
    padding = torch.arange(128)[None] >= lengths[:, None] if kind == "ragged" else None

    def step():
        with torch.no_grad(), maybe_in_half(mode):
            net(tokens, padding)
        return []

    return step


# ---- nets of images --------------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18(layout, batch, mode):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(inside, out, stride), BasicBlock(out, out, 1)]
        inside = out
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    x = inputs(batch, 3, 224, 224)
    if layout == "nhwc":
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return step_of(net, x, mode)


def mobilenet(batch, mode):
    layers = []

    def add(inside, out, kernel, stride, groups):
        conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        layers.extend([conv, nn.BatchNorm2d(out), nn.ReLU6()])

    add(3, 32, 3, 2, 1)
    inside = 32
    for out, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
                        (1024, 2), (1024, 1)):  # fmt: skip
        add(inside, inside, 3, stride, inside)
        add(inside, out, 1, 1, 1)
        inside = out
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
    return step_of(net, inputs(batch, 3, 224, 224), mode)


def two_convs(inside, out):
    return nn.Sequential(nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
                         nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.down3 = two_convs(1, 16), two_convs(16, 32), two_convs(32, 64)
        self.widen2, self.widen1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.up2, self.up1, self.out = two_convs(64, 32), two_convs(32, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        return self.out(self.up1(torch.cat((self.widen1(self.up2(torch.cat((self.widen2(c), b), 1))), a), 1)))


def unet(batch, mode):
    return step_of(UNet(), inputs(batch, 1, 128, 128), mode)


def autoencoder(batch, mode):
    layers = []
    for inside, out in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inside, out, 3, 2, 1), nn.ReLU()]
    for inside, out in ((128, 64), (64, 32), (32, 3)):
        layers += [nn.ConvTranspose2d(inside, out, 4, 2, 1), nn.ReLU()]
    return step_of(nn.Sequential(*layers[:-1]), inputs(batch, 3, 64, 64), mode)


# ---- others ----------------------------------------------------------------------------------------------------------


def mlp(inside, hidden, layers, batch, mode):
    net = []
    for i in range(layers + 1):
        net += [nn.Linear(hidden if i else inside, hidden if i < layers else inside), nn.GELU()]
    return step_of(nn.Sequential(*net[:-1]), inputs(batch, inside), mode)


class Recommender(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.bag = nn.EmbeddingBag(1000000, 64, sparse=sparse, mode="sum")
        self.hidden, self.out = nn.Linear(77, 256), nn.Linear(256, 1)

    def forward(self, items, x):
        return self.out(F.relu(self.hidden(torch.cat((self.bag(items), x), 1))))


def recommender(gradients, mode):
    net = Recommender(gradients == "sparse")
    fill_parameters(net.parameters())
    items, x, y = ids(1000000, (512, 20)), inputs(512, 13), uniform(0, 1, (512, 1))
    if mode == "train":
        f = lambda: F.binary_cross_entropy_with_logits(net(items, x), y)
    else:
        f = lambda: net(items, x)
    return infer_or_train(mode, torch.optim.SGD(net.parameters(), 0.01), f)


class Graph(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(3))

    def forward(self, x, start, end):
        for layer in self.layers:
            x = F.relu(torch.zeros_like(x).index_add(0, end, layer(x).index_select(0, start)))
        return x


def graph(nodes, edges, size, mode):
    net = Graph(size)
    fill_parameters(net.parameters())
    x, start, end = inputs(nodes, size), ids(nodes, (edges,)), ids(nodes, (edges,), 1)
    f = (lambda: net(x, start, end).mean()) if mode == "train" else (lambda: net(x, start, end))
    return infer_or_train(mode, torch.optim.SGD(net.parameters(), 1e-6), f)


WORDS = 33000


class Words(nn.Module):
    def __init__(self, adaptive):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(WORDS, 256), nn.LSTM(256, 256)
        self.tails = nn.AdaptiveLogSoftmaxWithLoss(256, WORDS, [2000, 10000]) if adaptive else None
        self.out = None if adaptive else nn.Linear(256, WORDS)

    def forward(self, x, y):
        h = self.lstm(self.embedding(x))[0].reshape(-1, 256)
        return self.tails(h, y).loss if self.tails else F.cross_entropy(self.out(h), y)


def words(output, mode):
    net = Words(output == "adaptive")
    fill_parameters(net.parameters())
    x, y = ids(WORDS, (35, 20)), ids(WORDS, (700,), 1)
    return infer_or_train(mode, torch.optim.SGD(net.parameters(), 0.1), lambda: net(x, y))


def crf(steps, batch, tags, mode):
    first, last, y = inputs(tags), inputs(tags), ids(tags, (steps, batch))
    emissions, transitions = inputs(steps, batch, tags), inputs(tags, tags)

    def log_likelihood():
        a = first + emissions[0]
        for t in range(1, steps):
            a = torch.logsumexp(a[:, :, None] + transitions, 1) + emissions[t]
        score = first[y[0]] + emissions.gather(2, y[..., None]).squeeze(2).sum(0)
        score = score + transitions[y[:-1], y[1:]].sum(0) + last[y[-1]]
        return score - torch.logsumexp(a + last, 1)

    def decoded():
        a, back = first + emissions[0], []
        for t in range(1, steps):
            best, at = (a[:, :, None] + transitions).max(1)
            a = best + emissions[t]
            back.append(at)
        path = [(a + last).argmax(1)]
        for at in reversed(back):
            path.append(at.gather(1, path[-1][:, None]).squeeze(1))
        return torch.stack(path[::-1])

    def infer():
        with torch.no_grad():
            return log_likelihood() if mode == "infer" else [decoded()][:0]

    def train():
        log_likelihood().sum().backward()
        gradients = [emissions.grad, transitions.grad]
        emissions.grad = transitions.grad = None
        return gradients

    if mode != "train":
        return infer
    emissions.requires_grad_()
    transitions.requires_grad_()
    return train


def optimizer(name, parameters, **_):
    count, size = map(int, parameters.split("x"))
    p = [inputs(size).requires_grad_() for _ in range(count)]
    for one in p:
        one.grad = uniform(-1, 1, one.shape, 2)
    if name == "clip":

        def clip():
            nn.utils.clip_grad_norm_(p, 1e9)
            return p[0].grad

        return clip
    make = {"sgd": torch.optim.SGD, "sgdm": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
            "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop, "adadelta": torch.optim.Adadelta,
            "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam, "adamax": torch.optim.Adamax}[name]  # fmt: skip
    o = make(p, **({"lr": 1e-3} if name == "sgd" else {"lr": 1e-3, "momentum": 0.9} if name == "sgdm" else {}))

    def step():
        o.step()
        return p[0]

    return step


MODELS = {f.__name__: f for f in (rnn, encoder, decode, gpt, bert, resnet18, mobilenet, unet, autoencoder, mlp, recommender,
                                  graph, words, crf, optimizer)}  # fmt: skip


def step(name, arguments):
    return MODELS[name](*(int(word) if word.isdigit() else word for word in arguments.split(",")))
