// These functions round vectors of numbers to elements of half types.
#pragma once
#include "lib/cpu/simd/halves.h"

namespace reel::cpu::REEL_ISA {

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
