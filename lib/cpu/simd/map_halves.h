// This file maps pointwise functions over half types, whose vectors are widened and rounded in registers.
#pragma once
#include <utility>

#include "lib/cpu/loop.h"
#include "lib/cpu/simd/halves.h"
#include "lib/functors/pointwise.h"

namespace reel::cpu::REEL_ISA {

/// A functor is cheap if it costs less than to write float32 copies of its operands and to read these again.
template <class F>
inline constexpr bool kIsCheap =
    functors::kIsOneOf<F, functors::Neg, functors::Abs, functors::Sign, functors::Square, functors::Sqrt,
                       functors::Rsqrt, functors::Reciprocal, functors::Floor, functors::Ceil, functors::Round,
                       functors::Trunc, functors::Relu, functors::Clamp, functors::Add, functors::Sub,
                       functors::AddScaled, functors::Mul, functors::Div, functors::Maximum, functors::Minimum,
                       functors::Prelu, functors::Lerp, functors::Addcmul, functors::Addcdiv>;

/// A HalfSource is one run of an operand, adjacent or repeated elements, whose batches are float32.
template <class Half>
struct HalfSource {
  const Half* data;  // nullptr where one element is repeated
  Batch<float> repeated;

  HalfSource(const View& x, const char* at, int64_t stride) : data(nullptr), repeated(0.0f) {
    if (x.dtype == kFloat32)
      repeated = Batch<float>(*reinterpret_cast<const float*>(at));
    else if (stride == 0)
      repeated = Batch<float>(widen(*reinterpret_cast<const Half*>(at)));
    else
      data = reinterpret_cast<const Half*>(at);
  }
  Batch<float> load_at(int64_t i) const { return data ? load_wide(data + i) : repeated; }
  Batch<float> load_part_at(int64_t i, int64_t n) const { return data ? load_part_wide(data + i, n) : repeated; }
};

template <class Half, class Op, class... In>
void map_half_run(const Op& op, int64_t n, Half* y, const In&... x) {
  constexpr int64_t kStep = kWidth<float>;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) store_narrow(y + i, Batch<float>(op(x.load_at(i)...)));
  if (i < n) store_part_narrow(y + i, Batch<float>(op(x.load_part_at(i, n - i)...)), n - i);
}

template <class Half, size_t... I, class Op, class... Views>
[[gnu::noinline]] void map_half_views(std::index_sequence<I...>, const Op& op, const View& y, const Views&... x) {
  const View* const views[] = {&y, &x...};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    map_half_run(op, n, reinterpret_cast<Half*>(p[0]), HalfSource<Half>(x, p[I + 1], s[I + 1])...);
  });
}

/// Computes y = op(x...) in float32, as map() does, if rows of y are adjacent halves, and those of x, too, or repeat
/// one number. Returns whether they are.
template <class Op, class... Views>
bool map_halves(const Op& op, const View& y, const Views&... x) {
  int d = y.shape.size() - 1;
  while (d >= 0 && y.shape[d] == 1) --d;
  const auto is_read = [&](const View& v) {
    return v.dtype == y.dtype ? d < 0 || v.strides[d] == 0 || v.strides[d] == 1 : d < 0 || v.strides[d] == 0;
  };
  if ((d >= 0 && y.strides[d] != 1) || !(is_read(x) && ...)) return false;
  constexpr auto indices = std::make_index_sequence<sizeof...(Views)>();
  y.dtype == kFloat16 ? map_half_views<Float16>(indices, op, y, x...) : map_half_views<BFloat16>(indices, op, y, x...);
  return true;
}

}  // namespace reel::cpu::REEL_ISA
