#pragma once
#include <utility>
#include <xsimd/xsimd.hpp>

// The vector type of the instruction set that this file is compiled for. The architecture is a type of our own for two
// reasons: its name is part of the name of every instantiation, so that the linker cannot merge instances of different
// instruction sets; and our functions (math.h) are found by argument-dependent lookup before xsimd's.
namespace reel::cpu::REEL_ISA {

struct Arch : xsimd::default_arch {};
template <class T>
using Batch = xsimd::batch<T, Arch>;

}  // namespace reel::cpu::REEL_ISA

namespace xsimd::types {
template <class T>
struct get_bool_simd_register<T, reel::cpu::REEL_ISA::Arch> : get_bool_simd_register<T, default_arch> {};
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(reel::cpu::REEL_ISA::Arch, default_arch);
}  // namespace xsimd::types

namespace xsimd {
// On AVX and AVX-512, xsimd 8.1 evaluates NaN != NaN to false.
template <>
inline batch_bool<float, reel::cpu::REEL_ISA::Arch> batch<float, reel::cpu::REEL_ISA::Arch>::operator!=(
    const batch& other) const noexcept {
  return ~(*this == other);
}
template <>
inline batch_bool<double, reel::cpu::REEL_ISA::Arch> batch<double, reel::cpu::REEL_ISA::Arch>::operator!=(
    const batch& other) const noexcept {
  return ~(*this == other);
}
}  // namespace xsimd

#include "lib/cpu/simd/math.h"
#include "lib/functors/number.h"

namespace reel::cpu::REEL_ISA {

template <class T>
inline constexpr int64_t kWidth = static_cast<int64_t>(Batch<T>::size);

template <class T>
Batch<T> load(const T* p) {
  return Batch<T>::load_unaligned(p);
}
template <class T>
void store(T* p, const Batch<T>& x) {
  x.store_unaligned(p);
}

// The first n elements of a batch, 0 < n < kWidth; what is loaded beyond them is zero.
#if defined(__AVX512F__)
inline Batch<float> load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps((1u << n) - 1, p); }
inline Batch<double> load_part(const double* p, int64_t n) { return _mm512_maskz_loadu_pd((1u << n) - 1, p); }
inline void store_part(float* p, const Batch<float>& x, int64_t n) { _mm512_mask_storeu_ps(p, (1u << n) - 1, x); }
inline void store_part(double* p, const Batch<double>& x, int64_t n) { _mm512_mask_storeu_pd(p, (1u << n) - 1, x); }
#else
#if defined(__AVX2__)
inline __m256i first_lanes(int64_t n) {
  static constexpr int32_t window[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(window + 8 - n));
}
inline Batch<float> load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
inline Batch<double> load_part(const double* p, int64_t n) { return _mm256_maskload_pd(p, first_lanes(2 * n)); }
#else
inline Batch<float> load_part(const float* p, int64_t n) {
  if (n == 1) return _mm_load_ss(p);
  return _mm_setr_ps(p[0], p[1], n == 3 ? p[2] : 0, 0);
}
inline Batch<double> load_part(const double* p, int64_t) { return _mm_load_sd(p); }
#endif
template <class T>
void store_part(T* p, const Batch<T>& x, int64_t n) {
  alignas(Arch::alignment()) T lanes[kWidth<T>];
  x.store_aligned(lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
#endif

// The first n elements of a row, at most a batch of them.
template <class T>
Batch<T> load_up_to(const T* p, int64_t n) {
  return n >= kWidth<T> ? load(p) : load_part(p, n);
}
template <class T>
void store_up_to(T* p, const Batch<T>& x, int64_t n) {
  n >= kWidth<T> ? store(p, x) : store_part(p, x, n);
}

template <class T, size_t... i>
Batch<T> load_even(const T* p, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  const Batch<T> low = load(p), high = load(p + n - 1);
  return Batch<T>(__builtin_shufflevector(low.data, high.data, (2 * i < n ? 2 * i : 2 * i + 1)...));
}
/// Returns p[0], p[2], p[4], … No element behind the last one of these is read.
template <class T>
Batch<T> load_every_second(const T* p) {
  return load_even(p, std::make_index_sequence<size_t(kWidth<T>)>());
}

template <class T>
Batch<T> load_strided(const T* p, int64_t stride, int64_t n) {
  if constexpr (std::is_floating_point_v<T>)
    if (stride == 2 && n == kWidth<T>) return load_every_second(p);
  alignas(Arch::alignment()) T lanes[kWidth<T>] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i * stride];
  return Batch<T>::load_aligned(lanes);
}
template <class T>
void store_strided(T* p, int64_t stride, const Batch<T>& x, int64_t n) {
  alignas(Arch::alignment()) T lanes[kWidth<T>];
  x.store_aligned(lanes);
  for (int64_t i = 0; i < n; ++i) p[i * stride] = lanes[i];
}

}  // namespace reel::cpu::REEL_ISA
