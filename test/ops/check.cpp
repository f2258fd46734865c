#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/op_table.h"
#include "test/support/tolerance.h"

// The generic tests: every row of the op table, in every dtype, in every layout.
namespace reel {
namespace {

using Catch::Contains, Catch::Equals;

// ---- inputs ---------------------------------------------------------------------------------------------------------

/// For pointwise rows shapes are given, one for every input; the others bring their own.
Tensors make_inputs(const Row& row, DType dtype, const std::vector<Shape>& shapes = {}) {
  Tensors inputs;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(make_input(row.inputs[i], shapes.empty() ? row.inputs[i].shape : shapes[i], dtype, i));
  return inputs;
}

enum Layout { kContiguous, kTransposed, kSliced, kRepeatedRows, kRepeatedColumns };
const char* const kLayoutNames[] = {"contiguous", "transposed", "sliced", "repeated rows", "repeated columns"};

/// x in another layout: the same values, but where they are repeated. Around a slice there are only wrong values.
Tensor lay_out(const Tensor& x, Layout layout) {
  const int rank = x.shape().size();
  if (layout == kTransposed && rank > 1) {
    Shape back = x.shape();
    for (int d = 0; d < rank; ++d) back[d] = rank - 1 - d;
    return x.permute(back).contiguous().permute(back);
  }
  if (layout == kSliced) {
    Shape wide = x.shape();
    if (rank)
      wide[rank - 1] = 2 * wide[rank - 1] + 1;
    else
      wide.push_back(3);
    const Scalar wrong = x.is_floating_point() ? Scalar(std::nan("")) : Scalar(77);
    const Tensor all = full(wide, wrong, {.dtype = x.dtype(), .device = x.device()});
    Tensor part = rank ? all.slice(-1, 1, {}, 2) : all.select(0, 1);
    return part.copy_(x);
  }
  if ((layout == kRepeatedRows || layout == kRepeatedColumns) && rank && x.numel())
    return x.narrow(layout == kRepeatedRows ? 0 : -1, 0, 1).expand(x.shape());
  return x;
}

bool has_distinct_ids(const Row& row) {
  return std::any_of(row.inputs.begin(), row.inputs.end(),
                     [](const Input& i) { return i.draw == Input::kDistinctIds; });
}

/// inputs in every layout: all of them, and each alone.
struct LaidOut {
  Layout layout;
  Tensors inputs;
};
std::vector<LaidOut> in_all_layouts(const Row& row, const Tensors& inputs) {
  std::vector<LaidOut> all;
  for (Layout layout : {kTransposed, kSliced, kRepeatedRows, kRepeatedColumns}) {
    if (layout >= kRepeatedRows && has_distinct_ids(row)) continue;
    LaidOut together{layout, inputs};
    for (size_t i = 0; i < inputs.size(); ++i) {
      together.inputs[i] = lay_out(inputs[i], layout);
      LaidOut alone{layout, inputs};
      alone.inputs[i] = together.inputs[i];
      if (inputs.size() > 1) all.push_back(alone);
    }
    all.push_back(together);
  }
  return all;
}

std::vector<std::vector<Shape>> pointwise_shapes(const Row& row) {
  const size_t n = row.inputs.size();
  std::vector<std::vector<Shape>> shapes;
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 4}, Shape{}, Shape{0}, Shape{2, 0, 3}, Shape{1}, Shape{37}})
    shapes.emplace_back(n, shape);
  if (n == 2)
    for (const auto& [a, b] : std::initializer_list<std::pair<Shape, Shape>>{{{3, 1}, {1, 4}},
                                                                             {{}, {3}},
                                                                             {{3}, {}},
                                                                             {{2, 3, 4}, {4}},
                                                                             {{2, 1, 4}, {3, 1}},
                                                                             {{0, 1}, {1, 3}},
                                                                             {{9, 1}, {1, 37}}})
      if (row.name[std::string(row.name).size() - 1] != '_' && std::string(row.name) != "operator+=")
        shapes.push_back({a, b});
  if (n == 3) shapes.push_back({{3, 1}, {4}, {2, 1, 1}});
  return shapes;
}
std::vector<std::vector<Shape>> shapes_of(const Row& row) {
  if (row.reference.pointwise()) return pointwise_shapes(row);
  return {{}};
}

std::vector<DType> dtypes_of(const Row& row) {
  std::vector<DType> dtypes{kFloat64, kFloat32, kFloat16, kBFloat16};
  if (row.traits.integers)
    for (const DType dtype : {kInt64, kInt32, kUInt8}) dtypes.push_back(dtype);
  if (row.traits.bools) dtypes.push_back(kBool);
  return dtypes;
}

// ---- what is expected -----------------------------------------------------------------------------------------------

Array array_of(const Tensor& x) { return {x.shape(), x.to_vector<double>()}; }

Array expected_of(const Row& row, const Tensors& inputs) {
  Arrays x;
  for (const Tensor& input : inputs) x.push_back(array_of(input));
  const Reference& f = row.reference;
  if (f.arrays) return f.arrays(x);
  Shape shape;
  for (const Array& a : x) {
    while (shape.size() < a.shape.size()) shape.insert(0, 1);
    for (int d = 1; d <= a.shape.size(); ++d)
      if (a.shape[a.shape.size() - d] != 1) shape[shape.size() - d] = a.shape[a.shape.size() - d];
  }
  return reference::build(shape, [&](const reference::Index& at) {
    const auto value = [&](int i) { return reference::broadcast(x[i], at); };
    return f.one ? f.one(value(0)) : f.two ? f.two(value(0), value(1)) : f.three(value(0), value(1), value(2));
  });
}

DType expected_dtype(const Row& row, DType dtype) {
  switch (is_floating_point(dtype) ? row.traits.floats_give : row.traits.integers_give) {
    case Result::kInput: break;
    case Result::kFloat: return kFloat32;
    case Result::kBool: return kBool;
    case Result::kInt64: return kInt64;
  }
  return dtype;
}

/// Throws what differs first.
void check_close(const Tensor& y, const Array& expected, double tolerance) {
  REEL_CHECK(y.shape() == expected.shape, "shape ", y.shape(), ", not ", expected.shape);
  double scale = 0;
  for (double e : expected.data)
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
  const std::vector<double> values = y.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    double e = expected.data[i];
    if (y.dtype() == kUInt8) e = static_cast<uint8_t>(static_cast<int64_t>(e));
    const bool same =
        values[i] == e || (std::isnan(values[i]) && std::isnan(e)) || std::abs(values[i] - e) <= tolerance * scale;
    REEL_CHECK(same, "element ", i, " of ", y.shape(), " is ", values[i], ", not ", e);
  }
}

/// What f throws, or "".
std::string problem(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string describe(const Tensors& inputs) {
  std::ostringstream text;
  for (const Tensor& x : inputs)
    text << (text.tellp() > 0 ? " and " : "") << x.dtype() << ' ' << x.shape() << " strides " << x.strides();
  return text.str();
}

/// Numbers of a row's inputs, and what is expected of them. References take their time, and most layouts hold the same
/// numbers as the one before.
struct Known {
  std::vector<std::vector<double>> inputs;
  Array expected;
};

/// `known`: of inputs of the same shapes.
void check_forward(const Row& row, DType dtype, const Tensors& inputs, std::optional<Known>& known) {
  std::vector<std::vector<double>> before;
  for (const Tensor& x : inputs) before.push_back(x.to_vector<double>());
  if (!known || before != known->inputs) known = {before, expected_of(row, inputs)};
  const Tensor y = row.call(inputs);
  REEL_CHECK(y.dtype() == expected_dtype(row, dtype), "the result is ", y.dtype());
  for (size_t i = 0; i < inputs.size(); ++i)
    REEL_CHECK(array_of(inputs[i]).data == before[i], "input ", i, " has changed");
  check_close(y, known->expected, tolerance_of(y.dtype()) * row.traits.tolerance);
}

// ---- gradients ------------------------------------------------------------------------------------------------------

/// The gradients for the floating inputs, or for input `only`, undefined where there is none.
Tensors gradients(const Row& row, const Tensors& inputs, const Tensor& cotangent, int only = -1,
                  bool create_graph = false) {
  Tensors arguments = inputs, targets;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_floating_point() && (only < 0 || only == static_cast<int>(i)))
      targets.push_back(arguments[i] = inputs[i].detach().requires_grad_());
  const Tensor y = row.call(arguments);
  if (!y.requires_grad()) return Tensors(targets.size());
  return grad({&y, 1}, targets, {&cotangent, 1}, {.create_graph = create_graph, .allow_unused = true});
}

Tensor cotangent_of(const Row& row, const Tensors& inputs) {
  const Tensor y = row.call(inputs);
  manual_seed(17);
  return randn(y.shape(), {.dtype = kFloat64, .device = y.device()}).to(y.dtype());
}

void check_close(const Tensors& got, const Tensors& expected, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Tensor &g = got[i], &e = expected[i];
    if (g.defined() && e.defined())
      check_close(g, array_of(e), tolerance);
    else if (g.defined() || e.defined())
      check_close(g.defined() ? g : e, array_of(zeros_like(g.defined() ? g : e)), 0);
  }
}

template <class Check>
void for_differentiable_rows(const Check& check) {
  for_each_row([&](const Row& row) {
    if (row.traits.differentiable)
      for (const std::vector<Shape>& shapes : shapes_of(row)) check(row, make_inputs(row, kFloat64, shapes));
  });
}

}  // namespace

// ---- the tests ------------------------------------------------------------------------------------------------------

TEST_CASE("no op reads the memory of another device than its own", "[cuda]") {
  if (!cuda::is_available()) return;
  const Device last{DeviceType::kCUDA, static_cast<int8_t>(cuda::device_count() - 1)};
  for (const Row& row : op_table())
    for (size_t odd = 0; row.inputs.size() > 1 && odd < row.inputs.size(); ++odd)
      for (const Device other : {kCPU, last}) {
        INFO(row.name << ", input " << odd << " on " << (other == kCPU ? "the CPU" : "another GPU"));
        Tensors inputs = make_inputs(row, kFloat32);
        for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = inputs[i].to(i == odd ? other : kCUDA);
        try {  // refused, or copied
          row.call(inputs);
          cuda::synchronize(0), cuda::synchronize(last.index);
        } catch (const Error& e) {
          CHECK_THAT(e.what(), !Catch::Contains("cudaError"));
        }
      }
}

TEST_CASE("every op agrees with its double-precision reference", "[ops][isa]") {
  for_each_row([](const Row& row) {
    for (DType dtype : dtypes_of(row))
      for (const std::vector<Shape>& shapes : shapes_of(row)) {
        const Tensors inputs = make_inputs(row, dtype, shapes);
        INFO(describe(inputs));
        std::optional<Known> known;
        CHECK(problem([&] { check_forward(row, dtype, inputs, known); }) == "");
      }
  });
}

TEST_CASE("every op takes its inputs in any layout", "[ops][isa]") {
  for_each_row([](const Row& row) {
    for (DType dtype : dtypes_of(row))
      for (const std::vector<Shape>& shapes : shapes_of(row)) {
        std::optional<Known> known;
        for (const auto& [layout, inputs] : in_all_layouts(row, make_inputs(row, dtype, shapes))) {
          INFO(kLayoutNames[layout] << ": " << describe(inputs));
          CHECK(problem([&, &inputs = inputs] { check_forward(row, dtype, inputs, known); }) == "");
        }
      }
  });
}

TEST_CASE("every gradient agrees with central differences", "[ops][isa]") {
  for_differentiable_rows([](const Row& row, const Tensors& inputs) {
    INFO(describe(inputs));
    CHECK(problem([&] { testing::gradcheck(row.call, inputs); }) == "");
  });
}

TEST_CASE("every gradient of a gradient agrees with central differences", "[ops]") {
  for_differentiable_rows([](const Row& row, const Tensors& inputs) {
    INFO(describe(inputs));
    // On a GPU, real or simulated, a call takes a hundred times as long.
    CHECK(problem([&] { testing::gradgradcheck(row.call, inputs, {.fast = default_device() != kCPU}); }) == "");
  });
}

TEST_CASE("gradients do not depend on the layout of inputs and incoming gradients", "[ops][isa]") {
  for_differentiable_rows([](const Row& row, const Tensors& contiguous) {
    for (const auto& [layout, inputs] : in_all_layouts(row, contiguous)) {
      INFO(kLayoutNames[layout] << ": " << describe(inputs));
      CHECK(problem([&, layout = layout, &inputs = inputs] {
              Tensors dense;
              for (const Tensor& x : inputs) dense.push_back(x.clone());
              const Tensor strided = lay_out(cotangent_of(row, inputs), layout);
              check_close(gradients(row, inputs, strided), gradients(row, dense, strided.clone()), 1e-12);
            }) == "");
    }
  });
}

TEST_CASE("gradients with create_graph are those without it", "[ops]") {
  for_differentiable_rows([](const Row& row, const Tensors& inputs) {
    INFO(describe(inputs));
    CHECK(problem([&] {
            const Tensor cotangent = cotangent_of(row, inputs);
            check_close(gradients(row, inputs, cotangent, -1, true), gradients(row, inputs, cotangent), 1e-12);
          }) == "");
  });
}

TEST_CASE("the gradient for one input does not depend on whether others require one", "[ops]") {
  for_differentiable_rows([](const Row& row, const Tensors& inputs) {
    INFO(describe(inputs));
    CHECK(problem([&] {
            const Tensor cotangent = cotangent_of(row, inputs);
            const Tensors together = gradients(row, inputs, cotangent);
            for (size_t i = 0, k = 0; i < inputs.size(); ++i)
              if (inputs[i].is_floating_point())
                check_close(gradients(row, inputs, cotangent, i), {together[k++]}, 1e-12);
          }) == "");
  });
}

TEST_CASE("an input that changes between forward and backward is an Error or makes no difference", "[ops]") {
  const auto change = [](Tensor x) {
    NoGrad guard;
    if (x.is_floating_point())
      x.mul_(-0.5);
    else if (x.dtype() == kBool)
      x.copy_(logical_not(x));
    else  // stays in its range
      x.copy_(flip(x.flatten(), {0}).view(x.shape()));
  };
  for_differentiable_rows([&](const Row& row, const Tensors& inputs) {
    const Tensor cotangent = cotangent_of(row, inputs);
    for (size_t changed = 0; changed < inputs.size(); ++changed)
      for (const bool needed : {false, true}) {  // whether the changed one has a gradient, too
        const auto run = [&](bool changes) {
          Tensors arguments, targets;
          for (size_t i = 0; i < inputs.size(); ++i) {
            arguments.push_back(inputs[i].clone());
            if (inputs[i].is_floating_point() && (needed || i != changed))
              targets.push_back(arguments[i].requires_grad_());
          }
          if (targets.empty()) return Tensors();
          const Tensor y = row.call(arguments);
          if (!y.requires_grad()) return Tensors();
          if (changes) change(arguments[changed]);
          return grad({&y, 1}, targets, {&cotangent, 1}, {.allow_unused = true});
        };
        INFO(describe(inputs) << ", input " << changed << " changes");
        const Tensors expected = run(false);
        CHECK_THAT(problem([&] { check_close(run(true), expected, 0); }), Equals("") || Contains("changed in place"));
      }
  });
}

TEST_CASE("gradients in single and half precision agree with those in double precision", "[ops][isa]") {
  for_differentiable_rows([](const Row& row, const Tensors& doubles) {
    for (DType dtype : {kFloat32, kFloat16, kBFloat16}) {
      Tensors narrow = doubles, wide = doubles;
      for (size_t i = 0; i < doubles.size(); ++i)
        if (doubles[i].is_floating_point()) narrow[i] = doubles[i].to(dtype), wide[i] = narrow[i].to(kFloat64);
      INFO(describe(narrow));
      CHECK(problem([&] {
              const Tensor cotangent = cotangent_of(row, narrow);
              const Tensors grads = gradients(row, narrow, cotangent);
              for (const Tensor& g : grads) REEL_CHECK(!g.defined() || g.dtype() == dtype, "a gradient is ", g.dtype());
              check_close(grads, gradients(row, wide, cotangent.to(kFloat64)),
                          4 * tolerance_of(dtype) * row.traits.tolerance);
            }) == "");
    }
  });
}

TEST_CASE("ops of no elements have results and gradients", "[ops][isa]") {
  const Tensor none = zeros({0}, {.dtype = kInt64});
  const struct {
    const char* name;
    std::function<Tensor(const Tensor& x)> call;  // of [0, 3]
    Shape shape;
  } table[] = {
      {"sum", [](const Tensor& x) { return sum(x); }, {}},
      {"sum(0)", [](const Tensor& x) { return sum(x, 0); }, {3}},
      {"mean(1)", [](const Tensor& x) { return mean(x, 1); }, {0}},
      {"prod", [](const Tensor& x) { return prod(x); }, {}},
      {"amax(1)", [](const Tensor& x) { return amax(x, 1); }, {0}},
      {"max(1)", [](const Tensor& x) { return max(x, 1, true).values; }, {0, 1}},
      {"std(1)", [](const Tensor& x) { return std(x, 1); }, {0}},
      {"norm", [](const Tensor& x) { return norm(x); }, {}},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, 1); }, {0}},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }, {0, 3}},
      {"softmax(0)", [](const Tensor& x) { return softmax(x, 0); }, {0, 3}},
      {"log_softmax(1)", [](const Tensor& x) { return log_softmax(x, 1); }, {0, 3}},
      {"cross_entropy", [&](const Tensor& x) { return cross_entropy(x, none, kSum); }, {}},
      {"nll_loss", [&](const Tensor& x) { return nll_loss(x, none, kNoReduction); }, {0}},
      {"mse_loss", [](const Tensor& x) { return mse_loss(x, x * 2, kSum); }, {}},
      {"matmul", [](const Tensor& x) { return matmul(x, x.t()); }, {0, 0}},
      {"matmul(inner)", [](const Tensor& x) { return matmul(x.t(), x); }, {3, 3}},
      {"bmm", [](const Tensor& x) { return bmm(x.unsqueeze(2), x.unsqueeze(1)); }, {0, 3, 3}},
      {"linear",
       [](const Tensor& x) {
         return linear(x, ones({2, 3}), ones({2}));
       },
       {0, 2}},
      {"linear(weight)",
       [](const Tensor& x) {
         return linear(ones({2, 3}), x);
       },
       {2, 0}},
      {"cat",
       [](const Tensor& x) {
         return cat({x, x});
       },
       {0, 3}},
      {"stack",
       [](const Tensor& x) {
         return stack({x, x}, 1);
       },
       {0, 2, 3}},
      {"split", [](const Tensor& x) { return split(x, 2)[0]; }, {0, 3}},
      {"flip",
       [](const Tensor& x) {
         return flip(x, {0, 1});
       },
       {0, 3}},
      {"roll", [](const Tensor& x) { return roll(x, 1, 0); }, {0, 3}},
      {"repeat",
       [](const Tensor& x) {
         return repeat(x, {2, 2});
       },
       {0, 6}},
      {"tril", [](const Tensor& x) { return tril(x); }, {0, 3}},
      {"diag", [](const Tensor& x) { return diag(x); }, {0}},
      {"index_select", [&](const Tensor& x) { return index_select(x, 1, none); }, {0, 0}},
      {"gather",
       [](const Tensor& x) {
         return gather(x, 1, zeros({0, 2}, {.dtype = kInt64}));
       },
       {0, 2}},
      {"scatter_add",
       [](const Tensor& x) {
         return scatter_add(x, 1, zeros({0, 2}, {.dtype = kInt64}), x.narrow(1, 0, 2));
       },
       {0, 3}},
      {"masked_select", [](const Tensor& x) { return masked_select(x, x > 0); }, {0}},
      {"embedding", [&](const Tensor& x) { return embedding(x, none); }, {0, 3}},
      {"index",
       [&](const Tensor& x) {
         return x.index({none, Slice(0, 2)});
       },
       {0, 2}},
      {"sort", [](const Tensor& x) { return sort(x, 0).values; }, {0, 3}},
      {"topk", [](const Tensor& x) { return topk(x, 2).values; }, {0, 2}},
      {"lstm_cell",
       [](const Tensor& x) {
         return lstm_cell(repeat(x, {1, 4}), x).h;
       },
       {0, 3}},
      {"tree_lstm_cell",
       [](const Tensor& x) {
         return tree_lstm_cell(repeat(x, {1, 5}), {x, x}).c;
       },
       {0, 3}},
      {"dropout", [](const Tensor& x) { return dropout(x); }, {0, 3}},
      {"reshape",
       [](const Tensor& x) {
         return x.reshape({3, 0, 7});
       },
       {3, 0, 7}},
      {"select", [](const Tensor& x) { return x.select(1, 2); }, {0}},
      {"expand",
       [](const Tensor& x) {
         return x.unsqueeze(0).expand({2, 0, 3});
       },
       {2, 0, 3}},
  };
  for (const auto& op : table) {
    INFO(op.name);
    CHECK(problem([&] {
            const Tensor x = zeros({0, 3}, {.requires_grad = true}), y = op.call(x);
            REEL_CHECK(y.shape() == op.shape, "shape ", y.shape(), ", not ", op.shape);
            const Tensor first = grad({y}, {x}, {ones_like(y)}, {.create_graph = true, .allow_unused = true})[0];
            REEL_CHECK(!first.defined() || first.shape() == x.shape(), "a gradient of shape ", first.shape());
            op.call(x).backward(ones_like(y));
          }) == "");
  }
  CHECK(sum(zeros({0})).item<double>() == 0);
  CHECK(prod(zeros({0})).item<double>() == 1);
  CHECK(std::isnan(mean(zeros({0})).item<double>()));
  CHECK(std::isnan(var(zeros({1})).item<double>()));
  CHECK(all(zeros({0})).item<bool>());
  CHECK(!any(zeros({0})).item<bool>());
  CHECK(sum(abs(matmul(zeros({2, 0}), zeros({0, 3})))).item<double>() == 0);
  CHECK(logsumexp(zeros({0}), 0).item<double>() == -reference::kInfinity);
  CHECK(one_hot(none, 4).shape() == Shape{0, 4});
  CHECK(nonzero(none).shape() == Shape{0, 1});
  CHECK(nonzero(Tensor(1)).shape() == Shape{1, 0});
}

TEST_CASE("changing part of a result in place keeps the gradient of the rest", "[ops]") {
  int compared = 0;
  for (const Row& row : op_table()) {
    if (!row.traits.differentiable) continue;
    const Tensors inputs =
        make_inputs(row, kFloat64, row.reference.pointwise() ? pointwise_shapes(row)[0] : std::vector<Shape>{});
    const auto gradients = [&](bool in_place) {
      Tensors arguments = inputs, leaves;
      for (Tensor& x : arguments)
        if (x.is_floating_point()) leaves.push_back(x.detach().requires_grad_()), x = leaves.back() * 1;
      Tensor y = row.call(arguments);
      if (!y.requires_grad() || y.dim() == 0 || y.numel() == 0) return Tensors();
      for (int d = 0; d < y.dim(); ++d)
        if (y.strides()[d] == 0 && y.size(d) > 1) return Tensors();  // an expanded view: its elements are shared
      manual_seed(17);
      const Tensor cotangent = randn(y.shape(), {.dtype = kFloat64, .device = y.device()});
      Tensor factors = ones_like(y.detach());
      factors.narrow(0, 0, 1).fill_(3);
      if (in_place)
        y.narrow(0, 0, 1).mul_(3);
      else
        y = y * factors;
      const Tensor loss = sum(y * cotangent);
      return grad({&loss, 1}, leaves, {}, {.allow_unused = true});
    };
    INFO(row.name);
    const Tensors expected = gradients(false);
    try {
      check_close(gradients(true), expected, 1e-12);
      compared += !expected.empty();
    } catch (const Error& e) {  // a rule has saved the result
      CHECK_THAT(e.what(), Catch::Contains("was changed in place"));
    }
  }
  if (op_table().size() > 300) CHECK(compared > 200);  // a program of some tests has few rows
}

TEST_CASE("computed results are row-major", "[ops]") {
  const std::set<std::string> strided{// views
                                      "broadcast_to", "chunk", "diagonal", "exp_", "expand", "index", "meshgrid",
                                      "movedim", "narrow", "permute", "select", "slice", "swapaxes", "swapdims", "t",
                                      "transpose", "unbind",
                                      // transposed at the end, as in PyTorch; einsum: of one operand
                                      "cholesky", "einsum", "rot90", "solve_triangular"};
  for (const Row& row : op_table())
    for (const std::vector<Shape>& shapes : shapes_of(row)) {
      const Tensor y = row.call(make_inputs(row, kFloat32, shapes));
      const std::string name = std::string(row.name).substr(0, std::string(row.name).find('('));
      INFO(row.name << ' ' << y.shape() << " with strides " << y.strides());
      CHECK((y.is_contiguous() || strided.contains(name)));
    }
}

TEST_CASE("gradients have their input's dtype where types are mixed", "[ops]") {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  for (Binary op : {add, sub, mul, div, pow, maximum, fmod})
    for (DType a : {kFloat16, kBFloat16, kFloat32, kFloat64})
      for (DType b : {kFloat16, kFloat32, kFloat64, kInt64, kBool})
        for (const Shape& shape : {Shape{2, 1}, Shape{}}) {
          INFO(a << " and " << b << ' ' << shape);
          CHECK(problem([&] {
                  Tensor x = full({1, 3}, 1.5, {.dtype = a, .requires_grad = true});
                  Tensor y = full(shape, 1, {.dtype = b});
                  if (y.is_floating_point()) y.requires_grad_();
                  const Tensor z = op(x, y);
                  z.backward(ones_like(z));
                  REEL_CHECK(x.grad().dtype() == a && x.grad().shape() == x.shape(), "left ", x.grad().dtype());
                  if (y.requires_grad())
                    REEL_CHECK(y.grad().dtype() == b && y.grad().shape() == shape, "right ", y.grad().dtype());
                }) == "");
        }
  Tensor x = ones({2}, {.requires_grad = true}), y = ones({2}, {.dtype = kFloat64, .requires_grad = true});
  sum(cat({x, y}) * where(tensor({true, false, true, false}), cat({y, x}), 2.)).backward();
  CHECK((x.grad().dtype() == kFloat32 && y.grad().dtype() == kFloat64));
}

TEST_CASE("gradcheck says which element of which input is wrong", "[ops]") {
  using Catch::Contains;
  const auto cube = [](std::function<Tensor(const Tensor& x, const Tensor& g)> rule) {
    return [rule](const Tensors& in) {
      const Tensor& x = in[1];
      return custom_op("cube", no_grad([&] { return x * x * x; }), {x},
                       [x, rule](const Tensor& g) { return Tensors{rule(x, g)}; });
    };
  };
  const Tensors inputs{tensor({0, 1}), tensor(std::vector<double>{0, 2, -1, 0}, {2, 2})};
  const auto right = cube([](const Tensor& x, const Tensor& g) { return 3 * g * x * x; });
  const auto wrong = cube([](const Tensor& x, const Tensor& g) { return 3 * g * x * abs(x); });
  const auto detached = cube([](const Tensor& x, const Tensor& g) { return 3 * g * (x * x).detach(); });
  manual_seed(5);
  const uint64_t offset = generator_state().offset;
  CHECK_NOTHROW(testing::gradcheck(right, inputs));
  CHECK_NOTHROW(testing::gradgradcheck(right, inputs));
  CHECK_THROWS_WITH(testing::gradcheck(wrong, inputs),
                    Contains("gradcheck: 1 of 4 elements wrong, the worst: input 1 [2, 2], element [1, 0]: analytic "));
  CHECK_NOTHROW(testing::gradcheck(detached, inputs));
  CHECK_THROWS_WITH(
      testing::gradgradcheck(detached, inputs),
      Contains(
          "gradgradcheck: 2 of 8 elements wrong, the worst: input 1 [2, 2], element [0, 1]: analytic 0, numeric "));
  CHECK(generator_state().offset == offset);
  CHECK(!inputs[1].requires_grad());

  const auto same = [](const Tensors& in) { return in[0]; };
  CHECK_THROWS_WITH(testing::gradcheck(same, {ones({2})}),
                    "gradcheck: input 0 is float32, too coarse for finite differences; make it float64");
  CHECK_THROWS_WITH(testing::gradcheck(same, {Tensor()}), "gradcheck: input 0 is undefined");
  CHECK_THROWS_WITH(testing::gradcheck(same, {tensor({1, 2})}), "gradcheck: the result is int64, not float64");
  const auto positive = [](const Tensors& in) { return masked_select(in[0], in[0] > 0); };
  CHECK_THROWS_WITH(testing::gradcheck(positive, {zeros({1}, {.dtype = kFloat64})}),
                    "gradcheck: the result's shape changes with the values of input 0, from [0] to [1]");
}

TEST_CASE("dropout: the gradient is zero where the result is", "[ops]") {
  const Tensor x = rand({5, 8}, {.dtype = kFloat64}) + 1;
  const auto drop = [](const Tensors& in) { return dropout(in[0], 0.4); };
  CHECK_NOTHROW(testing::gradcheck(drop, {x}));
  CHECK_NOTHROW(testing::gradgradcheck(drop, {x}));
  const Tensor y = dropout(x, 0.4);
  CHECK((equal(where(y == 0, 0., x / 0.6), y) || all(abs(where(y == 0, 0., x / 0.6) - y) < 1e-12).item<bool>()));
}

TEST_CASE("equals share the gradient of a maximum, the first gets that of a maximum along a dimension", "[ops]") {
  Tensor x = tensor({{1., 3., 3.}, {3., 2., 0.}}).requires_grad_();
  const auto gradient = [&](const Tensor& y) { return grad({y}, {x}, {ones_like(y)})[0].to_vector<double>(); };
  const double third = 1.f / 3;
  CHECK(gradient(max(x)) == std::vector<double>{0, third, third, third, 0, 0});
  CHECK(gradient(amax(x)) == std::vector<double>{0, third, third, third, 0, 0});
  CHECK(gradient(amax(x, 1)) == std::vector<double>{0, 0.5, 0.5, 1, 0, 0});
  CHECK(gradient(max(x, 1).values) == std::vector<double>{0, 1, 0, 1, 0, 0});
  CHECK(gradient(min(-x, 1).values) == std::vector<double>{0, -1, 0, -1, 0, 0});
  CHECK(gradient(maximum(x, 3.)) == std::vector<double>{0, 0.5, 0.5, 0.5, 0, 0});
  CHECK(gradient(minimum(x, tensor({3., 2., 3.}))) == std::vector<double>{1, 0, 0.5, 0.5, 0.5, 1});
  CHECK(gradient(relu(x - 3)) == std::vector<double>(6, 0));
  CHECK(gradient(abs(x - 3)) == std::vector<double>{-1, 0, 0, 0, -1, -1});
}

// ---- which dtype two operands give, after PyTorch's documentation ---------------------------------------------------

TEST_CASE("two dtypes meet where PyTorch's documentation says", "[ops]") {
  const DType b = kBool, u = kUInt8, i = kInt32, l = kInt64, h = kFloat16, g = kBFloat16, f = kFloat32, d = kFloat64;
  const DType all[] = {b, u, i, l, h, g, f, d};
  const DType promoted[8][8] = {{b, u, i, l, h, g, f, d}, {u, u, i, l, h, g, f, d}, {i, i, i, l, h, g, f, d},
                                {l, l, l, l, h, g, f, d}, {h, h, h, h, h, f, f, d}, {g, g, g, g, f, g, f, d},
                                {f, f, f, f, f, f, f, d}, {d, d, d, d, d, d, d, d}};
  const auto category = [](DType t) { return t == kBool ? 0 : is_floating_point(t) ? 2 : 1; };
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column) {
      const DType x = all[row], y = all[column];
      INFO(x << " and " << y);
      const Tensor vector = ones({2}, {.dtype = x});
      CHECK(promote_types(x, y) == promoted[row][column]);
      CHECK(add(vector, ones({2}, {.dtype = y})).dtype() == promoted[row][column]);
      CHECK(mul(vector, ones({1, 1}, {.dtype = y})).dtype() == promoted[row][column]);
      CHECK(add(ones({}, {.dtype = x}), ones({}, {.dtype = y})).dtype() == promoted[row][column]);
      // A 0-d tensor counts only where it is of a higher category.
      const DType with_scalar = category(y) > category(x) ? y : x;
      CHECK(mul(vector, ones({}, {.dtype = y})).dtype() == with_scalar);
      CHECK(maximum(ones({}, {.dtype = y}), vector).dtype() == with_scalar);
      CHECK(where(tensor({true, false}), vector, ones({}, {.dtype = y})).dtype() == with_scalar);
      CHECK(eq(vector, ones({2}, {.dtype = y})).dtype() == kBool);
      CHECK(div(vector, ones({2}, {.dtype = y})).dtype() ==
            (is_floating_point(promoted[row][column]) ? promoted[row][column] : kFloat32));
    }
  for (DType x : all)
    for (const Shape& shape : {Shape{2}, Shape{}}) {
      INFO(x << ' ' << shape);
      const Tensor tensor = ones(shape, {.dtype = x});
      CHECK((tensor * Tensor(true)).dtype() == x);
      CHECK((tensor + 1).dtype() == (x == kBool ? kInt64 : x));
      CHECK((1.5 + tensor).dtype() == (is_floating_point(x) ? x : kFloat32));
    }
}

}  // namespace reel
