#include "cuda/block.h"
#include "cuda/kernels.h"
#include "lib/device/kernels/sampled.h"
#include "lib/functors/activation.h"

// Logistic losses of vectors against sampled rows of a matrix, a warp for each vector; gradients of the rows, a warp
// for each row, which adds up its entries in their order: the same bits in each run. float32 and float64.
namespace reel::cuda {
namespace {

constexpr unsigned kWarpsPerBlock = 8;

/// Calls f(i) for the i < count that the calling warp has; all its lanes get the same.
template <class F>
__device__ void for_each_of_warp(int64_t count, const F& f) {
  const int64_t step = int64_t(gridDim.x) * kWarpsPerBlock;
  for (int64_t i = int64_t(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp; i < count; i += step) f(i);
}

/// Rows out of range, which another check reports, count as zeros.
template <class T>
__global__ void losses(SampledLogits job, int64_t each) {
  const int lane = threadIdx.x % kWarp;
  const T* const weight = static_cast<const T*>(job.weight);
  T* const slope = static_cast<T*>(job.slope);
  for_each_of_warp(job.n, [&](int64_t i) {
    const T* const h = static_cast<const T*>(job.hidden) + i * job.width;
    const int64_t begin = job.bounds ? job.bounds[i] : i * each, end = job.bounds ? job.bounds[i + 1] : begin + each;
    T loss = 0;
    for (int64_t e = begin; e < end; ++e) {
      const int64_t id = job.ids[e];
      const bool known = id >= 0 && id < job.rows;
      T score = 0;
      for (int64_t j = lane; j < job.width && known; j += kWarp) score += h[j] * weight[id * job.stride + j];
      score = warp_reduce(score, Plus());
      if (job.bias && known) score += static_cast<const T*>(job.bias)[id];
      if (job.shift) score -= static_cast<const T*>(job.shift)[e];
      const T sign = (job.truth ? job.truth[e] : e == begin) ? T(1) : T(-1);
      loss -= functors::LogSigmoid()(sign * score);
      if (lane == 0) slope[e] = functors::LogSigmoid().grad(-sign, sign * score, T(0));
    }
    if (lane == 0) static_cast<T*>(job.loss)[i] = loss;
    if (!job.unit_grad) return;
    __syncwarp();
    T* const to = static_cast<T*>(job.unit_grad) + i * job.width;
    for (int64_t j = lane; j < job.width; j += kWarp) {
      T sum = 0;
      for (int64_t e = begin; e < end; ++e) {
        const int64_t id = job.ids[e];
        if (id >= 0 && id < job.rows) sum += slope[e] * weight[id * job.stride + j];
      }
      to[j] = sum;
    }
  });
}

template <class T>
__global__ void gradients(SampledLogitsGrad job) {
  const int lane = threadIdx.x % kWarp;
  for_each_of_warp(job.count, [&](int64_t r) {
    const int64_t begin = job.begins[r], end = job.begins[r + 1];
    const auto add_up = [&](const auto& value) {
      T sum = 0;
      for (int64_t at = begin; at < end; ++at) {
        const int64_t entry = job.order[at], owner = job.owners ? job.owners[entry] : entry / job.each;
        sum += static_cast<const T*>(job.slope)[entry] * static_cast<const T*>(job.grad)[owner] * value(owner);
      }
      return sum;
    };
    if (job.of_bias && lane == 0) static_cast<T*>(job.of_bias)[r] = add_up([](int64_t) { return T(1); });
    for (int64_t j = lane; j < job.width && job.of_rows; j += kWarp)
      static_cast<T*>(job.of_rows)[r * job.width + j] =
          add_up([&](int64_t owner) { return static_cast<const T*>(job.hidden)[owner * job.width + j]; });
  });
}

dim3 blocks_of(int64_t warps) { return dim3(blocks_for(warps * kWarp, kWarpsPerBlock * kWarp)); }

}  // namespace

void install_sampled(KernelTable& table) {
  table.sampled_logits = [](const SampledLogits& job) {
    if (job.n == 0) return;
    with_float(job.dtype, [&](auto type) {
      launch(losses<typename decltype(type)::type>, blocks_of(job.n), dim3(kWarpsPerBlock * kWarp), 0, job,
             job.entries / job.n);
    });
  };
  table.sampled_logits_grad = [](const SampledLogitsGrad& job) {
    if (job.count == 0) return;
    with_float(job.dtype, [&](auto type) {
      launch(gradients<typename decltype(type)::type>, blocks_of(job.count), dim3(kWarpsPerBlock * kWarp), 0, job);
    });
  };
}

}  // namespace reel::cuda
