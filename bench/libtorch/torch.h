#pragma once
#include <torch/torch.h>
#include <torch/version.h>

#include "bench/bench.h"

/// Sets the number of threads in each workload's own process, where the pool is made.
class TorchReport : public bench::Report {
 public:
  explicit TorchReport(const bench::Options& options)
      : Report(std::string("libtorch-") + TORCH_VERSION, options), threads_(options.threads) {
    if (on_gpu()) throw std::invalid_argument("libtorch's side is for a CPU");
  }

  void run(const std::string& workload, const std::function<void()>& f) {
    Report::run(workload, [&] {
      at::set_num_threads(threads_);
      at::set_num_interop_threads(1);
      f();
    });
  }

 private:
  const int threads_;
};

/// A leaf with the numbers that all libraries start from.
inline torch::Tensor filled(at::IntArrayRef shape, uint64_t seed, float bound) {
  std::vector<float> values = bench::filled(c10::multiply_integers(shape), seed, bound);
  return torch::from_blob(values.data(), shape, torch::kFloat).clone().set_requires_grad(true);
}
inline torch::Tensor zeros(int64_t n) { return torch::zeros({n}).set_requires_grad(true); }
