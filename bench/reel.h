#pragma once
// What reel's own sides of the benchmarks share.
#include "bench/bench.h"
#include "bench/scaling.h"
#include "reel/reel.h"

/// The numbers that all libraries start from.
inline reel::Tensor filled(const reel::Shape& shape, uint64_t seed, float bound) {
  return reel::tensor(bench::filled(static_cast<size_t>(shape.numel()), seed, bound), shape);
}
inline void fill(reel::Tensor parameter, uint64_t seed, float bound) {
  reel::NoGrad guard;
  parameter.copy_(filled(parameter.shape(), seed, bound));
}
inline void zero(std::initializer_list<reel::Tensor> parameters) {
  reel::NoGrad guard;
  for (reel::Tensor parameter : parameters) parameter.zero_();
}

/// On --device cuda, tensors are made on the GPU. Only the process of a workload may touch it: a GPU does not survive
/// fork().
class ReelReport : public bench::Report {
 public:
  explicit ReelReport(const bench::Options& options) : Report("reel", options), scaling_(options.scaling) {
    reel::set_num_threads(options.threads);
    if (!on_gpu() || options.list || gpu_is_there()) return;
    std::fprintf(stderr, "--device cuda: this machine has no GPU that CUDA can use, or reel was built without CUDA\n");
    std::exit(2);
  }

  void run(const std::string& workload, const std::function<void()>& f) {
    Report::run(workload, [&] {
#ifdef REEL_BENCH_SCALING
      if (scaling_) bench::scaling::start(), bench::device.wait = bench::scaling::mark;
#endif
      if (on_gpu()) {
        reel::set_default_device(reel::kCUDA);
        bench::device.wait = [] { reel::cuda::synchronize(); };
        bench::device.peak_mib = [] { return static_cast<double>(reel::cuda::memory_stats().peak_in_use) / (1 << 20); };
      }
      f();
#ifdef REEL_BENCH_SCALING
      if (scaling_) bench::scaling::print(workload.c_str());
#endif
    });
  }

 private:
  [[maybe_unused]] const bool scaling_;
  static bool gpu_is_there() {
    const pid_t child = fork();
    if (child == 0) _exit(reel::cuda::is_available() ? 0 : 1);
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
  }
};
