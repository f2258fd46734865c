// This file has the pointwise ops on integers, whose loops the compiler vectorises. Overflow wraps around
// (lib/CMakeLists.txt).
#include "lib/cpu/simd/integer.h"

#include <array>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/functors/binary.h"
#include "lib/functors/bits.h"
#include "lib/functors/unary.h"

namespace reel::cpu::REEL_ISA {
namespace {

/// Returns the step from one element of the innermost dimension to the next.
int64_t inner_stride(const View& x) {
  for (int d = x.shape.size() - 1; d >= 0; --d)
    if (x.shape[d] != 1) return x.strides[d];
  return 1;
}

/// Computes y = f(x...) for adjacent elements of y, and operands whose elements are so many steps apart.
template <class T, int64_t... step, class F, class... Operands, size_t... i>
void map_steps(const F& f, std::index_sequence<i...>, const View& y, const Operands&... x) {
  const View* const views[] = {&y, &x...};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t*) {
    const T* const from[] = {reinterpret_cast<const T*>(p[i + 1])...};
    T* const to = reinterpret_cast<T*>(p[0]);
    for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(f(from[i][step * k]...));
  });
}

/// Computes y = f(x...). The compiler vectorises the loops over every second element of the operands, too.
template <class T, class F, class... Operands>
void map_integers(const F& f, const View& y, const Operands&... x) {
  constexpr std::index_sequence_for<Operands...> operands;
  const std::array steps{inner_stride(x)...};
  const auto are = [&](auto... step) { return steps == std::array{int64_t{step}...}; };
  if (inner_stride(y) == 1) {
    if constexpr (sizeof...(Operands) == 1) {
      if (are(2)) return map_steps<T, 2>(f, operands, y, x...);
    } else {
      if (are(2, 2)) return map_steps<T, 2, 2>(f, operands, y, x...);
      if (are(2, 1)) return map_steps<T, 2, 1>(f, operands, y, x...);
      if (are(1, 2)) return map_steps<T, 1, 2>(f, operands, y, x...);
      if (are(2, 0)) return map_steps<T, 2, 0>(f, operands, y, x...);
    }
  }
  map_elements<T, T>(f, y, x...);
}

template <class F, class... Operands>
void apply(const F& f, DType dtype, const View& y, const Operands&... x) {
  switch (dtype) {
    case kInt32: return map_integers<int32_t>(f, y, x...);
    case kInt64: return map_integers<int64_t>(f, y, x...);
    default: return map_integers<uint8_t>(f, y, x...);
  }
}

/// SignOf is the sign of an integer, without branches.
struct SignOf {
  template <class T>
  T operator()(T x) const {
    return static_cast<T>((x > 0) - (x < 0));
  }
};

template <class F>
void unary(const void* functor, const View& x, const View& y) {
  if constexpr (std::is_same_v<F, functors::Sign>)
    apply(SignOf(), x.dtype, y, x);
  else
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
