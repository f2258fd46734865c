#pragma once
#include "cuda/block.h"
#include "cuda/packed.h"

// Kernels over contiguous rows, each of which a team of threads has: a few lanes of a warp, a warp, or a block. Rows of
// up to kMostHeld elements are held in its registers; for longer ones a block passes over memory several times.
namespace reel::cuda {

inline constexpr int kHeld = 8, kMostThreads = 1024;  // elements of each thread
inline constexpr int64_t kMostHeld = kHeld * kMostThreads;

struct Rows {
  int64_t count, n;
  unsigned team;
  bool aligned;  // all arrays begin at aligned addresses and rows are whole packs

  bool held() const { return n <= kMostHeld; }
  unsigned block() const { return team <= kWarp ? 128 : team; }
  unsigned blocks() const { return static_cast<unsigned>(ceil_div(count, block() / team)); }
};

template <class T>
Rows make_rows(int64_t count, int64_t n, std::initializer_list<const void*> arrays) {
  constexpr int64_t kPack = Packed<T>::kSize;
  Rows rows{count, n, power_of_two_from(ceil_div(n, kPack), kWarp), n % kPack == 0};
  if (n > kWarp * kHeld) rows.team = power_of_two_from(ceil_div(n, kHeld), kMostThreads);
  for (const void* array : arrays) rows.aligned = rows.aligned && is_aligned(array);
  return rows;
}

/// Which part of which row a thread has: packs `first`, `first + step`, …
template <class T>
struct Seat {
  static constexpr int kPack = Packed<T>::kSize;
  int64_t row, first, step;
  bool leads;  // its team
  bool there;  // There is such a row. Who has none takes part in the team's sums all the same.
  __device__ explicit Seat(const Rows& rows)
      : row(int64_t(blockIdx.x) * (blockDim.x / rows.team) + threadIdx.x / rows.team),
        first(int64_t(threadIdx.x % rows.team) * kPack),
        step(int64_t(rows.team) * kPack),
        leads(first == 0),
        there(row < rows.count) {}
};

/// A thread's part of a row, in registers.
template <class T>
struct Held {
  static constexpr int kPack = Packed<T>::kSize, kPacks = kHeld / kPack;
  Wide<T> items[kPacks][kPack];

  __device__ void load(const T* row, const Seat<T>& seat, const Rows& rows, bool wanted, Wide<T> beyond) {
    for (int p = 0; p < kPacks; ++p)
      load_items(items[p], row, seat.first + p * seat.step, wanted ? rows.n : 0, rows.aligned, beyond);
  }
  __device__ void store(T* row, const Seat<T>& seat, const Rows& rows) const {
    for (int p = 0; p < kPacks; ++p) store_items(row, seat.first + p * seat.step, rows.n, rows.aligned, items[p]);
  }
  /// f(item, its number in the row) for those that there are.
  template <class F>
  __device__ void for_each(const Seat<T>& seat, const Rows& rows, const F& f) {
    for (int p = 0; p < kPacks; ++p)
      for (int k = 0; k < kPack; ++k) {
        const int64_t i = seat.first + p * seat.step + k;
        if (i < rows.n) f(items[p][k], i);
      }
  }
};

}  // namespace reel::cuda
