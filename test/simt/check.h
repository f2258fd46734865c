#pragma once
// Helpers of the tests of the shim.
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "device.h"
#include "simt.h"

namespace checks {

// ---- expectations ---------------------------------------------------------------------------------------------------

#define EXPECT(condition) expect(condition, #condition, __LINE__)
inline void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: not so: %s\n", line, what);
  std::fflush(nullptr);
  _exit(1);
}
#define SUCCEED(call) expect((call) == cudaSuccess, #call, __LINE__)

inline cudaStream_t make_stream() {
  cudaStream_t stream;
  SUCCEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
template <class T>
T* make(size_t count, cudaStream_t stream) {
  void* address;
  SUCCEED(cudaMallocAsync(&address, count * sizeof(T), stream));
  return static_cast<T*>(address);
}
template <class T>
T* make_pinned(size_t count) {
  void* address;
  SUCCEED(cudaHostAlloc(&address, count * sizeof(T), 0));
  return static_cast<T*>(address);
}
/// The values in device memory after all work of the stream.
template <class T>
std::vector<T> values(const T* from, size_t count, cudaStream_t stream) {
  std::vector<T> result(count);
  SUCCEED(cudaMemcpyAsync(result.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  return result;
}
template <class T>
void upload(T* to, const std::vector<T>& from, cudaStream_t stream) {
  SUCCEED(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
}
/// Loads the kernel first, which a capture would refuse.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A... args) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaFuncAttributes attributes;
  SUCCEED(cudaThreadExchangeStreamCaptureMode(&mode));
  SUCCEED(cudaFuncGetAttributes(&attributes, kernel));
  SUCCEED(cudaThreadExchangeStreamCaptureMode(&mode));
  SUCCEED(simt::launch(kernel, grid, block, shared, stream, args...));
}

// ---- kernels of several tests
// ----------------------------------------------------------------------------------------

__global__ inline void set(float* to, int count, float value) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < unsigned(count); i += gridDim.x * blockDim.x)
    to[i] = value;
}
__global__ inline void add(float* to, const float* from, int count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < unsigned(count); i += gridDim.x * blockDim.x)
    to[i] += from[i];
}

// ---- tests ----------------------------------------------------------------------------------------------------------

struct Test {
  const char* name;
  void (*run)();
  enum { kHolds, kIsCaught, kDies } expected = kHolds;  // always; not with every seed; never
  const char* says = "";
};
/// The tests of graphs, and those with several GPUs.
extern const std::vector<Test> graph_tests, device_tests;

}  // namespace checks
