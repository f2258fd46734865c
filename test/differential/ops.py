"""The ops of random programs: a row each, with what makes its arguments and, where it is not the plain call, how the call
is written in PyTorch and in reel. The interpreter's ops.cpp is the other half.
"""
import math

import torch

from generator import FLOATS, INTEGERS, Retry, is_leaf
from program import DTYPES, Enum, Op, Ref

OPS = []


def row(names, *make, **more):
    """Rows of the same kind. `make` are functions of (generator, arguments so far), or one function of the generator
    that makes all arguments."""
    for name in names.split():
        OPS.append(Op(name, arguments(make), **more))


def arguments(make):
    if len(make) == 1 and isinstance(make[0], Whole):
        return make[0].make

    def all_of(g):
        args = []
        for one in make:
            args.append(one(g, args))
        return args

    return all_of


class Whole:
    """Decorates a function that makes all arguments."""

    def __init__(self, make):
        self.make = make


# ---- what makes an argument ------------------------------------------------------------------------------------------


def tensor_where(fits, make=None):
    return lambda g, a: g.pick(fits, make and (lambda: make(g)))


def any_(g, a):
    return g.pick()


def floats(g, a):
    return g.pick(lambda x: x.is_floating_point()) if g.chance(0.92) else g.pick()


def integers(g, a):
    return g.pick(lambda x: not x.is_floating_point(), lambda: g.leaf(g.shape(), g.choice(*INTEGERS, torch.bool))) if g.chance(0.95) else g.pick()


def of_rank(low, high=None, dtype=None):
    high = low if high is None else high
    fits = lambda x: low <= x.dim() <= high and x.is_floating_point()
    return lambda g, a: g.pick(fits, lambda: g.leaf(g.shape(low, high), dtype or g.float_dtype()))


def broadcastable(g, shape):
    """A shape that broadcasts with this one."""
    shape = list(shape)
    if g.chance(0.5):
        return shape
    shape = [1 if g.chance(0.35) else size for size in shape][g.rng.choice([0, 0, 0, 1]) :]
    return ([g.int(1, 3)] if g.chance(0.1) and len(shape) < 4 else []) + shape


def fits_with(shape):
    def fits(x):
        return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(shape)))

    return fits


def number(g, a=None):
    return g.choice(2, -1, 3, 0.5, -1.5, 2.0, 0.1, True, 0, 1.0, 7, 255, -3)


def partner(g, a):
    """A tensor that broadcasts with the first argument, or a number."""
    return number(g) if g.chance(0.2) else tensor_partner(g, a)


def tensor_partner(g, a):
    x = g.of(a[0])
    dtype = x.dtype if g.chance(0.6) else g.dtype()
    return g.pick(fits_with(x.shape), lambda: g.leaf(broadcastable(g, x.shape), dtype))


def into_partner(g, a):
    """What an in-place op of the first argument takes: it broadcasts to that shape."""
    if g.chance(0.2):
        return number(g)
    x = g.of(a[0])
    fits = lambda y: y.dim() <= x.dim() and all(b in (1, s) for b, s in zip(reversed(y.shape), reversed(x.shape)))
    return g.pick(fits, lambda: g.leaf([1 if g.chance(0.3) else s for s in x.shape], x.dtype if g.chance(0.7) else g.dtype()))


def same_type_partner(g, a):
    x = g.of(a[0])
    fits = lambda y: y.dtype == x.dtype and fits_with(x.shape)(y)
    return g.pick(fits, lambda: g.leaf(broadcastable(g, x.shape), x.dtype))


def like_first(g, a):
    x = g.of(a[0])
    return g.pick(lambda y: y.shape == x.shape and y.dtype == x.dtype, lambda: g.leaf(list(x.shape), x.dtype))


def mask(g, a):
    x = g.of(a[0])
    fits = lambda y: y.dtype == torch.bool and fits_with(x.shape)(y)
    return g.pick(fits, lambda: g.leaf(broadcastable(g, x.shape), torch.bool))


def writable(kind=any_):
    """A tensor to be changed in place: no leaf that requires grad."""

    def make(g, a):
        ref = kind(g, a)
        x = g.of(ref)
        if is_leaf(x) and x.requires_grad or 0 in x.stride() and x.numel() > 1:
            copied = g.emit(next(op for op in OPS if op.name == "clone"), [ref])
            return copied[0]
        return ref

    return make


def dim(g, a):
    rank = g.of(a[0]).dim()
    if rank == 0:
        return g.choice(0, -1)
    return g.int(-rank, rank - 1) if g.chance(0.98) else rank + 1


def own_dim(g, a):
    """A dim that is there."""
    rank = g.of(a[0]).dim()
    return g.int(-rank, rank - 1)


def maybe(make, p=0.3):
    return lambda g, a: None if g.chance(p) else make(g, a)


def dims(g, a):
    rank = g.of(a[0]).dim()
    if g.chance(0.3) or rank == 0:
        return []
    return [d - rank if g.chance(0.3) else d for d in g.rng.sample(range(rank), g.int(1, rank))]


def flag(g, a):
    return g.chance(0.4)


def of(*values):
    return lambda g, a: g.rng.choice(values)


def between(low, high):
    return lambda g, a: g.int(low, high)


def none(g, a):
    return None


def size_at(g, a, d):
    shape = g.of(a[0]).shape
    return shape[d] if shape else 1


def tensors(g, a, low=1, high=3, fits=None, shape=None):
    """A list of tensors of one shape, or of `shape()`."""
    first = g.pick()
    same = list(g.of(first).shape)
    more = [g.pick(lambda x: list(x.shape) == same, lambda: g.leaf(same)) for _ in range(g.int(low, high) - 1)]
    return [first, *more]


def ids(count_or_shape, limit, distinct=False, grad=False):
    """int64 (at times int32) ids in [0, limit)."""

    def make(g):
        shape = count_or_shape if isinstance(count_or_shape, list) else [count_or_shape]
        count = math.prod(shape)
        if limit <= 0 and count > 0 or distinct and count > limit:
            raise Retry
        values = g.rng.sample(range(limit), count) if distinct else [g.rng.randrange(limit) for _ in range(count)]
        if values and g.chance(0.02):
            values[0] = limit
        flat = g.leaf([count], torch.int64 if g.chance(0.9) else torch.int32, values=values)
        return flat if len(shape) == 1 else g.emit(by_name("reshape"), [flat, shape])[0]

    return make


def by_name(name):
    return next(op for op in OPS if op.name == name)


MEAN, SUM, EACH = Enum("kMean", "mean"), Enum("kSum", "sum"), Enum("kNoReduction", "none")
reduction = of(MEAN, SUM, EACH)
NEWAXIS, ELLIPSIS = Enum("kNone", None, "_"), Enum("kEllipsis", Ellipsis, "...")
REDUCES = [Enum("Reduce::kSum", "sum"), Enum("Reduce::kProd", "prod"), Enum("Reduce::kMean", "mean"),
           Enum("Reduce::kMax", "amax"), Enum("Reduce::kMin", "amin")]  # fmt: skip
TYPES = [Enum(name, dtype) for dtype, name in DTYPES.items()]

# ---- pointwise -------------------------------------------------------------------------------------------------------

row("neg abs sign square floor ceil round trunc", any_, weight=0.6, exact=True)
row("exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp2 log2 log10"
    " sigmoid erf erfc frac", any_, weight=0.5, local=True)  # fmt: skip
row("lgamma digamma", any_, weight=0.5)
row("logit", floats, maybe(of(0.1, 1e-3)))
row("polygamma", between(0, 3), lambda g, a: g.pick(lambda x: x.is_floating_point()), weight=0.5)
row("add sub mul div maximum minimum", any_, partner, weight=1.3, local=True)
row("fmod remainder floor_divide", any_, partner, weight=1.3)
row("pow float_power", any_, partner, local=True)
row("hypot atan2", floats, same_type_partner, weight=0.7, local=True)
row("logaddexp", floats, same_type_partner, weight=0.7)
row("xlogy", any_, partner, weight=0.7, local=True)
row("add(alpha) sub(alpha)", any_, tensor_partner, of(2, -1, 0.5, 3), torch="torch.{op}({0}, {1}, alpha={2})")
row("lerp", floats, same_type_partner, lambda g, a: g.choice(0.25, 0.1, 2) if g.chance(0.5) else same_type_partner(g, a))
row("addcmul addcdiv", any_, tensor_partner, tensor_partner, of(1, 2, -0.5), torch="torch.{op}({0}, {1}, {2}, value={3})")
row("clamp", any_, of(-1, 0, 0.5, -1.5, None), of(1, 2, 0.5, 300, None), exact=True)
row("clamp", any_, maybe(tensor_partner), maybe(tensor_partner), exact=True)
row("nan_to_num", any_, of(0.0, 1.5), of(None, 7.0), of(None, -7.0), exact=True)
row("where", tensor_where(lambda x: x.dtype == torch.bool, lambda g: g.leaf(g.shape(), torch.bool)), partner, partner, exact=True)
row("eq ne lt le gt ge logical_and logical_or logical_xor", any_, partner, weight=0.5, exact=True)
row("logical_not isnan isinf isfinite", any_, weight=0.4, exact=True)
row("isclose allclose", any_, like_first, of(1e-5, 0.1), of(1e-8, 0.5), flag, weight=0.5)
row("equal", any_, like_first, weight=0.3)
row("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", integers,
    lambda g, a: g.choice(1, 3, True, 0) if g.chance(0.2) else g.pick(lambda x: not x.is_floating_point() and fits_with(g.of(a[0]).shape)(x),
    lambda: g.leaf(broadcastable(g, g.of(a[0]).shape), g.choice(*INTEGERS))), weight=0.6, exact=True)  # fmt: skip
row("bitwise_not", integers, weight=0.4, exact=True)

for name, *make in [("relu",), ("relu6",), ("hardtanh", of(-1, -0.5, 0), of(1, 2.5)), ("leaky_relu", of(0.01, 0.5, -0.5)),
                    ("elu", of(1, 0.5)), ("selu",), ("celu", of(1, 0.5)), ("silu",), ("mish",), ("hardswish",),
                    ("hardsigmoid",), ("logsigmoid",), ("softplus", of(1, 2), of(20, 1)), ("softsign",), ("tanhshrink",),
                    ("hardshrink", of(0.5, 1, 0)), ("softshrink", of(0.5, 1, 0)), ("threshold", of(0.5, -1), of(2, 0.5, 20)),
                    ("glu", dim), ("softmax", dim), ("log_softmax", dim), ("softmin", dim), ("gelu",)]:  # fmt: skip
    local = name not in ("tanhshrink", "glu", "softmax", "log_softmax", "softmin", "gelu")
    row(name, floats, *make, torch=f"F.{name}({', '.join(f'{{{i}}}' for i in range(len(make) + 1))})", weight=0.6, local=local)
row("gelu_tanh", floats, torch="F.gelu({0}, approximate='tanh')", weight=0.6)
row("rrelu", floats, of(0.1), of(0.3), of(False), torch="F.rrelu({0}, {1}, {2}, {3})", weight=0.6)


@Whole
def prelu(g):
    x = floats(g, [])
    shape = g.of(x).shape
    channels = shape[1] if len(shape) > 1 else 1
    return [x, g.leaf([channels if g.chance(0.6) else 1], g.of(x).dtype)]


row("prelu", prelu, torch="F.prelu({0}, {1})", weight=0.6)

# ---- reductions ------------------------------------------------------------------------------------------------------

row("sum mean nansum nanmean", any_, dims, flag, torch="torch.{op}({0}, {1} or None, keepdim={2})")
row("any all", any_, dims, flag, torch="torch.{op}({0}, {1} or None, keepdim={2})", exact=True)
row("amax amin", any_, dims, flag, torch="torch.{op}({0}, {1}, keepdim={2})", exact=True)
row("count_nonzero", any_, dims, torch="torch.count_nonzero({0}, {1} or None)", exact=True)
row("prod max min", any_)
row("prod(dim) max(dim) min(dim)", any_, dim, flag)
row("aminmax", any_, lambda g, a: dims(g, a)[:1], flag, torch="torch.aminmax({0}, dim=({1} or [None])[0], keepdim={2})", exact=True, weight=0.6)
row("argmax argmin", any_, maybe(dim), flag, exact=True)
row("var std var_mean std_mean", floats, dims, of(1, 0), flag, torch="torch.{op}({0}, {1} or None, correction={2}, keepdim={3})")
row("cov", of_rank(1, 2), of(1, 0), torch="torch.cov({0}, correction={1})", weight=0.5)
row("corrcoef", of_rank(1, 2), weight=0.5)
row("norm", floats, of(2, 1, 0, 3, 0.5, math.inf), dims, flag, torch="torch.linalg.vector_norm({0}, {1}, {2} or None, {3})")
row("linalg.vector_norm", floats, of(2, 1, 0, 3, -1, math.inf, -math.inf), dims, flag,
    torch="torch.linalg.vector_norm({0}, {1}, {2} or None, {3})", weight=0.5)  # fmt: skip
row("renorm", of_rank(2, 4), of(2, 1, 3), own_dim, of(1.0, 0.5), weight=0.6)
row("logsumexp", floats, dims, flag, torch="torch.logsumexp({0}, {1} or list(range({0}.dim())), {2})")
row("trace", of_rank(2), weight=0.5)


@Whole
def cross(g):
    a = g.leaf(g.choice([3], [2, 3], [3, 2]), g.float_dtype())
    return [a, same_type_partner(g, [a]), g.choice(-1, 0)]


row("cross", cross, torch="torch.linalg.cross({0}, {1}, dim={2})", weight=0.5)
row("cumsum cumprod logcumsumexp", lambda g, a: floats(g, a) if g.chance(0.7) else any_(g, a), dim)
row("cummax cummin", any_, dim, exact=True)
row("diff", any_, between(0, 2), dim, maybe(like_first, 0.8), maybe(like_first, 0.8), torch="torch.diff({0}, {1}, {2}, prepend={3}, append={4})")

# ---- joining, splitting, rearranging ---------------------------------------------------------------------------------

row("cat stack", tensors, lambda g, a: own_dim(g, a[0]) if g.of(a[0][0]).dim() else 0, exact=True)
row("hstack vstack dstack column_stack", tensors, weight=0.4, exact=True)
row("block_diag broadcast_tensors", tensors, torch="torch.{op}(*{0})", weight=0.4, exact=True)
row("split", any_, between(0, 3), dim, exact=True)
row("chunk tensor_split", any_, between(1, 4), dim, exact=True)
row("tensor_split(starts)", any_, lambda g, a: sorted(g.int(-1, 4) for _ in range(g.int(0, 2))), dim, exact=True)


@Whole
def split_sizes(g):
    x, d = g.pick(lambda x: x.dim() > 0), 0
    size = g.of(x).shape[0]
    first = g.int(0, size)
    return [x, [first, size - first] if g.chance(0.95) else [first, size], d]


row("split(sizes)", split_sizes, exact=True)
row("unbind", any_, dim, exact=True)


@Whole
def reshape(g):
    x = g.pick()
    sizes = list(g.of(x).shape)
    how = g.int(0, 4)
    if how == 0:
        sizes = [-1]
    elif how == 1:
        g.rng.shuffle(sizes)
    elif how == 2:
        sizes.insert(g.int(0, len(sizes)), 1)
    elif how == 3 and len(sizes) > 1:
        d = g.int(0, len(sizes) - 2)
        sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
    elif sizes:
        sizes[g.int(0, len(sizes) - 1)] = -1
    return [x, sizes]


row("reshape", reshape, torch="torch.reshape({0}, {1})", exact=True)
row("view", reshape, torch="{0}.view({1})", exact=True)
row("flatten", any_, of(0, 0, 1), of(-1, -1, 1), exact=True)
row("squeeze ravel atleast_1d atleast_2d atleast_3d contiguous clone detach", any_, weight=0.5, exact=True)
row("t", tensor_where(lambda x: x.dim() <= 2), exact=True)
row("squeeze(dim)", any_, dim, exact=True)
row("unsqueeze", any_, lambda g, a: g.int(-g.of(a[0]).dim() - 1, g.of(a[0]).dim()), exact=True)
row("transpose", any_, dim, dim, exact=True)


@Whole
def permute(g):
    x = g.pick()
    order = list(range(g.of(x).dim()))
    g.rng.shuffle(order)
    return [x, [d - len(order) if g.chance(0.3) else d for d in order]]


row("permute", permute, exact=True)


@Whole
def movedim(g):
    x = g.pick(lambda x: x.dim() > 0)
    rank = g.of(x).dim()
    count = g.int(1, rank)
    return [x, g.rng.sample(range(rank), count), g.rng.sample(range(rank), count)]


row("movedim", movedim, exact=True)


@Whole
def narrow(g):
    x = g.pick(lambda x: x.dim() > 0)
    d = g.int(0, g.of(x).dim() - 1)
    size = g.of(x).shape[d]
    start = g.int(0, size)
    return [x, d, start, g.int(0, size - start + (1 if g.chance(0.03) else 0))]


row("narrow", narrow, exact=True)
edge = maybe(between(-3, 4))
row("slice", tensor_where(lambda x: x.dim() > 0), own_dim, edge, edge, between(1, 3),
    torch="torch.ops.aten.slice({0}, {1}, {2}, {3}, {4})", exact=True)  # fmt: skip
row("select", tensor_where(lambda x: x.dim() > 0), own_dim, lambda g, a: g.int(-1, g.of(a[0]).shape[a[1]] - 1), exact=True)


@Whole
def expand(g):
    x = g.pick()
    sizes = [g.int(1, 3) if size == 1 and g.chance(0.6) else g.choice(size, -1) for size in g.of(x).shape]
    return [x, ([g.int(1, 2)] if g.chance(0.3) and len(sizes) < 4 else []) + sizes]


row("expand", expand, exact=True)
row("to", any_, of(*TYPES), exact=False)
row("unflatten", tensor_where(lambda x: x.dim() > 0), own_dim, lambda g, a: g.choice([-1, 1], [2, -1], [1, -1]), exact=True)
row("diagonal", tensor_where(lambda x: x.dim() >= 2), between(-1, 1), of(0, 1, -1), of(1, 0, -2), exact=True)
row("flip", any_, dims, exact=True)
row("fliplr", tensor_where(lambda x: x.dim() >= 2), weight=0.3, exact=True)
row("flipud", tensor_where(lambda x: x.dim() >= 1), weight=0.3, exact=True)
row("rot90", tensor_where(lambda x: x.dim() >= 2), between(-1, 4), of([0, 1], [1, 0]), weight=0.5, exact=True)
row("roll", tensor_where(lambda x: x.dim() > 0), between(-5, 5), own_dim, exact=True)
row("repeat", any_, lambda g, a: [g.int(0 if g.chance(0.1) else 1, 2) for _ in range(g.of(a[0]).dim() + g.int(0, 1))], exact=True)
row("tile", any_, lambda g, a: [g.int(0 if g.chance(0.1) else 1, 2) for _ in range(g.int(0, 3))], exact=True)
row("repeat_interleave", any_, between(0, 3), maybe(dim), torch="torch.repeat_interleave({0}, {1}, dim={2})", exact=True)


@Whole
def repeat_each(g):
    x = g.pick(lambda x: x.dim() > 0)
    d = g.int(0, g.of(x).dim() - 1)
    return [x, g.leaf([g.of(x).shape[d]], torch.int64, 0, 3), d]


row("repeat_interleave(each)", repeat_each, torch="torch.repeat_interleave({0}, {1}, dim={2})", exact=True)
row("tril triu", tensor_where(lambda x: x.dim() >= 2), between(-2, 2), exact=True)
row("diag", tensor_where(lambda x: 1 <= x.dim() <= 2), between(-1, 1), exact=True)


def vectors(g, a):
    dtype = g.dtype()
    return [g.pick(lambda x: x.dim() == 1 and x.dtype == dtype, lambda: g.leaf([g.int(0, 3)], dtype)) for _ in range(g.int(1, 3))]


row("meshgrid", vectors, of(Enum("kIJ", "ij"), Enum("kXY", "xy")), torch="torch.meshgrid({0}, indexing={1})", weight=0.5, exact=True)
row("cartesian_prod", vectors, torch="torch.cartesian_prod(*{0})", weight=0.4, exact=True)
row("combinations", tensor_where(lambda x: x.dim() == 1), between(0, 3), flag, weight=0.4, exact=True)
row("zeros_like ones_like", any_, torch="torch.{op}({0})", cpp="{op}({0})", weight=0.2, exact=True)
row("tril_indices triu_indices", between(0, 4), between(0, 4), between(-2, 2), weight=0.2, exact=True)
row("arange", of(0, 1, 5, -2.5), of(5, 0, 3.5, -4), of(1, -1, 2, 0.5), weight=0.3)
row("linspace", of(0.0, -1.0), of(1.0, 5.0), between(0, 5), weight=0.3)
row("eye", between(0, 4), maybe(between(0, 4)), torch="torch.eye({0}, {0} if {1} is None else {1})", weight=0.3)
row("full", of([], [2], [2, 0]), of(2, 1.5, True), weight=0.3)

# ---- indexing --------------------------------------------------------------------------------------------------------


def index_list(g, x, distinct=False):
    shape, entries, used, advanced = list(g.of(x).shape), [], 0, None
    ellipsis = False
    while used < len(shape) and (g.chance(0.75) or not entries):
        size, what = shape[used], g.int(0, 6)
        if what == 0:
            entries.append(NEWAXIS)
            continue
        if what == 1 and not ellipsis:
            ellipsis, rest = True, g.int(0, len(shape) - used)
            entries.append(ELLIPSIS)
            used += rest
            shape_left = len(shape) - used
            entries += [slice(None, None, 1)] * shape_left
            break
        if what in (2, 3):
            entries.append(slice(edge(g, []), edge(g, []), g.int(1, 2)))
        elif what == 4 and size:
            entries.append(g.int(-size, size - 1))
        elif what == 5 and size and (advanced is None or not distinct):
            advanced = g.int(1, min(3, size)) if advanced is None else advanced
            if distinct and advanced > size:
                raise Retry
            entries.append(ids(advanced, size, distinct)(g))
        elif what == 6 and not any(isinstance(entry, Ref) for entry in entries):
            entries.append(g.leaf([size], torch.bool, layout=False))
            advanced = -1
        else:
            entries.append(slice(None, None, 1))
        used += 1
    if advanced == -1 and sum(isinstance(entry, Ref) for entry in entries) > 1:
        raise Retry
    return entries


row("index", any_, lambda g, a: index_list(g, a[0]), torch="{0}[tuple({1})]", weight=2, exact=True)


@Whole
def index_put(g):
    x = g.pick(lambda x: x.dim() > 0)
    accumulate = g.chance(0.4)
    entries = index_list(g, x, not accumulate)
    probe = g.of(x).detach()[tuple(g.of(e) if isinstance(e, Ref) else e.torch if isinstance(e, Enum) else e for e in entries)]
    return [x, entries, g.leaf(broadcastable(g, probe.shape) if g.chance(0.7) else [], g.of(x).dtype if g.chance(0.9) else None), accumulate]


@Whole
def index_put_in(g):
    args = index_put.make(g)
    return [writable(lambda g, a: args[0])(g, []), *args[1:]]


row("index_put", index_put, torch="put_in({0}.clone(), {1}, {2}, {3})")
row("index_put_", index_put_in, torch="put_in({0}, {1}, {2}, {3})")


def slices_of(g, a, distinct):
    """dim, ids and a source for index_add and its kin."""
    x = g.of(a[0])
    d = g.int(0, max(x.dim() - 1, 0))
    size = x.shape[d] if x.dim() else 1
    count = g.int(0, min(3, size))
    ref = ids(count, size, distinct)(g)
    shape = list(x.shape)
    if x.dim():
        shape[d] = count
    return d, ref, shape


def index_op(distinct, source, extra=lambda g: [], first=any_):
    @Whole
    def make(g):
        x = first(g, [])
        d, where, shape = slices_of(g, [x], distinct)
        return [x, d, where, *source(g, x, shape), *extra(g)]

    return make


take_source = lambda g, x, shape: [g.leaf(shape, g.of(x).dtype if g.chance(0.97) else None)]
fill_value = lambda g, x, shape: [number(g) if g.chance(0.5) else g.leaf([], g.of(x).dtype if g.chance(0.8) else None)]
row("index_select", index_op(False, lambda g, x, shape: []), exact=True)
ALPHA = dict(torch="torch.{op}({0}, {1}, {2}, {3}, alpha={4})")
row("index_add", index_op(False, take_source, lambda g: [g.choice(1, 2, -0.5)]), **ALPHA)
row("index_copy", index_op(True, take_source), exact=True)
row("index_fill", index_op(False, fill_value), exact=True)
row("index_add_", index_op(False, take_source, lambda g: [g.choice(1, 2)], writable()), torch="{0}.index_add_({1}, {2}, {3}, alpha={4})")
row("index_copy_", index_op(True, take_source, first=writable()), exact=True)
row("index_fill_", index_op(False, fill_value, first=writable()), exact=True)


def element_op(distinct, source, extra=lambda g: [], first=any_):
    """gather, scatter and their kin: an index of x's rank."""

    @Whole
    def make(g):
        x = first(g, [])
        shape = list(g.of(x).shape)
        d = g.int(0, max(len(shape) - 1, 0))
        size = shape[d] if shape else 1
        index_shape = [g.int(0 if g.chance(0.1) else min(1, s), s) for s in shape]
        if shape and not distinct:
            index_shape[d] = g.int(0 if g.chance(0.1) else 1, 3)
        if math.prod(index_shape) and not size:
            raise Retry
        if distinct and shape:
            # along dim no two are equal
            moved = index_shape[:d] + index_shape[d + 1 :]
            lines = [g.rng.sample(range(size), index_shape[d]) for _ in range(math.prod(moved))]
            flat = torch.tensor(lines, dtype=torch.int64).reshape(*moved, index_shape[d]).movedim(-1, d).flatten().tolist()
        else:
            flat = [g.rng.randrange(size) for _ in range(math.prod(index_shape))]
        index = g.leaf([len(flat)], torch.int64, values=flat)
        index = g.emit(by_name("reshape"), [index, index_shape])[0]
        return [x, d, index, *source(g, x, index_shape), *extra(g)]

    return make


reduces = lambda g: [g.choice(*REDUCES), g.chance(0.6)]
REDUCE = dict(torch="torch.scatter_reduce({0}, {1}, {2}, {3}, {4}, include_self={5})")
row("gather", element_op(False, lambda g, x, shape: []), exact=True)
scatter_source = lambda g, x, shape: [number(g)] if g.chance(0.2) else take_source(g, x, [s + (g.chance(0.2)) for s in shape])
row("scatter", element_op(True, scatter_source), exact=True)
row("scatter_", element_op(True, scatter_source, first=writable()), exact=True)
row("scatter_add", element_op(False, take_source))
row("scatter_add_", element_op(False, take_source, first=writable()))
row("scatter_reduce", element_op(False, take_source, reduces), **REDUCE)
row("scatter_reduce_", element_op(False, take_source, reduces, writable()),
    torch="{0}.scatter_reduce_({1}, {2}, {3}, {4}, include_self={5})")  # fmt: skip
row("take_along_dim", Whole(lambda g: (lambda a: [a[0], a[2], a[1]])(element_op(False, lambda g, x, s: []).make(g))), exact=True, weight=0.6)


@Whole
def take(g):
    x = g.pick(lambda x: x.numel() > 0)
    return [x, ids(g.choice([], [3], [2, 2]), g.of(x).numel())(g)]


row("take", take, exact=True, weight=0.6)
row("masked_select", any_, mask, exact=True)


def mask_into(g, a):
    shape = list(g.of(a[0]).shape)
    return g.leaf([1 if g.chance(0.2) else s for s in shape][g.choice(0, 0, 1) :], torch.bool)


fill = lambda g, a: fill_value(g, a[0], None)[0]
row("masked_fill", any_, mask, fill, exact=True)
row("masked_fill_", writable(), mask_into, fill, exact=True)
enough = lambda g, a: g.leaf([g.of(a[0]).numel()], g.of(a[0]).dtype if g.chance(0.95) else None)
row("masked_scatter", any_, mask_into, enough, exact=True)
row("masked_scatter_", writable(), mask_into, enough, exact=True)
row("nonzero argwhere", any_, exact=True, weight=0.5)


@Whole
def one_hot(g):
    return [ids(g.choice([], [3], [2, 2], [0]), 4)(g), g.choice(-1, 4, 5)]


row("one_hot", one_hot, torch="F.one_hot({0}, {1})", exact=True, weight=0.4)


@Whole
def select_scatter(g):
    x = g.pick(lambda x: x.dim() > 0 and x.numel() > 0)
    shape = list(g.of(x).shape)
    d = g.int(0, len(shape) - 1)
    at = g.int(-shape[d], shape[d] - 1)
    del shape[d]
    return [x, g.leaf(shape, g.of(x).dtype), d, at]


row("select_scatter", select_scatter, exact=True)


@Whole
def slice_scatter(g):
    x = g.pick(lambda x: x.dim() > 0)
    d = own_dim(g, [x])
    start, stop, step = edge(g, []), edge(g, []), g.int(1, 2)
    part = torch.ops.aten.slice(g.of(x).detach(), d, start, stop, step)
    return [x, g.leaf(list(part.shape), g.of(x).dtype), d, start, stop, step]


row("slice_scatter", slice_scatter, exact=True)


@Whole
def diagonal_scatter(g):
    x = g.pick(lambda x: x.dim() >= 2)
    offset, a, b = g.int(-1, 1), *g.choice((0, 1), (1, 0), (-1, -2))
    return [x, g.leaf(list(torch.diagonal(g.of(x).detach(), offset, a, b).shape), g.of(x).dtype), offset, a, b]


row("diagonal_scatter", diagonal_scatter, exact=True)

# ---- order -----------------------------------------------------------------------------------------------------------

row("sort", any_, dim, flag, torch="torch.sort({0}, dim={1}, descending={2}, stable=True)", exact=True)
row("argsort", any_, dim, flag, torch="torch.argsort({0}, dim={1}, descending={2}, stable=True)", exact=True)


@Whole
def topk(g):
    x = g.pick()
    d = dim(g, [x])
    return [x, g.int(0, g.of(x).shape[d] if g.of(x).dim() else 1), d, g.chance(0.6)]


row("topk", topk, torch="torch.topk({0}, {1}, {2}, {3}).values", cpp="topk({0}, {1}, {2}, {3}).values", exact=True)


@Whole
def kthvalue(g):
    x = g.pick()
    d = dim(g, [x])
    return [x, g.int(1, g.of(x).shape[d] if g.of(x).dim() else 1), d, g.chance(0.4)]


row("kthvalue", kthvalue, torch="torch.kthvalue({0}, {1}, {2}, {3}).values", cpp="kthvalue({0}, {1}, {2}, {3}).values", exact=True)
row("median", any_, exact=True)
row("median(dim) mode", any_, dim, flag, torch="torch.{op}({0}, {1}, {2}).values", cpp="{op}({0}, {1}, {2}).values", exact=True)
QUANTILE = dict(torch="torch.quantile({0}, {1}, dim={2}, keepdim={3})")
row("quantile", floats, of(0.0, 0.25, 0.5, 1.0), maybe(dim), flag, **QUANTILE)
row("quantile(many)", floats, lambda g, a: g.leaf([g.int(0, 3)], g.of(a[0]).dtype, 0, 1, grad=False), maybe(dim), flag, **QUANTILE)
UNIQUE = ", return_inverse=True, return_counts=True"
row("unique", any_, torch="torch.unique({0}%s)" % UNIQUE, cpp="unique({0}, {{.inverse = true, .counts = true}})", exact=True)
row("unique(dim)", tensor_where(lambda x: x.dim() > 0), own_dim, torch="torch.unique({0}%s, dim={1})" % UNIQUE,
    cpp="unique({0}, {{.dim = {1}, .inverse = true, .counts = true}})", exact=True, weight=0.6)  # fmt: skip
row("unique_consecutive", any_, maybe(own_dim), torch="torch.unique_consecutive({0}%s, dim={1})" % UNIQUE,
    cpp="unique_consecutive({0}, {{.dim = {1}, .inverse = true, .counts = true}})", exact=True, weight=0.6)  # fmt: skip


@Whole
def bincount(g):
    count = g.int(0, 5)
    return [g.leaf([count], torch.int64, 0, 4), g.leaf([count]) if g.chance(0.5) else None, g.choice(0, 6)]


row("bincount", bincount, weight=0.5)
row("histc", floats, between(1, 5), of(0.0, -1.0), of(0.0, 1.0), exact=True, weight=0.6)


@Whole
def searchsorted(g):
    count, dtype = g.int(0, 5), g.choice(torch.float32, torch.float64, torch.int64)
    edges = g.leaf([count], dtype, values=sorted(g.numbers(count, dtype, -3, 3)), grad=False)
    return [edges, g.pick(lambda x: x.dtype == dtype, lambda: g.leaf(g.shape(), dtype)), g.chance(0.5)]


row("searchsorted", searchsorted, torch="torch.searchsorted({0}, {1}, right={2})", exact=True, weight=0.5)
row("bucketize", Whole(lambda g: (lambda a: [a[1], a[0], a[2]])(searchsorted.make(g))), torch="torch.bucketize({0}, {1}, right={2})",
    exact=True, weight=0.5)  # fmt: skip

# ---- products --------------------------------------------------------------------------------------------------------


def shaped(*shapes, integers=0.1):
    """Tensors of one dtype whose shapes are functions of letters: "mk kn" draws m, k and n."""

    def make(g):
        sizes, dtype = {}, g.float_dtype() if not g.chance(integers) else g.choice(torch.int64, torch.int32)
        size = lambda letter: sizes.setdefault(letter, g.rng.choices(range(5), [0.4, 3, 5, 4, 2])[0])
        return [operand(g, [size(letter) for letter in shape], dtype) for shape in shapes]

    return make


def operand(g, shape, dtype):
    return g.pick(lambda x: list(x.shape) == shape and x.dtype == dtype, lambda: g.leaf(shape, dtype))


def product(*shapes, extra=lambda g: [], integers=0.1):
    return Whole(lambda g: [*shaped(*g.choice(*shapes).split(","), integers=integers)(g), *extra(g)])


row("matmul", product("mk,kn", "bmk,bkn", "k,kn", "mk,k", "bmk,kn", "bmk,k", "k,k", "abmk,bkn"), weight=1.5)
row("mm", product("mk,kn"))
row("bmm", product("bmk,bkn"))
row("dot", product("k,k"), weight=0.6)
row("outer", product("m,n"), weight=0.6)
row("inner", product("mk,nk", "k,k", "abk,nk"), weight=0.5)
row("mv", product("mk,k"), weight=0.6)
row("kron", product("mk,ab", "k,m", "mk,a"), weight=0.4)
scaled = lambda g: [g.choice(1, 0, 0.5), g.choice(1, 0, 2.0)]
row("addmm", product("mn,mk,kn", "n,mk,kn", extra=scaled, integers=0.03), torch="torch.addmm({0}, {1}, {2}, beta={3}, alpha={4})")
row("baddbmm", product("bmn,bmk,bkn", extra=scaled, integers=0.03), torch="torch.baddbmm({0}, {1}, {2}, beta={3}, alpha={4})", weight=0.6)
row("linear", Whole(lambda g: (lambda a: a if g.chance(0.6) else [*a[:2], None])(product("mk,nk,n", "abk,nk,n", "k,nk,n").make(g))),
    torch="F.linear({0}, {1}, {2})", weight=1.2)  # fmt: skip
row("bilinear", product("ma,mb,nab,n", "a,b,nab,n"), torch="F.bilinear({0}, {1}, {2}, {3})", weight=0.4)
row("tensordot", product("abk,kc", extra=lambda g: [[-1], [0]]), torch="torch.tensordot({0}, {1}, ({2}, {3}))", weight=0.3)
row("tensordot", product("kab,akc", extra=lambda g: [[0, 1], [1, 0]]), torch="torch.tensordot({0}, {1}, ({2}, {3}))", weight=0.3)


@Whole
def einsum(g):
    equation = g.choice("ij,jk->ik", "ij,jk", "ij->ji", "ij->", "ij->i", "ii->i", "ii", "i,j->ij", "bij,bjk->bik", "ij,ij->ij", "ij,ij", "...i,ij->...j", "i,i,i->i")
    shapes = [part.replace("...", "ab") for part in equation.split("->")[0].split(",")]
    return [equation, shaped(*shapes)(g)]


row("einsum", einsum)


def matrix(g, kind="any", batch=True, dtype=None):
    n = g.int(0 if g.chance(0.05) else 1, 4)
    dtype = dtype or g.choice(torch.float32, torch.float64)
    a = g.leaf(([g.int(0 if g.chance(0.1) else 1, 2)] if batch and g.chance(0.3) else []) + [n, n], dtype, -2, 2)
    if kind == "positive":
        square = g.emit(by_name("matmul"), [a, g.emit(by_name("transpose"), [a, -1, -2])[0]])[0]
        return g.emit(by_name("add"), [square, g.emit(by_name("to"), [g.emit(by_name("eye"), [n, None])[0], TYPES[list(DTYPES).index(dtype)]])[0]])[0]
    if kind == "symmetric":
        return g.emit(by_name("add"), [a, g.emit(by_name("transpose"), [a, -1, -2])[0]])[0]
    return a


def of_matrix(name, kind="any", extra=lambda g: [], weight=0.4, **more):
    row(name, Whole(lambda g: [matrix(g, kind), *extra(g)]), weight=weight, **more)


of_matrix("linalg.inv linalg.det linalg.slogdet linalg.svdvals")
of_matrix("linalg.cholesky", "positive", lambda g: [g.chance(0.5)], torch="torch.linalg.cholesky({0}, upper={1})")
of_matrix("linalg.eigvalsh", "symmetric")
of_matrix("linalg.matrix_power", extra=lambda g: [g.int(-1, 3)])
of_matrix("linalg.matrix_norm", extra=lambda g: [g.choice(1, -1, 2, -2, math.inf, -math.inf), g.chance(0.4)],
          torch="torch.linalg.matrix_norm({0}, {1}, keepdim={2})")  # fmt: skip
of_matrix("linalg.matrix_norm(name)", extra=lambda g: [g.choice(Enum("linalg::kFrobenius", "fro"), Enum("linalg::kNuclear", "nuc")),
          g.chance(0.4)], torch="torch.linalg.matrix_norm({0}, {1}, keepdim={2})")  # fmt: skip


@Whole
def tall(g):
    m, n = g.int(1, 4), g.int(1, 4)
    return [g.leaf(([2] if g.chance(0.2) else []) + [m, n], g.choice(torch.float32, torch.float64), -2, 2)]


row("linalg.pinv linalg.matrix_rank", tall, weight=0.3)
row("linalg.qr", Whole(lambda g: [*tall.make(g), g.choice(Enum("linalg::kReduced", "reduced"), Enum("linalg::kComplete", "complete"))]),
    weight=0.3)  # fmt: skip


def with_right_side(g, a):
    x = g.of(a)
    return g.leaf([*x.shape[:-1], g.int(0 if g.chance(0.1) else 1, 3)], x.dtype, -2, 2)


row("linalg.solve", Whole(lambda g: (lambda a: [a, with_right_side(g, a)])(matrix(g))), weight=0.4)
row("linalg.lstsq", Whole(lambda g: (lambda a: [a, with_right_side(g, a)])(tall.make(g)[0])),
    torch="torch.linalg.lstsq({0}, {1}, driver='gelsd').solution", weight=0.3)  # fmt: skip
row("linalg.solve_triangular", Whole(lambda g: (lambda a: [a, with_right_side(g, a), g.chance(0.5), True, g.chance(0.3)])(matrix(g))),
    torch="torch.linalg.solve_triangular({0}, {1}, upper={2}, left={3}, unitriangular={4})",
    cpp="linalg::solve_triangular({0}, {1}, {{{2}, {3}, {4}}})", weight=0.4)  # fmt: skip

row("cosine_similarity", of_rank(1, 3), same_type_partner, own_dim, of(1e-8), torch="F.cosine_similarity({0}, {1}, dim={2}, eps={3})",
    weight=0.5)  # fmt: skip
row("pairwise_distance", of_rank(1, 2), like_first, of(2.0, 1.0), of(1e-6), flag, torch="F.pairwise_distance({0}, {1}, {2}, {3}, {4})",
    cpp="pairwise_distance({0}, {1}, {{{2}, {3}, {4}}})", weight=0.5)  # fmt: skip
row("cdist", product("mk,nk", "bmk,bnk", extra=lambda g: [g.choice(2.0, 1.0, 0.0, 3.0, math.inf)], integers=0), weight=0.5)
row("pdist", tensor_where(lambda x: x.dim() == 2 and x.is_floating_point() and x.numel()), of(2.0, 1.0, math.inf), torch="F.pdist({0}, {1})", weight=0.4)
row("scaled_dot_product_attention", Whole(lambda g: (lambda a: [*a[:3], a[3] if g.chance(0.4) else None, False] if g.chance(0.7) else
    [*a[:3], None, True])(product("bte,bse,bsv,ts", "te,se,sv,ts", integers=0).make(g))),
    torch="F.scaled_dot_product_attention({0}, {1}, {2}, attn_mask={3}, is_causal={4})",
    cpp="scaled_dot_product_attention({0}, {1}, {2}, {{.mask = {3}, .is_causal = {4}}})", weight=0.7)  # fmt: skip

# ---- losses ----------------------------------------------------------------------------------------------------------


def pair(g, low=None, high=None, same=0.95):
    x = g.pick(lambda x: x.is_floating_point(), lambda: g.leaf(g.shape(), g.float_dtype())) if low is None else g.leaf(g.shape(), g.float_dtype(), low, high)
    return [x, like_first(g, [x]) if g.chance(same) else tensor_partner(g, [x])]


def signs(g, ref):
    return sign_leaf(g, list(g.of(ref).shape), g.of(ref).dtype)


def sign_leaf(g, shape, dtype):
    flat = g.leaf([math.prod(shape)], dtype, values=[g.choice(-1, 1) for _ in range(math.prod(shape))], grad=False)
    return g.emit(by_name("reshape"), [flat, shape])[0]


@Whole
def classes(g):
    shape = g.choice([], [3], [2], [2, 2], [0])
    n = g.int(1, 4)
    x = operand(g, [*shape[:1], n, *shape[1:]], g.float_dtype())
    y = ids(shape, n)(g)
    weight = g.leaf([n], g.of(x).dtype, 0.1, 2, grad=False) if g.chance(0.3) else None
    return [x, y, weight, g.choice(-100, 0), reduction(g, [])]


row("nll_loss", classes, torch="F.nll_loss({0}, {1}, weight={2}, ignore_index={3}, reduction={4})", cpp="nll_loss({0}, {1}, {{{2}, {3}, {4}}})")
row("cross_entropy", Whole(lambda g: [*classes.make(g), g.choice(0.0, 0.0, 0.1)]),
    torch="F.cross_entropy({0}, {1}, weight={2}, ignore_index={3}, reduction={4}, label_smoothing={5})",
    cpp="cross_entropy({0}, {1}, {{{2}, {3}, {4}, {5}}})")  # fmt: skip


@Whole
def multi_margin(g):
    shape, n = g.choice([], [3]), g.int(1, 4)
    x = operand(g, [*shape, n], g.choice(torch.float32, torch.float64))
    return [x, ids(shape, n)(g), g.choice(1, 2), g.choice(1, 0.5), None, reduction(g, [])]


row("multi_margin_loss", multi_margin, torch="F.multi_margin_loss({0}, {1}, {2}, {3}, {4}, reduction={5})",
    cpp="multi_margin_loss({0}, {1}, {{{2}, {3}, {4}, {5}}})", weight=0.5)  # fmt: skip
row("l1_loss mse_loss", Whole(lambda g: [*pair(g), reduction(g, [])]), torch="F.{op}({0}, {1}, reduction={2})")
row("smooth_l1_loss", Whole(lambda g: [*pair(g), g.choice(1.0, 0.5, 0.0), reduction(g, [])]), torch="F.smooth_l1_loss({0}, {1}, beta={2}, reduction={3})",
    cpp="smooth_l1_loss({0}, {1}, {{{2}, {3}}})", weight=0.6)  # fmt: skip
row("huber_loss", Whole(lambda g: [*pair(g), g.choice(1.0, 0.5), reduction(g, [])]), torch="F.huber_loss({0}, {1}, delta={2}, reduction={3})",
    cpp="huber_loss({0}, {1}, {{{2}, {3}}})", weight=0.6)  # fmt: skip
row("binary_cross_entropy", Whole(lambda g: [*pair(g, 0, 1, 1), None, reduction(g, [])]), torch="F.binary_cross_entropy({0}, {1}, {2}, reduction={3})",
    cpp="binary_cross_entropy({0}, {1}, {{{2}, {3}}})", weight=0.6)  # fmt: skip
row("binary_cross_entropy_with_logits", Whole(lambda g: [*pair(g, same=1), None, None, reduction(g, [])]),
    torch="F.binary_cross_entropy_with_logits({0}, {1}, {2}, pos_weight={3}, reduction={4})",
    cpp="binary_cross_entropy_with_logits({0}, {1}, {{{2}, {3}, {4}}})", weight=0.6)  # fmt: skip
row("kl_div", Whole(lambda g: [*pair(g), g.chance(0.5), g.choice(MEAN, SUM, EACH, Enum("kBatchMean", "batchmean"))]),
    torch="F.kl_div({0}, {1}, log_target={2}, reduction={3})", cpp="kl_div({0}, {1}, {{{2}, {3}}})", weight=0.6)  # fmt: skip
row("poisson_nll_loss", Whole(lambda g: [*pair(g), g.chance(0.5), g.chance(0.5), 1e-8, reduction(g, [])]),
    torch="F.poisson_nll_loss({0}, {1}, log_input={2}, full={3}, eps={4}, reduction={5})",
    cpp="poisson_nll_loss({0}, {1}, {{{2}, {3}, {4}, {5}}})", weight=0.6)  # fmt: skip
row("gaussian_nll_loss", Whole(lambda g: (lambda p: [*p, like_first(g, p) if g.chance(0.3) else g.leaf(list(g.of(p[0]).shape), g.of(p[0]).dtype, 0.1, 3),
    g.chance(0.4), 1e-6, reduction(g, [])])(pair(g, same=1))),
    torch="F.gaussian_nll_loss({0}, {1}, {2}, full={3}, eps={4}, reduction={5})",
    cpp="gaussian_nll_loss({0}, {1}, {2}, {{{3}, {4}, {5}}})", weight=0.5)  # fmt: skip
row("soft_margin_loss", Whole(lambda g: (lambda x: [x, signs(g, x), reduction(g, [])])(floats(g, []))),
    torch="F.soft_margin_loss({0}, {1}, reduction={2})", weight=0.5)  # fmt: skip
row("hinge_embedding_loss", Whole(lambda g: (lambda x: [x, signs(g, x), g.choice(1.0, 0.5), reduction(g, [])])(floats(g, []))),
    torch="F.hinge_embedding_loss({0}, {1}, margin={2}, reduction={3})", cpp="hinge_embedding_loss({0}, {1}, {{{2}, {3}}})", weight=0.5)  # fmt: skip
row("margin_ranking_loss", Whole(lambda g: (lambda p: [*p, signs(g, p[0]), g.choice(0.0, 0.5), reduction(g, [])])(pair(g, same=1))),
    torch="F.margin_ranking_loss({0}, {1}, {2}, margin={3}, reduction={4})", cpp="margin_ranking_loss({0}, {1}, {2}, {{{3}, {4}}})", weight=0.5)  # fmt: skip


@Whole
def cosine_embedding(g):
    shape, dtype = g.choice([], [3]), g.float_dtype()
    a, d = None, g.int(1, 4)
    return [operand(g, [*shape, d], dtype), g.leaf([*shape, d], dtype), sign_leaf(g, shape, dtype), g.choice(0.0, 0.3), reduction(g, [])]


row("cosine_embedding_loss", cosine_embedding, torch="F.cosine_embedding_loss({0}, {1}, {2}, margin={3}, reduction={4})",
    cpp="cosine_embedding_loss({0}, {1}, {2}, {{{3}, {4}}})", weight=0.5)  # fmt: skip
row("triplet_margin_loss", Whole(lambda g: [*product("nd,nd,nd", "d,d,d", integers=0).make(g), g.choice(1.0, 0.3), g.choice(2.0, 1.0), g.chance(0.5), reduction(g, [])]),
    torch="F.triplet_margin_loss({0}, {1}, {2}, margin={3}, p={4}, swap={5}, reduction={6})",
    cpp="triplet_margin_loss({0}, {1}, {2}, {{.margin = {3}, .p = {4}, .swap = {5}, .reduction = {6}}})", weight=0.5)  # fmt: skip

# ---- layers ----------------------------------------------------------------------------------------------------------


def images(g, n, channels=None, low=1, high=6, batch=None):
    """x of n spatial dimensions, with or without a batch."""
    sizes = [g.int(low, high if n < 3 else min(high, 4)) for _ in range(n)]
    batch = g.chance(0.85) if batch is None else batch
    return operand(g, ([g.int(0 if g.chance(0.05) else 1, 2)] if batch else []) + [channels or g.int(1, 3), *sizes], g.float_dtype())


def per_dim(g, n, low, high):
    return g.int(low, high) if g.chance(0.5) else [g.int(low, high) for _ in range(n)]


def lp_size(g, n):
    return g.int(1, 2) if n == 1 else per_dim(g, n, 1, 2)


def conv(n, transposed=False):
    @Whole
    def make(g):
        groups = g.choice(1, 1, 1, 2)
        into, out = groups * g.int(1, 2), groups * g.int(1, 2)
        x = images(g, n, into, low=1, high=5)
        dtype = g.of(x).dtype
        kernel = [g.int(1, 3 if n < 3 else 2) for _ in range(n)]
        w = g.leaf([into, out // groups, *kernel] if transposed else [out, into // groups, *kernel], dtype)
        b = g.leaf([out], dtype) if g.chance(0.5) else None
        stride, padding, dilation = per_dim(g, n, 1, 2), per_dim(g, n, 0, 1), per_dim(g, n, 1, 2)
        if transposed:
            return [x, w, b, stride, padding, g.choice(0, 0, 1), groups, dilation]
        return [x, w, b, stride, padding, dilation, groups]

    return make


for n in (1, 2, 3):
    weight = (0.7, 1, 0.3)[n - 1]
    row(f"conv{n}d", conv(n), torch=f"F.conv{n}d({{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}}, {{6}})",
        cpp=f"conv{n}d({{0}}, {{1}}, {{2}}, {{{{.stride = {{3}}, .padding = PerDim<{n}>({{4}}), .dilation = {{5}}, .groups = {{6}}}}}})", weight=weight)  # fmt: skip
    row(f"conv_transpose{n}d", conv(n, True), torch=f"F.conv_transpose{n}d({{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}}, {{6}}, {{7}})",
        cpp=f"conv_transpose{n}d({{0}}, {{1}}, {{2}}, {{{{{{3}}, {{4}}, {{5}}, {{6}}, {{7}}}}}})", weight=weight)  # fmt: skip
    pooled = lambda extra, n=n: Whole(lambda g: [images(g, n, low=2), per_dim(g, n, 1, 3), per_dim(g, n, 1, 3), per_dim(g, n, 0, 1), *extra(g)])
    row(f"max_pool{n}d", pooled(lambda g, n=n: [per_dim(g, n, 1, 2), g.chance(0.3)]),
        torch=f"F.max_pool{n}d({{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}}, return_indices=True)",
        cpp=f"max_pool{n}d_with_indices({{0}}, {{1}}, {{{{{{2}}, {{3}}, {{4}}, {{5}}}}}})", exact=True, weight=weight)  # fmt: skip
    row(f"avg_pool{n}d", pooled(lambda g: [g.chance(0.3), g.chance(0.6)]),
        torch=f"F.avg_pool{n}d({{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}})",
        cpp=f"avg_pool{n}d({{0}}, {{1}}, {{{{{{2}}, {{3}}, {{4}}, {{5}}}}}})", weight=weight)  # fmt: skip
    row(f"lp_pool{n}d", Whole(lambda g, n=n: [images(g, n, low=2, batch=True), g.choice(2.0, 1.0, 3.0), lp_size(g, n), lp_size(g, n), g.chance(0.3)]),
        torch=f"F.lp_pool{n}d({{0}}, {{1}}, {{2}}, {{3}}, {{4}})", cpp=f"lp_pool{n}d({{0}}, {{1}}, {{2}}, {{{{{{3}}, {{4}}}}}})", weight=weight / 2)  # fmt: skip
    adaptive = Whole(lambda g, n=n: [images(g, n), per_dim(g, n, 1, 3)])
    row(f"adaptive_avg_pool{n}d", adaptive, torch=f"F.adaptive_avg_pool{n}d({{0}}, {{1}})", weight=weight / 2)
    row(f"adaptive_max_pool{n}d", adaptive, torch=f"F.adaptive_max_pool{n}d({{0}}, {{1}}, return_indices=True)",
        cpp=f"adaptive_max_pool{n}d_with_indices({{0}}, {{1}})", exact=True, weight=weight / 2)  # fmt: skip


def channels(g, x):
    shape = g.of(x).shape
    return shape[1] if len(shape) > 1 else shape[0]


def affine(g, count, dtype, running=False):
    weight = g.leaf([count], dtype) if g.chance(0.5) else None
    return [weight, g.leaf([count], dtype) if weight is not None or g.chance(0.1) else None]


@Whole
def batch_norm(g):
    x = of_rank(2, 4)(g, [])
    count, dtype = channels(g, x), g.of(x).dtype
    training = g.chance(0.6)
    running = [g.leaf([count], dtype, grad=False, layout=False), g.leaf([count], dtype, 0.1, 2, grad=False, layout=False)] if not training or g.chance(0.5) else [None, None]
    return [x, *running, *affine(g, count, dtype), training, 0.1, g.choice(1e-5, 0.1)]


row("batch_norm", batch_norm, torch="F.batch_norm({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7})")


@Whole
def instance_norm(g):
    x = images(g, g.int(1, 2), low=1, batch=True)
    count, dtype = channels(g, x), g.of(x).dtype
    return [x, None, None, *affine(g, count, dtype), True, 0.1, 1e-5]


row("instance_norm", instance_norm, torch="F.instance_norm({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7})", weight=0.6)


@Whole
def group_norm(g):
    x = g.leaf([g.int(1, 2), 4, *[g.int(1, 3) for _ in range(g.int(0, 2))]], g.float_dtype())
    return [x, g.choice(1, 2, 4), *affine(g, 4, g.of(x).dtype), 1e-5]


row("group_norm", group_norm, torch="F.group_norm({0}, {1}, {2}, {3}, {4})", weight=0.6)


@Whole
def layer_norm(g):
    x = of_rank(1, 4)(g, [])
    shape = list(g.of(x).shape)[-g.int(1, 2) :]
    weight = g.leaf(shape, g.of(x).dtype) if g.chance(0.6) else None
    return [x, shape, weight, g.leaf(shape, g.of(x).dtype) if weight is not None and g.chance(0.7) else None, 1e-5]


row("layer_norm", layer_norm, torch="F.layer_norm({0}, {1}, {2}, {3}, {4})")
row("rms_norm", Whole(lambda g: (lambda a: [*a[:3], g.choice(None, 1e-5)])(layer_norm.make(g))), torch="F.rms_norm({0}, {1}, {2}, {3})", weight=0.7)
row("local_response_norm", Whole(lambda g: [images(g, g.int(1, 2), batch=True), g.int(1, 3), g.choice(1e-4, 0.5), 0.75, g.choice(1.0, 2.0)]),
    torch="F.local_response_norm({0}, {1}, {2}, {3}, {4})", weight=0.4)  # fmt: skip
row("normalize", of_rank(1, 3), of(2.0, 1.0, 3.0, math.inf), lambda g, a: [own_dim(g, a)], of(1e-12),
    torch="F.normalize({0}, {1}, {2}[0], {3})")  # fmt: skip


@Whole
def pad(g):
    mode = g.choice(*[Enum("kConstant", "constant")] * 3, Enum("kReflect", "reflect"), Enum("kReplicate", "replicate"), Enum("kCircular", "circular"))
    if mode.torch == "constant":
        x = g.pick()
        return [x, [g.int(-1, 2) for _ in range(2 * g.int(0, g.of(x).dim()))], mode, g.choice(0, 1.5, -1)]
    n = g.int(1, 2)
    x = images(g, n, low=2)
    return [x, [g.int(-1 if g.chance(0.2) else 0, 2) for _ in range(2 * n)], mode, 0]


row("pad", pad, torch="F.pad({0}, {1}, {2}, value={3} or None)", exact=True)


@Whole
def unfold(g):
    return [images(g, 2, low=2), per_dim(g, 2, 1, 2), per_dim(g, 2, 1, 2), per_dim(g, 2, 0, 1), per_dim(g, 2, 1, 2)]


row("unfold", unfold, torch="F.unfold({0}, {1}, {2}, {3}, {4})", cpp="unfold({0}, {1}, {{{2}, {3}, {4}}})", exact=True, weight=0.5)


@Whole
def fold(g):
    height, width = g.int(2, 4), g.int(2, 4)
    k, d, p, s = g.int(1, 2), g.int(1, 2), g.int(0, 1), g.int(1, 2)
    blocks = math.prod((size + 2 * p - d * (k - 1) - 1) // s + 1 for size in (height, width))
    if blocks <= 0:
        raise Retry
    return [g.leaf([g.int(1, 2), g.int(1, 2) * k * k, blocks], g.float_dtype()), [height, width], k, d, p, s]


row("fold", fold, torch="F.fold({0}, {1}, {2}, {3}, {4}, {5})", cpp="fold({0}, {1}, {2}, {{{3}, {4}, {5}}})", weight=0.5)
MODES = {1: [Enum("kNearest", "nearest"), Enum("kNearestExact", "nearest-exact"), Enum("Interpolation::kLinear", "linear"), Enum("kArea", "area")],
         2: [Enum("kNearest", "nearest"), Enum("kNearestExact", "nearest-exact"), Enum("kBilinear", "bilinear"), Enum("kBicubic", "bicubic"), Enum("kArea", "area")],
         3: [Enum("kNearest", "nearest"), Enum("kTrilinear", "trilinear")]}  # fmt: skip


def interpolate(scaled):
    @Whole
    def make(g):
        n = g.choice(1, 2, 2, 3)
        mode = g.choice(*MODES[n])
        x = images(g, n, batch=True)
        linear = "linear" in mode.torch or "cubic" in mode.torch
        align = linear and g.chance(0.4)
        if scaled:
            return [x, [g.choice(0.5, 1.5, 2.0, 1.0) if size > 1 else 2.0 for size in g.of(x).shape[2:]], mode, align]
        # Not to size 1: PyTorch's antialiased column is wrong there.
        smooth = mode.torch in ("bilinear", "bicubic") and g.chance(0.3)
        return [x, [g.int(2 if smooth else 1, 6) for _ in range(n)], mode, align, smooth]

    return make


row("interpolate", interpolate(False), torch="F.interpolate({0}, size={1}, mode={2}, align_corners={3} or None, antialias={4})",
    cpp="interpolate({0}, {{.size = {1}, .mode = {2}, .align_corners = {3}, .antialias = {4}}})", weight=0.7)  # fmt: skip
row("interpolate(scale)", interpolate(True), torch="F.interpolate({0}, scale_factor={1}, mode={2}, align_corners={3} or None)",
    cpp="interpolate({0}, {{.scale_factor = {1}, .mode = {2}, .align_corners = {3}}})", weight=0.5)  # fmt: skip
row("pixel_shuffle", Whole(lambda g: [images(g, 2, 4 * g.int(1, 2)), 2]), exact=True, weight=0.4)
row("pixel_unshuffle", Whole(lambda g: [operand(g, [g.int(1, 2), g.int(1, 2), 2 * g.int(1, 2), 2 * g.int(1, 2)], g.float_dtype()), 2]), exact=True, weight=0.4)
row("channel_shuffle", Whole(lambda g: [images(g, g.int(1, 2), 4, batch=True), g.choice(1, 2, 4)]), exact=True, weight=0.4)


@Whole
def grid_sample(g):
    n, dtype = g.int(1, 2), g.choice(torch.float32, torch.float64)
    mode = g.choice(Enum("kBilinear", "bilinear"), Enum("kNearest", "nearest"), Enum("kBicubic", "bicubic"))
    padding = g.choice(Enum("GridPadding::kZeros", "zeros"), Enum("GridPadding::kBorder", "border"), Enum("GridPadding::kReflection", "reflection"))
    return [g.leaf([n, g.int(1, 2), g.int(1, 4), g.int(1, 4)], dtype), g.leaf([n, g.int(1, 3), g.int(1, 3), 2], dtype, -1.3, 1.3), mode, padding, g.chance(0.5)]


row("grid_sample", grid_sample, torch="F.grid_sample({0}, {1}, mode={2}, padding_mode={3}, align_corners={4})",
    cpp="grid_sample({0}, {1}, {{{2}, {3}, {4}}})", weight=0.6)  # fmt: skip


@Whole
def affine_grid(g):
    n = g.int(1, 2)
    return [g.leaf([n, 2, 3], g.choice(torch.float32, torch.float64)), [n, 1, g.int(1, 3), g.int(1, 3)], g.chance(0.5)]


row("affine_grid", affine_grid, torch="F.affine_grid({0}, {1}, align_corners={2})", weight=0.3)


@Whole
def segments(g):
    lengths = [g.int(0, 3) for _ in range(g.int(0, 3))]
    offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    x = g.leaf([sum(lengths), *g.choice([], [2])], g.choice(torch.float32, torch.float64))
    offsets = g.leaf([len(offsets)], torch.int64, values=offsets)
    return [x, offsets, g.choice(Enum("Reduce::kSum", "sum"), Enum("Reduce::kMean", "mean"), Enum("Reduce::kMax", "max"), Enum("Reduce::kMin", "min"))]


row("segment_reduce", segments, torch="torch.segment_reduce({0}, {2}, offsets={1}, axis=0)", weight=0.4)


@Whole
def embedding(g):
    n, dtype = g.int(1, 5), g.float_dtype()
    return [operand(g, [n, g.int(1, 3)], dtype), ids(g.choice([], [3], [2, 2], [0]), n)(g), g.choice(None, None, 0, -1), g.chance(0.3)]


row("embedding", embedding, torch="F.embedding({1}, {0}, padding_idx={2}, scale_grad_by_freq={3})",
    cpp="embedding({0}, {1}, {{.padding_idx = {2}, .scale_grad_by_freq = {3}}})", exact=True, weight=0.7)  # fmt: skip


@Whole
def embedding_bag(g):
    n, dtype = g.int(1, 5), g.choice(torch.float32, torch.float64)
    mode = g.choice(Enum("Reduce::kSum", "sum"), Enum("Reduce::kMean", "mean"), Enum("Reduce::kMax", "max"))
    weight = operand(g, [n, g.int(1, 3)], dtype)
    flat = g.chance(0.6)
    count = g.int(1, 4)
    where = ids(count if flat else [2, count], n)(g)
    offsets = g.leaf([2], torch.int64, values=[0, g.int(0, count)]) if flat else None
    factors = g.leaf([count] if flat else [2, count], dtype, layout=False) if mode.torch == "sum" and g.chance(0.4) else None
    return [weight, where, offsets, mode, factors, False, g.choice(None, None, 0)]


row("embedding_bag", embedding_bag,
    torch="F.embedding_bag({1}, {0}, offsets={2}, mode={3}, per_sample_weights={4}, include_last_offset={5}, padding_idx={6})",
    cpp="embedding_bag({0}, {1}, {{.offsets = {2}, .mode = {3}, .per_sample_weights = {4}, .include_last_offset = {5}, .padding_idx = {6}}})", weight=0.5)  # fmt: skip

# ---- in place --------------------------------------------------------------------------------------------------------

FLOAT_INTO = writable(floats)
row("add_ sub_ mul_ div_ pow_ fmod_ remainder_ floor_divide_", writable(), into_partner, weight=1)
row("add_(alpha) sub_(alpha)", writable(), lambda g, a: tensor_partner(g, a) if g.chance(0.05) else into_tensor(g, a), of(2, -1, 0.5, -2),
    torch="{0}.{op}({1}, alpha={2})")  # fmt: skip
into_tensor = lambda g, a: (lambda p: p if isinstance(p, Ref) else g.leaf([], g.of(a[0]).dtype))(into_partner(g, a))
row("lerp_", FLOAT_INTO, lambda g, a: g.leaf([1 if g.chance(0.3) else s for s in g.of(a[0]).shape], g.of(a[0]).dtype), of(0.25, 2.0))
row("addcmul_ addcdiv_", writable(), lambda g, a: into_tensor(g, a), lambda g, a: into_tensor(g, a), of(1, 2, -0.5),
    torch="{0}.{op}({1}, {2}, value={3})")  # fmt: skip
row("neg_ abs_ sign_ square_ floor_ ceil_ round_ trunc_ zero_", writable(), weight=0.35, exact=True)
row("exp_ expm1_ log_ log1p_ sqrt_ rsqrt_ reciprocal_ sin_ cos_ tan_ asin_ acos_ atan_ exp2_ log2_ log10_ tanh_ sigmoid_ erf_ frac_",
    FLOAT_INTO, weight=0.25)  # fmt: skip
row("relu_", writable(), weight=0.35, exact=True)
row("leaky_relu_", FLOAT_INTO, of(0.01, 0.5), torch="F.leaky_relu_({0}, {1})", weight=0.35)
row("elu_", FLOAT_INTO, of(1, 0.5), torch="F.elu_({0}, {1})", weight=0.35)
row("silu_", FLOAT_INTO, torch="F.silu({0}, inplace=True)", weight=0.35)
row("clamp_", writable(), of(-1, 0, 0.5, None), of(1, 0.5, None, 300), exact=True)
row("nan_to_num_", writable(), of(0.0, 1.5), of(None, 7.0), of(None, -7.0), weight=0.35, exact=True)
row("copy_", writable(), lambda g, a: into_tensor(g, a), exact=True, weight=1.5)
row("fill_", writable(), number, exact=True, weight=0.7)

# ---- what programs end with; not drawn -------------------------------------------------------------------------------

OPS.append(Op("requires_grad_", None, exact=True))
OPS.append(Op("grad", None, torch="torch.autograd.grad({0}, {1}, {2}, retain_graph=True, create_graph={3}, allow_unused=True)",
              cpp="grad(Tensors{0}, Tensors{1}, Tensors{2}, {{.retain_graph = true, .create_graph = {3}, .allow_unused = true}})"))  # fmt: skip
OPS.append(Op("backward", None, torch="backward({0}, {1}, {2})", cpp="backward({0}, {1}, {2})"))

for op in OPS:  # rows of several ops share a template
    for language in ("torch", "cpp"):
        if getattr(op, language):
            setattr(op, language, getattr(op, language).replace("{op}", op.base))
