#include "lib/tensorboard/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace reel::tensorboard {
namespace {

// The positive bounds: 1e-12, 1.1e-12, … to 1e20, as TensorFlow's histogram.cc has them, and the largest number.
const std::vector<double>& bounds() {
  static const std::vector<double> all = [] {
    std::vector<double> bounds;
    for (double bound = 1e-12; bound < 1e20; bound *= 1.1) bounds.push_back(bound);
    bounds.push_back(std::numeric_limits<double>::max());
    return bounds;
  }();
  return all;
}

// Finds bounds by the leading bits of a number: a step of the first 6 bits of its mantissa is less than 2 %, so that
// at most one bound lies within.
class Finder {
 public:
  Finder() {
    for (size_t key = 0; key < kKeys; ++key) {
      const double least = std::bit_cast<double>(static_cast<uint64_t>(key + kFirst) << kShift);
      below_[key] = static_cast<uint16_t>(std::lower_bound(begin(), end(), least) - begin());
    }
  }
  // How many bounds are less than x, or, with `equal`, at most x; x >= 0, not NaN.
  size_t operator()(double x, bool equal) const {
    const uint64_t key = std::bit_cast<uint64_t>(x) >> kShift;
    if (key < kFirst) return 0;
    size_t count = below_[std::min<uint64_t>(key - kFirst, kKeys - 1)];
    if (key - kFirst >= kKeys) count = bounds().size() - 1;  // beyond 1e20
    count += bounds_[count] < x;
    return count + static_cast<size_t>(static_cast<int>(equal) & static_cast<int>(bounds_[count] == x));
  }

 private:
  static const double* begin() { return bounds().data(); }
  static const double* end() { return begin() + bounds().size(); }
  static constexpr int kShift = 52 - 6;
  static constexpr uint64_t kFirst = std::bit_cast<uint64_t>(0x1p-40) >> kShift;         // 0.9e-12
  static constexpr size_t kKeys = (std::bit_cast<uint64_t>(0x1p67) >> kShift) - kFirst;  // to 1.5e20
  std::array<uint16_t, kKeys> below_;
  const double* const bounds_ = begin();
};

}  // namespace

template <class T>
Histogram Histogram::of(std::span<const T> values) {
  static const Finder find;
  // Limits, ascending: -max (which nothing is below) … -1e-12, 0, 1e-12 … max, which the last bucket takes as well.
  const std::vector<double>& positive = bounds();
  const size_t n = positive.size(), buckets = 2 * n + 1;
  std::vector<int64_t> counts(buckets + 1);
  Histogram found;
  found.min = std::numeric_limits<double>::infinity(), found.max = -found.min;
  for (const T value : values) {
    const double x = value;
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? found.nan : found.infinite);
      continue;
    }
    // The first limit that is greater than x. Signs are hard to predict, so both are treated alike.
    const bool negative = x < 0;
    const size_t beyond = find(std::abs(x), !negative);
    ++counts[negative ? n - beyond : n + 1 + beyond];
    found.min = std::min(found.min, x), found.max = std::max(found.max, x);
    found.sum += x, found.sum_squares += x * x;
    ++found.counted;
  }
  counts[buckets - 1] += counts[buckets];
  if (!found.counted) found.min = found.max = 0;
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
