#include "lib/ops/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lib/functors/pointwise.h"
#include "reel/threads.h"

namespace reel {

// ---- types ----------------------------------------------------------------------------------------------------------

namespace {
int category(DType type) { return type == kBool ? 0 : reel::is_floating_point(type) ? 2 : 1; }
int rank_in_promotion(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  return impl->is_wrapped_number ? 0 : impl->view.shape.empty() ? 1 : 2;
}
// A C++ double is a float32 as far as types go.
DType own_type(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  return impl->is_wrapped_number && impl->view.dtype == kFloat64 ? kFloat32 : impl->view.dtype;
}
}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  const int ra = rank_in_promotion(a), rb = rank_in_promotion(b);
  const DType ta = own_type(a), tb = own_type(b);
  if (ra == rb) return promote_types(ta, tb);
  const DType high = ra > rb ? ta : tb, low = ra > rb ? tb : ta;
  return category(high) >= category(low) ? high : low;
}

DType result_type(std::initializer_list<const Tensor*> tensors) {
  std::optional<DType> result;
  for (int rank = 2; rank >= 0; --rank) {
    std::optional<DType> group;
    for (const Tensor* t : tensors)
      if (rank_in_promotion(*t) == rank) group = group ? promote_types(*group, own_type(*t)) : own_type(*t);
    if (group && (!result || category(*group) > category(*result))) result = group;
  }
  return *result;
}

Device common_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined() || is_host_number(view_of(*t))) continue;
    if (!first) first = t;
    REEL_CHECK(t->device() == first->device(), op, ": tensors on different devices, ", first->device(), " and ",
               t->device());
  }
  return first ? first->device() : (*tensors.begin())->device();
}

// ---- layout ---------------------------------------------------------------------------------------------------------

Shape MemoryOrder::permuted() const {
  Shape sizes = shape;
  for (int i = 0; i < shape.size(); ++i) sizes[i] = shape[static_cast<int>(order[i])];
  return sizes;
}

Tensor MemoryOrder::apply(const Tensor& x) const {
  return view_of(x).shape.empty() ? x : x.expand(shape).permute(order);
}

Tensor MemoryOrder::undo(const Tensor& y) const {
  if (needs_grad(y)) return y.permute(inverse);
  // A view that is not recorded would not be a tensor of its own: see InPlace.
  View& view = TensorImpl::of(y)->view;
  Strides strides = view.strides;
  for (int d = 0; d < shape.size(); ++d) strides[d] = view.strides[static_cast<int>(inverse[d])];
  view.shape = shape, view.strides = strides, view.contiguous = is_contiguous(shape, strides);
  return y;
}

std::optional<MemoryOrder> memory_order(const Shape& shape, std::initializer_list<const View*> operands) {
  const View* first = nullptr;
  for (const View* x : operands) {
    if (x->shape != shape) continue;
    if (x->contiguous) return {};
    for (int d = 0; first && d < shape.size(); ++d)
      if (shape[d] != 1 && x->strides[d] != first->strides[d]) return {};
    first = x;
  }
  if (!first || first->numel == 0) return {};
  MemoryOrder result{shape, shape, shape};
  std::iota(result.order.begin(), result.order.end(), 0);
  std::stable_sort(result.order.begin(), result.order.end(), [&](int64_t a, int64_t b) {
    return first->strides[static_cast<int>(a)] > first->strides[static_cast<int>(b)];
  });
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    const int d = static_cast<int>(result.order[i]);
    if (shape[d] != 1 && first->strides[d] != step) return {};  // there are gaps or repeated elements
    step *= shape[d];
    result.inverse[d] = i;
  }
  return result;
}

// ---- one argument ---------------------------------------------------------------------------------------------------

Tensor neg(const Tensor& x) {
  REEL_CHECK(view_of(x, "neg").dtype != kBool, "neg: a bool tensor; logical_not inverts it");
  return unary<functors::Neg>("neg", x);
}
Tensor operator-(const Tensor& x) { return neg(x); }
Tensor abs(const Tensor& x) { return unary<functors::Abs>("abs", x); }
Tensor sign(const Tensor& x) {
  return view_of(x, "sign").dtype == kBool ? x.clone() : unary<functors::Sign>("sign", x);
}
Tensor exp(const Tensor& x) { return unary<functors::Exp>("exp", x); }
Tensor expm1(const Tensor& x) { return unary<functors::Expm1>("expm1", x); }
Tensor log(const Tensor& x) { return unary<functors::Log>("log", x); }
Tensor log1p(const Tensor& x) { return unary<functors::Log1p>("log1p", x); }
Tensor sqrt(const Tensor& x) { return unary<functors::Sqrt>("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary<functors::Rsqrt>("rsqrt", x); }
Tensor square(const Tensor& x) {
  return unary<functors::Square>("square", view_of(x, "square").dtype == kBool ? x.to(kInt64) : x);
}
Tensor reciprocal(const Tensor& x) { return unary<functors::Reciprocal>("reciprocal", x); }
Tensor sin(const Tensor& x) { return unary<functors::Sin>("sin", x); }
Tensor cos(const Tensor& x) { return unary<functors::Cos>("cos", x); }
Tensor tanh(const Tensor& x) { return unary<functors::Tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<functors::Sigmoid>("sigmoid", x); }
Tensor erf(const Tensor& x) { return unary<functors::Erf>("erf", x); }
Tensor erfc(const Tensor& x) { return unary<functors::Erfc>("erfc", x); }
Tensor tan(const Tensor& x) { return unary<functors::Tan>("tan", x); }
Tensor asin(const Tensor& x) { return unary<functors::Asin>("asin", x); }
Tensor acos(const Tensor& x) { return unary<functors::Acos>("acos", x); }
Tensor atan(const Tensor& x) { return unary<functors::Atan>("atan", x); }
Tensor sinh(const Tensor& x) { return unary<functors::Sinh>("sinh", x); }
Tensor cosh(const Tensor& x) { return unary<functors::Cosh>("cosh", x); }
Tensor asinh(const Tensor& x) { return unary<functors::Asinh>("asinh", x); }
Tensor acosh(const Tensor& x) { return unary<functors::Acosh>("acosh", x); }
Tensor atanh(const Tensor& x) { return unary<functors::Atanh>("atanh", x); }
Tensor log2(const Tensor& x) { return unary<functors::Log2>("log2", x); }
Tensor log10(const Tensor& x) { return unary<functors::Log10>("log10", x); }
Tensor exp2(const Tensor& x) { return unary<functors::Exp2>("exp2", x); }
Tensor lgamma(const Tensor& x) { return unary<functors::Lgamma>("lgamma", x); }
Tensor digamma(const Tensor& x) { return unary("digamma", x, functors::Polygamma{0}); }
Tensor polygamma(int64_t n, const Tensor& x) {
  REEL_CHECK(n >= 0 && n <= 170, "polygamma: the order must be in [0, 170], got ", n);
  return unary("polygamma", x, functors::Polygamma{static_cast<int>(n)});
}
Tensor logit(const Tensor& x, std::optional<double> eps) {
  const DType dtype = view_of(x, "logit").dtype;
  const Tensor real = is_floating_point(dtype) ? x : x.to(kFloat32);
  if (!is_tracing()) return unary("logit", real, functors::Logit{eps.value_or(-1)});
  const Tensor wide = to_compute(real), inside = eps ? clamp(wide, *eps, 1 - *eps) : wide;
  return log(inside / (1 - inside)).to(real.dtype());
}

// Integers are whole already.
template <class F>
static Tensor rounded(Op op, const Tensor& x) {
  return is_floating_point(view_of(x, op).dtype) ? unary<F>(op, x) : x.clone();
}
Tensor floor(const Tensor& x) { return rounded<functors::Floor>("floor", x); }
Tensor ceil(const Tensor& x) { return rounded<functors::Ceil>("ceil", x); }
Tensor round(const Tensor& x) { return rounded<functors::Round>("round", x); }
Tensor trunc(const Tensor& x) { return rounded<functors::Trunc>("trunc", x); }
Tensor frac(const Tensor& x) {
  return is_floating_point(view_of(x, "frac").dtype) ? unary<functors::Frac>("frac", x) : x - trunc(x);
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const DType dtype = view_of(x, "nan_to_num").dtype;
  if (!is_floating_point(dtype)) return x.clone();
  const double largest = dtype == kFloat16    ? 65504
                         : dtype == kBFloat16 ? 0x1.fep127
                         : dtype == kFloat32  ? std::numeric_limits<float>::max()
                                              : std::numeric_limits<double>::max();
  return unary("nan_to_num", x, functors::NanToNum{nan, posinf.value_or(largest), neginf.value_or(-largest)});
}

std::optional<functors::Clamp> clamp_of_numbers(const Tensor& x, const Bound& min, const Bound& max) {
  constexpr double kExact = 0x1p53;
  const DType dtype = view_of(x, "clamp").dtype;
  const auto is_held = [&](const Bound& bound) {
    if (bound.tensor.defined()) return false;
    if (!bound.number) return is_floating_point(dtype);
    const double number = bound.number->to<double>();
    return is_floating_point(dtype) ? !std::isnan(number)
                                    : dtype != kBool && !bound.number->is_floating_point() &&
                                          std::abs(number) < kExact && fits(*bound.number, dtype);
  };
  if (!is_held(min) || !is_held(max)) return {};
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  return functors::Clamp{min.number ? min.number->to<double>() : none, max.number ? max.number->to<double>() : none};
}

/// Returns min(max(x, low), high) of tensors of one type on the CPU, which is not recorded, some rows at a time, so
/// that what is between the two stays in the caches.
static Tensor clamp_in_blocks(const Tensor& x, const Tensor& low, const Tensor& high) {
  const auto compute = [](const Shape& shape, const Tensor& x, const Tensor& low, const Tensor& high) {
    constexpr int64_t kBlock = 8192, kPart = 65536;
    const Tensor y = make_tensor(shape, x.dtype(), x.device());
    const int64_t numel = y.numel();
    if (numel == 0) return y;
    const View views[] = {expand_view(view_of(x), shape), expand_view(view_of(low), shape),
                          expand_view(view_of(high), shape), view_of(y)};
    const bool dense = std::all_of(std::begin(views), std::end(views), [](const View& v) { return v.contiguous; });
    const int64_t rows = dense ? numel : shape[0], row = numel / rows, step = std::max<int64_t>(kBlock / row, 1);
    const KernelTable& kernels = kernels_of(y);
    parallel_for(rows, std::max(step, kPart / row), [&](int64_t first, int64_t end) {
      for (int64_t begin = first; begin < end; begin += step) {
        const auto part = [&](const View& view) {
          Shape sizes = dense ? Shape{rows} : shape;
          const Strides strides = dense ? Strides{1} : view.strides;
          sizes[0] = std::min(step, end - begin);
          return make_view(view.as<char>() + begin * strides[0] * size_of(view.dtype), sizes, strides, view.dtype);
        };
        const auto join = [&]<class F>(const F& f, const View& a, const View& b, const View& to) {
          kernels.binary[functors::index_of<functors::BinaryList, F>](&f, a, b, to);
        };
        const View to = part(views[3]);
        join(functors::Maximum(), part(views[0]), part(views[1]), to);
        join(functors::Minimum(), to, part(views[2]), to);
      }
    });
    return y;
  };
  return in_memory_order("clamp", compute)(x, low, high);
}

Tensor clamp(const Tensor& x, const Bound& min, const Bound& max) {
  REEL_CHECK(min.defined() || max.defined(), "clamp: neither a minimum nor a maximum");
  DType dtype = view_of(x, "clamp").dtype;
  if (const auto bounds = clamp_of_numbers(x, min, max)) return unary("clamp", x, *bounds);
  const auto tensor = [](const Bound& bound) { return bound.number ? Tensor(*bound.number) : bound.tensor; };
  Tensor low = tensor(min), high = tensor(max);
  dtype = low.defined() && high.defined() ? result_type({&x, &low, &high}) : result_type(x, low.defined() ? low : high);
  if (dtype == kUInt8 || dtype == kInt32) {  // converted to uint8, a minimum of -1 would become one of 255
    const int64_t least = dtype == kUInt8 ? 0 : std::numeric_limits<int32_t>::min(),
                  most = dtype == kUInt8 ? 255 : std::numeric_limits<int32_t>::max();
    const auto check_number = [&](const char* name, Tensor& bound, bool is_min) {
      if (!bound.defined() || !TensorImpl::of(bound)->is_wrapped_number) return;
      const int64_t number = bound.item<int64_t>();
      const bool has_effect = is_min ? number >= least : number <= most;
      REEL_CHECK(!has_effect || (number >= least && number <= most), "clamp: the ", name, ' ', number,
                 " is out of the range of ", dtype);
      if (!has_effect) bound = {};
    };
    check_number("minimum", low, true);
    check_number("maximum", high, false);
  }
  if (!low.defined() && !high.defined()) return x.clone();
  const auto is_plain = [&](const Tensor& bound) {
    return bound.defined() && bound.dtype() == dtype && bound.device() == kCPU;
  };
  constexpr Op op = "clamp";
  if (is_plain(low) && is_plain(high) && x.device() == kCPU && dtype != kBool && !op.concerns(op_modes) &&
      !recording(x, low, high))
    return clamp_in_blocks(x.to(dtype), low, high);
  // In the dtype of all three from the start: a bound must not be rounded to what x and the other one have in common.
  const Tensor wide = x.to(dtype), above = low.defined() ? maximum(wide, low) : wide;
  return high.defined() ? minimum(above, high) : above;
}

// ---- two arguments --------------------------------------------------------------------------------------------------

Tensor number_as(DType dtype, const Tensor& number) {
  Tensor value = make_tensor({}, dtype == kFloat64 ? kFloat64 : kFloat32);
  const double exact = number.item<double>();
  if (dtype == kFloat64)
    *view_of(value).as<double>() = exact;
  else
    *view_of(value).as<float>() = static_cast<float>(exact);
  return value;
}

namespace {
// Returns the value of a C++ integer, nothing for other tensors.
std::optional<int64_t> integer_of(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  if (!impl->is_wrapped_number || impl->view.dtype != kInt64) return {};
  return *impl->view.as<int64_t>();
}
}  // namespace

Tensor operand_as(const char* op, const Tensor& x, DType dtype) {
  if (const auto number = integer_of(x)) check_fits(op, *number, dtype);
  return x.to(dtype);
}

Tensor add(const Tensor& a, const Tensor& b) { return binary<functors::Add>("add", a, b); }
Tensor sub(const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(a, "sub").dtype != kBool || view_of(b, "sub").dtype != kBool,
             "sub: bool tensors; logical_xor or logical_not is meant");
  return binary<functors::Sub>("sub", a, b);
}
namespace {
/// Returns a + alpha b in one pass, or an undefined tensor if the operands have to be converted or a mode of `op` has
/// to see the product.
Tensor add_scaled(Op op, const Tensor& a, const Tensor& b, double alpha) {
  const View &av = view_of(a, op), &bv = view_of(b, op);
  const bool converts = !is_floating_point(av.dtype) || av.dtype != bv.dtype || TensorImpl::of(a)->is_wrapped_number ||
                        TensorImpl::of(b)->is_wrapped_number || a.device() != b.device();
  return converts || op.concerns(op_modes) ? Tensor() : binary_same(op, a, b, a, functors::AddScaled{alpha});
}
}  // namespace
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) {
  const Tensor y = add_scaled("add", a, b, alpha.to<double>());
  return y.defined() ? y : add(a, times_alpha("add", a, b, alpha)).to(result_type(a, b));
}
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) {
  const Tensor y = add_scaled("sub", a, b, -alpha.to<double>());
  return y.defined() ? y : sub(a, times_alpha("sub", a, b, alpha)).to(result_type(a, b));
}
Tensor times_alpha(const char* op, const Tensor& a, const Tensor& b, Scalar alpha) {
  view_of(a, op), view_of(b, op);
  const DType dtype = result_type(a, b);
  REEL_CHECK(is_floating_point(dtype) || !alpha.is_floating_point(), op, ": a factor alpha of ", alpha.to<double>(),
             " for tensors of ", a.dtype(), " and ", b.dtype(), "; it must be an integer");
  if (dtype == kBool) return alpha.to<int64_t>() == 0 ? zeros_like(b) : b;
  check_fits(op, alpha, dtype);
  return without_number(b.to(compute_dtype(dtype))) * Tensor(alpha);
}
Tensor mul(const Tensor& a, const Tensor& b) { return binary<functors::Mul>("mul", a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<functors::Div>("div", a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary<functors::Maximum>("maximum", a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary<functors::Minimum>("minimum", a, b); }

void check_no_zero(const char* name, const Tensor& a, const Tensor& b) {
  view_of(a, name), view_of(b, name);
  if (is_floating_point(result_type(a, b))) return;
  check_values(
      b, [&] { return b == 0; }, name, ": integer division by zero");
}
Tensor fmod(const Tensor& a, const Tensor& b) {
  check_no_zero("fmod", a, b);
  return binary<functors::Fmod>("fmod", a, b);
}

Tensor remainder(const Tensor& a, const Tensor& b) {
  check_no_zero("remainder", a, b);
  return binary<functors::Remainder>("remainder", a, b);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  check_no_zero("floor_divide", a, b);
  return binary<functors::FloorDivide>("floor_divide", a, b);
}
Tensor hypot(const Tensor& a, const Tensor& b) { return binary<functors::Hypot>("hypot", a, b); }
Tensor atan2(const Tensor& y, const Tensor& x) { return binary<functors::Atan2>("atan2", y, x); }
Tensor logaddexp(const Tensor& a, const Tensor& b) { return binary<functors::Logaddexp>("logaddexp", a, b); }
Tensor xlogy(const Tensor& x, const Tensor& y) { return binary<functors::Xlogy>("xlogy", x, y); }

Tensor pow(const Tensor& base, const Tensor& exponent) {
  return call("pow(promoted)", {base, exponent}, {}, [](const Tensor& base, const Tensor& exponent) {
    view_of(base, "pow");
    // The everyday exponents, without the cost of a general power.
    if (view_of(exponent, "pow").numel == 1 && TensorImpl::of(exponent)->is_wrapped_number && !needs_grad(exponent) &&
        is_floating_point(base.dtype())) {
      const double p = exponent.item<double>();
      if (p == 2) return square(base);
      if (p == 0.5) return sqrt(base);
      if (p == -1) return reciprocal(base);
    }
    if (const DType result = result_type(base, exponent);
        !is_floating_point(result) && TensorImpl::of(exponent)->is_wrapped_number) {
      const int64_t number = exponent.item<int64_t>();
      REEL_CHECK(number >= 0, "pow: integers to the power of ", number, "; make one of them floating");
      check_fits("pow", number, result);
    }
    return binary<functors::Pow>("pow", base, exponent);
  });
}

Tensor float_power(const Tensor& base, const Tensor& exponent) {
  view_of(base, "float_power"), view_of(exponent, "float_power");
  return pow(base.to(kFloat64), exponent.to(kFloat64));
}

// ---- three arguments ------------------------------------------------------------------------------------------------

namespace {

// `rule` makes the rule from the operands that the kernel saw.
template <class F, class Rule>
Tensor ternary(Op op, const F& f, const Tensor& a, const Tensor& b, const Tensor& c, Rule rule) {
  const DType dtype = result_type({&a, &b, &c});
  REEL_CHECK(is_floating_point(dtype), op, ": tensors of ", a.dtype(), ", ", b.dtype(), " and ", c.dtype(),
             "; at least one must be floating point");
  // Kernels take halves beside numbers. What a trace has, and operands of other types, are computed in float32.
  const auto is_number = [](const Tensor& x) { return TensorImpl::of(x)->is_wrapped_number && !needs_grad(x); };
  const auto fits = [&](const Tensor& x) { return is_number(x) || view_of(x).dtype == dtype; };
  const DType meet = fits(a) && fits(b) && fits(c) && !is_tracing() ? dtype : compute_dtype(dtype);
  const Device device = common_device(op, {&a, &b, &c});
  const auto operand = [&](const Tensor& x) {
    return operand_on(device, is_number(x) ? number_as(meet, x) : without_number(x.to(meet)));
  };
  const Tensor at = operand(a), bt = operand(b), ct = operand(c);
  return call(op, {at, bt, ct}, attributes_of(f),
              in_memory_order(op,
                              [&](const Shape& shape, const Tensor& a, const Tensor& b, const Tensor& c) {
                                const Tensor y = make_tensor(shape, meet, device);
                                kernels_of(y).ternary[functors::index_of<functors::TernaryList, F>](
                                    &f, expand_view(view_of(a), shape), expand_view(view_of(b), shape),
                                    expand_view(view_of(c), shape), view_of(y));
                                if (recording(a, b, c)) record(op, y, inputs(a, b, c), rule(a, b, c));
                                return y;
                              }))
      .to(dtype);
}

/// Returns v g x, rounded once.
Tensor scaled_product(double v, const Tensor& g, const Tensor& x) {
  if (v == 1 && x.dtype() == g.dtype()) return g * x;
  const Tensor wide = to_compute(g);
  return ((v == 1 ? wide : v * wide) * to_compute(x)).to(g.dtype());
}

void check_defined(const char* name, const Tensor& a, const Tensor& b, const Tensor& c) {
  view_of(a, name), view_of(b, name), view_of(c, name);
}

}  // namespace

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
  check_defined("lerp", start, end, weight);
  return ternary("lerp", functors::Lerp(), start, end, weight, [](const Tensor& a, const Tensor& b, const Tensor& c) {
    const bool ends = needs_grad(c), is_number = c.dim() == 0 && !ends && c.device() == kCPU;
    return [a = saved_if(ends, a), b = saved_if(ends, b), c = SavedTensor(c), is_number](Backward& back) {
      const Tensor &g = back.grad(), weight = back.get(c);
      const bool halves = weight.dtype() == g.dtype() && is_half(g.dtype());
      if (back.needs(0))
        back.set(0, is_number ? g * (1 - weight.item<double>())
                    : halves  ? addcmul(g, g, weight, -1)
                              : scaled_product(1, g, 1 - to_compute(weight)));
      if (back.needs(1)) back.set(1, is_number ? g * weight.item<double>() : scaled_product(1, g, weight));
      if (!back.needs(2)) return;
      const Tensor from = back.get(a), to = back.get(b);
      const bool alike = halves && from.dtype() == g.dtype() && to.dtype() == g.dtype();
      back.set(2, alike ? g * (to - from) : scaled_product(1, g, to_compute(to) - to_compute(from)));
    };
  });
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  check_defined("addcmul", x, a, b);
  if (const DType common = result_type({&x, &a, &b}); !is_floating_point(common)) {  // the product must not wrap before
    check_fits("addcmul", value, value.is_floating_point() ? kFloat32 : common);
    return x + Tensor(value) * a.to(common) * b;
  }
  const double v = value.to<double>();
  return ternary("addcmul", functors::Addcmul{v}, x, a, b, [v](const Tensor&, const Tensor& a, const Tensor& b) {
    return [v, a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b)](Backward& back) {
      const Tensor& g = back.grad();
      if (back.needs(0)) back.set(0, g);
      if (back.needs(1)) back.set(1, scaled_product(v, g, back.get(b)));
      if (back.needs(2)) back.set(2, scaled_product(v, g, back.get(a)));
    };
  });
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  check_defined("addcdiv", x, a, b);
  const double v = value.to<double>();
  return ternary("addcdiv", functors::Addcdiv{v}, x, a, b, [v](const Tensor&, const Tensor& a, const Tensor& b) {
    return [v, a = saved_if(needs_grad(b), a), b = SavedTensor(b)](Backward& back) {
      const Tensor& g = back.grad();
      if (back.needs(0)) back.set(0, g);
      const Tensor divisor = back.get(b);
      const bool is_quotient = v == 1 && divisor.dtype() == g.dtype();
      if (back.needs(1))
        back.set(1, is_quotient ? g / divisor : (v * to_compute(g) / to_compute(divisor)).to(g.dtype()));
      if (!back.needs(2)) return;
      const Tensor x = back.get(a);
      if (is_half(g.dtype()) && divisor.dtype() == g.dtype() && x.dtype() == g.dtype())
        back.set(2, addcmul(Tensor(0), g / divisor, x / divisor, -v));
      else
        back.set(2, (-v * to_compute(g) * to_compute(x) / square(to_compute(divisor))).to(g.dtype()));
    };
  });
}

// ---- comparison and logic -------------------------------------------------------------------------------------------

namespace {
/// Returns f(a, b) for operands that the kernels take.
template <class F>
Tensor compared(const F& f, const Shape& shape, Device device, const Tensor& a, const Tensor& b) {
  Tensor y = make_tensor(shape, kBool, device);
  kernels_of(y).compare[functors::index_of<functors::CompareList, F>](&f, expand_view(view_of(a), shape),
                                                                      expand_view(view_of(b), shape), view_of(y));
  return y;
}

/// `op` is what a trace has, `name` what errors have; they differ where the operands change places.
template <class F>
Tensor compare(Op op, const char* name, const Tensor& a, const Tensor& b, bool logical = false) {
  const View &av = view_of(a, name), &bv = view_of(b, name);
  const Device device = common_device(name, {&a, &b});
  DType meet = logical ? promote_types(av.dtype, bv.dtype) : result_type(a, b);
  // Halves meet numbers, and what is of another type, in float32. A number beside halves is one by itself.
  const auto is_number = [](const Tensor& x) { return TensorImpl::of(x)->is_wrapped_number; };
  const auto fits = [&](const Tensor& x) { return is_number(x) || view_of(x).dtype == meet; };
  if (!fits(a) || !fits(b)) meet = compute_dtype(meet);
  // Integers meet where both are held: in a narrower type 257 would be equal to 1, and -1 greater than all of uint8.
  if (!is_floating_point(av.dtype) && !is_floating_point(bv.dtype)) {
    const auto number = integer_of(a) ? integer_of(a) : integer_of(b);
    if (is_number(a) == is_number(b) || (number && !reel::fits(*number, meet)))
      meet = promote_types(av.dtype, bv.dtype);
  }
  if (meet == kBool && (device != kCPU || is_tracing())) meet = kUInt8;  // the CPU's kernels read bools as bytes
  NoGrad guard;
  const auto operand = [&](const Tensor& x) {
    return operand_on(device, x.to(is_number(x) ? compute_dtype(meet) : meet));
  };
  const Tensor ac = operand(a), bc = operand(b);
  return call(op, {ac, bc}, {}, in_memory_order(op, [&](const Shape& shape, const Tensor& a, const Tensor& b) {
                return compared(F(), shape, device, a, b);
              }));
}
}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare<functors::Eq>("eq", "eq", a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare<functors::Ne>("ne", "ne", a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare<functors::Lt>("lt", "lt", a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare<functors::Le>("le", "le", a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare<functors::Lt>("lt", "gt", b, a); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare<functors::Le>("le", "ge", b, a); }
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return compare<functors::LogicalAnd>("logical_and", "logical_and", a, b, true);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return compare<functors::LogicalOr>("logical_or", "logical_or", a, b, true);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return compare<functors::LogicalXor>("logical_xor", "logical_xor", a, b, true);
}
Tensor logical_not(const Tensor& x) { return compare<functors::Eq>("eq", "logical_not", x, Tensor(false)); }

namespace {
template <class F>
Tensor bits(Op op, const Tensor& a, const Tensor& b, Tensor (*of_bools)(const Tensor&, const Tensor&)) {
  const View &av = view_of(a, op), &bv = view_of(b, op);
  const DType dtype = result_type(a, b);
  REEL_CHECK(!is_floating_point(dtype) && (of_bools || dtype != kBool), op, ": tensors of ", av.dtype, " and ",
             bv.dtype, of_bools ? "; only integers and bools have bits" : "; only integers can be shifted");
  if (dtype == kBool) return of_bools(a, b);
  const Device device = common_device(op, {&a, &b});
  const Tensor at = operand_as(op, a, dtype).to(device), bt = operand_as(op, b, dtype).to(device);
  return call(op, {at, bt}, {}, in_memory_order(op, [&](const Shape& shape, const Tensor& a, const Tensor& b) {
                const Tensor y = make_tensor(shape, dtype, device);
                const F f;
                kernels_of(y).bits[functors::index_of<functors::BitList, F>](
                    &f, expand_view(view_of(a), shape), expand_view(view_of(b), shape), view_of(y));
                return y;
              }));
}
}  // namespace
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return bits<functors::BitAnd>("bitwise_and", a, b, logical_and);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return bits<functors::BitOr>("bitwise_or", a, b, logical_or); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return bits<functors::BitXor>("bitwise_xor", a, b, logical_xor);
}
Tensor bitwise_not(const Tensor& x) {
  return view_of(x, "bitwise_not").dtype == kBool ? logical_not(x)
                                                  : bits<functors::BitXor>("bitwise_not", x, -1, nullptr);
}
Tensor bitwise_left_shift(const Tensor& x, const Tensor& places) {
  return bits<functors::ShiftLeft>("bitwise_left_shift", x, places, nullptr);
}
Tensor bitwise_right_shift(const Tensor& x, const Tensor& places) {
  return bits<functors::ShiftRight>("bitwise_right_shift", x, places, nullptr);
}
Tensor operator!(const Tensor& x) {
  REEL_CHECK(view_of(x, "operator!").dtype == kBool, "operator!: a tensor of ", x.dtype(), ", not bool");
  return logical_not(x);
}

Tensor isnan(const Tensor& x) { return ne(x, x); }
Tensor isinf(const Tensor& x) { return eq(abs(x.detach()), functors::kInfinity); }
Tensor isfinite(const Tensor& x) { return lt(abs(x.detach()), functors::kInfinity); }

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  view_of(a, "isclose"), view_of(b, "isclose");
  REEL_CHECK(rtol >= 0 && atol >= 0, "isclose: tolerances must not be negative, got rtol ", rtol, " and atol ", atol);
  const auto is_number = [](const Tensor& x) { return TensorImpl::of(x)->is_wrapped_number; };
  NoGrad guard;
  if (a.dtype() == b.dtype() && a.device() == b.device() && !is_number(a) && !is_number(b) && !is_tracing())
    return in_memory_order("isclose", [&](const Shape& shape, const Tensor& a, const Tensor& b) {
      return compared(functors::IsClose{rtol, atol, equal_nan}, shape, a.device(), a, b);
    })(a, b);
  const DType dtype = result_type(a, b) == kFloat32 ? kFloat32 : kFloat64;
  const Tensor x = a.to(dtype), y = b.to(dtype), apart = abs(x - y);
  Tensor close = eq(a, b) | (isfinite(apart) & (apart <= atol + rtol * abs(y)));
  return equal_nan ? close | (isnan(x) & isnan(y)) : close;
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}

bool equal(const Tensor& a, const Tensor& b) {
  view_of(a, "equal"), view_of(b, "equal");
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>();
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(condition, "where").dtype == kBool, "where: the condition is ", condition.dtype(), ", not bool");
  view_of(a, "where"), view_of(b, "where");
  const DType dtype = result_type(a, b);
  const Device device = common_device("where", {&condition, &a, &b});
  const Tensor at = operand_on(device, operand_as("where", a, dtype)),
               bt = operand_on(device, operand_as("where", b, dtype));
  const auto select = [&](const Shape& shape, const Tensor& condition, const Tensor& a, const Tensor& b) {
    Tensor y = make_tensor(shape, dtype, device);
    kernels_of(y).where(expand_view(view_of(condition), shape), expand_view(view_of(a), shape),
                        expand_view(view_of(b), shape), view_of(y));
    if (is_floating_point(dtype) && recording(a, b))
      record("where", y, inputs(a, b), [condition = SavedTensor(condition)](Backward& back) {
        const Tensor c = back.get(condition);
        if (back.needs(0)) back.set(0, where(c, back.grad(), 0));
        if (back.needs(1)) back.set(1, where(c, 0, back.grad()));
      });
    return y;
  };
  return call("where", {condition, at, bt}, {}, in_memory_order("where", select));
}

}  // namespace reel
