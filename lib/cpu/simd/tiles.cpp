// This file copies transposed operands in tiles, which are then used from the first-level cache.
#include "lib/cpu/simd/tiles.h"

#include <algorithm>

#include "lib/cpu/loop.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/transpose_blocks.h"

namespace reel::cpu::REEL_ISA {
namespace {

constexpr int64_t kTile = 64, kMinSize = 16;  // elements of a row

/// Writes from[i + j * stride] to to[i * kTile + j], elements of `unit` bytes, for i < rows and j < columns.
void transpose_tile(int64_t unit, const void* from, int64_t stride, int64_t rows, int64_t columns, void* to) {
  const auto run = [&]<class T>(T) {
    transpose_blocks(static_cast<const T*>(from), stride, rows, columns, static_cast<T*>(to), kTile);
  };
  switch (unit) {
    case 1: return run(uint8_t());
    case 2: return run(uint16_t());
    case 4: return run(float());
    default: return run(double());
  }
}

bool is_transposed(const View& x, int dim, int last) {
  return x.strides[dim] == 1 && x.strides[last] != 0 && x.strides[last] != 1;
}

/// Returns the dimension in which an operand lies as the result, the last view, does in its last one; -1 if there is
/// none.
int transposed_dim(const View* const* views, int count) {
  const View& result = *views[count - 1];
  const int last = result.shape.size() - 1;
  if (last < 1 || result.strides[last] != 1 || result.shape[last] < kMinSize) return -1;
  for (int i = 0; i < count - 1; ++i)
    for (int d = 0; views[i] && d < last; ++d)
      if (is_transposed(*views[i], d, last) && result.shape[d] >= kMinSize) return d;
  return -1;
}

}  // namespace

bool needs_reordering(const View& x) {
  const int last = x.shape.size() - 1;
  if (last < 1 || x.strides[last] == 1) return false;
  bool result = false;
  for (int d = 0; d <= last; ++d) {
    if (x.strides[d] < 0) return false;
    result = result || (x.strides[d] == 1 && x.shape[d] >= kMinSize);
  }
  return result;
}

void call_reordered(const View* const* views, int count, PartFunction call, const void* f) {
  const View& result = *views[count - 1];
  int order[kMaxDims];
  const int rank = order_by_strides(result, order);
  View sorted[kMaxViews];
  const View* pointers[kMaxViews] = {};
  for (int i = 0; i < count; ++i) {
    if (!views[i]) continue;
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

namespace {

/// Calls f(tiles) for square tiles of the views, in which operands that are transposed in the dimension `row` are
/// row-major copies.
void call_in_tiles(const View* const* views, int count, int row, PartFunction call, const void* f) {
  const View& result = *views[count - 1];
  const int last = result.shape.size() - 1;
  const int64_t rows = result.shape[row], columns = result.shape[last];
  const Scratch memory(static_cast<size_t>(count * kTile * kTile) * sizeof(double));
  View tiles[kMaxViews];
  const View* pointers[kMaxViews] = {};
  char* data[kMaxViews];
  bool copied[kMaxViews];
  for (int i = 0; i < count; ++i) {
    if (!views[i]) continue;
    tiles[i].dtype = views[i]->dtype, tiles[i].host = true, tiles[i].contiguous = false;
    tiles[i].shape = {0, 0};
    copied[i] = i < count - 1 && is_transposed(*views[i], row, last);
    tiles[i].strides = {copied[i] ? kTile : views[i]->strides[row], copied[i] ? 1 : views[i]->strides[last]};
    pointers[i] = &tiles[i];
    data[i] = views[i]->as<char>();
  }
  const auto call_tile = [&](int64_t i, int64_t j) {
    const int64_t height = std::min(kTile, rows - i), width = std::min(kTile, columns - j);
    for (int v = 0; v < count; ++v) {
      if (!views[v]) continue;
      const int64_t stride = views[v]->strides[last];
      char* const at = data[v] + (i * views[v]->strides[row] + j * stride) * size_of(tiles[v].dtype);
      tiles[v].shape[0] = height, tiles[v].shape[1] = width, tiles[v].numel = height * width;
      tiles[v].data = copied[v] ? memory.data<double>() + v * kTile * kTile : static_cast<void*>(at);
      if (copied[v]) transpose_tile(size_of(tiles[v].dtype), at, stride, height, width, tiles[v].data);
    }
    call(f, pointers);
  };
  int64_t at[kMaxDims] = {};
  const auto move = [&](int d, int64_t by) {
    for (int v = 0; v < count; ++v)
      if (views[v]) data[v] += by * views[v]->strides[d] * size_of(tiles[v].dtype);
  };
  while (true) {
    for (int64_t i = 0; i < rows; i += kTile)
      for (int64_t j = 0; j < columns; j += kTile) call_tile(i, j);
    int d = last - 1;
    for (; d >= 0; --d) {
      if (d == row) continue;
      move(d, 1);
      if (++at[d] < result.shape[d]) break;
      move(d, -result.shape[d]);
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

/// Calls f(parts) as call_strided does, but leaves the dimensions in their order.
void call_divided(const View* const* views, int count, PartFunction call, const void* f) {
  const View& result = *views[count - 1];
  if (result.numel > part_size) {
    const auto call_part = [=](const View* const* parts) { call_divided(parts, count, call, f); };
    const auto erased = [](const void* g, const View* const* parts) {
      (*static_cast<const decltype(call_part)*>(g))(parts);
    };
    if (call_parts(views, count, 0, 1, erased, &call_part)) return;
  }
  const int row = transposed_dim(views, count);
  row < 0 ? call(f, views) : call_in_tiles(views, count, row, call, f);
}

}  // namespace

void call_strided(const View* const* views, int count, PartFunction call, const void* f) {
  const View& result = *views[count - 1];
  if (result.numel == 0) return;
  if (!needs_reordering(result)) return call_divided(views, count, call, f);
  const auto call_sorted = [=](const View* const* sorted) { call_divided(sorted, count, call, f); };
  const auto erased = [](const void* g, const View* const* sorted) {
    (*static_cast<const decltype(call_sorted)*>(g))(sorted);
  };
  call_reordered(views, count, erased, &call_sorted);
}

}  // namespace reel::cpu::REEL_ISA
