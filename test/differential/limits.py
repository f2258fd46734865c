"""Whether PyTorch's gradient at a pole, at infinity or at NaN is determined: what it says of numbers beside these.

The program is run in float64 with random numbers that approach those of the program in four steps: zeros become small, infinities
large, each by a power of the step that is chosen at random, so that 0 * inf and inf - inf come to nothing in particular; other
numbers change by small factors. What operands, also those that are changed in place, are on the way is changed in the same way, as are
gradients that are infinite or NaN there.
"""
import dataclasses
import math

import torch

from ops import by_name
from program import LEAF, SELECTING, WIDE_FLOATS, Ref, Statement, largest_of, replace, run_torch, with_dtypes, with_leaves_of

STEPS = (1e2, 1e4, 1e8, 1e12)
SEEDS = 6


@dataclasses.dataclass
class Limits:
    """What PyTorch says of a value beside the program's numbers: float64 tensors [SEEDS] + its shape, one a step. What is NaN
    beside them says nothing; a function need not be defined on all sides."""

    samples: list
    largest: float  # finite number of the value's dtype: what is beyond is infinite

    def agrees(self, x, y):
        """Where x is y but for what distance the last step leaves."""
        x, y = (torch.where(z.abs() > self.largest, z.sign() * math.inf, z) for z in (x.double(), y))
        return (x == y) | (x.isnan() & y.isnan()) | ((x - y).abs() <= 1e-4 + 1e-2 * y.abs().nan_to_num(0, 0, 0))

    @property
    def settled(self):
        """(where the samples have one limit, this limit, where they grow without end, on one side or on both). The limit is
        NaN where all of them are."""
        low = high = torch.full(self.samples[0].shape[1:], math.nan, dtype=torch.float64)
        for x in self.samples:  # the last step that says something
            known = (~x.isnan()).sum(0) > 1
            low = torch.where(known, torch.where(x.isnan(), math.inf, x).amin(0), low)
            high = torch.where(known, torch.where(x.isnan(), -math.inf, x).amax(0), high)
        converges = self.agrees(low, high) & ~low.isnan()
        # Each step takes even the least of the samples on, with no slower pace.
        least = torch.stack([torch.where(x.isnan(), math.inf, x.abs()).amin(0) for x in self.samples])
        pace = least.diff(dim=0)
        grows = ~converges & (pace > 0).all(0) & (pace[-1] >= 0.5 * pace[0]) & (least[-1] > 3)
        never = torch.stack(self.samples).isnan().flatten(0, 1).all(0)
        limit = torch.where(converges, (low + high) / 2, torch.where(grows, low.sign() * math.inf, math.nan))
        return converges | never | grows & (low.sign() == high.sign()), limit, grows

    @property
    def ends(self):
        """(the least, the largest sample)."""
        every = torch.cat(self.samples)
        return torch.where(every.isnan(), math.inf, every).amin(0), torch.where(every.isnan(), -math.inf, every).amax(0)

    @property
    def endless(self):
        low, high = self.ends
        return torch.maximum(-low, high) > 1e3

    def spans(self, x):
        """Where x is one of the values between which the samples are, without bounds where these grow without end."""
        low, high = self.ends
        slack = lambda end: 1e-3 * (1 + end.abs().nan_to_num(0, 0, 0))
        return ((x >= low - slack(low)) | (low < -1e3)) & ((x <= high + slack(high)) | (high > 1e3)) & (x.isfinite() | self.endless)

    def open_to(self, ours, theirs):
        """Where it is for no determined answer of PyTorch that reel says something else. PyTorch's is not the limit, and
        reel's is; or there is none, and reel's is one of the values between which it is open. NaN is right but where PyTorch
        has one of these."""
        settled, limit, grows = self.settled
        wrong = ~(settled & self.agrees(theirs, limit))
        right = torch.where(settled, self.agrees(ours, limit), self.spans(ours.double()) & (ours.isinf() | ~grows))
        return wrong & torch.where(ours.isnan(), settled | self.endless | ~theirs.isfinite(), right)

    def same_for_some(self, ours, theirs):
        """Where PyTorch does not say the same for all samples, and what reel says for several, or NaN."""
        every = torch.cat(self.samples)
        return ~self.agrees(theirs, every).all(0) & (ours.isnan() | (self.agrees(ours, every).sum(0) > 1))


def samples_of(program, number, changes):
    """What PyTorch says of value `number` of the program with each of these changes of its numbers, or None."""
    once = sum(s.op.base in ("grad", "backward") for s in program) == 1
    found = [run_torch(with_leaves_of(program, change), edge=Edges(change, once))[0].get(number) for change in changes]
    if any(x is None or x.shape != found[0].shape for x in found):
        return None
    return torch.stack([x.detach().double() for x in found])


def beside(program, number, largest, nan=False, seeds=SEEDS):
    """The Limits of a value of the program at its zeros and infinities (and NaNs, which are any numbers), or None."""
    program = with_dtypes(program, WIDE_FLOATS)
    beyond = max(float(largest_of(s.args[0].double())) for s in program if s.op is LEAF)
    samples = [samples_of(program, number, [moved(step, seed, beyond, nan) for seed in range(seeds)]) for step in STEPS]
    return None if any(x is None for x in samples) else Limits(samples, largest)


def at_nan(program, number, largest):
    """The Limits of a value of the program whose NaNs are any numbers, or None. What selects an extreme may select them, also
    beside infinities."""
    program = with_dtypes(program, WIDE_FLOATS)
    changes = [numbers_for_nan(seed) for seed in range(2 * SEEDS)]
    if any(s.op.base in SELECTING for s in program):
        changes += [extremes_for_nan(seed) for seed in range(SEEDS)]
    samples = samples_of(program, number, changes)
    return None if samples is None else Limits([samples], largest)


def slopes_of_values(program, outputs, cotangents, leaf, wanted, most=16):
    """The slopes by a leaf, where they are wanted, of what PyTorch says beside it of outputs times cotangents, by central
    differences of two sizes that agree; else NaN. Of the wanted ones no more than `most` are known."""
    program = with_dtypes(program, WIDE_FLOATS)
    x = run_torch(program)[0][leaf].detach()
    slopes = torch.full(x.shape, math.nan, dtype=torch.float64)
    places = [i for i, s in enumerate(program) if s.op.base == "requires_grad_" and s.args[0] == leaf]
    if not places or wanted.sum() > most:
        return slopes
    step, beside = Ref(10**7), Ref(10**7 + 1)
    after = [dataclasses.replace(s, args=replace(s.args, leaf, beside)) for s in program[places[-1] + 1 :]]
    outputs, cotangents = (replace(list(refs), leaf, beside) for refs in (outputs, cotangents))

    def value(index, by):
        far = torch.zeros_like(x)
        far[index] = by
        moved = [Statement(LEAF, [far], [step]), Statement(by_name("add"), [leaf, step], [beside])]
        values, _ = run_torch([*program[: places[-1] + 1], *moved, *after])
        pairs = [(values.get(y), values.get(c)) for y, c in zip(outputs, cotangents)]
        return math.nan if any(None in pair for pair in pairs) else sum(float((y.detach() * c).sum()) for y, c in pairs)

    for index in map(tuple, wanted.nonzero().tolist()):
        near = 1e-3 * (1 + abs(float(x[index])))
        first, second = ((value(index, by) - value(index, -by)) / (2 * by) for by in (near, near / 4))
        if abs(first - second) <= 1e-3 * (1 + abs(second)):
            slopes[index] = second
    return slopes


def moved(step, seed, beyond, nan=False):
    """A function that gives a tensor of numbers beside those of a float64 one, for infinity some beyond this number and its
    products, and, if `nan`, any for NaN."""
    generator, number = torch.Generator().manual_seed(seed), numbers_for_nan(seed) if nan else lambda x: x

    def change(x):
        random = lambda: torch.rand(x.shape, generator=generator, dtype=torch.float64)
        far = step ** (0.8 + 0.4 * random())
        part = torch.where(random() < 0.5, -1, 1) * (0.25 + random())
        far = torch.where(x.isinf(), far + beyond if beyond < 1e15 else far * beyond**2, far)
        return torch.where(x == 0, part / far, torch.where(x.isinf(), x.sign() * far, number(x) * (1 + part / far.clamp(max=1e6))))

    return change


def numbers_for_nan(seed):
    """A function that gives a float64 tensor with numbers of either sign for NaN."""
    generator = torch.Generator().manual_seed(seed)
    return lambda x: torch.where(x.isnan(), 8 * torch.randn(x.shape, generator=generator, dtype=torch.float64), x)


def extremes_for_nan(seed):
    """The same with numbers beyond all others, and large ones for infinities."""
    number = numbers_for_nan(seed)

    def change(x):
        far = 8 * (1 + float(largest_of(x)))
        return torch.where(x.isnan(), 8 * far * number(x).sign() * (1 + number(x).abs()), x.nan_to_num(0, far, -far))

    return change


class Edges:
    """Gives what an op reads instead of an operand: one without zeros, infinities and NaNs, or, where equals matter, without
    these. If `once`, for one gradient, what does not count in it adds nothing to it: 0 times NaN is 0."""

    def __init__(self, change, once):
        self.change, self.once, self.results = change, once, Cotangents()

    def __call__(self, op, x):
        if op.base == "polygamma":  # PyTorch counts up to 9 from where a number is
            x = x.clamp(min=-1e5)
        ties = op.base in SELECTING
        return Edge.apply(x, self.change, ties, self.results) if ties or not op.exact else x

    def made(self, op, results):
        """The op, of which operands have been read, has these results."""
        if self.once:
            self.results.watch(op, results)
        self.results = Cotangents()


class Cotangents:
    """The gradients of an op's results, as soon as they are known."""

    def __init__(self):
        self.local, self.known = False, []

    def watch(self, op, results):
        self.local = op.local and len(results) == 1
        for result in results:
            if result is not None and result.grad_fn is not None:
                result.register_hook(self.keep)

    def keep(self, g):
        if g is not None:
            self.known.append(g.detach())

    def are_zero(self, x):
        """Where elements of an operand make only such results as do not count."""
        if self.local and self.known and self.known[0].shape == x.shape:
            return self.known[0] == 0
        return torch.full(x.shape, bool(self.known) and not any(g.any() for g in self.known))


class Edge(torch.autograd.Function):
    """An operand that is changed on the way, with its gradient, in which infinities and NaNs are changed as in operands."""

    @staticmethod
    def forward(ctx, x, change, everywhere, results):
        ctx.change, ctx.results = change, results
        changed = change(x.double()).to(x.dtype)
        return changed if everywhere else torch.where((x == 0) | ~x.isfinite(), changed, x)

    @staticmethod
    def backward(ctx, g):
        changed = torch.where(ctx.results.are_zero(g), 0, ctx.change(g.double()).to(g.dtype))
        return torch.where(g.isfinite(), g, changed), None, None, None
