// This function writes vectors of numbers as elements of any type.
#pragma once
#include "lib/cpu/simd/halves.h"

namespace reel::cpu::REEL_ISA {

/// Writes the first n elements, 0 < n, of a vector, of which it may be all, in the type of elements E.
template <class E>
void store_rounded(E* p, const Batch<Compute<E>>& x, int64_t n) {
  constexpr bool is_wide = std::is_same_v<E, Compute<E>>;
  if (n >= kWidth<Compute<E>>) {
    if constexpr (is_wide)
      store(p, x);
    else
      store_narrow(p, x);
  } else {
    if constexpr (is_wide)
      store_part(p, x, n);
    else
      store_part_narrow(p, x, n);
  }
}

}  // namespace reel::cpu::REEL_ISA
