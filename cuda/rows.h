#pragma once
#include "cuda/aligned_vector.h"
#include "cuda/block.h"

// Kernels over contiguous rows (softmax, layer norm), each of which is reduced and then written by one team of threads:
// some lanes of a warp, a whole warp, or a thread block, so many that they hold the row in registers and read it from
// memory once. Rows of more than kMaxRegisterRow elements are read by a block once for each pass.
namespace reel::cuda {

inline constexpr int kItemsPerThread = 8;  // of a row, in registers
inline constexpr int kMaxThreads = 1024;   // of a block, CUDA's own limit
inline constexpr int64_t kMaxRegisterRow = kItemsPerThread * kMaxThreads;

struct RowTeams {
  int64_t count, n;  // rows, elements of each
  unsigned team;     // threads for a row, a power of two
  bool aligned;      // all arrays begin at aligned addresses and rows are whole vectors

  bool fits_registers() const { return n <= kMaxRegisterRow; }
  unsigned block() const { return team <= kWarp ? 128 : team; }
  unsigned blocks() const { return static_cast<unsigned>(ceil_div(count, block() / team)); }
};

template <class T>
RowTeams make_row_teams(int64_t count, int64_t n, std::initializer_list<const void*> arrays) {
  constexpr int64_t kVectorSize = AlignedVector<T>::kSize;
  RowTeams rows{count, n, power_of_two_from(ceil_div(n, kVectorSize), kWarp), n % kVectorSize == 0};
  if (n > kWarp * kItemsPerThread) rows.team = power_of_two_from(ceil_div(n, kItemsPerThread), kMaxThreads);
  for (const void* array : arrays) rows.aligned = rows.aligned && is_aligned(array);
  return rows;
}

/// The part of a row that the calling thread has: the vectors that begin at elements `first`, `first + step`, …
template <class T>
struct RowSlice {
  static constexpr int kVectorSize = AlignedVector<T>::kSize;
  int64_t row, first, step;
  bool is_leader;  // the first thread of its team
  bool valid;      // the row exists; threads without one still take part in the team's shuffles and barriers
  __device__ explicit RowSlice(const RowTeams& rows)
      : row(int64_t(blockIdx.x) * (blockDim.x / rows.team) + threadIdx.x / rows.team),
        first(int64_t(threadIdx.x % rows.team) * kVectorSize),
        step(int64_t(rows.team) * kVectorSize),
        is_leader(first == 0),
        valid(row < rows.count) {}
};

/// A thread's slice of a row, in registers. The loops have constant bounds, so that the compiler unrolls them and no
/// array is indexed at run time, which would put it into local memory.
template <class T>
struct RowRegisters {
  static constexpr int kVectorSize = AlignedVector<T>::kSize, kVectors = kItemsPerThread / kVectorSize;
  Wide<T> items[kVectors][kVectorSize];

  /// `wanted` false: all items are `beyond` and nothing is read.
  __device__ void load(const T* row, const RowSlice<T>& slice, const RowTeams& rows, bool wanted, Wide<T> beyond) {
    for (int p = 0; p < kVectors; ++p)
      load_items(items[p], row, slice.first + p * slice.step, wanted ? rows.n : 0, rows.aligned, beyond);
  }
  __device__ void store(T* row, const RowSlice<T>& slice, const RowTeams& rows) const {
    for (int p = 0; p < kVectors; ++p) store_items(row, slice.first + p * slice.step, rows.n, rows.aligned, items[p]);
  }
  /// f(item, its index in the row) for the items that are inside the row.
  template <class F>
  __device__ void for_each(const RowSlice<T>& slice, const RowTeams& rows, const F& f) {
    for (int p = 0; p < kVectors; ++p)
      for (int k = 0; k < kVectorSize; ++k) {
        const int64_t i = slice.first + p * slice.step + k;
        if (i < rows.n) f(items[p][k], i);
      }
  }
};

}  // namespace reel::cuda
