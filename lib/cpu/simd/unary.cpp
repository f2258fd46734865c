#include "lib/functors/unary.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/integer.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/map_halves.h"
#include "lib/cpu/simd/special.h"
#include "lib/cpu/simd/tiles.h"

// Unary pointwise functions on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
void unary(const void* functor, const View& x, const View& y) {
  using F = std::tuple_element_t<I, functors::UnaryList>;
  const F& f = *static_cast<const F*>(functor);
  switch (x.dtype) {
    case kFloat32: return map<float>(f, y, x);
    case kFloat64: return map<double>(f, y, x);
    default: break;
  }
  if (is_half(x.dtype)) {
    // The sign is the first bit of both half types.
    if constexpr (std::is_same_v<F, functors::Neg>)
      return map_elements<uint16_t, uint16_t>([](uint16_t bits) { return bits ^ 0x8000; }, y, x);
    else if constexpr (std::is_same_v<F, functors::Abs>)
      return map_elements<uint16_t, uint16_t>([](uint16_t bits) { return bits & 0x7fff; }, y, x);
    else if constexpr (kIsCheap<F>)
      if (map_halves(f, y, x)) return;
    return in_float32<unary<I>>(functor, x, y);
  }
  integer_unary[I](functor, x, y);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Unary rows[] = {Pointwise<unary<I>>::run...};
  table.unary = rows;
}

}  // namespace

void install_unary(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::UnaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
