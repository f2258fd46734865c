#include <algorithm>
#include <tuple>

#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/gemm.h"
#include "lib/functors/unary.h"
#include "lib/ops/fused.h"
#include "lib/ops/internal.h"
#include "lib/ops/matmul.h"
#include "lib/ops/transposed.h"

namespace reel {
namespace {

// A matrix, or a batch of them, as gemm takes it: rows or columns are contiguous.
struct Operand {
  Tensor held;
  const void* data;
  int64_t rows, cols, ld;
  bool transposed;

  Operand t() const { return {held, data, cols, rows, ld, !transposed}; }
  int64_t batch() const { return held.dim() == 3 ? held.size(0) : 1; }
  int64_t stride() const { return held.dim() == 3 ? view_of(held).strides[0] : 0; }
};
// The last two dimensions of x.
Operand operand(const Tensor& x) {
  const View& view = view_of(x);
  const int r = view.shape.size() - 2;
  const int64_t rows = view.shape[r], cols = view.shape[r + 1], row = view.strides[r], col = view.strides[r + 1];
  if ((col == 1 || cols <= 1) && (row >= cols || rows <= 1))
    return {x, view.data, rows, cols, std::max<int64_t>({rows <= 1 ? cols : row, cols, 1}), false};
  if ((row == 1 || rows <= 1) && (col >= rows || cols <= 1))
    return {x, view.data, rows, cols, std::max<int64_t>({cols <= 1 ? rows : col, rows, 1}), true};
  const Tensor dense = x.contiguous();
  return {dense, view_of(dense).data, rows, cols, std::max<int64_t>(cols, 1), false};
}

// Returns alpha a · b, plus `bias` on each row if it is defined, then ReLU if `with_relu`.
Tensor product(const char* op, const Operand& a, const Operand& b, const Tensor& bias = {}, bool with_relu = false,
               double alpha = 1) {
  const View& view = view_of(a.held);
  const int64_t m = a.rows, k = a.cols, n = b.cols;
  for (const int64_t size : {m, k, n, a.ld, b.ld})
    REEL_CHECK(size <= INT32_MAX, op, ": size ", size, " is more than BLAS can count, ", INT32_MAX);
  const bool batched = view.shape.size() == 3;
  const Tensor y = make_tensor(batched ? Shape{a.batch(), m, n} : Shape{m, n}, view.dtype, a.held.device());
  const Tensor row = bias.defined() ? bias.contiguous() : bias;
  const KernelTable& kernels = kernels_of(y);
  (is_floating_point(view.dtype) ? kernels.gemm
                                 : kernels.integer_gemm)({.dtype = view.dtype,
                                                          .trans_a = a.transposed,
                                                          .trans_b = b.transposed,
                                                          .m = m,
                                                          .n = n,
                                                          .k = k,
                                                          .a = a.data,
                                                          .lda = a.ld,
                                                          .b = b.data,
                                                          .ldb = b.ld,
                                                          .c = view_of(y).data,
                                                          .ldc = n,
                                                          .alpha = alpha,
                                                          .bias = row.defined() ? view_of(row).data : nullptr,
                                                          .batch = a.batch(),
                                                          .stride_a = a.stride(),
                                                          .stride_b = b.stride(),
                                                          .stride_c = m * n,
                                                          .relu = with_relu});
  return y;
}

void check_types(const char* op, const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(a, op).dtype == view_of(b, op).dtype, op, ": operands of different types, ", a.dtype(), " and ",
             b.dtype());
  common_device(op, {&a, &b});
}

/// Returns the exact product of integers; for bools it is true where a pair of them is.
Tensor product_of_integers(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() == kBool) return product_of_integers(op, a.to(kInt32), b.to(kInt32)).to(kBool);
  return product(op, operand(a), operand(b));
}

}  // namespace

// ---- two matrices ---------------------------------------------------------------------------------------------------

Tensor mm(const Tensor& a, const Tensor& b) {
  return call("mm", {a, b}, {}, [](const Tensor& a, const Tensor& b) {
    check_types("mm", a, b);
    const View &av = view_of(a), &bv = view_of(b);
    REEL_CHECK(av.shape.size() == 2 && bv.shape.size() == 2, "mm: expected two matrices, got shapes ", av.shape,
               " and ", bv.shape);
    REEL_CHECK(av.shape[1] == bv.shape[0], "mm: inner sizes differ, ", av.shape, " x ", bv.shape);
    if (!is_floating_point(av.dtype)) return product_of_integers("mm", a, b);
    const Tensor y = product("mm", operand(a), operand(b));
    if (recording(a, b))
      record("mm", y, inputs(a, b), [a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b)](Backward& back) {
        const Tensor& g = back.grad();
        if (back.needs(0)) back.set(0, mm(g, back.get(b).t()));
        if (back.needs(1)) {
          if (back.create_graph())
            back.set(1, mm(back.get(a).t(), g));
          else
            back.set_product(1, back.get(a), g);
        }
      });
    return y;
  });
}

namespace {

/// The gradient of what was rectified, from that of the result y.
Tensor rectified_grad(Backward& back, const SavedTensor& y) {
  const Tensor& g = back.grad();
  if (back.create_graph()) return where(back.get(y) <= 0, 0, g);
  const functors::Relu relu;
  View room;
  const Tensor result = back.take_grad_buffer();
  kernels_of(g).unary_grad[functors::index_of<functors::UnaryList, functors::Relu>](
      &relu, view_of(g), nullptr, back.view(y, room), view_of(result));
  return result;
}

void check_columns(const char* op, const Tensor& x, const Tensor& weight) {
  const Shape &xs = view_of(x).shape, &ws = view_of(weight).shape;
  REEL_CHECK(!xs.empty() && xs.back() == ws.back(), op, ": x of shape ", xs, " does not fit the weight's shape ", ws);
}

/// Returns x · weightᵀ + bias by a weight that is kept packed: as a convolution of one pixel whose channels lie last.
/// It returns an undefined tensor where gemm is as fast: on a GPU, for small products, and for types without such
/// kernels.
Tensor multiply_packed(const View& x, const Tensor& weight, const Tensor& bias) {
  const View& w = view_of(weight);
  const int64_t m = x.shape[0], k = x.shape[1], n = w.shape[0], work = m * k * n;
  const bool dense = is_contiguous(x.shape, x.strides) && is_contiguous(w.shape, w.strides) &&
                     (!bias.defined() || is_contiguous(view_of(bias).shape, view_of(bias).strides));
  const bool wide = x.dtype == kFloat32;
  if (!dense || !x.host || (!wide && x.dtype != kBFloat16) || (wide && m == 1) || n < 16 || k < 16) return {};
  // Measured with oneDNN 2.6 against gemm.
  const int64_t min_work = wide ? 1 << 19 : m == 1 ? 1 << 21 : 1 << 15;
  if (work < min_work) return {};
  const Tensor y = make_tensor({m, n}, x.dtype);
  const bool done = kernels_of(weight).convolve(kConvY, {.dtype = x.dtype,
                                                         .dims = 1,
                                                         .n = 1,
                                                         .in = k,
                                                         .out = n,
                                                         .groups = 1,
                                                         .x_size = {1, 1, m},
                                                         .kernel = {1, 1, 1},
                                                         .y_size = {1, 1, m},
                                                         .stride = {1, 1, 1},
                                                         .dilation = {1, 1, 1},
                                                         .before = {0, 0, 0},
                                                         .data = {x.data, w.data, view_of(y).data},
                                                         .bias = bias.defined() ? view_of(bias).data : nullptr,
                                                         .channels_last = {true, false, true},
                                                         .packed = packed_of(weight)});
  return done ? y : Tensor();
}

/// Returns x · weightᵀ + bias, then ReLU if `with_relu`, for an x that is no vector.
Tensor affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool with_relu) {
  check_types(op, x, weight);
  const View &xv = view_of(x), &wv = view_of(weight);
  REEL_CHECK(wv.shape.size() == 1 || wv.shape.size() == 2, op, ": the weight's shape is ", wv.shape,
             ", not [out, in] or [in]");
  check_columns(op, x, weight);
  if (wv.shape.size() == 1) {  // one output, without a dimension of its own
    REEL_CHECK(!bias.defined() || view_of(bias).shape.empty(), op, ": the bias has shape ", bias.shape(),
               ", the weight ", wv.shape);
    Tensor y = matmul(x, weight);
    if (bias.defined()) y = y + bias;
    return with_relu ? relu(y) : y;
  }
  const int64_t out = wv.shape[0];
  if (bias.defined()) {
    check_types(op, x, bias);
    REEL_CHECK(view_of(bias).shape == Shape({out}), op, ": the bias has shape ", bias.shape(), ", the weight ",
               wv.shape);
  }
  if (!is_floating_point(xv.dtype)) {
    Tensor y = matmul(x, weight.t());
    if (bias.defined()) y = y + bias;
    return with_relu ? relu(y) : y;
  }
  const int rank = xv.shape.size();
  const Tensor rows = rank == 2 ? x : x.flatten(0, -2);
  const auto shaped = [&](const Tensor& y) {
    if (rank == 2) return y;
    Shape shape = xv.shape;
    shape[shape.size() - 1] = out;
    return y.view(shape);
  };
  if (TensorImpl::of(weight)->packed && !recording(rows, weight, bias)) [[unlikely]] {
    const Tensor y = multiply_packed(view_of(rows), weight, bias);
    if (y.defined() && with_relu) rectify(y);
    if (y.defined()) return shaped(y);
  }
  const Tensor* const turned = detail::TransposedWeights::find(weight, view_of(rows).shape[0]);
  const Tensor y = product(op, operand(rows), turned ? operand(*turned) : operand(weight).t(), bias, with_relu);
  if (recording(rows, weight, bias))
    record(op, y, inputs(rows, weight, bias),
           [rows = saved_if(needs_grad(weight), rows), weight = saved_if(needs_grad(rows), weight),
            y = with_relu ? SavedTensor::output(y) : SavedTensor()](Backward& back) {
             const Tensor of_sum = y.defined() ? rectified_grad(back, y) : Tensor();
             const Tensor& g = of_sum.defined() ? of_sum : back.grad();
             if (back.needs(0)) back.set(0, mm(g, back.get(weight)));
             Tensor sums;
             if (back.needs(1)) {
               if (back.create_graph())
                 back.set(1, mm(g.t(), back.get(rows)));
               else
                 sums = back.set_product(1, g, back.get(rows), back.needs(2));
             }
             if (back.needs(2)) back.set(2, sums.defined() ? sums : view_of(g).shape[0] == 1 ? g.select(0, 0) : g);
           });
  return shaped(y);
}

Tensor linear(Op op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool with_relu) {
  // A vector is a matrix of one row, which batched calls join with others.
  if (view_of(x, op).shape.size() == 1 && view_of(weight, op).shape.size() == 2) {
    check_columns(op, x, weight);
    return linear(op, x.unsqueeze(0), weight, bias, with_relu).squeeze(0);
  }
  return call(op, {x, weight, bias}, {}, [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return affine(op, x, weight, bias, with_relu);
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear("linear", x, weight, bias, false);
}
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear("linear_relu", x, weight, bias, true);
}

Tensor linear_before_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  constexpr Op op = "linear";
  const Tensor y = linear(x, weight, bias);
  if (view_of(y).host && !op.concerns(op_modes) && !needs_grad(y)) rectify(y);
  return y;
}

void keep_packed(const Tensor& weight) {
  TensorImpl* const impl = TensorImpl::of(weight);
  if (!impl->packed) impl->packed = new PackedCopies;
}

// ---- batches --------------------------------------------------------------------------------------------------------

namespace {
/// alpha a · b for each pair of a batch.
Tensor scaled_bmm(const Tensor& a, const Tensor& b, double alpha) {
  check_types("bmm", a, b);
  const View &av = view_of(a), &bv = view_of(b);
  REEL_CHECK(av.shape.size() == 3 && bv.shape.size() == 3 && av.shape[0] == bv.shape[0],
             "bmm: expected two equally long batches of matrices, got shapes ", av.shape, " and ", bv.shape);
  REEL_CHECK(av.shape[2] == bv.shape[1], "bmm: inner sizes differ, ", av.shape, " x ", bv.shape);
  if (!is_floating_point(av.dtype)) return product_of_integers("bmm", a, b);
  const Tensor y = product("bmm", operand(a), operand(b), {}, false, alpha);
  if (recording(a, b))
    record("bmm", y, inputs(a, b),
           [a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b), alpha](Backward& back) {
             if (back.needs(0)) back.set(0, scaled_bmm(back.grad(), back.get(b).transpose(1, 2), alpha));
             if (back.needs(1)) back.set(1, scaled_bmm(back.get(a).transpose(1, 2), back.grad(), alpha));
           });
  return y;
}

/// The batches' shape, of which a and b are matrices.
Shape batch_of(const Tensor& a, const Tensor& b) {
  const auto leading = [](const Shape& s) { return Shape(std::span(s.begin(), static_cast<size_t>(s.size() - 2))); };
  return broadcast_shapes(leading(view_of(a).shape), leading(view_of(b).shape), "matmul");
}

/// alpha a · b for tensors of any batches of matrices.
Tensor batched_product(const Tensor& a, const Tensor& b, double alpha) {
  const Shape batch = batch_of(a, b);
  const auto with = [&](int64_t rows, int64_t cols) {
    Shape shape = batch;
    shape.push_back(rows), shape.push_back(cols);
    return shape;
  };
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1), count = batch.numel();
  return scaled_bmm(a.expand(with(m, k)).reshape({count, m, k}), b.expand(with(k, n)).reshape({count, k, n}), alpha)
      .view(with(m, n));
}
}  // namespace

Tensor detail::scaled_matmul(const Tensor& a, const Tensor& b, double alpha) {
  return call("matmul", {a, b}, {{"alpha", alpha}}, [&](const Tensor& a, const Tensor& b) {
    check_types("matmul", a, b);
    return batched_product(a, b, alpha);
  });
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  return call("bmm", {a, b}, {{"alpha", 1.}}, [](const Tensor& a, const Tensor& b) { return scaled_bmm(a, b, 1); });
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  // A vector on the left is a matrix of one row, which batched calls join with others.
  if (const Shape& as = view_of(a, "matmul").shape, &bs = view_of(b, "matmul").shape;
      as.size() == 1 && bs.size() == 2) {
    REEL_CHECK(as[0] == bs[0], "matmul: inner sizes differ, ", as, " x ", bs);
    return matmul(a.unsqueeze(0), b).squeeze(0);
  }
  return call("matmul", {a, b}, {{"alpha", 1.}}, [](const Tensor& a, const Tensor& b) {
    check_types("matmul", a, b);
    const View &av = view_of(a), &bv = view_of(b);
    const int ra = av.shape.size(), rb = bv.shape.size();
    REEL_CHECK(ra && rb, "matmul: 0-d operand, shapes ", av.shape, " and ", bv.shape);
    REEL_CHECK(av.shape.back() == bv.shape[std::max(rb - 2, 0)], "matmul: inner sizes differ, ", av.shape, " x ",
               bv.shape);
    if (ra == 2 && rb == 2) return mm(a, b);
    // Vectors are matrices of one row (left) or one column (right), whose dimension goes again.
    if (rb == 1) return matmul(a, b.unsqueeze(1)).squeeze(-1);
    if (ra == 1) return matmul(a.unsqueeze(0), b).squeeze(-2);
    if (rb == 2) {  // one matrix for all: a single large product
      Shape result = av.shape;
      result[ra - 1] = bv.shape.back();
      return mm(a.flatten(0, -2), b).view(result);
    }
    return batched_product(a, b, 1);
  });
}

// ---- compositions ---------------------------------------------------------------------------------------------------

Tensor dot(const Tensor& a, const Tensor& b) {
  return call("dot", {a, b}, {}, [](const Tensor& a, const Tensor& b) {
    check_types("dot", a, b);
    REEL_CHECK(a.dim() == 1 && a.shape() == b.shape(), "dot: expected two vectors of one length, got shapes ",
               a.shape(), " and ", b.shape());
    if (!recording(a, b)) return matmul(a, b);
    const Tensor y = no_grad([&] { return matmul(a, b); });
    record("dot", y, inputs(a, b), [a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b)](Backward& back) {
      if (back.needs(0)) back.set(0, back.grad() * back.get(b));
      if (back.needs(1)) back.set(1, back.grad() * back.get(a));
    });
    return y;
  });
}

Tensor outer(const Tensor& a, const Tensor& b) {
  view_of(a, "outer"), view_of(b, "outer");
  REEL_CHECK(a.dim() == 1 && b.dim() == 1, "outer: expected two vectors, got shapes ", a.shape(), " and ", b.shape());
  return a.unsqueeze(1) * b.unsqueeze(0);
}

namespace {
/// Returns beta * input + alpha * product. A term with factor 0 is skipped even if it holds NaN; its gradient is 0.
Tensor add_product(const char* op, const Tensor& input, const Tensor& product, Scalar beta, Scalar alpha) {
  const Shape shape = broadcast_shapes(view_of(input, op).shape, product.shape(), op);
  REEL_CHECK(shape == product.shape(), op, ": an input of shape ", input.shape(), " for a product of shape ",
             product.shape());
  const auto scaled = [](const Tensor& x, Scalar by) {
    if (by.to<double>() == 1) return x;
    return by.to<double>() == 0 ? where(ones({}, {.dtype = kBool, .device = x.device()}), 0, x) : x * Tensor(by);
  };
  return beta.to<double>() == 0 && !recording(input) ? scaled(product, alpha)
                                                     : scaled(product, alpha) + scaled(input, beta);
}
}  // namespace

Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  view_of(input, "addmm");
  return call("addmm", {input, a, b}, {}, [&](const Tensor& input, const Tensor& a, const Tensor& b) {
    return add_product("addmm", input, mm(a, b), beta, alpha);
  });
}

Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  view_of(input, "baddbmm");
  return call("baddbmm", {input, a, b}, {}, [&](const Tensor& input, const Tensor& a, const Tensor& b) {
    return add_product("baddbmm", input, bmm(a, b), beta, alpha);
  });
}

}  // namespace reel
