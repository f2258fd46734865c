#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/map.h"
#include "lib/scalar.h"

// Gradients of unary pointwise functions on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
void unary_grad(const void* functor, const View& g, const View* x, const View* y, const View& gx) {
  using F = std::tuple_element_t<I, scalar::UnaryList>;
  const F& f = *static_cast<const F*>(functor);
  const auto grad = [&f](const auto& g, const auto& x, const auto& y) { return f.grad(g, x, y); };
  // An operand that the rule does not use has no view; g takes its place.
  if (g.dtype == kFloat32) {
    map<float>(grad, gx, g, x ? *x : g, y ? *y : g);
  } else {
    map<double>(grad, gx, g, x ? *x : g, y ? *y : g);
  }
}

template <size_t... I>
void install(Backend& table, std::index_sequence<I...>) {
  static constexpr Backend::UnaryGrad rows[] = {unary_grad<I>...};
  table.unary_grad = rows;
}

}  // namespace

void install_unary_grad(Backend& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<scalar::UnaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
