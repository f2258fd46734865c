#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/device/kernels/enums.h"

namespace reel::cpu::REEL_ISA {

namespace {

// Philox (lib/device/philox.h) for eight blocks side by side: 32 bits in each 64-bit element, since its rounds are 32 ×
// 32 → 64 bit products.
using Eight = uint64_t __attribute__((vector_size(64)));
constexpr int64_t kWide = 8;

void fill_lanes(uint64_t seed, uint32_t extra, uint64_t first, int64_t blocks, uint32_t* lanes) {
  for (int64_t start = 0; start < blocks; start += kWide) {
    const Eight block = Eight{0, 1, 2, 3, 4, 5, 6, 7} + (first + static_cast<uint64_t>(start));
    Eight c0 = block & 0xffffffff, c1 = block >> 32, c2 = Eight{} + uint64_t{extra}, c3{};
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

template <class T>
void dropout_grad_flat(T scale, int64_t n, const T* __restrict g, const uint8_t* __restrict keep, T* __restrict gx) {
  for (int64_t i = 0; i < n; ++i) {
    const T scaled = g[i] * scale;
    gx[i] = keep[i] ? scaled : T(0);
  }
}
void dropout_grad(double p, const View& g, const View& keep, const View& gx) {
  if (is_half(g.dtype)) return dropout_grad(p, Widened().in(g), keep, Widened().out(gx));
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  if (g.dtype == kFloat32)
    dropout_grad_flat(static_cast<float>(scale), g.numel, g.as<const float>(), keep.as<const uint8_t>(),
                      gx.as<float>());
  else
    dropout_grad_flat(scale, g.numel, g.as<const double>(), keep.as<const uint8_t>(), gx.as<double>());
}

}  // namespace

void install_random(KernelTable& table) {
  table.random = [](RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
    cpu::random(fill_lanes, kind, a, b, seed, offset, y);
  };
  table.dropout = [](double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
    cpu::dropout(fill_lanes, p, seed, offset, x, y, keep);
  };
  table.dropout_grad = Divided<dropout_grad>::run;
}

}  // namespace reel::cpu::REEL_ISA
