"""Defects that are planted in PyTorch, which then stands for reel, must be reported, not explained.

planted.py: the cases below. planted.py SEED COUNT: how many are reported of random programs with a wrong slope in every op.
"""
import collections
import dataclasses
import math
import sys

import torch

from differences import explanation
from differential import judge
from generator import generate
from ops import OPS, by_name
from program import LEAF, Op, Ref, Statement, Value, run_torch


class WrongGradient(torch.autograd.Function):
    """x, whose gradient g becomes wrong(x, g)."""

    @staticmethod
    def forward(ctx, x, wrong):
        ctx.save_for_backward(x)
        ctx.wrong = wrong
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.wrong(*ctx.saved_tensors, g), None


@dataclasses.dataclass
class Planted(Op):
    """An op with a wrong gradient by its first operand, and a wrong result."""

    gradient: object = None
    result: object = lambda y: y

    def __call__(self, args):
        if self.gradient and isinstance(args[0], torch.Tensor) and args[0].requires_grad:
            args = [WrongGradient.apply(args[0], self.gradient), *args[1:]]
        return self.result(super().__call__(args))


def reel_with(applies, **wrong):
    """An interpreter, for judge(), of which ops have these defects."""

    def run(program):
        changed = []
        for statement in program:
            if statement.op is not LEAF and applies(statement.op.base):
                fields = {field.name: getattr(statement.op, field.name) for field in dataclasses.fields(Op)}
                statement = dataclasses.replace(statement, op=Planted(**fields, **wrong))
            changed.append(statement)
        values, errors = run_torch(changed)
        return {number: x if x is None else Value(x.dtype, x.requires_grad, x.detach().clone()) for number, x in values.items()}, errors, 0

    return run


def program_of(op, *args, twice=False):
    """The op of these arguments, of which tensors require grad, and its gradients, or those of these."""
    program, refs = [], []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            leaf = Ref(len(program))
            program += [Statement(LEAF, [arg], [leaf]), Statement(by_name("requires_grad_"), [leaf, True], [])]
            refs.append(leaf)
    leaves = iter(refs)
    result = Ref(len(program))
    program.append(Statement(by_name(op), [next(leaves) if isinstance(arg, torch.Tensor) else arg for arg in args], [result]))
    for again in (True, False) if twice else (False,):
        values, _ = run_torch(program)
        cotangent, found = Ref(result + 100), [Ref(result + 101 + i) for i in range(len(refs))]
        numbers = torch.linspace(0.5, 1.5, values[result].numel()).reshape(values[result].shape).to(values[result].dtype)
        program.append(Statement(LEAF, [numbers], [cotangent]))
        program.append(Statement(by_name("grad"), [[result], refs, [cotangent], again], found))
        result = found[0]
    return program


INF, NAN = math.inf, math.nan


def at(number, becomes):
    """A wrong gradient: this function of it where the operand is this number."""
    there = lambda x: x.isnan() if number is NAN else x == number
    return lambda x, g: torch.where(there(x), torch.as_tensor(becomes(g), dtype=g.dtype), g)


CASES = [
    # what is wrong, the program, the defects
    ("a slope at a number", program_of("sin", torch.tensor([0.5, 2.0])), dict(gradient=at(2, lambda g: 1.001 * g))),
    ("a slope at 0", program_of("relu", torch.tensor([0.0, 2.0])), dict(gradient=at(0, lambda g: 1))),
    ("a subgradient at 0 that is another", program_of("abs", torch.tensor([0.0, 2.0])), dict(gradient=at(0, lambda g: 0.5))),
    ("a tie", program_of("maximum", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])), dict(gradient=at(1, lambda g: 2 * g))),
    ("a tie that becomes NaN", program_of("maximum", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])), dict(gradient=at(1, lambda g: NAN))),
    ("a tie in clamp that gets more than all", program_of("clamp", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]), None), dict(gradient=at(1, lambda g: 1.5))),
    ("a slope that ends at infinity", program_of("tanh", torch.tensor([INF, 2.0])), dict(gradient=at(INF, lambda g: 0.5))),
    ("NaN for a slope at infinity", program_of("sigmoid", torch.tensor([-INF, 2.0])), dict(gradient=at(-INF, lambda g: NAN))),
    ("a slope at infinity that is no less than others", program_of("softplus", torch.tensor([INF, 2.0]), 1.0, 20.0), dict(gradient=at(INF, lambda g: 0))),
    ("a number for the slope at a pole", program_of("log", torch.tensor([0.0, 2.0])), dict(gradient=at(0, lambda g: 0))),
    ("NaN for the slope at a pole", program_of("sqrt", torch.tensor([0.0, 2.0])), dict(gradient=at(0, lambda g: NAN))),
    ("NaN that is lost", program_of("mul", torch.tensor([1.0, 2.0]), torch.tensor([NAN, 3.0])), dict(gradient=at(1, lambda g: 0))),
    ("NaN that spreads", program_of("mul", torch.tensor([1.0, 2.0]), torch.tensor([NAN, 3.0])), dict(gradient=at(2, lambda g: NAN))),
    ("what overflows on the way", program_of("hypot", torch.tensor([1e30, 1.0]), torch.tensor([1.0, 1.0])), dict(gradient=at(1e30, lambda g: NAN))),
    ("a second derivative", program_of("square", torch.tensor([0.0, 2.0]), twice=True), dict(gradient=at(0, lambda g: 0.0))),
    ("a second derivative at infinity", program_of("log", torch.tensor([INF, 2.0]), twice=True), dict(gradient=at(INF, lambda g: NAN))),
    ("a gradient that is dropped", program_of("exp", torch.tensor([1.0, 2.0])), dict(gradient=lambda x, g: None)),
    ("a gradient of zeros", program_of("exp", torch.tensor([1.0, 2.0])), dict(gradient=lambda x, g: 0 * g)),
    ("a choice of what is no equal", program_of("median", torch.tensor([1.0, 2.0, 2.0, 5.0])), dict(gradient=lambda x, g: g.roll(2))),
    ("a choice that gets less than all", program_of("median", torch.tensor([1.0, 2.0, 2.0, 5.0])), dict(gradient=lambda x, g: 0.9 * g)),
    ("a slope of what is defined otherwise", program_of("glu", torch.tensor([1e30, 2.0, 0.5, 0.0]), 0, twice=True), dict(gradient=lambda x, g: 1.001 * g)),
    ("an operand of clamp that loses its gradient beside a NaN", program_of("clamp", torch.tensor([1.0, 2.0]), torch.tensor([NAN, 0.0]), None), dict(gradient=at(2, lambda g: 0))),
    ("a slope of near matrices", program_of("linalg.svdvals", torch.tensor([[3.0, 0.0], [0.0, 2.0]])), dict(gradient=lambda x, g: 1.001 * g)),
    ("a score of float16 within its range", program_of("scaled_dot_product_attention", *[torch.tensor([[3e4, 1.0], [1.0, 2.0]]).half()] * 3, None, False), dict(result=lambda y: y + torch.tensor([[0.0], [NAN]]).half())),
    ("a result", program_of("exp", torch.tensor([1.0, 2.0])), dict(result=lambda y: 1.001 * y)),
    ("NaN for a result at infinity", program_of("exp", torch.tensor([INF, 2.0])), dict(result=lambda y: y - y.detach() + y.detach())),
    ("a result that hides NaN", program_of("maximum", torch.tensor([NAN, 2.0]), torch.tensor([1.0, 3.0])), dict(result=lambda y: y.nan_to_num(1))),
    ("a result's dtype", program_of("exp", torch.tensor([1.0, 2.0])), dict(result=lambda y: y.double())),
    ("a result without history", program_of("exp", torch.tensor([1.0, 2.0])), dict(result=lambda y: y.detach())),
]  # fmt: skip


def check():
    """Says which of the cases are not reported; whether all are."""
    missed = []
    for name, program, wrong in CASES:
        ops = {s.op.base for s in program} - {"grad", "requires_grad_"}
        (found,) = judge(reel_with(lambda op: op in ops, **wrong), [program])
        if found is None or explanation(found):
            missed.append(f"planted: {name}: {explanation(found) if found else 'no difference'}")
    print("\n".join(missed) or f"{len(CASES)} planted defects are reported")
    return not missed


SLOPES = {
    "1 % more at numbers": lambda x, g: torch.where(x.isfinite() & (x != 0), 1.01 * g, g),
    "1 more at 0": lambda x, g: torch.where(x == 0, g + 1, g),
    "1 at infinity": lambda x, g: torch.where(x.isinf(), 1.0, g),
    "NaN at infinity": lambda x, g: torch.where(x.isinf(), NAN, g),
    "0 at infinity": lambda x, g: torch.where(x.isinf(), 0.0, g),
    "NaN at 0": lambda x, g: torch.where(x == 0, NAN, g),
    "infinite at 0": lambda x, g: torch.where(x == 0, INF, g),
}


def survey(seed, count):
    """Of random programs with each of these slopes in all ops: how many are reported, and what explains the others."""
    floating = lambda op: op not in ("grad", "backward", "requires_grad_") and not op.endswith("_")
    for name, gradient in SLOPES.items():
        reported, explained = 0, collections.Counter()
        for number in range(seed, seed + count):
            (found,) = judge(reel_with(floating, gradient=gradient), [generate(number, OPS)])
            if sentence := found and explanation(found):
                explained[sentence] += 1
            reported += found is not None and not sentence
        print(f"{name}: {reported} reported, {sum(explained.values())} explained", flush=True)
        for sentence, times in explained.most_common():
            print(f"    {times}: {sentence}")


if __name__ == "__main__":
    sys.exit(survey(*map(int, sys.argv[1:])) if len(sys.argv) > 1 else not check())
