#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lib/device/device.h"
#include "lib/device/dispatch.h"
#include "lib/device/view.h"
#include "lib/functors/number.h"

// What every CUDA source starts from: errors, the current stream, scratch memory, launches and types.
//
// The same sources are compiled twice: by nvcc, and by g++ for test/simt, where a block's threads are fibers on the
// CPU. Hence launch() and REEL_SHARED instead of <<<>>> and extern __shared__; everything else is plain CUDA C++.
// Kernels are launched on stream() and never synchronize; a function that has to (for a count that becomes a
// shape) calls wait_for_gpu().
namespace reel::cuda {

// ---- errors ---------------------------------------------------------------------------------------------------------

/// Throws a reel::Error with the call and the description of its status.
[[noreturn]] void fail(cudaError_t status, const char* call);
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, call);
}
#define CUDA_CHECK(call) ::reel::cuda::check(call, #call)

/// Says on stderr (ten times at most) that a library has refused `what`, which is computed in a slower way. With
/// REEL_CUDA_FALLBACK=error it throws instead.
void note_fallback(const std::string& what);
/// How often it was called.
unsigned long long fallbacks();

// ---- streams and memory ---------------------------------------------------------------------------------------------

/// The calling thread's current stream.
cudaStream_t stream();

/// The first index out of range that a kernel has found, in pinned memory that both sides access; `flag` is 0 while
/// there is none, 1 while it is written and 2 when it is complete.
struct IndexError {
  unsigned flag = 0;
  const char* op = nullptr;
  int64_t value = 0, low = 0, high = 0;
};
IndexError* index_error();  // the current device's

/// Makes `device` the calling thread's current one. An Error if the machine does not have it, or if the work of another
/// one is being captured.
void use(Device device);

/// Synchronizes with stream() and throws the errors that kernels have reported since the last time (an index out of
/// range). `what` names the op that has to synchronize; it throws while a graph is captured.
void wait_for_gpu(const char* what);
/// Throws if wait_for_gpu would: for calls of CUDA that synchronize by themselves.
void check_wait(const char* what);

/// While it lives, the calling thread may make calls that CUDA refuses during a capture
/// (cudaThreadExchangeStreamCaptureMode): allocations that do not belong to the captured graph, or the first use of a
/// library's function, which loads code. What is launched on the captured stream is captured all the same.
class RelaxedCaptureGuard {
 public:
  explicit RelaxedCaptureGuard(bool needed = true) : needed_(needed) { exchange(); }
  ~RelaxedCaptureGuard() { exchange(); }
  RelaxedCaptureGuard(const RelaxedCaptureGuard&) = delete;
  RelaxedCaptureGuard& operator=(const RelaxedCaptureGuard&) = delete;

 private:
  void exchange() {
    if (needed_) [[unlikely]]
      cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  bool needed_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// An argument of a kernel that is new each time a captured graph runs again: the step of an optimizer, say.
///
/// Outside of a capture it is its value. In one, the kernel reads it from memory. Before a replay, what made it is
/// called again (GraphCapture::before_replay in lib/device/device.h), with launches that do nothing: then the new value
/// goes into that memory.
template <class T>
class ReplayParam {
 public:
  explicit ReplayParam(const T& value);
  __device__ const T& get() const { return place_ ? *place_ : value_; }

 private:
  T value_;
  const T* place_;
};
/// Where in the GPU's memory a ReplayParam of the present capture is; nullptr outside.
const void* replay_param_address(const void* value, size_t bytes);
template <class T>
ReplayParam<T>::ReplayParam(const T& value)
    : value_(value), place_(static_cast<const T*>(replay_param_address(&value_, sizeof(T)))) {}
/// Whether launches do nothing, while the arguments of a captured graph are recomputed.
inline constinit thread_local bool refreshing = false;

/// `bytes` bytes of the GPU's memory, in stream order: no wait. The block is given back with them.
struct MemoryBlock;
void* allocate(size_t bytes, MemoryBlock** block);
void release(MemoryBlock* block);

// Pinned memory of the host, for what is copied to a GPU (pinned.cu).
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
bool is_pinned(const void* data);
/// Says that a copy from or to there has been queued on stream(): until it is made, a pinned block is not reused.
void note_copy(const void* data);
void empty_pinned_cache();

/// Memory of the GPU for as long as a function runs: what is launched before the end may use it.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    data_ = static_cast<T*>(allocate(static_cast<size_t>(count) * sizeof(T), &block_));
  }
  ~Scratch() { release(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  operator T*() const { return data_; }

 private:
  MemoryBlock* block_;
  T* data_;
};

/// A contiguous copy of a view that is not contiguous, or the view itself.
class Contiguous {
 public:
  explicit Contiguous(const View& view);
  ~Contiguous();
  Contiguous(const Contiguous&) = delete;
  Contiguous& operator=(const Contiguous&) = delete;
  const View& view() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  View view_;
  MemoryBlock* block_ = nullptr;
};

/// Where a kernel that writes contiguous memory writes the result y: to y itself or, if y is strided, to a temporary,
/// which store() copies to y.
class ContiguousOutput {
 public:
  explicit ContiguousOutput(const View& y);
  ~ContiguousOutput();
  ContiguousOutput(const ContiguousOutput&) = delete;
  ContiguousOutput& operator=(const ContiguousOutput&) = delete;
  const View& view() const { return view_; }
  void store() const;

 private:
  const View& y_;
  View view_;
  MemoryBlock* block_ = nullptr;
};

// ---- launches -------------------------------------------------------------------------------------------------------

/// How much shared memory a block may have on the current device.
size_t max_shared_memory();
/// More than 48 KiB of shared memory, static arrays included, take an opt-in by a kernel attribute: it is set once for
/// each device, to the maximum. And a kernel's first launch loads it, which a capture refuses.
void prepare_kernel(const void* kernel, bool large);
inline void prepare_launch(const void* kernel, size_t shared) {
  constexpr size_t kMaxStatic = 24 << 10;
  const bool large = shared > (48 << 10) - kMaxStatic;
  if (large || capturing()) [[unlikely]]
    prepare_kernel(kernel, large);
}

#if defined(__CUDACC__)
/// kernel<<<grid, block, shared bytes, stream()>>>(args…). An empty grid launches nothing.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A&&... args) {
  if (grid.x == 0 || refreshing) return;
  prepare_launch(reinterpret_cast<const void*>(kernel), shared);
  const auto call = [&](P... values) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&values))...};
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared, stream()),
          "cudaLaunchKernel");
  };
  call(static_cast<P>(std::forward<A>(args))...);
}
/// The block's dynamic shared memory as an array of T.
#define REEL_SHARED(T, name)                                          \
  extern __shared__ __align__(16) unsigned char reel_shared_memory[]; \
  T* const name = reinterpret_cast<T*>(reel_shared_memory)
#else
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A&&... args) {
  if (grid.x == 0 || refreshing) return;
  prepare_launch(reinterpret_cast<const void*>(kernel), shared);
  check(simt::launch(kernel, grid, block, shared, stream(), std::forward<A>(args)...), "cudaLaunchKernel");
}
#define REEL_SHARED(T, name) T* const name = reinterpret_cast<T*>(::simt::dynamic_shared)
#endif

inline constexpr int kWarp = 32, kThreads = 256;
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Blocks for n threads' worth of work: as many as keep any GPU busy; the kernel strides over what they do not cover.
inline unsigned blocks_for(int64_t n, int threads = kThreads) {
  const int64_t blocks = ceil_div(n, threads), most = 132 * 32;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}
/// for (int64_t i = first_index(); i < n; i += index_step())
__device__ inline int64_t first_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t index_step() { return int64_t(gridDim.x) * blockDim.x; }

// ---- types ----------------------------------------------------------------------------------------------------------

/// The type that a GPU computes in with elements of type T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, float, T>;
template <class T>
__host__ __device__ inline Wide<T> widen(T x) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float(x);
  else
    return x;
}
template <class T, class W>
__host__ __device__ inline T narrow(W x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

using dispatch::Type, dispatch::with_integer, dispatch::with_word;
/// f(Type<T>()) for float32 and float64.
template <class F>
void with_float(DType dtype, const F& f) {
  dtype == kFloat32 ? f(Type<float>()) : f(Type<double>());
}
/// … any floating-point dtype.
template <class F>
void with_floating(DType dtype, const F& f) {
  dispatch::with_floating<__half, __nv_bfloat16>(dtype, f);
}
/// … any dtype.
template <class F>
void with_type(DType dtype, const F& f) {
  dispatch::with_type<__half, __nv_bfloat16>(dtype, f);
}

}  // namespace reel::cuda
