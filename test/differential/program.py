"""Programs: a list of statements over numbered values, run by PyTorch here and by reel in a process of its own.

A statement is an op of the table in ops.py, its arguments, and the numbers of its results. Arguments are numbers of
values (Ref), Python numbers, None, enumerators (Enum), slices, and lists of these; a leaf's is a torch.Tensor.
"""
import dataclasses
import math
import subprocess
import warnings

import torch
import torch._dynamo  # which some ops would import in each of the processes that run programs
import torch.nn.functional as F

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

DTYPES = {
    torch.bool: "kBool", torch.uint8: "kUInt8", torch.int32: "kInt32", torch.int64: "kInt64",
    torch.float16: "kFloat16", torch.bfloat16: "kBFloat16", torch.float32: "kFloat32", torch.float64: "kFloat64",
}  # fmt: skip
BY_NAME = {name[1:].lower(): dtype for dtype, name in DTYPES.items()}


class Ref(int):
    """The number of a value."""


@dataclasses.dataclass(frozen=True)
class Enum:
    """What has a name in C++ and a value in Python; `word` is what the interpreter reads, if not that name."""

    cpp: str
    torch: object
    word: str = None


@dataclasses.dataclass
class Op:
    """A row of the table. The templates' {0}, {1}, … are the arguments."""

    name: str
    make: object  # makes the arguments, of a Generator
    torch: str = None
    cpp: str = None
    exact: bool = False  # rounds nothing
    local: bool = False  # rounds each element of the result by a few units of its own last place
    weight: float = 1

    def __post_init__(self):
        self.base = self.name.split("(")[0]
        self.compiled = {}

    def template(self, count, language):
        given = getattr(self, language)
        if given:
            return given
        args = [f"{{{i}}}" for i in range(count)]
        if self.base.endswith("_") or self.base in METHODS:
            return f"{args[0]}.{self.base}({', '.join(args[1:])})"
        if language == "torch" and "." not in self.base and not hasattr(torch, self.base):
            return f"{args[0]}.{self.base}({', '.join(args[1:])})"
        name = self.base.replace(".", "::") if language == "cpp" else f"torch.{self.base}"
        return f"{name}({', '.join(args)})"

    def __call__(self, args):
        if len(args) not in self.compiled:
            places = [f"a[{i}]" for i in range(len(args))]
            self.compiled[len(args)] = compile(self.template(len(args), "torch").format(*places), self.name, "eval")
        return eval(self.compiled[len(args)], {"torch": torch, "F": F, "a": args, "backward": backward, "put_in": put_in})


LISTS = {"split", "chunk", "tensor_split", "unbind", "meshgrid", "broadcast_tensors", "grad"}  # give a std::vector
METHODS = {"view", "expand", "select", "slice", "t", "contiguous", "clone", "detach", "to", "index"}


def backward(output, cotangent, leaves):
    """The gradients that backward() leaves in .grad."""
    for leaf in leaves:
        leaf.grad = None
    output.backward(cotangent, retain_graph=True)
    return [leaf.grad for leaf in leaves]


def put_in(x, indices, value, accumulate):
    """x[indices] = value, or += of which every element of value counts."""
    if accumulate:
        places = torch.arange(x.numel()).reshape(x.shape)[tuple(indices)]
        value = torch.as_tensor(value)
        value = value.to(x.dtype) if x.is_floating_point() else value
        return x.index_put_(torch.unravel_index(places, x.shape), value.expand(places.shape), True)
    x[tuple(indices)] = value
    return x


@dataclasses.dataclass
class Statement:
    op: Op
    args: list
    results: list
    record: bool = True

    def refs(self):
        return refs_in(self.args)


def refs_in(arg):
    if isinstance(arg, Ref):
        return [arg]
    return [ref for one in arg for ref in refs_in(one)] if isinstance(arg, (list, tuple)) else []


def replace(arg, old, new):
    """The argument with Ref old replaced."""
    if isinstance(arg, list):
        return [replace(one, old, new) for one in arg]
    return new if isinstance(arg, Ref) and arg == old else arg


LEAF = Op("tensor", None, exact=True)

# ---- PyTorch ---------------------------------------------------------------------------------------------------------


class Missing(Exception):
    """An operand is the result of a statement that failed."""


def resolve(arg, values):
    if isinstance(arg, Ref):
        if arg not in values:
            raise Missing
        return values[arg]
    if isinstance(arg, list):
        return [resolve(one, values) for one in arg]
    return arg.torch if isinstance(arg, Enum) else arg


def flatten(result):
    if isinstance(result, (tuple, list)):
        return [tensor for one in result for tensor in flatten(one)]
    if result is None or isinstance(result, torch.Tensor):
        return [result]
    return [torch.tensor(result)]


def units_in_the_last_place(x, generator):
    """Up to four, for each element of x."""
    return torch.finfo(x.dtype).eps * torch.randint(-4, 5, x.shape, generator=generator).double()


# What is computed of a matrix in several steps is that of another one, near to it. These have results of all matrices.
OF_NEAR_MATRICES = {"linalg.svdvals", "linalg.svd", "linalg.eigvalsh", "linalg.eigh", "linalg.qr", "linalg.matrix_norm"}
OF_NEAR_REGULAR_MATRICES = {"linalg.solve", "linalg.inv", "linalg.lstsq", "linalg.pinv"}  # only these have (such) results


def is_near_matrix(op, x):
    """Whether x is, for this op, as good as others beside it."""
    if op.base in OF_NEAR_REGULAR_MATRICES and x.dim() >= 2 and x.numel() and x.isfinite().all():
        s = torch.linalg.svdvals(x.detach().double())
        return bool((s[..., -1] > 100 * torch.finfo(x.dtype).eps * s[..., 0]).all())
    return op.base in OF_NEAR_MATRICES


class Edge(torch.autograd.Function):
    """A copy of x, itself changed by up to four units in the last place of its largest element if `near`. Its gradient is
    changed so: what comes from one of several uses of x may be larger than their sum."""

    @staticmethod
    def forward(ctx, x, generator, near):
        ctx.generator = generator
        return (x + units_in_the_last_place(x, generator) * largest_of(x)).to(x.dtype) if near else x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 + units_in_the_last_place(g, ctx.generator)).to(g.dtype), None, None


def through_edges(op, arg, edge):
    if isinstance(arg, list):
        return [through_edges(op, one, edge) for one in arg]
    return edge(op, arg) if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg


def read_through_edges(op, args, edge):
    """The arguments as the op reads them. What it changes in place is changed before it is read."""
    read = [through_edges(op, arg, edge) for arg in args]
    if not op.base.endswith("_") or read[0] is args[0]:
        return read
    args[0].copy_(read[0])
    return [args[0], *read[1:]]


def execute(statement, values, edge=None):
    """Runs a statement in PyTorch; its results as a list. `edge` gives what an op reads instead of an operand; if it has made(),
    it is told the results."""
    if statement.op is LEAF:
        return [statement.args[0].clone()]
    args = [resolve(arg, values) for arg in statement.args]
    if edge and statement.record and statement.op.base not in ("grad", "backward"):
        args = read_through_edges(statement.op, args, edge)
    with torch.set_grad_enabled(statement.record):
        results = flatten(statement.op(args))
    if hasattr(edge, "made"):
        edge.made(statement.op, results)
    return results


def run_torch(program, rounding=None, edge=None):
    """(values by number, the error of each statement that failed). `rounding`, a function of a statement, its result,
    its operands as they were and the result's number, may change what a statement has computed; for `edge` see execute()."""
    values, errors = {}, {}
    for i, statement in enumerate(program):
        in_place = statement.op.base.endswith("_")
        before = {ref: values[ref].detach().clone() for ref in statement.refs() if values.get(ref) is not None} if rounding or in_place else {}
        try:
            results = execute(statement, values, getattr(rounding, "edge", edge))
        except Missing:
            continue
        except Exception as error:
            errors[i] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            for ref, old in before.items():  # that the op has half changed
                if not same(values[ref], old):
                    set_data(values[ref], old)
            continue
        for number, result in zip(statement.results, results):
            values[number] = result
        if rounding:
            changed = [values[ref] for ref, old in before.items() if not same(values[ref], old)]
            memory = {memory_of(x) for x in changed}
            new = [x for x in results if x is not None and memory_of(x) not in memory]
            for result in changed + new:
                if result.is_floating_point():
                    number = next((ref for ref in statement.results if values[ref] is result), None)
                    rounding(statement, result, before.values(), number)
    return values, errors


def memory_of(x):
    """What views of one memory have in common."""
    return x.untyped_storage()._cdata


def same(x, y):
    """Whether all elements are equal, NaN to NaN."""
    return bool(((x == y) | (x != x) & (y != y)).all())


def set_data(x, value):
    try:
        x.data.copy_(value)
    except RuntimeError:
        pass  # an expanded tensor


def largest_of(x):
    return x.detach().nan_to_num(0, 0, 0).abs().max() if x.numel() else 0


SELECTING = {"median", "nanmedian", "mode", "kthvalue", "topk", "sort", "max", "min", "amax", "amin", "aminmax", "maximum", "minimum", "fmax", "fmin",
             "quantile", "clamp", "clamp_", "cummax", "cummin", "segment_reduce", "scatter_reduce", "scatter_reduce_"}  # fmt: skip


def other_rounding(seed):
    """A rounding that changes results by up to four units in the last place: of each element, or, of ops that add up,
    of the largest (or of products of operands), of which all may be a rounding error."""
    generator = torch.Generator().manual_seed(seed)

    def rounding(statement, x, operands, _):
        chance = lambda: units_in_the_last_place(x, generator)
        if statement.op.exact:
            if statement.op.base in SELECTING:  # one of 0 and -0, which are equal
                set_data(x, torch.where(x.data == 0, torch.copysign(x.data, chance()), x.data))
            return
        operands = list(operands)
        degree = 2 if statement.op.base == "cross" else operands[0].shape[-1] if statement.op.base == "linalg.det" else None
        factors = [largest_of(factor) ** degree for factor in operands if factor.is_floating_point()] if degree else []
        largest = max([largest_of(x), *factors])
        tiny = x.data.abs() <= 4 * torch.finfo(x.dtype).eps * largest  # may as well be 0
        moved = x.data * (1 + chance())
        if not statement.op.local:
            moved = (moved + chance() * largest).masked_fill(tiny & (chance() <= 0), 0)
        set_data(x, torch.where(moved == 0, torch.copysign(moved, chance()), moved))  # nor is a sign of 0 compared

    def edge(op, x):
        near = is_near_matrix(op, x)
        return Edge.apply(x, generator, near) if near or x.requires_grad and not op.exact else x

    rounding.edge = edge
    return rounding


def coarse(statement, x, *_):
    """A rounding to five bits less, with which numbers that are equal but for roundings mostly are equal."""
    if not statement.op.exact and x.dtype in (torch.float32, torch.float64):
        mantissa, exponent = torch.frexp(x.data)
        step = 32 * torch.finfo(x.dtype).eps
        set_data(x, torch.where(x.data.isfinite(), torch.ldexp((mantissa / step).round() * step, exponent), x.data))


def with_dtypes(program, wider):
    """The program with other dtypes, by a dictionary."""
    enums = {dtype: Enum(name, dtype) for dtype, name in DTYPES.items()}
    changed = []
    for statement in program:
        args = [
            arg.to(wider[arg.dtype]) if isinstance(arg, torch.Tensor) and arg.dtype in wider
            else enums[wider[arg.torch]] if isinstance(arg, Enum) and isinstance(arg.torch, torch.dtype) and arg.torch in wider else arg
            for arg in statement.args
        ]  # fmt: skip
        changed.append(dataclasses.replace(statement, args=args))
    return changed


WIDE_FLOATS = {dtype: torch.float64 for dtype in (torch.float16, torch.bfloat16, torch.float32)}
WIDE_INTEGERS = {dtype: torch.int64 for dtype in (torch.uint8, torch.int32)}
INTEGERS_AS_FLOATS = {dtype: torch.float64 for dtype in (torch.uint8, torch.int32, torch.int64)}


def ordinary(largest=4, noise=0.01, seed=0):
    """A function that gives numbers near those of x, this number instead of larger ones, 1.5 instead of NaN: none is 0,
    equal to another or extreme."""
    generator = torch.Generator().manual_seed(seed)

    def change(x):
        tame = x.double().nan_to_num(1.5, largest, -largest).clamp(-largest, largest)
        return (tame + noise * (1 + tame.abs()) * torch.randn(x.shape, generator=generator, dtype=torch.float64)).to(x.dtype)

    return change


def with_leaves_of(program, change):
    """The program with change(x) instead of each floating-point leaf x."""
    return [
        dataclasses.replace(s, args=[change(s.args[0])]) if s.op is LEAF and s.args[0].is_floating_point() else s for s in program
    ]  # fmt: skip


# ---- reel ------------------------------------------------------------------------------------------------------------


def word(arg):
    """The argument as the interpreter reads it."""
    if arg is None:
        return "_"
    if isinstance(arg, Ref):
        return f"%{int(arg)}"
    if isinstance(arg, bool):
        return "true" if arg else "false"
    if isinstance(arg, float):
        return arg.hex() if math.isfinite(arg) else str(arg)
    if isinstance(arg, slice):
        return ":".join("" if part is None else str(part) for part in (arg.start, arg.stop, arg.step))
    if isinstance(arg, (list, tuple)):
        return f"[{','.join(word(one) for one in arg)}]"
    if isinstance(arg, Enum):
        return arg.word or arg.cpp
    if isinstance(arg, torch.Tensor):
        data = arg.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).numpy().tobytes().hex()
        return f"{DTYPES[arg.dtype]} {word(list(arg.shape))} {data}"
    return str(arg)


def text_of(program):
    lines = []
    for statement in program:
        results = ",".join(str(int(number)) for number in statement.results) or "-"
        name = statement.op.name if statement.record else f"no_grad:{statement.op.name}"
        lines.append(" ".join([results, name, *map(word, statement.args)]))
    return "\n".join([*lines, "run", ""])


@dataclasses.dataclass
class Value:
    """What reel says of a value."""

    dtype: torch.dtype
    requires_grad: bool
    data: torch.Tensor


def parse_value(line):
    head, tail = line.split(" | ")
    _, number, dtype, shape = head.split(" ", 3)
    requires_grad, _, data = tail.partition(" ")
    dtype, shape = BY_NAME[dtype], [int(size) for size in shape[1:-1].split(",") if size]
    data = bytearray.fromhex(data)
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return int(number), Value(dtype, requires_grad == "1", flat.reshape(shape))


def parse_answer(lines):
    """(values by number, errors by statement, the number of nodes leaked)."""
    values, errors, leaked = {}, {}, 0
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "value":
            number, value = parse_value(line)
            values[number] = value
        elif kind == "undefined":
            values[int(rest)] = None
        elif kind == "error":
            number, _, message = rest.partition(" ")
            errors[int(number)] = message
        elif kind == "leaked":
            leaked = int(rest)
    return values, errors, leaked


def run_reel(interpreter, programs, timeout=60):
    """parse_answer of each program, or a text if the process died or hung in it. Instead of the program that runs them
    `interpreter` may be a function of a program."""
    if callable(interpreter):
        return [interpreter(program) for program in programs]
    answers = []
    while len(answers) < len(programs):
        text = "".join(text_of(program) for program in programs[len(answers) :])
        try:
            done = subprocess.run([interpreter], input=text, capture_output=True, text=True, timeout=timeout)
            output, failure = done.stdout, f"exit status {done.returncode}: {done.stderr[-2000:]}"
        except subprocess.TimeoutExpired as error:
            output, failure = (error.stdout or b"").decode(), f"no answer within {timeout} s"
        lines = []
        for line in output.splitlines():
            lines.append(line)
            if line == "end":
                answers.append(parse_answer(lines))
                lines = []
        if len(answers) < len(programs):
            answers.append(failure)
    return answers[: len(programs)]


# ---- as source text --------------------------------------------------------------------------------------------------


def number_in(value, language):
    if isinstance(value, bool):
        return str(value).lower() if language == "cpp" else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"cpp": {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}}.get(language, {}).get(str(value), str(value))
    return repr(value)


def source_of(arg, language):
    cpp = language == "cpp"
    if arg is None:
        return "{}" if cpp else "None"
    if isinstance(arg, Ref):
        return f"v{int(arg)}"
    if isinstance(arg, (bool, float, int)):
        return number_in(arg, language)
    if isinstance(arg, slice):
        parts = [source_of(part, language) for part in (arg.start, arg.stop, arg.step)]
        return f"{'Slice' if cpp else 'slice'}({', '.join(parts)})"
    if isinstance(arg, (list, tuple)):
        return ("{%s}" if cpp else "[%s]") % ", ".join(source_of(one, language) for one in arg)
    if isinstance(arg, Enum):
        return arg.cpp if cpp else repr(arg.torch)
    if isinstance(arg, torch.Tensor):
        return leaf_in(arg, language)
    return f'"{arg}"' if cpp else repr(arg)


def leaf_in(x, language):
    shape = list(x.shape)
    numbers = ", ".join(number_in(value, language) for value in x.flatten().tolist())
    if language == "torch":
        return f"torch.tensor([{numbers}], dtype={x.dtype}).reshape({shape})"
    element = {torch.bool: "bool", torch.uint8: "uint8_t", torch.int32: "int32_t", torch.int64: "int64_t",
               torch.float64: "double"}.get(x.dtype, "float")  # fmt: skip
    return f"tensor(std::vector<{element}>{{{numbers}}}, Shape{source_of(shape, 'cpp')}, {{.dtype = {DTYPES[x.dtype]}}})"


def source(program, language):
    """The program as reel C++ ("cpp") or Python ("torch")."""
    lines = []
    for statement in program:
        args = [source_of(arg, language) for arg in statement.args]
        call = args[0] if statement.op is LEAF else statement.op.template(len(args), language).format(*args)
        names = [f"v{int(number)}" for number in statement.results]
        if language == "cpp":
            guard = "" if statement.record else "NoGrad guard; "
            if statement.op.base in LISTS and names:
                parts = ", ".join(f"{name} = all{names[0]}[{i}]" for i, name in enumerate(names))
                lines.append(f"{guard}auto all{names[0]} = {call}; Tensor {parts};")
                continue
            target = f"auto [{', '.join(names)}] = " if len(names) > 1 else f"Tensor {names[0]} = " if names else ""
            lines.append(f"{guard}{target}{call};")
        else:
            guard = "" if statement.record else "with torch.no_grad(): "
            lines.append(f"{guard}{', '.join(names)}{' = ' if names else ''}{call}")
    return "\n".join(lines)
