#pragma once
// A GPU for machines that have none: the CUDA sources, compiled by g++ with this file before them, run on the CPU.
//
// The toolkit's own headers declare the runtime's functions, and simt.cpp defines them. A block's threads are fibers
// with real barriers, shuffles and votes; blocks run one after the other. Streams are lazy: work runs only when its
// stream is synchronized, so that a read without synchronization gets old data. Device memory is not accessible to the
// host, is NaN before it is written, and is poisoned again, in stream order, when it is freed. SIMT_SEED (0: in order,
// 1: backwards, others: shuffled) chooses the order of threads, blocks and streams. There are two GPUs, or
// SIMT_DEVICES.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "lib/base/sanitizers.h"

namespace simt {

#ifdef REEL_ADDRESS_SANITIZER
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif

struct Thread {
  uint3 index;
  unsigned number;  // in its block
};
extern Thread* current;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern unsigned char* dynamic_shared;

/// The source line of a barrier or shuffle. Threads that synchronize must be at the same one.
struct Place {
  const char* file;
  int line;
};
inline Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

/// The barrier of a block. Returns the number of threads that voted.
unsigned synchronize_block(Place place, bool vote = false);
/// Copies the values (of `bytes` bytes) of the mask's lanes to all of them, as an array of 32; other lanes' are 0xff.
void exchange(unsigned mask, const void* mine, void* all, size_t bytes, Place place);
/// Adds work to a stream; it runs when the stream is synchronized. Profilers see it as a kernel: the one at that
/// address or, where it stands for a library's kernels, one that is called as the calling function.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, const void* kernel = nullptr,
                    const char* name = __builtin_FUNCTION());
/// Runs a kernel's blocks at once.
void run(const void* kernel, dim3 grid, dim3 block, size_t shared, const std::function<void()>& body);
/// The number of kernels launched so far; those of a capture count once.
unsigned long long launches();
/// The number of calls of CUDA's runtime so far, launches included.
unsigned long long driver_calls();
cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared);

/// Returns the size of a kernel's arguments, each of which lies where its alignment allows.
template <class... P>
constexpr size_t argument_bytes() {
  size_t bytes = 0;
  ((bytes = (bytes + alignof(P) - 1) / alignof(P) * alignof(P) + sizeof(P)), ...);
  return bytes;
}
inline constexpr size_t kMaxArgumentBytes = 32764;  // of a GPU from compute capability 7.0 on, by CUDA 12.1 or later

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A&&... args) {
  static_assert(argument_bytes<P...>() <= kMaxArgumentBytes, "a kernel has more arguments than a GPU takes");
  const void* const address = reinterpret_cast<const void*>(kernel);
  const cudaError_t status = check_launch(address, grid, block, shared);
  if (status != cudaSuccess) return status;
  return enqueue(
      stream,
      [=, values = std::tuple<P...>(static_cast<P>(args)...)] {
        run(address, grid, block, shared, [&] { std::apply(kernel, values); });
      },
      address);
}

inline unsigned lane() { return current->number & 31; }
template <class T>
T shuffle(unsigned mask, T value, unsigned source, Place place) {
  alignas(T) unsigned char all[32 * sizeof(T)];
  exchange(mask, &value, all, sizeof(T), place);
  std::memcpy(&value, all + (source & 31) * sizeof(T), sizeof(T));
  return value;
}

template <class T, class Op>
T reduce_lanes(unsigned mask, T value, Op op, Place place) {
  T all[32];
  exchange(mask, &value, all, sizeof(T), place);
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1) && i != lane()) value = op(value, all[i]);
  return value;
}
template <class To, class From>
To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}
// Fibers are switched at barriers and shuffles only, so this is atomic.
template <class T, class Op>
T change(T* place, const Op& op) {
  const T old = *place;
  *place = op(old);
  return old;
}

}  // namespace simt

// A block's shared memory is static, in linker sections of its own so that run() can fill it with NaN. Not under
// AddressSanitizer, which puts redzones around variables. g++ honours only noinit for the statics of templates.
#undef __shared__
#ifdef REEL_ADDRESS_SANITIZER
#define __shared__ static
#elif defined(__clang__)
#define __shared__ __attribute__((section(".noinit"))) static
#else
#define __shared__ __attribute__((noinit)) static
#endif
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (::simt::current->index)
#define blockIdx (::simt::block_index)
#define blockDim (::simt::block_size)
#define gridDim (::simt::grid_size)
#define __syncthreads() ((void)::simt::synchronize_block({__FILE__, __LINE__}))

// Overloads that cuda_runtime.h declares for nvcc only.
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(P...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(P...), int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads, shared);
}

inline int __syncthreads_count(int predicate, simt::Place place = simt::here()) {
  return int(simt::synchronize_block(place, predicate != 0));
}
inline int __syncthreads_or(int predicate, simt::Place place = simt::here()) {
  return simt::synchronize_block(place, predicate != 0) != 0;
}
inline int __syncthreads_and(int predicate, simt::Place place = simt::here()) {
  return simt::synchronize_block(place, predicate == 0) == 0;
}

// Lanes are counted within groups of `width` lanes, a power of 2; a lane out of the group is the lane itself.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, simt::Place place = simt::here()) {
  const unsigned base = simt::lane() & ~unsigned(width - 1);
  return simt::shuffle(mask, value, base + (unsigned(source) & unsigned(width - 1)), place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, simt::Place place = simt::here()) {
  const unsigned lane = simt::lane(), other = lane ^ unsigned(bits);
  return simt::shuffle(mask, value, other >= (lane & ~unsigned(width - 1)) + width ? lane : other, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, simt::Place place = simt::here()) {
  const unsigned lane = simt::lane(), in_group = lane & unsigned(width - 1);
  return simt::shuffle(mask, value, in_group + by >= unsigned(width) ? lane : lane + by, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, simt::Place place = simt::here()) {
  const unsigned lane = simt::lane(), in_group = lane & unsigned(width - 1);
  return simt::shuffle(mask, value, in_group < by ? lane : lane - by, place);
}
inline void __syncwarp(unsigned mask = ~0u, simt::Place place = simt::here()) {
  const char none = 0;
  char all[32];
  simt::exchange(mask, &none, all, 1, place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, simt::Place place = simt::here()) {
  const unsigned char mine = predicate != 0;
  unsigned char all[32];
  simt::exchange(mask, &mine, all, 1, place);
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i) votes |= unsigned(all[i] == 1) << i;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, simt::Place place = simt::here()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, simt::Place place = simt::here()) {
  return __ballot_sync(mask, predicate, place) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, simt::Place place = simt::here()) {
  T all[32];
  simt::exchange(mask, &value, all, sizeof(T), place);
  unsigned equal = 0;
  for (unsigned i = 0; i < 32; ++i) equal |= unsigned((mask >> i & 1) && all[i] == value) << i;
  return equal;
}
template <class T>
T __reduce_add_sync(unsigned mask, T value, simt::Place place = simt::here()) {
  return simt::reduce_lanes(
      mask, value, [](T a, T b) { return T(a + b); }, place);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, simt::Place place = simt::here()) {
  return simt::reduce_lanes(
      mask, value, [](T a, T b) { return std::max(a, b); }, place);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, simt::Place place = simt::here()) {
  return simt::reduce_lanes(
      mask, value, [](T a, T b) { return std::min(a, b); }, place);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}

inline int __float_as_int(float x) { return simt::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return simt::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return simt::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return simt::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return simt::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return simt::bits_as<double>(x); }

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

// Of two floats, min and max return the one that is not NaN.
inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline unsigned long min(unsigned long a, unsigned long b) { return a < b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }
inline unsigned long max(unsigned long a, unsigned long b) { return a > b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

template <class T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return T(old + value); });
}
template <class T>
T atomicSub(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return T(old - value); });
}
template <class T>
T atomicMax(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return std::min(old, value); });
}
template <class T>
T atomicAnd(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return T(old & value); });
}
template <class T>
T atomicOr(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return T(old | value); });
}
template <class T>
T atomicXor(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return T(old ^ value); });
}
template <class T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  return simt::change(place, [&](T) { return value; });
}
template <class T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return simt::change(place, [&](T old) { return old == expected ? value : old; });
}

template <class T>
T __ldg(const T* place) {
  return *place;
}
template <class T>
T __ldcs(const T* place) {
  return *place;
}
template <class T>
T __ldcg(const T* place) {
  return *place;
}
template <class T>
void __stcs(T* place, std::type_identity_t<T> value) {
  *place = value;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { std::abort(); }
