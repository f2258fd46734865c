"""Where reel differs from PyTorch on purpose: a sentence each, of which samples/guide/from_pytorch_edges.md is made, and
what tells such a difference, a Difference of differential.py, from others.

python3 differences.py prints the sentences as Markdown.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F

from program import LEAF, WIDE_FLOATS, Enum, Op, Ref, Statement, largest_of, memory_of, ordinary, replace, run_reel, run_torch, with_dtypes, with_leaves_of
from generator import is_leaf
from limits import at_nan, beside, slopes_of_values
from ops import by_name

DOCUMENTED = []
HALVES = (torch.float16, torch.bfloat16)
NORMS = {"batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "local_response_norm", "normalize", "var", "std", "var_mean", "std_mean"}


def documented(sentence):
    """Decorates the function that tells whether a difference is of this kind."""

    def keep(applies):
        DOCUMENTED.append((sentence, applies))
        return applies

    return keep


def explanation(difference):
    """The sentence that documents this difference, or None. What no rule explains may be two things at once: first that
    an op is defined otherwise, and then something else."""
    found = next((sentence for sentence, applies in DOCUMENTED if applies(difference)), None)
    if found or difference.kind not in ("value", "undefined", "requires_grad"):
        return found
    sentences, left = defined_otherwise(difference)
    if not sentences or left is None:
        return sentences
    rest = explanation(left)  # of the same values, or of what comes behind them
    return rest and f"{sentences} {rest}"


# ---- ops of which reel's definition differs ----------------------------------------------------------------------------


@dataclasses.dataclass
class Defined(Op):
    """An op which PyTorch computes by reel's definition."""

    form: object = None  # a function of its arguments

    def __call__(self, args):
        return self.form(*args)


def clamp_as_defined(x, low, high):
    x = x if low is None else torch.maximum(x, torch.as_tensor(low))
    return x if high is None else torch.minimum(x, torch.as_tensor(high))


def glu_as_defined(x, dim):
    a, b = x.chunk(2, dim)
    return a * torch.sigmoid(b)


def bce_with_logits_as_defined(x, t, weight, pos_weight, reduction):
    wide = lambda y: y if y is None else y.to(torch.float32) if y.dtype in HALVES else y
    times = lambda y, factor: y if factor is None else y * wide(factor)
    z, u = wide(x), wide(t)
    loss = times(-(times(u, pos_weight) * F.logsigmoid(z) + (1 - u) * F.logsigmoid(-z)), weight)
    return REDUCTIONS[reduction](loss).to(torch.promote_types(x.dtype, t.dtype))


def batch_norm_as_defined(x, mean, var, weight, bias, *options):
    dense = lambda y: y if y is None else y.contiguous()
    if weight is None and bias is not None:
        weight = torch.ones_like(bias)
    return F.batch_norm(x, mean, var, dense(weight), dense(bias), *options)


def attention_as_defined(query, key, value, mask, is_causal):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return (scores if mask is None else scores + mask).softmax(-1) @ value


def renorm_as_defined(x, p, dim, max_norm):
    known = ~x.isnan().any(tuple(d for d in range(x.dim()) if d != dim % x.dim()), keepdim=True) if x.dim() > 1 else ~x.isnan()
    return torch.where(known, torch.renorm(torch.where(known, x, 0), p, dim, max_norm), x)


def logaddexp_as_defined(a, b):
    return torch.stack(torch.broadcast_tensors(a, b)).logsumexp(0)


REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, "none": torch.clone}


def triplet_margin_loss_as_defined(anchor, positive, negative, margin, norm, swap, reduction):
    near, far = F.pairwise_distance(anchor, positive, norm), F.pairwise_distance(anchor, negative, norm)
    if swap:
        far = torch.minimum(far, F.pairwise_distance(positive, negative, norm))
    loss = torch.clamp(near - far + margin, min=0)
    return REDUCTIONS[reduction](loss)


def multi_margin_loss_as_defined(x, target, p, margin, weight, reduction):
    rows, at = x.reshape(-1, x.shape[-1]), target.reshape(-1, 1)
    gap = margin - (rows.gather(1, at) - rows)
    terms = torch.where(gap > 0, gap, 0) ** p
    terms = terms if weight is None else terms * weight[at]
    loss = terms.masked_fill(F.one_hot(at[:, 0], x.shape[-1]).bool(), 0).sum(1) / x.shape[-1]
    return REDUCTIONS[reduction](loss.reshape(x.shape[:-1]))


def choosing_as(interpreter, op):
    """The op, which chooses one of equal elements, with those that reel chooses: they have its slopes."""

    def form(x, *rest):
        if rest and isinstance(rest[0], torch.Tensor) and rest[0].numel() > 1:
            return torch.stack([form(x, q, *rest[1:]) for q in rest[0]])
        y = op([x, *rest])
        asked = op
        if rest and isinstance(rest[0], torch.Tensor) and rest[0].numel() == 1:
            asked, rest = by_name("quantile"), (float(rest[0]), *rest[1:])
        at = rest[1 if op.base in ("kthvalue", "quantile") else 0] if rest else None
        dims = tuple(range(x.dim())) if at is None else (at,)
        if not x.is_floating_point() or x.dim() == 0 or isinstance(rest[0] if rest else 0, torch.Tensor):
            return y
        leaf, result, ones, slopes = map(Ref, range(4))
        program = [Statement(LEAF, [x.detach().clone()], [leaf]), Statement(by_name("requires_grad_"), [leaf, True], []),
                   Statement(asked, [leaf, *rest], [result]), Statement(LEAF, [torch.ones_like(asked([x, *rest]))], [ones]),
                   Statement(by_name("grad"), [[result], [leaf], [ones], False], [slopes])]  # fmt: skip
        ((values, _, _),) = run_reel(interpreter, [program])
        if values.get(slopes) is None:
            return y
        weights = values[slopes].data
        chosen = torch.where(weights == 0, 0, x * weights).sum(dims).reshape(y.shape)
        valid = (weights >= 0).all() and torch.allclose(weights.sum(dims), torch.ones(()).to(x.dtype), rtol=1e-2)
        return chosen if valid and torch.allclose(chosen, y, rtol=1e-2, equal_nan=True) else y

    return form


CHOICE = "Of equal elements `median`, `mode`, `kthvalue` and `quantile` may choose others, which get the gradient."
DEFINITIONS = {
    "clamp": ("`clamp` by tensors is `minimum(maximum(x, low), high)`, in gradients, too: what ties shares them, and what is NaN gets them.", clamp_as_defined),
    "glu": ("`glu` is `a * sigmoid(b)`.", glu_as_defined),
    "addcdiv": ("`addcdiv` is `x + value * (a / b)`, whose gradients do not wrap around beside integers.", lambda x, a, b, value: x + value * (a / b)),
    **{op: (CHOICE, None) for op in ("median", "mode", "kthvalue", "quantile")},
    "binary_cross_entropy_with_logits": (
        "`binary_cross_entropy_with_logits` is the sum of two terms, of which infinite gradients may make NaN.", bce_with_logits_as_defined),
    "triplet_margin_loss": ("`triplet_margin_loss` adds the margin to the difference of the distances.", triplet_margin_loss_as_defined),
    "multi_margin_loss": ("`multi_margin_loss` adds the margin to the difference of the scores.", multi_margin_loss_as_defined),
    "scaled_dot_product_attention": (
        "`scaled_dot_product_attention` is `softmax(q k^T / sqrt(E) + mask) v`, in which a masked key of NaN or infinity makes NaN, too; some kernels of PyTorch's pass over it.", attention_as_defined),
    "renorm": ("`renorm` leaves slices with NaN as they are, and so their gradient; PyTorch's second derivatives are NaN there.", renorm_as_defined),
    "logaddexp": ("`logaddexp` is `logsumexp` of two, whose second derivatives are 0 where one is -inf, not NaN.", logaddexp_as_defined),
    "batch_norm": ("`batch_norm` takes a strided weight, beyond whose memory PyTorch's goes, and a bias without a weight has second derivatives, which PyTorch's leaves out.", batch_norm_as_defined),
}


def by_definition(statement, interpreter):
    """The statement by reel's definition, if there is another one."""
    op = statement.op
    tensors = op.base != "clamp" or any(isinstance(bound, Ref) for bound in statement.args[1:])
    if op.base not in DEFINITIONS or not tensors:
        return statement
    fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(Op)}
    return dataclasses.replace(statement, op=Defined(**fields, form=DEFINITIONS[op.base][1] or choosing_as(interpreter, op)))


def defined_otherwise(d):
    """(the sentences about the ops of the program whose definition differs, what then is left of the difference or None)."""
    if any(isinstance(s.op, Defined) for s in d.program):
        return "", None
    program = [by_definition(s, d.interpreter) for s in d.program]
    sentences = dict.fromkeys(DEFINITIONS[s.op.base][0] for s in program if isinstance(s.op, Defined))
    return " ".join(sentences), d.compared_with(program) if sentences else None


def is_explained_with_copies(d):
    """Whether reel's values are PyTorch's, but for what is documented, if what is saved for gradients is copied before it is
    changed in place."""
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        left = d.compared_with(d.program)
        return left is None or left.kind not in ("accepted", "refused") and explanation(left) is not None


def in_message(*parts):
    return lambda difference: any(part in difference.message for part in parts)


def tensors_in(arg):
    """The tensors of an argument."""
    if isinstance(arg, (list, tuple)):
        return [x for one in arg for x in tensors_in(one)]
    return [arg] if isinstance(arg, torch.Tensor) else []


def operands(d, ops):
    """The tensors that statements of these ops got, a list for each statement that PyTorch did not refuse."""
    found = []
    for at, statement in enumerate(d.program):
        if statement.op.base in ops and statement.results:
            values, _ = run_torch(d.program[:at])
            found.append([values[ref] for ref in statement.refs() if values.get(ref) is not None])
    return found


def statements(d, *ops):
    """The statements of these ops that PyTorch did not refuse."""
    values, _ = run_torch(d.program)
    return [s for s in d.program if s.op.base in ops and s.results and all(ref in values for ref in (*s.refs(), *s.results))]


def values_of(d, ref):
    return run_torch(d.program)[0][ref]


def arguments_of(d, op):
    """The first two arguments of the statements of this op, the first a tensor."""
    return [(values_of(d, s.args[0]), s.args[1] if len(s.args) > 1 else None) for s in statements(d, op)]


def with_copies(program, ops, first=0):
    """The program in which these ops get copies of their tensors, from argument number `first` on."""
    changed, fresh = [], 10**6
    for statement in program:
        args = list(statement.args)
        for i, arg in enumerate(args if statement.op.base in ops else []):
            if i >= first and isinstance(arg, Ref):
                args[i] = Ref(fresh := fresh + 1)
                changed.append(Statement(by_name("clone"), [arg], [args[i]]))
        changed.append(dataclasses.replace(statement, args=args))
    return changed


def row_major(program):
    """The program with contiguous copies of results that are not."""
    values, _ = run_torch(program)
    changed, fresh = [], 10**6
    for statement in program:
        sources = {memory_of(values[ref]) for ref in statement.refs() if values.get(ref) is not None}
        results, copies = list(statement.results), []
        for i, number in enumerate(results):
            x = values.get(number)
            if x is not None and not x.is_contiguous() and memory_of(x) not in sources:
                results[i] = Ref(fresh := fresh + 1)
                copies.append(Statement(by_name("contiguous"), [results[i]], [number]))
        changed += [dataclasses.replace(statement, results=results), *copies]
    return changed


@documented("NaNs get no gradient in `nanmean`, also where all are NaN; PyTorch's get NaN there.")
def _(d):
    return in_gradient(d) and "nanmean" in d.ops and only_where(d, torch_nan(d) & (d.reel.data == 0))


@documented("The mean of `std_mean` and `var_mean` is a sum that is divided; PyTorch's is updated element by element. What ties with it shows that.")
def _(d):
    if {"std_mean", "var_mean"}.isdisjoint(d.ops):
        return False
    if in_gradient(d):
        return generic(d, {"minimum", "maximum", "clamp"})
    return d.kind == "value" and some_operand(d, {d.op}, lambda x: (x.abs() < 1e-15).any()) and generic(d, {d.op})


def of_few(d):
    """Whether something has normalised one or two elements."""
    few = lambda op, count: any(x.dim() and count(x, arg) <= 2 for x, arg in arguments_of(d, op))
    return few("layer_norm", lambda x, shape: math.prod(shape)) or few("rms_norm", lambda x, shape: math.prod(shape)) or few(
        "instance_norm", lambda x, _: math.prod(x.shape[2:])) or few("group_norm", lambda x, groups: x[:1].numel() // groups) or any(
        x.numel() <= 2 * x.shape[1] for x, *_ in operands(d, {"batch_norm"})) or any(
        values_of(d, s.args[0]).shape[s.args[2][0]] <= 2 for s in statements(d, "normalize"))  # fmt: skip


def some_operand(d, ops, has):
    """Whether has(x) is true of some tensor x that one of these ops got."""
    return any(x.numel() > 0 and bool(has(x.detach())) for given in operands(d, ops) for x in given)


def extreme(x):
    """Whether x has infinite, NaN or huge numbers."""
    return x.is_floating_point() and not (x.abs() < 1e15).all()


def infinite_somewhere(d):
    """Whether some value of the program is infinite or NaN."""
    return any(not x.data.isfinite().all() for x in run_torch(d.program[: d.at])[0].values() if x is not None)


def in_gradient(d):
    return d.kind == "value" and d.op in ("grad", "backward")


def cotangents_of(statement):
    """The outputs of a gradient, and their cotangents."""
    args = statement.args
    return (args[0], args[2]) if statement.op.base == "grad" else ([args[0]], [args[1]])


def inputs_of(statement):
    """What a gradient is taken by."""
    return statement.args[1 if statement.op.base == "grad" else 2]


def in_second(d):
    """Whether a gradient of a gradient differs."""
    return in_gradient(d) and any(statement.op.base == "grad" for statement in d.program[: d.at])


def only_where(d, mask):
    """Whether values differ, by more than rounding, only where the mask is true."""
    return d.where is not None and not (d.where & ~mask).any()


def generic(d, ops=()):
    """Whether there is no difference where no leaf, nor what these ops get, has zeros, equals, huge or infinite numbers or
    NaN."""
    program = with_leaves_of(d.program, ordinary())
    return d.is_gone(program) or bool(ops) and d.is_gone(with_noise(program, ops))


def with_noise(program, ops):
    """The program in which noise is added to what these ops get, and numbers stand for NaN and infinity."""
    generator = torch.Generator().manual_seed(0)
    changed, fresh = [], 10**6
    for at, statement in enumerate(program):
        args = list(statement.args)
        values, _ = run_torch(program[:at]) if statement.op.base in ops else ({}, {})
        for i, arg in enumerate(args):
            x = values.get(arg) if isinstance(arg, Ref) else None
            if x is not None and x.is_floating_point():
                noise, args[i] = Ref(fresh + 1), Ref(fresh := fresh + 2)
                changed.append(Statement(LEAF, [torch.randn(x.shape, generator=generator).to(x.dtype)], [noise]))
                tame = Ref(fresh := fresh + 1)
                changed.append(Statement(by_name("nan_to_num"), [arg, 1.5, 4.0, -4.0], [tame]))
                changed.append(Statement(by_name("add"), [tame, noise], [args[i]]))
        changed.append(dataclasses.replace(statement, args=args))
    return changed


def largest_number(d):
    """Of the floats of the program which have the least range."""
    return min(torch.finfo(x.dtype).max for x in run_torch(d.program)[0].values() if x is not None and x.is_floating_point())


def open_at_poles(d):
    """Where one has infinity or NaN, and what PyTorch has there is no limit of what it says beside: see limits.py."""
    if not hasattr(d, "at_poles"):
        singular = ~(d.reel.data.isfinite() & d.torch.isfinite())
        limits = beside(d.program, d.number, largest_number(d)) if only_where(d, singular) else None
        d.at_poles = singular & limits.open_to(d.reel.data, d.torch) if limits else torch.zeros_like(singular)
    return d.at_poles


def at_corner(d, ops):
    """Whether there is a difference only where slopes jump: none where what these ops get is changed, and reel's lie between
    those that PyTorch has around the numbers of the program."""
    limits = beside(d.program, d.number, largest_number(d), seeds=25) if generic(d, ops) else None
    return limits is not None and only_where(d, limits.spans(d.reel.data.double()))


def has_other_limit(d):
    """Where what PyTorch says beside has a finite limit, which is not what reel says."""
    limits = beside(d.program, d.number, largest_number(d))
    settled, limit, _ = limits.settled
    return settled & limit.isfinite() & ~limits.agrees(d.reel.data, limit)


def open_at_nan(d):
    """Where what PyTorch has depends on what number stands for a NaN, or, of a value that is no gradient, where it should not:
    see limits.py."""
    values, _ = run_torch(d.program[: d.at])
    if not any(x.isnan().any() for x in (*values.values(), d.torch, d.reel.data) if x is not None):
        return torch.zeros_like(d.where)
    if in_gradient(d):
        numbers = at_nan(d.program, d.number, largest_number(d))
        some = numbers.same_for_some(d.reel.data, d.torch) if numbers else torch.zeros_like(d.where)
    else:
        some = torch.zeros_like(d.where)
    # PyTorch's is NaN or of another number, and beside all that is no number it is what reel has.
    limits = beside(d.program, d.number, largest_number(d), nan=True)
    return some | limits.settled[0] & limits.agrees(d.reel.data, limits.settled[1]) if limits else some


def has_slope_of_values(d):
    """Where PyTorch's gradient is no number, and reel's is what PyTorch's values beside make it."""
    at = d.program[d.at]
    slopes = slopes_of_values(d.program[: d.at], *cotangents_of(at), inputs_of(at)[at.results.index(d.number)], d.where & ~d.torch.isfinite())
    return d.where & ((d.reel.data - slopes).abs() <= 2e-3 + (1e-2 if d.torch.dtype in HALVES else 1e-3) * slopes.abs())


def torch_nan(d):
    """Where PyTorch alone has NaN."""
    return d.torch.isnan() & ~d.reel.data.isnan()


# ---- autograd --------------------------------------------------------------------------------------------------------


@documented("A gradient that `create_graph` has made may have a history that gives zeros where PyTorch's has none, and the other way round.")
def _(d):
    if d.kind != "requires_grad" or d.op != "grad":
        return False
    if d.reel.requires_grad:
        return d.is_constant()
    values, _ = run_torch(d.program)
    leaves = [x for x in values.values() if x is not None and x.requires_grad and is_leaf(x)]
    try:
        by = torch.autograd.grad(values[d.number].sum(), leaves, allow_unused=True)
    except RuntimeError:  # there is none in PyTorch
        return True
    return not any((g.nan_to_num().abs() > 1e-5).any() for g in by if g is not None)


@documented("`unique` has no gradient; PyTorch's fails in the backward pass.")
def _(d):
    return d.kind == "requires_grad" and d.op in ("unique", "unique_consecutive")


@documented("A view that is made under `NoGrad` does not require grad; PyTorch's says what its base says.")
def _(d):
    made = next((statement for statement in d.program if d.number in statement.results), None)
    return d.kind == "requires_grad" and made is not None and not made.record


@documented("The gradient by what an output does not depend on, or no longer does, is undefined or zeros, not always as in PyTorch.")
def _(d):
    if d.kind != "undefined" or d.op not in ("grad", "backward"):
        return False
    there = d.torch if d.reel is None else d.reel.data
    if not (there.nan_to_num() if infinite_somewhere(d) else there).any():  # 0 times infinity is NaN
        return True
    limits = beside(d.program, d.number, largest_number(d)) if there.isnan().any() else None
    return limits is not None and bool((limits.settled[0] & (limits.settled[1] == 0)).all())


@documented("The second derivatives of `elu`, `selu`, `celu` and `prelu` at 0, and of `softplus` at its threshold, are those from the left; PyTorch's are 0.")
def _(d):
    if in_second(d) and any((x * s.args[1] == s.args[2]).any() for s in statements(d, "softplus") for x in [values_of(d, s.args[0])]):
        return at_corner(d, ())
    ops = {"elu", "elu_", "selu", "celu", "prelu"}
    return in_second(d) and some_operand(d, ops, lambda x: (x == 0).any()) and (at_corner(d, ops) or generic(d, ops) and only_where(d, d.torch == 0))


@documented("Where a gradient is 0 times infinity or a difference of infinities, one may have its limit, or a value in the range of slopes beside "
            "such a point, and the other infinity or NaN. A gradient that PyTorch has as the limit of those beside is the same.")  # fmt: skip
def _(d):
    return in_gradient(d) and only_where(d, open_at_poles(d))


@documented("Behind infinite values, where neither has a number for a gradient, one may have infinity and the other NaN.")
def _(d):
    if not in_gradient(d) or not infinite_somewhere(d):
        return False
    neither = d.reel.data.isnan() & d.torch.isinf() | d.reel.data.isinf() & d.torch.isnan()
    return only_where(d, neither) or only_where(d, neither | open_at_poles(d))


@documented("At NaN a slope may be that of some number, or NaN: 1 in `softshrink`, `hardshrink`, `hardswish` and `lp_pool` of order 1, 0 in `hardtanh` and "
            "`relu6`, that right of 0 in `elu`. Where an extreme is NaN the elements that are NaN share its gradient, or none gets it.")  # fmt: skip
def _(d):
    return in_gradient(d) and (only_where(d, open_at_nan(d)) or only_where(d, open_at_nan(d) | open_at_poles(d)))


@documented("The slopes of norms and distances of order 1 or infinity, and of a single element, at NaN are 0; PyTorch's are NaN.")
def _(d):
    single = lambda x: x.numel() == 1 or x.dim() and 1 in x.shape
    ops = {"pdist", "cdist", "norm", "linalg.vector_norm"}
    at_nan = some_operand(d, ops, lambda x: x.is_floating_point() and (x.isnan().any() or x.isinf().sum() > 1))  # also a difference
    first = any(type(arg) in (int, float) and arg in (1, math.inf) for s in d.program if s.op.base in ops for arg in s.args[1:]) or some_operand(d, ops, single)
    if not in_gradient(d) or not at_nan or not first:
        return False
    instead = torch_nan(d) & d.reel.data.isfinite()
    return only_where(d, instead) or only_where(d, instead | open_at_poles(d))


@documented("Where a gradient of PyTorch's is infinite or NaN, as it overflows on the way, it may be the slope of the values.")
def _(d):
    return in_gradient(d) and only_where(d, has_slope_of_values(d))


@documented("Where `amin`, `amax` or `aminmax` is NaN the elements that are NaN share its gradient; in PyTorch all have NaN.")
def _(d):
    of_nan = some_operand(d, {"amin", "amax", "aminmax"}, lambda x: x.is_floating_point() and x.isnan().any())
    return in_gradient(d) and of_nan and only_where(d, torch_nan(d))


@documented("The second derivatives of `local_response_norm` and `cosine_similarity` at numbers whose squares are infinite are NaN.")
def _(d):
    huge = lambda x: x.isfinite() & (x.double() ** 2 > largest_number(d))
    return in_second(d) and some_operand(d, {"local_response_norm", "cosine_similarity"}, lambda x: huge(x).any()) and only_where(d, d.reel.data.isnan())


@documented("Where `fmod` and `remainder` are NaN so are their slopes; PyTorch's may be infinite.")
def _(d):
    return in_gradient(d) and some_operand(d, {"fmod", "fmod_", "remainder", "remainder_"}, lambda x: x.isinf().any()) and only_where(d, d.reel.data.isnan() & d.torch.isinf())


@documented("`logsumexp` and `logcumsumexp` have slope 0 where they are -inf, NaN in PyTorch, and the latter NaN where it is NaN, also of a 0-d tensor; its second derivatives may be NaN where it is infinite.")
def _(d):
    if in_gradient(d) and any(x.dim() == 0 and x.isnan() for x, *_ in operands(d, {"logcumsumexp"})):
        return only_where(d, d.reel.data.isnan())
    nothing = any((values_of(d, ref) == -math.inf).any() for s in statements(d, "logsumexp", "logcumsumexp") for ref in s.results)
    if in_second(d) and any(values_of(d, ref).isinf().any() for s in statements(d, "logcumsumexp") for ref in s.results):
        return only_where(d, d.reel.data.isnan())
    return in_gradient(d) and nothing and only_where(d, torch_nan(d) & d.reel.data.isfinite())


@documented("The slopes of `prod` and `cumprod` of zeros and infinities, whose product is NaN, are NaN where it is; PyTorch's are 0 or infinite.")
def _(d):
    both = lambda x: (x == 0).any() and x.isinf().any()
    if not in_gradient(d) or not some_operand(d, {"prod", "cumprod"}, both):
        return False
    instead = d.reel.data.isnan() & ((d.torch == 0) | d.torch.isinf())
    return only_where(d, instead) or only_where(d, instead | open_at_poles(d)) or only_where(d, instead | open_at_poles(d) | open_at_nan(d))


@documented("The scores in `scaled_dot_product_attention` have the dtype of the query: those beyond its range (65504 in float16) are infinite, and give NaN.")
def _(d):
    op = "scaled_dot_product_attention"
    if d.kind != "value" or d.op != op:
        return False
    query, key = (x.double() for x in d.args[:2])
    beyond = ((query @ key.transpose(-2, -1)).abs() / query.shape[-1] ** 0.5 > torch.finfo(d.torch.dtype).max).any(-1, keepdim=True)
    return only_where(d, beyond & d.reel.data.isnan()) and d.is_gone(with_dtypes(d.program, WIDE_FLOATS))


@documented("A query of NaN or infinity attends to nothing that is known: NaN in `scaled_dot_product_attention`, in PyTorch also 0.")
def _(d):
    no_number = lambda x: not x.isfinite().all()
    return d.kind == "value" and d.op == "scaled_dot_product_attention" and some_operand(d, {d.op}, no_number) and only_where(d, d.reel.data.isnan() & (d.torch == 0))


@documented("In `scaled_dot_product_attention` with values that have no features the gradients of query and key are NaN where these are; PyTorch's are 0.")
def _(d):
    op = "scaled_dot_product_attention"
    no_features = any(value.shape[-1] == 0 for _, _, value, *_ in operands(d, {op}))
    return in_gradient(d) and no_features and some_operand(d, {op}, lambda x: x.isnan().any()) and only_where(d, d.reel.data.isnan() & (d.torch == 0))


@documented("All derivatives of the variance or deviation of one element are NaN, as it is itself; some of PyTorch's are 0.")
def _(d):
    single = some_operand(d, {"var", "std", "var_mean", "std_mean"}, lambda x: x.numel() == 1)
    return in_gradient(d) and single and only_where(d, d.reel.data.isnan())


@documented("A bias of `batch_norm` or `instance_norm` without weight has second derivatives; PyTorch's are None.")
def _(d):
    bare = lambda s: s.op.base in ("batch_norm", "instance_norm") and s.args[3] is None and s.args[4] is not None
    second = d.op in ("grad", "backward") and any(s.op.base == "grad" for s in d.program[: d.at])
    return d.kind == "undefined" and d.torch is None and second and any(bare(s) for s in d.program)


@documented("An extreme of `scatter_reduce` without the elements of x gives these no share of the gradient, though they are equal.")
def _(d):
    without = any(s.op.base in ("scatter_reduce", "scatter_reduce_") and s.args[-1] is False for s in d.program)
    return in_gradient(d) and without and at_corner(d, ())


@documented("`linalg::qr` of a matrix without full rank gives one of many.")
def _(d):
    deficient = lambda x: (torch.linalg.svdvals(x.double())[..., -1] < 1e-6).any()
    return d.kind == "value" and d.op in ("linalg.qr", "grad", "backward") and some_operand(d, {"linalg.qr"}, deficient)


@documented("The slopes of singular values that are 0 or equal, of a nuclear norm of them and of equal eigenvalues are some of many.")
def _(d):
    ops = {"linalg.matrix_norm", "linalg.svdvals", "linalg.svd", "linalg.eigvalsh", "linalg.eigh"}

    def singular(x):
        s = torch.linalg.svdvals(x.double().nan_to_num()) if x.dim() >= 2 else torch.ones(1, dtype=torch.float64)
        return (s[..., -1:] < 1e-6).any() or (s.diff(dim=-1).abs() < 1e-6).any()

    if not in_gradient(d) or not some_operand(d, ops, singular):
        return False
    # Rows that are one tensor, expanded, stay singular where the leaves are changed.
    repeated = any(0 in x.stride() for x, *_ in operands(d, ops)) and d.reel.data.isfinite().all() and generic(d, ops)
    return repeated or only_where(d, open_at_poles(d)) or at_corner(d, ops)


@documented("While gradients are recorded a tensor is not changed in place by what requires grad if another view of its memory is a leaf; nor is a view "
            "that was made of a leaf under `NoGrad`.")  # fmt: skip
def _(d):
    return d.kind == "refused" and d.op.endswith("_") and in_message("another view of this memory is a leaf", "the view was made under no_grad or became a leaf")(d)


@documented("Ops save other tensors for the backward pass than PyTorch's, mostly fewer, so that a change in place may be allowed where "
            "PyTorch refuses it, and the other way round.")  # fmt: skip
def _(d):
    if d.kind == "accepted":
        if not in_message("modified by an inplace operation", "has been modified inplace")(d):
            return False
        # In half types `normalize`, `logit` and others have other values besides, where eps is rounded to them. A
        # determinant is rounded otherwise, which what follows enlarges.
        wide = dataclasses.replace(d, program=with_dtypes(d.program, WIDE_FLOATS))
        return "linalg.det" in d.ops or d.is_torch_of(d.program, copied=True) or wide.is_torch_of(wide.program, copied=True) or is_explained_with_copies(d)
    # What divides or clamps is often changed in place, and must not need its result.
    common = ("div:", "clamp:", "hardtanh:", "relu6:", "normalize:", "scatter_reduce")
    return d.kind == "refused" and "a tensor that its gradient needs was changed in place" in d.message and not d.message.startswith(common)


@documented("Of a segment's largest elements all share the gradient; in PyTorch each gets all of it.")
def _(d):
    return in_gradient(d) and some_operand(d, {"segment_reduce"}, lambda x: x.is_floating_point() and x.unique().numel() < x.numel()) and at_corner(d, {"segment_reduce"})


@documented("`ravel` is a view wherever strides allow it, so that changes in place reach x.")
def _(d):
    reshaped = [Statement(by_name("reshape"), [s.args[0], [-1]], s.results, s.record) if s.op.base == "ravel" else s for s in d.program]
    if d.kind == "refused":
        return "ravel" in d.ops and in_message("a leaf that requires grad (through a view of it)", "the tensor is expanded")(d) and d.at in run_torch(reshaped)[1]
    return d.kind == "value" and "ravel" in d.ops and d.is_torch_of(reshaped)


@documented("Results are row-major, whatever the strides of operands, so that `reshape`, `flatten` and `contiguous` of them share their memory, which changes in place reach.")
def _(d):
    if d.kind == "accepted" and d.op == "view" and "view size is not compatible" in d.message:
        return not any("view size" in error for error in run_torch(row_major(d.program))[1].values())
    return d.kind in ("value", "undefined", "requires_grad") and bool(d.ops & {"reshape", "flatten", "ravel", "view", "contiguous"}) and d.is_torch_of(row_major(d.program))


@documented("Of elements that tie, `median`, `quantile`, `kthvalue`, `mode` and `topk` may choose others, which get the gradient, as beside infinity.")
def _(d):
    ties = lambda x: x.is_floating_point() and (x.unique().numel() < x.numel() or not x.isfinite().all())
    return in_gradient(d) and some_operand(d, {"median", "quantile", "kthvalue", "mode", "topk"}, ties) and at_corner(d, {"median", "quantile", "kthvalue", "topk"})


@documented("`poisson_nll_loss` with `full` and `kl_div` have a gradient by targets that are 0 or less, that of their other terms; PyTorch's is NaN. "
            "The slope of `kl_div` by a negative target is NaN, also times 0.")  # fmt: skip
def _(d):
    if not in_gradient(d) or not some_operand(d, {"poisson_nll_loss", "kl_div"}, lambda x: (x <= 0).any()):
        return False
    negative = some_operand(d, {"kl_div"}, lambda x: (x < 0).any())
    return only_where(d, torch_nan(d) | d.reel.data.isnan() & (d.torch == 0) if negative else torch_nan(d))


@documented("Only floating-point tensors ever require grad.")
def _(d):
    return d.kind == "requires_grad" and not d.torch.is_floating_point() or d.kind == "accepted" and in_message(
        "Autograd not support dtype")(d)  # fmt: skip


@documented("The slopes of `hardsigmoid` in float64 are exact.")
def _(d):
    return in_gradient(d) and "hardsigmoid" in d.ops and torch.allclose(d.reel.data, d.torch, rtol=1e-7)


@documented("The slope of `binary_cross_entropy` by the target is the difference of the logarithms that the loss is made of, which are not below -100; PyTorch's is infinite.")
def _(d):
    certain = some_operand(d, {"binary_cross_entropy"}, lambda x: ((x == 0) | (x == 1)).any())
    return in_gradient(d) and certain and only_where(d, d.torch.isinf() & d.reel.data.isfinite())


@documented("NaN in a gradient that `logcumsumexp` passes on stays NaN; PyTorch's second derivatives drop it.")
def _(d):
    if not in_second(d) or "logcumsumexp" not in d.ops:
        return False
    values, _ = run_torch(d.program[: d.at])
    gradients = [values[ref] for s in d.program[: d.at] if s.op.base == "grad" for ref in s.results if values.get(ref) is not None]
    return any(x.isnan().any() for x in gradients) and only_where(d, d.reel.data.isnan() & d.torch.isfinite())


@documented("The 1e-12 in `cosine_embedding_loss` and in the slopes of `binary_cross_entropy` is not rounded to float32 or the dtype of x.")
def _(d):
    near = d.kind == "value" and torch.allclose(d.reel.data, d.torch, rtol=2e-8, atol=0)
    return near and (d.op == "cosine_embedding_loss" or in_gradient(d) and bool(d.ops & {"binary_cross_entropy", "cosine_embedding_loss"}))


@documented("The second derivatives by the exponent of `pow` where the base is 0, and of `renorm`, `cosine_similarity`, norms and deviations that are 0 and of `atan2` at the origin, are not NaN; "
            "that by base and exponent where the exponent is 0 is 1 / base, not 0.")  # fmt: skip
def _(d):
    zeros = lambda ops: in_second(d) and some_operand(d, ops, lambda x: (x == 0).any() or x.unique().numel() < x.numel())
    norms = {"renorm", "cosine_similarity", "norm", "normalize", "linalg.vector_norm", "std", "std_mean", "atan2"}
    powers = {"pow", "pow_", "float_power"}
    return zeros(powers | norms) and only_where(d, torch_nan(d) & ~has_other_limit(d)) or zeros(powers) and generic(d)


@documented("`poisson_nll_loss` with `full` takes logarithms of integer targets in the dtype of x, not in float32.")
def _(d):
    return d.kind == "value" and d.op == "poisson_nll_loss" and not d.args[1].is_floating_point() and torch.allclose(d.reel.data, d.torch, rtol=1e-6)


@documented("`sigmoid` of float32 numbers below -88.7 is a subnormal number, not 0.")
def _(d):
    return d.kind == "value" and some_operand(d, {"sigmoid", "sigmoid_"}, lambda x: (x < -87).any()) and only_where(d, d.reel.data.isfinite() & open_at_poles(d))


@documented("`histc` of one huge number, whose range is rounded away, counts it in another bin.")
def _(d):
    return d.kind == "value" and d.op == "histc" and (d.args[0].abs() >= 1 / torch.finfo(d.torch.dtype).eps).any() and generic(d)


@documented("The slope of a normalisation of one or two elements is a difference of equals, of which rounding is left, as of one huge number.")
def _(d):
    if d.kind == "value" and d.op in NORMS and some_operand(d, {d.op}, extreme):
        return of_few(d) and generic(d)
    if d.kind == "value" and d.op not in (*NORMS, "grad", "backward"):
        return of_few(d) and generic(d, {d.op})  # of a function that is steep there
    if not in_gradient(d) or not of_few(d):
        return False
    values, _ = run_torch(d.program)
    largest = max(float(largest_of(x.double())) for x in values.values() if x is not None and x.is_floating_point())
    if some_operand(d, NORMS, extreme) and generic(d):
        return torch.allclose(d.reel.data, d.torch, rtol=1e-3, atol=1e4 * torch.finfo(d.torch.dtype).eps * largest)
    return d.is_gone(with_dtypes(d.program, WIDE_FLOATS)) and torch.allclose(d.reel.data, d.torch, rtol=1e-3, atol=1e4 * torch.finfo(d.torch.dtype).eps * max(1, min(largest, 1e5)))


@documented("What is computed in several steps is rounded to half types once, and does not leave their range, or the domain of a function, in between.")
def _(d):
    return d.kind == "value" and d.torch.dtype in HALVES and only_where(d, open_at_poles(d))


@documented("What is made of a leaf that is a view stays connected to it when the memory that they share is written.")
def _(d):
    views = {result for s in d.program if s.op.name != "tensor" for result in s.results}
    values, _ = run_torch(d.program)
    memory = lambda ref: memory_of(values[ref])
    leaves = {memory(s.args[0]) for s in d.program if s.op.base == "requires_grad_" and s.args[0] in views}
    writes = [s for s in d.program if s.op.base.endswith("_") and s.op.base != "requires_grad_" and memory(s.args[0]) in leaves]
    if d.kind == "undefined":
        return bool(writes) and d.torch is None
    if not writes or not in_gradient(d):
        return False
    program = [s for s in d.program if s not in writes]
    for written in writes:
        for result in written.results:
            program = [dataclasses.replace(s, args=replace(s.args, result, written.args[0])) for s in program]
    theirs = run_torch(program)[0].get(d.number)
    return theirs is not None and torch.allclose(d.reel.data, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


@documented("`median` along a dimension takes expanded tensors; PyTorch's goes beyond their memory.")
def _(d):
    expanded = lambda x: 0 in x.stride() and x.numel() > 1
    if d.kind != "value" or not some_operand(d, {"median", "kthvalue"}, expanded):
        return False
    made = next(s for s in d.program if d.number in s.results)
    in_place = any(op.endswith("_") for op in d.ops - {"requires_grad_"})
    of_leaf = made.op.name == "tensor" and not in_place and torch.equal(d.reel.data, made.args[0])
    return made.op.base in ("median", "kthvalue") or of_leaf or d.is_torch_of(with_copies(d.program, {"median", "kthvalue"}))


@documented("The views of `split`, `chunk`, `tensor_split` and `unbind` may be changed in place while gradients are recorded.")
def _(d):
    return d.kind == "accepted" and in_message("This view is the output of a function that returns multiple views")(d)


# ---- calls that PyTorch refuses --------------------------------------------------------------------------------------


@documented("A number may stand for any operand: `maximum(x, 0.5)`.")
def _(d):
    return d.kind == "accepted" and "must be Tensor, not" in d.message


@documented("Ops take dtypes that PyTorch's lack on a CPU: float16 in `quantile`, bools in `topk`.")
def _(d):
    return d.kind == "accepted" and in_message("not implemented for", "must be either float or double", "does not support bool", "Boolean inputs not supported for relu", "Bool inputs not supported for hardtanh")(d)


@documented("`addcdiv(x, a, b)` divides integers a and b if x is floating point.")
def _(d):
    return d.kind == "accepted" and d.op in ("addcdiv", "addcdiv_") and "Integer division with addcdiv" in d.message


@documented("`scatter` whose source is larger than the index can be differentiated.")
def _(d):
    return d.kind == "accepted" and in_message("ScatterBackward0 returned an invalid", "CopySlices returned an invalid")(d)


@documented("What has integers among its operands can be differentiated by the others: `addcdiv(x, a, integers)`.")
def _(d):
    return d.kind == "accepted" and d.op in ("grad", "backward") and "can't be cast to the desired output type" in d.message


@documented("Losses of tensors of two dtypes can be differentiated.")
def _(d):
    return d.kind == "accepted" and d.op in ("grad", "backward") and "Found dtype" in d.message and any(op.endswith("_loss") for op in d.ops)


@documented("Index tensors may be int32 or uint8 everywhere.")
def _(d):
    return d.kind == "accepted" and in_message(
        "Expected dtype int64 for index", "Expected a long tensor for index", "one_hot is only applicable to index tensor")(d)  # fmt: skip


@documented("Gradients of any order, also where PyTorch has none: `floor_divide` (0), the weights of `bincount`, `hardsigmoid` twice.")
def _(d):
    return d.kind == "accepted" and in_message("derivative for aten::", "the derivative for '_embedding_bag_backward'")(d) and "is not implemented" in d.message or (
        d.kind == "accepted" and in_message("Double backward is unsupported")(d))


@documented("Classes may be int32, too, in `nll_loss`, `cross_entropy` and `multi_margin_loss`.")
def _(d):
    return d.kind == "accepted" and in_message("expected target dtype to be Long or Byte", "expected scalar type Long but found Int")(d)


@documented("Operands of changes in place may overlap the tensor that is changed: they are read first.")
def _(d):
    if d.kind == "value" and d.op.endswith("_"):
        written, *given = [memory_of(x) for x in d.args if isinstance(x, torch.Tensor)]
        return written in given and d.is_torch_of(with_copies(d.program, {d.op}, first=1))
    return d.kind == "accepted" and "some elements of the input tensor and the written-to tensor refer to a single" in d.message


@documented("`arange` is empty where the step leads away from the end.")
def _(d):
    return d.kind == "accepted" and d.op == "arange"


@documented("A bool tensor minus a number is a number: `sub(mask, 2)`.")
def _(d):
    return d.kind == "accepted" and "Subtraction, the `-` operator, with a bool tensor" in d.message


@documented("`avg_pool3d` takes windows larger than x if the padding makes room, as `avg_pool2d` does.")
def _(d):
    return d.kind == "accepted" and d.op == "avg_pool3d" and "smaller than kernel size" in d.message


@documented("Tensors without elements work everywhere: `instance_norm` of no examples, `bilinear` of no features, `unique` of empty slices.")
def _(d):
    if d.kind == "requires_grad":
        return any(x.numel() == 0 for x in tensors_in(d.args)) and (d.op.startswith("linalg.") or d.op == "scaled_dot_product_attention")
    if d.kind != "accepted":
        return False
    if d.op.startswith("linalg.") and "please report a bug to PyTorch" in d.message:
        return any(x.numel() == 0 for x in tensors_in(d.args))
    return d.op == "batch_norm" and "index 0 out of range for tensor of size [0]" in d.message or d.op == "instance_norm" and d.args[0].numel() == 0 or in_message("cannot reshape tensor of 0 elements", "must be >= 1 in every dimension")(d) or (
        d.op in ("unique", "unique_consecutive") and in_message("0 sized dimensions", "zero sized dimensions")(d)) or (
        d.op in ("grad", "backward") and "PixelShuffleBackward0 returned an invalid gradient" in d.message) or (
        d.op in ("grad", "backward") and "Index to scalar can have only 1 value, got 0" in d.message)  # fmt: skip


@documented("The correlations of numbers that are all equal are NaN, 0 / 0; PyTorch's are what rounding of their mean leaves.")
def _(d):
    if d.kind != "value" or d.op != "corrcoef":
        return False
    rows = d.args[0].reshape(-1, d.args[0].shape[-1])
    equal = (rows == rows[:, :1]).all(dim=1)
    return only_where(d, d.reel.data.isnan() & (equal[:, None] | equal[None]).reshape(d.torch.shape))


@documented("Numbers between -1 and 0 are 0 in uint8, as they are when tensors are converted.")
def _(d):
    fraction = lambda x: isinstance(x, float) and -1 < x < 0 or isinstance(x, torch.Tensor) and x.numel() == 1 and -1 < x.item() < 0
    return d.kind == "accepted" and "cannot be converted to type uint8_t" in d.message and any(map(fraction, d.args))


@documented("A tensor without elements shares no memory: changed in place, it changes none of which it was a view.")
def _(d):
    return d.kind == "accepted" and d.op.endswith("_") and "A view was created in no_grad mode" in d.message and d.args[0].numel() == 0


@documented("A whole number goes into uint8 in `pad` as in `full`: -1 is 255.")
def _(d):
    return d.kind == "accepted" and d.op == "pad" and "cannot be converted to type uint8_t" in d.message and type(d.args[3]) is int


@documented("A view may be changed in place also where another view of its memory has been changed while gradients were recorded.")
def _(d):
    made = {result for s in d.program if s.op.name != "tensor" for result in s.results}
    leaves = {s.args[0] for s in d.program if s.op.base == "requires_grad_"}
    changed = d.program[d.at].args[0]
    return d.kind == "accepted" and d.op.endswith("_") and "a leaf Variable that requires grad is being used" in d.message and (
        changed in made - leaves and any(s.op.base.endswith("_") and s.args[0] not in leaves for s in d.program[: d.at]))  # fmt: skip


@documented("`kron` takes operands that are not contiguous.")
def _(d):
    return d.kind == "accepted" and d.op == "kron" and "view size is not compatible" in d.message


@documented("`index_put_` converts values to the dtype of a floating-point tensor, and bools and integers to that of an integer one.")
def _(d):
    return d.kind == "accepted" and d.op in ("index_put", "index_put_") and "source and destination dtypes match" in d.message and (
        d.args[0].is_floating_point() or not d.args[2].is_floating_point())


# ---- calls that reel refuses -----------------------------------------------------------------------------------------


@documented("An index or dimension out of range, or a wrong dtype, is an Error also where there is nothing to do: empty tensors, `diff` taken 0 times.")
def _(d):
    if d.kind != "refused":
        return False
    if d.op == "diff":
        return "out of range" in d.message and d.args[1] == 0
    if d.op in ("index", "index_put", "index_put_"):
        entries = [e.torch if isinstance(e, Enum) else e for e in d.args[1]]
        nowhere = [torch.zeros_like(e) if isinstance(e, torch.Tensor) and e.dtype != torch.bool else e for e in entries]
        return "out of range" in d.message and (0 in d.args[0].shape or d.args[0][tuple(nowhere)].numel() == 0)
    if d.op in ("scatter", "scatter_") and "does not fit into" in d.message:
        return d.args[2].numel() == 0
    return in_message("out of range", "convert it to a floating point type first", "is neither less than stride", "integer division by zero")(d) and isinstance(d.args[0], torch.Tensor) and d.args[0].numel() == 0


@documented("A C++ integer that the integer type of an op cannot hold is an Error and does not wrap; it is compared as it is. "
            "So are the ends of `arange` and `linspace`.")  # fmt: skip
def _(d):
    if d.kind == "refused":
        return "does not fit into" in d.message and any(type(arg) in (int, float) for arg in d.args)
    if d.kind != "value" or d.op not in ("eq", "ne", "lt", "le", "gt", "ge"):
        return False
    numbers = [int(arg) for arg in d.args[:2] if type(arg) is int or isinstance(arg, torch.Tensor) and arg.dim() == 0 and arg.dtype in (torch.int32, torch.int64)]
    ranges = [torch.iinfo(arg.dtype) for arg in d.args[:2] if isinstance(arg, torch.Tensor) and arg.dtype in (torch.uint8, torch.int32)]
    return any(not r.min <= number <= r.max for number in numbers for r in ranges)


@documented("A slice to be padded with `kCircular` is cropped first, and must then be as long as the padding.")
def _(d):
    return d.kind == "refused" and d.op == "pad" and "kCircular pads by at most the size" in d.message and min(d.args[1]) < 0


@documented("A fractional alpha of `index_add` for integers is an Error, as in `add`.")
def _(d):
    return d.kind == "refused" and d.op in ("index_add", "index_add_") and "it must be an integer" in d.message and type(d.args[-1]) is float


@documented("Fractional pooling to size 0 is an Error.")
def _(d):
    return d.kind == "refused" and d.op.startswith("fractional_max_pool") and ": 0 windows" in d.message


@documented("In `x.index_put_` the value must broadcast to the elements that are indexed, without leading dimensions of size 1.")
def _(d):
    return d.kind == "refused" and d.op in ("index_put", "index_put_") and "index_put_: a value of shape" in d.message


@documented("The shapes of a loss's input and target must be equal, or the target a number; PyTorch warns and broadcasts.")
def _(d):
    return d.kind == "refused" and (d.op.endswith("_loss") or d.op == "kl_div") and "and target of shape" in d.message


@documented("Floating-point tensors are not written into integer ones by `index_put_`: `to(kInt64)` first.")
def _(d):
    return d.kind == "refused" and d.op in ("index_put", "index_put_") and "converts it" in d.message


@documented("The `median` of no elements is an Error, not NaN.")
def _(d):
    return d.kind == "refused" and d.op == "median" and d.args[0].numel() == 0


@documented("A float factor of integers is not cut off to an integer: `addcmul(x, a, b, 0.5)` of int64 gives float32, and in place "
            "it is an Error; so in `addmm` and `baddbmm`. In gradients of `addcmul` and `addcdiv` it may be fractional beside integers.")  # fmt: skip
def _(d):
    if d.op in ("grad", "backward"):
        factors = [arg for s in d.program if s.op.base in ("addcmul", "addcmul_", "addcdiv", "addcdiv_") for arg in s.args if type(arg) is float]
        return d.kind == "accepted" and "cannot be converted to type" in d.message and any(not factor.is_integer() for factor in factors)
    return d.op in ("addcmul", "addcmul_", "addmm", "baddbmm") and (
        d.kind == "refused" and "does not fit into" in d.message or d.kind == "dtype"
        or d.kind == "accepted" and in_message("cannot be converted to type", "can't be cast to the desired output type")(d))  # fmt: skip


@documented("Losses take at least one floating-point tensor, and give the common dtype.")
def _(d):
    if d.kind == "accepted" and d.op == "kl_div":
        return "Integral inputs not supported" in d.message
    return d.op.endswith("_loss") and (d.kind == "refused" and "neither of a floating point type" in d.message or d.kind == "dtype")


@documented("Transposed convolutions that leave no output are an Error.")
def _(d):
    return d.kind == "refused" and d.op.startswith("conv_transpose") and "leave no output" in d.message


@documented("`linalg::qr` of a tall matrix that requires grad refuses `kComplete` at once, not in the backward pass.")
def _(d):
    return d.kind == "refused" and d.op == "linalg.qr" and "have no gradient" in d.message


# ---- other results ---------------------------------------------------------------------------------------------------


@documented("In `x.index({0, Slice(), ids})` numbers count as ids when the dimensions of the result are placed, as in NumPy.")
def _(d):
    entries = d.args[1] if d.op in ("index", "index_put", "index_put_") else []
    if not any(isinstance(e, int) for e in entries) or not any(isinstance(e, torch.Tensor) for e in entries):
        return False
    if d.kind in ("refused", "accepted"):
        return in_message("shape", "broadcast", "must match")(d)
    as_ids = lambda e: Enum("", torch.tensor([e])) if type(e) is int else e  # PyTorch takes 0-d ones for numbers
    statement = d.program[d.at]
    args = [statement.args[0], [as_ids(e) for e in statement.args[1]], *statement.args[2:]]
    return d.kind in ("shape", "value") and d.is_torch_of([*d.program[: d.at], dataclasses.replace(statement, args=args)])


@documented("`polygamma` and `digamma` are exact to the last digits and infinite at their poles, where a gradient of 0 times the slope is "
            "NaN; PyTorch's are not.")  # fmt: skip
def _(d):
    if d.kind == "value" and d.op in ("grad", "backward"):
        poles = ~d.reel.data.isfinite() & ~(d.torch.abs() <= 1e5) | torch_nan(d)
        if some_operand(d, {"digamma", "polygamma", "lgamma"}, lambda x: ((x <= 0) & (x == x.round())).any()):
            poles |= d.reel.data.isnan() & (d.torch == 0)
        return bool(d.ops & {"digamma", "polygamma", "lgamma"}) and only_where(d, poles | torch.isclose(d.reel.data, d.torch, rtol=1e-6, atol=1e-8))
    if d.kind != "value" or not d.ops & {"digamma", "polygamma"} or not d.torch.is_floating_point():
        return False
    return d.op in ("polygamma", "digamma") and bool((d.args[-1] <= 0).any() or d.args[-1].isinf().any()) or torch.allclose(d.reel.data, d.torch, rtol=1e-6, equal_nan=True)


@documented("`threshold` compares integers with the number itself; PyTorch converts it to their type first, -1 to 255 for uint8.")
def _(d):
    if d.op != "threshold" or d.kind != "value" or d.args[0].is_floating_point():
        return False
    x, level, value = d.args[:3]
    return torch.equal(d.reel.data.double(), torch.where(x.double() > level, x, torch.tensor(value).to(x.dtype)).double())


@documented("The mean of an empty segment is 0 in `segment_reduce`, not NaN.")
def _(d):
    return d.kind == "value" and d.op == "segment_reduce" and only_where(d, d.torch.isnan())


@documented("`unique` leaves the order of NaNs among each other open, which its `inverse` shows; among slices that hold NaN it finds all equals.")
def _(d):
    if d.op != "unique":
        return False
    x = d.args[0]
    if len(d.args) == 2:
        return d.kind in ("value", "shape") and bool(x.isnan().any())
    return d.kind == "value" and d.program[d.at].results.index(d.number) == 1 and only_where(d, x.isnan())


@documented("NaN in `mode` is a value that occurs once, behind all others; PyTorch's result depends on the order.")
def _(d):
    return d.kind == "value" and d.op == "mode" and only_where(d, d.args[0].isnan().any(d.args[1], keepdim=d.args[2]))


@documented("The `quantile` at an infinite element is infinite, not NaN.")
def _(d):
    return d.kind == "value" and d.op == "quantile" and only_where(d, d.torch.isnan() & d.reel.data.isinf())


@documented("Of floats that an integer type does not hold NaN becomes 0 and the others its nearest end; PyTorch's depend on dtype and machine.")
def _(d):
    if d.kind != "value" or d.op not in ("to", "copy_") or d.torch.is_floating_point() or d.torch.dtype == torch.bool:
        return False
    limits, x = torch.iinfo(d.torch.dtype), d.args[1 if d.op == "copy_" else 0].double()
    outside = ~((x >= limits.min) & (x <= limits.max))
    if d.op == "copy_" and d.torch.shape != d.args[0].shape:  # it is another view of the memory
        outside = outside.any()
    return only_where(d, outside.expand(d.torch.shape))


@documented("`gelu` of infinite float32 numbers is infinity or 0; PyTorch's is NaN but of single elements.")
def _(d):
    return d.kind == "value" and d.op == "gelu" and only_where(d, torch_nan(d) & d.args[0].isinf())


@documented("`linalg::solve` and `linalg::inv` of a singular matrix that rounding hides give one of many results.")
def _(d):
    def singular(x):
        s = torch.linalg.svdvals(x.detach().double().nan_to_num())
        return x.numel() > 0 and (s[..., -1] <= 100 * torch.finfo(x.dtype).eps * s[..., 0]).any()

    ops = {"linalg.solve", "linalg.inv"}
    if d.kind in ("accepted", "refused"):  # what follows the rounding
        among = [d.args[:1]] if d.op in ops else operands(d, ops) if d.op in ("grad", "backward") else []
        return "singular" in d.message and any(singular(x) for x, *_ in among)
    return d.kind == "value" and any(singular(x) for x, *_ in operands(d, ops)) and generic(d, ops)


@documented("The gradient of `pdist` at infinite elements is NaN; PyTorch's is 0 of a single vector.")
def _(d):
    infinite = some_operand(d, {"pdist"}, lambda x: x.is_floating_point() and x.isinf().any() and x.shape[0] == 1)
    return in_gradient(d) and infinite and only_where(d, d.reel.data.isnan() & (d.torch == 0))


@documented("`soft_margin_loss` does not overflow; `hardswish` of -inf is 0; what counts for nothing in `baddbmm` (alpha = 0, beta = 0) may hold NaN.")
def _(d):
    if in_gradient(d) and some_operand(d, {"soft_margin_loss"}, lambda x: (x.abs() > 80).any()):
        return only_where(d, torch_nan(d))
    return d.kind == "value" and (d.op == "soft_margin_loss" and only_where(d, d.torch.isinf() & d.reel.data.isfinite())
                                  or d.op == "hardswish" and only_where(d, d.args[0] == -torch.inf)
                                  or d.op == "baddbmm" and 0 in d.args[3:] and only_where(d, torch_nan(d)))  # fmt: skip


@documented("Gradients that are zeros may be changed in place; in PyTorch some are immutable.")
def _(d):
    return d.kind == "accepted" and "ZeroTensors are immutable" in d.message


@documented("In `cross_entropy` and `binary_cross_entropy_with_logits` infinite logits or targets may give NaN where PyTorch gives infinity, and the other way round; "
            "what huge targets give, which are no probabilities, cancels otherwise.")  # fmt: skip
def _(d):
    ops = {"binary_cross_entropy_with_logits", "multilabel_soft_margin_loss", "cross_entropy"}
    if d.kind == "value" and d.op in (*ops, "grad", "backward") and any(extreme(target) for _, target, *_ in operands(d, ops - {"cross_entropy"})):
        return generic(d)
    return d.kind == "value" and d.op in (*ops, "grad", "backward") and some_operand(d, ops, lambda x: not x.isfinite().all()) and only_where(d, open_at_poles(d))


@documented("The largest of an `embedding_bag`, the largest distance of `cdist(a, b, inf)` and a `multi_margin_loss` with NaN are NaN; "
            "`cdist(a, b, 0)` counts NaN.")  # fmt: skip
def _(d):
    if d.kind == "value" and d.op == "cdist" and d.args[2] == 0:
        return only_where(d, torch_nan(d))
    return d.kind == "value" and d.op in ("embedding_bag", "cdist", "multi_margin_loss") and any(not x.isfinite().all() for x in tensors_in(d.args)) and only_where(d, d.reel.data.isnan())


@documented("Of a singular matrix rounding decides whether `slogdet` finds a determinant of 0, which has no gradient.")
def _(d):
    if d.kind == "refused" and d.op in ("grad", "backward"):
        singular = lambda x: (torch.linalg.svdvals(x.double())[..., -1] < 1e-6).any()
        return "is singular" in d.message and some_operand(d, {"linalg.slogdet"}, singular)
    if d.kind != "value" or d.op != "linalg.slogdet":
        return False
    s = torch.linalg.svdvals(d.args[0].double())
    return only_where(d, s[..., -1] <= 100 * torch.finfo(d.torch.dtype).eps * s[..., 0])


@documented("Infinite and NaN elements, and gradients, of weight 0 count in `interpolate`, `grid_sample`, attention and the padding of convolutions where "
            "they do not in PyTorch, and the other way round.")  # fmt: skip
def _(d):
    of = d.op.startswith("conv") or d.op in ("interpolate", "grid_sample", "scaled_dot_product_attention")
    if in_gradient(d) and any(s.op.base == "grid_sample" and "cubic" in str(s.args[2]).lower() for s in d.program):
        # The slope of a cubic's weight is a sum of parts of either sign, each of which an infinite element makes infinite.
        return only_where(d, open_at_poles(d) | d.reel.data.isnan() & d.torch.isinf())
    return d.kind == "value" and of and only_where(d, open_at_poles(d) | open_at_nan(d))


@documented("`cross` broadcasts all dimensions, that of size 3, too.")
def _(d):
    return d.kind == "accepted" and d.op == "cross" and in_message("must have length 3", "must have the same number of dimensions")(d)


@documented("`any` and `all` of uint8 give bools.")
def _(d):
    return d.kind == "dtype" and d.op in ("any", "all")


@documented("`quantile` of no elements along a dimension that has some is empty.")
def _(d):
    return d.kind == "accepted" and d.op == "quantile" and d.args[0].numel() == 0


@documented("`repeat_interleave(x, n, 0)`, `flatten(x, 0, 1)` and `take_along_dim(x, i, 0)` take a 0-d x.")
def _(d):
    return d.kind == "accepted" and d.op in ("repeat_interleave", "flatten", "take_along_dim") and d.args[0].dim() == 0


@documented("`bincount` has the dtype of floating-point weights, also if they are float16 or none.")
def _(d):
    return d.kind == "dtype" and d.op == "bincount"


@documented("Normalisation of infinite or huge numbers (from 1e15 on) may give NaN where PyTorch gives infinity, or numbers where "
            "it gives NaN; a variance whose sum of squares overflows is infinite, where PyTorch adds in float64.")  # fmt: skip
def _(d):
    if d.kind != "value" or d.op not in (*NORMS, "grad", "backward") or not some_operand(d, NORMS, extreme):
        return False
    infinite = some_operand(d, NORMS, lambda x: x.isinf().any())
    overflows = some_operand(d, NORMS, lambda x: x.is_floating_point() and torch.where(x.isfinite(), x.double() ** 2, 0).sum() > largest_number(d))
    summed = d.reel.data.isinf() & (d.op in ("var", "std", "var_mean", "std_mean"))
    return only_where(d, open_at_poles(d) | d.reel.data.isnan() & d.torch.isinf() & infinite | (torch_nan(d) | summed) & overflows)


@documented("`binary_cross_entropy_with_logits` of infinite or huge numbers and of targets outside [0, 1] adds two terms that may be "
            "infinite, with NaN as the result where PyTorch's form has infinity, or the other way round.")  # fmt: skip
def _(d):
    ops = {"binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"}
    outside = lambda x: extreme(x) or bool(((x < 0) | (x > 1)).any())
    return d.kind == "value" and d.op in (*ops, "grad", "backward") and some_operand(d, ops, outside) and only_where(d, open_at_poles(d))


@documented("The mean in a normalisation is a sum that is divided: of equal elements it may be a last digit beside them, which the "
            "division by a small deviation and second derivatives enlarge.")  # fmt: skip
def _(d):
    if d.kind == "value" and d.op in NORMS:
        rounding = 1e3 * torch.finfo(d.torch.dtype).eps * float(largest_of(d.args[0].double()))
        return generic(d) and torch.allclose(d.reel.data, d.torch, rtol=1e-3, atol=rounding)
    equal = some_operand(d, NORMS, lambda x: x.unique().numel() == 1)
    return in_second(d) and equal and torch.allclose(d.reel.data, d.torch, rtol=1e-3, atol=2e7 * torch.finfo(d.torch.dtype).eps)


@documented("The second derivative of a norm is a difference of equals where one element is all of it: beside 0 rounding, divided by the "
            "element, is left.")  # fmt: skip
def _(d):
    tiny = [float(x.abs()[x != 0].min()) for given in operands(d, {"norm", "linalg.vector_norm"}) for x in given if (x != 0).any()]
    if not in_second(d) or not tiny or min(tiny) > 1e-6:
        return False
    return bool(((d.reel.data - d.torch).abs().double() <= 1e4 * torch.finfo(d.torch.dtype).eps / min(tiny)).all()) and generic(d)


@documented("The second derivative of `glu` is a difference of products with its first half, of which rounding is left where that is large.")
def _(d):
    if not in_second(d) or "glu" not in d.ops or not generic(d):
        return False
    values, _ = run_torch(d.program)
    largest = max(float(largest_of(x.double())) for x in values.values() if x is not None and x.is_floating_point())
    return bool(((d.reel.data - d.torch).abs().double() <= 8 * torch.finfo(d.torch.dtype).eps * largest).all())


@documented("The second derivatives of an `embedding` with `scale_grad_by_freq` are scaled, too.")
def _(d):
    scaled = any(True in s.args for s in d.program if s.op.base == "embedding" and s.results)
    return in_second(d) and scaled


if __name__ == "__main__":
    for sentence in dict.fromkeys([sentence for sentence, _ in DOCUMENTED] + [sentence for sentence, _ in DEFINITIONS.values()]):
        print(f"- {sentence}")
