#include "lib/cpu/parts.h"

#include <algorithm>

namespace reel::cpu {
namespace {

/// Elements begin … end of a contiguous view.
View flat_part(const View& x, int64_t begin, int64_t end) {
  return flat_view(x.as<char>() + begin * size_of(x.dtype), x.dtype, end - begin);
}

}  // namespace

constinit int64_t part_size = 65536;

int64_t parts_of(int64_t numel) { return (numel - 1) / part_size + 1; }

int64_t numel_of(std::span<const Updated> tensors) {
  int64_t numel = 0;
  for (const Updated& tensor : tensors) numel += tensor.numel;
  return numel;
}

View part_of(const View& x, int d, int64_t begin, int64_t end) {
  View part = x;
  if (x.shape[d] == 1) return part;
  part.data = x.as<char>() + begin * x.strides[d] * size_of(x.dtype);
  part.numel = x.numel / x.shape[d] * (end - begin);
  part.shape[d] = end - begin;
  for (int outer = 0; outer < d; ++outer) part.contiguous = part.contiguous && x.shape[outer] == 1;
  return part;
}

View flat_view(const void* data, DType dtype, int64_t n) {
  return {.data = const_cast<void*>(data), .numel = n, .dtype = dtype, .host = true, .shape = {n}, .strides = {1}};
}

View dense_like(const View& y, void* data, DType dtype) {
  View result = y;
  result.data = data;
  result.dtype = dtype;
  result.contiguous = true;
  int64_t stride = 1;
  for (int d = y.shape.size() - 1; d >= 0; --d) result.strides[d] = stride, stride *= y.shape[d];
  return result;
}

int divided_dim(const Shape& shape, unsigned whole, int64_t parts) {
  int largest = -1;
  for (int d = 0; d < shape.size(); ++d) {
    if (whole >> d & 1) continue;
    if (shape[d] >= std::min<int64_t>(parts, 16)) return d;
    if (shape[d] > 1 && (largest < 0 || shape[d] > shape[largest])) largest = d;
  }
  return largest;
}

int64_t step_of(int64_t size, int64_t parts) {
  const int64_t step = parts < size ? (size - 1) / parts + 1 : 1;
  return step > 16 ? (step + 15) / 16 * 16 : step;  // whole vectors, if there are many
}

bool call_parts(const View* const* views, int count, unsigned whole, int64_t cost, PartFunction call, const void* f) {
  const View& last = *views[count - 1];
  const int64_t parts = parts_of(last.numel * cost);
  const bool flat = whole == 0 && std::all_of(views, views + count, [](const View* v) { return !v || v->contiguous; });
  const int d = flat ? 0 : divided_dim(last.shape, whole, parts);
  if (d < 0) return false;
  const int64_t size = flat ? last.numel : last.shape[d];
  parallel_for(size, step_of(size, parts), [&](int64_t begin, int64_t end) {
    View part[kMaxViews];
    const View* pointers[kMaxViews] = {};
    for (int i = 0; i < count; ++i)
      if (views[i]) {
        part[i] = flat ? flat_part(*views[i], begin, end) : part_of(*views[i], d, begin, end);
        pointers[i] = &part[i];
      }
    call(f, pointers);
  });
  return true;
}

}  // namespace reel::cpu
