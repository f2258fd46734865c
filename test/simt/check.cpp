// Tests of the shim: programs with planted bugs (races, reads of unwritten memory, wrong arguments), each in a process
// of its own, which the shim must detect, and correct ones, which it must run.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "cuda/plans.h"

// The library's, of which this program has the headers alone.
constinit thread_local reel::GraphCapture* reel::current_capture = nullptr;

using namespace checks;
using simt::kAsan;

namespace {

constexpr unsigned kAll = ~0u;

// ---- kernels --------------------------------------------------------------------------------------------------------

__global__ void visit(int* visits) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(&visits[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1);
}
template <bool kBarrier>
__global__ void reverse(int* numbers) {
  __shared__ int tile[256];
  tile[threadIdx.x] = numbers[threadIdx.x];
  if (kBarrier) __syncthreads();
  numbers[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void leave_early(float* to) {
  if (threadIdx.x < 16) return;
  __syncthreads();
  to[threadIdx.x] = 1;
}
__global__ void part_ways(float* to) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    to[threadIdx.x] = 1;
    __syncthreads();
  }
}
__global__ void shuffle_with_few(float* to) {
  if (threadIdx.x < 16) to[threadIdx.x] = __shfl_xor_sync(kAll, 1.f, 1);
}
__global__ void shuffle_apart(float* to) {
  if (threadIdx.x % 2) {
    to[threadIdx.x] = __shfl_xor_sync(kAll, 1.f, 1);
  } else {
    to[threadIdx.x] = __shfl_xor_sync(kAll, 2.f, 1);
  }
}
__global__ void shuffle_out_of_mask(float* to) { to[threadIdx.x] = __shfl_sync(0xffffu, 1.f, 0); }
__global__ void write_at(float* to, int index) { to[index] = 1; }
__global__ void read_at(const float* from, int index, float* to) { *to = from[index]; }
template <class T>
__global__ void read_static_shared(T* to, bool write) {
  __shared__ T tile[64];
  if (write) tile[threadIdx.x] = 0;
  to[threadIdx.x] = tile[threadIdx.x];
}
template <int kBytes>
__global__ void fill_static_shared(int* to) {
  __shared__ int tile[kBytes / sizeof(int)];
  for (unsigned i = threadIdx.x; i < kBytes / sizeof(int); i += blockDim.x) tile[i] = int(i);
  __syncthreads();
  if (threadIdx.x == 0) *to = tile[5];
}
__global__ void exponentials(float* to) { to[threadIdx.x] = expf(float(threadIdx.x) / 16); }
__global__ void read_shared(float* to) {
  to[threadIdx.x] = reinterpret_cast<float*>(simt::dynamic_shared)[threadIdx.x];
}

__global__ void meet(unsigned* results) {
  const unsigned lane = threadIdx.x % 32, t = threadIdx.x;
  unsigned* const mine = results + t * 12;
  mine[0] = __shfl_xor_sync(kAll, t, 5);
  mine[1] = __shfl_down_sync(kAll, t, 3);
  mine[2] = __shfl_up_sync(kAll, t, 3);
  mine[3] = __shfl_down_sync(kAll, t, 1, 8);
  mine[4] = __shfl_sync(kAll, t, 2, 8);
  mine[5] = __ballot_sync(kAll, lane % 3 == 0);
  mine[6] = __match_any_sync(kAll, lane / 8);
  mine[7] = __reduce_add_sync(kAll, lane);
  mine[8] = unsigned(__syncthreads_count(t < 40));
  mine[9] = unsigned(__syncthreads_or(t == 70));
  mine[10] = unsigned(__syncthreads_and(t != 70));
  mine[11] = lane < 16 ? __shfl_xor_sync(0xffffu, t, 1) : 0;  // a shuffle of half a warp is allowed
}

// ---- tests of what is right -----------------------------------------------------------------------------------------

void every_thread_runs_once() {
  const cudaStream_t stream = make_stream();
  for (const auto& [grid, block] : {std::pair(dim3(1), dim3(1)),
                                    {dim3(7), dim3(33)},
                                    {dim3(3, 5, 2), dim3(4, 8, 3)},
                                    {dim3(2), dim3(1024)},
                                    {dim3(1, 36), dim3(32)}}) {
    const size_t count = size_t(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
    int* const visits = make<int>(count, stream);
    SUCCEED(cudaMemsetAsync(visits, 0, count * sizeof(int), stream));
    launch(visit, grid, block, 0, stream, visits);
    EXPECT(values(visits, count, stream) == std::vector<int>(count, 1));
    SUCCEED(cudaFreeAsync(visits, stream));
  }
}

void threads_meet() {
  const cudaStream_t stream = make_stream();
  unsigned* const results = make<unsigned>(96 * 12, stream);
  launch(meet, 1, 96, 0, stream, results);
  const auto all = values(results, 96 * 12, stream);
  for (unsigned t = 0; t < 96; ++t) {
    const unsigned lane = t % 32, *const mine = all.data() + t * 12;
    EXPECT(mine[0] == (t ^ 5) && mine[1] == (lane > 28 ? t : t + 3) && mine[2] == (lane < 3 ? t : t - 3));
    EXPECT(mine[3] == (t % 8 == 7 ? t : t + 1) && mine[4] == t / 8 * 8 + 2);
    EXPECT(mine[5] == 0x49249249u && mine[6] == 0xffu << lane / 8 * 8 && mine[7] == 496);
    EXPECT(mine[8] == 40 && mine[9] == 1 && mine[10] == 0 && mine[11] == (lane < 16 ? t ^ 1 : 0));
  }
}

void barriers_order_shared_memory() {
  const cudaStream_t stream = make_stream();
  int* const numbers = make<int>(256, stream);
  std::vector<int> expected(256);
  for (int i = 0; i < 256; ++i) expected[size_t(i)] = i;
  upload(numbers, expected, stream);
  for (int i = 0; i < 3; ++i) launch(reverse<true>, 1, 256, 0, stream, numbers);
  std::reverse(expected.begin(), expected.end());
  EXPECT(values(numbers, 256, stream) == expected);
}

struct FleetingPlan {
  int serial;
  FleetingPlan(int& made) : serial(++made) {}
  bool lasts() const { return serial >= 3; }
};
void plans_that_failed_are_made_anew() {
  static int made = 0;
  reel::cuda::Plans<1, FleetingPlan> plans(2);
  const auto serial = [&](int64_t key) { return plans.get({key}, std::ref(made)).serial; };
  EXPECT(serial(7) == 1 && serial(7) == 2 && serial(7) == 3 && serial(7) == 3);
  EXPECT(serial(8) == 4 && serial(7) == 3 && serial(9) == 5 && serial(7) == 3 && serial(8) == 6);
}

void launches_have_limits() {
  static_assert(simt::argument_bytes<char, double, char>() == 17 && simt::argument_bytes<>() == 0);  // 32,764 at most
  const cudaStream_t stream = make_stream();
  float* const to = make<float>(1024, stream);
  const auto status = [&](dim3 grid, dim3 block, size_t shared = 0) {
    return simt::launch(set, grid, block, shared, stream, to, 1024, 1.f);
  };
  EXPECT(status(1, 1024) == cudaSuccess);
  EXPECT(status(0, 32) == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
  EXPECT(status(1, 0) == cudaErrorInvalidConfiguration);
  EXPECT(status(1, 1025) == cudaErrorInvalidConfiguration);
  EXPECT(status(1, dim3(64, 32)) == cudaErrorInvalidConfiguration);
  EXPECT(status(1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
  EXPECT(status(dim3(1, 65536), 32) == cudaErrorInvalidConfiguration);
  EXPECT(status(dim3(1, 1, 65536), 32) == cudaErrorInvalidConfiguration);
  EXPECT(status(1, 32, 48 << 10) == cudaSuccess);
  EXPECT(status(1, 32, 100 << 10) == cudaErrorInvalidValue);  // cudaFuncSetAttribute was not called for it
  SUCCEED(cudaFuncSetAttribute(set, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
  EXPECT(status(1, 32, 227 << 10) == cudaSuccess);
  EXPECT(status(1, 32, 228 << 10) == cudaErrorInvalidValue);
  EXPECT(cudaFuncSetAttribute(set, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) == cudaErrorInvalidValue);
}

void static_shared_memory_counts() {
  if (kAsan) return;
  const cudaStream_t stream = make_stream();
  int* const to = make<int>(1, stream);
  constexpr auto* kernel = fill_static_shared<40 << 10>;
  launch(kernel, 1, 64, 0, stream, to);
  EXPECT(values(to, 1, stream)[0] == 5);
  cudaFuncAttributes attributes;
  SUCCEED(cudaFuncGetAttributes(&attributes, kernel));
  EXPECT(attributes.sharedSizeBytes == 40 << 10 && attributes.maxDynamicSharedSizeBytes == 8 << 10);
  EXPECT(simt::launch(kernel, 1, 64, 8 << 10, stream, to) == cudaSuccess);
  EXPECT(simt::launch(kernel, 1, 64, 9 << 10, stream, to) == cudaErrorInvalidValue);
  EXPECT(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 188 << 10) == cudaErrorInvalidValue);
  SUCCEED(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 187 << 10));
  EXPECT(simt::launch(kernel, 1, 64, 187 << 10, stream, to) == cudaSuccess);
  SUCCEED(cudaStreamSynchronize(stream));
}

template <bool off>
void functions_may_be_off_by_a_unit() {
  setenv("SIMT_ULP", off ? "1" : "0", 1);
  const cudaStream_t stream = make_stream();
  float* const to = make<float>(256, stream);
  launch(exponentials, 1, 256, 0, stream, to);
  const auto all = values(to, 256, stream);
  int others = 0;
  for (int i = 0; i < 256; ++i) {
    const float right = expf(float(i) / 16), got = all[size_t(i)];
    others += got != right;
    EXPECT(got == right || got == std::nextafter(right, 0.f) || got == std::nextafter(right, INFINITY));
  }
  EXPECT(all[0] == 1 && (off ? others > 100 : others == 0));
}

void new_memory_is_nan() {
  const cudaStream_t stream = make_stream();
  for (const float value : values(make<float>(100, stream), 100, stream)) EXPECT(value != value);
  float* const to = make<float>(32, stream);
  launch(read_shared, 2, 32, 32 * sizeof(float), stream, to);
  for (const float value : values(to, 32, stream)) EXPECT(value != value);
  if (kAsan) return;
  launch(read_static_shared<float>, 1, 32, 0, stream, to, false);
  for (const float value : values(to, 32, stream)) EXPECT(value != value);
}

void addresses_wait_for_their_stream() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float* const old = make<float>(1000, first);
  launch(set, 1, 256, 0, first, old, 1000, 3.f);
  float* const result = make_pinned<float>(1000);
  SUCCEED(cudaMemcpyAsync(result, old, 4000, cudaMemcpyDeviceToHost, first));
  SUCCEED(cudaFreeAsync(old, first));
  EXPECT(cudaFreeAsync(old, first) == cudaErrorInvalidValue);
  EXPECT(cudaMemsetAsync(old, 0, 4, first) == cudaErrorInvalidValue);
  for (int i = 0; i < 100; ++i) launch(set, 1, 256, 0, second, make<float>(1000, second), 1000, 4.f);
  SUCCEED(cudaStreamSynchronize(second));
  SUCCEED(cudaStreamSynchronize(first));
  EXPECT(result[0] == 3 && result[999] == 3);
}

void copies_check_what_they_touch() {
  const cudaStream_t stream = make_stream();
  float* const to = make<float>(10, stream);
  float host[20] = {};
  const auto status = [&](void* a, const void* b, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(a, b, bytes, kind, stream);
  };
  EXPECT(status(to, host, 44, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(status(to + 5, host, 24, cudaMemcpyDefault) == cudaErrorInvalidValue);
  EXPECT(status(host, to, 40, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemsetAsync(to, 0, 41, stream) == cudaErrorInvalidValue);
  SUCCEED(status(to, host, 40, cudaMemcpyDefault));
  for (int i = 0; i < 20; ++i) host[i] = float(i);  // it has been copied
  SUCCEED(cudaMemcpy2DAsync(host + 10, 4, to, 8, 4, 5, cudaMemcpyDeviceToHost, stream));
  EXPECT(host[9] == 9 && host[10] == 0 && host[14] == 0 && host[15] == 15);
  cudaPointerAttributes attributes;
  SUCCEED(cudaPointerGetAttributes(&attributes, to + 3));
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
  SUCCEED(cudaPointerGetAttributes(&attributes, host));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered);
  SUCCEED(cudaHostRegister(host, sizeof host, 0));
  EXPECT(cudaHostRegister(host + 1, 4, 0) == cudaErrorHostMemoryAlreadyRegistered);
  SUCCEED(cudaPointerGetAttributes(&attributes, host + 19));
  EXPECT(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == host + 19);
  SUCCEED(cudaHostUnregister(host));
  EXPECT(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
}

void events_order_streams() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float* const data = make<float>(1000, first);
  cudaEvent_t event, start;
  SUCCEED(cudaEventCreate(&start));
  SUCCEED(cudaEventCreateWithFlags(&event, cudaEventDefault));
  SUCCEED(cudaEventRecord(start, first));
  for (int i = 0; i < 20; ++i) {
    launch(set, 4, 64, 0, first, data, 1000, float(i));
    SUCCEED(cudaEventRecord(event, first));
    SUCCEED(cudaStreamWaitEvent(second, event, 0));
    launch(add, 4, 64, 0, second, data, static_cast<const float*>(data), 1000);
    SUCCEED(cudaEventRecord(event, second));
    SUCCEED(cudaStreamWaitEvent(first, event, 0));
  }
  SUCCEED(cudaEventRecord(event, first));
  EXPECT(values(data, 1000, second) == std::vector<float>(1000, 38));
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  EXPECT(cudaEventQuery(event) == cudaSuccess);
  float milliseconds = -1;
  SUCCEED(cudaEventElapsedTime(&milliseconds, start, event));
  EXPECT(milliseconds >= 0);
  while (cudaStreamQuery(second) == cudaErrorNotReady) {
  }
  SUCCEED(cudaEventDestroy(event));
  EXPECT(cudaEventRecord(event, first) == cudaErrorInvalidResourceHandle);
  SUCCEED(cudaStreamDestroy(second));
  EXPECT(cudaStreamSynchronize(second) == cudaErrorInvalidResourceHandle);
}

void memory_runs_out() {
  simt::limit_memory(64 << 20);
  const cudaStream_t first = make_stream(), second = make_stream();
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  SUCCEED(cudaMemPoolCreate(&pool, &properties));
  uint64_t keep = UINT64_MAX, reserved = 0;
  SUCCEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  void *a, *b;
  EXPECT(cudaMallocFromPoolAsync(&a, size_t(65) << 20, pool, first) == cudaErrorMemoryAllocation && !a);
  SUCCEED(cudaMallocFromPoolAsync(&a, 40 << 20, pool, first));
  SUCCEED(cudaFreeAsync(a, first));
  SUCCEED(cudaMallocFromPoolAsync(&a, 40 << 20, pool, first));  // within a stream no synchronization is needed
  SUCCEED(cudaFreeAsync(a, first));
  if (simt::seed() == 0) EXPECT(cudaMallocFromPoolAsync(&b, 40 << 20, pool, second) == cudaErrorMemoryAllocation);
  SUCCEED(cudaDeviceSynchronize());
  SUCCEED(cudaMallocFromPoolAsync(&b, 40 << 20, pool, second));
  SUCCEED(cudaFreeAsync(b, second));
  SUCCEED(cudaDeviceSynchronize());
  EXPECT(cudaMalloc(&a, 40 << 20) == cudaErrorMemoryAllocation);  // the pool keeps it
  SUCCEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT(reserved == 40 << 20);
  SUCCEED(cudaMemPoolTrimTo(pool, 0));
  SUCCEED(cudaMalloc(&a, 40 << 20));
  size_t free, total;
  SUCCEED(cudaMemGetInfo(&free, &total));
  EXPECT(free == 24 << 20 && total == 64 << 20);
  SUCCEED(cudaFree(a));
}

void host_functions_are_alone() {
  const cudaStream_t stream = make_stream();
  static cudaError_t status = cudaSuccess;
  SUCCEED(cudaLaunchHostFunc(
      stream, [](void* data) { status = cudaStreamQuery(static_cast<cudaStream_t>(data)); }, stream));
  SUCCEED(cudaStreamSynchronize(stream));
  EXPECT(status == cudaErrorNotPermitted);
}

void host_threads_share() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      const cudaStream_t stream = make_stream();
      for (int i = 0; i < 20; ++i) {
        float* const data = make<float>(500, stream);
        int* const numbers = make<int>(256, stream);
        SUCCEED(cudaMemsetAsync(numbers, 0, 1024, stream));
        launch(set, 2, 128, 0, stream, data, 500, float(t));
        launch(reverse<true>, 1, 256, 0, stream, numbers);
        EXPECT(values(data, 500, stream) == std::vector<float>(500, float(t)));
        SUCCEED(cudaFreeAsync(data, stream));
        SUCCEED(cudaFreeAsync(numbers, stream));
      }
    });
  for (auto& thread : threads) thread.join();
}

/// Calls that a capture does not allow invalidate it.
template <class F>
void refuses(cudaError_t expected, const F& forbidden) {
  const cudaStream_t stream = make_stream();
  float* const data = make<float>(10, stream);
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch(set, 1, 32, 0, stream, data, 10, 1.f);
  EXPECT(forbidden(stream) == expected);
  cudaStreamCaptureStatus status;
  SUCCEED(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusInvalidated);
  EXPECT(simt::launch(set, 1, 32, 0, stream, data, 10, 1.f) == cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph;
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && graph == nullptr);
  launch(set, 1, 32, 0, stream, data, 10, 2.f);
  EXPECT(values(data, 10, stream)[9] == 2);
}

void captures_refuse() {
  static float host;
  static void* address;
  const auto other = make_stream();
  cudaEvent_t before;
  SUCCEED(cudaEventCreate(&before));
  SUCCEED(cudaEventRecord(before, other));
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) { return cudaStreamSynchronize(s); });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) { return cudaStreamQuery(s); });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t) { return cudaDeviceSynchronize(); });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t) { return cudaMalloc(&address, 4); });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t) { return cudaFree(address); });
  refuses(cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaEventQuery(before); });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) {
    float* const to = make<float>(1, s);
    return cudaMemcpyAsync(to, &host, 4, cudaMemcpyHostToDevice, s);  // not pinned
  });
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) {  // a kernel that was not loaded before
    return simt::launch(read_shared, 1, 32, 4096, s, static_cast<float*>(nullptr));
  });
  refuses(cudaErrorStreamCaptureImplicit,
          [](cudaStream_t) { return simt::launch(set, 1, 32, 0, nullptr, static_cast<float*>(nullptr), 0, 1.f); });
  refuses(cudaErrorStreamCaptureIsolation, [&](cudaStream_t s) { return cudaStreamWaitEvent(s, before, 0); });
  refuses(cudaErrorCapturedEvent, [](cudaStream_t s) {
    cudaEvent_t inside;
    SUCCEED(cudaEventCreate(&inside));
    SUCCEED(cudaEventRecord(inside, s));
    return cudaEventSynchronize(inside);
  });
  EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  refuses(cudaErrorStreamCaptureUnsupported, [](cudaStream_t) {
    cudaError_t status;
    std::thread([&] { status = cudaMalloc(&address, 4); }).join();
    return status;
  });

  // A stream that never comes back.
  const cudaStream_t stream = make_stream();
  cudaEvent_t fork;
  SUCCEED(cudaEventCreate(&fork));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  SUCCEED(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT(mode == cudaStreamCaptureModeGlobal);
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  SUCCEED(cudaEventRecord(fork, stream));
  SUCCEED(cudaStreamWaitEvent(other, fork, 0));
  float* data;
  SUCCEED(cudaMalloc(reinterpret_cast<void**>(&data), 4));  // allowed in this thread
  launch(set, 1, 32, 0, other, data, 1, 1.f);
  cudaGraph_t graph;
  EXPECT(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched);
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  SUCCEED(cudaEventRecord(fork, stream));
  SUCCEED(cudaStreamWaitEvent(other, fork, 0));
  launch(set, 1, 32, 0, other, data, 1, 1.f);
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
}

void wrong_leading_dimensions_are_refused() {
  cublasLtHandle_t handle;
  EXPECT(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  // c (5x3) = a (5x4) b (4x3), by columns
  const auto status = [&](int64_t lda, int64_t ldb, int64_t ldc, uint64_t inner) {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulPreferenceOpaque_t preference;
    EXPECT(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasLtMatrixLayoutInit(&a, CUDA_R_32F, 5, 4, lda) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasLtMatrixLayoutInit(&b, CUDA_R_32F, inner, 3, ldb) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasLtMatrixLayoutInit(&c, CUDA_R_32F, 5, 3, ldc) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasLtMatmulPreferenceInit(&preference) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, &product, &a, &b, &c, &c, &preference, 1, &result, &count);
  };
  EXPECT(status(5, 4, 5, 4) == CUBLAS_STATUS_SUCCESS);
  EXPECT(status(4, 4, 5, 4) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(status(5, 3, 5, 4) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(status(5, 4, 3, 4) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(status(5, 5, 5, 5) == CUBLAS_STATUS_INVALID_VALUE);
}

// ---- planted bugs ---------------------------------------------------------------------------------------------------

template <auto kernel>
void run_alone() {
  const cudaStream_t stream = make_stream();
  launch(kernel, 1, 64, 0, stream, make<float>(64, stream));
  SUCCEED(cudaStreamSynchronize(stream));
}

template <int index>
void write_out_of_bounds() {
  const cudaStream_t stream = make_stream();
  make<float>(10, stream);
  float* const data = make<float>(10, stream);
  make<float>(10, stream);
  launch(write_at, 1, 1, 0, stream, data, index);
  SUCCEED(cudaStreamSynchronize(stream));
}

template <bool freed>
void read_what_is_not_ours() {
  const cudaStream_t stream = make_stream();
  float *const data = make<float>(10, stream), *const to = make<float>(1, stream);
  launch(set, 1, 32, 0, stream, data, 10, 1.f);
  if (freed) SUCCEED(cudaFreeAsync(data, stream));
  launch(read_at, 1, 1, 0, stream, data, freed ? 0 : 10, to);
  const float result = values(to, 1, stream)[0];
  EXPECT(result == 1);
}

void write_what_was_freed() {
  const cudaStream_t stream = make_stream();
  float* const data = make<float>(10, stream);
  SUCCEED(cudaFreeAsync(data, stream));
  launch(write_at, 1, 1, 0, stream, data, 3);
  SUCCEED(cudaDeviceSynchronize());
}

void touch_from_the_host() {
  const cudaStream_t stream = make_stream();
  float* const data = make<float>(10, stream);
  launch(set, 1, 32, 0, stream, data, 10, 1.f);
  SUCCEED(cudaStreamSynchronize(stream));
  EXPECT(data[3] == 1);
}

void touch_from_a_host_function() {
  const cudaStream_t stream = make_stream();
  float* const data = make<float>(10, stream);
  SUCCEED(cudaLaunchHostFunc(
      stream, [](void* memory) { *static_cast<float*>(memory) = 1; }, data));
  SUCCEED(cudaStreamSynchronize(stream));
}

void forget_a_barrier() {
  const cudaStream_t stream = make_stream();
  int* const numbers = make<int>(256, stream);
  upload(numbers, std::vector<int>(256, 7), stream);
  launch(reverse<false>, 1, 256, 0, stream, numbers);
  EXPECT(values(numbers, 256, stream) == std::vector<int>(256, 7));
}

void read_before_the_wait() {
  const cudaStream_t stream = make_stream();
  float *const data = make<float>(10, stream), *const result = make_pinned<float>(10);
  launch(set, 1, 32, 0, stream, data, 10, 1.f);
  SUCCEED(cudaMemcpyAsync(result, data, 40, cudaMemcpyDeviceToHost, stream));
  EXPECT(result[0] == 1);
}

void change_what_is_being_copied() {
  const cudaStream_t stream = make_stream();
  float *const data = make<float>(10, stream), *const source = make_pinned<float>(10);
  std::fill_n(source, 10, 1.f);
  SUCCEED(cudaMemcpyAsync(data, source, 40, cudaMemcpyHostToDevice, stream));
  std::fill_n(source, 10, 2.f);
  EXPECT(values(data, 10, stream)[0] == 1);
}

void unpin_what_is_being_copied() {
  const cudaStream_t stream = make_stream();
  static float source[10];
  SUCCEED(cudaHostRegister(source, sizeof source, 0));
  SUCCEED(cudaMemcpyAsync(make<float>(10, stream), source, 40, cudaMemcpyHostToDevice, stream));
  SUCCEED(cudaHostUnregister(source));
  SUCCEED(cudaStreamSynchronize(stream));
}

void forget_an_event() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float* const data = make<float>(10, first);
  SUCCEED(cudaStreamSynchronize(first));
  launch(set, 1, 32, 0, first, data, 10, 1.f);
  EXPECT(values(data, 10, second)[0] == 1);
}

void free_too_early_for_another_stream() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float *const data = make<float>(10, first), *const copy = make<float>(10, second);
  launch(set, 1, 32, 0, first, data, 10, 1.f);
  SUCCEED(cudaStreamSynchronize(first));
  SUCCEED(cudaMemcpyAsync(copy, data, 40, cudaMemcpyDeviceToDevice, second));
  SUCCEED(cudaFreeAsync(data, first));
  SUCCEED(cudaStreamSynchronize(first));
  EXPECT(values(copy, 10, second)[0] == 1);
}

// ---- how they are run -----------------------------------------------------------------------------------------------

const std::vector<Test> tests = {
    {"every thread runs once", every_thread_runs_once},
    {"threads meet", threads_meet},
    {"barriers order shared memory", barriers_order_shared_memory},
    {"launches have limits", launches_have_limits},
    {"functions may be off by a unit", functions_may_be_off_by_a_unit<true>},
    {"functions are the C library's", functions_may_be_off_by_a_unit<false>},
    {"static shared memory counts", static_shared_memory_counts},
    {"plans that failed are made anew", plans_that_failed_are_made_anew},
    {"new memory is NaN", new_memory_is_nan},
    {"addresses wait for their stream", addresses_wait_for_their_stream},
    {"copies check what they touch", copies_check_what_they_touch},
    {"events order streams", events_order_streams},
    {"memory runs out", memory_runs_out},
    {"host functions are alone", host_functions_are_alone},
    {"host threads share", host_threads_share},
    {"captures refuse", captures_refuse},
    {"wrong leading dimensions are refused", wrong_leading_dimensions_are_refused},
    {"a thread leaves before a barrier", run_alone<leave_early>, Test::kDies, "48 of 64 threads wait"},
    {"a barrier on both sides of a branch", run_alone<part_ways>, Test::kDies, "divergent barrier: thread"},
    {"half a warp shuffles", run_alone<shuffle_with_few>, Test::kDies, "lanes 16 17"},
    {"a shuffle on both sides of a branch", run_alone<shuffle_apart>, Test::kDies, "divergent shuffle: lane"},
    {"a lane that is not in its mask", run_alone<shuffle_out_of_mask>, Test::kDies, "not in its own mask"},
    {"a write behind a block", write_out_of_bounds<10>, Test::kDies, kAsan ? "use-after-poison" : "byte 40 of a block"},
    {"a write before a block", write_out_of_bounds<-1>, Test::kDies, kAsan ? "use-after-poison" : "byte -4 of a block"},
    {"a read behind a block", read_what_is_not_ours<false>, Test::kDies, kAsan ? "use-after-poison" : "not so"},
    {"a read after a free", read_what_is_not_ours<true>, Test::kDies, kAsan ? "use-after-poison" : "not so"},
    {"a write after a free", write_what_was_freed, Test::kDies, kAsan ? "use-after-poison" : "byte 12 of a block"},
    {"the host touches the GPU's memory", touch_from_the_host, Test::kDies, "the host touches byte 12"},
    {"a host function touches the GPU's memory", touch_from_a_host_function, Test::kDies, "touches byte 0"},
    {"a copy from memory that is not pinned any more", unpin_what_is_being_copied, Test::kDies, "pinned memory"},
    {"a missing barrier", forget_a_barrier, Test::kIsCaught},
    {"a result read before the wait", read_before_the_wait, Test::kIsCaught},
    {"a source changed before the wait", change_what_is_being_copied, Test::kIsCaught},
    {"a missing event", forget_an_event, Test::kIsCaught},
    {"memory freed while another stream uses it", free_too_early_for_another_stream, Test::kIsCaught},
};

struct Outcome {
  bool held;
  std::string errors;
};

Outcome run(const Test& test, int seed) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]), close(ends[1]);
    setenv("SIMT_SEED", std::to_string(seed).c_str(), 1);
    test.run();
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome{};
  char text[4096];
  for (ssize_t length; (length = read(ends[0], text, sizeof text)) > 0;) outcome.errors.append(text, size_t(length));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.held = status == 0;
  return outcome;
}

bool check(const Test& test) {
  bool good = true, caught = false;
  for (int seed = 0; seed < 4; ++seed) {
    const Outcome outcome = run(test, seed);
    caught = caught || !outcome.held;
    const bool as_expected = test.expected == Test::kHolds ? outcome.held
                             : test.expected == Test::kDies
                                 ? !outcome.held && outcome.errors.find(test.says) != std::string::npos
                                 : true;
    if (!as_expected) std::printf("%s, SIMT_SEED=%d: %s\n", test.name, seed, outcome.errors.c_str());
    good = good && as_expected;
  }
  if (test.expected == Test::kIsCaught && !caught) {
    std::printf("%s: no seed finds it\n", test.name);
    good = false;
  }
  return good;
}

}  // namespace

int main() {
  int failures = 0, count = 0;
  for (const std::span<const Test> list : {std::span(tests), std::span(graph_tests), std::span(device_tests)})
    for (const Test& test : list) ++count, failures += !check(test);
  std::printf("%d tests, %d failed\n", count, failures);
  return failures != 0;
}
