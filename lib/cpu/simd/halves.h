// These functions convert half types by vectors, and call kernels that compute in float32 with them.
#pragma once
#include "lib/base/half.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"

namespace reel::cpu::REEL_ISA {

/// Compute<T> is the type in which kernels compute with elements of type T.
template <class T>
using Compute = std::conditional_t<std::is_floating_point_v<T>, T, float>;

// widen() returns an element as a number of the type in which kernels compute.
template <class T>
T widen(T x) {
  return x;
}
inline float widen(Float16 x) { return float16_to_float(x.bits); }
inline float widen(BFloat16 x) { return bfloat16_to_float(x.bits); }

// load_wide() returns a vector of elements, widened.
inline Batch<float> load_wide(const float* p) { return load(p); }
inline Batch<double> load_wide(const double* p) { return load(p); }
#if defined(__AVX512F__)
inline Batch<float> load_wide(const Float16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Batch<float> load_wide(const BFloat16* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
#elif defined(__AVX2__)
inline Batch<float> load_wide(const Float16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Batch<float> load_wide(const BFloat16* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
#else
template <class Half>
Batch<float> load_wide(const Half* p) {
  return _mm_setr_ps(widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3]));
}
#endif
/// Returns the first n elements, 0 < n < a vector's, widened; those beyond them are zero.
template <class T>
Batch<Compute<T>> load_part_wide(const T* p, int64_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    return load_part(p, n);
  } else {
#if defined(__AVX512F__)
    const __m256i bits = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p);
    return load_wide(reinterpret_cast<const T*>(&bits));
#else
    T lanes[kWidth<float>] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load_wide(lanes);
#endif
  }
}

// convert() writes y[i] = x[i] for n elements, rounded to nearest even.
void convert(const Float16* x, float* y, int64_t n);
void convert(const BFloat16* x, float* y, int64_t n);
void convert(const float* x, Float16* y, int64_t n);
void convert(const float* x, BFloat16* y, int64_t n);

/// Calls f(pieces) for pieces of views of one shape, in which half operands are float32 copies. Pieces are so small
/// that their copies stay in the first-level cache, but the last `whole` dimensions are not divided. The last view is
/// the result.
void call_in_float32(const View* const* views, int count, int whole, PartFunction call, const void* f);

/// Calls a kernel for half operands, which leaves them to this function, in float32. The kernel is pointwise, or each
/// slice of the last `whole` dimensions is a problem of its own.
template <auto kernel, int whole = 0, class... Args>
[[gnu::noinline]] void in_float32(const Args&... args) {
  static_assert(sizeof...(Args) <= kMaxViews);
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto call_kernel = [&](const View* const* pieces) { kernel(part_or(args, pieces[i])...); };
    const auto call = [](const void* f, const View* const* pieces) {
      (*static_cast<const decltype(call_kernel)*>(f))(pieces);
    };
    const View* const views[] = {view_in(args)...};
    call_in_float32(views, sizeof...(Args), whole, call, &call_kernel);
  }
  (std::index_sequence_for<Args...>());
}

}  // namespace reel::cpu::REEL_ISA
