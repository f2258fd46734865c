"""Makes random programs, running them in PyTorch as they grow, so that operands fit."""
import math
import random

import torch

from program import LEAF, Missing, Ref, Statement, execute

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]
LARGEST = 300  # elements of a value


class Retry(Exception):
    """No arguments of this kind at hand."""


def is_leaf(x):
    try:
        return x.is_leaf
    except RuntimeError:  # one of several views of a base that was changed in place
        return False


class Generator:
    """A program that grows. What the rows of ops.py ask for is here: leaves, values that are there already."""

    def __init__(self, seed, ops):
        self.rng = random.Random(seed)
        self.ops = ops  # by name
        self.program, self.values, self.count = [], {}, 0

    # ---- chance

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, *of):
        return self.rng.choice(of)

    def int(self, low, high):
        """low ≤ i ≤ high"""
        if high < low:
            raise Retry
        return self.rng.randint(low, high)

    def float_dtype(self):
        return self.rng.choices(FLOATS, [6, 6, 1, 1])[0]

    def dtype(self):
        return self.float_dtype() if self.chance(0.7) else self.choice(*INTEGERS, torch.int64, torch.bool)

    def shape(self, low=0, high=4):
        rank = self.rng.choices(range(5), [2, 5, 7, 4, 1])[0]
        rank = min(max(rank, low), high)
        return [self.rng.choices(range(6), [0.25, 3, 5, 5, 3, 1])[0] for _ in range(rank)]

    # ---- values

    def numbers(self, count, dtype, low=None, high=None):
        rng = self.rng
        if dtype == torch.bool:
            return [rng.random() < 0.5 for _ in range(count)]
        if not dtype.is_floating_point:
            if low is not None:
                return [rng.randint(math.ceil(low), math.floor(high)) for _ in range(count)]
            info = torch.iinfo(dtype)
            numbers = [rng.randint(max(info.min, -4), 6) for _ in range(count)]
            if self.chance(0.15):
                extremes = [info.min, info.max, info.max - 1, info.min + 1, 0]
                numbers = [rng.choice(extremes) if rng.random() < 0.4 else number for number in numbers]
            return numbers
        if low is not None:
            return [rng.uniform(low, high) for _ in range(count)]
        draw = rng.choices(
            [
                lambda: rng.randint(-24, 24) / 8,
                lambda: float(rng.randint(-1, 2)),
                lambda: rng.randint(1, 32) / 8,
                lambda: rng.randint(1, 15) / 16,
                lambda: rng.uniform(-3, 3),
            ],
            [5, 1.5, 2, 1, 4],
        )[0]
        numbers = [draw() for _ in range(count)]
        if self.chance(0.12):
            extremes = [math.inf, -math.inf, math.nan, -0.0, 0.0, 1e-5, 3e4, -3e4, 1e-30, 1e30, 100.0, -100.0]
            numbers = [rng.choice(extremes) if rng.random() < 0.3 else number for number in numbers]
        return numbers

    def leaf(self, shape, dtype=None, low=None, high=None, values=None, grad=None, layout=True):
        """A new leaf of this shape, in any layout."""
        dtype = dtype or self.dtype()
        if values is not None:
            numbers, layout = values, False
        elif math.prod(shape) > LARGEST:
            raise Retry
        how = self.rng.choices(["dense", "transposed", "strided", "narrow", "expanded"], [6, 1.5, 1, 1, 0.6])[0]
        base, steps = list(shape), []
        if layout and how == "transposed" and len(shape) >= 2:
            a, b = self.rng.sample(range(len(shape)), 2)
            base[a], base[b] = base[b], base[a]
            steps = [("transpose", a, b)]
        elif layout and how in ("strided", "narrow") and shape:
            d = self.int(0, len(shape) - 1)
            if how == "strided":
                base[d] = 2 * shape[d]
                steps = [("slice", d, self.int(0, 1), None, 2)]
            else:
                base[d] += 2
                steps = [("narrow", d, self.int(0, 2), shape[d])]
        elif layout and how == "expanded" and shape:
            d = self.int(0, len(shape) - 1)
            base[d] = 1
            steps = [("expand", list(shape))]
        if values is None:
            numbers = self.numbers(math.prod(base), dtype, low, high)
        ref = self.new([Statement(LEAF, [self.tensor(numbers, dtype).reshape(base)], [])])
        for name, *args in steps:
            (ref,) = self.emit(self.ops[name], [ref, *args])
        if dtype.is_floating_point and (self.chance(0.6) if grad is None else grad):
            self.emit(self.ops["requires_grad_"], [ref, True], keep=False)
        return ref

    @staticmethod
    def tensor(numbers, dtype):
        return torch.tensor(numbers, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype)

    def new(self, statements):
        for statement in statements:
            results = execute(statement, self.values)
            self.add(statement, results)
        return statement.results[0]

    def add(self, statement, results):
        for result in results:
            statement.results.append(Ref(self.count))
            self.values[Ref(self.count)] = result
            self.count += 1
        self.program.append(statement)

    def emit(self, op, args, keep=True, record=True):
        """Adds a statement; the numbers of its results, or None where PyTorch refuses it."""
        statement = Statement(op, args, [], record)
        try:
            results = execute(statement, self.values)
        except Missing:
            raise
        except Exception:
            self.program.append(statement)
            return None
        if any(result is not None and result.numel() > LARGEST for result in results):
            raise Retry
        self.add(statement, results if keep else [])
        return statement.results

    def pick(self, fits=lambda x: True, make=None):
        """A value that fits: mostly one that is there, else a new leaf (or what `make` makes)."""
        known = [ref for ref, x in self.values.items() if x is not None and fits(x)]
        if known and self.chance(0.8):
            return known[max(self.rng.randrange(len(known)), self.rng.randrange(len(known)))]
        for _ in range(20):
            ref = make() if make else self.leaf(self.shape())
            if fits(self.values[ref]):
                return ref
        raise Retry

    def of(self, ref):
        return self.values[ref]

    # ---- whole programs

    def step(self, rows):
        """One more op. Of those that PyTorch refuses a few are kept."""
        for _ in range(12):
            op = self.rng.choices(rows, [row.weight for row in rows])[0]
            before = len(self.program), dict(self.values)
            try:
                args = op.make(self)
                in_place = op.base.endswith("_")
                done = self.emit(op, args, record=not self.chance(0.15 if in_place else 0.02))
                if done is not None or self.chance(0.15):
                    return
            except (Retry, IndexError, Missing):
                pass
            del self.program[before[0] :]
            self.values = before[1]

    def finish(self):
        """The gradients of something that requires grad, perhaps twice."""
        known = {ref: x for ref, x in self.values.items() if x is not None and x.requires_grad and x.is_floating_point()}
        roots = [ref for ref, x in known.items() if not is_leaf(x)]
        leaves = [ref for ref, x in known.items() if is_leaf(x)]
        if not roots or not leaves:
            return
        outputs = [roots[-1]] if self.chance(0.6) else self.rng.sample(roots, min(2, len(roots)))
        inputs = self.rng.sample(leaves, min(5, len(leaves)))
        twice = self.chance(0.35)
        if not twice and len(outputs) == 1 and self.chance(0.2):
            self.emit(self.ops["backward"], [outputs[0], self.cotangent(outputs[0]), inputs])
            return
        grads = self.emit(self.ops["grad"], [outputs, inputs, [self.cotangent(y) for y in outputs], twice])
        again = [ref for ref in grads or [] if self.values[ref] is not None and self.values[ref].requires_grad]
        if twice and again:
            again = self.rng.sample(again, 1)
            self.emit(self.ops["grad"], [again, inputs, [self.cotangent(y) for y in again], False])

    def cotangent(self, ref):
        y = self.values[ref]
        return self.leaf(list(y.shape), y.dtype, values=[self.rng.randint(-8, 8) / 8 or 1 for _ in range(y.numel())], grad=False)


def generate(seed, rows):
    """Program number `seed`, of 1 to 12 ops."""
    g = Generator(seed, {row.name: row for row in rows})
    weighted = [row for row in rows if row.make]
    for _ in range(g.int(1, 12)):
        g.step(weighted)
    try:
        g.finish()
    except Retry:
        pass
    return g.program
