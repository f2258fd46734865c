#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/map_halves.h"
#include "lib/cpu/simd/special.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/functors/unary.h"

// Gradients of unary pointwise functions on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
void unary_grad(const void* functor, const View& g, const View* x, const View* y, const View& gx) {
  using F = std::tuple_element_t<I, functors::UnaryList>;
  const F& f = *static_cast<const F*>(functor);
  const auto grad = [&f](const auto& g, const auto& x, const auto& y) { return f.grad(g, x, y); };
  // An operand that the rule does not use has no view; g takes its place.
  switch (g.dtype) {
    case kFloat32: return map<float>(grad, gx, g, x ? *x : g, y ? *y : g);
    case kFloat64: return map<double>(grad, gx, g, x ? *x : g, y ? *y : g);
    default: break;
  }
  if constexpr (kIsCheap<F>)
    if (map_halves(grad, gx, g, x ? *x : g, y ? *y : g)) return;
  in_float32<unary_grad<I>>(functor, g, x, y, gx);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::UnaryGrad rows[] = {Pointwise<unary_grad<I>>::run...};
  table.unary_grad = rows;
}

}  // namespace

void install_unary_grad(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::UnaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
