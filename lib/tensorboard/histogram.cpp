#include "lib/tensorboard/histogram.h"
#include "lib/base/lazy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace reel::tensorboard {
namespace {

// The positive bounds: 1e-12, 1.1e-12, … to 1e20, as TensorFlow's histogram.cc has them, and the largest number.
const std::vector<double>& bounds() {
  static constinit Lazy<std::vector<double>> all;
  return all.get([] {
    std::vector<double> bounds;
    for (double bound = 1e-12; bound < 1e20; bound *= 1.1) bounds.push_back(bound);
    bounds.push_back(std::numeric_limits<double>::max());
    return bounds;
  });
}

// Finds bounds by the leading bits of a number: a step of the first 6 bits of its mantissa is less than 2 %, so that
// at most one bound lies within. The first and the last step are all that is below and above the bounds.
class Finder {
 public:
  Finder() {
    for (size_t key = 1; key < kKeys; ++key) {
      const double least = std::bit_cast<double>((key + kFirst) << kShift);
      below_[key] = static_cast<uint16_t>(std::lower_bound(bounds_, bounds_ + bounds().size(), least) - bounds_);
    }
  }
  // How many bounds are less than x, or, with `equal`, at most x; x >= 0, finite.
  size_t operator()(double x, bool equal) const {
    const uint64_t key = std::clamp(std::bit_cast<uint64_t>(x) >> kShift, kFirst, kFirst + kKeys - 1) - kFirst;
    const double bound = bounds_[below_[key]];
    const int is_less = bound < x, is_equal = bound == x;  // without a branch
    return below_[key] + static_cast<size_t>(is_less | (is_equal & static_cast<int>(equal)));
  }

 private:
  static constexpr int kShift = 52 - 6;
  static constexpr uint64_t kFirst = (std::bit_cast<uint64_t>(0x1p-40) >> kShift) - 1;         // 0.9e-12
  static constexpr uint64_t kKeys = (std::bit_cast<uint64_t>(0x1p67) >> kShift) - kFirst + 1;  // 1.5e20
  std::array<uint16_t, kKeys> below_{};
  const double* const bounds_ = bounds().data();
};

}  // namespace

template <class T>
Histogram Histogram::of(std::span<const T> values) {
  static constinit Lazy<Finder> finder;
  const Finder& find = finder.get();
  // Limits, ascending: -max (which nothing is below) … -1e-12, 0, 1e-12 … max, which the last bucket takes as well.
  const std::vector<double>& positive = bounds();
  const size_t n = positive.size(), buckets = 2 * n + 1;
  std::vector<int64_t> counts(buckets + 1);
  Histogram found;
  // In variables of its own, which stay in registers.
  double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0, sum_squares = 0;
  for (const T value : values) {
    const double x = value;
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? found.nan : found.infinite);
      continue;
    }
    // The first limit that is greater than x. Signs are hard to predict, so both are treated alike.
    const bool negative = x < 0;
    const size_t beyond = find(std::abs(x), !negative);
    const auto step = static_cast<size_t>(1 - 2 * static_cast<int>(negative));  // 1 or -1
    ++counts[n + !negative + step * beyond];
    least = std::min(least, x), most = std::max(most, x);
    sum += x, sum_squares += x * x;
  }
  found.counted = static_cast<int64_t>(values.size()) - found.nan - found.infinite;
  if (found.counted) found.min = least, found.max = most;
  found.sum = sum, found.sum_squares = sum_squares;
  counts[buckets - 1] += counts[buckets];
  size_t first = 0, last = buckets;
  while (first < last - 1 && !counts[first]) ++first;
  while (last > first + 1 && !counts[last - 1]) --last;
  for (size_t i = first; i < last; ++i) {
    found.limits.push_back(i < n ? -positive[n - 1 - i] : i == n ? 0 : positive[i - n - 1]);
    found.counts.push_back(static_cast<double>(counts[i]));
  }
  return found;
}
template Histogram Histogram::of(std::span<const float>);
template Histogram Histogram::of(std::span<const double>);

}  // namespace reel::tensorboard
