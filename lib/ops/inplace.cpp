#include "lib/functors/binary.h"
#include "lib/functors/ternary.h"
#include "lib/functors/unary.h"
#include "lib/ops/pointwise.h"

// In-place ops. Without recording they write where they stand. With it, changing a tensor means giving it a new
// history: the op's result, computed out of place, is copied into the storage, and its history becomes the tensor's.
// What a view shows is part of its base, so there the base gets a new history, "the old base, but for this region",
// and the history of every view of it is recorded anew when it is next used (rebuild_view_history).
namespace reel {

namespace {

constexpr const char* kMadeUnrecorded =
    ": the view was made under no_grad or became a leaf, its base would not learn of the change";

}  // namespace

void check_in_place(const char* op, const Tensor& self) {
  const View& view = view_of(self, op);
  for (int d = 0; d < view.shape.size(); ++d)
    REEL_CHECK(view.strides[d] != 0 || view.shape[d] <= 1 || view.numel == 0, op,
               ": the tensor is expanded, several of its elements are one; clone() it first");
  const TensorImpl* impl = TensorImpl::of(self);
  REEL_CHECK(impl->in_place != InPlace::kBatchedRow, op,
             ": a row of a batched result, whose memory belongs to other examples, too; change a clone() of it");
  if (!grad_mode) return;
  const TensorImpl* owner = impl->base ? impl->base : impl;
  const auto leaf = [](const TensorImpl* t) { return t->requires_grad && !t->node; };
  REEL_CHECK(!leaf(impl) && !leaf(owner), op, ": a leaf that requires grad",
             leaf(impl) ? "" : " (through a view of it)", " can be changed in place only under no_grad");
  REEL_CHECK(owner->in_place != InPlace::kHidesHistory, op, kMadeUnrecorded);
}

Tensor& assign_in_place(const char* op, Tensor& self, const Tensor& value, CopyOptions options) {
  check_in_place(op, self);
  if (is_tracing()) [[unlikely]] {
    TracedCall call("assign", {&value, 1}, {});
    call.writes(op, self);
    assign_in_place(op, self, value, options);
    call.finish_in_place(self);
    return self;
  }
  TensorImpl* impl = TensorImpl::of(self);
  const View& to = impl->view;
  const View& from = view_of(value, op);
  REEL_CHECK(broadcast_shapes(to.shape, from.shape, op) == to.shape, op, ": a value of shape ", from.shape,
             " for a tensor of shape ", to.shape);
  const bool recorded = grad_mode && is_floating_point(to.dtype) && (needs_grad(self) || needs_grad(value));
  Tensor result = value;
  if (recorded) {
    TensorImpl* owner = impl->base ? impl->base : impl;
    const bool has_base = owner->in_place != InPlace::kUnrecordedView && owner->in_place != InPlace::kLeafView;
    REEL_CHECK(has_base || owner->storage->unique(), op, kMadeUnrecorded);
    REEL_CHECK(!owner->storage->leaf_views || owner->in_place == InPlace::kLeafView, op, ": another view of this ",
               "memory is a leaf, whose gradient would not take the change into account; let the leaf be a clone()");
    REEL_CHECK(impl->in_place != InPlace::kAliasesInput, op, ": the tensor shares memory with an input of the custom ",
               "op, checkpoint or backward hook that made it, whose gradient would be wrong; change a clone() of it");
    REEL_CHECK(owner->in_place != InPlace::kSaved, op, ": a view that is saved for a backward pass; change a clone()");
    REEL_CHECK(!impl->base || !needs_grad(self) || needs_grad(TensorImpl::share(impl->base)), op,
               ": the view was made when its base required grad, which requires_grad_(false) has ended; change a view ",
               "that is made now");
    result = value.to(to.dtype).to(impl->device(), options).expand(to.shape);
    end_leaf_view(owner);  // one that gets here is alone with its memory, and a leaf no longer
    if (impl->base) {
      const Tensor base = TensorImpl::share(impl->base);
      record("assign", base, inputs(base, result), [part = ViewOfBase(impl)](Backward& back) {
        if (back.needs(1)) back.set(1, part.of(back.grad()).clone());
        if (back.needs(0)) back.set(0, part.without(back.grad()));
      });
      history_replaced(impl->base);
    } else {
      // An identity, so that the tensor has a node of its own even where `value` is a leaf. What a constant overwrites
      // gets zeros, as in PyTorch.
      if (needs_grad(result))
        record(op, self, inputs(result), [](Backward& back) { back.set(0, back.grad()); });
      else
        record(op, self, inputs(self), [](Backward& back) { back.set(0, zeros_like(back.grad())); });
      history_replaced(impl);
    }
  }
  const Tensor source = shares_memory(result, self) ? no_grad([&] { return result.clone(); }) : result;
  copy_between(source.device(), expand_view(view_of(source), to.shape), self.device(), to, options);
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
  REEL_CHECK(promote_types(self.dtype(), value.dtype()) == self.dtype() || is_floating_point(self.dtype()) ||
                 (self.dtype() != kBool && !is_floating_point(value.dtype())),
             name, ": the result is ", value.dtype(), ", which does not fit into a tensor of ", self.dtype());
  return assign_in_place(name, self, value);
}

// For the arithmetic of optimizers and accumulators: straight into self where nothing is recorded and types agree. A
// GPU takes numbers of the host's, which beside halves are float32.
bool writes_directly(const Tensor& self, const Tensor& other, bool integers = false) {
  const View &to = view_of(self), &from = view_of(other);
  const bool is_number = is_host_number(from) && !needs_grad(other);
  return (to.dtype == from.dtype || (is_number && is_half(to.dtype) && from.dtype == kFloat32)) &&
         (is_floating_point(to.dtype) || (integers && to.dtype != kBool)) &&
         !(grad_mode && (needs_grad(self) || needs_grad(other))) && !is_tracing() && !shares_memory(self, other) &&
         (self.device() == other.device() || is_number);
}
// Returns x or, if that is a C++ number, it as one that kernels take beside elements of dtype, which `room` has then.
const Tensor& typed(const char* name, DType dtype, const Tensor& x, Tensor& room) {
  view_of(x, name);
  if (!TensorImpl::of(x)->is_wrapped_number || needs_grad(x)) return x;
  if (is_floating_point(dtype)) return room = number_as(dtype, x);
  const bool converts = view_of(x).dtype == kInt64 && dtype != kBool && fits(x.item<int64_t>(), dtype);
  return converts ? room = x.to(dtype) : x;
}
View operand(const char* name, const View& to, const Tensor& other) {
  const View& from = view_of(other);
  REEL_CHECK(broadcast_shapes(to.shape, from.shape, name) == to.shape, name, ": an operand of shape ", from.shape,
             " for a tensor of shape ", to.shape);
  return expand_view(from, to.shape);
}
/// Applies the functor's kernel to self where nothing is recorded, and op, by change(), elsewhere.
template <class F, class Op>
Tensor& unary(const char* name, Tensor& self, Op op, const F& f = {}) {
  const View& to = view_of(self, name);
  const bool has_kernel = is_floating_point(to.dtype) || (F::kIntegers && to.dtype != kBool);
  if (!has_kernel || (grad_mode && needs_grad(self)) || is_tracing()) return change(name, self, op);
  check_in_place(name, self);
  kernels_of(self).unary[functors::index_of<functors::UnaryList, F>](&f, to, to);
  TensorImpl::of(self)->storage->changed();
  return self;
}
template <class F, class Op>
Tensor& arithmetic(const char* name, Tensor& self, const Tensor& other, Op op, const F& f = {}) {
  const View& to = view_of(self, name);
  Tensor room;
  const Tensor& from = typed(name, to.dtype, other, room);
  if (!writes_directly(self, from, F::kIntegers))
    return change(
        name, self, [&](const Tensor& old) { return op(old, other); }, other);
  check_in_place(name, self);
  kernels_of(self).binary[functors::index_of<functors::BinaryList, F>](&f, to, operand(name, to, from), to);
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
  kernels_of(self).ternary[functors::index_of<functors::TernaryList, F>](&f, to, operand(name, to, at),
                                                                         operand(name, to, bt), to);
  TensorImpl::of(self)->storage->changed();
  return self;
}

}  // namespace

Tensor& TensorMethods::copy_(const Tensor& source, CopyOptions options) {
  return assign_in_place("copy_", self(this), source, options);
}

Tensor& TensorMethods::fill_(Scalar value) {
  Tensor& x = self(this);
  if ((grad_mode && needs_grad(x)) || is_tracing()) return assign_in_place("fill_", x, Tensor(value));
  check_in_place("fill_", x);
  check_fits("fill_", value, x.dtype());
  kernels_of(x).fill(view_of(x), value);
  TensorImpl::of(x)->storage->changed();
  return x;
}

Tensor& TensorMethods::add_(const Tensor& b) {
  return arithmetic<functors::Add>("add_", self(this), b, [](const Tensor& old, const Tensor& x) { return old + x; });
}
Tensor& TensorMethods::add_(const Tensor& b, Scalar alpha) {
  Tensor& x = self(this);
  if (alpha.to<double>() == 1) return add_(b);
  if (!is_floating_point(view_of(x, "add_").dtype)) return add_(times_alpha("add_", x, b, alpha));
  return arithmetic(
      "add_", x, b, [&](const Tensor& old, const Tensor& other) { return reel::add(old, other, alpha); },
      functors::AddScaled{alpha.to<double>()});
}
Tensor& TensorMethods::sub_(const Tensor& b) {
  return arithmetic<functors::Sub>("sub_", self(this), b, [](const Tensor& old, const Tensor& x) { return old - x; });
}
Tensor& TensorMethods::sub_(const Tensor& b, Scalar alpha) {
  Tensor& x = self(this);
  if (alpha.to<double>() == 1) return sub_(b);
  if (!is_floating_point(view_of(x, "sub_").dtype)) return sub_(times_alpha("sub_", x, b, alpha));
  return arithmetic(
      "sub_", x, b, [&](const Tensor& old, const Tensor& other) { return reel::sub(old, other, alpha); },
      functors::AddScaled{-alpha.to<double>()});
}
Tensor& TensorMethods::mul_(const Tensor& b) { return arithmetic<functors::Mul>("mul_", self(this), b, reel::mul); }
Tensor& TensorMethods::div_(const Tensor& b) { return arithmetic<functors::Div>("div_", self(this), b, reel::div); }
Tensor& TensorMethods::pow_(const Tensor& exponent) {
  return change(
      "pow_", self(this), [&](const Tensor& old) { return reel::pow(old, exponent); }, exponent);
}
Tensor& TensorMethods::fmod_(const Tensor& b) {
  check_no_zero("fmod_", self(this), b);
  return arithmetic<functors::Fmod>("fmod_", self(this), b, reel::fmod);
}
Tensor& TensorMethods::remainder_(const Tensor& b) {
  check_no_zero("remainder_", self(this), b);
  return arithmetic<functors::Remainder>("remainder_", self(this), b, reel::remainder);
}
Tensor& TensorMethods::floor_divide_(const Tensor& b) {
  check_no_zero("floor_divide_", self(this), b);
  return arithmetic<functors::FloorDivide>("floor_divide_", self(this), b, reel::floor_divide);
}
Tensor& TensorMethods::lerp_(const Tensor& end, const Tensor& weight) {
  return arithmetic("lerp_", self(this), end, weight, functors::Lerp(), reel::lerp);
}
Tensor& TensorMethods::addcmul_(const Tensor& a, const Tensor& b, Scalar value) {
  return arithmetic(
      "addcmul_", self(this), a, b, functors::Addcmul{value.to<double>()},
      [&](const Tensor& old, const Tensor& x, const Tensor& y) { return reel::addcmul(old, x, y, value); });
}
Tensor& TensorMethods::addcdiv_(const Tensor& a, const Tensor& b, Scalar value) {
  return arithmetic(
      "addcdiv_", self(this), a, b, functors::Addcdiv{value.to<double>()},
      [&](const Tensor& old, const Tensor& x, const Tensor& y) { return reel::addcdiv(old, x, y, value); });
}
Tensor& TensorMethods::neg_() { return unary<functors::Neg>("neg_", self(this), reel::neg); }
Tensor& TensorMethods::abs_() { return unary<functors::Abs>("abs_", self(this), reel::abs); }
Tensor& TensorMethods::sign_() { return unary<functors::Sign>("sign_", self(this), reel::sign); }
Tensor& TensorMethods::expm1_() { return unary<functors::Expm1>("expm1_", self(this), reel::expm1); }
Tensor& TensorMethods::log1p_() { return unary<functors::Log1p>("log1p_", self(this), reel::log1p); }
Tensor& TensorMethods::rsqrt_() { return unary<functors::Rsqrt>("rsqrt_", self(this), reel::rsqrt); }
Tensor& TensorMethods::reciprocal_() {
  return unary<functors::Reciprocal>("reciprocal_", self(this), reel::reciprocal);
}
Tensor& TensorMethods::sin_() { return unary<functors::Sin>("sin_", self(this), reel::sin); }
Tensor& TensorMethods::cos_() { return unary<functors::Cos>("cos_", self(this), reel::cos); }
Tensor& TensorMethods::tan_() { return unary<functors::Tan>("tan_", self(this), reel::tan); }
Tensor& TensorMethods::asin_() { return unary<functors::Asin>("asin_", self(this), reel::asin); }
Tensor& TensorMethods::acos_() { return unary<functors::Acos>("acos_", self(this), reel::acos); }
Tensor& TensorMethods::atan_() { return unary<functors::Atan>("atan_", self(this), reel::atan); }
Tensor& TensorMethods::exp2_() { return unary<functors::Exp2>("exp2_", self(this), reel::exp2); }
Tensor& TensorMethods::log2_() { return unary<functors::Log2>("log2_", self(this), reel::log2); }
Tensor& TensorMethods::log10_() { return unary<functors::Log10>("log10_", self(this), reel::log10); }
Tensor& TensorMethods::erf_() { return unary<functors::Erf>("erf_", self(this), reel::erf); }
Tensor& TensorMethods::silu_() { return unary<functors::Silu>("silu_", self(this), reel::silu); }
Tensor& TensorMethods::leaky_relu_(double negative_slope) {
  return unary(
      "leaky_relu_", self(this), [=](const Tensor& old) { return reel::leaky_relu(old, negative_slope); },
      functors::LeakyRelu{negative_slope});
}
Tensor& TensorMethods::elu_(double alpha) {
  return unary(
      "elu_", self(this), [=](const Tensor& old) { return reel::elu(old, alpha); }, functors::Elu{.alpha = alpha});
}
Tensor& TensorMethods::exp_() { return unary<functors::Exp>("exp_", self(this), reel::exp); }
Tensor& TensorMethods::log_() { return unary<functors::Log>("log_", self(this), reel::log); }
Tensor& TensorMethods::sqrt_() { return unary<functors::Sqrt>("sqrt_", self(this), reel::sqrt); }
Tensor& TensorMethods::square_() { return unary<functors::Square>("square_", self(this), reel::square); }
Tensor& TensorMethods::tanh_() { return unary<functors::Tanh>("tanh_", self(this), reel::tanh); }
Tensor& TensorMethods::sigmoid_() { return unary<functors::Sigmoid>("sigmoid_", self(this), reel::sigmoid); }
Tensor& TensorMethods::relu_() { return unary<functors::Relu>("relu_", self(this), reel::relu); }
Tensor& TensorMethods::floor_() { return unary<functors::Floor>("floor_", self(this), reel::floor); }
Tensor& TensorMethods::ceil_() { return unary<functors::Ceil>("ceil_", self(this), reel::ceil); }
Tensor& TensorMethods::round_() { return unary<functors::Round>("round_", self(this), reel::round); }
Tensor& TensorMethods::trunc_() { return unary<functors::Trunc>("trunc_", self(this), reel::trunc); }
Tensor& TensorMethods::frac_() { return unary<functors::Frac>("frac_", self(this), reel::frac); }
Tensor& TensorMethods::clamp_(const Bound& min) { return clamp_(min, {}); }
Tensor& TensorMethods::clamp_(const Bound& min, const Bound& max) {
  Tensor& x = self(this);
  const auto clamped = [&](const Tensor& old) { return reel::clamp(old, min, max); };
  if (const auto bounds = clamp_of_numbers(x, min, max); bounds && (min.defined() || max.defined()))
    return unary("clamp_", x, clamped, *bounds);
  return change("clamp_", x, clamped, min.tensor, max.tensor);
}
Tensor& TensorMethods::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf) {
  return change("nan_to_num_", self(this),
                [&](const Tensor& old) { return reel::nan_to_num(old, nan, posinf, neginf); });
}
Tensor& TensorMethods::masked_fill_(const Tensor& mask, const Tensor& value) {
  return change("masked_fill_", self(this), [&](const Tensor& old) { return reel::masked_fill(old, mask, value); });
}

}  // namespace reel
