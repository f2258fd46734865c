#include <memory>

#include "lib/cpu/kernels.h"
#include "lib/philox.h"

namespace reel::cpu {
namespace {

/// set(i, lane, extra) for the numbers offset + i of the stream.
template <class F>
void for_each_lane(uint64_t seed, uint64_t offset, int64_t n, const F& set) {
  for (int64_t i = 0; i < n;) {
    const uint64_t number = offset + i;
    const PhiloxBlock block = philox(seed, number / 4);
    for (int lane = number % 4; lane < 4 && i < n; ++lane, ++i) set(i, block.lane[lane]);
  }
}
template <class F>
void for_each_two_lanes(uint64_t seed, uint64_t offset, int64_t n, const F& set) {
  for (int64_t i = 0; i < n;) {
    const uint64_t number = offset + i;
    const PhiloxBlock block = philox(seed, number / 4), extra = philox(seed, number / 4, 1);
    for (int lane = number % 4; lane < 4 && i < n; ++lane, ++i) set(i, block.lane[lane], extra.lane[lane]);
  }
}

template <class T>
void uniform(double low, double high, uint64_t seed, uint64_t offset, int64_t n, T* y) {
  const T scale = T(high) - T(low), start = T(low), end = T(high);
  // Rounding may reach the upper end, which does not belong to the interval.
  const auto place = [&](T u) {
    const T value = start + u * scale;
    return value < end || start == end ? value : start;
  };
  if constexpr (sizeof(T) == 4) {
    for_each_lane(seed, offset, n, [&](int64_t i, uint32_t lane) { y[i] = place(uniform_float(lane)); });
  } else {
    for_each_two_lanes(seed, offset, n,
                       [&](int64_t i, uint32_t lane, uint32_t extra) { y[i] = place(uniform_double(lane, extra)); });
  }
}

void normal(double mean, double std, uint64_t seed, uint64_t offset, int64_t n, float* y) {
  for (int64_t i = 0; i < n;) {
    const uint64_t number = offset + i;
    const PhiloxBlock block = philox(seed, number / 4);
    for (int lane = number % 4; lane < 4 && i < n;) {
      const NormalPair pair = normal_pair(block.lane[lane & 2], block.lane[(lane & 2) + 1]);
      for (const int end = (lane & 2) + 2; lane < end && i < n; ++lane, ++i)
        y[i] = float(mean) + float(std) * (lane & 1 ? pair.second : pair.first);
    }
  }
}

void normal(double mean, double std, uint64_t seed, uint64_t offset, int64_t n, double* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t number = offset + i;
    const PhiloxBlock block = philox(seed, number / 4), extra = philox(seed, number / 4, 1);
    const int lane = number % 4 & 2;
    const double u = uniform_double(block.lane[lane], extra.lane[lane]) + 0x1p-54;
    const double v = uniform_double(block.lane[lane + 1], extra.lane[lane + 1]);
    const double radius = scalar::sqrt(-2 * scalar::log(u)), angle = 6.283185307179586477 * v;
    y[i] = mean + std * radius * (number & 1 ? scalar::sin(angle) : scalar::cos(angle));
  }
}

template <class T>
void integers(double low, double high, uint64_t seed, uint64_t offset, int64_t n, T* y) {
  const int64_t start = static_cast<int64_t>(low);
  const uint64_t range = static_cast<uint64_t>(static_cast<int64_t>(high)) - static_cast<uint64_t>(start);
  for_each_two_lanes(seed, offset, n, [&](int64_t i, uint32_t lane, uint32_t extra) {
    y[i] = static_cast<T>(static_cast<uint64_t>(start) + uniform_integer(lane, extra, range));
  });
}

void generate(RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
  const int64_t n = y.numel;
  if (kind == RandomKind::kInteger) return integers(a, b, seed, offset, n, y.as<int64_t>());
  const auto draw = [&](auto* to) {
    kind == RandomKind::kUniform ? uniform(a, b, seed, offset, n, to) : normal(a, b, seed, offset, n, to);
  };
  y.dtype == kFloat64 ? draw(y.as<double>()) : draw(y.as<float>());
}

}  // namespace

void random(RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
  if (y.numel == 0) return;
  const DType native = kind == RandomKind::kInteger ? kInt64 : y.dtype == kFloat64 ? kFloat64 : kFloat32;
  if (y.contiguous && y.dtype == native) return generate(kind, a, b, seed, offset, y);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(y.numel * size_of(native));
  View dense = y;
  dense.data = buffer.get();
  dense.dtype = native;
  dense.contiguous = true;
  int64_t stride = 1;
  for (int d = y.shape.size() - 1; d >= 0; --d) dense.strides[d] = stride, stride *= y.shape[d];
  generate(kind, a, b, seed, offset, dense);
  copy(dense, y);
}

void dropout(double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
  const uint64_t threshold = static_cast<uint64_t>(p * 0x1p32);
  const auto apply = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const T* from = x.as<const T>();
    const T scale = p < 1 ? T(1 / (1 - p)) : T(0);
    uint8_t* kept = keep.as<uint8_t>();
    for_each_lane(seed, offset, x.numel, [&](int64_t i, uint32_t lane) {
      kept[i] = lane >= threshold;
      to[i] = kept[i] ? from[i] * scale : T(0);
    });
  };
  x.dtype == kFloat64 ? apply(y.as<double>()) : apply(y.as<float>());
}

}  // namespace reel::cpu
