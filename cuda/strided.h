#pragma once
#include "cuda/runtime.h"

// Loops over the elements of N strided views of one shape, for indexing and the like, with 64-bit indices. Threads lie
// along the last dimension, and each takes several elements of a row: the divisions that find a row's offsets are made
// once for a row, not for each element. (cuda/elementwise.h has 32-bit loops for pointwise functions.)
namespace reel::cuda {

/// n / d for n >= 0 and d > 0. Numbers that fit into 32 bits are divided as such, in a third of the time.
__device__ inline int64_t divide(int64_t n, int64_t d) {
  return (n | d) >> 32 ? n / d : int64_t(uint32_t(n) / uint32_t(d));
}

/// The strides, in elements, of N views of one shape of at least one dimension.
template <int N>
struct Strided {
  int rank = 0;
  int64_t rows = 1, length = 1;  // the product of all dimensions but the last, and the last
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxDims][N];

  int64_t numel() const { return rows * length; }
  /// The offsets of the first element of a row.
  __device__ void locate_row(int64_t row, int64_t (&at)[N]) const {
    for (int v = 0; v < N; ++v) at[v] = 0;
    for (int d = rank - 2; d >= 0; --d) {
      const int64_t rest = d ? divide(row, sizes[d]) : 0, i = row - rest * sizes[d];
      for (int v = 0; v < N; ++v) at[v] += i * strides[d][v];
      row = rest;
    }
  }
  /// The offsets of element number i.
  __device__ void locate(int64_t i, int64_t (&at)[N]) const {
    const int64_t row = rank > 1 ? divide(i, length) : 0;
    locate_row(row, at);
    for (int v = 0; v < N; ++v) at[v] += (i - row * length) * strides[rank - 1][v];
  }
};
__device__ inline int64_t locate(const Strided<1>& s, int64_t i) {
  int64_t at[1];
  s.locate(i, at);
  return at[0];
}

/// The N views with these strides; dimensions are merged where all of them allow it.
template <int N>
Strided<N> merge_dims(const Shape& shape, const Strides (&strides)[N]) {
  // Built from the last dimension to the first, then reversed.
  Strided<N> s;
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    bool merge = s.rank > 0;
    for (int v = 0; v < N && merge; ++v) merge = strides[v][d] == s.strides[s.rank - 1][v] * s.sizes[s.rank - 1];
    if (merge) {
      s.sizes[s.rank - 1] *= shape[d];
      continue;
    }
    s.sizes[s.rank] = shape[d];
    for (int v = 0; v < N; ++v) s.strides[s.rank][v] = strides[v][d];
    ++s.rank;
  }
  if (s.rank == 0) {
    s.rank = 1, s.sizes[0] = 1;
    for (int v = 0; v < N; ++v) s.strides[0][v] = 0;
  }
  for (int d = 0; d < s.rank / 2; ++d) {
    std::swap(s.sizes[d], s.sizes[s.rank - 1 - d]);
    for (int v = 0; v < N; ++v) std::swap(s.strides[d][v], s.strides[s.rank - 1 - d][v]);
  }
  for (int d = 0; d < s.rank - 1; ++d) s.rows *= s.sizes[d];
  s.length = s.sizes[s.rank - 1];
  return s;
}
inline Strided<1> merge_dims(const View& view) {
  const Strides strides[] = {view.strides};
  return merge_dims(view.shape, strides);
}

/// The strides of a contiguous view of this shape.
inline Strides dense_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

/// The shape of a launch over `rows` rows of `length` columns: threadIdx.x goes along a row, threadIdx.y from row to
/// row. A row of up to a warp's length gets a power of two of threads, so that short rows share a warp; a few long rows
/// get whole blocks. A thread takes four columns or more.
struct Grid {
  dim3 blocks, threads;
  Grid(int64_t rows, int64_t length) {
    unsigned across = kWarp;
    if (length > kWarp && rows < kThreads / kWarp) across = kThreads;
    while (length <= kWarp && across > 1 && across / 2 >= length) across /= 2;
    threads = dim3(across, kThreads / across);
    const int64_t most = blocks_for(INT64_MAX / 2), x = ceil_div(rows, threads.y), y = ceil_div(length, 4 * across);
    blocks.x = static_cast<unsigned>(x < most ? x : most);
    const int64_t tiles = ceil_div(most, blocks.x ? blocks.x : 1);
    blocks.y = static_cast<unsigned>(y < tiles ? y : tiles);
  }
};
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }
__device__ inline int64_t first_column() { return int64_t(blockIdx.y) * blockDim.x + threadIdx.x; }
__device__ inline int64_t column_step() { return int64_t(gridDim.y) * blockDim.x; }

template <int N>
Grid grid_for(const Strided<N>& s) {
  return {s.rows, s.length};
}
/// f(offsets of an element in each view) for every element, in a kernel launched with grid_for(s).
template <int N, class F>
__device__ void for_each_element(const Strided<N>& s, const F& f) {
  for (int64_t row = first_row(); row < s.rows; row += row_step()) {
    int64_t start[N], at[N];
    s.locate_row(row, start);
    for (int64_t i = first_column(); i < s.length; i += column_step()) {
      for (int v = 0; v < N; ++v) at[v] = start[v] + i * s.strides[s.rank - 1][v];
      f(at);
    }
  }
}

}  // namespace reel::cuda
