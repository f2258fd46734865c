// These functions convert half types by vectors, and call kernels that compute in float32 with them.
#pragma once
#include <cstring>

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

/// Returns every second lane of a vector, of which b overlaps the last lane of the first half, a.
template <class V, size_t... i>
V every_second_lane(const V& a, const V& b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (i < sizeof...(i) / 2 ? 2 * i : 2 * i + 1)...);
}
/// Returns a vector of every second element, widened: p[0], p[2], ….
template <class T>
Batch<Compute<T>> load_every_second_wide(const T* p) {
  constexpr int64_t n = kWidth<Compute<T>>;
  using Lane = std::conditional_t<std::is_floating_point_v<T>, T, int16_t>;
  using Vector [[gnu::vector_size(n * sizeof(Lane)), gnu::may_alias]] = Lane;
  // The second half is loaded so that nothing behind the last element is read.
  Vector first, second;
  std::memcpy(&first, p, sizeof(Vector));
  std::memcpy(&second, p + n - 1, sizeof(Vector));
  const Vector result = every_second_lane(first, second, std::make_index_sequence<n>());
  return load_wide(reinterpret_cast<const T*>(&result));
}
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

// store_narrow() writes a vector of numbers, rounded to nearest even as by convert().
#if defined(__AVX512F__)
inline void store_narrow(Float16* p, const Batch<float>& x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_narrow(BFloat16* p, const Batch<float>& x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), is_nan, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
#elif defined(__AVX2__)
inline void store_narrow(Float16* p, const Batch<float>& x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_narrow(BFloat16* p, const Batch<float>& x) {
  const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, is_nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
#else
inline uint16_t narrow_bits(float x, Float16) { return float_to_float16(x); }
inline uint16_t narrow_bits(float x, BFloat16) { return float_to_bfloat16(x); }
template <class Half>
void store_narrow(Half* p, const Batch<float>& x) {
  alignas(Arch::alignment()) float lanes[kWidth<float>];
  x.store_aligned(lanes);
  for (int64_t i = 0; i < kWidth<float>; ++i) p[i].bits = narrow_bits(lanes[i], Half());
}
#endif
/// Writes the first n numbers of a vector, rounded.
template <class Half>
void store_part_narrow(Half* p, const Batch<float>& x, int64_t n) {
  Half lanes[kWidth<float>];
  store_narrow(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
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
