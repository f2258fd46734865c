#pragma once
#include "cuda/aligned_vector.h"
#include "cuda/block.h"

// Kernels over contiguous rows (softmax, layer norm), each of which is reduced and then written by one team of threads:
// some lanes of a warp, a whole warp, or a thread block, so many that they hold the row in registers and read it from
// memory once. Rows of more than kMaxRegisterRow elements are read by a block once for each pass.
namespace reel::cuda {

// How many elements of a row a thread holds: a short row's, or of a longer one so many that enough of its loads are in
// flight at a time to keep the memory busy.
inline constexpr int kFew = 8, kMany = 32;
inline constexpr int kMaxThreads = 1024;   // of a block, CUDA's own limit
inline constexpr unsigned kMaxTeam = 256;  // for a row in registers
inline constexpr int64_t kMaxRegisterRow = kMany * kMaxTeam;

struct RowTeams {
  int64_t count, n;  // rows, elements of each
  unsigned team;     // threads for a row, a power of two
  bool aligned;      // all arrays begin at aligned addresses and rows are whole vectors
  int held;          // kFew or kMany elements a thread

  bool fits_registers() const { return n <= kMaxRegisterRow; }
  unsigned block() const { return team <= kWarp ? 128 : team; }
  unsigned blocks() const { return static_cast<unsigned>(ceil_div(count, block() / team)); }
};

/// A thread of a row in registers holds up to `most` elements of it.
template <class T>
RowTeams make_row_teams(int64_t count, int64_t n, std::initializer_list<const void*> arrays, int most = kMany) {
  constexpr int64_t kVectorSize = AlignedVector<T>::kSize;
  RowTeams rows{count, n, power_of_two_from(ceil_div(n, kVectorSize), kWarp), n % kVectorSize == 0, kFew};
  if (n > kWarp * kFew) {
    rows.held = most;
    if (n > kWarp * most) rows.team = power_of_two_from(ceil_div(n, most), kMaxThreads);
  }
  for (const void* array : arrays) rows.aligned = rows.aligned && is_aligned(array);
  return rows;
}
/// f(how many elements a thread holds, `simple`), as constants: where a row is simple, most likely that it is aligned,
/// a kernel of its own has no code for the other case, which would cost it registers.
template <class F>
void with_held(const RowTeams& rows, bool simple, const F& f) {
  const auto with = [&](auto held) { simple ? f(held, std::true_type()) : f(held, std::false_type()); };
  rows.held == kFew ? with(std::integral_constant<int, kFew>()) : with(std::integral_constant<int, kMany>());
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

/// A thread's slice of a row, in registers. All loops over it are unrolled, so that no array is indexed at run time,
/// which would put it into local memory. Places within the slice are counted in 32 bits from its first element: each
/// comparison in 64 bits would take as long as the arithmetic of an element.
template <class T, int kHeld>
struct RowRegisters {
  static constexpr int kVectorSize = AlignedVector<T>::kSize, kVectors = kHeld / kVectorSize;
  Wide<T> items[kVectors][kVectorSize];

  /// How many elements a row of n has from the slice's first one on, none or at most 2³¹ - 1.
  __device__ static int left(const RowSlice<T>& slice, int64_t n) {
    const int64_t count = n - slice.first;
    return static_cast<int>(count < 0 ? 0 : count < INT32_MAX ? count : INT32_MAX);
  }

  /// `wanted` false: all items are `beyond` and nothing is read. All vectors are loaded before one of them is used.
  __device__ void load(const T* row, const RowSlice<T>& slice, const RowTeams& rows, bool wanted, Wide<T> beyond) {
    const int n = left(slice, wanted ? rows.n : 0), step = static_cast<int>(slice.step);
    row += slice.first;
    if (!rows.aligned) {
#pragma unroll
      for (int p = 0; p < kVectors; ++p) load_items(items[p], row, p * step, n, false, beyond);
      return;
    }
    AlignedVector<T> vectors[kVectors] = {};
#pragma unroll
    for (int p = 0; p < kVectors; ++p)
      if (p * step < n) vectors[p] = load_vector(row + p * step);
#pragma unroll
    for (int p = 0; p < kVectors; ++p)
#pragma unroll
      for (int k = 0; k < kVectorSize; ++k) items[p][k] = p * step < n ? widen(vectors[p].items[k]) : beyond;
  }
  __device__ void store(T* row, const RowSlice<T>& slice, const RowTeams& rows) const {
    const int n = left(slice, rows.n), step = static_cast<int>(slice.step);
    row += slice.first;
#pragma unroll
    for (int p = 0; p < kVectors; ++p) store_items(row, p * step, n, rows.aligned, items[p]);
  }
  /// f(item, its index in the row) for the items that are inside the row.
  template <class F>
  __device__ void for_each(const RowSlice<T>& slice, const RowTeams& rows, const F& f) {
    const int n = left(slice, rows.n), step = static_cast<int>(slice.step);
#pragma unroll
    for (int p = 0; p < kVectors; ++p)
#pragma unroll
      for (int k = 0; k < kVectorSize; ++k)
        if (p * step + k < n) f(items[p][k], slice.first + p * step + k);
  }
  /// f(item) for all items, also those beyond the row.
  template <class F>
  __device__ void for_all(const F& f) {
#pragma unroll
    for (int p = 0; p < kVectors; ++p)
#pragma unroll
      for (int k = 0; k < kVectorSize; ++k) f(items[p][k]);
  }
};

}  // namespace reel::cuda
