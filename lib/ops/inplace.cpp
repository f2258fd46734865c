#include "lib/ops/internal.h"
#include "lib/scalar.h"

// In-place ops. Without recording they write where they stand. With it, changing a tensor means giving it a new
// history: the op's result, computed out of place, is copied into the storage, and its history becomes the tensor's.
// What a view shows is part of its base, so there the base gets a new history, "the old base, but for this region",
// and the history of every view of it is recorded anew when it is next used (rebuild_view_history).
namespace reel {

namespace {

constexpr const char* kMadeUnrecorded = ": the view was made under no_grad, its base would not learn of the change";

}  // namespace

void check_in_place(const char* op, const Tensor& self) {
  const View& view = view_of(self, op);
  for (int d = 0; d < view.shape.size(); ++d)
    REEL_CHECK(view.strides[d] != 0 || view.shape[d] <= 1, op,
               ": the tensor is expanded, several of its elements are one; clone() it first");
  if (!grad_mode) return;
  const TensorImpl* impl = TensorImpl::of(self);
  const TensorImpl* owner = impl->base ? impl->base : impl;
  const auto leaf = [](const TensorImpl* t) { return t->requires_grad && !t->node; };
  REEL_CHECK(!leaf(impl) && !leaf(owner), op, ": a leaf that requires grad",
             leaf(impl) ? "" : " (through a view of it)", " can be changed in place only under no_grad");
  REEL_CHECK(!owner->hides_history, op, kMadeUnrecorded);
}

Tensor& assign_in_place(const char* op, Tensor& self, const Tensor& value) {
  check_in_place(op, self);
  TensorImpl* impl = TensorImpl::of(self);
  const View& to = impl->view;
  const View& from = view_of(value, op);
  REEL_CHECK(broadcast_shapes(to.shape, from.shape, op) == to.shape, op, ": a value of shape ", from.shape,
             " for a tensor of shape ", to.shape);
  const bool recorded = grad_mode && is_floating_point(to.dtype) && (tracked(self) || tracked(value));
  Tensor result = value;
  if (recorded) {
    const TensorImpl* owner = impl->base ? impl->base : impl;
    REEL_CHECK(!owner->unrecorded_view || owner->storage->unique(), op, kMadeUnrecorded);
    result = value.to(to.dtype).to(impl->device()).expand(to.shape);
    if (impl->base) {
      const Tensor base = TensorImpl::share(impl->base);
      const Geometry part = geometry_in_base(impl);
      record("assign", base, inputs(base, result), [part](Backward& back) {
        const Tensor& g = back.grad();
        const Tensor inside = region(g, part.offset, part.shape, part.strides);
        if (back.needs(1)) back.set(1, inside.clone());
        if (back.needs(0)) back.set(0, g - embed(inside, g.shape(), part.offset, part.strides));
      });
      ++impl->base->history_version;
    } else {
      // An identity, so that the tensor has a node of its own even where `value` is a leaf.
      if (tracked(result))
        record(op, self, inputs(result), [](Backward& back) { back.set(0, back.grad()); });
      else if (impl->node)
        detach_history(impl);
      ++impl->history_version;
    }
  }
  const Tensor source =
      TensorImpl::of(result)->storage == impl->storage ? no_grad([&] { return result.clone(); }) : result;
  copy_between(source.device(), expand_view(view_of(source), to.shape), self.device(), to);
  impl->storage->changed();
  return self;
}

namespace {

// self = op(self), which reads `others`, too. While recording, `op` sees a copy of the old value, so that what it saves
// stays as it was.
template <class Op, class... Others>
Tensor& change(const char* name, Tensor& self, Op op, const Others&... others) {
  check_in_place(name, self);
  const Tensor value = op(recording(self, others...) ? self.clone() : self);
  REEL_CHECK(value.shape() == self.shape(), name, ": the result's shape ", value.shape(),
             " is not that of the tensor, ", self.shape());
  REEL_CHECK(is_floating_point(self.dtype()) || !is_floating_point(value.dtype()) || self.dtype() == value.dtype(),
             name, ": the result is ", value.dtype(), ", which does not fit into a tensor of ", self.dtype());
  return assign_in_place(name, self, value);
}

// For the arithmetic of optimizers and accumulators: straight into self where nothing is recorded and types agree. A
// GPU takes numbers of the host's.
bool writes_directly(const Tensor& self, const Tensor& other, bool integers = false) {
  const View &to = view_of(self), &from = view_of(other);
  return to.dtype == from.dtype && (to.dtype == kFloat32 || to.dtype == kFloat64 || (integers && to.dtype == kInt64)) &&
         !(grad_mode && (tracked(self) || tracked(other))) &&
         TensorImpl::of(self)->storage != TensorImpl::of(other)->storage &&
         (self.device() == other.device() || (from.host && from.shape.empty() && !tracked(other)));
}
// x or, if that is a C++ number, it as one of dtype, which `room` has then.
const Tensor& typed(const char* name, DType dtype, const Tensor& x, Tensor& room) {
  view_of(x, name);
  const bool converts = TensorImpl::of(x)->number && !tracked(x) && is_floating_point(dtype);
  return converts ? room = x.to(dtype) : x;
}
View operand(const char* name, const View& to, const Tensor& other) {
  const View& from = view_of(other);
  REEL_CHECK(broadcast_shapes(to.shape, from.shape, name) == to.shape, name, ": an operand of shape ", from.shape,
             " for a tensor of shape ", to.shape);
  return expand_view(from, to.shape);
}
template <class F, class Op>
Tensor& arithmetic(const char* name, Tensor& self, const Tensor& other, Op op) {
  const View& to = view_of(self, name);
  Tensor room;
  const Tensor& from = typed(name, to.dtype, other, room);
  if (!writes_directly(self, from, F::kIntegers))
    return change(
        name, self, [&](const Tensor& old) { return op(old, other); }, other);
  check_in_place(name, self);
  const F f;
  backend_of(self).binary[scalar::index_of<scalar::BinaryList, F>](&f, to, operand(name, to, from), to);
  TensorImpl::of(self)->storage->changed();
  return self;
}
template <class F, class Op>
Tensor& arithmetic(const char* name, Tensor& self, const Tensor& a, const Tensor& b, const F& f, Op op) {
  const View& to = view_of(self, name);
  Tensor rooms[2];
  const Tensor &at = typed(name, to.dtype, a, rooms[0]), &bt = typed(name, to.dtype, b, rooms[1]);
  if (!writes_directly(self, at) || !writes_directly(self, bt))
    return change(
        name, self, [&](const Tensor& old) { return op(old, a, b); }, a, b);
  check_in_place(name, self);
  backend_of(self).ternary[scalar::index_of<scalar::TernaryList, F>](&f, to, operand(name, to, at),
                                                                     operand(name, to, bt), to);
  TensorImpl::of(self)->storage->changed();
  return self;
}

}  // namespace

Tensor& Tensor::copy_(const Tensor& source) { return assign_in_place("copy_", *this, source); }

Tensor& Tensor::fill_(Scalar value) {
  if (grad_mode && tracked(*this)) return assign_in_place("fill_", *this, Tensor(value));
  check_in_place("fill_", *this);
  check_fits("fill_", value, dtype());
  backend_of(*this).fill(view_of(*this), value);
  TensorImpl::of(*this)->storage->changed();
  return *this;
}

Tensor& Tensor::add_(const Tensor& other, Scalar alpha) {
  const bool plain = alpha.to<double>() == 1;
  return arithmetic<scalar::Add>("add_", *this, plain ? other : other * Tensor(alpha), add);
}
Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) {
  const bool plain = alpha.to<double>() == 1;
  return arithmetic<scalar::Sub>("sub_", *this, plain ? other : other * Tensor(alpha), sub);
}
Tensor& Tensor::mul_(const Tensor& other) { return arithmetic<scalar::Mul>("mul_", *this, other, mul); }
Tensor& Tensor::div_(const Tensor& other) { return arithmetic<scalar::Div>("div_", *this, other, div); }
Tensor& Tensor::pow_(const Tensor& exponent) {
  return change(
      "pow_", *this, [&](const Tensor& old) { return pow(old, exponent); }, exponent);
}
Tensor& Tensor::fmod_(const Tensor& other) {
  return change(
      "fmod_", *this, [&](const Tensor& old) { return reel::fmod(old, other); }, other);
}
Tensor& Tensor::remainder_(const Tensor& other) {
  return change(
      "remainder_", *this, [&](const Tensor& old) { return remainder(old, other); }, other);
}
Tensor& Tensor::floor_divide_(const Tensor& other) {
  return change(
      "floor_divide_", *this, [&](const Tensor& old) { return floor_divide(old, other); }, other);
}
Tensor& Tensor::lerp_(const Tensor& end, const Tensor& weight) {
  return arithmetic("lerp_", *this, end, weight, scalar::Lerp(), reel::lerp);
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, Scalar value) {
  return arithmetic("addcmul_", *this, a, b, scalar::Addcmul{value.to<double>()},
                    [&](const Tensor& old, const Tensor& a, const Tensor& b) { return addcmul(old, a, b, value); });
}
Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, Scalar value) {
  return arithmetic("addcdiv_", *this, a, b, scalar::Addcdiv{value.to<double>()},
                    [&](const Tensor& old, const Tensor& a, const Tensor& b) { return addcdiv(old, a, b, value); });
}
Tensor& Tensor::neg_() { return change("neg_", *this, neg); }
Tensor& Tensor::abs_() { return change("abs_", *this, reel::abs); }
Tensor& Tensor::sign_() { return change("sign_", *this, sign); }
Tensor& Tensor::expm1_() { return change("expm1_", *this, reel::expm1); }
Tensor& Tensor::log1p_() { return change("log1p_", *this, reel::log1p); }
Tensor& Tensor::rsqrt_() { return change("rsqrt_", *this, rsqrt); }
Tensor& Tensor::reciprocal_() { return change("reciprocal_", *this, reciprocal); }
Tensor& Tensor::sin_() { return change("sin_", *this, reel::sin); }
Tensor& Tensor::cos_() { return change("cos_", *this, reel::cos); }
Tensor& Tensor::tan_() { return change("tan_", *this, reel::tan); }
Tensor& Tensor::asin_() { return change("asin_", *this, reel::asin); }
Tensor& Tensor::acos_() { return change("acos_", *this, reel::acos); }
Tensor& Tensor::atan_() { return change("atan_", *this, reel::atan); }
Tensor& Tensor::exp2_() { return change("exp2_", *this, reel::exp2); }
Tensor& Tensor::log2_() { return change("log2_", *this, reel::log2); }
Tensor& Tensor::log10_() { return change("log10_", *this, reel::log10); }
Tensor& Tensor::erf_() { return change("erf_", *this, reel::erf); }
Tensor& Tensor::silu_() { return change("silu_", *this, silu); }
Tensor& Tensor::leaky_relu_(double negative_slope) {
  return change("leaky_relu_", *this, [=](const Tensor& old) { return leaky_relu(old, negative_slope); });
}
Tensor& Tensor::elu_(double alpha) {
  return change("elu_", *this, [=](const Tensor& old) { return elu(old, alpha); });
}
Tensor& Tensor::exp_() { return change("exp_", *this, reel::exp); }
Tensor& Tensor::log_() { return change("log_", *this, reel::log); }
Tensor& Tensor::sqrt_() { return change("sqrt_", *this, reel::sqrt); }
Tensor& Tensor::square_() { return change("square_", *this, square); }
Tensor& Tensor::tanh_() { return change("tanh_", *this, reel::tanh); }
Tensor& Tensor::sigmoid_() { return change("sigmoid_", *this, sigmoid); }
Tensor& Tensor::relu_() { return change("relu_", *this, relu); }
Tensor& Tensor::floor_() { return change("floor_", *this, reel::floor); }
Tensor& Tensor::ceil_() { return change("ceil_", *this, reel::ceil); }
Tensor& Tensor::round_() { return change("round_", *this, reel::round); }
Tensor& Tensor::trunc_() { return change("trunc_", *this, reel::trunc); }
Tensor& Tensor::frac_() { return change("frac_", *this, frac); }
Tensor& Tensor::clamp_(const Bound& min, const Bound& max) {
  return change(
      "clamp_", *this, [&](const Tensor& old) { return clamp(old, min, max); }, min.tensor, max.tensor);
}
Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf) {
  return change("nan_to_num_", *this, [&](const Tensor& old) { return nan_to_num(old, nan, posinf, neginf); });
}
Tensor& Tensor::masked_fill_(const Tensor& mask, const Tensor& value) {
  return change("masked_fill_", *this, [&](const Tensor& old) { return masked_fill(old, mask, value); });
}

}  // namespace reel
