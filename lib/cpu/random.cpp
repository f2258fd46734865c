#include <algorithm>
#include <cmath>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/philox.h"
#include "lib/functors/number.h"

// Random numbers, multinomial samples and dropout from Philox (lib/device/philox.h). Number i of a stream is a function
// of seed and i, so that results depend neither on the number of threads nor on the order in which numbers are made,
// and are those of a GPU (cuda/random.cu).
namespace reel::cpu {
namespace {

constexpr int64_t kCost = 4;     // of a number, in the sense of for_each_part
constexpr int64_t kPiece = 256;  // numbers made at a time, in a buffer that stays in the first-level cache

/// piece(i, n, lanes) for runs of n numbers i, i + 1, …, whose lanes are those of numbers offset + i, … of the stream.
template <class F>
void for_each_piece(FillLanes fill, uint64_t seed, uint64_t offset, int64_t n, const F& piece) {
  uint32_t lanes[kPiece + 4];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i), skip = static_cast<int64_t>((offset + i) % 4);
    fill(seed, 0, (offset + i) / 4, (skip + count + 3) / 4, lanes);
    piece(i, count, lanes + skip);
  }
}
/// Calls piece(i, n, lanes, extra) for runs of numbers that take 64 random bits, from two blocks.
template <class F>
void for_each_wide_piece(FillLanes fill, uint64_t seed, uint64_t offset, int64_t n, const F& piece) {
  uint32_t extra[kPiece + 4];
  for_each_piece(fill, seed, offset, n, [&](int64_t start, int64_t count, const uint32_t* lanes) {
    const int64_t skip = static_cast<int64_t>((offset + start) % 4);
    fill(seed, 1, (offset + start) / 4, (skip + count + 3) / 4, extra);
    piece(start, count, lanes, extra + skip);
  });
}
/// Calls set(i, lane, extra) for each of these numbers.
template <class F>
void for_each_two_lanes(FillLanes fill, uint64_t seed, uint64_t offset, int64_t n, const F& set) {
  for_each_wide_piece(fill, seed, offset, n,
                      [&](int64_t start, int64_t count, const uint32_t* lanes, const uint32_t* extra) {
                        for (int64_t i = 0; i < count; ++i) set(start + i, lanes[i], extra[i]);
                      });
}

template <class T>
void uniform(FillLanes fill, double low, double high, uint64_t seed, uint64_t offset, int64_t n, T* y) {
  const T scale = T(high) - T(low), start = T(low), end = T(high);
  // start + u * scale may round up to the upper end, which is not part of the interval.
  const auto place = [&](T u) {
    const T value = start + u * scale;
    return value < end || start == end ? value : start;
  };
  if constexpr (sizeof(T) == 4) {
    for_each_piece(fill, seed, offset, n, [&](int64_t start, int64_t count, const uint32_t* lanes) {
      for (int64_t i = 0; i < count; ++i) y[start + i] = place(uniform_float(lanes[i]));
    });
  } else {
    for_each_two_lanes(fill, seed, offset, n,
                       [&](int64_t i, uint32_t lane, uint32_t extra) { y[i] = place(uniform_double(lane, extra)); });
  }
}

void normal(RandomLoops loops, double mean, double std, uint64_t seed, uint64_t offset, int64_t n, float* y) {
  float numbers[kPiece + 4];
  for_each_piece(loops.fill, seed, offset, n, [&](int64_t start, int64_t count, const uint32_t* lanes) {
    const int64_t skip = static_cast<int64_t>((offset + start) % 2);  // the second of a pair
    loops.to_normal(lanes - skip, (skip + count + 1) / 2, numbers);
    for (int64_t i = 0; i < count; ++i) y[start + i] = float(mean) + float(std) * numbers[skip + i];
  });
}

void normal(RandomLoops, double mean, double std, uint64_t seed, uint64_t offset, int64_t n, double* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t number = offset + i;
    const PhiloxBlock block = philox(seed, number / 4), extra = philox(seed, number / 4, 1);
    const int lane = number % 4 & 2;
    const double u = uniform_double(block.lane[lane], extra.lane[lane]) + 0x1p-54;
    const double v = uniform_double(block.lane[lane + 1], extra.lane[lane + 1]);
    const double radius = functors::sqrt(-2 * functors::log(u)), angle = 6.283185307179586477 * v;
    y[i] = mean + std * radius * (number & 1 ? functors::sin(angle) : functors::cos(angle));
  }
}

void integers(RandomLoops loops, double low, double high, uint64_t seed, uint64_t offset, int64_t n, int64_t* y) {
  const int64_t start = static_cast<int64_t>(low);
  const uint64_t range = static_cast<uint64_t>(static_cast<int64_t>(high)) - static_cast<uint64_t>(start);
  for_each_wide_piece(loops.fill, seed, offset, n,
                      [&](int64_t begin, int64_t count, const uint32_t* lanes, const uint32_t* extra) {
                        loops.to_integers(lanes, extra, count, static_cast<uint64_t>(start), range, y + begin);
                      });
}

/// Inverse transform sampling.
double transform(RandomKind kind, double a, double b, double u) {
  switch (kind) {
    case RandomKind::kExponential:
      return u > 0 ? -std::log1p(-u) / a : 0x1p-54 / a;  // never 0: its logarithm is finite
    case RandomKind::kCauchy: return a + b * std::tan(functors::kPi * (u - 0.5));
    case RandomKind::kGeometric: return 1 + std::floor(std::log1p(-u) / std::log1p(-a));
    default: return u;
  }
}

void generate_part(RandomLoops loops, RandomKind kind, double a, double b, uint64_t seed, uint64_t offset,
                   const View& y) {
  const int64_t n = y.numel;
  if (kind == RandomKind::kInteger) return integers(loops, a, b, seed, offset, n, y.as<int64_t>());
  const auto draw = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    switch (kind) {
      case RandomKind::kUniform: return uniform(loops.fill, a, b, seed, offset, n, to);
      case RandomKind::kNormal: return normal(loops, a, b, seed, offset, n, to);
      case RandomKind::kLogNormal:
        normal(loops, a, b, seed, offset, n, to);
        for (int64_t i = 0; i < n; ++i) to[i] = functors::exp(to[i]);
        return;
      default:
        for_each_two_lanes(loops.fill, seed, offset, n, [&](int64_t i, uint32_t lane, uint32_t extra) {
          to[i] = static_cast<T>(transform(kind, a, b, uniform_double(lane, extra)));
        });
    }
  };
  y.dtype == kFloat64 ? draw(y.as<double>()) : draw(y.as<float>());
}

/// A contiguous y.
void generate(RandomLoops loops, RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
  for_each_range(y.numel, kCost, [&](int64_t begin, int64_t end) {
    View part = y;
    part.data = y.as<char>() + begin * size_of(y.dtype);
    part.numel = end - begin;
    generate_part(loops, kind, a, b, seed, offset + begin, part);
  });
}

/// Makes numbers in [low, high) for a half type of numbers in [0, 1). They have no more bits than the type: a number
/// that is rounded might reach `high`, and becomes `low` where it still does.
void coarsen(DType half, double low, double high, int64_t n, float* y) {
  const float steps = half == kFloat16 ? 0x1p11f : 0x1p8f, start = static_cast<float>(low),
              scale = static_cast<float>(high - low);
  const auto at_step = [=](float step) { return start + step / steps * scale; };
  const auto reaches_high = [=](float value) {
    const float rounded = half == kFloat16 ? float(Float16(value)) : float(BFloat16(value));
    return !(rounded < static_cast<float>(high));
  };
  const bool any_reaches_high = reaches_high(at_step(steps - 1));  // numbers increase with their steps
  for_each_range(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = at_step(static_cast<float>(static_cast<int32_t>(y[i] * steps)));
    if (!any_reaches_high) return;
    for (int64_t i = begin; i < end; ++i)
      if (reaches_high(y[i])) y[i] = start;
  });
}

}  // namespace

void random(RandomLoops loops, RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
  if (y.numel == 0) return;
  // The type that numbers are made in; float32 does not have all integers.
  const bool wide = y.dtype == kFloat64 || !is_floating_point(y.dtype);
  const DType native = kind == RandomKind::kInteger ? kInt64 : wide ? kFloat64 : kFloat32;
  if (y.contiguous && y.dtype == native) return generate(loops, kind, a, b, seed, offset, y);
  const Scratch buffer(static_cast<size_t>(y.numel) * size_of(native));
  View dense = y;
  dense.data = buffer.data();
  dense.dtype = native;
  dense.contiguous = true;
  int64_t stride = 1;
  for (int d = y.shape.size() - 1; d >= 0; --d) dense.strides[d] = stride, stride *= y.shape[d];
  if (kind == RandomKind::kUniform && is_half(y.dtype)) {
    generate(loops, kind, 0, 1, seed, offset, dense);
    coarsen(y.dtype, a, b, y.numel, dense.as<float>());
  } else {
    generate(loops, kind, a, b, seed, offset, dense);
  }
  copy(dense, y);
}

namespace {

double draw_poisson(double rate, Draws draw) {
  if (!(rate > 0)) return rate == 0 ? 0 : NAN;
  if (rate < 10) {  // by the arrival times of the events
    const double end = std::exp(-rate);
    double product = draw();
    int64_t events = 0;
    for (; product > end; ++events) product *= draw();
    return static_cast<double>(events);
  }
  // Transformed rejection (Hörmann 1993, PTRS).
  const double root = std::sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = draw() - 0.5, v = draw(), distance = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / distance + b) * u + rate + 0.43);
    if (distance >= 0.07 && v <= v_r) return k;
    if (k < 0 || (distance < 0.013 && v > distance)) continue;
    const double bound = k * std::log(rate) - rate - functors::lgamma(k + 1);
    if (std::log(v * inverse_alpha / (a / (distance * distance) + b)) <= bound) return k;
  }
}

void poisson(uint64_t seed, uint64_t offset, const View& rate, const View& y) {
  const auto fill = [&](auto* to) {
    const auto* rates = rate.as<const std::remove_pointer_t<decltype(to)>>();
    for_each_range(y.numel, 16 * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<std::remove_pointer_t<decltype(to)>>(draw_poisson(rates[i], Draws(seed, offset + i)));
    });
  };
  y.dtype == kFloat64 ? fill(y.as<double>()) : fill(y.as<float>());
}

void multinomial(uint64_t seed, uint64_t offset, const View& sums, const View& y) {
  const FillLanes fill = [](uint64_t key, uint32_t extra, uint64_t first, int64_t blocks, uint32_t* lanes) {
    for (int64_t i = 0; i < blocks; ++i) {
      const PhiloxBlock block = philox(key, first + static_cast<uint64_t>(i), extra);
      std::copy_n(block.lane, 4, lanes + 4 * i);
    }
  };
  const int64_t categories = sums.shape.back(), samples = y.shape.back();
  for_each_range(y.numel, 4 * kCost, [&](int64_t begin, int64_t stop) {
    for_each_two_lanes(fill, seed, offset + begin, stop - begin, [&](int64_t i, uint32_t lane, uint32_t extra) {
      const double* first = sums.as<const double>() + (begin + i) / samples * categories;
      const double* end = first + categories;
      const double* found = std::upper_bound(first, end, uniform_double(lane, extra) * end[-1]);
      if (found == end) found = std::lower_bound(first, end, end[-1]);  // rounded up
      y.as<int64_t>()[begin + i] = found - first;
    });
  });
}

}  // namespace

void dropout(FillLanes fill, double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
  if (is_half(x.dtype)) return dropout(fill, p, seed, offset, Widened().in(x), Widened().out(y), keep);
  // Signed: SSE2 has no unsigned comparison.
  const int32_t threshold = static_cast<int32_t>(static_cast<uint32_t>(p * 4294967295.0) ^ 0x80000000u);
  const auto apply = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const T scale = p < 1 ? T(1 / (1 - p)) : T(0);
    const bool none = p >= 1;
    const auto piece = [&](int64_t start, int64_t count, const uint32_t* lanes) {
      // Without branches and aliases the compiler vectorises these loops.
      alignas(64) int32_t keeps[kPiece];
      for (int64_t i = 0; i < count; ++i)
        keeps[i] = !none & (static_cast<int32_t>(lanes[i] ^ 0x80000000u) >= threshold);
      const T* __restrict in = x.as<const T>() + start;
      T* __restrict out = to + start;
      for (int64_t i = 0; i < count; ++i) {
        const T scaled = in[i] * scale;
        out[i] = keeps[i] ? scaled : T(0);
      }
      uint8_t* kept = keep.as<uint8_t>() + start;
      for (int64_t i = 0; i < count; ++i) kept[i] = static_cast<uint8_t>(keeps[i]);
    };
    for_each_range(x.numel, kCost, [&](int64_t begin, int64_t end) {
      for_each_piece(fill, seed, offset + begin, end - begin,
                     [&](int64_t i, int64_t count, const uint32_t* lanes) { piece(begin + i, count, lanes); });
    });
  };
  x.dtype == kFloat64 ? apply(y.as<double>()) : apply(y.as<float>());
}

void install_random(KernelTable& table) {
  table.poisson = poisson;
  table.multinomial = multinomial;
}

}  // namespace reel::cpu
