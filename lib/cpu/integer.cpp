#include <array>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"
#include "lib/functors/binary.h"
#include "lib/functors/bits.h"
#include "lib/functors/unary.h"

// The pointwise ops on integers. The compiler vectorises them for the baseline, and memory is the limit anyway.
namespace reel::cpu {
namespace {

template <class F, class... Operands>
void apply(const F& f, DType dtype, const View& y, const Operands&... x) {
  switch (dtype) {
    case kInt32: return plain::map_elements<int32_t, int32_t>(f, y, x...);
    case kInt64: return plain::map_elements<int64_t, int64_t>(f, y, x...);
    default: return plain::map_elements<uint8_t, uint8_t>(f, y, x...);
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

template <class... F>
constexpr std::array<KernelTable::Unary, sizeof...(F)> unary_rows(std::tuple<F...>*) {
  return {unary_row<F>()...};
}
template <class... F>
constexpr std::array<KernelTable::Binary, sizeof...(F)> binary_rows(std::tuple<F...>*) {
  return {binary_row<F>()...};
}
template <class... F>
constexpr std::array<KernelTable::Binary, sizeof...(F)> bit_rows(std::tuple<F...>*) {
  return {Divided<binary<F>>::run...};
}
constexpr auto kUnary = unary_rows(static_cast<functors::UnaryList*>(nullptr));
constexpr auto kBinary = binary_rows(static_cast<functors::BinaryList*>(nullptr));
constexpr auto kBits = bit_rows(static_cast<functors::BitList*>(nullptr));

}  // namespace

constinit const KernelTable::Unary* const integer_unary = kUnary.data();
constinit const KernelTable::Binary* const integer_binary = kBinary.data();

void install_integer(KernelTable& table) { table.bits = kBits.data(); }

}  // namespace reel::cpu
