#include "lib/onnx/run_ops.h"

#include <algorithm>
#include <set>

#include "lib/base/lazy.h"
#include "lib/onnx/one_to_one.h"

// The ops of ai.onnx, opsets 9 to 20, in those of reel: https://onnx.ai/onnx/operators
namespace reel::onnx {
namespace {

// ---- pointwise ------------------------------------------------------------------------------------------------------

Run make_unary(const Context& n) {
  const auto f = entry(kUnaryOps, n).f;
  return gives([f](Call& c) { return f(c[0]); });
}
Run make_binary(const Context& n) {
  const auto f = entry(kBinaryOps, n).f;
  return gives([f](Call& c) { return f(c[0], c[1]); });
}
Run make_fold(const Context& n) {
  const auto f = entry(kBinaryOps, n).f;
  return gives([f, is_mean = n.node.op == "Mean"](Call& c) {
    Tensor y = c[0];
    for (size_t i = 1; i < c.node.inputs.size(); ++i) y = f(y, c[i]);
    return is_mean ? y / static_cast<int64_t>(c.node.inputs.size()) : y;
  });
}

// Functions of x and of one number.
struct Scaled {
  const char *type, *attribute;
  double otherwise;
  Tensor (*f)(const Tensor&, double);
};
constexpr Scaled kScaled[] = {
    {"Celu", "alpha", 1, celu},
    {"Elu", "alpha", 1, elu},
    {"LeakyRelu", "alpha", 0.01, leaky_relu},
    {"ThresholdedRelu", "alpha", 1, [](const Tensor& x, double a) { return threshold(x, a, 0); }}};
Run make_scaled(const Context& n) {
  const Scaled& op = entry(kScaled, n);
  return gives([f = op.f, number = n.number(op.attribute, op.otherwise)](Call& c) { return f(c[0], number); });
}

// A number where reading it costs nothing and it is no variable.
Bound bound(const Call& c, size_t i) {
  if (!c.has(i)) return {};
  const Tensor& b = c.as_is(i);
  REEL_CHECK(b.numel() == 1, "a bound has the shape ", b.shape());
  return b.device() == kCPU && !b.requires_grad() ? Bound(b.item()) : Bound(c[i].reshape({}));
}

Run make_clip(const Context& n) {
  if (n.opset >= 11)
    return gives([](Call& c) {
      const Bound low = bound(c, 1), high = bound(c, 2);
      return low.defined() || high.defined() ? clamp(c[0], low, high) : c[0];
    });
  const double low = n.number("min", -3.4028234663852886e38), high = n.number("max", 3.4028234663852886e38);
  return gives([=](Call& c) { return clamp(c[0], low, high); });
}

// ---- reductions -----------------------------------------------------------------------------------------------------

Tensor prod_over(const Tensor& x, const Dims& dims, bool keepdim) {
  std::vector<int64_t> axes(dims.dims.begin(), dims.dims.end());
  if (axes.empty())
    for (int64_t d = 0; d < x.dim(); ++d) axes.push_back(d);
  axes = wrap_axes(std::move(axes), x.dim());
  std::sort(axes.rbegin(), axes.rend());
  Tensor y = x;
  for (const int64_t axis : axes) y = prod(y, axis, keepdim);
  return y;
}

struct Reduction {
  const char* type;
  Tensor (*f)(const Tensor&, const Dims&, bool);
  bool keeps_elements;  // what it gives of one element is that
};
constexpr Reduction kReductions[] = {
    {"ReduceSum", sum, true},
    {"ReduceMean",
     [](const Tensor& x, const Dims& d, bool k) { return mean(x.is_floating_point() ? x : x.to(kFloat64), d, k); },
     true},
    {"ReduceMax",
     [](const Tensor& x, const Dims& d, bool k) { return x.dtype() == kBool ? any(x, d, k) : amax(x, d, k); }, true},
    {"ReduceMin",
     [](const Tensor& x, const Dims& d, bool k) { return x.dtype() == kBool ? all(x, d, k) : amin(x, d, k); }, true},
    {"ReduceProd", prod_over, true},
    {"ReduceL1", [](const Tensor& x, const Dims& d, bool k) { return sum(abs(x), d, k); }, false},
    {"ReduceL2",
     [](const Tensor& x, const Dims& d, bool k) { return norm(x.is_floating_point() ? x : x.to(kFloat64), 2, d, k); },
     false},
    {"ReduceLogSum", [](const Tensor& x, const Dims& d, bool k) { return log(sum(x, d, k)); }, false},
    {"ReduceLogSumExp", logsumexp, false},
    {"ReduceSumSquare", [](const Tensor& x, const Dims& d, bool k) { return sum(square(x), d, k); }, false}};

// Axes are an attribute, or from opset 18 on (ReduceSum: 13) an input.
Run make_reduction(const Context& n) {
  const Reduction& r = entry(kReductions, n);
  const bool keep = n.flag("keepdims", true), noop = n.flag("noop_with_empty_axes", false);
  const std::vector<int64_t> axes = n.integers("axes");
  n.require(!noop || r.keeps_elements, "noop_with_empty_axes");
  return gives([=, f = r.f](Call& c) {
    const Tensor x = c[0];
    const std::vector<int64_t> over = c.has(1) ? c.integers(1) : axes;
    if (over.empty() && noop) return x;
    return f(x, dims_of(over), keep).to(x.dtype());
  });
}

Run make_arg(const Context& n) {
  const bool is_max = n.node.op == "ArgMax", keep = n.flag("keepdims", true), last = n.flag("select_last_index", false);
  const int64_t axis = n.integer("axis", 0);
  return gives([=](Call& c) {
    const Tensor x = last ? flip(c[0], axis) : c[0];
    const Tensor at = is_max ? argmax(x, axis, keep) : argmin(x, axis, keep);
    return last ? x.size(axis) - 1 - at : at;
  });
}

// Before opset 13 the dimensions from `axis` on are one.
Run make_softmax(const Context& n) {
  using F = Tensor (*)(const Tensor&, int64_t);
  const F hardmax = [](const Tensor& x, int64_t d) {
    const Tensor at = argmax(x, d, true);
    return scatter(zeros_like(x), d, at, ones(at.shape(), x.options()));
  };
  const F f = n.node.op == "Softmax" ? F(softmax) : n.node.op == "LogSoftmax" ? F(log_softmax) : hardmax;
  const int64_t axis = n.integer("axis", n.opset < 13 ? 1 : -1);
  if (n.opset >= 13) return gives([=](Call& c) { return f(c[0], axis); });
  return gives([=](Call& c) {
    const Tensor x = c[0];
    const int64_t at = axis == x.dim() ? axis : wrap_axis(axis, x.dim());
    if (at == x.dim() - 1) return f(x, at);
    int64_t rows = 1;
    for (int64_t d = 0; d < at; ++d) rows *= x.size(d);
    return f(x.reshape({rows, rows ? x.numel() / rows : 0}), 1).reshape(x.shape());
  });
}

Run make_gemm(const Context& n) {
  const double alpha = n.number("alpha", 1), beta = n.number("beta", 1);
  const bool a_t = n.flag("transA", false), b_t = n.flag("transB", false);
  return gives([=](Call& c) {
    const Tensor a = a_t ? c[0].t() : c[0], b = c[1], bias = c.get(2);
    if (alpha == 1 && beta == 1 && a.is_floating_point() && (!bias.defined() || bias.dim() == 1) &&
        (!bias.defined() || bias.size(0) == b.size(b_t ? 0 : 1)))
      return c.node.has_relu ? linear_relu(a, b_t ? b : b.t(), bias) : linear(a, b_t ? b : b.t(), bias);
    Tensor y = matmul(a, b_t ? b.t() : b);
    if (alpha != 1) y = (y * alpha).to(a.dtype());
    if (bias.defined() && beta != 0) y = y + (beta == 1 ? bias : bias * beta).to(a.dtype());
    return c.node.has_relu ? relu(y) : y;
  });
}

Run make_cum_sum(const Context& n) {
  const bool exclusive = n.flag("exclusive", false), reverse = n.flag("reverse", false);
  return gives([=](Call& c) {
    const int64_t axis = wrap_axis(c.as_is(1).item<int64_t>(), c.as_is(0).dim());
    const Tensor x = reverse ? flip(c[0], axis) : c[0];
    Tensor y = cumsum(x, axis).to(x.dtype());
    if (exclusive && x.size(axis) > 0)
      y = cat({zeros_like(y.narrow(axis, 0, 1)), y.narrow(axis, 0, x.size(axis) - 1)}, axis);
    return reverse ? flip(y, axis) : y;
  });
}

Run make_loss(const Context& n) {
  NLLLossOptions options;
  const bool has_softmax = n.node.op != "NegativeLogLikelihoodLoss";
  const std::string reduction = n.choice("reduction", "mean", {"mean", "sum", "none"});
  options.reduction = reduction == "mean" ? kMean : reduction == "sum" ? kSum : kNoReduction;
  options.ignore_index = n.integer("ignore_index", INT64_MIN);
  return [=](Call& c) {
    NLLLossOptions with = options;
    with.weight = c.get(2);
    const Tensor scores = has_softmax ? log_softmax(c[0], 1) : c[0];
    c.set(0, nll_loss(scores, c[1], with));
    c.set(1, scores);
  };
}

Run make_dropout(const Context& n) {
  const double ratio = n.number("ratio", 0.5);
  n.ignore("seed");
  return [=](Call& c) {
    const Tensor x = c[0];
    const double p = c.has(1) ? c.as_is(1).item<double>() : ratio;
    if (!c.wants(1)) return c.set(0, dropout(x, p, c.training));
    const Tensor kept = dropout(ones(x.shape(), x.options()), p, c.training);
    c.set(0, c.training ? x * kept : x);
    c.set(1, kept != 0);
  };
}

Run make_bit_shift(const Context& n) {
  const bool left = n.choice("direction", "", {"LEFT", "RIGHT"}) == "LEFT";
  return gives([=](Call& c) { return (left ? bitwise_left_shift : bitwise_right_shift)(c[0], c[1]); });
}
Run make_cast(const Context& n) {
  const DType to = dtype_of(n.integer("to", 0), n.node.label() + ": what it casts to");
  n.ignore("saturate");
  return gives([=](Call& c) { return c.as_is(0).to(to); });
}
Run make_einsum(const Context& n) {
  return gives([equation = n.text("equation")](Call& c) { return einsum(equation, c.inputs()); });
}
Run make_gelu(const Context& n) {
  return gives([exact = n.choice("approximate", "none", {"none", "tanh"}) == "none"](Call& c) {
    return exact ? gelu(c[0]) : gelu_tanh(c[0]);
  });
}
Run make_hard_sigmoid(const Context& n) {
  const double alpha = n.number("alpha", 0.2), beta = n.number("beta", 0.5);
  return gives([=](Call& c) { return clamp(c[0] * alpha + beta, 0., 1.); });
}
Run make_is_inf(const Context& n) {
  const bool low = n.flag("detect_negative", true), high = n.flag("detect_positive", true);
  return gives([=](Call& c) {
    const Tensor x = c[0], both = isinf(x);
    return low && high ? both : low ? both & (x < 0) : high ? both & (x > 0) : both & ~both;
  });
}
Run make_selu(const Context& n) {
  const double alpha = n.number("alpha", 1.6732632423543772), gamma = n.number("gamma", 1.0507009873554805);
  return gives([=](Call& c) { return elu(c[0], alpha) * gamma; });
}
Run make_shrink(const Context& n) {
  const double bias = n.number("bias", 0), lambda = n.number("lambd", 0.5);
  return gives([=](Call& c) {
    const Tensor x = c[0];
    return where(x < -lambda, x + bias, where(x > lambda, x - bias, zeros_like(x))).to(x.dtype());
  });
}
Run make_top_k(const Context& n) {
  const int64_t axis = n.integer("axis", -1), k = n.integer("k", 0);
  const bool largest = n.flag("largest", true);
  n.ignore("sorted");
  return [=](Call& c) {
    const auto [values, at] = topk(c[0], c.has(1) ? c.as_is(1).item<int64_t>() : k, axis, largest);
    c.set(0, values), c.set(1, at);
  };
}

// ---- the table ------------------------------------------------------------------------------------------------------

OpTable make_table() {
  OpTable table{{"BitShift", {2, 2, make_bit_shift}},
                {"Cast", {1, 1, make_cast}},
                {"Clip", {1, 3, make_clip}},
                {"CumSum", {2, 2, make_cum_sum}},
                {"Dropout", {1, 3, make_dropout}},
                {"Einsum", {1, -1, make_einsum}},
                {"Gelu", {1, 1, make_gelu}},
                {"Gemm", {2, 3, make_gemm}},
                {"HardSigmoid", {1, 1, make_hard_sigmoid}},
                {"IsInf", {1, 1, make_is_inf}},
                {"Selu", {1, 1, make_selu}},
                {"Shrink", {1, 1, make_shrink}},
                {"TopK", {1, 2, make_top_k}}};
  for (const UnaryOp& op : kUnaryOps) table[op.type] = {1, 1, make_unary};
  for (const Scaled& op : kScaled) table[op.type] = {1, 1, make_scaled};
  for (const BinaryOp& op : kBinaryOps) table[op.type] = op.folds ? Op{1, -1, make_fold} : Op{2, 2, make_binary};
  for (const Reduction& op : kReductions) table[op.type] = {1, 2, make_reduction};
  for (const char* op : {"ArgMax", "ArgMin"}) table[op] = {1, 1, make_arg};
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) table[op] = {1, 1, make_softmax};
  for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}) table[op] = {2, 3, make_loss};
  add_layers(table);
  add_positions(table);
  return table;
}

Tensor constant_of(const Context& n) {
  const auto numbers = n.numbers("value_floats");
  const auto integers = n.integers("value_ints");
  if (n.has("value")) return n.tensor("value");
  if (n.has("value_float")) return reel::tensor(n.number("value_float", 0), {.dtype = kFloat32, .device = kCPU});
  if (n.has("value_int")) return reel::tensor(n.integer("value_int", 0), {.dtype = kInt64, .device = kCPU});
  if (n.has("value_floats")) return reel::tensor(numbers, {.dtype = kFloat32, .device = kCPU});
  n.require(n.has("value_ints"), "a constant of strings or of no value");
  return reel::tensor(integers, {.device = kCPU});
}

}  // namespace

const Attribute* Context::find(const char* name, int type, int other_type) const {
  for (const Attribute& a : node.attributes)
    if (a.name == name) {
      a.used = true;
      REEL_CHECK(type == 0 || a.type == type || a.type == other_type, node.label(), ": its attribute '", name,
                 "' is of type ", a.type, ", not ", type);
      return &a;
    }
  return nullptr;
}
int64_t Context::integer(const char* name, int64_t otherwise) const {
  const Attribute* a = find(name, attribute::kIntType);
  return a ? a->integer : otherwise;
}
double Context::number(const char* name, double otherwise) const {
  const Attribute* a = find(name, attribute::kFloatType);
  return a ? a->number : otherwise;
}
std::string Context::choice(const char* name, const char* otherwise,
                            std::initializer_list<std::string_view> known) const {
  const Attribute* a = find(name, attribute::kStringType);
  const std::string value = a ? a->text : otherwise;
  if (std::find(known.begin(), known.end(), value) != known.end()) return value;
  std::string list;
  for (const std::string_view each : known) (list += list.empty() ? "'" : ", '").append(each) += "'";
  detail::fail(node.label(), ": its attribute '", name, "' is '", value.substr(0, 200),
               "', which is not supported: it is none of ", list);
}
std::string Context::text(const char* name) const {
  const Attribute* a = find(name, attribute::kStringType);
  return a ? a->text : "";
}
std::string Context::joined_texts(const char* name) const {
  const Attribute* a = find(name, attribute::kStringsType, attribute::kStringType);
  return a ? a->text : "";
}
bool Context::flag(const char* name, bool otherwise) const {
  const int64_t value = integer(name, otherwise);
  REEL_CHECK(value == 0 || value == 1, node.label(), ": its attribute '", name, "' is ", value, ", not 0 or 1");
  return value;
}
std::vector<int64_t> Context::integers(const char* name, std::vector<int64_t> otherwise) const {
  const Attribute* a = find(name, attribute::kIntsType);
  return a ? a->integers : otherwise;
}
std::vector<double> Context::numbers(const char* name) const {
  const Attribute* a = find(name, attribute::kFloatsType);
  return a ? a->numbers : std::vector<double>();
}
Tensor Context::tensor(const char* name) const {
  const Attribute* a = find(name, attribute::kTensorType);
  if (a && !a->refusal.empty()) detail::fail(a->refusal);
  REEL_CHECK(a && a->tensor.defined(), node.label(), ": its attribute '", name, "' has no tensor");
  return a->tensor;
}

std::vector<int64_t> wrap_axes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t& axis : axes) axis = wrap_axis(axis, rank);
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  REEL_CHECK(twice == sorted.end(), "axis ", *twice, " is named twice");
  return axes;
}

const Tensor& Call::as_is(size_t i) const {
  REEL_CHECK(has(i), "input ", i, " is missing");
  return values[node.inputs[i]];
}
Tensor Call::operator[](size_t i) const { return as_is(i).to(device); }
std::vector<Tensor> Call::inputs() const {
  std::vector<Tensor> all;
  for (size_t i = 0; i < node.inputs.size(); ++i) all.push_back((*this)[i]);
  return all;
}

const OpTable& op_table() {
  static constinit Lazy<OpTable> table;
  return table.get(make_table);
}

void link(Graph& graph) {
  const OpTable& table = op_table();
  const auto is_own = [](const Node& node) { return node.domain.empty() || node.domain == "ai.onnx"; };
  std::set<std::string> unknown;
  for (const Node& node : graph.nodes)
    if (!is_own(node))
      unknown.insert(node.domain + ":" + node.op);
    else if (node.op != "Constant" && !table.count(node.op))
      unknown.insert(node.op);
  std::string list;
  for (const std::string& op : unknown) list += (list.empty() ? "" : ", ") + op;
  REEL_CHECK(unknown.empty(), "onnx::load: ops that are not supported: ", list);

  std::vector<bool> is_weight(graph.values.size());
  for (const Initializer& initializer : graph.initializers) is_weight[initializer.value] = true;
  for (Node& node : graph.nodes) {
    const Context context{node, graph.opset, is_weight};
    if (node.op == "Constant") {
      if (const int value = node.outputs[0]; value >= 0)
        graph.initializers.push_back(
            {.name = graph.values[value], .value = value, .tensor = constant_of(context), .is_node = true});
    } else {
      const Op& op = table.at(node.op);
      const auto given = static_cast<int>(node.inputs.size());
      REEL_CHECK(given >= op.min_inputs && (op.max_inputs < 0 || given <= op.max_inputs), "onnx::load: ", node.label(),
                 " has ", given, " inputs");
      for (int i = 0; i < (op.max_inputs < 0 ? given : op.min_inputs); ++i)
        REEL_CHECK(node.inputs[i] >= 0, "onnx::load: ", node.label(), " lacks its input ", i);
      node.run = op.make(context);
    }
    for (const Attribute& a : node.attributes)
      REEL_CHECK(a.used, "onnx::load: ", node.label(), ": the attribute '", a.name, "' is not supported");
    node.attributes.clear();
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == "Constant"; });
}

bool is_fixed(const Node& node, size_t i) {
  return node.op == "BatchNormalization" ? i >= 3 : (node.op == "Resize" || node.op == "Upsample") && i >= 1;
}

}  // namespace reel::onnx
