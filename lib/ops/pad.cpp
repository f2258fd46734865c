#include <algorithm>
#include <span>
#include <vector>

#include "lib/ops/internal.h"

namespace reel {
namespace {

/// x inside a larger tensor that is `value` elsewhere; `before` elements lie in front of it in each dimension.
Tensor surround(const Tensor& x, const Shape& shape, const Shape& before, Scalar value) {
  return call("pad", {x}, {{"before", before}, {"value", value.to<double>()}}, [&](const Tensor& x) {
    const View& xv = view_of(x);
    check_fits("pad", value, xv.dtype);
    const Tensor y = full(shape, value, {.dtype = xv.dtype, .device = x.device()});
    const Strides strides = contiguous_strides(shape);
    int64_t offset = 0;
    for (int d = 0; d < shape.size(); ++d) offset += before[d] * strides[d];
    kernels_of(x).copy(
        xv, make_view(static_cast<char*>(view_of(y).data) + offset * size_of(xv.dtype), xv.shape, strides, xv.dtype));
    if (recording(x))
      record("pad", y, inputs(x), [part = xv.shape, offset, strides](Backward& back) {
        back.set(0, region(back.grad(), offset, part, strides));
      });
    return y;
  });
}

/// Where the elements of a line come from that goes from `first` up to `end`, outside of [0, size) on either side.
Tensor sources(int64_t first, int64_t end, int64_t size, PadMode mode, Device device) {
  const Tensor i = arange(first, end, 1, {.device = device});
  if (mode == kReplicate) return clamp(i, 0, size - 1);
  if (mode == kCircular) return fmod(i + size, size);
  return size - 1 - abs(size - 1 - abs(i));
}

/// Returns where the elements of dimension `dim` come from, which is extended by `before` and `after`.
Tensor origins_of(const Tensor& x, int dim, int64_t before, int64_t after, PadMode mode) {
  const Shape& shape = view_of(x).shape;
  const int64_t size = shape[dim], longest = std::max(before, after);
  REEL_CHECK(mode != kReflect || longest < size || longest <= 0, "pad: kReflect pads by less than the size, got ",
             longest, " for size ", size, " of shape ", shape);
  REEL_CHECK(mode != kCircular || longest <= size || longest <= 0, "pad: kCircular pads by at most the size, got ",
             longest, " for size ", size, " of shape ", shape);
  REEL_CHECK(size > 0 || longest <= 0, "pad: shape ", shape, " has no elements to repeat in dimension ", dim);
  return sources(-before, size + after, size, mode, x.device());
}

/// Selects along neighbouring dimensions of x, from `first` on. Images of which there are many are copied once, by
/// positions in an image, not once for each dimension.
Tensor select_along(Tensor x, int first, std::span<const Tensor> origins) {
  const int count = static_cast<int>(origins.size());
  Shape shape = x.shape();
  int64_t images = 1;
  for (int d = 0; d < first; ++d) images *= shape[d];
  if (count == 1 || images < 8 || is_tracing()) {
    for (int i = count - 1; i >= 0; --i) x = index_select(x, first + i, origins[i]);
    return x;
  }
  Tensor positions = origins[0];
  for (int i = 1; i < count; ++i) positions = (positions.unsqueeze(-1) * shape[first + i] + origins[i]).flatten();
  for (int i = 0; i < count; ++i) shape[first + i] = origins[i].numel();
  if (view_of(x).strides.back() != 1) x = x.contiguous();
  return index_select(x.flatten(first, first + count - 1), first, positions).view(shape);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, PadMode mode, Scalar value) {
  const Shape shape = view_of(x, "pad").shape;
  const int rank = shape.size(), dims = static_cast<int>(std::min<size_t>(amounts.size() / 2, kMaxDims + 1));
  REEL_CHECK(amounts.size() % 2 == 0, "pad: ", amounts.size(), " amounts; there are two a dimension");
  if (mode == kConstant)
    REEL_CHECK(dims <= rank, "pad: ", amounts.size(), " amounts for a tensor of shape ", shape);
  else
    REEL_CHECK(dims >= 1 && dims <= 3 && (rank == dims + 1 || rank == dims + 2), "pad: ", amounts.size(),
               " amounts for a tensor of shape ", shape,
               "; but for kConstant 2, 4 or 6 pad the last dimensions, with 1 or 2 in front");
  Tensor part = x;
  int first = -1, last = -1;    // dimensions that are extended
  std::vector<Tensor> origins;  // where their elements come from, up to `last`
  Shape before = shape, whole = shape;
  std::fill(before.begin(), before.end(), 0);
  for (int i = 0; i < dims; ++i) {
    const int d = rank - 1 - i;
    int64_t left = amounts[2 * i], right = amounts[2 * i + 1], size = 0;
    constexpr int64_t kMax = INT64_MAX / 4;  // the sum of two of these and a size does not overflow
    const auto is_sane = [](int64_t n) { return n >= -kMax && n <= kMax; };
    if (is_sane(left) && is_sane(right)) size = left + right + shape[d];
    REEL_CHECK(is_sane(left) && is_sane(right) && size >= 0, "pad: ", left, " and ", right, " leave nothing of size ",
               shape[d], " in dimension ", d, " of shape ", shape);
    // What is cut off is cut off first; mirror images and edges remember it.
    if (mode == kConstant || mode == kCircular) {
      const int64_t cut = std::max<int64_t>(-left, 0), cut_end = std::max<int64_t>(-right, 0);
      REEL_CHECK(cut <= shape[d] - cut_end, "pad: ", left, " and ", right, " cut more than the size of dimension ", d,
                 " of shape ", shape);
      if (cut || cut_end) part = part.narrow(d, cut, shape[d] - cut - cut_end);
      left += cut, right += cut_end;
    }
    before[d] = left, whole[d] = size;
    if (mode == kConstant || (left == 0 && right == 0 && last < 0)) continue;
    if (last < 0) last = d;
    if (left || right) first = d;
    origins.insert(origins.begin(), origins_of(part, d, left, right, mode));
  }
  if (last >= 0) part = select_along(part, first, std::span(origins).last(last - first + 1));
  if (mode == kConstant && whole != view_of(part).shape) return surround(part, whole, before, value);
  return TensorImpl::of(part)->storage == TensorImpl::of(x)->storage ? part.clone() : part;
}

}  // namespace reel
