#pragma once
// What reel's own sides of the benchmarks share.
#include "bench/bench.h"
#include "reel/reel.h"

/// The numbers that all libraries start from.
inline reel::Tensor filled(const reel::Shape& shape, uint64_t seed, float bound) {
  return reel::from(bench::filled(static_cast<size_t>(shape.numel()), seed, bound), shape);
}
inline void fill(reel::Tensor parameter, uint64_t seed, float bound) {
  reel::NoGrad guard;
  parameter.copy_(filled(parameter.shape(), seed, bound));
}
inline void zero(std::initializer_list<reel::Tensor> parameters) {
  reel::NoGrad guard;
  for (reel::Tensor parameter : parameters) parameter.zero_();
}

inline bench::Report reel_report(const bench::Options& options) {
  reel::set_num_threads(options.threads);
  return bench::Report("reel", options);
}
