#include "lib/functors/ternary.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/map_halves.h"
#include "lib/cpu/simd/tiles.h"

// Ternary pointwise functions on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
void ternary(const void* functor, const View& a, const View& b, const View& c, const View& y) {
  const auto& f = *static_cast<const std::tuple_element_t<I, functors::TernaryList>*>(functor);
  if (is_half(y.dtype)) return map_halves(f, y, a, b, c) ? void() : in_float32<ternary<I>>(functor, a, b, c, y);
  a.dtype == kFloat32 ? map<float>(f, y, a, b, c) : map<double>(f, y, a, b, c);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Ternary rows[] = {Pointwise<ternary<I>>::run...};
  table.ternary = rows;
}

}  // namespace

void install_ternary(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::TernaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
