#pragma once
#include <array>

#include "lib/autograd/saved_log.h"
#include "lib/functors/pointwise.h"
#include "lib/ops/internal.h"

// How a functor of lib/functors/pointwise.h becomes an op: unary<functors::Tanh>("tanh", x),
// binary<functors::Add>("add", a, b).
//
// A result is row-major, but where all operands of its shape are one and the same permutation of row-major elements. It
// is that, too, then: elements are read and written in the order in which they lie in memory.
namespace reel {

/// The functors' vocabulary for T = Tensor.
inline Tensor select(const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }
inline Tensor nearbyint(const Tensor& x) { return round(x); }

/// A C++ number as one that kernels take beside elements of dtype: a float32, or float64.
Tensor number_as(DType dtype, const Tensor& number);
/// Converts x to the dtype in which the operands of `op` meet. A C++ integer that it cannot hold is an Error.
Tensor operand_as(const char* op, const Tensor& x, DType dtype);

/// Returns the functor that clamps elements of x to two bounds, if they are numbers that its dtype holds.
std::optional<functors::Clamp> clamp_of_numbers(const Tensor& x, const Bound& min, const Bound& max);
/// Throws an Error if a and b meet in an integer type and the host can read a zero in b.
void check_no_zero(const char* op, const Tensor& a, const Tensor& b);

/// x where the kernels of a device take it: there, but for a number of the host's, which goes with the launch.
inline Tensor operand_on(Device device, const Tensor& x) {
  return is_host_number(view_of(x)) && !needs_grad(x) ? x : x.to(device);
}

/// A MemoryOrder is the order in memory of the dimensions of operands that are all the same permutation of row-major
/// elements.
struct MemoryOrder {
  Shape shape;           // the result's
  Shape order, inverse;  // the dimensions, from the outermost to the innermost; their places in that order

  Shape permuted() const;  ///< The sizes in that order.

  /// Returns x, expanded to the shape, with its dimensions in that order. A number stays one.
  Tensor apply(const Tensor& x) const;
  /// Returns the result y with its dimensions in their own order. Nothing else refers to y.
  Tensor undo(const Tensor& y) const;
};
/// Returns the order of operands whose result has this shape, nothing if they are row-major or differ.
std::optional<MemoryOrder> memory_order(const Shape& shape, std::initializer_list<const View*> operands);

/// Returns the function of `op`'s operands that calls f(shape of the result, operands…): on row-major operands where
/// they are the same permutation of such.
template <class F>
auto in_memory_order(const char* op, const F& f) {
  return [op, &f](const auto&... operands) {
    Shape shape;
    ((shape = broadcast_shapes(shape, view_of(operands).shape, op)), ...);
    if (!(view_of(operands).contiguous && ...))
      if (const auto order = memory_order(shape, {&view_of(operands)...}))
        return order->undo(f(order->permuted(), order->apply(operands)...));
    return f(shape, operands...);
  };
}

/// Returns a tensor for the gradient of an input, which a rule computes from that of the result and from `read`. It has
/// the order in memory of the result's gradient, if what is read has that, too, and is row-major otherwise. With `keep`
/// it is another tensor than the result's gradient.
inline Tensor grad_buffer(Backward& back, std::initializer_list<const View*> read, bool keep = false) {
  const Tensor& g = back.grad();
  const View& view = view_of(g);
  if (!view.contiguous) [[unlikely]]
    for (const View* x : read)
      if (x && x->numel > 1 && x->strides != view.strides) return make_tensor(view.shape, view.dtype, g.device());
  return keep ? make_like(g, view.dtype) : back.take_grad_buffer();
}

template <bool read, int tag>
using SavedIf = std::conditional_t<read, SavedTensor, NotSaved<tag>>;

/// Functors whose derivative may be infinite or NaN where all that they save is finite.
template <class F>
inline constexpr bool kSteep =
    functors::kIsOneOf<F, functors::Sqrt, functors::Log, functors::Log1p, functors::Log2, functors::Log10,
                       functors::Asin, functors::Acos, functors::Acosh, functors::Atanh, functors::Logit, functors::Div,
                       functors::Pow, functors::Hypot, functors::Atan2, functors::Xlogy>;
/// Adds slopes(1) to the log of what is saved, which looks for infinite values: a rule multiplies by them.
template <class Slopes>
[[gnu::noinline, gnu::cold]] void log_slopes(const Tensor& y, Slopes slopes) {
  std::vector<Tensor>& log = *SavedTensorLog::current;
  const NoGrad guard;
  for (Tensor& slope : slopes(to_compute(ones_like(y)))) log.push_back(std::move(slope));
}

template <class F>
struct UnaryRule {
  [[no_unique_address]] F f;
  [[no_unique_address]] SavedIf<F::save != functors::kNothing, 0> saved;  // x or y, whichever F::save names

  void operator()(Backward& back) {
    const Tensor& g = back.grad();
    if (back.create_graph()) {  // in float32 for half types, whose range a slope's factors may leave, as kernels do
      const Tensor kept = to_compute(back.get(saved));
      const Tensor slope = f.grad(to_compute(g), F::save == functors::kInput ? kept : Tensor(),
                                  F::save == functors::kOutput ? kept : Tensor());
      back.set(0, slope.to(g.dtype()));
      return;
    }
    View room;
    const View* kept = back.view(saved, room);
    Tensor gx = grad_buffer(back, {kept});
    kernels_of(g).unary_grad[functors::index_of<functors::UnaryList, F>](
        &f, view_of(g), F::save == functors::kInput ? kept : nullptr, F::save == functors::kOutput ? kept : nullptr,
        view_of(gx));
    back.set(0, std::move(gx));
  }
};

/// Returns the numbers that a functor was made with, as attributes.
template <class F>
std::array<Attribute, 0> attributes_of(const F&) {
  return {};
}
inline auto attributes_of(const functors::Clamp& f) {
  return std::array<Attribute, 2>{{{"low", f.low}, {"high", f.high}}};
}
inline auto attributes_of(const functors::LeakyRelu& f) { return std::array<Attribute, 1>{{{"slope", f.slope}}}; }
inline auto attributes_of(const functors::Elu& f) {
  return std::array<Attribute, 3>{{{"alpha", f.alpha}, {"scale", f.scale}, {"input_scale", f.input_scale}}};
}
inline auto attributes_of(const functors::Hardshrink& f) { return std::array<Attribute, 1>{{{"lambda", f.lambda}}}; }
inline auto attributes_of(const functors::Softshrink& f) { return std::array<Attribute, 1>{{{"lambda", f.lambda}}}; }
inline auto attributes_of(const functors::Threshold& f) {
  return std::array<Attribute, 2>{{{"threshold", f.threshold}, {"value", f.value}}};
}
inline auto attributes_of(const functors::Logit& f) { return std::array<Attribute, 1>{{{"eps", f.eps}}}; }
inline auto attributes_of(const functors::Softplus& f) {
  return std::array<Attribute, 2>{{{"beta", f.beta}, {"threshold", f.threshold}}};
}
inline auto attributes_of(const functors::NanToNum& f) {
  return std::array<Attribute, 3>{{{"nan", f.nan}, {"max", f.max}, {"min", f.min}}};
}
inline auto attributes_of(const functors::Addcmul& f) { return std::array<Attribute, 1>{{{"value", f.value}}}; }
inline auto attributes_of(const functors::Addcdiv& f) { return std::array<Attribute, 1>{{{"value", f.value}}}; }

template <class F>
Tensor unary(Op op, const Tensor& x, F f = {});

/// Returns the result of unary if x is a permutation of row-major elements, or an undefined tensor.
template <class F>
[[gnu::noinline, gnu::cold]] Tensor unary_in_memory_order(Op op, const Tensor& x, F f) {
  const auto order = memory_order(view_of(x).shape, {&view_of(x)});
  return order ? order->undo(unary(op, order->apply(x), f)) : Tensor();
}

template <class F>
Tensor unary(Op op, const Tensor& x, F f) {
  const View& xv = view_of(x, op);
  const bool floating = is_floating_point(xv.dtype);
  if (!floating && (!F::kIntegers || xv.dtype == kBool)) return unary(op, x.to(F::kIntegers ? kUInt8 : kFloat32), f);
  if (op.concerns(op_modes)) [[unlikely]]
    return call_in_modes(op, {x}, attributes_of(f), [&](const Tensor& x) { return unary(op, x, f); });
  if (!xv.contiguous) [[unlikely]]
    if (Tensor y = unary_in_memory_order(op, x, f); y.defined()) return y;
  Tensor y = make_tensor(xv.shape, xv.dtype, TensorImpl::of(x)->device());
  kernels_of(y).unary[functors::index_of<functors::UnaryList, F>](&f, xv, view_of(y));
  if (floating && recording(x)) {
    if constexpr (kSteep<F>) {
      if (SavedTensorLog::current && view_of(y).host) [[unlikely]]
        log_slopes(y, [&](const Tensor& one) {
          return std::array{f.grad(one, F::save == functors::kInput ? to_compute(x) : Tensor(),
                                   F::save == functors::kOutput ? to_compute(y) : Tensor())};
        });
    }
    record(op, y, inputs(x),
           UnaryRule<F>{f, F::save == functors::kInput    ? SavedTensor(x)
                           : F::save == functors::kOutput ? SavedTensor::output(y)
                                                          : SavedTensor()});
  }
  return y;
}

// ---- two arguments --------------------------------------------------------------------------------------------------

template <class F>
struct BinaryRule {
  static constexpr int reads = F::save_a | F::save_b;
  [[no_unique_address]] F f;
  [[no_unique_address]] SavedIf<(reads & functors::kA) != 0, 0> a;
  [[no_unique_address]] SavedIf<(reads & functors::kB) != 0, 1> b;
  [[no_unique_address]] SavedIf<(reads & functors::kOutput) != 0, 2> y;

  void operator()(Backward& back) {
    const bool wants_a = back.needs(0), wants_b = back.needs(1);
    const Tensor& g = back.grad();
    if (back.create_graph()) {
      const Tensor at = to_compute(back.get(a)), bt = to_compute(back.get(b)), yt = to_compute(back.get(y)),
                   gt = to_compute(g);
      if (wants_a) back.set(0, F::save_a == functors::kSame ? g : f.grad_a(gt, at, bt, yt).to(g.dtype()));
      if (wants_b) back.set(1, F::save_b == functors::kSame ? g : f.grad_b(gt, at, bt, yt).to(g.dtype()));
      return;
    }
    constexpr size_t row = functors::index_of<functors::BinaryList, F>;
    if (wants_a) {
      if constexpr (F::save_a == functors::kSame)
        back.set(0, g);
      else
        back.set(0, launch(back, kernels_of(g).grad_a[row], F::save_a, wants_b));
    }
    if (wants_b) {
      if constexpr (F::save_b == functors::kSame)
        back.set(1, g);
      else
        back.set(1, launch(back, kernels_of(g).grad_b[row], F::save_b, false));
    }
  }

  Tensor launch(Backward& back, KernelTable::BinaryGrad kernel, int reads, bool keep) {
    const Tensor& g = back.grad();
    View rooms[3];
    const View* const av = reads & functors::kA ? back.view(a, rooms[0]) : nullptr;
    const View* const bv = reads & functors::kB ? back.view(b, rooms[1]) : nullptr;
    const View* const yv = reads & functors::kOutput ? back.view(y, rooms[2]) : nullptr;
    Tensor out = grad_buffer(back, {av, bv, yv}, keep);
    kernel(&f, view_of(g), operand(av, g.shape(), rooms[0]), operand(bv, g.shape(), rooms[1]), yv, view_of(out));
    return out;
  }
  static const View* operand(const View* view, const Shape& shape, View& wide) {
    if (!view || view->shape == shape) return view;
    wide = expand_view(*view, shape);
    return &wide;
  }
};

template <class F>
Tensor binary_same(Op op, const Tensor& a, const Tensor& b, const Tensor& leading, F f = {});

/// Returns the result of binary_same if the operands are one permutation of row-major elements, or an undefined tensor.
template <class F>
[[gnu::noinline, gnu::cold]] Tensor binary_in_memory_order(Op op, const Tensor& a, const Tensor& b,
                                                           const Tensor& leading, F f) {
  const View &av = view_of(a), &bv = view_of(b);
  const auto order = memory_order(broadcast_shapes(av.shape, bv.shape, op), {&av, &bv});
  return order ? order->undo(binary_same<F>(op, order->apply(a), order->apply(b), leading, f)) : Tensor();
}

/// The operands are what the kernels take: of one dtype, but that a number beside halves is a float32. `leading` is one
/// of them that has the result's dtype and device.
template <class F>
Tensor binary_same(Op op, const Tensor& a, const Tensor& b, const Tensor& leading, F f) {
  if (op.concerns(op_modes)) [[unlikely]]
    return call_in_modes(op, {a, b}, {},
                         [&](const Tensor& a, const Tensor& b) { return binary_same<F>(op, a, b, leading, f); });
  const View &av = view_of(a), &bv = view_of(b);
  if (!(av.contiguous & bv.contiguous)) [[unlikely]]
    if (Tensor y = binary_in_memory_order(op, a, b, leading, f); y.defined()) return y;
  const DType dtype = view_of(leading).dtype;
  Tensor y;
  if (av.shape == bv.shape) {
    y = make_tensor(av.shape, dtype, TensorImpl::of(leading)->device());
    kernels_of(y).binary[functors::index_of<functors::BinaryList, F>](&f, av, bv, view_of(y));
  } else {
    y = make_tensor(broadcast_shapes(av.shape, bv.shape, op), dtype, common_device(op, {&a, &b}));
    const Shape& shape = view_of(y).shape;
    kernels_of(y).binary[functors::index_of<functors::BinaryList, F>](&f, expand_view(av, shape),
                                                                      expand_view(bv, shape), view_of(y));
  }
  if (is_floating_point(dtype) && recording(a, b)) {
    const int reads = (needs_grad(a) ? F::save_a : 0) | (needs_grad(b) ? F::save_b : 0);
    if constexpr (kSteep<F>) {
      if (SavedTensorLog::current && view_of(y).host) [[unlikely]]
        log_slopes(y, [&](const Tensor& one) {
          const Tensor at = to_compute(a), bt = to_compute(b), yt = to_compute(y);
          return std::array{needs_grad(a) ? f.grad_a(one, at, bt, yt) : Tensor(),
                            needs_grad(b) ? f.grad_b(one, at, bt, yt) : Tensor()};
        });
    }
    record(op, y, inputs(a, b),
           BinaryRule<F>{f, saved_if(reads & functors::kA, a), saved_if(reads & functors::kB, b),
                         reads & functors::kOutput ? SavedTensor::output(y) : SavedTensor()});
  }
  return y;
}

template <class F>
Tensor binary(Op op, const Tensor& a, const Tensor& b) {
  const View &av = view_of(a, op), &bv = view_of(b, op);
  const bool a_is_number = TensorImpl::of(a)->is_wrapped_number, b_is_number = TensorImpl::of(b)->is_wrapped_number;
  if (a_is_number != b_is_number) {
    if (b_is_number && !needs_grad(b) && is_floating_point(av.dtype))
      return binary_same<F>(op, a, number_as(av.dtype, b), a);
    if (a_is_number && !needs_grad(a) && is_floating_point(bv.dtype))
      return binary_same<F>(op, number_as(bv.dtype, a), b, b);
  }
  // One of two operands of one dtype may be a number of the host's.
  const auto leading = [](const Tensor& a, const Tensor& b) -> const Tensor& { return view_of(a).host ? b : a; };
  if (av.dtype == bv.dtype && is_floating_point(av.dtype) && !(a_is_number && b_is_number)) {
    if (TensorImpl::of(a)->device() != TensorImpl::of(b)->device()) common_device(op, {&a, &b});
    return binary_same<F>(op, a, b, leading(a, b));
  }
  const Device device = common_device(op, {&a, &b});
  const DType result = result_type(a, b);
  // Bools meet in uint8, integers of an op that has none in float32.
  const DType meet = !F::kIntegers && !is_floating_point(result) ? kFloat32 : result == kBool ? kUInt8 : result;
  const Tensor at = operand_on(device, operand_as(op, a, meet)), bt = operand_on(device, operand_as(op, b, meet));
  const Tensor y = binary_same<F>(op, at, bt, leading(at, bt));
  return F::kIntegers && result == kBool ? y.to(result) : y;
}

}  // namespace reel
