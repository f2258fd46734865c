#pragma once
#include "cuda/runtime.h"

namespace reel::cuda {

/// The milliseconds between two points of the current stream. stop() waits for the GPU.
class Stopwatch {
 public:
  Stopwatch() {
    for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreate(&event));
    CUDA_CHECK(cudaEventRecord(events_[0], stream()));
  }
  ~Stopwatch() {
    for (const cudaEvent_t event : events_)
      if (event) cudaEventDestroy(event);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  float stop() {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventRecord(events_[1], stream()));
    CUDA_CHECK(cudaEventSynchronize(events_[1]));
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return milliseconds;
  }

 private:
  cudaEvent_t events_[2] = {};
};

/// The milliseconds that `work` takes when it is repeated.
template <class F>
float time_of(const F& work) {
  constexpr int kRuns = 3;
  work();  // may load kernels
  Stopwatch watch;
  for (int run = 0; run < kRuns; ++run) work();
  return watch.stop();
}

}  // namespace reel::cuda
