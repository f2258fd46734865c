#include <limits>

#include "lib/device/kernels/enums.h"
#include "lib/ops/ragged.h"

namespace reel {
namespace {

Tensor checked_offsets(const char* op, const Tensor& x, const Tensor& offsets, int64_t rows) {
  const Tensor at = to_ids(op, x, offsets).contiguous();
  REEL_CHECK(at.dim() == 1 && at.numel() > 0, op, ": expected a vector of offsets, got shape ", at.shape());
  const Tensor readable = is_readable(at) ? at : at.to(kCPU);
  const std::span<const int64_t> list(readable.data<int64_t>(), static_cast<size_t>(at.numel()));
  REEL_CHECK(list.front() == 0, op, ": the first offset is ", list.front(), ", not 0");
  REEL_CHECK(rows < 0 || list.back() == rows, op, ": the last offset is ", list.back(), ", the number of rows ", rows);
  for (size_t i = 1; i < list.size(); ++i)
    REEL_CHECK(list[i] >= list[i - 1], op, ": the offsets fall after ", list[i - 1]);
  return at;
}

Shape with_rows(int64_t rows, const Shape& each) {
  Shape shape = each;
  shape.insert(0, rows);
  return shape;
}

Shape each_of(const Tensor& x) {
  Shape each = x.shape();
  each.erase(0);
  return each;
}

/// [n, …] as [n, m], contiguous.
Tensor as_matrix(const Tensor& x) {
  const Tensor dense = x.contiguous();
  return dense.dim() == 2 ? dense : dense.reshape({dense.size(0), each_of(x).numel()});
}

Tensor checked(const char* op, const Tensor& x) {
  const View& view = view_of(x, op);
  REEL_CHECK(!view.shape.empty(), op, ": a 0-d tensor has no rows");
  REEL_CHECK(is_floating_point(view.dtype), op, ": a tensor of ", view.dtype,
             "; convert it to a floating point type first");
  return x;
}

SegmentOp op_of(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum: return SegmentOp::kSum;
    case Reduce::kMean: return SegmentOp::kMean;
    case Reduce::kMax: return SegmentOp::kMax;
    case Reduce::kMin: return SegmentOp::kMin;
    case Reduce::kProd: break;
  }
  detail::fail("segment_reduce: there is no kProd of segments");
}

Tensor spread(const Tensor& x, const Tensor& offsets, int64_t rows, bool mean);

/// [n, m] or [n, …], contiguous, of float32 or float64, reduced; the offsets have been checked.
Tensor reduced(SegmentOp op, const Tensor& in, const Tensor& offsets) {
  const Tensor x = in.contiguous();
  const int64_t segments = offsets.numel() - 1, rows = x.size(0);
  const Tensor y = make_tensor(with_rows(segments, each_of(x)), x.dtype(), x.device());
  const Tensor flat = no_grad([&] { return as_matrix(x); });
  kernels_of(x).segment_reduce(op, view_of(flat), view_of(offsets), view_of(y));
  if (!recording(x)) return y;
  if (op == SegmentOp::kSum || op == SegmentOp::kMean) {
    record("segment_reduce", y, inputs(x),
           [mean = op == SegmentOp::kMean, rows, at = SavedTensor(offsets)](Backward& back) {
             back.set(0, spread(back.grad(), back.get(at), rows, mean));
           });
    return y;
  }
  record("segment_reduce", y, inputs(x),
         [x = SavedTensor(x), y = SavedTensor::output(y), at = SavedTensor(offsets)](Backward& back) {
           const Tensor in = back.get(x), best = back.get(y), offsets = back.get(at);
           if (back.create_graph()) {
             const auto [wins, ties] = no_grad([&] {
               const Tensor b = spread(best, offsets, in.size(0), false);
               const Tensor equals = ((in == b) | ((in != in) & (b != b))).to(in.dtype());
               return std::pair(equals, maximum(reduced(SegmentOp::kSum, equals, offsets), 1));
             });
             return back.set(0, spread(back.grad() / ties, offsets, in.size(0), false) * wins);
           }
           const Tensor g = back.grad().contiguous(), gx = make_tensor(in.shape(), in.dtype(), in.device());
           kernels_of(in).segment_extreme_grad(view_of(g), view_of(as_matrix(in)), view_of(best), view_of(offsets),
                                               view_of(gx));
           back.set(0, gx);
         });
  return y;
}

/// The adjoint of the sum or mean.
Tensor spread(const Tensor& in, const Tensor& offsets, int64_t rows, bool mean) {
  const Tensor x = in.contiguous();
  const Tensor y = make_tensor(with_rows(rows, each_of(x)), x.dtype(), x.device());
  const Tensor flat = no_grad([&] { return as_matrix(y); });
  kernels_of(x).segment_broadcast(mean, view_of(x), view_of(offsets), view_of(flat));
  if (recording(x))
    record("segment_expand", y, inputs(x), [mean, at = SavedTensor(offsets)](Backward& back) {
      back.set(0, reduced(mean ? SegmentOp::kMean : SegmentOp::kSum, back.grad(), back.get(at)));
    });
  return y;
}

/// Computes the softmax of each segment, in float32 or float64. The offsets have been checked.
Tensor softmax_of(const Tensor& in, const Tensor& offsets) {
  const Tensor x = in.contiguous(), y = make_tensor(x.shape(), x.dtype(), x.device());
  const Tensor flat = no_grad([&] { return as_matrix(x); });
  kernels_of(x).segment_softmax(view_of(flat), view_of(offsets), view_of(y));
  if (recording(x))
    record("segment_softmax", y, inputs(x), [y = SavedTensor::output(y), at = SavedTensor(offsets)](Backward& back) {
      const Tensor out = back.get(y), offsets = back.get(at);
      if (back.create_graph()) {
        const Tensor gy = back.grad() * out, total = reduced(SegmentOp::kSum, gy, offsets);
        return back.set(0, gy - out * spread(total, offsets, out.size(0), false));
      }
      const Tensor g = back.grad().contiguous(), gx = make_tensor(out.shape(), out.dtype(), out.device());
      kernels_of(out).segment_softmax_grad(view_of(g), view_of(as_matrix(out)), view_of(offsets), view_of(gx));
      back.set(0, gx);
    });
  return y;
}

}  // namespace

Tensor reduce_segments(SegmentOp op, const char* name, const Tensor& x, const Tensor& offsets) {
  check_device(name, checked(name, x), {&offsets});
  return call("segment_reduce", {x, offsets}, {},
              [&](const Tensor& x, const Tensor& offsets) { return reduced(op, x, offsets); });
}

Tensor expand_segments(const char* name, const Tensor& x, const Tensor& offsets, int64_t rows) {
  return call("segment_expand", {checked(name, x), offsets}, {},
              [&](const Tensor& x, const Tensor& offsets) { return spread(x, offsets, rows, false); });
}

Tensor softmax_segments(const char* name, const Tensor& x, const Tensor& offsets) {
  return call("segment_softmax", {checked(name, x), offsets}, {}, softmax_of);
}

Tensor segment_reduce(const Tensor& x, const Tensor& offsets, Reduce reduce) {
  constexpr Op name = "segment_reduce";
  const SegmentOp op = op_of(reduce);
  return call(name, {checked(name, x), offsets}, {}, [&](const Tensor& x, const Tensor& offsets) {
    return reduced(op, x, checked_offsets(name, x, offsets, x.size(0)));
  });
}

Tensor segment_expand(const Tensor& x, const Tensor& offsets) {
  constexpr Op name = "segment_expand";
  return call(name, {checked(name, x), offsets}, {}, [&](const Tensor& x, const Tensor& offsets) {
    const Tensor at = checked_offsets(name, x, offsets, -1);
    REEL_CHECK(at.numel() - 1 == x.size(0), name, ": ", at.numel() - 1, " segments for ", x.size(0), " rows");
    return spread(x, at, at[-1].item<int64_t>(), false);
  });
}

Tensor segment_softmax(const Tensor& x, const Tensor& offsets) {
  constexpr Op name = "segment_softmax";
  return call(name, {checked(name, x), offsets}, {}, [&](const Tensor& x, const Tensor& offsets) {
    return softmax_of(x, checked_offsets(name, x, offsets, x.size(0)));
  });
}

Tensor segment_offsets(const Tensor& lengths) {
  const Tensor counts = to_ids("segment_offsets", lengths, lengths);
  REEL_CHECK(counts.dim() == 1, "segment_offsets: expected a vector of lengths, got shape ", counts.shape());
  int64_t bad;
  if (kernels_of(counts).check_bounds("segment_offsets", view_of(counts), 0, std::numeric_limits<int64_t>::max(), &bad))
    detail::fail("segment_offsets: a length of ", bad);
  return cat({zeros({1}, {.dtype = kInt64, .device = counts.device()}), cumsum(counts, 0)});
}

}  // namespace reel
