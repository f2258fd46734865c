#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/half.h"
#include "lib/distributed/engine.h"

namespace reel::distributed {
namespace {

constexpr int64_t kBlock = 2048;  // elements that stay in the L1 cache, also as float32

/// Arithmetic of integers wraps around.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

template <class T, class Op>
void loop(T* into, const T* from, int64_t count, const Op& op) {
  for (int64_t i = 0; i < count; ++i) into[i] = op(into[i], from[i]);
}

// Operands that are NaN, and stay so: into if it is, since comparisons with it are false.
template <class T>
void combine_as(T* into, const T* from, int64_t count, ReduceOp op) {
  using W = Wrapping<T>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return loop(into, from, count, [](T a, T b) { return static_cast<T>(W(a) + W(b)); });
    case ReduceOp::kProd: return loop(into, from, count, [](T a, T b) { return static_cast<T>(W(a) * W(b)); });
    case ReduceOp::kMin: return loop(into, from, count, [](T a, T b) { return b < a || b != b ? b : a; });
    case ReduceOp::kMax: return loop(into, from, count, [](T a, T b) { return b > a || b != b ? b : a; });
  }
}

void widen(const uint16_t* from, float* to, int64_t count, DType dtype) {
  if (dtype == kFloat16)
    for (int64_t i = 0; i < count; ++i) to[i] = float16_to_float(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = bfloat16_to_float(from[i]);
}

void narrow(const float* from, uint16_t* to, int64_t count, DType dtype) {
  if (dtype == kFloat16)
    for (int64_t i = 0; i < count; ++i) to[i] = float_to_float16(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = float_to_bfloat16(from[i]);
}

/// Of at most kBlock halves each.
void reduce_halves(std::span<const void* const> parts, int64_t from, int64_t count, DType dtype, ReduceOp op,
                   uint16_t* out) {
  float sum[kBlock], part[kBlock];
  widen(static_cast<const uint16_t*>(parts[0]) + from, sum, count, dtype);
  for (const void* const other : parts.subspan(1)) {
    widen(static_cast<const uint16_t*>(other) + from, part, count, dtype);
    combine_as(sum, part, count, op);
  }
  if (op == ReduceOp::kAvg) divide(sum, count, kFloat32, static_cast<int>(parts.size()));
  narrow(sum, out + from, count, dtype);
}

}  // namespace

void combine(void* into, const void* from, int64_t count, DType dtype, ReduceOp op) {
  const auto as = [&]<class T>(T*) { combine_as(static_cast<T*>(into), static_cast<const T*>(from), count, op); };
  switch (dtype) {
    case kFloat32: return as(static_cast<float*>(nullptr));
    case kFloat64: return as(static_cast<double*>(nullptr));
    case kInt64: return as(static_cast<int64_t*>(nullptr));
    case kInt32: return as(static_cast<int32_t*>(nullptr));
    case kBool:  // kMin is `and`, kMax `or`, as of numbers
    case kUInt8: return as(static_cast<uint8_t*>(nullptr));
    case kFloat16:
    case kBFloat16:
      for (int64_t i = 0; i < count; i += kBlock) {
        const void* const parts[] = {into, from};
        reduce_halves(parts, i, std::min(kBlock, count - i), dtype, op, static_cast<uint16_t*>(into));
      }
      return;
  }
}

void reduce_parts(std::span<const void* const> parts, int64_t count, DType dtype, ReduceOp op, void* out) {
  const bool halves = dtype == kFloat16 || dtype == kBFloat16;
  const int64_t size = size_of(dtype);
  // A block at a time: what is summed stays in the cache, and out may be one of the parts.
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    if (halves) {
      reduce_halves(parts, i, n, dtype, op, static_cast<uint16_t*>(out));
      continue;
    }
    alignas(64) char sum[kBlock * 8];
    std::memcpy(sum, static_cast<const char*>(parts[0]) + i * size, static_cast<size_t>(n * size));
    for (const void* const part : parts.subspan(1))
      combine(sum, static_cast<const char*>(part) + i * size, n, dtype, op);
    if (op == ReduceOp::kAvg) divide(sum, n, dtype, static_cast<int>(parts.size()));
    std::memcpy(static_cast<char*>(out) + i * size, sum, static_cast<size_t>(n * size));
  }
}

void divide(void* data, int64_t count, DType dtype, int divisor) {
  if (dtype == kFloat32) {
    auto* const values = static_cast<float*>(data);
    for (int64_t i = 0; i < count; ++i) values[i] /= static_cast<float>(divisor);
  } else if (dtype == kFloat64) {
    auto* const values = static_cast<double*>(data);
    for (int64_t i = 0; i < count; ++i) values[i] /= divisor;
  } else {
    float block[kBlock];
    for (int64_t i = 0; i < count; i += kBlock) {
      const int64_t n = std::min(kBlock, count - i);
      uint16_t* const values = static_cast<uint16_t*>(data) + i;
      widen(values, block, n, dtype);
      divide(block, n, kFloat32, divisor);
      narrow(block, values, n, dtype);
    }
  }
}

}  // namespace reel::distributed
