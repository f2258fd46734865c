#include <bit>
#include <cmath>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/philox.h"

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

// ---- normal numbers. Logarithm, sine and cosine are computed in float64 to 2^-43 and then rounded, in arithmetic that
// all instruction sets have (lib/CMakeLists.txt forbids fused multiply-adds), so that the numbers are the same on each.
// The polynomials are minimax fits of our own; the compiler vectorises the loop.

/// Returns an integer below 2^52 as a number, as the last bits of 2^52.
double number_of(uint64_t x) { return std::bit_cast<double>(x | 0x4330000000000000) - 0x1p52; }

/// Returns log(x) for normal x > 0: x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
float logarithm(float x) {
  constexpr uint64_t kRoot = 0x3fe6a09e667f3bcd;
  const uint64_t shifted = std::bit_cast<uint64_t>(static_cast<double>(x)) + (0x3ff0000000000000 - kRoot);
  const double k = number_of(shifted >> 52) - 1023;
  const double f = std::bit_cast<double>((shifted & 0x000fffffffffffff) + kRoot) - 1;
  const double s = f / (f + 2), z = s * s;
  const double p =
      1.9999999999999468 +
      z * (0.66666666679651366 +
           z * (0.39999994872197304 + z * (0.28572168016046528 + z * (0.22174177229677156 + z * 0.19609084018850424))));
  return static_cast<float>(k * 0.69314718055994531 + s * p);
}

/// Applies Box & Muller's method to pairs of lanes, as normal_pair() of lib/device/philox.h.
void to_normal(const uint32_t* __restrict lanes, int64_t pairs, float* __restrict y) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float u = (static_cast<float>(number_of(lanes[2 * i])) + 1.0f) * 0x1p-32f;
    const float radius = std::sqrt(-2.0f * logarithm(u));
    const float angle = 6.283185307179586f * (static_cast<float>(number_of(lanes[2 * i + 1] >> 8)) * 0x1p-24f);
    // angle = n π / 2 + r
    const double shifted = angle * 0.63661977236758134 + 0x1.8p52,
                 r = angle - (shifted - 0x1.8p52) * 1.5707963267948966;
    const uint64_t n = std::bit_cast<uint64_t>(shifted);
    const double z = r * r;
    const double sine =
        r * (0.99999999999999543 +
             z * (-0.16666666666614242 +
                  z * (0.0083333333235486745 +
                       z * (-0.0001984126314305953 + z * (2.7555242040584167e-6 + z * -2.4754553181301165e-8)))));
    const double cosine =
        0.99999999999993381 +
        z * (-0.49999999999264376 +
             z * (0.041666666532542695 +
                  z * (-0.0013888879871914418 + z * (2.4798830943253429e-5 + z * -2.7167012289639778e-7))));
    // Odd quadrants exchange the two; the second bit of n, and of n + 1, is their sign.
    const uint64_t odd = uint64_t{0} - (n & 1), sine_bits = std::bit_cast<uint64_t>(sine),
                   cosine_bits = std::bit_cast<uint64_t>(cosine), other = (sine_bits ^ cosine_bits) & odd;
    const double first = std::bit_cast<double>((cosine_bits ^ other) ^ (((n + 1) & 2) << 62));
    const double second = std::bit_cast<double>((sine_bits ^ other) ^ ((n & 2) << 62));
    y[2 * i] = radius * static_cast<float>(first);
    y[2 * i + 1] = radius * static_cast<float>(second);
  }
}

void to_integers(const uint32_t* __restrict lanes, const uint32_t* __restrict extra, int64_t n, uint64_t start,
                 uint64_t range, int64_t* __restrict y) {
  if (range >> 32 == 0) {  // half of the products are 0
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t low = uint64_t{extra[i]} * range >> 32;
      y[i] = static_cast<int64_t>(start + ((uint64_t{lanes[i]} * range + low) >> 32));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<int64_t>(start + uniform_integer(lanes[i], extra[i], range));
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
    cpu::random({fill_lanes, to_normal, to_integers}, kind, a, b, seed, offset, y);
  };
  table.dropout = [](double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
    cpu::dropout(fill_lanes, p, seed, offset, x, y, keep);
  };
  table.dropout_grad = Divided<dropout_grad>::run;
}

}  // namespace reel::cpu::REEL_ISA
