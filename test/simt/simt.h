#pragma once
// A GPU for machines that have none: the CUDA sources, compiled by g++ with this file before them, run on the CPU.
//
// The toolkit's own headers declare the runtime's functions, and simt.cpp defines them. A block's threads are fibers
// with real barriers, shuffles and votes; blocks run one after the other. Streams are lazy: what is launched runs only
// when somebody waits for it, so whoever reads too early reads old data. Memory of the "GPU" cannot be read by the host,
// is NaN before it is written, and is poisoned again in stream order when it is freed.
// SIMT_SEED (0: in order, 1: backwards, others: shuffled) chooses the order of threads, blocks and streams.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

namespace simt {

struct Thread {
  uint3 index;
  unsigned number;  // in its block
};
extern Thread* current;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern unsigned char* dynamic_shared;

/// The barrier of a block.
void synchronize_block();
/// Gives every lane of mask the `bytes` bytes of all of them, 32 in a row.
void exchange(unsigned mask, const void* mine, void* all, size_t bytes);
/// Work of a stream, done when somebody waits for it.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// Runs a kernel's blocks now.
void run(dim3 grid, dim3 block, size_t shared, const std::function<void()>& body);
cudaError_t check_launch(dim3 grid, dim3 block, size_t shared);

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A&&... args) {
  const cudaError_t status = check_launch(grid, block, shared);
  if (status != cudaSuccess) return status;
  enqueue(stream, [=, values = std::tuple<P...>(static_cast<P>(args)...)] {
    run(grid, block, shared, [&] { std::apply(kernel, values); });
  });
  return cudaSuccess;
}

inline unsigned lane() { return current->number & 31; }
template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  T all[32];
  exchange(mask, &value, all, sizeof(T));
  return all[source & 31];
}

}  // namespace simt

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (::simt::current->index)
#define blockIdx (::simt::block_index)
#define blockDim (::simt::block_size)
#define gridDim (::simt::grid_size)
#define __syncthreads() ::simt::synchronize_block()

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned base = simt::lane() & ~unsigned(width - 1);
  return simt::shuffle(mask, value, base + (unsigned(source) & unsigned(width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return simt::shuffle(mask, value, simt::lane() ^ unsigned(bits));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = simt::lane();
  return simt::shuffle(mask, value, lane + by > 31 ? lane : lane + by);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = simt::lane();
  return simt::shuffle(mask, value, lane < by ? lane : lane - by);
}
inline void __syncwarp(unsigned mask = ~0u) {
  const int none = 0;
  int all[32];
  simt::exchange(mask, &none, all, sizeof none);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  int all[32];
  simt::exchange(mask, &predicate, all, sizeof predicate);
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1) && all[i]) votes |= 1u << i;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }

// Threads take turns only at barriers, so these are atomic as they stand.
template <class T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old + value;
  return old;
}
template <class T>
T atomicMax(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = std::max(old, value);
  return old;
}
template <class T>
T atomicMin(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = std::min(old, value);
  return old;
}
template <class T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value;
  return old;
}
template <class T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *place;
  if (old == expected) *place = value;
  return old;
}
template <class T>
T __ldg(const T* place) {
  return *place;
}
inline void __threadfence() {}
inline void __threadfence_system() {}
