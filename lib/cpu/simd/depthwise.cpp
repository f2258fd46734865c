// This file convolves each channel by itself in one dimension, where oneDNN is slow: it moves the channels last first.
#include <algorithm>

#include "lib/cpu/conv.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/narrow.h"
#include "lib/device/dispatch.h"
#include "reel/threads.h"

namespace reel::cpu::REEL_ISA {
namespace {

constexpr int64_t kLine = 1024, kMaxReach = 512, kMaxTaps = 32;
constexpr int64_t kPartWork = int64_t{1} << 17;  // the minimum number of multiplications of a part

/// A Line is a part of a row of elements, widened, with zeros beyond the row's edges. A vector may be read behind it.
template <class T>
struct Line {
  T data[kLine + kMaxReach + kWidth<T>];

  /// Reads n elements from `start` on, of a row of `size`, and zeros until the last vector is full.
  template <class E>
  void read(const E* row, int64_t size, int64_t start, int64_t n) {
    const int64_t first = std::clamp<int64_t>(-start, 0, n), last = std::clamp(size - start, first, n);
    std::fill(data, data + first, T(0));
    if constexpr (std::is_same_v<E, T>)
      std::copy_n(row + start + first, last - first, data + first);
    else
      convert(row + start + first, data + first, last - first);
    std::fill(data + last, data + n + kWidth<T>, T(0));
  }
};

/// A Filter is the weight of one channel.
template <class T>
struct Filter {
  T weight[kMaxTaps];
  int64_t taps, dilation, before;
  int64_t reach() const { return (taps - 1) * dilation; }

  /// Returns the filter that leads gradients back.
  Filter adjoint() const {
    Filter result{{}, taps, dilation, reach() - before};
    std::reverse_copy(weight, weight + taps, result.weight);
    return result;
  }
};

template <class E>
Filter<Compute<E>> filter_of(const Convolution& c, int64_t channel) {
  Filter<Compute<E>> filter{{}, c.kernel[2], c.dilation[2], c.before[2]};
  const E* const weight = static_cast<const E*>(c.data[kConvWeight]) + channel * filter.taps;
  for (int64_t k = 0; k < filter.taps; ++k) filter.weight[k] = widen(weight[k]);
  return filter;
}

/// Writes to[o] = bias + Σ weight[k] row[o + k dilation - before] for `count` elements.
template <class E, class T>
void filter_row(const Filter<T>& filter, const E* row, int64_t size, T bias, E* to, int64_t count) {
  constexpr int64_t kStep = kWidth<T>, kTogether = 4;
  Line<T> line;
  for (int64_t begin = 0; begin < count; begin += kLine) {
    const int64_t n = std::min(kLine, count - begin);
    line.read(row, size, begin - filter.before, n + filter.reach());
    const auto sums = [&]<int64_t C>(std::integral_constant<int64_t, C>, int64_t o, Batch<T>* sum) {
      for (int64_t c = 0; c < C; ++c) sum[c] = Batch<T>(bias);
      const T* at = line.data + o;
      for (int64_t k = 0; k < filter.taps; ++k, at += filter.dilation)
        for (int64_t c = 0; c < C; ++c) sum[c] = fma(Batch<T>(filter.weight[k]), load(at + c * kStep), sum[c]);
    };
    Batch<T> sum[kTogether];
    E* const y = to + begin;
    int64_t o = 0;
    for (; o + kTogether * kStep <= n; o += kTogether * kStep) {
      sums(std::integral_constant<int64_t, kTogether>(), o, sum);
      for (int64_t c = 0; c < kTogether; ++c) store_rounded(y + o + c * kStep, sum[c], kStep);
    }
    for (; o < n; o += kStep) {
      sums(std::integral_constant<int64_t, 1>(), o, sum);
      store_rounded(y + o, sum[0], std::min(kStep, n - o));
    }
  }
}

/// Adds Σ g[o] row[o + k dilation - before] to sums[k] for `count` elements of g.
template <class E, class T>
void correlate_rows(const Filter<T>& filter, const E* row, int64_t size, const E* g, int64_t count, double* sums) {
  Line<T> x, y;
  for (int64_t begin = 0; begin < count; begin += kLine) {
    const int64_t n = std::min(kLine, count - begin);
    x.read(row, size, begin - filter.before, n + filter.reach());
    y.read(g, count, begin, n);
    const auto add = [&]<int64_t K>(std::integral_constant<int64_t, K>, int64_t k) {
      Batch<T> sum[K];
      for (auto& s : sum) s = Batch<T>(T(0));
      for (int64_t o = 0; o < n; o += kWidth<T>) {
        const Batch<T> factor = load(y.data + o);
        for (int64_t i = 0; i < K; ++i) sum[i] = fma(factor, load(x.data + o + (k + i) * filter.dilation), sum[i]);
      }
      for (int64_t i = 0; i < K; ++i) sums[k + i] += static_cast<double>(hadd(sum[i]));
    };
    int64_t k = 0;
    for (; k + 4 <= filter.taps; k += 4) add(std::integral_constant<int64_t, 4>(), k);
    for (; k < filter.taps; ++k) add(std::integral_constant<int64_t, 1>(), k);
  }
}

/// Computes y from x, or else the gradient of x from that of y.
template <class E>
void convolve_rows(const Convolution& c, bool forward) {
  using T = Compute<E>;
  const int64_t x_size = c.x_size[2], y_size = c.y_size[2];
  E *const x = static_cast<E*>(c.data[kConvX]), *const y = static_cast<E*>(c.data[kConvY]);
  parallel_for(c.n * c.in, std::max<int64_t>(kPartWork / (c.kernel[2] * (x_size + y_size)), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   const int64_t channel = row % c.in;
                   const Filter<T> filter = filter_of<E>(c, channel);
                   const T bias = forward && c.bias ? widen(static_cast<const E*>(c.bias)[channel]) : T(0);
                   if (forward)
                     filter_row<E>(filter, x + row * x_size, x_size, bias, y + row * y_size, y_size);
                   else
                     filter_row<E>(filter.adjoint(), y + row * y_size, y_size, bias, x + row * x_size, x_size);
                 }
               });
}

template <class E>
void sum_weight_gradients(const Convolution& c) {
  using T = Compute<E>;
  const int64_t x_size = c.x_size[2], y_size = c.y_size[2], taps = c.kernel[2];
  const auto *x = static_cast<const E*>(c.data[kConvX]), *y = static_cast<const E*>(c.data[kConvY]);
  parallel_for(c.in, std::max<int64_t>(kPartWork / (c.n * y_size * taps), 1), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      double sums[kMaxTaps] = {};
      const Filter<T> filter{{}, taps, c.dilation[2], c.before[2]};
      for (int64_t image = 0; image < c.n; ++image) {
        const int64_t row = image * c.in + channel;
        correlate_rows<E>(filter, x + row * x_size, x_size, y + row * y_size, y_size, sums);
      }
      T rounded[kMaxTaps];
      std::copy_n(sums, taps, rounded);
      E* const to = static_cast<E*>(c.data[kConvWeight]) + channel * taps;
      if constexpr (std::is_same_v<E, T>)
        std::copy_n(rounded, taps, to);
      else
        convert(rounded, to, taps);
    }
  });
}

bool is_depthwise(const Convolution& c) {
  return c.dims == 1 && c.groups == c.in && c.groups == c.out && c.stride[2] == 1 && !c.channels_last[kConvX] &&
         c.kernel[2] <= kMaxTaps && (c.kernel[2] - 1) * c.dilation[2] <= kMaxReach;
}

bool convolve(ConvPart wanted, const Convolution& c) {
  if (!is_depthwise(c)) return cpu::convolve(wanted, c);
  dispatch::with_floating(c.dtype, [&](auto type) {
    using E = typename decltype(type)::type;
    wanted == kConvWeight ? sum_weight_gradients<E>(c) : convolve_rows<E>(c, wanted == kConvY);
  });
  return true;
}

}  // namespace

void install_depthwise(KernelTable& table) { table.convolve = convolve; }

}  // namespace reel::cpu::REEL_ISA
