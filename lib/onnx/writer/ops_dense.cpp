#include <algorithm>

#include "lib/base/lazy.h"
#include "lib/onnx/writer/emitter.h"

// Products, convolutions, pooling, normalization.
namespace reel::onnx::writer {
namespace {

// ---- products -------------------------------------------------------------------------------------------------------

/// Integers, of which runtimes multiply int32 and int64.
Name product(Emitter& e) {
  const DType dtype = e.dtype(0), wide = dtype == kUInt8 || dtype == kBool ? kInt32 : dtype;
  return e.cast(e.node("MatMul", {e.cast(e.in(0), dtype, wide), e.cast(e.in(1), dtype, wide)}), wide, dtype);
}
void mm(Emitter& e) { e.set(product(e)); }
void matmul(Emitter& e) {
  const double alpha = e.real("alpha");
  const Name y = product(e);
  e.set(alpha == 1 ? y : e.node("Mul", {y, e.scalar(alpha, e.dtype(0))}));
}

void linear(Emitter& e) {
  const bool matrix = e.rank(1) == 2;
  Name y;
  if (e.rank(0) == 2 && matrix && is_floating_point(e.dtype(0))) {
    y = e.node("Gemm", {e.in(0), e.in(1), e.in(2)}, {{"transB", 1}});
  } else {
    y = e.node("MatMul", {e.in(0), matrix ? e.transposed(e.in(1), {1, 0}) : e.in(1)});
    if (e.has(2)) y = e.node("Add", {y, e.in(2)});
  }
  e.set(e.op() == "linear_relu" ? e.node("Relu", {y}) : y);
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

using List = std::vector<int64_t>;

List joined(List a, const List& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Attributes windows(const Emitter& e) {
  return {{"kernel_shape", e.list("kernel")},
          {"strides", e.list("stride")},
          {"dilations", e.list("dilation")},
          {"pads", joined(e.list("before"), e.list("after"))}};
}
void conv(Emitter& e) {
  Attributes all = windows(e);
  all.emplace_back("group", e.integer("groups"));
  e.is("Conv", {e.in(0), e.in(1), e.in(2)}, all);
}
void conv_transpose(Emitter& e) {
  const List extra = e.list("output_padding"), stride = e.list("stride");
  for (size_t d = 0; d < extra.size(); ++d)
    if (extra[d] >= stride[d]) e.fail("an output_padding that is not less than the stride, which runtimes refuse");
  Attributes all = windows(e);
  all.emplace_back("group", e.integer("groups"));
  all.emplace_back("output_padding", extra);
  e.is("ConvTranspose", {e.in(0), e.in(1), e.in(2)}, all);
}

/// [channels taps, 1, kernel…]: one channel of the result for each tap of each channel.
Name taps(Emitter& e, int64_t channels) {
  const List kernel = e.list("kernel");
  const int64_t area = kernel[0] * kernel[1];
  const Tensor each = eye(area, {}, {.dtype = e.dtype(0), .device = kCPU}).reshape({1, area, 1, kernel[0], kernel[1]});
  return e.constant(
      each.expand({channels, area, 1, kernel[0], kernel[1]}).reshape({channels * area, 1, kernel[0], kernel[1]}));
}
void unfold(Emitter& e) {
  const int64_t channels = e.shape(0)[1];
  Attributes all = windows(e);
  all.emplace_back("group", channels);
  e.is("Reshape", {e.node("Conv", {e.in(0), taps(e, channels)}, all), e.ints({0, e.result().size(1), -1})});
}
void fold(Emitter& e) {
  const Shape image = e.result().shape();
  const List kernel = e.list("kernel"), stride = e.list("stride"), before = e.list("before"),
             dilation = e.list("dilation");
  List columns, rest;
  for (size_t d = 0; d < 2; ++d) {
    const Number size = e.result_size(static_cast<int64_t>(d) + 2);
    if (std::count(size.begin(), size.end(), size[0]) != static_cast<std::ptrdiff_t>(size.size()))
      e.fail("an image of a dynamic size");
    const int64_t reach = dilation[d] * (kernel[d] - 1) + 1, count = (size[0] + 2 * before[d] - reach) / stride[d] + 1;
    columns.push_back(count);
    rest.push_back(size[0] - ((count - 1) * stride[d] - 2 * before[d] + reach));
  }
  Attributes all = windows(e);
  all.emplace_back("group", image[1]);
  all.emplace_back("output_padding", rest);
  e.is("ConvTranspose", {e.reshaped(e.in(0), {0, e.shape(0)[1], columns[0], columns[1]}), taps(e, image[1])}, all);
}

// ---- pooling --------------------------------------------------------------------------------------------------------

struct Pool {
  int64_t spatial;
  bool whole;  // one window of all elements, whatever their number
  List kernel, stride, padding, dilation;
  bool ceil = false;

  explicit Pool(Emitter& e) : spatial(e.integer("spatial")), whole(false) {
    if (e.flag("adaptive")) e.fail("windows of different sizes: its output sizes do not divide the input's");
    const int lead = e.rank(0) - static_cast<int>(spatial);
    bool varies = false, all = true;
    for (int d = 0; d < spatial; ++d) {
      const Number in = e.size(0, lead + d), out = e.result_size(lead + d);
      for (size_t r = 0; r < in.size(); ++r) {
        varies = varies || in[r] != in[0];
        const size_t i = static_cast<size_t>(d);
        all = all && out[r] == 1 && e.list("kernel", r)[i] == in[r] && e.list("padding", r)[i] == 0;
      }
    }
    whole = varies && all;
    if (whole) return;
    kernel = e.list("kernel"), stride = e.list("stride"), padding = e.list("padding"), dilation = e.list("dilation");
    ceil = e.flag("ceil_mode");
  }
  Attributes attributes() const {
    return {{"kernel_shape", kernel}, {"strides", stride}, {"pads", joined(padding, padding)}, {"ceil_mode", ceil}};
  }
};

/// ONNX pools [n, channels, …].
Name with_batch(Emitter& e, const Pool& pool) {
  return e.rank(0) == pool.spatial + 2 ? e.in(0) : e.unsqueezed(e.in(0), {0});
}
Name without_batch(Emitter& e, const Pool& pool, const Name& y) {
  return e.rank(0) == pool.spatial + 2 ? y : e.squeezed(y, {0});
}
void max_pool(Emitter& e) {
  const Pool pool(e);
  const Name x = with_batch(e, pool);
  const bool indices = e.has_result(1);
  if (pool.whole) {
    if (indices) e.fail("indices in an input of a dynamic size");
    return e.set(without_batch(e, pool, e.node("GlobalMaxPool", {x})));
  }
  Attributes all = pool.attributes();
  all.emplace_back("dilations", pool.dilation);
  const Names found = e.nodes("MaxPool", {x}, indices ? 2 : 1, all);
  e.set(without_batch(e, pool, found[0]));
  if (!indices) return;
  // In the plane, not in all of x.
  std::vector<Number> sizes;
  Number plane(e.size(0, 0).size(), 1);
  for (int64_t d = -pool.spatial; d < 0; ++d)
    for (size_t r = 0; r < plane.size(); ++r) plane[r] *= e.size(0, d)[r];
  e.set(without_batch(e, pool, e.node("Mod", {found[1], e.sizes({plane}, "plane")})), 1);
}
void avg_pool(Emitter& e) {
  const Pool pool(e);
  const Name x = with_batch(e, pool);
  if (pool.whole) return e.set(without_batch(e, pool, e.node("GlobalAveragePool", {x})));
  const int64_t divisor = e.integer("divisor");
  Attributes all = pool.attributes();
  if (divisor && pool.ceil) e.fail("a divisor of its own with ceil_mode");
  all.emplace_back("count_include_pad", divisor || e.flag("count_pad"));
  Name y = e.node("AveragePool", {x}, all);
  if (divisor) {
    double area = 1;
    for (const int64_t k : pool.kernel) area *= static_cast<double>(k);
    y = e.node("Mul", {y, e.scalar(area / static_cast<double>(divisor), e.dtype(0))});
  }
  e.set(without_batch(e, pool, y));
}

// ---- normalization --------------------------------------------------------------------------------------------------

/// A parameter, or a constant for each channel.
Name parameter(Emitter& e, size_t input, const Shape& shape, double otherwise) {
  return e.has(input) ? e.in(input) : e.constant(full(shape, otherwise, {.dtype = e.dtype(0), .device = kCPU}));
}
void batch_norm(Emitter& e) {
  const Shape channels{e.shape(0)[1]};
  const auto moment = [&](size_t i) { return e.cast(e.in(i), e.dtype(i), e.dtype(0)); };
  e.is("BatchNormalization",
       {e.in(0), parameter(e, 3, channels, 1), parameter(e, 4, channels, 0), moment(1), moment(2)},
       {{"epsilon", e.real("eps")}});
}
void instance_norm(Emitter& e) {
  const Shape channels{e.shape(0)[1]};
  e.is("InstanceNormalization", {e.in(0), parameter(e, 1, channels, 1), parameter(e, 2, channels, 0)},
       {{"epsilon", e.real("eps")}});
}
/// Each group as one channel, and back.
void group_norm(Emitter& e) {
  const Shape x = e.shape(0);
  const int64_t groups = e.integer("groups");
  const Name y =
      e.node("InstanceNormalization",
             {e.reshaped(e.in(0), {0, groups, -1}), parameter(e, 9, {groups}, 1), parameter(e, 9, {groups}, 0)},
             {{"epsilon", e.real("eps")}});
  Name result = e.node("Reshape", {y, e.sizes(e.result_sizes(), "shape")});
  List column(static_cast<size_t>(x.size()) - 1, 1);
  column[0] = x[1];
  if (e.has(1)) result = e.node("Mul", {result, e.reshaped(e.in(1), column)});
  if (e.has(2)) result = e.node("Add", {result, e.reshaped(e.in(2), column)});
  e.set(result);
}
Shape normalized(const Emitter& e) {
  Shape shape;
  for (const int64_t size : e.list("normalized_shape")) shape.push_back(size);
  return shape;
}
void layer_norm(Emitter& e) {
  e.is("LayerNormalization", {e.in(0), parameter(e, 1, normalized(e), 1), e.in(2)},
       {{"axis", -int64_t{normalized(e).size()}}, {"epsilon", e.real("eps")}});
}
void rms_norm(Emitter& e) {
  const Name x = e.in(0);
  List dims;
  for (int64_t d = -int64_t{normalized(e).size()}; d < 0; ++d) dims.push_back(d);
  const Name square = e.node("ReduceMean", {e.node("Mul", {x, x})}, {{"axes", dims}, {"keepdims", 1}});
  const Name root = e.node("Sqrt", {e.node("Add", {square, e.scalar(e.real("eps"), e.dtype(0))})});
  const Name y = e.node("Div", {x, root});
  e.set(e.has(1) ? e.node("Mul", {y, e.in(1)}) : y);
}

/// Along one dimension: a product with the matrix of the taps' weights.
void interpolate(Emitter& e) {
  if (!e.fixed(1) || !e.fixed(2)) e.fail("a dimension of a dynamic size");
  const Tensor ids = e.tensor(1), weights = e.tensor(2);
  const int64_t dim = e.integer("dim"), rank = e.rank(0);
  const Tensor matrix =
      scatter_add(zeros({ids.size(0), e.shape(0)[static_cast<int>(dim)]}, {.dtype = weights.dtype(), .device = kCPU}),
                  1, ids, weights);
  List order;
  for (int64_t d = 0; d < rank; ++d) order.push_back(d);
  std::swap(order[static_cast<size_t>(dim)], order.back());
  const Name x = e.transposed(e.in(0), order);
  e.set(e.transposed(e.node("MatMul", {x, e.constant(matrix.t().contiguous().to(e.dtype(0)))}), order));
}

}  // namespace

const EmitTable& dense_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return EmitTable{
        {"mm", mm},
        {"matmul", matmul},
        {"bmm", matmul},
        {"linear", linear},
        {"linear_relu", linear},
        {"conv1d", conv},
        {"conv2d", conv},
        {"conv3d", conv},
        {"conv_transpose1d", conv_transpose},
        {"conv_transpose2d", conv_transpose},
        {"conv_transpose3d", conv_transpose},
        {"unfold", unfold},
        {"fold", fold},
        {"max_pool", max_pool},
        {"avg_pool", avg_pool},
        {"batch_norm", batch_norm},
        {"instance_norm", instance_norm},
        {"group_norm", group_norm},
        {"layer_norm", layer_norm},
        {"rms_norm", rms_norm},
        {"interpolate", interpolate},
    };
  });
}

}  // namespace reel::onnx::writer
