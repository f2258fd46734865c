#include <functional>
#include <map>
#include <set>

#include "lib/onnx/run_ops.h"
#include "reel/autograd.h"
#include "reel/onnx.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/onnx/file.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using onnx_file::Attributes, onnx_file::File, onnx_file::Names;

namespace {

using In = const std::vector<Tensor>&;
struct Row {
  std::string op;
  int64_t opset;
  std::vector<Tensor> inputs;  // an undefined one is left out
  Attributes attributes;
  std::function<std::vector<Tensor>(In)> expected;
};

Tensor x(const Shape& shape) { return randn(shape); }
Tensor positive(const Shape& shape) { return rand(shape) * 0.8 + 0.1; }
Tensor ints(const std::vector<int64_t>& values) { return reel::tensor(values); }
Tensor one(int64_t value) { return reel::tensor(value, {.dtype = kInt64}); }
Attributes with(const char* name, int64_t value) { return {{name, value}}; }

template <class F>
std::function<std::vector<Tensor>(In)> of(F f) {
  return [f](In in) { return std::vector<Tensor>{f(in)}; };
}

// Gate blocks in ONNX's order, from reel's.
Tensor reordered(const Tensor& w, const std::vector<int>& order) {
  const auto parts = chunk(w, static_cast<int64_t>(order.size()), 0);
  std::vector<Tensor> moved;
  for (const int part : order) moved.push_back(parts[part]);
  return cat(moved, 0).unsqueeze(0);
}

void add_recurrent(std::vector<Row>& rows) {
  const Tensor input = x({5, 2, 3}), h = x({1, 2, 4}), c = x({1, 2, 4});
  const auto parameters = [](int64_t gates) {
    return std::vector<Tensor>{x({gates * 4, 3}), x({gates * 4, 4}), x({gates * 4}), x({gates * 4})};
  };
  const auto row = [&](const char* op, int64_t gates, std::vector<int> order, std::vector<Tensor> states, auto run,
                       Attributes attributes) {
    const std::vector<Tensor> p = parameters(gates);
    std::vector<Tensor> inputs{input,
                               reordered(p[0], order),
                               reordered(p[1], order),
                               cat({reordered(p[2], order), reordered(p[3], order)}, 1),
                               {}};
    inputs.insert(inputs.end(), states.begin(), states.end());
    // The other order back, so that gradients of the inputs are compared, too.
    std::vector<int> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int>(i);
    attributes.push_back({"hidden_size", int64_t{4}});
    rows.push_back({op, 17, inputs, attributes, [=](In in) {
                      const auto halves = chunk(in[3][0], 2, 0);
                      return run(in, {reordered(in[1][0], back)[0], reordered(in[2][0], back)[0],
                                      reordered(halves[0], back)[0], reordered(halves[1], back)[0]});
                    }});
  };
  row("LSTM", 4, {0, 3, 1, 2}, {h, c},
      [](In in, const std::vector<Tensor>& p) {
        const auto y = lstm(in[0], {in[5], in[6]}, p);
        return std::vector<Tensor>{y.output.unsqueeze(1), y.state.h, y.state.c};
      },
      {});
  row(
      "GRU", 3, {1, 0, 2}, {h},
      [](In in, const std::vector<Tensor>& p) {
        const auto y = gru(in[0], in[5], p);
        return std::vector<Tensor>{y.output.unsqueeze(1), y.h};
      },
      with("linear_before_reset", 1));
  row("RNN", 1, {0}, {h},
      [](In in, const std::vector<Tensor>& p) {
        const auto y = rnn_tanh(in[0], in[5], p);
        return std::vector<Tensor>{y.output.unsqueeze(1), y.h};
      },
      {});
  row("RNN", 1, {0}, {h},
      [](In in, const std::vector<Tensor>& p) {
        const auto y = rnn_relu(flip(in[0], 0), in[5], p);
        return std::vector<Tensor>{flip(y.output, 0).unsqueeze(1), y.h};
      },
      {{"activations", std::string("Relu")}, {"direction", std::string("reverse")}});
}

std::vector<Row> make_rows() {
  std::vector<Row> rows;
  const auto unary = [&](const char* op, Tensor (*f)(const Tensor&), const Tensor& in) {
    rows.push_back({op, 18, {in}, {}, of([f](In i) { return f(i[0]); })});
  };
  const Tensor small = x({3, 4}), above = positive({3, 4});
  unary("Abs", abs, small), unary("Acos", acos, above), unary("Acosh", acosh, above + 1), unary("Asin", asin, above);
  unary("Asinh", asinh, small), unary("Atan", atan, small), unary("Atanh", atanh, above), unary("Ceil", ceil, small);
  unary("Cos", cos, small), unary("Cosh", cosh, small), unary("Erf", erf, small), unary("Exp", exp, small);
  unary("Floor", floor, small), unary("HardSwish", hardswish, small), unary("IsNaN", isnan, small / 0);
  unary("Log", log, above), unary("Mish", mish, small), unary("Neg", neg, small), unary("Not", logical_not, small > 0);
  unary("Reciprocal", reciprocal, above), unary("Relu", relu, small), unary("Round", round, small * 3);
  unary("Sigmoid", sigmoid, small), unary("Sign", sign, small), unary("Sin", sin, small), unary("Sinh", sinh, small);
  unary("Softsign", softsign, small), unary("Sqrt", sqrt, above), unary("Tan", tan, small), unary("Tanh", tanh, small);
  unary("BitwiseNot", bitwise_not, ints({5, -3})), unary("Det", linalg::det, x({2, 3, 3}));
  unary(
      "Identity", [](const Tensor& t) { return t; }, small);
  unary(
      "Softplus", [](const Tensor& t) { return log1p(exp(t)); }, small);

  const auto binary = [&](const char* op, Tensor (*f)(const Tensor&, const Tensor&), const Tensor& a, const Tensor& b) {
    rows.push_back({op, 18, {a, b}, {}, of([f](In i) { return f(i[0], i[1]); })});
  };
  const Tensor row = x({4}), bools = small > 0, other = x({3, 4}) > 0;
  binary("Add", add, small, row), binary("Sub", sub, small, row), binary("Mul", mul, small, row);
  binary("Div", div, small, row), binary("Pow", pow, above, row), binary("MatMul", matmul, x({2, 3, 4}), x({4, 5}));
  binary(
      "Div",
      [](const Tensor& a, const Tensor&) {
        return a * 0 + ints({-3, 3});
      },
      ints({-7, 7}), ints({2, 2}));
  binary(
      "Pow",
      [](const Tensor&, const Tensor&) {
        return ints({4, 9});
      },
      ints({2, 3}), tensor(2.));
  binary(
      "PRelu", [](const Tensor& t, const Tensor& s) { return maximum(t, 0) + s * minimum(t, 0); }, small, above[0]);
  binary("Equal", eq, ints({1, 2}), ints({1, 3})), binary("Greater", gt, small, row), binary("Less", lt, small, row);
  binary("GreaterOrEqual", ge, small, row), binary("LessOrEqual", le, small, row);
  binary("And", logical_and, bools, other), binary("Or", logical_or, bools, other),
      binary("Xor", logical_xor, bools, other);
  binary("BitwiseAnd", bitwise_and, ints({6}), ints({3})), binary("BitwiseOr", bitwise_or, ints({6}), ints({3}));
  binary("BitwiseXor", bitwise_xor, ints({6}), ints({3})),
      binary(
          "CastLike", [](const Tensor& a, const Tensor&) { return a.to(kFloat64); }, small, x({1}).to(kFloat64));
  binary("Max", maximum, small, row), binary("Min", minimum, small, row), binary("Sum", add, small, row);
  binary(
      "Mean", [](const Tensor& a, const Tensor& b) { return (a + b) / 2; }, small, row);
  rows.push_back({"Max", 13, {small, row, x({1})}, {}, of([](In i) { return maximum(maximum(i[0], i[1]), i[2]); })});

  const auto reduction = [&](const char* op, const Tensor& in, auto f) {
    const bool is_sum = std::string(op) == "ReduceSum";
    rows.push_back({op, is_sum ? 11 : 17, {in}, {{"axes", std::vector<int64_t>{0, -1}}}, of([f](In i) {
                      return f(i[0], Dims{0, 2}, true);
                    })});
    rows.push_back({op, is_sum ? 13 : 18, {in, ints({1})}, with("keepdims", 0), of([f](In i) {
                      return f(i[0], Dims{1}, false);
                    })});
    rows.push_back({op, 17, {in}, with("keepdims", 0), of([f](In i) { return f(i[0], Dims{}, false); })});
  };
  using T = const Tensor&;
  const Tensor cube = x({2, 3, 4}), plus = positive({2, 3, 4});
  reduction("ReduceSum", cube, [](T t, const Dims& d, bool k) { return sum(t, d, k); });
  reduction("ReduceMean", cube, [](T t, const Dims& d, bool k) { return mean(t, d, k); });
  reduction("ReduceMax", cube, [](T t, const Dims& d, bool k) { return amax(t, d, k); });
  reduction("ReduceMin", cube, [](T t, const Dims& d, bool k) { return amin(t, d, k); });
  reduction("ReduceProd", plus, [](T t, const Dims& d, bool k) { return exp(sum(log(t), d, k)); });
  reduction("ReduceL1", cube, [](T t, const Dims& d, bool k) { return norm(t, 1, d, k); });
  reduction("ReduceL2", cube, [](T t, const Dims& d, bool k) { return norm(t, 2, d, k); });
  reduction("ReduceLogSum", plus, [](T t, const Dims& d, bool k) { return log(sum(t, d, k)); });
  reduction("ReduceLogSumExp", cube, [](T t, const Dims& d, bool k) { return logsumexp(t, d, k); });
  reduction("ReduceSumSquare", cube, [](T t, const Dims& d, bool k) { return sum(t * t, d, k); });
  rows.push_back({"ReduceSum", 13, {cube, ints({})}, with("noop_with_empty_axes", 1), of([](In i) { return i[0]; })});
  rows.push_back({"ReduceSum", 13, {reel::tensor({1, 2}, {.dtype = kInt32})}, with("keepdims", 0), of([](In) {
                    return reel::tensor(3, {.dtype = kInt32});
                  })});

  const auto add = [&](const char* op, int64_t opset, const std::vector<Tensor>& in, const Attributes& a, auto f) {
    rows.push_back({op, opset, in, a, of(f)});
  };
  add("ArgMax", 13, {small}, with("axis", 1), [](In i) { return argmax(i[0], 1, true); });
  add("ArgMin", 13, {tensor({1., 0., 0.})}, with("select_last_index", 1), [](In) { return ints({2}); });
  add("Celu", 12, {small}, {{"alpha", 2.}}, [](In i) { return celu(i[0], 2); });
  add("Clip", 9, {small}, {{"min", -0.5}, {"max", 0.5}}, [](In i) { return clamp(i[0], -0.5, 0.5); });
  add("Clip", 13, {small, tensor(-0.5), {}}, {}, [](In i) { return maximum(i[0], -0.5); });
  add("Elu", 13, {small}, {{"alpha", 2.}}, [](In i) { return elu(i[0], 2); });
  add("Selu", 13, {small}, {}, [](In i) { return selu(i[0]); });
  add("Gelu", 20, {small}, {}, [](In i) { return gelu(i[0]); });
  add("Gelu", 20, {small}, {{"approximate", std::string("tanh")}}, [](In i) { return gelu_tanh(i[0]); });
  add("HardSigmoid", 13, {small}, {}, [](In i) { return clamp(i[0] * 0.2 + 0.5, 0., 1.); });
  add("LeakyRelu", 13, {small}, {{"alpha", 0.2}}, [](In i) { return leaky_relu(i[0], 0.2); });
  add("ThresholdedRelu", 13, {small}, {{"alpha", 0.5}}, [](In i) { return threshold(i[0], 0.5, 0); });
  add("Shrink", 13, {small}, {{"bias", 0.3}, {"lambd", 0.3}}, [](In i) { return softshrink(i[0], 0.3); });
  add("IsInf", 13, {small / tensor({0., 1., 0., 1.})}, with("detect_negative", 0),
      [](In i) { return isinf(i[0]) & (i[0] > 0); });
  add("Mod", 13, {ints({-5, 5}), ints({3, -3})}, {}, [](In) { return ints({1, -1}); });
  add("Mod", 13, {small, row}, with("fmod", 1), [](In i) { return fmod(i[0], i[1]); });
  add("BitShift", 13, {ints({5}), ints({1})}, {{"direction", std::string("LEFT")}}, [](In) { return ints({10}); });
  add("Softmax", 11, {cube}, with("axis", 1), [](In i) {
    return softmax(i[0].reshape({2, 12}), 1).reshape({2, 3, 4});
  });
  add("Softmax", 13, {cube}, with("axis", 1), [](In i) { return softmax(i[0], 1); });
  add("LogSoftmax", 13, {cube}, {}, [](In i) { return log_softmax(i[0], -1); });
  add("Hardmax", 13, {small}, {}, [](In i) { return one_hot(argmax(i[0], 1), 4).to(kFloat32); });
  add("Gemm", 13, {x({3, 4}), x({5, 4}), x({5})}, with("transB", 1), [](In i) { return linear(i[0], i[1], i[2]); });
  add("Gemm", 13, {x({4, 3}), x({4, 5}), x({3, 1})}, {{"transA", int64_t{1}}, {"alpha", 0.5}, {"beta", 2.}},
      [](In i) { return matmul(i[0].t(), i[1]) * 0.5 + i[2] * 2; });
  add("Einsum", 13, {x({2, 3}), x({3, 4})}, {{"equation", std::string("ij,jk->ki")}},
      [](In i) { return matmul(i[0], i[1]).t(); });
  add("CumSum", 14, {small, one(1)}, {}, [](In i) { return cumsum(i[0], 1); });
  add("CumSum", 14, {tensor({1., 2., 3.}), one(0)}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}, [](In) {
    return tensor({5., 3., 0.});
  });
  add("Gather", 13, {small, reel::tensor({{0, -1}, {1, 1}}, {.dtype = kInt64})}, with("axis", 1), [](In i) {
    return index_select(i[0], 1, ints({0, 3, 1, 1})).reshape({3, 2, 2});
  });
  add("Gather", 13, {small, one(-1)}, {}, [](In i) { return i[0][2]; });
  add("GatherElements", 13, {small, reel::tensor({{0, -1}}, {.dtype = kInt64})}, with("axis", 1), [](In i) {
    return gather(i[0], 1, reel::tensor({{0, 3}}, {.dtype = kInt64}));
  });
  add("GatherND", 13, {cube, reel::tensor({{0, 1}, {1, -1}}, {.dtype = kInt64})}, {}, [](In i) {
    return stack({i[0][0][1], i[0][1][2]});
  });
  add("GatherND", 13, {cube, reel::tensor({{1}, {0}}, {.dtype = kInt64})}, with("batch_dims", 1), [](In i) {
    return stack({i[0][0][1], i[0][1][0]});
  });
  for (const char* op : {"Scatter", "ScatterElements"})
    add(op, op[7] ? 11 : 9, {small, reel::tensor({{1, -1}}, {.dtype = kInt64}), x({1, 2})}, with("axis", 1), [](In i) {
      return scatter(i[0], 1, reel::tensor({{1, 3}}, {.dtype = kInt64}), i[2]);
    });
  add("ScatterElements", 16, {small, reel::tensor({{1, 1}}, {.dtype = kInt64}), x({1, 2})},
      {{"axis", int64_t{1}}, {"reduction", std::string("add")}}, [](In i) {
        return scatter_add(i[0], 1, reel::tensor({{1, 1}}, {.dtype = kInt64}), i[2]);
      });
  add("ScatterND", 16, {small, reel::tensor({{2}, {0}}, {.dtype = kInt64}), x({2, 4})}, {}, [](In i) {
    return cat({i[2].narrow(0, 1, 1), i[0].narrow(0, 1, 1), i[2].narrow(0, 0, 1)});
  });
  add("Concat", 13, {small, x({3, 2})}, with("axis", -1), [](In i) { return cat({i[0], i[1]}, 1); });
  add("Compress", 11, {small, tensor({true, false, true})}, with("axis", 0), [](In i) {
    return index_select(i[0], 0, ints({0, 2}));
  });
  rows.push_back({"Split", 11, {x({5, 2})}, {{"split", std::vector<int64_t>{2, 3}}}, [](In i) {
                    return split(i[0], std::vector<int64_t>{2, 3}, 0);
                  }});
  rows.push_back({"Split", 13, {x({2, 5}), ints({1, 4})}, with("axis", 1), [](In i) {
                    return split(i[0], std::vector<int64_t>{1, 4}, 1);
                  }});
  rows.push_back({"Split", 18, {x({5, 2})}, with("num_outputs", 2), [](In i) {
                    return split(i[0], std::vector<int64_t>{3, 2}, 0);
                  }});
  rows.push_back({"TopK", 11, {small, ints({2})}, {}, [](In i) {
                    const auto t = topk(i[0], 2);
                    return std::vector<Tensor>{t.values, t.indices};
                  }});
  add("Slice", 9, {small}, {{"starts", std::vector<int64_t>{1}}, {"ends", std::vector<int64_t>{INT64_MAX}}},
      [](In i) { return i[0].slice(0, 1); });
  add("Slice", 13, {small, ints({-1, 1}), ints({INT64_MIN, -1}), ints({1, 0}), ints({-2, 1})}, {}, [](In i) {
    return index_select(i[0].slice(0, 1, 2), 1, ints({3, 1}));
  });
  add("Pad", 9, {small}, {{"pads", std::vector<int64_t>{1, 0, 0, 2}}, {"value", 3.}}, [](In i) {
    return pad(i[0], {0, 2, 1, 0}, kConstant, 3);
  });
  add("Pad", 18, {small, ints({1, -1}), tensor(2.), ints({1})}, {}, [](In i) {
    return pad(i[0], {1, -1}, kConstant, 2);
  });
  add("Pad", 13, {cube, ints({0, 0, 2, 0, 0, 1})}, {{"mode", std::string("reflect")}}, [](In i) {
    return pad(i[0], {2, 1}, kReflect);
  });
  add("Pad", 13, {cube, ints({0, 0, 2, 0, 0, 1})}, {{"mode", std::string("edge")}}, [](In i) {
    return pad(i[0], {2, 1}, kReplicate);
  });
  add("Pad", 19, {cube, ints({0, 0, 2, 0, 0, 1})}, {{"mode", std::string("wrap")}}, [](In i) {
    return pad(i[0], {2, 1}, kCircular);
  });
  add("Tile", 13, {small, ints({2, 3})}, {}, [](In i) { return tile(i[0], {2, 3}); });
  add("Expand", 13, {row, ints({3, 1})}, {}, [](In i) { return i[0].expand({3, 4}); });
  add("Reshape", 13, {cube, ints({0, -1})}, {}, [](In i) { return i[0].reshape({2, 12}); });
  add("Reshape", 14, {zeros({0, 4}), ints({4, 0})}, with("allowzero", 1), [](In i) { return i[0].reshape({4, 0}); });
  add("Transpose", 13, {cube}, {{"perm", std::vector<int64_t>{1, 0, 2}}}, [](In i) { return i[0].transpose(0, 1); });
  add("Transpose", 13, {cube}, {}, [](In i) { return i[0].permute({2, 1, 0}); });
  add("Squeeze", 11, {x({1, 3, 1})}, {{"axes", std::vector<int64_t>{-1}}}, [](In i) { return i[0].squeeze(2); });
  add("Squeeze", 13, {x({1, 3, 1}), ints({0, 2})}, {}, [](In i) { return i[0].reshape({3}); });
  add("Squeeze", 13, {x({1, 3, 1})}, {}, [](In i) { return i[0].squeeze(); });
  add("Unsqueeze", 11, {row}, {{"axes", std::vector<int64_t>{2, 0}}}, [](In i) { return i[0].reshape({1, 4, 1}); });
  add("Unsqueeze", 13, {row, ints({-1})}, {}, [](In i) { return i[0].unsqueeze(1); });
  add("Flatten", 13, {cube}, with("axis", 2), [](In i) { return i[0].reshape({6, 4}); });
  add("Shape", 15, {cube}, with("start", 1), [](In) { return ints({3, 4}); });
  add("Size", 13, {cube}, {}, [](In) { return one(24); });
  add("ConstantOfShape", 13, {ints({2, 3})}, {{"value", reel::tensor({7}, {.dtype = kInt64})}}, [](In) {
    return full({2, 3}, 7);
  });
  add("Range", 13, {one(1), one(7), one(2)}, {}, [](In) { return ints({1, 3, 5}); });
  add("EyeLike", 13, {small}, with("k", 1), [](In) { return (arange(3).unsqueeze(1) + 1 == arange(4)).to(kFloat32); });
  add("OneHot", 13, {ints({0, -1}), one(3), tensor({0., 5.})}, {}, [](In i) {
    return where(one_hot(ints({0, 2}), 3) == 1, i[2][1], i[2][0]);
  });
  add("NonZero", 13, {tensor({{1., 0.}, {0., 2.}})}, {}, [](In) {
    return reel::tensor({{0, 1}, {0, 1}}, {.dtype = kInt64});
  });
  add("Trilu", 14, {small, one(1)}, {}, [](In i) { return triu(i[0], 1); });
  add("Trilu", 14, {small}, with("upper", 0), [](In i) { return tril(i[0]); });
  add("Where", 13, {bools, small, row}, {}, [](In i) { return where(i[0], i[1], i[2]); });
  add("Cast", 13, {small}, with("to", onnx::data_type::kInt64), [](In i) { return i[0].to(kInt64); });
  add("Dropout", 13, {small, tensor(0.9)}, {}, [](In i) { return i[0]; });
  add("NegativeLogLikelihoodLoss", 13, {small, ints({1, 0, 3})}, {}, [](In i) { return nll_loss(i[0], i[1]); });
  add("SoftmaxCrossEntropyLoss", 13, {small, ints({1, 0, 3})}, {{"reduction", std::string("sum")}},
      [](In i) { return cross_entropy(i[0], i[1], kSum); });

  const Tensor image = x({2, 4, 6, 5});
  add("Conv", 13, {image, x({6, 2, 3, 3}), x({6})},
      {{"group", int64_t{2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}, {"strides", std::vector<int64_t>{2, 1}}},
      [](In i) {
        return conv2d(i[0], i[1], i[2], {.stride = {2, 1}, .padding = 1, .groups = 2});
      });
  add("Conv", 13, {image, x({6, 4, 2, 2})}, {{"auto_pad", std::string("SAME_LOWER")}}, [](In i) {
    return conv2d(pad(i[0], {1, 0, 1, 0}), i[1]);
  });
  add("Conv", 13, {x({2, 3, 7}), x({4, 3, 3})},
      {{"dilations", std::vector<int64_t>{2}}, {"pads", std::vector<int64_t>{2, 1}}}, [](In i) {
        return conv1d(pad(i[0], {2, 1}), i[1], {}, {.dilation = 2});
      });
  add("ConvTranspose", 13, {image, x({4, 3, 3, 3}), x({3})},
      {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
       {"strides", std::vector<int64_t>{2, 2}},
       {"output_padding", std::vector<int64_t>{1, 1}}},
      [](In i) { return conv_transpose2d(i[0], i[1], i[2], {.stride = 2, .padding = 1, .output_padding = 1}); });
  add("ConvTranspose", 13, {x({2, 3, 5}), x({3, 2, 3}), x({2})}, {{"pads", std::vector<int64_t>{0, 1}}},
      [](In i) { return conv_transpose1d(i[0], i[1], i[2]).narrow(2, 0, 6); });
  const Attributes window{{"kernel_shape", std::vector<int64_t>{3, 2}}, {"strides", std::vector<int64_t>{2, 2}}};
  const auto window_and = [&](const char* name, auto value) {
    Attributes all = window;
    all.push_back({name, value});
    return all;
  };
  add("MaxPool", 13, {image}, window, [](In i) { return max_pool2d(i[0], {3, 2}, {.stride = 2}); });
  add("MaxPool", 13, {image}, window_and("ceil_mode", int64_t{1}), [](In i) {
    return max_pool2d(i[0], {3, 2}, {.stride = 2, .ceil_mode = true});
  });
  add("MaxPool", 13, {image}, window_and("pads", std::vector<int64_t>{0, 1, 1, 0}), [](In i) {
    return max_pool2d(pad(i[0], {1, 0, 0, 1}, kConstant, -1e30), {3, 2}, {.stride = 2});
  });
  rows.push_back({"MaxPool", 13, {image}, window, [](In i) {
                    const auto y = max_pool2d_with_indices(i[0], {3, 2}, {.stride = 2});
                    return std::vector<Tensor>{y.values, y.indices + arange(8).reshape({2, 4, 1, 1}) * 30};
                  }});
  add("AveragePool", 13, {image}, window_and("pads", std::vector<int64_t>{1, 1, 1, 1}), [](In i) {
    return avg_pool2d(i[0], {3, 2}, {.stride = 2, .padding = 1, .count_include_pad = false});
  });
  add("AveragePool", 19, {image}, window_and("ceil_mode", int64_t{1}), [](In i) {
    return avg_pool2d(i[0], {3, 2}, {.stride = 2, .ceil_mode = true});
  });
  add("LpPool", 13, {image}, window, [](In i) { return lp_pool2d(abs(i[0]), 2, {3, 2}, {.stride = 2}); });
  add("GlobalAveragePool", 13, {image}, {}, [](In i) { return mean(i[0], {2, 3}, true); });
  add("GlobalMaxPool", 13, {image}, {}, [](In i) { return amax(i[0], {2, 3}, true); });
  add("GlobalLpPool", 13, {image}, {}, [](In i) { return norm(i[0], 2, {2, 3}, true); });
  add("LRN", 13, {image}, {{"size", int64_t{3}}, {"alpha", 0.1}},
      [](In i) { return local_response_norm(i[0], 3, 0.1); });
  add("LRN", 13, {image}, {{"size", int64_t{2}}, {"alpha", 0.1}, {"beta", 1.}}, [](In i) {
    const Tensor squares = pad(i[0] * i[0], {0, 0, 0, 0, 0, 1});  // this channel and the next one
    return i[0] / (1 + 0.05 * (squares.narrow(1, 0, 4) + squares.narrow(1, 1, 4)));
  });
  const Tensor scale = x({4}), bias = x({4});
  add("BatchNormalization", 14, {image, scale, bias, x({4}), positive({4})}, {{"epsilon", 0.01}},
      [](In i) { return batch_norm(i[0], i[3], i[4], i[1], i[2], false, 0.1, 0.01); });
  add("InstanceNormalization", 13, {image, scale, bias}, {},
      [](In i) { return instance_norm(i[0], {}, {}, i[1], i[2]); });
  add("GroupNormalization", 18, {image, x({2}), x({2})}, with("num_groups", 2), [](In i) {
    return group_norm(i[0], 2) * i[1].repeat_interleave(2).reshape({4, 1, 1}) +
           i[2].repeat_interleave(2).reshape({4, 1, 1});
  });
  rows.push_back({"LayerNormalization", 17, {cube, x({4}), x({4})}, {}, [](In i) {
                    const auto m = var_mean(i[0], -1, 0, true);
                    return std::vector<Tensor>{layer_norm(i[0], {4}, i[1], i[2]), m.mean, rsqrt(m.spread + 1e-5)};
                  }});
  add("LpNormalization", 13, {small}, with("p", 1), [](In i) { return normalize(i[0], 1, 1); });
  add("MeanVarianceNormalization", 13, {image}, {}, [](In i) { return batch_norm(i[0], {}, {}, {}, {}, true, 0, 0); });
  add("DepthToSpace", 13, {image}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}},
      [](In i) { return pixel_shuffle(i[0], 2); });
  add("DepthToSpace", 13, {image}, with("blocksize", 2), [](In i) { return pixel_shuffle(i[0], 2); });
  add("SpaceToDepth", 13, {x({2, 1, 6, 4})}, with("blocksize", 2), [](In i) { return pixel_unshuffle(i[0], 2); });
  add("GridSample", 16, {image, rand({2, 3, 3, 2}) * 2 - 1}, {}, [](In i) { return grid_sample(i[0], i[1]); });
  const auto resize = [&](const char* mode, const char* coordinates, Interpolation by, bool corners) {
    add("Resize", 13, {image, {}, {}, ints({2, 4, 9, 3})},
        {{"mode", std::string(mode)},
         {"coordinate_transformation_mode", std::string(coordinates)},
         {"nearest_mode", std::string("floor")}},
        [=](In i) {
          return interpolate(i[0], {.size = {9, 3}, .mode = by, .align_corners = corners});
        });
  };
  resize("nearest", "asymmetric", kNearest, false), resize("linear", "pytorch_half_pixel", kBilinear, false);
  resize("linear", "align_corners", kBilinear, true), resize("cubic", "half_pixel", kBicubic, false);
  add("Resize", 10, {image, tensor({1., 1., 2., 2.})}, {},
      [](In i) { return interpolate(i[0], {.scale_factor = {2}}); });
  add("Upsample", 9, {image, tensor({1., 1., 2., 2.})}, {},
      [](In i) { return interpolate(i[0], {.scale_factor = {2}}); });
  add_recurrent(rows);
  return rows;
}

}  // namespace

TEST_CASE("every op that onnx::load knows does what reel's own ops do", "[onnx][cpu]") {
  manual_seed(7);
  const Folder folder;
  std::set<std::string> tested;
  for (const Row& row : make_rows()) {
    tested.insert(row.op);
    INFO(row.op << " of opset " << row.opset);
    std::vector<Tensor> leaves;
    for (const Tensor& given : row.inputs) {
      leaves.push_back(given.defined() ? given.detach().clone() : Tensor());
      if (given.defined() && given.is_floating_point()) leaves.back().requires_grad_();
    }
    const std::vector<Tensor> expected = row.expected(leaves);
    for (const bool as_weights : {false, true}) {  // everything but the first input
      File file{.opset = row.opset};
      Names in, out;
      std::vector<Tensor> given;
      for (size_t i = 0; i < row.inputs.size(); ++i) {
        in.push_back(leaves[i].defined() ? "in." + std::to_string(i) : "");
        if (!leaves[i].defined()) continue;
        if (i > 0 && as_weights)
          file.weight(in[i], leaves[i]);
        else
          file.input(in[i], leaves[i].dtype()), given.push_back(leaves[i]);
      }
      for (size_t i = 0; i < expected.size(); ++i) file.output(out.emplace_back("out." + std::to_string(i)));
      file.node(row.op, in, out, row.attributes);
      const onnx::Model model = onnx::load(write(folder / "op.onnx", file.bytes()));
      const std::vector<Tensor> outputs = model(given);
      REQUIRE(outputs.size() == expected.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        INFO("output " << i << ", weights " << as_weights);
        CHECK(outputs[i].dtype() == expected[i].dtype());
        testing::assert_close(outputs[i], expected[i], {.rtol = 1e-4, .atol = 1e-5});
        if (as_weights || !expected[i].requires_grad() || expected[i].numel() == 0) continue;
        const Tensor cotangent = randn(expected[i].shape()).to(expected[i].dtype());
        std::vector<Tensor> grads[2];
        for (const bool own : {false, true}) {
          for (Tensor& leaf : leaves)
            if (leaf.defined()) leaf.set_grad({});
          (own ? outputs : expected)[i].backward(cotangent, {.retain_graph = true});
          for (const Tensor& leaf : leaves) grads[own].push_back(leaf.defined() ? leaf.grad() : Tensor());
        }
        for (size_t j = 0; j < leaves.size(); ++j) {
          INFO("gradient " << j);
          const Tensor none = leaves[j].defined() ? zeros_like(leaves[j]) : Tensor();
          if (grads[0][j].defined())
            testing::assert_close(grads[1][j].defined() ? grads[1][j] : none, grads[0][j],
                                  {.rtol = 1e-3, .atol = 1e-4});
        }
      }
    }
  }
  for (const auto& [op, how] : onnx::op_table()) {
    INFO(op);
    CHECK(tested.count(op));
  }
}

TEST_CASE("no op of an ONNX model takes a value of an attribute that it does not know", "[onnx][cpu]") {
  manual_seed(7);
  const Folder folder;
  const char* const texts[] = {"auto_pad",
                               "direction",
                               "activations",
                               "mode",
                               "coordinate_transformation_mode",
                               "nearest_mode",
                               "keep_aspect_ratio_policy",
                               "padding_mode",
                               "reduction",
                               "equation",
                               "approximate"};
  const std::multimap<std::string, const char*> flags{{"MaxPool", "ceil_mode"},
                                                      {"AveragePool", "count_include_pad"},
                                                      {"ReduceSum", "keepdims"},
                                                      {"ReduceSum", "noop_with_empty_axes"},
                                                      {"ArgMax", "keepdims"},
                                                      {"ArgMax", "select_last_index"},
                                                      {"Gemm", "transA"},
                                                      {"Gemm", "transB"},
                                                      {"CumSum", "exclusive"},
                                                      {"CumSum", "reverse"},
                                                      {"IsInf", "detect_negative"},
                                                      {"IsInf", "detect_positive"},
                                                      {"TopK", "largest"},
                                                      {"LSTM", "layout"},
                                                      {"LSTM", "input_forget"},
                                                      {"GRU", "linear_before_reset"},
                                                      {"LSTM", "linear_before_reset"},
                                                      {"Resize", "exclude_outside"},
                                                      {"Resize", "antialias"},
                                                      {"GridSample", "align_corners"},
                                                      {"MaxPool", "storage_order"},
                                                      {"Conv", "ceil_mode"}};
  const auto is_accepted = [&](const Row& row, const onnx_file::Attribute& wrong) {
    File file{.opset = row.opset};
    Names in, out;
    std::vector<Tensor> given;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      in.push_back(row.inputs[i].defined() ? "in." + std::to_string(i) : "");
      if (row.inputs[i].defined()) file.input(in[i], row.inputs[i].dtype()), given.push_back(row.inputs[i]);
    }
    file.output(out.emplace_back("out"));
    Attributes attributes{wrong};
    for (const auto& attribute : row.attributes)
      if (attribute.name != wrong.name) attributes.push_back(attribute);
    file.node(row.op, in, out, attributes);
    try {
      onnx::load(write(folder / "op.onnx", file.bytes()))(given);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::set<std::string> seen;
  for (const Row& row : make_rows()) {
    if (!seen.insert(row.op).second) continue;
    for (const char* name : texts) {
      INFO(row.op << ": " << name);
      CHECK(!is_accepted(row, {name, std::string("banana")}));
    }
    const auto [begin, end] = flags.equal_range(row.op);
    for (auto flag = begin; flag != end; ++flag) {
      INFO(row.op << ": " << flag->second);
      CHECK(!is_accepted(row, {flag->second, int64_t{2}}));
    }
  }
  CHECK(seen.size() >= 140);  // which the test above runs with values that are right
}
