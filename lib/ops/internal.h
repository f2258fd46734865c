#pragma once
#include <initializer_list>

#include "lib/autograd/backward.h"
#include "lib/autograd/gradient_ops.h"
#include "lib/autograd/tape.h"
#include "lib/ops/call.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/ops.h"

// What the op families share.
namespace reel {

// ---- types and devices ----------------------------------------------------------------------------------------------

/// The dtype in which two operands meet, PyTorch's rule: tensors with dimensions outrank 0-d tensors, which outrank
/// C++ numbers; a lower rank matters only when its category (bool < integer < float) is higher.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(std::initializer_list<const Tensor*> tensors);
/// The device of all the tensors (numbers go anywhere); an Error if there is more than one.
Device common_device(const char* op, std::initializer_list<const Tensor*> tensors);
/// Throws the same Error unless all of `others` that are defined are where x is: for kernels that take no numbers of
/// the host's.
inline void check_device(const char* op, const Tensor& x, std::initializer_list<const Tensor*> others) {
  for (const Tensor* t : others)
    REEL_CHECK(!t->defined() || t->device() == x.device(), op, ": tensors on different devices, ", x.device(), " and ",
               t->device());
}
/// Is this a number of the host's? Kernels of a GPU take one beside tensors there: it goes with the launch.
inline bool is_host_number(const View& view) { return view.host && view.shape.empty(); }

/// x, but a tensor where it is a C++ number, for compositions and rules: two numbers would meet in float32, whatever
/// the type of the tensors that they are for.
inline Tensor without_number(const Tensor& x) { return TensorImpl::of(x)->is_wrapped_number ? x.clone() : x; }

/// The dtype that arithmetic on elements of `dtype` is done in: float32 for half types.
constexpr DType compute_dtype(DType dtype) { return is_half(dtype) ? kFloat32 : dtype; }
/// x in that type. Recorded; undefined tensors stay so.
inline Tensor to_compute(const Tensor& x) { return x.defined() ? x.to(compute_dtype(x.dtype())) : x; }

/// Can the host read x's elements without synchronizing with a GPU? An op that looks at values, to check them or to
/// choose a faster way, does so only then, and not while ops are traced: other values would have to take the same way.
inline bool is_readable(const Tensor& x) { return view_of(x).host && !is_tracing(); }
/// Throws if an element of wrong(), a bool tensor, is true and x is readable.
template <class Wrong, class... Message>
void check_values(const Tensor& x, const Wrong& wrong, const Message&... message) {
  REEL_CHECK(!is_readable(x) || !any(wrong()).template item<bool>(), message...);
}

/// For what the host computes itself, whatever the default device is.
inline TensorOptions on_host(std::optional<DType> dtype = {}) { return {.dtype = dtype, .device = kCPU}; }

/// Half types and integers as float32: for ops that are not defined for integers.
inline Tensor to_float(const Tensor& x) {
  const DType dtype = view_of(x).dtype;
  return dtype == kFloat32 || dtype == kFloat64 ? x : x.to(kFloat32);
}

/// ids as the int64 that index kernels take (int32 and uint8 are converted); an Error in op's name if they are anything
/// else, or are not where x is.
Tensor to_ids(const char* op, const Tensor& x, const Tensor& ids);

/// alpha b as add and sub take it: in the type that a and b have in common or, of half types, in float32. An Error in
/// op's name where that type is an integer and alpha is not.
Tensor times_alpha(const char* op, const Tensor& a, const Tensor& b, Scalar alpha);

// ---- channels -------------------------------------------------------------------------------------------------------

///@{
/// x [n, sizes…, channels] or [sizes…, channels] as [n, channels, sizes…] or [channels, sizes…], a view, and back,
/// dense; with so many sizes.
inline Tensor channels_to_front(const Tensor& x, int sizes) { return movedim(x, -1, -1 - sizes); }
inline Tensor channels_to_back(const Tensor& x, int sizes) { return movedim(x, -1 - sizes, -1).contiguous(); }
///@}
/// op(x) for an x whose channels lie last and an op for which they are in front of the sizes. Traces have such ops
/// alone, since that is what exports know.
template <class Op>
Tensor with_channels_in_front(const Tensor& x, int sizes, const Op& op) {
  return channels_to_back(op(channels_to_front(x, sizes)), sizes);
}

// ---- parts of tensors -----------------------------------------------------------------------------------------------

/// A recorded view of part of x. `part` maps a StridedLayout that shows all of x to that of the part; it is called
/// twice, for the strides that x has and for those that its gradient will have.
template <class Part>
Tensor region_view(const char* name, const Tensor& x, Part part) {
  const View& view = view_of(x);
  const StridedLayout here = part(StridedLayout{0, view.shape, view.strides});
  const Tensor y =
      alias(x, static_cast<char*>(view.data) + here.offset * size_of(view.dtype), here.shape, here.strides);
  if (recording(x)) {
    const StridedLayout there =
        view.contiguous ? here : part(StridedLayout{0, view.shape, contiguous_strides(view.shape)});
    record(name, y, inputs(x), AsStridedBackward{there.offset, there.strides, view.shape});
  }
  return y;
}

/// Records a y that does not change with x: its gradient is zeros, not undefined.
inline void record_constant(const char* op, const Tensor& y, const Tensor& x) {
  if (!recording(x)) return;
  record(op, y, inputs(x), [shape = x.shape()](Backward& back) {
    back.set(0, zeros(shape, {.dtype = back.grad().dtype(), .device = back.grad().device()}));
  });
}

// ---- in place -------------------------------------------------------------------------------------------------------

/// May a write to one change the other? Tensors of one storage, or of foreign memory (from_blob) that overlaps.
inline bool shares_memory(const Tensor& a, const Tensor& b) {
  const Storage *s = TensorImpl::of(a)->storage, *t = TensorImpl::of(b)->storage;
  const auto *from = static_cast<const char*>(s->data), *to = static_cast<const char*>(t->data);
  return s == t || (from < to + t->bytes && to < from + s->bytes);
}
/// Gives self the values of `value` (broadcast and cast to self), recorded if need be. Refuses, in op's name, what may
/// not be changed.
Tensor& assign_in_place(const char* op, Tensor& self, const Tensor& value, CopyOptions options = {});
/// Throws unless self may be changed in place: it is defined, not expanded, and no leaf that records.
void check_in_place(const char* op, const Tensor& self);

// ---- members --------------------------------------------------------------------------------------------------------

/// The tensor whose base is `methods`.
inline Tensor& self(TensorMethods* methods) { return static_cast<Tensor&>(*methods); }
inline const Tensor& self(const TensorMethods* methods) { return static_cast<const Tensor&>(*methods); }

}  // namespace reel
