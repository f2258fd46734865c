"""Where reel differs from PyTorch on purpose: a sentence each, of which the README's "Coming from PyTorch" is made, and what
tells such a difference, a Difference of differential.py, from others.

python3 differences.py prints the sentences as Markdown.
"""

import math

import torch

from program import run_torch

DOCUMENTED = []


def documented(sentence):
    """Decorates the function that tells whether a difference is of this kind."""

    def keep(applies):
        DOCUMENTED.append((sentence, applies))
        return applies

    return keep


def explanation(difference):
    """The sentence that documents this difference, or None."""
    return next((sentence for sentence, applies in DOCUMENTED if applies(difference)), None)


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


def some_operand(d, ops, has):
    """Whether has(x) is true of some tensor x that one of these ops got."""
    return any(x.numel() > 0 and bool(has(x.detach())) for given in operands(d, ops) for x in given)


def extreme(x):
    """Whether x has infinite, NaN or huge numbers."""
    return x.is_floating_point() and not (x.abs() < 1e15).all()


def in_gradient(d):
    return d.kind == "value" and d.op in ("grad", "backward")


def in_second(d):
    """Whether a gradient of a gradient differs."""
    return in_gradient(d) and any(statement.op.base == "grad" for statement in d.program[: d.at])


def only_where(d, mask):
    """Whether values differ, by more than rounding, only where the mask is true."""
    ours, theirs = d.reel.data.double(), d.torch.detach().double()
    eps = 1e3 * (torch.finfo(d.torch.dtype).eps if d.torch.is_floating_point() else 0)
    differ = ~torch.isclose(ours, theirs, rtol=eps, atol=eps, equal_nan=True)
    return bool((differ & mask).any() and not (differ & ~mask).any())


def undetermined(d):
    """Where reel or PyTorch has infinity or NaN."""
    return ~(d.reel.data.isfinite() & d.torch.isfinite())


def torch_nan(d):
    """Where PyTorch alone has NaN."""
    return d.torch.isnan() & ~d.reel.data.isnan()


# ---- autograd --------------------------------------------------------------------------------------------------------


@documented("A gradient that `create_graph` has made has a history only where it depends on something that requires grad; "
            "PyTorch's may have one that gives zeros; so has that of `cumprod` of one element.")  # fmt: skip
def _(d):
    return d.kind == "requires_grad" and d.op == "grad"


@documented("`unique` has no gradient; PyTorch's fails in the backward pass.")
def _(d):
    return d.kind == "requires_grad" and d.op in ("unique", "unique_consecutive")


@documented("A view that is made under `NoGrad` does not require grad; PyTorch's says what its base says.")
def _(d):
    made = next((statement for statement in d.program if d.number in statement.results), None)
    return d.kind == "requires_grad" and made is not None and not made.record


@documented("The gradient by what an output does not depend on, or no longer does, is undefined or zeros, not always as in PyTorch.")
def _(d):
    return d.kind == "undefined" and d.op in ("grad", "backward") and not (d.torch if d.reel is None else d.reel.data).any()


@documented("Where `amin` or `amax` is NaN the elements that are NaN share the gradient, as in `max`, and where their gradient "
            "is NaN the others get 0; in PyTorch all get NaN.")  # fmt: skip
def _(d):
    return in_gradient(d) and some_operand(d, {"amin", "amax", "aminmax", "norm", "linalg.vector_norm", "normalize"}, lambda x: True) and only_where(d, torch_nan(d))


@documented("At NaN the slope of `softshrink` and `hardshrink` is 1, that of `hardtanh` and `relu6` 0; PyTorch's is 0 or, of single elements, 1.")
def _(d):
    return in_gradient(d) and some_operand(d, {"softshrink", "hardshrink", "hardtanh", "relu6"}, lambda x: x.isnan().any())


@documented("At NaN the slope of `elu`, `selu` and `celu` is that right of 0; PyTorch's is NaN or that, by where the element lies.")
def _(d):
    return in_gradient(d) and some_operand(d, {"elu", "elu_", "selu", "celu"}, lambda x: x.isnan().any()) and only_where(d, torch_nan(d))


@documented("The second derivatives of `elu`, `selu` and `celu` at 0 are those from the left; PyTorch's are 0.")
def _(d):
    return in_second(d) and some_operand(d, {"elu", "elu_", "selu", "celu"}, lambda x: (x == 0).any())


@documented("What does not count gets 0 of an infinite slope or gradient, not NaN: elements that are overwritten in place, the second "
            "derivatives of `elu`, `selu` and `celu` right of 0.")  # fmt: skip
def _(d):
    overwritten = d.ops & {"copy_", "fill_", "zero_", "masked_fill_", "masked_scatter_", "index_put_", "index_fill_", "index_copy_", "scatter_"}
    kinks = in_second(d) and d.ops & {"elu", "elu_", "selu", "celu"}
    return in_gradient(d) and bool(overwritten or kinks) and only_where(d, torch_nan(d))


@documented("The slope of `vector_norm` of negative order is NaN where an element is 0.")
def _(d):
    return in_gradient(d) and some_operand(d, {"linalg.vector_norm"}, lambda x: (x == 0).any()) and only_where(d, d.reel.data.isnan())


@documented("Where the extreme of `scatter_reduce` is NaN no element gets a gradient; in PyTorch all get NaN.")
def _(d):
    return in_gradient(d) and some_operand(d, {"scatter_reduce", "scatter_reduce_"}, lambda x: x.isnan().any()) and only_where(d, torch_nan(d))


@documented("`linalg::qr` of a matrix without full rank gives one of many.")
def _(d):
    deficient = lambda x: (torch.linalg.svdvals(x.double())[..., -1] < 1e-6).any()
    return d.kind == "value" and d.op in ("linalg.qr", "grad", "backward") and some_operand(d, {"linalg.qr"}, deficient)


@documented("The slope of a nuclear norm of a singular matrix is one of many.")
def _(d):
    singular = lambda x: x.dim() >= 2 and (torch.linalg.svdvals(x.double())[..., -1] < 1e-6).any()
    return in_gradient(d) and some_operand(d, {"linalg.matrix_norm"}, singular)


@documented("While gradients are recorded a tensor is not changed in place by what requires grad if another view of its memory is a leaf; nor is a view "
            "that was made of a leaf under `NoGrad`.")  # fmt: skip
def _(d):
    return d.kind == "refused" and d.op.endswith("_") and in_message("another view of this memory is a leaf", "the view was made under no_grad or became a leaf")(d)


@documented("Ops save other tensors for the backward pass than PyTorch's, mostly fewer, so that a change in place may be allowed where "
            "PyTorch refuses it, and the other way round.")  # fmt: skip
def _(d):
    if d.kind == "accepted":
        return in_message("modified by an inplace operation", "has been modified inplace")(d)
    # What divides or clamps is often changed in place, and must not need its result.
    common = ("div:", "clamp:", "hardtanh:", "relu6:", "normalize:", "scatter_reduce")
    return d.kind == "refused" and "a tensor that its gradient needs was changed in place" in d.message and not d.message.startswith(common)


@documented("Where x equals a tensor that is a bound of `clamp`, the two share the gradient.")
def _(d):
    return in_gradient(d) and any(((x == bound) | x.isnan() | bound.isnan()).any() for x, *bounds in operands(d, {"clamp", "clamp_"}) for bound in bounds)


@documented("Of a segment's largest elements all share the gradient; in PyTorch each gets all of it.")
def _(d):
    return in_gradient(d) and some_operand(d, {"segment_reduce"}, lambda x: x.is_floating_point() and x.unique().numel() < x.numel())


@documented("`ravel` is a view wherever strides allow it, so that changes in place reach x.")
def _(d):
    views = {ref for s in d.program if s.op.base == "ravel" for ref in (*s.args, *s.results)}
    strided = some_operand(d, {"ravel"}, lambda x: not x.is_contiguous())
    return strided and any(s.op.base.endswith("_") and s.args[0] in views for s in d.program) and (
        d.kind == "value" or d.kind == "refused" and "a leaf that requires grad (through a view of it)" in d.message)  # fmt: skip


@documented("Of elements that tie, `median`, `quantile`, `kthvalue`, `mode` and `topk` may choose others, which get the gradient.")
def _(d):
    ties = lambda x: x.is_floating_point() and (x.unique().numel() < x.numel() or x.isnan().any())
    return in_gradient(d) and some_operand(d, {"median", "quantile", "kthvalue", "mode", "topk"}, ties)


@documented("`poisson_nll_loss` with `full` and `kl_div` have a gradient by targets that are 0 (or less), too, not NaN.")
def _(d):
    return in_gradient(d) and some_operand(d, {"poisson_nll_loss", "kl_div"}, lambda x: (x <= 0).any()) and only_where(d, undetermined(d))


@documented("`squeeze` of a dimension that is not of size 1 is the tensor itself, also under `NoGrad`.")
def _(d):
    if d.kind != "undefined" or d.torch is not None or d.op != "grad":
        return False
    of = d.program[d.at].args[1][d.program[d.at].results.index(d.number)]
    return any(of in s.results and s.op.base == "squeeze" and not s.record for s in d.program)


@documented("Only floating-point tensors ever require grad.")
def _(d):
    return d.kind == "requires_grad" and not d.torch.is_floating_point() or d.kind == "accepted" and in_message(
        "Autograd not support dtype")(d)  # fmt: skip


@documented("Slopes are exact where PyTorch's are not: `hardsigmoid` in float64, `gelu_tanh` and `mish` of infinities, the second of `logit` with eps.")
def _(d):
    return d.kind == "value" and d.op in ("grad", "backward") and (
        "hardsigmoid" in d.ops and torch.allclose(d.reel.data, d.torch, rtol=1e-7)
        or bool(d.ops & {"gelu_tanh", "logit", "mish"}) and only_where(d, torch_nan(d)))  # fmt: skip


@documented("The 1e-12 in the slopes of `binary_cross_entropy` and `cosine_embedding_loss` is not rounded to the dtype of x.")
def _(d):
    if in_gradient(d) and "binary_cross_entropy" in d.ops and only_where(d, d.torch.isinf() | d.torch.isnan()):
        return True  # in half types it is 0
    return in_gradient(d) and bool(d.ops & {"binary_cross_entropy", "cosine_embedding_loss"}) and torch.allclose(d.reel.data, d.torch, rtol=2e-8, atol=0)


@documented("The second derivatives by the exponent of `pow` where the base is 0, and of `renorm` and `cosine_similarity` of zeros, are not NaN, but "
            "by what a slope of `pow` at base 0 depends on they may be.")  # fmt: skip
def _(d):
    if in_second(d) and some_operand(d, {"pow", "float_power"}, lambda x: (x == 0).any()):
        return only_where(d, undetermined(d))
    return in_second(d) and some_operand(d, {"pow", "pow_", "float_power", "renorm", "cosine_similarity"}, lambda x: (x == 0).any()) and only_where(d, torch_nan(d))


@documented("Infinite elements: `logcumsumexp` has slope 0 where it is -inf, `cdist(a, b, inf)` one at the largest difference, where x is not "
            "finite that of `renorm` is NaN, those of `prod` and `cumprod` are exact (0 times infinity is NaN), and "
            "equals share that of `logaddexp`.")  # fmt: skip
def _(d):
    ops = {"logcumsumexp", "cdist", "renorm", "prod", "cumprod", "logaddexp"}
    return in_gradient(d) and some_operand(d, ops, lambda x: not x.isfinite().all()) and only_where(d, undetermined(d))


@documented("The slope of a normalisation of one or two elements is a difference of equals, of which rounding is left.")
def _(d):
    few = any(s.op.base in ("layer_norm", "rms_norm") and math.prod(s.args[1]) <= 2 for s in d.program) or any(
        x.numel() <= 2 * math.prod(x.shape[:2]) for x, *_ in operands(d, {"instance_norm"}))  # fmt: skip
    return in_gradient(d) and few and torch.allclose(d.reel.data, d.torch, rtol=1e-3, atol=1e4 * torch.finfo(d.torch.dtype).eps)


@documented("What is made of a leaf that is a view stays connected to it when the memory that they share is written.")
def _(d):
    views = {result for s in d.program if s.op.name != "tensor" for result in s.results}
    of_views = any(s.op.base == "requires_grad_" and s.args[0] in views for s in d.program)
    lost = d.kind == "undefined" and d.torch is None or in_gradient(d) and d.reel.data.isfinite().all()
    return lost and of_views and any(s.op.base.endswith("_") and s.op.base != "requires_grad_" for s in d.program)


@documented("`median` along a dimension takes expanded tensors, and `batch_norm` an expanded weight; PyTorch's go beyond their memory.")
def _(d):
    expanded = lambda x: 0 in x.stride() and x.numel() > 1
    if in_gradient(d):
        return some_operand(d, {"batch_norm"}, lambda x: x.dim() == 1 and expanded(x))
    if d.kind != "value" or not some_operand(d, {"median", "kthvalue"}, expanded):
        return False
    made = next(s for s in d.program if d.number in s.results)
    in_place = any(op.endswith("_") for op in d.ops - {"requires_grad_"})
    return made.op.base in ("median", "kthvalue") or made.op.name == "tensor" and not in_place and torch.equal(d.reel.data, made.args[0])


@documented("The views of `split`, `chunk`, `tensor_split` and `unbind` may be changed in place while gradients are recorded.")
def _(d):
    return d.kind == "accepted" and in_message("This view is the output of a function that returns multiple views")(d)


# ---- calls that PyTorch refuses --------------------------------------------------------------------------------------


@documented("A number may stand for any operand: `maximum(x, 0.5)`.")
def _(d):
    return d.kind == "accepted" and "must be Tensor, not" in d.message


@documented("Ops take dtypes that PyTorch's lack on a CPU: float16 in `quantile`, bools in `topk`.")
def _(d):
    return d.kind == "accepted" and in_message("not implemented for", "must be either float or double", "does not support bool", "Boolean inputs not supported for relu")(d)


@documented("`addcdiv(x, a, b)` divides integers a and b if x is floating point.")
def _(d):
    return d.kind == "accepted" and d.op in ("addcdiv", "addcdiv_") and "Integer division with addcdiv" in d.message


@documented("`scatter` whose source is larger than the index can be differentiated.")
def _(d):
    return d.kind == "accepted" and in_message("ScatterBackward0 returned an invalid", "CopySlices returned an invalid")(d)


@documented("What has integers among its operands can be differentiated by the others: `addcdiv(x, a, integers)`.")
def _(d):
    return d.kind == "accepted" and d.op in ("grad", "backward") and "can't be cast to the desired output type" in d.message


@documented("Index tensors may be int32 or uint8 everywhere.")
def _(d):
    return d.kind == "accepted" and in_message(
        "Expected dtype int64 for index", "Expected a long tensor for index", "one_hot is only applicable to index tensor")(d)  # fmt: skip


@documented("Gradients of any order, also where PyTorch has none: `floor_divide` (0), the weights of `bincount`, `hardsigmoid` twice.")
def _(d):
    return d.kind == "accepted" and in_message("derivative for aten::", "the derivative for '_embedding_bag_backward'")(d) and "is not implemented" in d.message


@documented("Classes may be int32, too, in `nll_loss`, `cross_entropy` and `multi_margin_loss`.")
def _(d):
    return d.kind == "accepted" and in_message("expected target dtype to be Long or Byte", "expected scalar type Long but found Int")(d)


@documented("An integer division by 0 is an Error that leaves the tensor as it was; PyTorch's leaves it half divided.")
def _(d):
    return d.kind == "value" and d.op in ("floor_divide_", "fmod_", "remainder_") and not d.torch.is_floating_point() and bool(
        (torch.as_tensor(d.args[1]) == 0).any())  # fmt: skip


@documented("Operands of changes in place may overlap the tensor that is changed: they are read first.")
def _(d):
    if d.kind == "value" and d.op.endswith("_"):
        written, *given = [x.untyped_storage().data_ptr() for x in d.args if isinstance(x, torch.Tensor)]
        return written in given
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
        return d.op.startswith("linalg.") and d.args[0].numel() == 0
    if d.kind != "accepted":
        return False
    return d.op == "batch_norm" and "index 0 out of range for tensor of size [0]" in d.message or d.op == "instance_norm" and d.args[0].numel() == 0 or in_message("cannot reshape tensor of 0 elements", "must be >= 1 in every dimension")(d) or (
        d.op in ("unique", "unique_consecutive") and "0 sized dimensions" in d.message) or (
        d.op in ("grad", "backward") and "PixelShuffleBackward0 returned an invalid gradient" in d.message) or (
        d.op in ("grad", "backward") and "Index to scalar can have only 1 value, got 0" in d.message)  # fmt: skip


@documented("`pad` and `masked_fill_` convert their value as `fill_` does, -1 to 255 of uint8.")
def _(d):
    return d.kind == "accepted" and d.op in ("pad", "masked_fill", "masked_fill_") and d.args[0].dtype == torch.uint8 and "cannot be converted to type" in d.message


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


@documented("`index_put_` converts floating-point values to the dtype of a floating-point tensor.")
def _(d):
    return d.kind == "accepted" and d.op in ("index_put", "index_put_") and "source and destination dtypes match" in d.message and all(
        x.is_floating_point() for x in (d.args[0], d.args[2]))  # fmt: skip


# ---- calls that reel refuses -----------------------------------------------------------------------------------------


@documented("An index or dimension out of range, or a wrong dtype, is an Error also where there is nothing to do: empty tensors, `diff` taken 0 times.")
def _(d):
    if d.kind != "refused":
        return False
    if d.op in ("index", "diff"):
        return "out of range" in d.message and (d.op == "index" or d.args[1] == 0)
    return in_message("out of range", "convert it to a floating point type first", "is neither less than stride", "integer division by zero")(d) and isinstance(d.args[0], torch.Tensor) and d.args[0].numel() == 0


@documented("A slice to be padded with `kCircular` is cropped first, and must then be as long as the padding.")
def _(d):
    return d.kind == "refused" and d.op == "pad" and "kCircular pads by at most the size" in d.message and min(d.args[1]) < 0


@documented("A fractional alpha of `index_add` for integers is an Error, as in `add`.")
def _(d):
    return d.kind == "refused" and d.op in ("index_add", "index_add_") and "it must be an integer" in d.message and type(d.args[-1]) is float


@documented("`interpolate` with `kArea` and fractional pooling to size 0 are Errors.")
def _(d):
    return d.kind == "refused" and d.op == "interpolate" and "to size 0" in d.message


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
            "it is an Error; so in `addmm` and `baddbmm`.")  # fmt: skip
def _(d):
    return d.op in ("addcmul", "addcmul_", "addmm", "baddbmm") and (
        d.kind == "refused" and "does not fit into" in d.message or d.kind == "dtype"
        or d.kind == "accepted" and "cannot be converted to type" in d.message)  # fmt: skip


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
    return d.kind in ("shape", "refused", "accepted", "value") and any(isinstance(e, int) for e in entries) and any(
        isinstance(e, torch.Tensor) for e in entries)  # fmt: skip


@documented("`polygamma` and `digamma` are exact to the last digits and infinite at their poles; PyTorch's are not.")
def _(d):
    if d.kind == "value" and d.op in ("grad", "backward"):
        poles = ~d.reel.data.isfinite() & ~(d.torch.abs() <= 1e12)
        return bool(d.ops & {"digamma", "polygamma", "lgamma"}) and only_where(d, poles | torch.isclose(d.reel.data, d.torch, rtol=1e-6, atol=1e-8))
    if d.kind != "value" or not d.ops & {"digamma", "polygamma"} or not d.torch.is_floating_point():
        return False
    return d.op in ("polygamma", "digamma") and bool((d.args[-1] <= 0).any()) or torch.allclose(d.reel.data, d.torch, rtol=1e-6, equal_nan=True)


@documented("Numbers beside float16 and bfloat16 tensors are not rounded to 16 bits first: `fmod(x, 0.1)`.")
def _(d):
    half = any(isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16) for x in d.args)
    return d.kind == "value" and d.op.rstrip("_") in ("fmod", "remainder", "floor_divide") and half and any(
        type(x) is float for x in d.args)  # fmt: skip


@documented("The mean of an empty segment is 0 in `segment_reduce`, not NaN.")
def _(d):
    return d.kind == "value" and d.op == "segment_reduce" and bool(d.torch.isnan().any())


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
    return only_where(d, (~((x >= limits.min) & (x <= limits.max))).expand(d.torch.shape))


@documented("`soft_margin_loss` does not overflow; `hardswish` of -inf is 0.")
def _(d):
    if in_gradient(d):
        return "soft_margin_loss" in d.ops and only_where(d, torch_nan(d))
    return d.kind == "value" and (d.op == "soft_margin_loss" and only_where(d, d.torch.isinf() & d.reel.data.isfinite())
                                  or d.op == "hardswish" and only_where(d, d.args[0] == -torch.inf))  # fmt: skip


@documented("In `binary_cross_entropy_with_logits` infinite logits or targets may give NaN where PyTorch gives infinity, and the other way round.")
def _(d):
    ops = {"binary_cross_entropy_with_logits"}
    return d.kind == "value" and d.op in (*ops, "grad", "backward") and some_operand(d, ops, lambda x: not x.isfinite().all()) and only_where(d, undetermined(d))


@documented("The largest of an `embedding_bag`, the largest distance of `cdist(a, b, inf)` and a `multi_margin_loss` with NaN are NaN; "
            "`cdist(a, b, 0)` counts NaN.")  # fmt: skip
def _(d):
    if d.kind == "value" and d.op == "cdist" and d.args[2] == 0:
        return only_where(d, torch_nan(d))
    return d.kind == "value" and d.op in ("embedding_bag", "cdist", "multi_margin_loss") and any(x.isnan().any() for x in tensors_in(d.args)) and only_where(d, d.reel.data.isnan())


@documented("Of a singular matrix rounding decides whether `slogdet` finds a determinant of 0, which has no gradient.")
def _(d):
    if d.kind == "refused" and d.op in ("grad", "backward"):
        singular = lambda x: (torch.linalg.svdvals(x.double())[..., -1] < 1e-6).any()
        return "is singular" in d.message and some_operand(d, {"linalg.slogdet"}, singular)
    if d.kind != "value" or d.op != "linalg.slogdet":
        return False
    s = torch.linalg.svdvals(d.args[0].double())
    return only_where(d, s[..., -1] <= 100 * torch.finfo(d.torch.dtype).eps * s[..., 0])


@documented("Infinite and NaN elements of weight 0 count in `interpolate`, `grid_sample`, attention and the padding of convolutions where "
            "they do not in PyTorch, and the other way round.")  # fmt: skip
def _(d):
    of = {op for op in d.ops if op.startswith("conv") or op in ("interpolate", "grid_sample", "scaled_dot_product_attention")}
    return d.kind == "value" and d.op in (*of, "grad", "backward") and some_operand(d, of, extreme) and only_where(d, undetermined(d))


@documented("In `baddbmm`, too, what counts for nothing (alpha = 0, beta = 0) may hold NaN, and gets 0 of a gradient that is NaN.")
def _(d):
    if in_gradient(d):
        return any(s.op.base in ("baddbmm", "addmm") and 0 in s.args[3:] for s in d.program) and only_where(d, torch_nan(d))
    return d.kind == "value" and d.op == "baddbmm" and 0 in d.args[3:] and bool(d.torch.isnan().any())


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
            "it gives NaN; float32 numbers from 1e19 on, whose squares overflow, have an infinite variance.")  # fmt: skip
def _(d):
    norms = {"batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "local_response_norm", "normalize", "var", "std", "var_mean", "std_mean"}
    return d.kind == "value" and d.op in (*norms, "grad", "backward") and some_operand(d, norms, extreme) and (
        only_where(d, undetermined(d)) or some_operand(d, norms, lambda x: x.dtype != torch.float64 and ((x.abs() > 1e18) & x.isfinite()).any()))  # fmt: skip


if __name__ == "__main__":
    for sentence, _ in DOCUMENTED:
        print(f"- {sentence}")
