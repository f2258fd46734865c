#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace reel::tensorboard {

/// How values are distributed, as TensorFlow's HistogramProto has it.
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;  // 0 if nothing is counted
  int64_t counted = 0, nan = 0, infinite = 0;
  std::vector<double> limits, counts;  // bucket i has the values below limits[i] that no earlier one has

  template <class T>
  static Histogram of(std::span<const T> values);
};
extern template Histogram Histogram::of(std::span<const float>);
extern template Histogram Histogram::of(std::span<const double>);

}  // namespace reel::tensorboard
