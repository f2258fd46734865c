"""Random programs in reel and in PyTorch: values, dtypes, shapes, gradients and errors must agree.

differential.py INTERPRETER [--programs N] [--seed S]: programs S to S + N - 1. What differs is shrunk to a small program and
printed as reel C++ and as Python. The exit status is 1 if something differs that differences.py does not document.
"""
import argparse
import collections
import contextlib
import copy
import dataclasses
import math
import os
import pickle
import re
import sys

import torch

from differences import HALVES, explanation
from generator import generate
from ops import OPS
from program import (
    LEAF, INTEGERS_AS_FLOATS, OF_NEAR_MATRICES, OF_NEAR_REGULAR_MATRICES, WIDE_FLOATS, WIDE_INTEGERS, Ref, Statement, coarse, largest_of, other_rounding, replace, run_reel, run_torch, set_data, source, with_dtypes,
)  # fmt: skip

# Relative to the value, and absolute.
TOLERANCES = {
    torch.float64: (1e-10, 1e-12), torch.float32: (2e-5, 2e-6), torch.float16: (8e-3, 2e-3), torch.bfloat16: (4e-2, 1e-2),
}  # fmt: skip


@dataclasses.dataclass
class Difference:
    """The first difference of a program."""

    kind: str  # refused (by reel alone), accepted (by reel alone), value, dtype, shape, requires_grad, undefined, leak, crash
    program: list
    at: int  # the statement
    message: str = ""
    torch: object = None
    reel: object = None
    number: int = None  # of the value
    where: object = None  # its elements that differ by more than roundings
    interpreter: str = None

    def is_gone(self, changed):
        """Whether there is no such difference in the program as changed."""
        (found,) = judge(self.interpreter, [changed])
        return found is None or found.kind != self.kind and found.kind in ("undefined", "requires_grad")

    def compared_with(self, changed):
        """The difference of what reel says of the program from what PyTorch says of it as changed, statement by statement."""
        (ours,) = run_reel(self.interpreter, [self.program])
        (found,) = judge(lambda _: ours, [changed])
        return found and dataclasses.replace(found, interpreter=self.interpreter)

    def is_constant(self):
        """Whether reel says of a gradient that all its derivatives are 0, but for roundings, or NaN."""
        fresh = 1 + max(ref for s in self.program for ref in (*s.results, *s.refs()))
        leaves = list(dict.fromkeys(s.args[0] for s in self.program if s.op.base == "requires_grad_"))
        again = [Ref(fresh + 1 + i) for i in range(len(leaves))]
        program = [*self.program, Statement(LEAF, [torch.ones_like(self.torch)], [Ref(fresh)]),
                   Statement(self.program[self.at].op, [[self.number], leaves, [Ref(fresh)], False], again)]  # fmt: skip
        ((values, _, _),) = run_reel(self.interpreter, [program])
        return not any((values[ref].data.nan_to_num().abs() > 1e-5).any() for ref in again if values.get(ref) is not None)

    def is_torch_of(self, changed, copied=False):
        """Whether reel's values are PyTorch's of the program as changed, which has the same numbers; or, if `copied`, what
        it would say if what is saved for gradients were copied before it is changed in place."""
        (ours,) = run_reel(self.interpreter, [self.program])
        with torch.autograd.graph.allow_mutation_on_saved_tensors() if copied else contextlib.nullcontext():
            values, errors = run_torch(changed)
        if copied and self.at in errors:
            return "inplace" not in errors[self.at]  # PyTorch refuses it for another reason, too
        shared = {number: values[number] for number in ours[0] if number in values}
        return all(compare_value(ours[0][number], x, (), ()) is None for number, x in shared.items())

    @property
    def op(self):
        return self.program[self.at].op.base

    @property
    def args(self):
        """The arguments of the statement as PyTorch had them."""
        values, _ = run_torch(self.program[: self.at])
        return [lookup(arg, values) for arg in self.program[self.at].args]

    @property
    def ops(self):
        """The names of all ops of the program."""
        return {statement.op.base for statement in self.program if statement.op is not LEAF}

    @property
    def signature(self):
        """What is shrunk and counted together: errors by their text without numbers."""
        said = re.sub(r"[^A-Za-z_ :]+", "", self.message)[:70] if self.kind in ("refused", "accepted") else ""
        return self.kind, self.op, said


def lookup(arg, values):
    if isinstance(arg, list):
        return [lookup(one, values) for one in arg]
    return values.get(arg) if isinstance(arg, Ref) else arg


# ---- comparing -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Runs:
    """What PyTorch says of a program under other conditions: (values, errors) each."""

    disturbed: list = ()  # with other roundings
    alternatives: list = ()  # with fewer roundings, or none that matter: also right where reel says the same
    of_gradients: list = ()  # the same, of gradients only


def close(ours, theirs, dtype, absolute=0):
    """Where two float64 tensors are equal, but for a few roundings in this dtype."""
    relative, least = TOLERANCES[dtype]
    allowed = least + absolute + relative * theirs.abs().nan_to_num(0, 0, 0)
    return (ours == theirs) | (ours.isnan() & theirs.isnan()) | ((ours - theirs).abs() <= allowed)


def differing(ours, theirs, disturbed, alternatives, summed, rounded, coarsest, of_matrices):
    """Where two float tensors differ by more than roundings. `summed` is the size of what may have cancelled in them,
    `rounded` a dtype that they have had on the way, `coarsest` that of the program's floats which has the fewest digits. If they come `of_matrices` that are decomposed, all
    may differ by so many roundings of the largest."""
    coarser = max(theirs.dtype, rounded or theirs.dtype, key=lambda dtype: TOLERANCES[dtype])
    absolute = 4 * torch.finfo(coarser).eps * summed
    ours, theirs, dtype = ours.double(), theirs.detach().double(), theirs.dtype
    if of_matrices and theirs.numel():
        absolute += of_matrices * TOLERANCES[coarser][0] * float(largest_of(theirs))
    equal = close(ours, theirs, coarser, absolute)
    for other in disturbed:
        other = other.detach().double()
        moved = (other - theirs).abs()
        equal |= close(ours, theirs, coarser, absolute + 25 * moved) | (ours.isnan() & other.isnan()) | (ours == other)
        equal |= ~moved.isfinite() & (other.isfinite() != theirs.isfinite())
    for other in alternatives:
        equal |= close(ours, other.detach().to(dtype).double(), coarsest)
        if other.dtype == torch.float64 != dtype:  # reel is no farther from what wider floats give than PyTorch is
            exact = other.detach()
            equal |= (ours - exact).abs() <= (theirs - exact).abs()
    return ~equal


def first_differences(ours, theirs, where):
    """Some of the elements there that differ most."""
    gap = (ours.double() - theirs.double()).abs().nan_to_num(math.inf, math.inf)
    gap[~where] = 0
    places = gap.flatten().argsort(descending=True)[:3].tolist() if gap.numel() else []
    at = [torch.unravel_index(torch.tensor(place), gap.shape) for place in places if gap.flatten()[place] > 0]
    return "; ".join(f"at {[int(i) for i in index]} reel {ours[index].item()}, PyTorch {theirs[index].item()}" for index in at)


def compare_value(ours, theirs, disturbed, alternatives, summed=0, rounded=None, coarsest=torch.float64, of_matrices=0):
    """The kind of difference, a message and where values differ, or None."""
    if (ours is None) != (theirs is None):
        return "undefined", f"reel {'undefined' if ours is None else 'defined'}, PyTorch {'None' if theirs is None else 'a tensor'}", None
    if ours is None:
        return None
    if any(other is None or other.shape != theirs.shape for other in disturbed):
        return None
    if ours.dtype != theirs.dtype:
        return "dtype", f"reel {ours.dtype}, PyTorch {theirs.dtype}", None
    if ours.data.shape != theirs.shape:
        if any(x is not None and x.shape == ours.data.shape and torch.allclose(x.double(), ours.data.double(), 1e-4, 1e-5, True) for x in alternatives):
            return None
        return "shape", f"reel {list(ours.data.shape)}, PyTorch {list(theirs.shape)}", None
    if theirs.is_floating_point():
        usable = [x for x in alternatives if x is not None and x.shape == theirs.shape and x.is_floating_point()]
        where = differing(ours.data, theirs, disturbed, usable, min(summed, 1e4), rounded, coarsest, of_matrices)
    else:
        where = ours.data != theirs
        for other in disturbed:
            where &= other == theirs
        for other in alternatives:
            if other is not None and other.shape == theirs.shape and other.dtype == theirs.dtype:
                where &= other != ours.data
    if where.any():
        return "value", first_differences(ours.data, theirs.detach(), where), where
    if ours.requires_grad != theirs.requires_grad:
        return "requires_grad", f"reel {ours.requires_grad}, PyTorch {theirs.requires_grad}", None
    return None


def size_of(x):
    return largest_of(x.data.double()).item() if x is not None and x.is_floating_point() and x.numel() else 0


def rounded_to(program, values):
    """The coarsest dtype of the outputs of the gradients, to which they have been rounded, or None."""
    if program[-1].op.base not in ("grad", "backward"):
        return None
    outputs = [y for s in program if s.op.base in ("grad", "backward") for y in (s.args[0] if isinstance(s.args[0], list) else [s.args[0]])]
    return max((values[y].dtype for y in outputs if values.get(y) is not None), key=lambda dtype: TOLERANCES[dtype], default=None)


def rounding_of(values, runs):
    """A rounding that gives results reel's values where these are equal but for what `runs` show of roundings, with all that
    follows, such as ties."""

    def rounding(statement, x, _, number):
        ours, exact = values.get(number), statement.op.exact
        if ours is None or ours.dtype != x.dtype or ours.data.shape != x.shape or exact and x.dtype not in HALVES:
            return
        others = lambda them: [run[number] for run, _ in them if run.get(number) is not None]
        disturbed = [] if exact else others(runs.disturbed)
        found = compare_value(ours, x, disturbed, others(runs.alternatives))
        if found is None or found[0] == "requires_grad":
            set_data(x, ours.data)

    return rounding


def compare(program, theirs, ours, runs=Runs()):
    """The first Difference of the two runs, or None."""
    if isinstance(ours, str):
        return Difference("crash", program, len(program) - 1, ours)
    values, errors = theirs
    reel_values, reel_errors, leaked = ours
    # Of what rounding refuses or accepts, the runs that agree with reel tell what follows.
    rounded_away = {i for i in errors.keys() ^ reel_errors.keys() if any((i in other) == (i in reel_errors) for _, other in runs.disturbed)}
    if rounded_away:
        values, errors = next((run for run in runs.disturbed if run[1].keys() == reel_errors.keys()), theirs)
    for i in range(len(program)):
        if reel_errors.get(i, "").startswith("not a reel::Error"):
            return Difference("foreign", program, i, reel_errors[i])
        if (i in errors) != (i in reel_errors):
            if i in rounded_away:
                continue
            kind = "refused" if i in reel_errors else "accepted"
            return Difference(kind, program, i, reel_errors.get(i) or errors[i])
    coarsest = max((x.dtype for x in values.values() if x is not None and x.is_floating_point()), key=lambda dtype: TOLERANCES[dtype], default=torch.float64)
    # Each derivative multiplies by an inverse, or divides by differences, once more.
    derivatives = sum(s.op.base in ("grad", "backward") for s in program)
    of_matrices = 4 ** max(derivatives - 1, 0) if any(s.op.base in OF_NEAR_MATRICES | OF_NEAR_REGULAR_MATRICES for s in program) else 0
    for i, statement in enumerate(program):
        gradient = statement.op.base in ("grad", "backward")
        for number in statement.results:
            if number not in values or number not in reel_values:
                continue
            disturbed = [other.get(number) for other, _ in runs.disturbed]
            alternatives = [other.get(number) for other, _ in (*runs.alternatives, *(runs.of_gradients if gradient else ()))]
            # A gradient is summed in an order that no other value shows.
            largest = max(map(size_of, values.values())) if disturbed and gradient else 0
            found = compare_value(reel_values[number], values[number], disturbed, alternatives, largest, rounded_to(program[: i + 1], values), coarsest, of_matrices)
            if found:
                kind, message, where = found
                return Difference(kind, program, i, message, values[number], reel_values[number], number, where)
    return Difference("leak", program, len(program) - 1, f"{leaked} nodes") if leaked else None


def judge(interpreter, programs):
    """Yields the first Difference of each program, or None."""
    for program, ours in zip(programs, run_reel(interpreter, programs)):
        theirs = run_torch(program)
        difference = compare(program, theirs, ours)
        for disturbed in (3, 12):  # few suffice for most
            if not difference or difference.kind not in ("value", "refused", "accepted", "shape"):
                break
            runs = Runs(
                disturbed=[run_torch(program, other_rounding(seed)) for seed in range(disturbed)],
                alternatives=[run_torch(program, coarse), run_torch(with_dtypes(program, WIDE_FLOATS))],
                # Integers have no gradients, so none may depend on their dtypes; some of PyTorch's overflow in these.
                of_gradients=[run_torch(with_dtypes(program, WIDE_FLOATS | wide)) for wide in (WIDE_INTEGERS, INTEGERS_AS_FLOATS)],
            )
            if not isinstance(ours, str):
                runs.alternatives.append(run_torch(program, rounding_of(ours[0], runs)))
            difference = compare(program, theirs, ours, runs)
        yield difference and dataclasses.replace(difference, interpreter=interpreter)


# ---- shrinking -------------------------------------------------------------------------------------------------------


def without(program, index):
    """The program without a statement and all that depends on it."""
    gone, left = set(program[index].results), []
    for i, statement in enumerate(program):
        if i == index:
            continue
        args = statement.args
        if statement.op.base in ("grad", "backward") and gone & set(statement.refs()):
            statement = drop_from_lists(statement, gone)
            if statement is None:
                gone |= set(program[i].results)
                continue
        elif gone & set(statement.refs()):
            gone |= set(statement.results)
            continue
        left.append(statement)
    return left


def drop_from_lists(statement, gone):
    """A gradient without those inputs (and outputs, with their cotangents) that are gone."""
    args = copy.copy(statement.args)
    if statement.op.base == "backward":
        if args[0] in gone or args[1] in gone:
            return None
        place = 2
    else:
        pairs = [(y, c) for y, c in zip(args[0], args[2]) if y not in gone and c not in gone]
        args[0], args[2] = [y for y, _ in pairs], [c for _, c in pairs]
        place = 1
        if not pairs:
            return None
    kept = [i for i, x in enumerate(args[place]) if x not in gone]
    if not kept:
        return None
    results = [statement.results[i] for i in kept if i < len(statement.results)]
    args[place] = [args[place][i] for i in kept]
    return Statement(statement.op, args, results, statement.record)


def smaller(program):
    """Simpler programs, one step each."""
    for i in reversed(range(len(program))):
        yield without(program, i)
    values, _ = run_torch(program)
    for i, statement in enumerate(program):
        if statement.op is LEAF:
            yield from simpler_leaves(program, i)
            continue
        if statement.op.base in ("grad", "backward"):
            if statement.op.base == "grad" and len(statement.args[0]) > 1:
                for y in statement.args[0]:
                    yield [*program[:i], *filter(None, [drop_from_lists(statement, {y})]), *program[i + 1 :]]
            for x in statement.args[-1 if statement.op.base == "backward" else 1]:
                yield [*program[:i], *filter(None, [drop_from_lists(statement, {x})]), *program[i + 1 :]]
            continue
        for ref in statement.refs() if len(statement.results) == 1 else []:  # its operand instead of the result
            (old,) = statement.results
            x, y = values.get(ref), values.get(old)
            if x is not None and y is not None and x.shape == y.shape and x.dtype == y.dtype:
                rest = [Statement(s.op, replace(s.args, old, ref), s.results, s.record) for s in program[i + 1 :]]
                yield [*program[:i], *rest]
        if statement.results and statement.op.base != "requires_grad_":  # leaves instead of the results
            yield with_leaves(program, i)
        if not statement.record:
            yield [*program[:i], dataclasses.replace(statement, record=True), *program[i + 1 :]]


def with_leaves(program, index):
    """The values of a statement's results as leaves, which require grad where the results did."""
    values, _ = run_torch(program[: index + 1])
    leaves, wanted = [], []
    for number in program[index].results:
        x = values.get(number)
        if x is None:
            continue
        leaves.append(Statement(LEAF, [x.detach().clone().contiguous()], [number]))
        if x.requires_grad:
            leaves.append(Statement(next(op for op in OPS if op.name == "requires_grad_"), [number, True], []))
            wanted.append(number)
    rest, fresh = [], max((ref for s in program for ref in s.results), default=0)
    for statement in program[index + 1 :]:
        if statement.op.base in ("grad", "backward"):
            place = 1 if statement.op.base == "grad" else 2
            args, results = copy.copy(statement.args), list(statement.results)
            if len(results) == len(args[place]):
                args[place] = args[place] + wanted
                results += [Ref(fresh := fresh + 1) for _ in wanted]
            statement = Statement(statement.op, args, results, statement.record)
        rest.append(statement)
    return [*program[:index], *leaves, *rest]


def simpler_leaves(program, index):
    statement = program[index]
    x = statement.args[0]

    def with_values(y):
        return [*program[:index], Statement(LEAF, [y], statement.results), *program[index + 1 :]]

    if x.numel() and x.dtype != torch.bool:
        for simple in (torch.ones_like(x), (torch.arange(x.numel()) % 5 + 1).reshape(x.shape).to(x.dtype)):
            if not torch.equal(simple, x) and not (simple.unique().numel() >= x.unique().numel() and x.unique().numel() > 1):
                yield with_values(simple)
        if x.is_floating_point():
            rounded = torch.where(x.isfinite(), (x * 2).round() / 2, x)
            if not torch.equal(rounded.nan_to_num(), x.nan_to_num()):
                yield with_values(rounded)
    uses = [s for s in program if set(statement.results) & set(s.refs())]
    if x.dtype in (torch.float16, torch.bfloat16, torch.float64) and all(s.op.base == "requires_grad_" for s in uses):
        yield with_values(x.float())


def locate(interpreter, difference):
    """The Difference of the shortest prefix that has one."""
    program = difference.program
    prefixes = [program[: length + 1] for length in range(len(program))]
    for length, found in enumerate(judge(interpreter, prefixes)):
        if found:
            return dataclasses.replace(found, at=length)
    return difference


def shrink(interpreter, difference, rounds=60):
    """A small program that differs in the same way."""
    found = True
    while found and (rounds := rounds - 1):
        candidates = list(smaller(difference.program))
        found = False
        for start in range(0, len(candidates), 16):
            for result in judge(interpreter, candidates[start : start + 16]):
                if result and result.kind == difference.kind:
                    result = locate(interpreter, result)
                    if result.signature == difference.signature:
                        difference, found = result, True
                        break
            if found:
                break
    return difference


# ---- the run ---------------------------------------------------------------------------------------------------------


def differences_of(interpreter, program):
    """All Differences of a program: behind a documented one it goes on without that statement."""
    pending, found = [program], []
    while pending:
        program = pending.pop()
        (difference,) = judge(interpreter, [program])
        if difference is None:
            continue
        found.append(locate(interpreter, difference))
        if explanation(found[-1]):
            pending.append(without(program, found[-1].at))
    return found


def origins(difference):
    """The ops in which infinities or NaNs of a gradient first differ: of their results the gradients agree, of an operand not."""
    program, last = difference.program[: difference.at], difference.program[difference.at]
    values, _ = run_torch(program)
    inputs = [ref for ref, x in values.items() if x is not None and x.requires_grad]
    args = [last.args[0], inputs, last.args[2]] if last.op.base == "grad" else [[last.args[0]], inputs, [last.args[1]]]
    program.append(Statement(next(op for op in OPS if op.name == "grad"), [*args, False], [Ref(10**6 + ref) for ref in inputs]))
    (ours, _, _), (theirs, _) = run_reel(difference.interpreter, [program])[0], run_torch(program)

    def differs(ref):
        x, y = ours.get(10**6 + ref), theirs.get(10**6 + ref)
        return x is not None and y is not None and not torch.equal(*(torch.where(z.isfinite(), 0, z).nan_to_num(7, 1, -1) for z in (x.data, y)))

    return {s.op.base for s in program[:-1] if s.results and any(map(differs, s.refs())) and not any(map(differs, s.results))}


def text_of(seed, difference):
    return (f"==== program {seed}: {difference.kind}, {difference.op}: {difference.message}\n{source(difference.program, 'cpp')}\n"
            f"---- the same in Python\n{source(difference.program, 'torch')}\n")  # fmt: skip


def examine(interpreter, seeds, each, shown):
    """(the number of statements, (the sentence, the ops, if known) of documented differences, (group, text or None) of others).
    `shown` counts what has been shrunk of each signature, up to `each`."""
    programs = [generate(seed, OPS) for seed in seeds]
    documented, others = [], []
    for seed, program, first in zip(seeds, programs, judge(interpreter, programs)):
        for difference in differences_of(interpreter, program) if first else []:
            gradient = difference.op in ("grad", "backward")
            shrinks = shown[difference.signature] < each * (8 if gradient else 1)
            if not explanation(difference) and shrinks:
                difference = shrink(interpreter, difference)
            if sentence := explanation(difference):
                singular = gradient and difference.kind == "value" and not (difference.torch.isfinite() & difference.reel.data.isfinite()).all()
                documented.append((sentence, origins(difference) if singular else set()))
                continue
            shown[difference.signature] += 1
            of = sorted(difference.ops - {"grad", "backward", "requires_grad_"}) if gradient else []
            others.append(((*difference.signature, *of), text_of(seed, difference) if shrinks else None))
    return sum(map(len, programs)), documented, others


def guarded(interpreter, seeds, each, shown):
    """examine() in a process of its own, since some calls make PyTorch crash: such programs are left out."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        with os.fdopen(send, "wb") as out:
            pickle.dump(examine(interpreter, seeds, each, shown), out)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        return [pickle.loads(data)]
    if not os.WIFSIGNALED(status):
        sys.exit("failed")
    if len(seeds) == 1:
        print(f"==== program {seeds[0]}: PyTorch dies of signal {os.WTERMSIG(status)}", flush=True)
        return []
    half = len(seeds) // 2
    return guarded(interpreter, seeds[:half], each, shown) + guarded(interpreter, seeds[half:], each, shown)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("interpreter")
    arguments.add_argument("--programs", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--each", type=int, default=3, help="how many differences of a kind in an op are shrunk and shown")
    arguments = arguments.parse_args()
    shown, documented, others = collections.Counter(), collections.Counter(), collections.Counter()
    origins_of = collections.defaultdict(collections.Counter)
    statements = 0
    end = arguments.seed + arguments.programs
    for start in range(arguments.seed, end, 200):
        for count, sentences, found in guarded(arguments.interpreter, range(start, min(start + 200, end)), arguments.each, shown):
            statements += count
            for sentence, ops in sentences:
                documented[sentence] += 1
                origins_of[sentence].update(ops)
            for group, text in found:
                others[group] += 1
                shown[group[:3]] += 1
                if text:
                    print(text, flush=True)
    for sentence, count in documented.most_common():
        print(f"{count:5} documented: {sentence}", *(f"{op} {times}," for op, times in origins_of[sentence].most_common()))
    for group, count in others.most_common():
        print(f"{count:5} unexplained: {', '.join(filter(None, group))}")
    print(f"{arguments.programs} programs, {statements} statements, {sum(documented.values())} documented differences, "
          f"{sum(others.values())} unexplained")  # fmt: skip
    return bool(others)


if __name__ == "__main__":
    sys.exit(main())
