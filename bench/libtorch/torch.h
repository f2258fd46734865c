#pragma once
#include <torch/torch.h>
#include <torch/version.h>

#include "bench/bench.h"

inline bench::Report torch_report(const bench::Options& options) {
  return bench::Report(std::string("libtorch-") + TORCH_VERSION, options);
}

inline void use_threads(int threads) {
  at::set_num_threads(threads);
  at::set_num_interop_threads(1);
}

/// A leaf with the numbers that all libraries start from.
inline torch::Tensor filled(at::IntArrayRef shape, uint64_t seed, float bound) {
  std::vector<float> values = bench::filled(c10::multiply_integers(shape), seed, bound);
  return torch::from_blob(values.data(), shape, torch::kFloat).clone().set_requires_grad(true);
}
inline torch::Tensor zeros(int64_t n) { return torch::zeros({n}).set_requires_grad(true); }
