#include "lib/functors/binary.h"

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/integer.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/map_halves.h"
#include "lib/cpu/simd/power.h"
#include "lib/cpu/simd/tiles.h"

// Binary pointwise functions on float32 and float64, by vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
using Functor = std::tuple_element_t<I, functors::BinaryList>;

bool is_one_number(const View& x) {
  for (int d = 0; d < x.shape.size(); ++d)
    if (x.shape[d] != 1 && x.strides[d] != 0) return false;
  return true;
}

/// Computes y = op(a, b), where b may be one number.
template <class T, class F>
void apply(const F& f, const View& a, const View& b, const View& y) {
  if constexpr (std::is_same_v<F, functors::Pow>)
    if (y.numel > 1 && is_one_number(b) &&
        with_short_power(*b.as<const T>(), [&](const auto& power) { map<T>(power, y, a); }))
      return;
  map<T>(f, y, a, b);
}

/// Computes y = a^b of halves in registers, if b is one number with a short power. Returns whether it does.
bool map_short_power(const View& a, const View& b, const View& y) {
  if (y.numel == 0 || !is_one_number(b)) return false;
  const float exponent = b.dtype == kFloat32   ? *b.as<const float>()
                         : b.dtype == kFloat16 ? widen(*b.as<const Float16>())
                                               : widen(*b.as<const BFloat16>());
  bool done = false;
  with_short_power(exponent, [&](const auto& power) { done = map_halves(power, y, a); });
  return done;
}

template <size_t I>
void binary(const void* functor, const View& a, const View& b, const View& y) {
  const auto& f = *static_cast<const Functor<I>*>(functor);
  switch (y.dtype) {
    case kFloat32: return apply<float>(f, a, b, y);
    case kFloat64: return apply<double>(f, a, b, y);
    default: break;
  }
  if (is_half(y.dtype)) {
    if constexpr (kIsCheap<Functor<I>>)
      if (map_halves(f, y, a, b)) return;
    if constexpr (std::is_same_v<Functor<I>, functors::Pow>)
      if (map_short_power(a, b, y)) return;
    return in_float32<binary<I>>(functor, a, b, y);
  }
  integer_binary[I](functor, a, b, y);
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Binary rows[] = {Pointwise<binary<I>>::run...};
  table.binary = rows;
}

}  // namespace

void install_binary(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::BinaryList>>());
}

}  // namespace reel::cpu::REEL_ISA
