#include <cstring>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/primitives.h"
#include "cuda/strided.h"

// Sorting and searching: sort, top-k and k-th values along the last dimension, lexicographic order of rows, binary
// search and nonzero. Sorts are stable. Short lines are merge-sorted in shared memory, a line to a block; the first few
// of a long line are found by sorting its tiles and the tiles' first few again; other long lines go through CUB's radix
// sort.
namespace reel::cuda {
namespace {

// ---- keys -----------------------------------------------------------------------------------------------------------

/// Maps elements to unsigned integers (keys) of the same order: equal elements have one key (-0 and 0, all NaNs), NaN
/// has the largest. A positive float's bits are ordered already and get the sign bit set; a negative one's are
/// inverted.
template <class T>
struct KeyOf {
  using Bits = std::conditional_t<
      sizeof(T) == 8, uint64_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  using Key = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr bool kFloating = !std::is_integral_v<T>;
  static constexpr Key kNan = static_cast<Bits>(~Bits(0));

  __device__ static Key of(T x) {
    if constexpr (std::is_same_v<T, uint8_t>) {
      return x;
    } else {
      constexpr Bits sign = Bits(Bits(1) << (kBits - 1));
      constexpr auto infinity = static_cast<Bits>(sizeof(T) == 8              ? 0x7ff0000000000000
                                                  : sizeof(T) == 4            ? 0x7f800000
                                                  : std::is_same_v<T, __half> ? 0x7c00
                                                                              : 0x7f80);
      Bits bits;
      memcpy(&bits, &x, sizeof bits);
      if constexpr (!kFloating) return Bits(bits ^ sign);
      if (Bits(bits & Bits(~sign)) > infinity) return kNan;
      if (bits == sign) bits = 0;  // -0 is 0
      return bits & sign ? Bits(~bits) : Bits(bits | sign);
    }
  }
  __device__ static Key of(T x, bool descending) { return descending ? of(x) ^ kNan : of(x); }
};

/// The lines of a strided tensor along its last dimension.
struct Lines {
  int64_t rows, n, stride;
  Strided<1> starts;

  explicit Lines(const View& x) : rows(1), n(1), stride(0) {
    View first = x;
    if (!x.shape.empty()) {
      n = x.shape.back(), stride = x.strides.back();
      first.shape.resize(x.shape.size() - 1), first.strides.resize(x.shape.size() - 1);
    }
    starts = merge_dims(first);
    rows = starts.numel();
  }
};

// ---- merging --------------------------------------------------------------------------------------------------------

/// One pass of a merge sort in parallel: [0, n) consists of sorted runs of `width` (a power of 2), each two of which
/// are merged. Returns the position of element i in the merged run, its own rank plus its rank in the other run, found
/// by binary search. Stable. before(a, b): element a is ordered before b.
template <class Before>
__device__ int64_t merge_position(int64_t i, int64_t n, int64_t width, const Before& before) {
  const int64_t start = i & ~(2 * width - 1);
  const int64_t middle = start + width < n ? start + width : n, end = start + 2 * width < n ? start + 2 * width : n;
  const bool left = i < middle;
  int64_t low = left ? middle : start, high = left ? end : middle;
  while (low < high) {
    const int64_t other = (low + high) / 2;
    if (left ? before(other, i) : !before(i, other))
      low = other + 1;
    else
      high = other;
  }
  return left ? i + low - middle : low + i - middle;
}

/// Binary search: the first position in [0, n) for which f holds, n if there is none; f stays true once it is.
template <class F>
__device__ int64_t first_where(int64_t n, const F& f) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (f(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// ---- short lines, and the first of long ones ------------------------------------------------------------------------

// A block sorts up to kTile elements in shared memory. For the first k of a long line, the first k of each of its tiles
// are kept as a shorter line, until one tile is left.
constexpr int kTile = 2048, kMaxTileThreads = 512, kMaxTopK = kTile / 8;

/// The range [from, to) of each line's order that is computed; with nan_wins, the first NaN instead if there is one.
struct SortRange {
  bool descending = false, nan_wins = false;
  int64_t from = 0, to = 0;
};

/// The elements of each line that are left: m keys and their positions in x; without keys, x itself.
template <class Key>
struct Candidates {
  int64_t m;
  Key* keys = nullptr;
  int64_t* positions = nullptr;
};

template <class T>
__global__ void block_sort_kernel(SortRange range, Lines lines, const T* x, Candidates<typename KeyOf<T>::Key> in,
                                  Candidates<typename KeyOf<T>::Key> out, T* values, int64_t* indices) {
  using Key = typename KeyOf<T>::Key;
  const int room = static_cast<int>(in.m < kTile ? in.m : kTile);
  REEL_SHARED(Key, memory);
  const int64_t tiles = (in.m + kTile - 1) / kTile;
  for (int64_t b = blockIdx.x; b < lines.rows * tiles; b += gridDim.x) {
    const int64_t row = divide(b, tiles), first = (b - row * tiles) * kTile;
    const int count = static_cast<int>(in.m - first < kTile ? in.m - first : kTile);
    const int64_t line = locate(lines.starts, row);
    // Two buffers of each: a pass reads one and writes the other.
    Key *keys = memory, *next_keys = memory + room;
    uint16_t *slots = reinterpret_cast<uint16_t*>(memory + 2 * room), *next_slots = slots + room;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      keys[i] = in.keys ? in.keys[row * in.m + first + i]
                        : KeyOf<T>::of(x[line + (first + i) * lines.stride], range.descending);
      slots[i] = static_cast<uint16_t>(i);
    }
    __syncthreads();
    for (int width = 1; width < count; width *= 2) {
      for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int64_t to = merge_position(i, count, width, [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
        next_keys[to] = keys[i], next_slots[to] = slots[i];
      }
      __syncthreads();
      Key* const k = keys;
      uint16_t* const s = slots;
      keys = next_keys, next_keys = k, slots = next_slots, next_slots = s;
    }
    const auto position = [&](int64_t i) {
      const int64_t place = first + slots[i];
      return in.keys ? in.positions[row * in.m + place] : place;
    };
    if (out.keys) {
      for (int i = threadIdx.x; i < count && i < range.to; i += blockDim.x) {
        const int64_t to = row * out.m + first / kTile * range.to + i;
        out.keys[to] = keys[i], out.positions[to] = position(i);
      }
    } else {
      const bool nan = KeyOf<T>::kFloating && range.nan_wins && keys[count - 1] == KeyOf<T>::kNan;
      for (int64_t i = range.from + threadIdx.x; i < range.to; i += blockDim.x) {
        const int64_t at = position(nan ? first_where(count, [&](int64_t j) { return keys[j] == KeyOf<T>::kNan; }) : i);
        const int64_t to = row * (range.to - range.from) + i - range.from;
        indices[to] = at;
        if (values) values[to] = x[line + at * lines.stride];
      }
    }
    __syncthreads();
  }
}

template <class T>
void sort_tiles(const SortRange& range, const Lines& lines, const T* x, T* values, int64_t* indices) {
  using Key = typename KeyOf<T>::Key;
  const auto shorter = [&](int64_t m) {
    const int64_t last = (m - 1) / kTile, rest = m - last * kTile;
    return last * range.to + (rest < range.to ? rest : range.to);
  };
  const auto run = [&](Candidates<Key> in, Candidates<Key> out) {
    const int64_t room = in.m < kTile ? in.m : kTile, threads = ceil_div(ceil_div(room, 4), kWarp) * kWarp;
    launch(block_sort_kernel<T>, blocks_for(lines.rows * ceil_div(in.m, kTile), 1),
           static_cast<unsigned>(threads < kMaxTileThreads ? threads : kMaxTileThreads),
           2 * room * (sizeof(Key) + sizeof(uint16_t)), range, lines, x, in, out, values, indices);
  };
  Candidates<Key> in{lines.n};
  if (in.m <= kTile) return run(in, {0});
  const int64_t sizes[] = {lines.rows * shorter(in.m), lines.rows * shorter(shorter(in.m))};
  const Scratch<Key> keys[] = {Scratch<Key>(sizes[0]), Scratch<Key>(sizes[1])};
  const Scratch<int64_t> positions[] = {Scratch<int64_t>(sizes[0]), Scratch<int64_t>(sizes[1])};
  for (int level = 0; in.m > kTile; level ^= 1) {
    const Candidates<Key> out{shorter(in.m), keys[level], positions[level]};
    run(in, out);
    in = out;
  }
  run(in, {0});
}

// ---- long lines -----------------------------------------------------------------------------------------------------

/// Each element's key, with its line's number in the higher bits where several lines are sorted at once, and its index.
template <class T, class Key>
__global__ void keys_kernel(bool descending, int line_shift, Lines lines, const T* x, Key* keys, int64_t* values) {
  for (int64_t i = first_index(); i < lines.rows * lines.n; i += index_step()) {
    const int64_t row = divide(i, lines.n), at = locate(lines.starts, row) + (i - row * lines.n) * lines.stride;
    keys[i] = KeyOf<T>::of(x[at], descending);
    if (line_shift) keys[i] |= static_cast<Key>(row) << line_shift;
    values[i] = i;
  }
}
__global__ void line_keys_kernel(Lines lines, const int64_t* values, uint64_t* keys) {
  for (int64_t i = first_index(); i < lines.rows * lines.n; i += index_step()) keys[i] = divide(values[i], lines.n);
}

template <class T>
__global__ void pick_kernel(SortRange range, Lines lines, const T* x, const int64_t* order, T* values,
                            int64_t* indices) {
  const int64_t width = range.to - range.from, n = lines.n;
  for (int64_t i = first_index(); i < lines.rows * width; i += index_step()) {
    const int64_t row = divide(i, width), start = locate(lines.starts, row);
    const auto position = [&](int64_t j) { return order[row * n + j] - row * n; };
    const auto element = [&](int64_t j) { return x[start + position(j) * lines.stride]; };
    const auto is_nan = [&](int64_t j) { return KeyOf<T>::kFloating && KeyOf<T>::of(element(j)) == KeyOf<T>::kNan; };
    int64_t j = range.from + i - row * width;
    if (range.nan_wins && is_nan(n - 1)) j = first_where(n, is_nan);
    indices[i] = position(j);
    if (values) values[i] = element(j);
  }
}

template <class Key, class T>
void sort_all(const SortRange& range, const Lines& lines, const T* x, T* values, int64_t* indices) {
  const int64_t n = lines.rows * lines.n;
  const unsigned blocks = blocks_for(n);
  // One radix sort for all lines: they are kept apart by their number in the higher bits of the keys or, where keys
  // have no bits left, by a second, stable sort by the line's number.
  const bool together = lines.rows > 1 && sizeof(T) < sizeof(Key);
  const int bits = KeyOf<T>::kBits, line_bits = bits_below(lines.rows);
  Pairs<Key> pairs(n);
  launch(keys_kernel<T, Key>, blocks, kThreads, 0, range.descending, together ? bits : 0, lines, x, pairs.keys(),
         pairs.values());
  pairs.sort(together ? bits + line_bits : bits);
  if constexpr (sizeof(T) == 8) {
    if (lines.rows > 1) {
      launch(line_keys_kernel, blocks, kThreads, 0, lines, pairs.values(), pairs.keys());
      pairs.sort(line_bits);
    }
  }
  launch(pick_kernel<T>, blocks_for(lines.rows * (range.to - range.from)), kThreads, 0, range, lines, x, pairs.values(),
         values, indices);
}

/// The elements in `range` of each line's order.
template <class T>
void sort_lines(const SortRange& range, const View& view, T* values, int64_t* indices) {
  const Lines lines(view);
  const T* const x = view.as<const T>();
  if (lines.n <= kTile || (range.to <= kMaxTopK && !range.nan_wins))
    sort_tiles(range, lines, x, values, indices);
  else if (lines.rows > 1)
    sort_all<uint64_t>(range, lines, x, values, indices);
  else
    sort_all<typename KeyOf<T>::Key>(range, lines, x, values, indices);
}

void sort(bool descending, const View& x, const View& values, const View& indices) {
  if (values.numel == 0) return;
  const int64_t k = values.shape.empty() ? 1 : values.shape.back();
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sort_lines<T>({.descending = descending, .to = k}, x, values.as<T>(), indices.as<int64_t>());
  });
}

void kthvalue(int64_t k, bool nan_wins, const View& x, const View& indices) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sort_lines<T>({.nan_wins = nan_wins && KeyOf<T>::kFloating, .from = k, .to = k + 1}, x, nullptr,
                  indices.as<int64_t>());
  });
}

// ---- rows -----------------------------------------------------------------------------------------------------------

constexpr int kRowTile = 1024;

template <class T>
struct RowCompare {
  int64_t n, width;
  const T* x;
  __device__ bool before(int64_t a, int64_t b) const {
    const T *p = x + a * width, *q = x + b * width;
    for (int64_t j = 0; j < width; ++j) {
      const auto u = KeyOf<T>::of(p[j]), v = KeyOf<T>::of(q[j]);
      if (u != v) return u < v;
    }
    return false;
  }
};

/// Sorts the indices of kRowTile rows in each block; row_merge_kernel merges the tiles.
template <class T>
__global__ void row_tile_kernel(RowCompare<T> rows, int64_t* order) {
  __shared__ uint16_t slots[2][kRowTile];
  const int64_t first = int64_t(blockIdx.x) * kRowTile;
  const int count = static_cast<int>(rows.n - first < kRowTile ? rows.n - first : kRowTile);
  for (int i = threadIdx.x; i < count; i += blockDim.x) slots[0][i] = static_cast<uint16_t>(i);
  __syncthreads();
  int now = 0;
  for (int width = 1; width < count; width *= 2, now ^= 1) {
    const uint16_t* const from = slots[now];
    for (int i = threadIdx.x; i < count; i += blockDim.x)
      slots[now ^ 1][merge_position(i, count, width, [&](int64_t a, int64_t b) {
        return rows.before(first + from[a], first + from[b]);
      })] = from[i];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) order[first + i] = first + slots[now][i];
}

template <class T>
__global__ void row_merge_kernel(RowCompare<T> rows, int64_t width, const int64_t* from, int64_t* to) {
  for (int64_t i = first_index(); i < rows.n; i += index_step())
    to[merge_position(i, rows.n, width, [&](int64_t a, int64_t b) { return rows.before(from[a], from[b]); })] = from[i];
}

void lexsort(const View& x, const View& order) {
  const int64_t n = x.shape[0];
  if (n == 0) return;
  int passes = 0;
  for (int64_t width = kRowTile; width < n; width *= 2) ++passes;
  const Scratch<int64_t> other(passes ? n : 1);
  // The last pass ends in `order`.
  int64_t *from = passes % 2 ? other.data() : order.as<int64_t>(),
          *to = passes % 2 ? order.as<int64_t>() : other.data();
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const RowCompare<T> rows{n, x.shape[1], x.as<const T>()};
    launch(row_tile_kernel<T>, static_cast<unsigned>(ceil_div(n, kRowTile)), kThreads, 0, rows, from);
    for (int64_t width = kRowTile; width < n; width *= 2, std::swap(from, to))
      launch(row_merge_kernel<T>, blocks_for(n), kThreads, 0, rows, width, from, to);
  });
}

// ---- binary search --------------------------------------------------------------------------------------------------

template <class T>
__global__ void search_kernel(bool right, int64_t n, int64_t m, bool by_row, const T* sorted, int64_t count,
                              const T* values, int64_t* positions) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const T* const row = by_row ? sorted + divide(i, m) * n : sorted;
    const auto key = KeyOf<T>::of(values[i]);
    positions[i] = first_where(n, [&](int64_t j) {
      const auto other = KeyOf<T>::of(row[j]);
      return right ? other > key : other >= key;
    });
  }
}

void searchsorted(bool right, const View& sorted, const View& values, const View& positions) {
  if (values.numel == 0) return;
  const bool by_row = sorted.shape.size() > 1;
  with_type(values.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(search_kernel<T>, blocks_for(values.numel), kThreads, 0, right, sorted.shape.back(),
           by_row ? values.shape.back() : values.numel, by_row, sorted.as<const T>(), values.numel,
           values.as<const T>(), positions.as<int64_t>());
  });
}

// ---- nonzero --------------------------------------------------------------------------------------------------------

constexpr int kItemsPerThread = 16, kCountTile = kThreads * kItemsPerThread;

/// The exclusive prefix sum and the total of a block's values. All threads of a block of whole warps call it.
struct BlockScan {
  int64_t before, total;
};
__device__ BlockScan block_scan(int64_t value) {
  __shared__ int64_t of_warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  int64_t sum = value;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const int64_t other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // all threads have read the results of an earlier call
  if (lane == kWarp - 1) of_warps[warp] = sum;
  __syncthreads();
  BlockScan result{sum - value, 0};
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) result.before += of_warps[w];
    result.total += of_warps[w];
  }
  return result;
}

/// The test for nonzero elements by their bits, for any dtype: the mask leaves out a float's sign, as -0.0 is zero.
template <class W>
struct Nonzero {
  Strided<1> s;
  int64_t count;
  const W* x;
  W mask;
  __device__ bool at(int64_t i) const { return i < count && (x[locate(s, i)] & mask) != 0; }
};

/// Each block counts the nonzeros of a tile: one count for each block, or their sum.
template <class W>
__global__ void count_kernel(Nonzero<W> nonzero, int64_t* counts, unsigned long long* total) {
  const int64_t first = int64_t(blockIdx.x) * kCountTile;
  int count = 0;
  for (int j = 0; j < kItemsPerThread; ++j) count += nonzero.at(first + j * kThreads + threadIdx.x);
  count = block_reduce(count, Plus());
  if (threadIdx.x != 0) return;
  if (counts)
    counts[blockIdx.x] = count;
  else
    atomicAdd(total, static_cast<unsigned long long>(count));
}

/// Turns the counts into their exclusive prefix sums; one block.
__global__ void scan_counts_kernel(int64_t n, int64_t* counts) {
  int64_t before = 0;
  for (int64_t start = 0; start < n; start += blockDim.x) {
    const int64_t i = start + threadIdx.x;
    const BlockScan sums = block_scan(i < n ? counts[i] : 0);
    if (i < n) counts[i] = before + sums.before;
    before += sums.total;
  }
}

/// Writes the coordinates of the nonzeros in their order; at most `capacity` of them, the size that the host has
/// counted.
template <class W>
__global__ void list_kernel(Nonzero<W> nonzero, Strided<1> shape, const int64_t* before, int64_t capacity,
                            int64_t* lists) {
  const int64_t first = int64_t(blockIdx.x) * kCountTile;
  int64_t place = before ? before[blockIdx.x] : 0;
  for (int j = 0; j < kItemsPerThread; ++j) {
    int64_t i = first + j * kThreads + threadIdx.x;
    const bool here = nonzero.at(i);
    const BlockScan sums = block_scan(here);
    const int64_t row = place + sums.before;
    if (here && row < capacity)
      for (int d = shape.rank - 1; d >= 0; --d) {
        const int64_t rest = divide(i, shape.sizes[d]);
        lists[row * shape.rank + d] = i - rest * shape.sizes[d];
        i = rest;
      }
    place += sums.total;
  }
}

/// f(Nonzero) for a view of any dtype.
template <class F>
void with_nonzero(const View& x, const F& f) {
  with_word(x.dtype, [&](auto type) {
    using W = typename decltype(type)::type;
    const W sign = static_cast<W>(W(1) << (8 * sizeof(W) - 1));
    const W mask = is_floating_point(x.dtype) ? static_cast<W>(~sign) : static_cast<W>(~W(0));
    f(Nonzero<W>{merge_dims(x), x.numel, x.as<const W>(), mask});
  });
}
unsigned tiles_of(const View& x) { return static_cast<unsigned>(ceil_div(x.numel, kCountTile)); }

int64_t count_nonzero(const View& x) {
  if (x.numel == 0) return 0;
  const Scratch<unsigned long long> total(1);
  CUDA_CHECK(cudaMemsetAsync(total, 0, sizeof(unsigned long long), stream()));
  with_nonzero(x, [&](const auto& nonzero) {
    launch(count_kernel<std::remove_cv_t<decltype(nonzero.mask)>>, tiles_of(x), kThreads, 0, nonzero, nullptr,
           total.data());
  });
  unsigned long long count = 0;
  check_wait("nonzero");
  CUDA_CHECK(cudaMemcpyAsync(&count, total, sizeof count, cudaMemcpyDeviceToHost, stream()));
  wait_for_gpu("nonzero");
  return static_cast<int64_t>(count);
}

void nonzero(const View& x, const View& positions) {
  if (x.numel == 0 || positions.numel == 0) return;
  const unsigned tiles = tiles_of(x);
  Strided<1> shape;  // not merged: every coordinate is wanted
  shape.rank = x.shape.size();
  for (int d = 0; d < shape.rank; ++d) shape.sizes[d] = x.shape[d];
  const Scratch<int64_t> counts(tiles);
  with_nonzero(x, [&](const auto& nonzero) {
    using W = std::remove_cv_t<decltype(nonzero.mask)>;
    if (tiles > 1) {
      launch(count_kernel<W>, tiles, kThreads, 0, nonzero, counts.data(), nullptr);
      launch(scan_counts_kernel, 1, 1024, 0, tiles, counts.data());
    }
    launch(list_kernel<W>, tiles, kThreads, 0, nonzero, shape, tiles > 1 ? counts.data() : nullptr, positions.shape[0],
           positions.as<int64_t>());
  });
}

}  // namespace

void install_sort(KernelTable& table) {
  table.count_nonzero = count_nonzero;
  table.nonzero = nonzero;
  table.sort = sort;
  table.kthvalue = kthvalue;
  table.lexsort = lexsort;
  table.searchsorted = searchsorted;
}

}  // namespace reel::cuda
