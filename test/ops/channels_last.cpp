// Ops on channels that lie last beside the same ops on channels that lie in front of the sizes: values, gradients and
// second derivatives.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"

using namespace reel;

namespace {

using Tensors = std::vector<Tensor>;

struct Case {
  const char* name;
  std::vector<Shape> inputs;  // the first is x, with a batch and its channels second
  std::function<Tensor(const Tensors& inputs, bool channels_last)> call;
  bool unbatched = true;  // whether it takes x without a batch, too
  int sizes() const { return inputs[0].size() - 2; }
};

template <class Options>
Options with(Options options, bool channels_last) {
  options.channels_last = channels_last;
  return options;
}
Case conv(const char* name, std::vector<Shape> inputs, ConvOptions<2> o) {
  return {name, std::move(inputs), [o](const Tensors& in, bool last) {
            return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), with(o, last));
          }};
}
Case transposed(const char* name, std::vector<Shape> inputs, ConvTransposeOptions<2> o) {
  return {name, std::move(inputs), [o](const Tensors& in, bool last) {
            return conv_transpose2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), with(o, last));
          }};
}

std::vector<Case> cases() {
  const Shape image{2, 4, 7, 6};
  return {
      conv("conv2d", {image, {5, 4, 3, 3}, {5}}, {.padding = 1}),
      conv("conv2d of one pixel", {image, {6, 4, 1, 1}, {6}}, {}),
      conv("conv2d, strided", {image, {3, 4, 3, 2}, {3}}, {.stride = {2, 3}, .padding = {1, 0}}),
      conv("conv2d, dilated", {image, {3, 4, 3, 3}}, {.padding = 2, .dilation = 2}),
      conv("conv2d, same", {image, {3, 4, 2, 3}, {3}}, {.padding = kSame}),
      conv("conv2d of groups", {image, {6, 2, 3, 3}, {6}}, {.padding = 1, .groups = 2}),
      conv("conv2d of each channel", {image, {8, 1, 3, 3}}, {.padding = 1, .groups = 4}),
      conv("conv2d of one channel", {{2, 1, 7, 6}, {5, 1, 3, 3}, {5}}, {.padding = 1}),
      conv("conv2d as wide as x", {{2, 1, 7, 6}, {5, 1, 3, 6}, {5}}, {.padding = {1, 0}}),
      conv("conv2d in blocks", {{2, 16, 9, 9}, {32, 16, 3, 3}, {32}}, {.stride = 2, .padding = 1}),
      conv("conv2d in parts", {{4, 64, 16, 16}, {64, 64, 3, 3}, {64}}, {.padding = 1}),
      {"conv1d",
       {{3, 4, 9}, {5, 4, 3}, {5}},
       [](const Tensors& in, bool last) {
         return conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .channels_last = last});
       }},
      {"conv3d",
       {{2, 3, 4, 5, 4}, {4, 3, 2, 3, 2}, {4}},
       [](const Tensors& in, bool last) {
         return conv3d(in[0], in[1], in[2], {.stride = {1, 2, 1}, .padding = {0, 1, 1}, .channels_last = last});
       }},
      transposed("conv_transpose2d", {{2, 3, 4, 3}, {3, 5, 3, 2}, {5}}, {.stride = 2, .padding = 1}),
      transposed("conv_transpose2d of groups", {{2, 4, 4, 3}, {4, 3, 2, 2}, {6}},
                 {.stride = 2, .output_padding = 1, .groups = 2, .dilation = {2, 1}}),
      {"conv_transpose1d",
       {{2, 3, 5}, {3, 2, 3}, {2}},
       [](const Tensors& in, bool last) {
         return conv_transpose1d(in[0], in[1], in[2], {.stride = 2, .channels_last = last});
       }},
      {"conv_transpose3d",
       {{2, 3, 2, 3, 2}, {3, 2, 2, 2, 1}},
       [](const Tensors& in, bool last) {
         return conv_transpose3d(in[0], in[1], {}, {.stride = {1, 2, 2}, .channels_last = last});
       }},
      {"max_pool2d",
       {{2, 37, 9, 8}},
       [](const Tensors& in, bool last) {
         return max_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true, .channels_last = last});
       }},
      {"max_pool1d",
       {{2, 3, 20}},
       [](const Tensors& in, bool last) { return max_pool1d(in[0], 3, {.dilation = 3, .channels_last = last}); }},
      {"max_pool3d",
       {{2, 3, 4, 5, 4}},
       [](const Tensors& in, bool last) { return max_pool3d(in[0], 2, {.stride = 1, .channels_last = last}); }},
      {"adaptive_max_pool2d",
       {image},
       [](const Tensors& in, bool last) {
         return adaptive_max_pool2d(in[0], {3, 4}, {.channels_last = last});
       }},
      {"avg_pool2d",
       {{2, 37, 9, 8}},
       [](const Tensors& in, bool last) {
         return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .count_include_pad = false, .channels_last = last});
       }},
      {"avg_pool2d over large windows",
       {{2, 3, 9, 8}},
       [](const Tensors& in, bool last) { return avg_pool2d(in[0], 7, {.stride = 1, .channels_last = last}); }},
      {"avg_pool1d",
       {{2, 3, 20}},
       [](const Tensors& in, bool last) {
         return avg_pool1d(in[0], 4, {.ceil_mode = true, .divisor_override = 3, .channels_last = last});
       }},
      {"avg_pool3d",
       {{2, 3, 4, 5, 4}},
       [](const Tensors& in, bool last) { return avg_pool3d(in[0], 2, {.channels_last = last}); }},
      {"adaptive_avg_pool2d",
       {image},
       [](const Tensors& in, bool last) {
         return adaptive_avg_pool2d(in[0], {3, 4}, {.channels_last = last});
       }},
      {"adaptive_avg_pool3d to one",
       {{2, 3, 4, 5, 4}},
       [](const Tensors& in, bool last) { return adaptive_avg_pool3d(in[0], 1, {.channels_last = last}); }},
      {"lp_pool2d",
       {image},
       [](const Tensors& in, bool last) { return lp_pool2d(in[0], 2, 3, {.stride = 2, .channels_last = last}); }},
      {"max_unpool2d",
       {{2, 3, 6, 8}},
       [](const Tensors& in, bool last) {
         const auto [values, indices] = max_pool2d_with_indices(in[0], 2, {.channels_last = last});
         return max_unpool2d(values, indices, 2, {.channels_last = last});
       }},
      {"batch_norm",
       {image, {4}, {4}},
       [](const Tensors& in, bool last) { return batch_norm(in[0], {}, {}, in[1], in[2], true, 0.1, 1e-5, last); },
       false},
      {"batch_norm by given moments",
       {{2, 3, 5}, {3}, {3}},
       [](const Tensors& in, bool last) {
         return batch_norm(in[0], zeros_like(in[1]), ones_like(in[1]), in[1], in[2], false, 0.1, 1e-5, last);
       },
       false},
      {"interpolate",
       {image},
       [](const Tensors& in, bool last) {
         return interpolate(in[0], {.size = {5, 9}, .mode = kBicubic, .channels_last = last});
       },
       false},
      {"interpolate by area",
       {image},
       [](const Tensors& in, bool last) {
         return interpolate(in[0], {.size = {3, 2}, .mode = kArea, .channels_last = last});
       },
       false},
  };
}

struct Outcome {
  Tensor y;
  Tensors grads, second;  // of the inputs; of the inputs and the incoming gradient
};

/// What the op and its derivatives are, all laid out with channels in front. Cotangents are drawn from `seed`.
Outcome run(const Case& c, const Tensors& values, bool last) {
  const int sizes = c.sizes();
  const auto laid_out = [&](const Tensor& x) { return last ? movedim(x, -1 - sizes, -1).contiguous() : x; };
  const auto in_front = [&](const Tensor& x) { return last ? movedim(x, -1, -1 - sizes) : x; };
  Tensors inputs;
  for (size_t i = 0; i < values.size(); ++i)
    inputs.push_back((i == 0 ? laid_out(values[i]) : values[i]).detach().requires_grad_());
  const Tensor y = c.call(inputs, last);
  CHECK(y.is_contiguous());
  Outcome outcome{in_front(y), {}, {}};
  manual_seed(7);
  const auto drawn = [&](const Tensor& like) { return randn(like.shape(), {.dtype = y.dtype()}); };
  const Tensor g = laid_out(drawn(outcome.y)).detach().requires_grad_();
  outcome.grads = grad({&y, 1}, inputs, {&g, 1}, {.create_graph = true});
  Tensor sum_of_grads;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor& dx = outcome.grads[i];
    CHECK(dx.shape() == inputs[i].shape());
    if (i == 0) dx = in_front(dx);
    const Tensor part = sum(dx * drawn(dx));
    sum_of_grads = sum_of_grads.defined() ? sum_of_grads + part : part;
  }
  Tensors all = inputs;
  all.push_back(g);
  outcome.second = grad({&sum_of_grads, 1}, all, {}, {.allow_unused = true});
  outcome.second[0] = outcome.second[0].defined() ? in_front(outcome.second[0]) : Tensor();
  outcome.second.back() = in_front(outcome.second.back());
  return outcome;
}

void compare(const Case& c, DType dtype, const Shape& x) {
  manual_seed(3);
  Tensors values;
  for (const Shape& shape : c.inputs) values.push_back(randn(values.empty() ? x : shape, {.dtype = dtype}));
  const Outcome first = run(c, values, false), last = run(c, values, true);
  const double tolerance = dtype == kFloat64 ? 1e-10 : dtype == kFloat32 ? 1e-3 : 0.1;
  const testing::AssertCloseOptions close{.rtol = tolerance, .atol = tolerance};
  testing::assert_close(last.y, first.y, close);
  for (size_t i = 0; i < first.grads.size(); ++i) testing::assert_close(last.grads[i], first.grads[i], close);
  for (size_t i = 0; i < first.second.size(); ++i) {
    CHECK(last.second[i].defined() == first.second[i].defined());
    if (first.second[i].defined()) testing::assert_close(last.second[i], first.second[i], close);
  }
}

void compare_all(const Case& c, DType dtype) {
  INFO(c.name << " of " << name_of(dtype));
  const Shape& x = c.inputs[0];
  Shape none = x, one = x;
  none[0] = 0, one.erase(0);
  try {
    compare(c, dtype, x);
    compare(c, dtype, none);
    if (c.unbatched) compare(c, dtype, one);
  } catch (const Error& e) {
    FAIL_CHECK(e.what());
  }
}

}  // namespace

TEST_CASE("ops on channels that lie last are those on channels that lie first", "[ops][conv][pool][norm]") {
  for (const Case& c : cases())
    for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) compare_all(c, dtype);
}

TEST_CASE("convolutions take channels last from devices that have no kernel for it", "[cuda][conv]") {
  if (!cuda::is_available()) return;
  // With test/simt as if cuDNN refused every convolution, or those with a bias.
  for (const char* known : {"0", "no_bias"}) {
    setenv("SIMT_DNN", known, 1);
    for (const Case& c : cases())
      if (std::string(c.name).starts_with("conv"))
        for (const DType dtype : {kFloat64, kFloat16}) compare_all(c, dtype);
  }
  unsetenv("SIMT_DNN");
}

TEST_CASE("the places of maxima count the sizes alone where channels lie last", "[ops][pool]") {
  manual_seed(5);
  const Tensor x = randn({2, 3, 7, 6});
  const MaxPoolOptions<2> options{.stride = 2, .padding = 1};
  const auto first = max_pool2d_with_indices(x, 3, options);
  const auto last = max_pool2d_with_indices(movedim(x, 1, -1), 3, with(options, true));
  CHECK(equal(movedim(last.indices, -1, 1), first.indices));
  const auto most = adaptive_max_pool2d_with_indices(movedim(x, 1, -1), 2, {.channels_last = true});
  CHECK(equal(movedim(most.indices, -1, 1), adaptive_max_pool2d_with_indices(x, 2).indices));
}

TEST_CASE("NaN wins and equal numbers are taken in order where channels lie last", "[ops][pool]") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = tensor({{1., nan, -infinity, 2.}, {1., 3., -infinity, 2.}, {0., 5., -infinity, 7.}}).to(dtype);
    const auto [y, at] = max_pool1d_with_indices(x, 3, {.channels_last = true});
    CHECK(equal(at, tensor({{0, 0, 0, 2}})));
    CHECK(y[0][0].to(kFloat64).item<double>() == 1);
    CHECK(std::isnan(y[0][1].to(kFloat64).item<double>()));
    CHECK(y[0][2].to(kFloat64).item<double>() == -infinity);
  }
}

TEST_CASE("running statistics of channels that lie last move as of those that lie first", "[ops][norm]") {
  manual_seed(5);
  const Tensor x = randn({4, 3, 5, 2});
  Tensor moments[2][2];
  for (const bool last : {false, true}) {
    const Tensor mean = zeros({3}), variance = ones({3});
    batch_norm(last ? movedim(x, 1, -1) : x, mean, variance, {}, {}, true, 0.3, 1e-5, last);
    moments[last][0] = mean, moments[last][1] = variance;
  }
  testing::assert_close(moments[1], moments[0]);
}
