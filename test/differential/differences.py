"""Where reel differs from PyTorch on purpose: a sentence each, of which the README's "Coming from PyTorch" is made, and what
tells such a difference, a Difference of differential.py, from others.

python3 differences.py prints the sentences as Markdown.
"""

import torch

from program import Ref, run_torch

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


def extreme_leaves(d):
    """Whether the program has infinite, NaN or huge numbers."""
    given = [statement.args[0] for statement in d.program if statement.op.name == "tensor"]
    return any(x.is_floating_point() and not (x.abs() < 1e15).all() for x in given)


# ---- autograd --------------------------------------------------------------------------------------------------------


@documented("A gradient that `create_graph` has made has a history only where it depends on something that requires grad; "
            "PyTorch's may have one that gives zeros.")  # fmt: skip
def _(d):
    return d.kind == "requires_grad" and d.op == "grad"


@documented("`unique`, `slogdet(x).sign`, `norm(x, 0)`, `cdist(a, b, 0)` and `matrix_power(a, 0)` have no gradient, not one of zeros.")
def _(d):
    return d.kind == "requires_grad" and (d.op in ("unique", "unique_consecutive", "linalg.slogdet") or d.op in (
        "norm", "linalg.vector_norm", "cdist", "linalg.matrix_power") and any(type(arg) in (int, float) and arg == 0 for arg in d.args))  # fmt: skip


@documented("A view that is made under `NoGrad` does not require grad; PyTorch's says what its base says.")
def _(d):
    made = next((statement for statement in d.program if d.number in statement.results), None)
    return d.kind == "requires_grad" and made is not None and not made.record


@documented("The gradient by what an output does not depend on, or no longer does, is undefined or zeros, not always as in PyTorch.")
def _(d):
    return d.kind == "undefined" and d.op in ("grad", "backward") and not (d.torch if d.reel is None else d.reel.data).any()


@documented("Where `amin` or `amax` is NaN no element gets a gradient; in PyTorch all get NaN.")
def _(d):
    return d.kind == "value" and d.op in ("grad", "backward") and d.ops & {"amin", "amax", "aminmax"} and (
        d.torch.isnan() & (d.reel.data == 0)).any()  # fmt: skip


@documented("At NaN the slope of `clamp` and `softshrink` is 1, that of `elu_` and `hardswish` NaN and that of `maximum` and `minimum` 0; "
            "PyTorch's differ.")  # fmt: skip
def _(d):
    if d.kind != "value" or d.op not in ("grad", "backward"):
        return False
    values, _ = run_torch(d.program)
    return bool(d.ops & {"clamp", "clamp_", "softshrink", "elu_", "hardswish", "maximum", "minimum"}) and any(
        x is not None and x.isnan().any() for x in values.values())  # fmt: skip


@documented("The second derivatives of `elu`, `selu` and `celu` at 0 are those from the left; PyTorch's are 0.")
def _(d):
    return d.kind == "value" and d.op == "grad" and bool(d.ops & {"elu", "selu", "celu"}) and [
        statement.op.base for statement in d.program].count("grad") > 1  # fmt: skip


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
    return d.kind == "value" and d.op in ("grad", "backward") and any(
        statement.op.base in ("clamp", "clamp_") and any(isinstance(arg, Ref) for arg in statement.args[1:])
        for statement in d.program)  # fmt: skip


@documented("Of elements that tie, `median`, `quantile`, `kthvalue`, `mode` and `topk` may choose others, which get the gradient.")
def _(d):
    return d.kind == "value" and d.op in ("grad", "backward") and bool(d.ops & {"median", "quantile", "kthvalue", "mode", "topk"})


@documented("`poisson_nll_loss` with `full` and `kl_div` have a gradient by targets that are 0, too, not NaN.")
def _(d):
    return d.kind == "value" and d.op in ("grad", "backward") and bool(d.ops & {"poisson_nll_loss", "kl_div"}) and bool(d.torch.isnan().any())


@documented("Only floating-point tensors ever require grad.")
def _(d):
    return d.kind == "requires_grad" and not d.torch.is_floating_point() or d.kind == "accepted" and in_message(
        "Autograd not support dtype")(d)  # fmt: skip


@documented("Slopes are exact where PyTorch's are not: `hardsigmoid` in float64, `gelu_tanh` of infinities, the second of `logit` with eps.")
def _(d):
    return d.kind == "value" and d.op in ("grad", "backward") and (
        "hardsigmoid" in d.ops and torch.allclose(d.reel.data, d.torch, rtol=1e-7)
        or d.ops & {"gelu_tanh", "logit"} and bool((d.torch.isnan() & d.reel.data.isfinite()).any()))  # fmt: skip


@documented("The views of `split`, `chunk`, `tensor_split` and `unbind` may be changed in place while gradients are recorded.")
def _(d):
    return d.kind == "accepted" and in_message("This view is the output of a function that returns multiple views")(d)


# ---- calls that PyTorch refuses --------------------------------------------------------------------------------------


@documented("A number may stand for any operand: `maximum(x, 0.5)`.")
def _(d):
    return d.kind == "accepted" and "must be Tensor, not" in d.message


@documented("Ops take dtypes that PyTorch's lack on a CPU: float16 in `quantile`, bools in `topk`.")
def _(d):
    return d.kind == "accepted" and in_message("not implemented for", "must be either float or double", "does not support bool")(d)


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
    return d.kind == "accepted" and in_message("Expected dtype int64 for index", "Expected a long tensor for index")(d)


@documented("Gradients of any order, also where PyTorch has none: `floor_divide` (0), the weights of `bincount`, `hardsigmoid` twice.")
def _(d):
    return d.kind == "accepted" and "derivative for aten::" in d.message and "is not implemented" in d.message


@documented("Classes may be int32, too, in `nll_loss`, `cross_entropy` and `multi_margin_loss`.")
def _(d):
    return d.kind == "accepted" and in_message("expected target dtype to be Long or Byte", "expected scalar type Long but found Int")(d)


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


@documented("`instance_norm` takes a batch of no examples.")
def _(d):
    return d.kind == "accepted" and d.op == "instance_norm" and d.args[0].numel() == 0


# ---- calls that reel refuses -----------------------------------------------------------------------------------------


@documented("An index out of range is an Error also where nothing is read.")
def _(d):
    return d.kind == "refused" and d.op == "index" and "out of range" in d.message


@documented("In `x.index_put_` the value must broadcast to the elements that are indexed, without leading dimensions of size 1.")
def _(d):
    return d.kind == "refused" and d.op in ("index_put", "index_put_") and "index_put_: a value of shape" in d.message


@documented("The shapes of a loss's input and target must be equal, or the target a number; PyTorch warns and broadcasts.")
def _(d):
    return d.kind == "refused" and d.op.endswith("_loss") and "and target of shape" in d.message


@documented("Floating-point tensors are not written into integer ones by `index_put_`: `to(kInt64)` first.")
def _(d):
    return d.kind == "refused" and d.op in ("index_put", "index_put_") and "converts it" in d.message


@documented("The `median` of no elements is an Error, not NaN.")
def _(d):
    return d.kind == "refused" and d.op == "median" and d.args[0].numel() == 0


@documented("A float factor of integers is not cut off to an integer: `addcmul(x, a, b, 0.5)` of int64 gives float32, and in place "
            "it is an Error; so in `addmm` and `baddbmm`.")  # fmt: skip
def _(d):
    return d.op in ("addcmul", "addcmul_", "addmm", "baddbmm") and (d.kind == "refused" and "does not fit into" in d.message or d.kind == "dtype")


@documented("Losses take at least one floating-point tensor, and give the common dtype.")
def _(d):
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
        return bool(d.ops & {"digamma", "polygamma", "lgamma"}) and bool((~d.reel.data.isfinite() & (d.torch.abs() > 1e12)).any())
    return d.kind == "value" and d.op in ("polygamma", "digamma") and (
        (d.args[-1] <= 0).any() or torch.allclose(d.reel.data, d.torch, rtol=1e-6, equal_nan=True))  # fmt: skip


@documented("Numbers beside float16 and bfloat16 tensors are not rounded to 16 bits first: `fmod(x, 0.1)`.")
def _(d):
    half = any(isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16) for x in d.args)
    return d.kind == "value" and d.op.rstrip("_") in ("fmod", "remainder", "floor_divide") and half and any(
        type(x) is float for x in d.args)  # fmt: skip


@documented("The mean of an empty segment is 0 in `segment_reduce`, not NaN.")
def _(d):
    return d.kind == "value" and d.op == "segment_reduce" and bool(d.torch.isnan().any())


@documented("`unique` leaves the order of NaNs among each other open, which its `inverse` shows.")
def _(d):
    return d.kind == "value" and d.op == "unique" and d.args[0].isnan().any()


@documented("Infinite and NaN elements of weight 0 count in `interpolate`, `grid_sample`, attention and the padding of convolutions where "
            "they do not in PyTorch, and the other way round.")  # fmt: skip
def _(d):
    if d.op in ("grad", "backward"):
        return d.kind == "value" and extreme_leaves(d) and any(op.startswith("conv") or op in ("interpolate", "grid_sample") for op in d.ops)
    given = [x for x in d.args[:4] if isinstance(x, torch.Tensor)]
    return d.kind == "value" and (d.op in ("interpolate", "grid_sample", "scaled_dot_product_attention") or d.op.startswith("conv")) and not all(x.isfinite().all() for x in given)


@documented("A float alpha of `index_add` for integers is multiplied as it is, and the product cut off; PyTorch cuts off alpha.")
def _(d):
    return d.kind == "value" and d.op in ("index_add", "index_add_") and not d.args[0].is_floating_point() and type(d.args[-1]) is float


@documented("In `baddbmm`, too, what counts for nothing (alpha = 0, beta = 0) may hold NaN.")
def _(d):
    return d.kind == "value" and d.op == "baddbmm" and 0 in d.args[3:] and bool(d.torch.isnan().any())


@documented("`cross` broadcasts the dimension of size 3, too.")
def _(d):
    return d.kind == "accepted" and d.op == "cross" and "must have length 3" in d.message


@documented("`any` and `all` of uint8 give bools.")
def _(d):
    return d.kind == "dtype" and d.op in ("any", "all")


@documented("`quantile` of no elements along a dimension that has some is empty.")
def _(d):
    return d.kind == "accepted" and d.op == "quantile" and d.args[0].numel() == 0


@documented("`repeat_interleave(x, n, 0)` and `flatten(x, 0, 1)` take a 0-d x.")
def _(d):
    return d.kind == "accepted" and d.op in ("repeat_interleave", "flatten") and d.args[0].dim() == 0


@documented("`bincount` has the dtype of floating-point weights, also if they are float16 or none.")
def _(d):
    return d.kind == "dtype" and d.op == "bincount"


@documented("Normalisation of infinite or huge numbers (from 1e15 on) may give NaN where PyTorch gives infinity, or numbers where "
            "it gives NaN.")  # fmt: skip
def _(d):
    norms = ("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "local_response_norm", "var", "std", "var_mean", "std_mean")
    if d.op in ("grad", "backward"):
        return d.kind == "value" and extreme_leaves(d) and bool(d.ops & set(norms))
    return d.kind == "value" and d.op in norms and any(
        isinstance(x, torch.Tensor) and not (x.abs() < 1e15).all() for x in d.args)  # fmt: skip


if __name__ == "__main__":
    for sentence, _ in DOCUMENTED:
        print(f"- {sentence}")
