#include <algorithm>

#include "lib/ops/internal.h"
#include "lib/scalar.h"

namespace reel {

// ---- types ----------------------------------------------------------------------------------------------------------

namespace {
int category(DType type) { return type == kBool ? 0 : reel::is_floating_point(type) ? 2 : 1; }
int rank_in_promotion(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  return impl->number ? 0 : impl->view.shape.empty() ? 1 : 2;
}
// A C++ double is a float32 as far as types go.
DType own_type(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  return impl->number && impl->view.dtype == kFloat64 ? kFloat32 : impl->view.dtype;
}
}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  const int ra = rank_in_promotion(a), rb = rank_in_promotion(b);
  const DType ta = own_type(a), tb = own_type(b);
  if (ra == rb) return promote_types(ta, tb);
  const DType high = ra > rb ? ta : tb, low = ra > rb ? tb : ta;
  return category(high) >= category(low) ? high : low;
}

Device common_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined() || (TensorImpl::of(*t)->view.shape.empty() && t->device() == kCPU)) continue;
    if (!first) first = t;
    REEL_CHECK(t->device() == first->device(), op, ": tensors on different devices, ", first->device(), " and ",
               t->device());
  }
  return first ? first->device() : (*tensors.begin())->device();
}

// ---- the functors' vocabulary for T = Tensor ------------------------------------------------------------------------

static Tensor select(const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }

// ---- one argument ---------------------------------------------------------------------------------------------------

namespace {

using scalar::index_of, scalar::kA, scalar::kB, scalar::kInput, scalar::kNothing, scalar::kOutput, scalar::kSame;

template <bool read, int tag>
using SavedIf = std::conditional_t<read, Saved, NotSaved<tag>>;

template <class F>
struct UnaryRule {
  [[no_unique_address]] F f;
  [[no_unique_address]] SavedIf<F::save != kNothing, 0> saved;  // x or y, whichever F::save names

  void operator()(Backward& back) {
    const Tensor& g = back.grad();
    const Tensor kept = back.get(saved);
    if (back.create_graph()) {
      back.set(0, f.grad(g, F::save == kInput ? kept : Tensor(), F::save == kOutput ? kept : Tensor()));
      return;
    }
    const View* view = F::save == kNothing ? nullptr : &view_of(kept);
    Tensor gx = make_tensor(g.shape(), g.dtype(), g.device());
    backend_of(g).unary_grad[index_of<scalar::UnaryList, F>](&f, view_of(g), F::save == kInput ? view : nullptr,
                                                             F::save == kOutput ? view : nullptr, view_of(gx));
    back.set(0, std::move(gx));
  }
};

template <class F>
Tensor unary(const char* name, const Tensor& x, F f = {}) {
  const View& xv = view_of(x, name);
  if (is_half(xv.dtype)) return unary(name, x.to(kFloat32), f).to(xv.dtype);
  if (!is_floating_point(xv.dtype) && (!F::kIntegers || xv.dtype == kBool))
    return unary(name, x.to(F::kIntegers ? kUInt8 : kFloat32), f);
  Tensor y = make_tensor(xv.shape, xv.dtype, TensorImpl::of(x)->device());
  backend_of(y).unary[index_of<scalar::UnaryList, F>](&f, xv, view_of(y));
  if (is_floating_point(xv.dtype) && recording(x))
    record(name, y, inputs(x),
           UnaryRule<F>{f, F::save == kInput    ? Saved(x)
                           : F::save == kOutput ? Saved::output(y)
                                                : Saved()});
  return y;
}

}  // namespace

Tensor neg(const Tensor& x) {
  REEL_CHECK(view_of(x, "neg").dtype != kBool, "neg: a bool tensor; logical_not inverts it");
  return unary<scalar::Neg>("neg", x);
}
Tensor operator-(const Tensor& x) { return neg(x); }
Tensor abs(const Tensor& x) { return unary<scalar::Abs>("abs", x); }
Tensor sign(const Tensor& x) { return unary<scalar::Sign>("sign", x); }
Tensor exp(const Tensor& x) { return unary<scalar::Exp>("exp", x); }
Tensor expm1(const Tensor& x) { return unary<scalar::Expm1>("expm1", x); }
Tensor log(const Tensor& x) { return unary<scalar::Log>("log", x); }
Tensor log1p(const Tensor& x) { return unary<scalar::Log1p>("log1p", x); }
Tensor sqrt(const Tensor& x) { return unary<scalar::Sqrt>("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary<scalar::Rsqrt>("rsqrt", x); }
Tensor square(const Tensor& x) { return unary<scalar::Square>("square", x); }
Tensor reciprocal(const Tensor& x) { return unary<scalar::Reciprocal>("reciprocal", x); }
Tensor sin(const Tensor& x) { return unary<scalar::Sin>("sin", x); }
Tensor cos(const Tensor& x) { return unary<scalar::Cos>("cos", x); }
Tensor tanh(const Tensor& x) { return unary<scalar::Tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<scalar::Sigmoid>("sigmoid", x); }
Tensor erf(const Tensor& x) { return unary<scalar::Erf>("erf", x); }
Tensor relu(const Tensor& x) { return unary<scalar::Relu>("relu", x); }
Tensor gelu(const Tensor& x) { return unary<scalar::Gelu>("gelu", x); }
Tensor silu(const Tensor& x) { return x * sigmoid(x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary("leaky_relu", x, scalar::LeakyRelu{negative_slope});
}
Tensor elu(const Tensor& x, double alpha) { return unary("elu", x, scalar::Elu{alpha}); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  REEL_CHECK(beta > 0, "softplus: beta ", beta, " is not positive");
  return unary("softplus", x, scalar::Softplus{beta, threshold});
}

// Integers are whole already.
template <class F>
static Tensor rounded(const char* name, const Tensor& x) {
  return is_floating_point(view_of(x, name).dtype) ? unary<F>(name, x) : x.clone();
}
Tensor floor(const Tensor& x) { return rounded<scalar::Floor>("floor", x); }
Tensor ceil(const Tensor& x) { return rounded<scalar::Ceil>("ceil", x); }
Tensor round(const Tensor& x) { return rounded<scalar::Round>("round", x); }

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  REEL_CHECK(min || max, "clamp: neither a minimum nor a maximum");
  const View& xv = view_of(x, "clamp");
  const auto above = [&](const Tensor& t) { return max ? minimum(t, *max) : t; };
  if (!is_floating_point(xv.dtype)) return above(min ? maximum(x, *min) : x);
  const double infinity = std::numeric_limits<double>::infinity();
  return unary("clamp", x, scalar::Clamp{min ? min->to<double>() : -infinity, max ? max->to<double>() : infinity});
}

// ---- two arguments --------------------------------------------------------------------------------------------------

namespace {

template <class F>
struct BinaryRule {
  static constexpr int reads = F::save_a | F::save_b;
  [[no_unique_address]] F f;
  [[no_unique_address]] SavedIf<(reads & kA) != 0, 0> a;
  [[no_unique_address]] SavedIf<(reads & kB) != 0, 1> b;
  [[no_unique_address]] SavedIf<(reads & kOutput) != 0, 2> y;

  void operator()(Backward& back) {
    const bool wants_a = back.needs(0), wants_b = back.needs(1);
    const Tensor& g = back.grad();
    const Tensor at = back.get(a), bt = back.get(b), yt = back.get(y);
    if (wants_a) {
      if constexpr (F::save_a == kSame)
        back.set(0, g);
      else if (back.create_graph())
        back.set(0, f.grad_a(g, at, bt, yt));
      else
        back.set(0, launch(backend_of(g).grad_a[index_of<scalar::BinaryList, F>], F::save_a, g, at, bt, yt));
    }
    if (wants_b) {
      if constexpr (F::save_b == kSame)
        back.set(1, g);
      else if (back.create_graph())
        back.set(1, f.grad_b(g, at, bt, yt));
      else
        back.set(1, launch(backend_of(g).grad_b[index_of<scalar::BinaryList, F>], F::save_b, g, at, bt, yt));
    }
  }

  Tensor launch(Backend::BinaryGrad kernel, int reads, const Tensor& g, const Tensor& at, const Tensor& bt,
                const Tensor& yt) {
    Tensor out = make_tensor(g.shape(), g.dtype(), g.device());
    View wide_a, wide_b;
    kernel(&f, view_of(g), operand(reads & kA, at, g.shape(), wide_a), operand(reads & kB, bt, g.shape(), wide_b),
           reads & kOutput ? &view_of(yt) : nullptr, view_of(out));
    return out;
  }
  static const View* operand(int read, const Tensor& x, const Shape& shape, View& wide) {
    if (!read) return nullptr;
    const View& view = view_of(x);
    if (view.shape == shape) return &view;
    wide = expand_view(view, shape);
    return &wide;
  }
};

// Operands of one dtype that the kernels know.
template <class F>
Tensor binary_same(const char* name, const Tensor& a, const Tensor& b) {
  const View &av = view_of(a), &bv = view_of(b);
  const F f;
  Tensor y;
  if (av.shape == bv.shape) {
    y = make_tensor(av.shape, av.dtype, TensorImpl::of(a)->device());
    backend_of(y).binary[index_of<scalar::BinaryList, F>](&f, av, bv, view_of(y));
  } else {
    y = make_tensor(broadcast_shapes(av.shape, bv.shape, name), av.dtype, common_device(name, {&a, &b}));
    const Shape& shape = view_of(y).shape;
    backend_of(y).binary[index_of<scalar::BinaryList, F>](&f, expand_view(av, shape), expand_view(bv, shape),
                                                          view_of(y));
  }
  if (is_floating_point(av.dtype) && recording(a, b)) {
    const int reads = (tracked(a) ? F::save_a : 0) | (tracked(b) ? F::save_b : 0);
    record(name, y, inputs(a, b),
           BinaryRule<F>{f, saved_if(reads & kA, a), saved_if(reads & kB, b),
                         reads & kOutput ? Saved::output(y) : Saved()});
  }
  return y;
}

// A C++ number as a 0-d tensor of the floating-point type of the other operand.
Tensor number_as(DType dtype, const Tensor& number) {
  Tensor value = make_tensor({}, dtype);
  const double exact = number.item<double>();
  if (dtype == kFloat32)
    *view_of(value).as<float>() = static_cast<float>(exact);
  else
    *view_of(value).as<double>() = exact;
  return value;
}

template <class F>
Tensor binary(const char* name, const Tensor& a, const Tensor& b) {
  const View &av = view_of(a, name), &bv = view_of(b, name);
  const auto meets_number = [](const Tensor& x, const Tensor& number) {
    const TensorImpl* impl = TensorImpl::of(x);
    return TensorImpl::of(number)->number && !tracked(number) && !impl->number && impl->device() == kCPU &&
           (impl->view.dtype == kFloat32 || impl->view.dtype == kFloat64);
  };
  if (meets_number(a, b)) return binary_same<F>(name, a, number_as(av.dtype, b));
  if (meets_number(b, a)) return binary_same<F>(name, number_as(bv.dtype, a), b);
  if (av.dtype == bv.dtype && (av.dtype == kFloat32 || av.dtype == kFloat64) &&
      !(TensorImpl::of(a)->number && TensorImpl::of(b)->number)) {
    if (TensorImpl::of(a)->device() != TensorImpl::of(b)->device()) common_device(name, {&a, &b});
    return binary_same<F>(name, a, b);
  }
  const Device device = common_device(name, {&a, &b});
  const DType result = result_type(a, b);
  // Half types meet in float32, bools in uint8, integers of an op that has none in float32.
  const DType meet = is_half(result)                               ? kFloat32
                     : !F::kIntegers && !is_floating_point(result) ? kFloat32
                     : result == kBool                             ? kUInt8
                                                                   : result;
  const Tensor y = binary_same<F>(name, a.to(meet).to(device), b.to(meet).to(device));
  return is_half(result) || (F::kIntegers && result == kBool) ? y.to(result) : y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary<scalar::Add>("add", a, b); }
Tensor sub(const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(a, "sub").dtype != kBool || view_of(b, "sub").dtype != kBool,
             "sub: bool tensors; logical_xor or logical_not is meant");
  return binary<scalar::Sub>("sub", a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) { return binary<scalar::Mul>("mul", a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<scalar::Div>("div", a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary<scalar::Maximum>("maximum", a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary<scalar::Minimum>("minimum", a, b); }

namespace {
void check_no_zero(const char* name, const Tensor& divisor, DType result) {
  if (is_floating_point(result)) return;
  REEL_CHECK(!any(divisor == 0).item<bool>(), name, ": integer division by zero");
}
}  // namespace
Tensor fmod(const Tensor& a, const Tensor& b) {
  view_of(a, "fmod"), view_of(b, "fmod");
  check_no_zero("fmod", b, result_type(a, b));
  return binary<scalar::Fmod>("fmod", a, b);
}

Tensor pow(const Tensor& base, const Tensor& exponent) {
  view_of(base, "pow");
  // The everyday exponents, without the cost of a general power.
  if (view_of(exponent, "pow").numel == 1 && TensorImpl::of(exponent)->number && !tracked(exponent) &&
      is_floating_point(base.dtype())) {
    const double p = exponent.item<double>();
    if (p == 2) return square(base);
    if (p == 0.5) return sqrt(base);
    if (p == -1) return reciprocal(base);
  }
  if (const DType result = result_type(base, exponent); !is_floating_point(result) && result != kUInt8)
    REEL_CHECK(!any(exponent < 0).item<bool>(), "pow: integers to negative integer powers; make one of them floating");
  return binary<scalar::Pow>("pow", base, exponent);
}

Tensor accumulate(const Tensor& a, const Tensor& b) { return add(a, b); }

// ---- comparison and logic -------------------------------------------------------------------------------------------

namespace {
template <class F>
Tensor compare(const char* name, const Tensor& a, const Tensor& b, bool logical = false) {
  const View &av = view_of(a, name), &bv = view_of(b, name);
  const Device device = common_device(name, {&a, &b});
  DType meet = logical ? promote_types(av.dtype, bv.dtype) : result_type(a, b);
  if (is_half(meet)) meet = kFloat32;
  const bool bools = meet == kBool;
  NoGrad guard;
  const Tensor ac = a.to(bools ? kUInt8 : meet).to(device), bc = b.to(bools ? kUInt8 : meet).to(device);
  Tensor y = make_tensor(broadcast_shapes(av.shape, bv.shape, name), kBool, device);
  const Shape& shape = view_of(y).shape;
  const F f;
  backend_of(y).compare[index_of<scalar::CompareList, F>](&f, expand_view(view_of(ac), shape),
                                                          expand_view(view_of(bc), shape), view_of(y));
  return y;
}
}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare<scalar::Eq>("eq", a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare<scalar::Ne>("ne", a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare<scalar::Lt>("lt", a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare<scalar::Le>("le", a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare<scalar::Lt>("gt", b, a); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare<scalar::Le>("ge", b, a); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return compare<scalar::LogicalAnd>("logical_and", a, b, true); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return compare<scalar::LogicalOr>("logical_or", a, b, true); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return compare<scalar::LogicalXor>("logical_xor", a, b, true); }
Tensor logical_not(const Tensor& x) { return compare<scalar::Eq>("logical_not", x, false); }

namespace {
const Tensor& only_bool(const char* op, const Tensor& x) {
  REEL_CHECK(view_of(x, op).dtype == kBool, op, ": a tensor of ", x.dtype(), ", not bool");
  return x;
}
}  // namespace
Tensor operator&(const Tensor& a, const Tensor& b) {
  return logical_and(only_bool("operator&", a), only_bool("operator&", b));
}
Tensor operator|(const Tensor& a, const Tensor& b) {
  return logical_or(only_bool("operator|", a), only_bool("operator|", b));
}
Tensor operator!(const Tensor& x) { return logical_not(only_bool("operator!", x)); }

bool equal(const Tensor& a, const Tensor& b) {
  view_of(a, "equal"), view_of(b, "equal");
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>();
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(condition, "where").dtype == kBool, "where: the condition is ", condition.dtype(), ", not bool");
  view_of(a, "where"), view_of(b, "where");
  const DType dtype = result_type(a, b);
  const Device device = common_device("where", {&condition, &a, &b});
  const Tensor at = a.to(dtype).to(device), bt = b.to(dtype).to(device);
  const Shape shape = broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  Tensor y = make_tensor(shape, dtype, device);
  backend_of(y).where(expand_view(view_of(condition), shape), expand_view(view_of(at), shape),
                      expand_view(view_of(bt), shape), view_of(y));
  if (is_floating_point(dtype) && recording(at, bt))
    record("where", y, inputs(at, bt), [condition = Saved(condition)](Backward& back) {
      const Tensor c = back.get(condition);
      const Tensor zero = zeros({}, {.dtype = back.grad().dtype(), .device = back.grad().device()});
      if (back.needs(0)) back.set(0, where(c, back.grad(), zero));
      if (back.needs(1)) back.set(1, where(c, zero, back.grad()));
    });
  return y;
}

}  // namespace reel
