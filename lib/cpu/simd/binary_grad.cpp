// This file has the gradients of binary pointwise functions on float32 and float64, by vectors. In one file with the
// functions themselves they are so many that g++ does not inline their loops.
#include "lib/functors/binary.h"

#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/map_halves.h"
#include "lib/cpu/simd/power.h"
#include "lib/cpu/simd/tiles.h"

namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
using Functor = std::tuple_element_t<I, functors::BinaryList>;

enum class Side { kA, kB };

/// Returns whether all elements of x are one in memory: the gradient of a sum, say.
bool is_repeated(const View& x) {
  for (const int64_t stride : x.strides)
    if (stride != 0) return false;
  return true;
}

/// Computes out = grad(g, a, b, y) for n contiguous elements. It is not inlined, so that there is one such loop.
template <class T, class Grad>
[[gnu::noinline]] void map_contiguous(const Grad& grad, int64_t n, T* out, const T* g, const T* a, const T* b,
                                      const T* y) {
  map_flat<T>(grad, n, out, g, a, b, y);
}

/// Computes out = grad(g, a, b, y) for views.
template <class T, class Grad>
void map_grad(const Grad& grad, const View& out, const View& g, const View& a, const View& b, const View& y) {
  const bool others = out.contiguous && a.contiguous && b.contiguous && y.contiguous;
  T* const to = out.as<T>();
  const T *const pa = a.as<const T>(), *const pb = b.as<const T>(), *const py = y.as<const T>();
  if (others && g.contiguous) return map_contiguous<T>(grad, out.numel, to, g.as<const T>(), pa, pb, py);
  if (!others || !is_repeated(g) || out.numel == 0)
    return map_strided<T>(std::make_index_sequence<4>(), grad, out, g, a, b, y);
  constexpr int64_t kPiece = 1024;
  T same[kPiece];
  std::fill_n(same, std::min(kPiece, out.numel), *g.as<const T>());
  for (int64_t i = 0; i < out.numel; i += kPiece)
    map_contiguous<T>(grad, std::min(kPiece, out.numel - i), to + i, same, pa + i, pb + i, py + i);
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
  // An operand that the rule does not use has no view; another one takes its place.
  const View& none = g.contiguous ? g : out;
  const auto run = [&]<class T>(T) { map_grad<T>(grad, out, g, a ? *a : none, b ? *b : none, y ? *y : none); };
  switch (g.dtype) {
    case kFloat32: return run(float());
    case kFloat64: return run(double());
    default: break;
  }
  if constexpr (kIsCheap<Functor<I>>)
    if (map_halves(grad, out, g, a ? *a : none, b ? *b : none, y ? *y : none)) return;
  in_float32<binary_grad<I, side>>(functor, g, a, b, y, out);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::BinaryGrad grads_a[] = {Pointwise<binary_grad<I, Side::kA>>::run...};
  table.grad_a = grads_a;
  static constexpr KernelTable::BinaryGrad grads_b[] = {Pointwise<binary_grad<I, Side::kB>>::run...};
  table.grad_b = grads_b;
}

}  // namespace

void install_binary_grad(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::BinaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
