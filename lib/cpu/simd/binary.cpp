#include "lib/functors/binary.h"

#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/integer.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/power.h"

// Binary pointwise functions and their gradients on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
using Functor = std::tuple_element_t<I, functors::BinaryList>;

/// y = op(a, b), where b may be one number.
template <class T, class F>
void apply(const F& f, const View& a, const View& b, const View& y) {
  if constexpr (std::is_same_v<F, functors::Pow>) {
    bool is_number = y.numel > 1;
    for (int d = 0; d < b.shape.size(); ++d) is_number = is_number && (b.shape[d] == 1 || b.strides[d] == 0);
    if (is_number && with_short_power(*b.as<const T>(), [&](const auto& power) { map<T>(power, y, a); })) return;
  }
  map<T>(f, y, a, b);
}

template <size_t I>
void binary(const void* functor, const View& a, const View& b, const View& y) {
  const auto& f = *static_cast<const Functor<I>*>(functor);
  switch (y.dtype) {
    case kFloat32: return apply<float>(f, a, b, y);
    case kFloat64: return apply<double>(f, a, b, y);
    default: break;
  }
  if (is_half(y.dtype)) return in_float32<binary<I>>(functor, a, b, y);
  integer_binary[I](functor, a, b, y);
}

enum class Side { kA, kB };

/// Whether all elements of x are one in memory: the gradient of a sum, say.
bool is_repeated(const View& x) {
  for (const int64_t stride : x.strides)
    if (stride != 0) return false;
  return true;
}

/// out = grad(g, a, b, y) for a g whose elements are one; false, having done nothing, where another one is strided.
template <class T, class Grad>
bool map_repeated(const Grad& grad, const View& out, const View& g, const View& a, const View& b, const View& y) {
  if (!out.contiguous || !a.contiguous || !b.contiguous || !y.contiguous || !is_repeated(g)) return false;
  constexpr int64_t kPiece = 1024;
  T same[kPiece];
  std::fill_n(same, std::min(kPiece, out.numel), *g.as<const T>());
  for (int64_t i = 0; i < out.numel; i += kPiece)
    map_flat<T>(grad, std::min(kPiece, out.numel - i), out.as<T>() + i, same, a.as<const T>() + i, b.as<const T>() + i,
                y.as<const T>() + i);
  return true;
}

template <size_t I, Side side>
void binary_grad(const void* functor, const View& g, const View* a, const View* b, const View* y, const View& out) {
  const auto& f = *static_cast<const Functor<I>*>(functor);
  const auto grad = [&f](const auto& g, const auto& a, const auto& b, const auto& y) {
    if constexpr (side == Side::kA)
      return f.grad_a(g, a, b, y);
    else
      return f.grad_b(g, a, b, y);
  };
  const auto run = [&]<class T>(T) {
    // An operand that the rule does not use has no view; another one takes its place.
    if (out.numel > 1 && map_repeated<T>(grad, out, g, a ? *a : out, b ? *b : out, y ? *y : out)) return;
    map<T>(grad, out, g, a ? *a : g, b ? *b : g, y ? *y : g);
  };
  switch (g.dtype) {
    case kFloat32: return run(float());
    case kFloat64: return run(double());
    default: break;
  }
  in_float32<binary_grad<I, side>>(functor, g, a, b, y, out);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Binary rows[] = {Divided<binary<I>>::run...};
  table.binary = rows;
  static constexpr KernelTable::BinaryGrad grads_a[] = {Divided<binary_grad<I, Side::kA>>::run...};
  table.grad_a = grads_a;
  static constexpr KernelTable::BinaryGrad grads_b[] = {Divided<binary_grad<I, Side::kB>>::run...};
  table.grad_b = grads_b;
}

}  // namespace

void install_binary(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::BinaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
