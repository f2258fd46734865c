// This file copies transposed operands in tiles, which are then used from the first-level cache.
#include "lib/cpu/simd/tiles.h"

#include <algorithm>

#include "lib/cpu/loop.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/transpose.h"

namespace reel::cpu::REEL_ISA {
namespace {

constexpr int64_t kTile = 64, kMinSize = 16;  // elements of a row

/// Writes from[i + j * stride] to to[i * kTile + j], for i < rows and j < columns.
template <class T>
void transpose_tile(const T* from, int64_t stride, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kBlock = kWidth<T>;
  for (int64_t i = 0; i < rows; i += kBlock)
    for (int64_t j = 0; j < columns; j += kBlock) {
      if (i + kBlock > rows || j + kBlock > columns) {
        for (int64_t r = i; r < std::min(i + kBlock, rows); ++r)
          for (int64_t c = j; c < std::min(j + kBlock, columns); ++c) to[r * kTile + c] = from[r + c * stride];
        continue;
      }
      Batch<T> block[kBlock];
      for (int64_t c = 0; c < kBlock; ++c) block[c] = load(from + i + (j + c) * stride);
      transpose(block);
      for (int64_t r = 0; r < kBlock; ++r) store(to + (i + r) * kTile + j, block[r]);
    }
}

bool is_transposed(const View& x, int dim, int last) {
  return x.strides[dim] == 1 && x.strides[last] != 0 && x.strides[last] != 1;
}

}  // namespace

Walk walk_of(const View* const* views, int count) {
  const View& y = *views[0];
  const int last = y.shape.size() - 1;
  if (last < 1) return {};
  if (y.strides[last] != 1) {
    bool reorders = false;
    for (int d = 0; d <= last; ++d) {
      if (y.strides[d] < 0) return {};
      reorders = reorders || (y.strides[d] == 1 && y.shape[d] >= kMinSize);
    }
    return {.reorders = reorders};
  }
  if (y.shape[last] < kMinSize) return {};
  for (int i = 1; i < count; ++i)
    for (int d = 0; d < last; ++d)
      if (is_transposed(*views[i], d, last) && y.shape[d] >= kMinSize) return {.transposed = d};
  return {};
}

void call_reordered(const View* const* views, int count, PartFunction call, const void* f) {
  const View& result = *views[0];
  int order[kMaxDims];
  const int rank = order_by_strides(result, order);
  View sorted[kMaxViews];
  const View* pointers[kMaxViews];
  for (int i = 0; i < count; ++i) {
    View& view = sorted[i] = *views[i];
    view.shape.resize(rank), view.strides.resize(rank);
    for (int d = 0; d < rank; ++d) {
      const int from = order[rank - 1 - d];
      view.shape[d] = views[i]->shape[from], view.strides[d] = views[i]->strides[from];
    }
    int64_t stride = 1;
    view.contiguous = true;
    for (int d = rank - 1; d >= 0; --d) {
      view.contiguous = view.contiguous && view.strides[d] == stride;
      stride *= view.shape[d];
    }
    pointers[i] = &view;
  }
  call(f, pointers);
}

void call_in_tiles(const View* const* views, int count, const Walk& walk, PartFunction call, const void* f) {
  if (walk.reorders) return call_reordered(views, count, call, f);
  const View& y = *views[0];
  const int last = y.shape.size() - 1, row = walk.transposed;
  const int64_t unit = size_of(y.dtype), rows = y.shape[row], columns = y.shape[last];
  const Scratch memory(static_cast<size_t>(count * kTile * kTile * unit));
  View tiles[kMaxViews];
  const View* pointers[kMaxViews];
  char* data[kMaxViews];
  bool copied[kMaxViews];
  for (int i = 0; i < count; ++i) {
    tiles[i].dtype = views[i]->dtype, tiles[i].host = true, tiles[i].contiguous = false;
    tiles[i].shape = {0, 0};
    copied[i] = i > 0 && is_transposed(*views[i], row, last);
    tiles[i].strides = {copied[i] ? kTile : views[i]->strides[row], copied[i] ? 1 : views[i]->strides[last]};
    pointers[i] = &tiles[i];
    data[i] = views[i]->as<char>();
  }
  const auto call_tile = [&](int64_t i, int64_t j) {
    const int64_t height = std::min(kTile, rows - i), width = std::min(kTile, columns - j);
    for (int v = 0; v < count; ++v) {
      const int64_t stride = views[v]->strides[last];
      char* const at = data[v] + (i * views[v]->strides[row] + j * stride) * unit;
      tiles[v].shape[0] = height, tiles[v].shape[1] = width, tiles[v].numel = height * width;
      tiles[v].data = copied[v] ? memory.data<char>() + v * kTile * kTile * unit : at;
      if (!copied[v]) continue;
      if (unit == 4)
        transpose_tile(reinterpret_cast<const float*>(at), stride, height, width, tiles[v].as<float>());
      else
        transpose_tile(reinterpret_cast<const double*>(at), stride, height, width, tiles[v].as<double>());
    }
    call(f, pointers);
  };
  int64_t at[kMaxDims] = {};
  const auto move = [&](int d, int64_t by) {
    for (int v = 0; v < count; ++v) data[v] += by * views[v]->strides[d] * unit;
  };
  while (true) {
    for (int64_t i = 0; i < rows; i += kTile)
      for (int64_t j = 0; j < columns; j += kTile) call_tile(i, j);
    int d = last - 1;
    for (; d >= 0; --d) {
      if (d == row) continue;
      move(d, 1);
      if (++at[d] < y.shape[d]) break;
      move(d, -y.shape[d]);
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace reel::cpu::REEL_ISA
