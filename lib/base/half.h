#pragma once
#include <bit>
#include <cstdint>

// The bits of half-precision numbers; reel/types.h wraps them, loops over many elements use them directly.
namespace reel {

inline float float16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = uint32_t(bits & 0x7fff) << 13;
  if (rest >= 0x0f800000) return std::bit_cast<float>(sign | rest | 0x7f800000);  // infinities and NaN
  // Multiplying by 2¹¹² moves the exponent, and makes subnormal numbers normal.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f));
}

/// Rounds to nearest even.
inline uint16_t float_to_float16(float value) {
  const uint32_t all = std::bit_cast<uint32_t>(value), sign = (all >> 16) & 0x8000;
  uint32_t x = all & 0x7fffffff;
  if (x > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (x >= 0x477ff000) return uint16_t(sign | 0x7c00);  // 65520 and above round to infinity
  if (x < 0x38800000) {
    // Subnormal: adding ½ puts the last bit that is kept at the end of the float, and the adder rounds.
    return uint16_t(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(x) + 0.5f) - 0x3f000000));
  }
  x += 0xfff + ((x >> 13) & 1);
  return uint16_t(sign | ((x - 0x38000000) >> 13));
}

inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// Rounds to nearest even.
inline uint16_t float_to_bfloat16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if ((x & 0x7fffffff) > 0x7f800000) return uint16_t((x >> 16) | 0x40);
  return uint16_t((x + 0x7fff + ((x >> 16) & 1)) >> 16);
}

}  // namespace reel
