#pragma once
#include <cstdint>

#include "lib/functors/number.h"

namespace reel {

struct PhiloxBlock {
  uint32_t lane[4];
};

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Number i of the stream `seed` is
/// lane i % 4 of block i / 4. `extra` gives every block further independent lanes, for results of more than 32 bits.
REEL_HD static inline PhiloxBlock philox(uint64_t seed, uint64_t block, uint32_t extra = 0) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = extra, c3 = 0;
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53) * c0, b = uint64_t(0xCD9E8D57) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0;
    c2 = uint32_t(a >> 32) ^ c3 ^ k1;
    c1 = uint32_t(b);
    c3 = uint32_t(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

/// In [0, 1): 24 bits.
REEL_HD static inline float uniform_float(uint32_t lane) { return float(lane >> 8) * 0x1p-24f; }
/// In [0, 1): 53 bits.
REEL_HD static inline double uniform_double(uint32_t lane, uint32_t extra) {
  return double((uint64_t(lane) << 32 | extra) >> 11) * 0x1p-53;
}
/// In [0, range), by multiplication: the bias is below range / 2⁶⁴.
REEL_HD static inline uint64_t uniform_integer(uint32_t lane, uint32_t extra, uint64_t range) {
  const uint64_t x = uint64_t(lane) << 32 | extra;
  const uint64_t low = uint64_t(uint32_t(range)), high = range >> 32;
  const uint64_t middle = (x >> 32) * low + (((x & 0xffffffff) * low) >> 32);
  const uint64_t other = (x & 0xffffffff) * high + (middle & 0xffffffff);
  return (x >> 32) * high + (middle >> 32) + (other >> 32);
}

/// Draws are uniform numbers in [0, 1) for one element, which takes as many as it needs (rejection sampling). Block
/// `number` has further lanes that nothing else takes, so that elements stay independent of each other.
class Draws {
 public:
  REEL_HD Draws(uint64_t seed, uint64_t number) : seed_(seed), number_(number) {}
  REEL_HD double operator()() {
    if (used_ == 4) block_ = philox(seed_, number_, extra_++), used_ = 0;
    used_ += 2;
    return uniform_double(block_.lane[used_ - 2], block_.lane[used_ - 1]);
  }

 private:
  uint64_t seed_, number_;
  uint32_t extra_ = 2;  // 0 and 1 belong to the numbers of the stream
  int used_ = 4;
  PhiloxBlock block_;
};

/// Box & Muller 1958: lanes 2j and 2j + 1 give numbers 2j and 2j + 1, the cosine and the sine.
struct NormalPair {
  float first, second;
};
REEL_HD static inline NormalPair normal_pair(uint32_t a, uint32_t b) {
  // (0, 1] for the logarithm.
  const float radius = functors::sqrt(-2.0f * functors::log((float(a) + 1.0f) * 0x1p-32f));
  const float angle = 6.283185307179586f * (float(b >> 8) * 0x1p-24f);
  return {radius * functors::cos(angle), radius * functors::sin(angle)};
}

}  // namespace reel
