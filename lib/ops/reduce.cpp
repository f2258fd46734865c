#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/device/kernels/enums.h"
#include "lib/ops/internal.h"
#include "lib/ops/scan.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/ops.h"

namespace reel {
namespace {

// ---- what is reduced ------------------------------------------------------------------------------------------------

struct Plan {
  Shape kept;            // the shape that kernels see: size 1 where x is reduced
  Shape result;          // without these dimensions, unless keepdim
  unsigned reduced = 0;  // bit d: x is reduced along dimension d
  unsigned absent = 0;   // … which is not in the result
  int64_t count = 1;     // elements of x that make one of the result
};

Plan plan_of(const char* op, const Shape& shape, const Dims& dims, bool keepdim) {
  const int rank = shape.size();
  unsigned gone = dims.dims.empty() ? (1u << rank) - 1 : 0;
  for (const int64_t dim : dims.dims) {
    const unsigned bit = 1u << wrap_dim(dim, rank, op);
    REEL_CHECK(!(gone & bit), op, ": dimension ", dim, " is named twice in ", dims.dims);
    gone |= bit;
  }
  Plan plan;
  plan.kept = shape;
  plan.reduced = gone & ((1u << rank) - 1);  // a 0-d tensor may be said to have a dimension 0
  plan.absent = keepdim ? 0 : plan.reduced;
  for (int d = 0; d < rank; ++d) {
    if (gone >> d & 1) plan.count *= shape[d], plan.kept[d] = 1;
    if (!(plan.absent >> d & 1)) plan.result.push_back(plan.kept[d]);
  }
  return plan;
}

/// A result as kernels want it: with x's rank.
View kept_view(const Tensor& y, const Plan& plan) {
  const View& view = view_of(y);
  return make_view(view.data, plan.kept, contiguous_strides(plan.kept), view.dtype);
}

Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMean: return "mean";
    case ReduceOp::kMax: return "amax";
    case ReduceOp::kMin: return "amin";
    case ReduceOp::kAny: return "any";
    case ReduceOp::kAll: return "all";
    case ReduceOp::kSumOfMagnitudes: return "sum_of_magnitudes";
    case ReduceOp::kSumOfSquares: return "sum_of_squares";
    case ReduceOp::kSumWithoutNaN: return "nansum";
    default: return "count_nonzero";
  }
}

/// Returns whether the elements that are reduced to one are one element, repeated.
bool repeats_elements(const View& x, const Plan& plan) {
  for (int d = 0; d < x.shape.size(); ++d)
    if (plan.reduced >> d & 1 && x.shape[d] != 1 && x.strides[d] != 0) return false;
  return plan.count > 1;
}

/// Computes the reduction, which is not recorded.
Tensor reduced(ReduceOp op, const Tensor& x, const Plan& plan) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kMean;
  if ((sums || op == ReduceOp::kMax || op == ReduceOp::kMin) && repeats_elements(view_of(x), plan) && !is_tracing())
    return no_grad([&] {
      const View& view = view_of(x);
      const Tensor one = alias(x, view.data, plan.kept, view.strides).reshape(plan.result);
      if (!sums) return one.clone();
      return (op == ReduceOp::kSum ? one * plan.count : one) + 0;  // not -0
    });
  const Tensor y = make_tensor(plan.result, op == ReduceOp::kCountNonzero ? kInt64 : x.dtype(), x.device());
  kernels_of(x).reduce(op, view_of(x), kept_view(y, plan));
  return y;
}
/// Computes it as an op.
Tensor run(ReduceOp op, const Tensor& x, const Plan& plan) {
  return call(op_of(op), {x}, {{"dims", plan.reduced}, {"keepdim", !plan.absent}},
              [&](const Tensor& x) { return reduced(op, x, plan); });
}

/// Computes a reduction for which exports have no op as one: they have the parts that `composed` makes it of.
template <class Composed>
Tensor run(ReduceOp op, const Tensor& x, const Plan& plan, const Composed& composed) {
  return call(op_of(op), {x}, {}, [&](const Tensor& x) { return is_tracing() ? composed(x) : reduced(op, x, plan); });
}

/// g with the absent dimensions put back as size 1.
Tensor with_kept_dims(const Tensor& g, unsigned absent) {
  if (!absent) return g;
  Shape kept = g.shape();
  for (int d = 0; absent >> d; ++d)
    if (absent >> d & 1) kept.insert(d, 1);
  return g.reshape(kept);
}

/// g repeated to `shape` along the absent dimensions and those of size 1.
Tensor spread(const Tensor& g, const Shape& shape, unsigned absent) {
  if (grad_enabled()) return with_kept_dims(g, absent).expand(shape);
  const View& view = view_of(g);
  Strides strides = shape;
  for (int d = 0, from = 0; d < shape.size(); ++d) {
    if (absent >> d & 1) {
      strides[d] = 0;
    } else {
      strides[d] = view.shape[from] == shape[d] ? view.strides[from] : 0;
      ++from;
    }
  }
  return alias(g, view.data, shape, strides);
}

// ---- what is refused or converted -----------------------------------------------------------------------------------

void check_float(const char* op, const Tensor& x) {
  const DType dtype = view_of(x, op).dtype;
  REEL_CHECK(is_floating_point(dtype), op, ": ", dtype, " tensors have no ", op,
             "; convert to a floating point type first");
}

void check_some(const char* op, const Shape& shape, const Plan& plan) {
  REEL_CHECK(plan.count > 0, op, ": nothing to take it of, shape ", shape);
}

/// The dtype of sums and products of x.
DType sum_type(const View& x) { return is_floating_point(x.dtype) ? x.dtype : kInt64; }

}  // namespace

// ---- sums and products ----------------------------------------------------------------------------------------------

static Tensor number_of_nonzero(const char* op, const Tensor& x, const Dims& dims, bool keepdim) {
  return run(ReduceOp::kCountNonzero, x, plan_of(op, view_of(x, op).shape, dims, keepdim),
             [&](const Tensor& x) { return sum(x.to(kBool).to(kInt64), dims, keepdim); });
}

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  const View& view = view_of(x, "sum");
  if (view.dtype == kBool) return number_of_nonzero("sum", x, dims, keepdim);
  if (const DType wide = sum_type(view); wide != view.dtype) return sum(x.to(wide), dims, keepdim);
  const Plan plan = plan_of("sum", view.shape, dims, keepdim);
  return call("sum", {x}, {{"dims", plan.reduced}, {"keepdim", !plan.absent}}, [&](const Tensor& x) {
    const Tensor y = reduced(ReduceOp::kSum, x, plan);
    if (recording(x))
      record("sum", y, inputs(x), [shape = view_of(x).shape, absent = plan.absent](Backward& back) {
        back.set(0, spread(back.grad(), shape, absent));
      });
    return y;
  });
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim) {
  const View& view = view_of(x, "nansum");
  if (!is_floating_point(view.dtype)) return sum(x, dims, keepdim);
  const Plan plan = plan_of("nansum", view.shape, dims, keepdim);
  const Tensor y =
      run(ReduceOp::kSumWithoutNaN, x, plan, [&](const Tensor& x) { return sum(where(x != x, 0, x), dims, keepdim); });
  if (recording(x))
    record("nansum", y, inputs(x), [x = SavedTensor(x), absent = plan.absent](Backward& back) {
      const Tensor& in = back.get(x);
      back.set(0, where(in == in, spread(back.grad(), in.shape(), absent), 0));
    });
  return y;
}
Tensor nanmean(const Tensor& x, const Dims& dims, bool keepdim) {
  check_float("nanmean", x);
  return call("nanmean", {x}, {}, [&](const Tensor& x) {  //
    return nansum(x, dims, keepdim) / sum(x == x, dims, keepdim);
  });
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) { return number_of_nonzero("count_nonzero", x, dims, false); }

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  check_float("mean", x);
  const View& view = view_of(x);
  const Plan plan = plan_of("mean", view.shape, dims, keepdim);
  const double count = static_cast<double>(plan.count);
  const Tensor y = run(ReduceOp::kMean, x, plan);
  if (recording(x))
    record("mean", y, inputs(x), [shape = view.shape, absent = plan.absent, count](Backward& back) {
      back.set(0, spread(back.grad() / count, shape, absent));
    });
  return y;
}

Tensor prod(const Tensor& x) {
  const View& view = view_of(x, "prod");
  if (is_tracing() || recording(x) || sum_type(view) != view.dtype) return prod(x.reshape({x.numel()}), 0);
  return run(ReduceOp::kProd, x, plan_of("prod", view.shape, {}, false));
}

Tensor prod(const Tensor& x, int64_t dim, bool keepdim) {
  const View& view = view_of(x, "prod");
  if (const DType wide = sum_type(view); wide != view.dtype) return prod(x.to(wide), dim, keepdim);
  const Plan plan = plan_of("prod", view.shape, dim, keepdim);
  constexpr Op op = "prod";
  // Only the derivative needs float32: the kernel reads halves itself.
  if (is_half(view.dtype) && !recording(x) && !op.concerns(op_modes)) return reduced(ReduceOp::kProd, x, plan);
  return call("prod", {x}, {{"dims", plan.reduced}, {"keepdim", !plan.absent}}, [&](const Tensor& x) {
    const Tensor y = reduced(ReduceOp::kProd, x, plan);
    // The derivative by x_i is the product of the others: y / x_i where that is exact.
    if (recording(x))
      record("prod", y, inputs(x),
             [x = SavedTensor(x), y = SavedTensor::output(y), dim, absent = plan.absent](Backward& back) {
               const Tensor in = back.get(x), out = with_kept_dims(back.get(y), absent);
               const Tensor g = with_kept_dims(back.grad(), absent);
               if (can_divide_product(out)) return back.set(0, g * out / in);
               const Tensor behind = flip(exclusive_cumprod(flip(in, dim), dim), dim);
               back.set(0, g * (exclusive_cumprod(in, dim) * behind));
             });
    return y;
  });
}

// ---- extremes -------------------------------------------------------------------------------------------------------

namespace {

Tensor extreme(const char* name, ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim) {
  const View& view = view_of(x, name);
  const Plan plan = plan_of(name, view.shape, dims, keepdim);
  check_some(name, view.shape, plan);
  const Tensor y = run(op, x, plan);
  if (recording(x))
    record(name, y, inputs(x),
           [x = SavedTensor(x), y = SavedTensor::output(y), dims, absent = plan.absent](Backward& back) {
             Tensor best, ties;
             no_grad([&] {
               const Tensor in = back.get(x), out = with_kept_dims(back.get(y), absent);
               best = (in == out) | ((in != in) & (out != out));  // NaN is equal to NaN
               ties = sum(best, dims, true);
             });
             // The others get 0 of a gradient that is NaN, too.
             back.set(0, where(best, with_kept_dims(back.grad(), absent) / ties, 0));
           });
  return y;
}

/// Where along `dim` the extreme is; the caller has checked that there is one.
Tensor position(bool largest, const Tensor& x, int dim, const Plan& plan) {
  return call(largest ? Op("argmax") : Op("argmin"), {x}, {{"dim", dim}, {"keepdim", !plan.absent}},
              [&](const Tensor& x) {
                const Tensor indices = make_tensor(plan.result, kInt64, x.device());
                kernels_of(x).arg_reduce(largest, view_of(x), dim, kept_view(indices, plan));
                return indices;
              });
}

ValuesIndices extreme_along(const char* name, bool largest, const Tensor& x, int64_t dim, bool keepdim) {
  const View& view = view_of(x, name);
  const int d = wrap_dim(dim, view.shape.size(), name);
  const Plan plan = plan_of(name, view.shape, dim, keepdim);
  check_some(name, view.shape, plan);
  if (is_tracing()) [[unlikely]]  // exports have the two alone
    return {run(largest ? ReduceOp::kMax : ReduceOp::kMin, x, plan), position(largest, x, d, plan)};
  const Tensor indices = position(largest, x, d, plan), y = make_tensor(plan.result, view.dtype, x.device());
  kernels_of(x).gather(view, d, kept_view(indices, plan), kept_view(y, plan), nullptr);
  if (recording(x))
    record(name, y, inputs(x),
           [shape = view.shape, indices = SavedTensor(indices), d, absent = plan.absent](Backward& back) {
             const Tensor g = with_kept_dims(back.grad(), absent);
             back.set(0, scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), d,
                                     with_kept_dims(back.get(indices), absent), g));
           });
  return {y, indices};
}

Tensor arg_extreme(const char* name, bool largest, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const View& view = view_of(x, name);
  if (!dim) {
    REEL_CHECK(view.numel > 0, name, ": nothing to take it of, shape ", view.shape);
    const Tensor flat = no_grad([&] { return x.reshape({view.numel}); });
    const Tensor at = position(largest, flat, 0, plan_of(name, {view.numel}, 0, false));
    Shape kept = view.shape;
    for (int64_t& size : kept) size = 1;
    return keepdim ? at.reshape(kept) : at;
  }
  const Plan plan = plan_of(name, view.shape, *dim, keepdim);
  check_some(name, view.shape, plan);
  return position(largest, x, wrap_dim(*dim, view.shape.size(), name), plan);
}

}  // namespace

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amax", ReduceOp::kMax, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amin", ReduceOp::kMin, x, dims, keepdim);
}
MinMax aminmax(const Tensor& x, const Dims& dims, bool keepdim) {
  return {extreme("aminmax", ReduceOp::kMin, x, dims, keepdim), extreme("aminmax", ReduceOp::kMax, x, dims, keepdim)};
}
Tensor max(const Tensor& x) { return extreme("max", ReduceOp::kMax, x, {}, false); }
Tensor min(const Tensor& x) { return extreme("min", ReduceOp::kMin, x, {}, false); }
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) { return extreme_along("max", true, x, dim, keepdim); }
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) { return extreme_along("min", false, x, dim, keepdim); }
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", true, x, dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", false, x, dim, keepdim);
}

// ---- deviations, norms, logsumexp -----------------------------------------------------------------------------------

namespace {

/// x with 1 for every 0: a divisor under a numerator that is 0 there, too.
Tensor nonzero_or_one(const Tensor& x) { return where(x == 0, 1, x); }
/// g / root, the factor in the slope of a square root; 0 where that is 0, and so are all derivatives of it.
Tensor over_root(const Tensor& g, const Tensor& root) { return where(root == 0, 0, g / nonzero_or_one(root)); }

// These compute Σ x² and Σ |x|, which are not recorded.
Tensor sum_of_squares(const Tensor& x, const Dims& dims, bool keepdim) {
  return run(ReduceOp::kSumOfSquares, x, plan_of("norm", x.shape(), dims, keepdim),
             [&](const Tensor& x) { return sum(square(x), dims, keepdim); });
}
Tensor sum_of_magnitudes(const Tensor& x, const Dims& dims, bool keepdim) {
  return run(ReduceOp::kSumOfMagnitudes, x, plan_of("norm", x.shape(), dims, keepdim),
             [&](const Tensor& x) { return sum(abs(x), dims, keepdim); });
}

/// The deviations from the mean. A mean is rounded to x's type, in which it may be off by more than a small part of the
/// deviations; these are exact numbers of a mean that shows by how much.
Tensor centered(const Tensor& x, const Dims& dims) {
  const Tensor d = x - mean(x, dims, true);
  return d - mean(d, dims, true);
}

enum class Root { kNo, kYes };

Tensor deviation(const char* name, Root root, const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_float(name, x);
  return call("deviation", {x}, {}, [&](const Tensor& x) {
    const Plan plan = plan_of(name, x.shape(), dims, keepdim);
    const double freedom = std::max(0.0, static_cast<double>(plan.count) - correction);
    const Tensor y = no_grad([&] {
      const Tensor d = centered(x, dims), variance = sum_of_squares(d, dims, keepdim) / freedom;
      if (root == Root::kNo) return variance;
      // A deviation that float32 holds may have a square that it does not. On a GPU the question would synchronize.
      const auto leaves_range = [](float v) { return v < 1e-30F || std::isinf(v); };
      if (x.dtype() == kFloat32 && is_readable(variance) &&
          std::any_of(variance.data<float>(), variance.data<float>() + variance.numel(), leaves_range))
        return sqrt(sum_of_squares(d.to(kFloat64), dims, keepdim) / freedom).to(kFloat32);
      return sqrt(variance);
    });
    if (recording(x))
      record(name, y, inputs(x),
             [x = SavedTensor(x), y = root == Root::kYes ? SavedTensor::output(y) : SavedTensor(), dims, freedom,
              absent = plan.absent](Backward& back) {
               const Tensor g = y.defined() ? over_root(back.grad(), back.get(y)) : back.grad() * 2;
               back.set(0, with_kept_dims(g / freedom, absent) * centered(back.get(x), dims));
             });
    return y;
  });
}

/// (Σ |x|^p)^(1/p). The derivative is sign(x) |x / y|^(p-1); 0 where x is 0, and for p < 0 also where y is.
Tensor power_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  const Plan plan = plan_of("norm", x.shape(), dims, keepdim);
  if (p < 0) check_some("norm", x.shape(), plan);
  const Tensor y = no_grad(
      [&] { return p == 2 ? sqrt(sum_of_squares(x, dims, keepdim)) : pow(sum(pow(abs(x), p), dims, keepdim), 1 / p); });
  if (recording(x))
    record("norm", y, inputs(x),
           [x = SavedTensor(x), y = SavedTensor::output(y), p, absent = plan.absent](Backward& back) {
             const Tensor in = back.get(x), out = back.get(y);
             if (p == 2) return back.set(0, in * with_kept_dims(over_root(back.grad(), out), absent));
             const Tensor g = p < 0 ? back.grad() * pow(out, 1 - p) : back.grad() / pow(nonzero_or_one(out), p - 1);
             back.set(0, with_kept_dims(g, absent) * sign(in) * pow(nonzero_or_one(abs(in)), p - 1));
           });
  return y;
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return deviation("var", Root::kNo, x, dims, correction, keepdim);
}
Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return deviation("std", Root::kYes, x, dims, correction, keepdim);
}

Moments var_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return {deviation("var_mean", Root::kNo, x, dims, correction, keepdim), mean(x, dims, keepdim)};
}
Moments std_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return {deviation("std_mean", Root::kYes, x, dims, correction, keepdim), mean(x, dims, keepdim)};
}

Tensor cov(const Tensor& x, double correction) {
  check_float("cov", x);
  REEL_CHECK(x.dim() <= 2, "cov: expected variables by observations, got shape ", x.shape());
  return call("cov", {x}, {}, [&](const Tensor& x) {
    const Tensor d = centered(atleast_2d(x), 1);
    const Tensor y = matmul(d, d.t()) / std::max(0.0, static_cast<double>(d.size(1)) - correction);
    return d.size(0) == 1 ? y.reshape({}) : y;
  });
}
Tensor corrcoef(const Tensor& x) {
  check_float("corrcoef", x);
  return call("corrcoef", {x}, {}, [](const Tensor& x) {
    const Tensor c = cov(x);
    if (c.dim() == 0) return c / c;
    const Tensor spread = sqrt(diagonal(c));
    return clamp(c / spread.unsqueeze(1) / spread, -1, 1);
  });
}

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  check_float("norm", x);
  REEL_CHECK(!std::isnan(p), "norm: p is ", p);
  constexpr Op op = "norm";
  if (p == 2 && is_half(x.dtype()) && x.device() == kCPU && !op.concerns(op_modes) && !recording(x)) {
    const Plan plan = plan_of("norm", x.shape(), dims, keepdim);
    if (plan.count > 1) {  // of halves, which the kernel reads where they are
      const Tensor sums = make_tensor(plan.result, kFloat32, x.device());
      kernels_of(x).reduce(ReduceOp::kSumOfSquares, view_of(x), kept_view(sums, plan));
      return sqrt(sums).to(x.dtype());
    }
  }
  return call(op, {x}, {}, [&](const Tensor& x) {
    if (p == 0) {
      const Tensor y = sum((x != 0).to(x.dtype()), dims, keepdim);
      record_constant("norm", y, x);
      return y;
    }
    // The power of a single element may be infinite.
    if (p == 1 || plan_of("norm", x.shape(), dims, keepdim).count == 1)
      return recording(x) ? sum(abs(x), dims, keepdim) : sum_of_magnitudes(x, dims, keepdim);
    if (std::isinf(p)) return p > 0 ? amax(abs(x), dims, keepdim) : amin(abs(x), dims, keepdim);
    return power_norm(x, p, dims, keepdim);
  });
}

Tensor renorm(const Tensor& x, double p, int64_t dim, double max_norm) {
  check_float("renorm", x);
  REEL_CHECK(x.dim() > 1, "renorm: expected at least two dimensions, got shape ", x.shape());
  REEL_CHECK(max_norm >= 0, "renorm: a largest norm of ", max_norm);
  return call("renorm", {x}, {}, [&](const Tensor& x) {
    Dims others;
    const int d = wrap_dim(dim, static_cast<int>(x.dim()), "renorm");
    for (int e = 0; e < x.dim(); ++e)
      if (e != d) others.dims.push_back(e);
    const Tensor norms = no_grad([&] { return norm(x, p, others, true); }), large = norms > max_norm;
    if (!recording(x)) return x * where(large, max_norm / (norms + 1e-7), 1);
    // No slope of what is left as it is counts, not even as 0 times NaN.
    const Tensor rows = where(large, x, 1);
    return where(large, rows * (max_norm / (norm(rows, p, others, true) + 1e-7)), x);
  });
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  if (!is_floating_point(view_of(x, "logsumexp").dtype)) return logsumexp(x.to(kFloat32), dims, keepdim);
  return call("logsumexp", {x}, {}, [&](const Tensor& x) {
    const Plan plan = plan_of("logsumexp", x.shape(), dims, keepdim);
    const double infinity = std::numeric_limits<double>::infinity();
    if (plan.count == 0) return sum(x, dims, keepdim) - infinity;
    const Tensor y = no_grad([&] {
      const Tensor top = amax(x, dims, true), shift = where(abs(top) == infinity, 0, top);
      return log(sum(exp(x - shift), dims, keepdim)) + shift.reshape(plan.result);
    });
    if (recording(x))
      record("logsumexp", y, inputs(x),
             [x = SavedTensor(x), y = SavedTensor::output(y), absent = plan.absent](Backward& back) {
               const Tensor out = back.get(y), shift = where(out == -std::numeric_limits<double>::infinity(), 0, out);
               back.set(0, with_kept_dims(back.grad(), absent) * exp(back.get(x) - with_kept_dims(shift, absent)));
             });
    return y;
  });
}

// ---- truth ----------------------------------------------------------------------------------------------------------

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  const Plan plan = plan_of("any", view_of(x, "any").shape, dims, keepdim);
  return run(ReduceOp::kAny, x.to(kBool), plan);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  const Plan plan = plan_of("all", view_of(x, "all").shape, dims, keepdim);
  return run(ReduceOp::kAll, x.to(kBool), plan);
}

// ---- of matrices and vectors ----------------------------------------------------------------------------------------

Tensor trace(const Tensor& x) {
  REEL_CHECK(view_of(x, "trace").shape.size() == 2, "trace: expected a matrix, got shape ", x.shape());
  return sum(diagonal(x));
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) {
  const Shape shape = broadcast_shapes(view_of(a, "cross").shape, view_of(b, "cross").shape, "cross");
  const int d = wrap_dim(dim, shape.size(), "cross");
  REEL_CHECK(!shape.empty() && shape[d] == 3, "cross: dimension ", dim, " of shape ", shape, " does not have size 3");
  return call("cross", {a, b}, {}, [&](const Tensor& a, const Tensor& b) {
    const Tensor y = no_grad([&] {
      // Rows 0, 1, 2, 0, 1 have two rolled copies of the three.
      const auto rows_of = [&](const Tensor& x) {
        const Tensor rows = movedim(x.expand(shape), d, 0);
        return cat({rows, rows.narrow(0, 0, 2)}, 0);
      };
      const Tensor u = rows_of(a), v = rows_of(b);
      const auto rolled = [](const Tensor& rows, int64_t by) { return rows.narrow(0, by, 3); };
      const Tensor product = rolled(u, 1) * rolled(v, 2) - rolled(u, 2) * rolled(v, 1);
      return movedim(product, 0, d).contiguous();
    });
    if (recording(a, b))
      record("cross", y, inputs(a, b), [a = SavedTensor(a), b = SavedTensor(b), d = d - shape.size()](Backward& back) {
        const Tensor g = back.grad();
        if (back.needs(0)) back.set(0, cross(back.get(b), g, d));
        if (back.needs(1)) back.set(1, cross(g, back.get(a), d));
      });
    return y;
  });
}

}  // namespace reel
