// This file has the pointwise ops on integers, whose loops the compiler vectorises. Overflow wraps around
// (lib/CMakeLists.txt).
#include "lib/cpu/simd/integer.h"

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/functors/binary.h"
#include "lib/functors/bits.h"
#include "lib/functors/unary.h"

namespace reel::cpu::REEL_ISA {
namespace {

template <class F, class... Operands>
void apply(const F& f, DType dtype, const View& y, const Operands&... x) {
  switch (dtype) {
    case kInt32: return map_elements<int32_t, int32_t>(f, y, x...);
    case kInt64: return map_elements<int64_t, int64_t>(f, y, x...);
    default: return map_elements<uint8_t, uint8_t>(f, y, x...);
  }
}

template <class F>
void unary(const void* functor, const View& x, const View& y) {
  apply(*static_cast<const F*>(functor), x.dtype, y, x);
}
template <class F>
void binary(const void* functor, const View& a, const View& b, const View& y) {
  apply(*static_cast<const F*>(functor), a.dtype, y, a, b);
}

template <class F>
constexpr KernelTable::Unary unary_row() {
  if constexpr (F::kIntegers)
    return unary<F>;
  else
    return nullptr;
}
template <class F>
constexpr KernelTable::Binary binary_row() {
  if constexpr (F::kIntegers)
    return binary<F>;
  else
    return nullptr;
}

template <class List>
struct UnaryRows;
template <class... F>
struct UnaryRows<std::tuple<F...>> {
  static constexpr KernelTable::Unary rows[] = {unary_row<F>()...};
};
template <class List>
struct BinaryRows;
template <class... F>
struct BinaryRows<std::tuple<F...>> {
  static constexpr KernelTable::Binary rows[] = {binary_row<F>()...};
};
template <class List>
struct BitRows;
template <class... F>
struct BitRows<std::tuple<F...>> {
  static constexpr KernelTable::Binary rows[] = {Pointwise<binary<F>>::run...};
};

}  // namespace

constinit const KernelTable::Unary* const integer_unary = UnaryRows<functors::UnaryList>::rows;
constinit const KernelTable::Binary* const integer_binary = BinaryRows<functors::BinaryList>::rows;

void install_integer(KernelTable& table) { table.bits = BitRows<functors::BitList>::rows; }

}  // namespace reel::cpu::REEL_ISA
