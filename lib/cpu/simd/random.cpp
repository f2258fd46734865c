#include "lib/cpu/kernels.h"

namespace reel::cpu::REEL_ISA {

namespace {

// Philox (lib/philox.h) for eight blocks side by side, 32 bits in each 64-bit element.
using Eight = uint64_t __attribute__((vector_size(64)));
constexpr int64_t kWide = 8;

void fill_lanes(uint64_t seed, uint64_t first, int64_t blocks, uint32_t* lanes) {
  for (int64_t start = 0; start < blocks; start += kWide) {
    const Eight block = Eight{0, 1, 2, 3, 4, 5, 6, 7} + (first + static_cast<uint64_t>(start));
    Eight c0 = block & 0xffffffff, c1 = block >> 32, c2{}, c3{};
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const Eight a = c0 * 0xD2511F53, b = c2 * 0xCD9E8D57;
      c0 = (b >> 32) ^ c1 ^ k0;
      c2 = (a >> 32) ^ c3 ^ k1;
      c1 = b & 0xffffffff;
      c3 = a & 0xffffffff;
    }
    uint32_t* out = lanes + 4 * start;
    for (int i = 0; i < kWide && start + i < blocks; ++i, out += 4) {
      out[0] = static_cast<uint32_t>(c0[i]), out[1] = static_cast<uint32_t>(c1[i]);
      out[2] = static_cast<uint32_t>(c2[i]), out[3] = static_cast<uint32_t>(c3[i]);
    }
  }
}

}  // namespace

void install_random(Backend& table) {
  table.random = [](RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
    cpu::random(fill_lanes, kind, a, b, seed, offset, y);
  };
  table.dropout = [](double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
    cpu::dropout(fill_lanes, p, seed, offset, x, y, keep);
  };
}

}  // namespace reel::cpu::REEL_ISA
