#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/testing.h"
#include "test/support/load.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// ---- in double precision --------------------------------------------------------------------------------------------

/// x normalised over its elements that have the same set(index); weight and bias, if there, at channel(index).
Array normalised(const Arrays& x, const std::function<int64_t(const Index&)>& set,
                 const std::function<int64_t(const Index&)>& channel, double eps = 1e-5, bool center = true) {
  std::map<int64_t, Line> sets;
  build(x[0].shape, [&](const Index& at) { return sets[set(at)].push_back(x[0](at)), 0.; });
  return build(x[0].shape, [&](const Index& at) {
    const Line& line = sets[set(at)];
    const double middle = center ? ref::average(line) : 0;
    double square = 0;
    for (double v : line) square += (v - middle) * (v - middle);
    double y = (x[0](at) - middle) / std::sqrt(square / static_cast<double>(line.size()) + eps);
    if (x.size() > 1) y *= x[1].data[static_cast<size_t>(channel(at))];
    if (x.size() > 2) y += x[2].data[static_cast<size_t>(channel(at))];
    return y;
  });
}
/// On the inputs' device.
Tensor beside(In x, std::initializer_list<double> values) {
  return tensor(std::vector<double>(values), {.dtype = kFloat32, .device = x[0].device()});
}

int64_t second(const Index& at) { return at[1]; }
int64_t last(const Index& at) { return at.back(); }

/// Of [n, c, …]: the groups of `size` channels of an example, numbered.
template <int64_t size>
int64_t group(const Index& at) {
  return at[0] * 100 + at[1] / size;
}

/// x [n, c] / (k + alpha / size · the sum of squares of channels c - size / 2 …)^beta.
Array local_response(const Array& x, int64_t size, double alpha, double beta, double k) {
  return build(x.shape, [&](const Index& at) {
    double sum = 0;
    for (int64_t c = at[1] - size / 2; c < at[1] - size / 2 + size; ++c)
      if (c >= 0 && c < x.shape[1]) sum += x(with(at, 1, c)) * x(with(at, 1, c));
    return x(at) / std::pow(k + alpha * sum / static_cast<double>(size), beta);
  });
}

Array scaled(const Array& x, int dim, double p, double eps) {
  return along(x, dim, [&](Line line) {
    const double length = std::max(ref::norm(line, p), eps);
    for (double& v : line) v /= length;
    return line;
  });
}

const Traits kNorm{.tolerance = 16};

}  // namespace

// clang-format off
const std::vector<Row>& norm_rows() {
  static const std::vector<Row> rows{

// ---- normalisation

{"batch_norm", [](In x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); },
 [](Ref x) { return normalised(x, second, second); }, {{{4, 3, 5}}, {{3}, 0.5, 2}, {{3}}}, kNorm},
{"batch_norm(columns)", [](In x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); },
 [](Ref x) { return normalised(x, second, second); }, {{{5, 19}}, {{19}, 0.5, 2}, {{19}}}, kNorm},
{"batch_norm(long)", [](In x) { return batch_norm(x[0], {}, {}, x[1], {}, true, 0.1, 0.5); },
 [](Ref x) { return normalised(x, second, second, 0.5); }, {{{2, 2, 3, 7}}, {{2}}}, kNorm},
{"batch_norm(plain)", [](In x) { return batch_norm(x[0], {}, {}, {}, {}, true); },
 [](Ref x) { return normalised(x, second, second); }, {{{2, 2, 3}}}, kNorm},
{"batch_norm(running)", [](In x) {
   return batch_norm(x[0], beside(x, {1., 2., -1.}), beside(x, {2., 3., 0.5}), x[1], x[2]);
 },
 [](Ref x) {
   return build(x[0].shape, [&](const Index& at) {
     const double mean[] = {1, 2, -1}, variance[] = {2, 3, 0.5};
     const int64_t c = at[1];
     return (x[0](at) - mean[c]) / std::sqrt(variance[c] + 1e-5) * x[1]({c}) + x[2]({c});
   });
 }, {{{4, 3, 2}}, {{3}, 0.5, 2}, {{3}}}, kNorm},
{"batch_norm(running columns)", [](In x) { return batch_norm(x[0], beside(x, {1., 2.}), beside(x, {2., 3.}), x[1], x[2]); },
 [](Ref x) {
   return build(x[0].shape, [&](const Index& at) {
     const double mean[] = {1, 2}, variance[] = {2, 3};
     const int64_t c = at[1];
     return (x[0](at) - mean[c]) / std::sqrt(variance[c] + 1e-5) * x[1]({c}) + x[2]({c});
   });
 }, {{{4, 2}}, {{2}, 0.5, 2}, {{2}}}, kNorm},
{"batch_norm(channels last)", [](In x) { return batch_norm(x[0], {}, {}, x[1], x[2], true, 0.1, 1e-5, true); },
 [](Ref x) { return normalised(x, last, last); }, {{{2, 3, 2, 5}}, {{5}, 0.5, 2}, {{5}}}, kNorm},
{"batch_norm(running, channels last)", [](In x) {
   return batch_norm(x[0], beside(x, {1., 2.}), beside(x, {2., 3.}), x[1], x[2], false, 0.1, 1e-5, true);
 },
 [](Ref x) {
   return build(x[0].shape, [&](const Index& at) {
     const double mean[] = {1, 2}, variance[] = {2, 3};
     const int64_t c = at.back();
     return (x[0](at) - mean[c]) / std::sqrt(variance[c] + 1e-5) * x[1]({c}) + x[2]({c});
   });
 }, {{{4, 3, 2}}, {{2}, 0.5, 2}, {{2}}}, kNorm},
{"instance_norm", [](In x) { return instance_norm(x[0], {}, {}, x[1], x[2]); },
 [](Ref x) { return normalised(x, group<1>, second); }, {{{2, 3, 9}}, {{3}, 0.5, 2}, {{3}}}, kNorm},
{"instance_norm(running)", [](In x) { return instance_norm(x[0], beside(x, {0., 0., 0.}), beside(x, {1., 1., 1.}), {}, {}, false); },
 [](Ref x) {
   return build(x[0].shape, [&](const Index& at) { return x[0](at) / std::sqrt(1 + 1e-5); });
 }, {{{2, 3, 4}}}, kNorm},
{"group_norm", [](In x) { return group_norm(x[0], 2, x[1], x[2]); },
 [](Ref x) { return normalised(x, group<2>, second); }, {{{2, 4, 3}}, {{4}, 0.5, 2}, {{4}}}, kNorm},
{"group_norm(plain)", [](In x) { return group_norm(x[0], 3); },
 [](Ref x) { return normalised(x, group<2>, second); }, {{{2, 6, 2, 2}}}, kNorm},
{"group_norm(columns)", [](In x) { return group_norm(x[0], 2, x[1], x[2]); },
 [](Ref x) { return normalised(x, group<3>, second); }, {{{5, 6}}, {{6}, 0.5, 2}, {{6}}}, kNorm},
{"group_norm(bias)", [](In x) { return group_norm(x[0], 2, {}, x[1]); },
 [](Ref x) { return normalised({x[0], build({4}, [](const Index&) { return 1.; }), x[1]}, group<2>, second); },
 {{{2, 4, 3}}, {{4}}}, kNorm},
{"layer_norm", [](In x) { return layer_norm(x[0], {21}, x[1], x[2]); },
 [](Ref x) { return normalised(x, [](const Index& at) { return at[0]; }, last); },
 {{{5, 21}}, {{21}, 0.5, 2}, {{21}}}, kNorm},
{"layer_norm(two)", [](In x) { return layer_norm(x[0], {3, 4}, x[1].reshape({3, 4}), {}, 0.1); },
 [](Ref x) {
   return normalised(x, [](const Index& at) { return at[0]; }, [](const Index& at) { return at[1] * 4 + at[2]; }, 0.1);
 }, {{kCube}, {{12}, 0.5, 2}}, kNorm},
{"layer_norm(bias)", [](In x) { return layer_norm(x[0], {7}, {}, x[1]); },
 [](Ref x) {
   return normalised({x[0], build({7}, [](const Index&) { return 1.; }), x[1]},
                     [](const Index& at) { return at[0]; }, last);
 }, {{{3, 7}}, {{7}}}, kNorm},
{"layer_norm(plain)", [](In x) { return layer_norm(x[0], {4}); },
 [](Ref x) { return normalised(x, [](const Index& at) { return at[0] * 3 + at[1]; }, last); }, {{kCube}}, kNorm},
{"rms_norm", [](In x) { return rms_norm(x[0], {21}, x[1], 1e-5); },
 [](Ref x) { return normalised(x, [](const Index& at) { return at[0]; }, last, 1e-5, false); },
 {{{5, 21}}, {{21}, 0.5, 2}}, kNorm},
{"rms_norm(plain)", [](In x) { return rms_norm(x[0], {4}, {}, 1e-3); },
 [](Ref x) { return normalised(x, [](const Index& at) { return at[0]; }, last, 1e-3, false); }, {{kMatrix}}, kNorm},
{"local_response_norm", [](In x) { return local_response_norm(x[0], 3, 0.5, 0.75, 2); },
 [](Ref x) { return local_response(x[0], 3, 0.5, 0.75, 2); }, {{{2, 5, 3}}}, kNorm},
{"local_response_norm(even)", [](In x) { return local_response_norm(x[0], 4, 0.5); },
 [](Ref x) { return local_response(x[0], 4, 0.5, 0.75, 1); }, {{{2, 6, 2, 2}}}, kNorm},
{"normalize", [](In x) { return normalize(x[0]); }, [](Ref x) { return scaled(x[0], 1, 2, 0); }, {{kCube}}, kNorm},
{"normalize(p)", [](In x) { return normalize(x[0], 3, 0, 0.1); }, [](Ref x) { return scaled(x[0], 0, 3, 0.1); },
 {{kMatrix}}, kNorm},

};
  return rows;
}

namespace {

const WrongCall kWrongCalls[] = {
{[](World& w) { batch_norm(w.vector, {}, {}); }, "batch_norm: x of shape [3], not [n, channels, …]"},
{[](World& w) { batch_norm(w.whole.reshape({3, 1}), {}, {}); },
 "batch_norm: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { batch_norm(w.matrix, {}, {}); }, "batch_norm: running statistics are needed when not training"},
{[](World& w) { batch_norm(w.matrix[0].unsqueeze(0), {}, {}, {}, {}, true); },
 "batch_norm: more than one value for each channel is needed in training, got x [1, 4]; to predict, call eval()"},
{[](World& w) { batch_norm(w.matrix, w.vector, {}); },
 "batch_norm: of running_mean and running_var one is undefined"},
{[](World& w) { batch_norm(w.matrix, w.vector, w.vector); },
 "batch_norm: running_mean is float32 [3], not one floating-point number for each of 4 channels of x [3, 4], [n, "
 "channels, …]"},
{[](World& w) { batch_norm(w.cube, w.matrix[0], w.matrix[0], {}, {}, false, 0.1, 1e-5); },
 "batch_norm: running_mean is float32 [4], not one floating-point number for each of 3 channels of x [2, 3, 4], [n, "
 "channels, …]"},
{[](World& w) { batch_norm(w.cube, w.vector, w.vector, {}, {}, false, 0.1, 1e-5, true); },
 "batch_norm: running_mean is float32 [3], not one floating-point number for each of 4 channels of x [2, 3, 4], [n, …, "
 "channels]"},
{[](World& w) { batch_norm(w.matrix, {}, {}, w.vector, {}, true); },
 "batch_norm: a weight of shape [3]; it should be [4]"},
{[](World& w) { batch_norm(w.doubles, {}, {}, w.vector, {}, true); },
 "batch_norm: x is float64 and the weight float32"},
{[](World& w) { instance_norm(w.matrix); },
 "instance_norm: more than one value for each channel of an example is needed, got x [3, 4]"},
{[](World& w) { group_norm(w.matrix, 3); }, "group_norm: 4 channels cannot be divided into 3 groups"},
{[](World& w) { group_norm(w.matrix, 2, {}, w.vector); }, "group_norm: a bias of shape [3]; it should be [4]"},
{[](World& w) { layer_norm(w.matrix, {3}); },
 "layer_norm: x of shape [3, 4] does not end in normalized_shape [3]"},
{[](World& w) { layer_norm(w.matrix, {}); }, "layer_norm: normalized_shape is empty"},
{[](World& w) { layer_norm(w.vector, {2, 3}); },
 "layer_norm: x of shape [3] does not end in normalized_shape [2, 3]"},
{[](World& w) { rms_norm(w.undefined, {3}); }, "rms_norm: undefined tensor"},
{[](World& w) { local_response_norm(w.matrix, 0); }, "local_response_norm: the size must be positive, got 0"},
{[](World& w) { normalize(w.whole, 2, 0); },
 "normalize: a tensor of int64; convert it to a floating point type first"},
};
// clang-format on

double largest_error(const Tensor& x, const Tensor& expected) { return max(abs(x - expected)).item<double>(); }

}  // namespace

TEST_CASE("a wrong normalisation says what is wrong", "[errors]") { check_wrong_calls(kWrongCalls); }

TEST_CASE("normalisation keeps its digits beside a large mean", "[ops][isa]") {
  manual_seed(3);
  // Multiples of 1/512 near 4096 are exact in float32.
  const Tensor noise = round(randn({6, 4, 1000}) * 4) / 512, x = noise + 4096;
  REQUIRE(largest_error(x - 4096, noise) == 0);
  const Tensor wide = noise.to(kFloat64);
  const auto expected = [&](const Dims& dims) {
    return ((wide - mean(wide, dims, true)) / sqrt(var(wide, dims, 0, true) + 1e-12)).to(kFloat32);
  };
  CHECK(largest_error(layer_norm(x, {1000}, {}, {}, 1e-12), expected(-1)) < 2e-5);
  CHECK(largest_error(group_norm(x, 2, {}, {}, 1e-12), group_norm(noise.to(kFloat64), 2, {}, {}, 1e-12).to(kFloat32)) <
        2e-5);
  CHECK(largest_error(batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-12), expected({0, 2})) < 2e-5);
  CHECK(largest_error(batch_norm(x.reshape({24, 1000}), {}, {}, {}, {}, true, 0.1, 1e-12),
                      batch_norm(noise.to(kFloat64).reshape({24, 1000}), {}, {}, {}, {}, true, 0.1, 1e-12)) < 2e-5);
}

TEST_CASE("long rows and many rows are summed exactly enough", "[ops][isa]") {
  manual_seed(4);
  for (const Shape& shape : {Shape{3, 100003}, Shape{20011, 5}}) {
    const Tensor x = rand(shape) + 1, g = rand(shape);
    const auto gradients = [&](DType dtype) {
      const Tensor in = x.to(dtype).clone().requires_grad_();
      const Tensor w = ones({shape[1]}, {.dtype = dtype, .requires_grad = true});
      return grad({layer_norm(in, {shape[1]}, w, w * 2)}, {in, w}, {g.to(dtype)});
    };
    const auto narrow = gradients(kFloat32), wide = gradients(kFloat64);
    for (size_t i = 0; i < 2; ++i)
      CHECK(largest_error(narrow[i], wide[i]) < 2e-6 * max(abs(wide[i])).item<double>() + 1e-6);
  }
}

TEST_CASE("a batch of no examples is normalised and moves no running statistics", "[ops]") {
  const Tensor x = zeros({0, 3, 4}, {.requires_grad = true}), w = ones({3}, {.requires_grad = true});
  const Tensor mean = zeros({3}), variance = ones({3});
  for (const Tensor& y : {batch_norm(x, mean, variance, w, w), batch_norm(x, mean, variance, w, w, true),
                          group_norm(x, 3, w, w), instance_norm(x)}) {
    CHECK(y.shape() == x.shape());
    y.backward(ones_like(y));
  }
  CHECK(sum(abs(w.grad())).item<double>() == 0);
  CHECK(equal(mean, zeros({3})));
  CHECK(equal(variance, ones({3})));
}

TEST_CASE("a float32 bias alone has a float32 gradient beside half types") {
  const Tensor bias = zeros({5}).requires_grad_();
  layer_norm(randn({3001, 5}).to(kBFloat16), {5}, {}, bias).backward(ones({3001, 5}, {.dtype = kBFloat16}));
  CHECK(bias.grad().to_vector<float>() == std::vector<float>(5, 3001));
}

TEST_CASE("half types are normalised with float32 weights") {
  const Tensor x = randn({4, 3}).to(kBFloat16), w = ones({3}, {.requires_grad = true});
  const Tensor y = batch_norm(x, zeros({3}), ones({3}), w, w, true);
  CHECK(y.dtype() == kBFloat16);
  sum(y).backward();
  CHECK(w.grad().dtype() == kFloat32);
}

TEST_CASE("the graph of an evaluation survives training on the same running statistics") {
  const Tensor x = randn({4, 3}, {.requires_grad = true});
  for (DType dtype : {kFloat32, kFloat64}) {
    const Tensor mean = zeros({3}, {.dtype = dtype}), variance = ones({3}, {.dtype = dtype});
    const Tensor y = batch_norm(x, mean, variance);
    batch_norm(x, mean, variance, {}, {}, true);
    CHECK_NOTHROW(sum(y).backward());
  }
}

TEST_CASE("running statistics are PyTorch's", "[pins]") {
  const StateDict pins = load_reference("norm.safetensors");
  const auto pin = [&](const std::string& name) { return *find(pins, name); };
  const Tensor x = pin("x");  // [3, 4, 3, 2, 2]: three batches
  for (const std::string kind : {"batch", "instance"}) {
    const Tensor mean = zeros({3}), variance = ones({3});
    Tensor y;
    for (int64_t step = 0; step < 3; ++step)
      y = kind == "batch" ? batch_norm(x[step], mean, variance, pin("weight"), pin("bias"), true)
                          : instance_norm(x[step], mean, variance, pin("weight"), pin("bias"));
    testing::assert_close(y, pin(kind + ".y"));
    testing::assert_close(mean, pin(kind + ".mean"));
    testing::assert_close(variance, pin(kind + ".var"));
    const Tensor evaluated = kind == "batch" ? batch_norm(x[0], mean, variance, pin("weight"), pin("bias"))
                                             : instance_norm(x[0], mean, variance, pin("weight"), pin("bias"), false);
    testing::assert_close(evaluated, pin(kind + ".eval"));
  }
  testing::assert_close(group_norm(x[0], 3, pin("weight"), pin("bias")), pin("group"));
  testing::assert_close(local_response_norm(x[0], 2, 0.5, 0.75, 1), pin("lrn.even"));
  testing::assert_close(local_response_norm(x[0], 3, 0.5, 0.75, 1), pin("lrn.odd"));
  testing::assert_close(rms_norm(x[0], {2, 2}), pin("rms"));
}

}  // namespace reel
