#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <thread>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/testing.h"
#include "reel/threads.h"
#include "test/support/load.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// ---- the definition -------------------------------------------------------------------------------------------------

using Numbers = std::vector<int64_t>;
struct Window {
  Numbers stride, before, after, dilation;
  int64_t groups = 1;
};

Array with_batch(Array x, int rank) {
  if (x.shape.size() < rank) x.shape.insert(0, 1);
  return x;
}

/// visit(x's index, weight's index, y's index) for all products of which a convolution is the sum.
template <class Visit>
void for_each_product(const Shape& xs, const Shape& ws, const Shape& ys, const Window& window, const Visit& visit) {
  const int64_t per_group = ws[0] / window.groups;
  Shape kernel = ws;
  kernel[0] = 1;
  build(ys, [&](const Index& y) {
    build(kernel, [&](Index w) {
      Index x = xs;
      w[0] = y[1], x[0] = y[0], x[1] = y[1] / per_group * ws[1] + w[1];
      for (int d = 2; d < xs.size(); ++d) {
        const size_t i = static_cast<size_t>(d - 2);
        x[d] = y[d] * window.stride[i] + w[d] * window.dilation[i] - window.before[i];
        if (x[d] < 0 || x[d] >= xs[d]) return 0.;
      }
      visit(x, w, y);
      return 0.;
    });
    return 0.;
  });
}

double& element(Array& x, const Index& at) {
  int64_t flat = 0;
  for (int d = 0; d < at.size(); ++d) flat = flat * x.shape[d] + at[d];
  return x.data[static_cast<size_t>(flat)];
}

/// conv(x, weight, bias), each of them in a list of inputs.
Array convolution(const Arrays& in, const Window& window) {
  const Array &weight = in[1], x = with_batch(in[0], weight.shape.size());
  Shape shape = x.shape;
  shape[1] = weight.shape[0];
  for (int d = 2; d < shape.size(); ++d) {
    const size_t i = static_cast<size_t>(d - 2);
    const int64_t reach = window.dilation[i] * (weight.shape[d] - 1) + 1;
    shape[d] = (shape[d] + window.before[i] + window.after[i] - reach) / window.stride[i] + 1;
  }
  Array y = build(shape, [&](const Index& at) { return in.size() > 2 ? in[2]({at[1]}) : 0; });
  for_each_product(x.shape, weight.shape, shape, window,
                   [&](const Index& ix, const Index& iw, const Index& iy) { element(y, iy) += x(ix) * weight(iw); });
  if (in[0].shape.size() < shape.size()) y.shape.erase(0);
  return y;
}

/// conv_transpose(x, weight, bias), its output as large as `sizes`.
Array transposed(const Arrays& in, const Window& window, const Numbers& sizes) {
  const Array &weight = in[1], x = with_batch(in[0], weight.shape.size());
  Shape shape = x.shape;
  shape[1] = weight.shape[1] * window.groups;
  for (int d = 2; d < shape.size(); ++d) shape[d] = sizes[static_cast<size_t>(d - 2)];
  Array y = build(shape, [&](const Index& at) { return in.size() > 2 ? in[2]({at[1]}) : 0; });
  for_each_product(shape, weight.shape, x.shape, window,
                   [&](const Index& iy, const Index& iw, const Index& ix) { element(y, iy) += x(ix) * weight(iw); });
  if (in[0].shape.size() < shape.size()) y.shape.erase(0);
  return y;
}

/// The windows of an image of `shape` as columns are a convolution with kernels that are 1 at one place.
Array one_hot_kernels(const Shape& shape, int64_t kernel_h, int64_t kernel_w) {
  const int64_t area = kernel_h * kernel_w;
  return build({shape[1] * area, shape[1], kernel_h, kernel_w},
               [&](const Index& at) { return at[0] == at[1] * area + at[2] * kernel_w + at[3]; });
}
Array columns(const Array& in, int64_t kernel_h, int64_t kernel_w, const Window& window) {
  const Array x = with_batch(in, 4);
  Array y = convolution({x, one_hot_kernels(x.shape, kernel_h, kernel_w)}, window);
  y.shape = {y.shape[0], y.shape[1], y.shape[2] * y.shape[3]};
  if (in.shape.size() == 3) y.shape.erase(0);
  return y;
}
Array image(const Array& in, const Shape& size, const Shape& places, int64_t kernel_h, int64_t kernel_w,
            const Window& window) {
  Array x = with_batch(in, 3);
  const int64_t channels = x.shape[1] / (kernel_h * kernel_w);
  x.shape = {x.shape[0], x.shape[1], places[0], places[1]};
  Array y = transposed({x, one_hot_kernels({1, channels}, kernel_h, kernel_w)}, window, {size[0], size[1]});
  if (in.shape.size() == 2) y.shape.erase(0);
  return y;
}

const Window kFlat{{1, 1}, {0, 0}, {0, 0}, {1, 1}};
const Traits kLarge{.differentiable = false, .tolerance = 8};  // checked in float32, against float64, below

}  // namespace

// clang-format off
const std::vector<Row>& conv_rows() {
  static const std::vector<Row> rows{

// ---- convolutions

{"conv1d", [](In x) { return conv1d(x[0], x[1], x[2]); },
 [](Ref x) { return convolution(x, {{1}, {0}, {0}, {1}}); }, {{{2, 3, 6}}, {{4, 3, 3}}, {{4}}}, kProduct},
{"conv1d(strided)", [](In x) { return conv1d(x[0], x[1], {}, {.stride = 2, .padding = 3, .dilation = 2}); },
 [](Ref x) { return convolution(x, {{2}, {3}, {3}, {2}}); }, {{{2, 2, 7}}, {{2, 2, 3}}}, kProduct},
{"conv1d(same)", [](In x) { return conv1d(x[0], x[1], x[2], {.padding = kSame, .dilation = 3}); },
 [](Ref x) { return convolution(x, {{1}, {1}, {2}, {3}}); }, {{{2, 2, 7}}, {{3, 2, 2}}, {{3}}}, kProduct},
{"conv1d(one)", [](In x) { return conv1d(x[0], x[1], x[2], {.padding = 1}); },
 [](Ref x) { return convolution(x, {{1}, {1}, {1}, {1}}); }, {{{2, 5}}, {{3, 2, 3}}, {{3}}}, kProduct},
{"conv2d", [](In x) { return conv2d(x[0], x[1], x[2]); }, [](Ref x) { return convolution(x, kFlat); },
 {{{2, 3, 5, 4}}, {{2, 3, 3, 2}}, {{2}}}, kProduct},
{"conv2d(strided)",
 [](In x) { return conv2d(x[0], x[1], x[2], {.stride = {2, 3}, .padding = {2, 1}, .dilation = {1, 2}}); },
 [](Ref x) { return convolution(x, {{2, 3}, {2, 1}, {2, 1}, {1, 2}}); }, {{{2, 2, 4, 7}}, {{2, 2, 3, 2}}, {{2}}}, kProduct},
{"conv2d(same)", [](In x) { return conv2d(x[0], x[1], {}, {.padding = kSame}); },
 [](Ref x) { return convolution(x, {{1, 1}, {1, 1}, {2, 1}, {1, 1}}); }, {{{1, 2, 5, 4}}, {{2, 2, 4, 3}}}, kProduct},
{"conv2d(groups)", [](In x) { return conv2d(x[0], x[1], x[2], {.padding = 1, .groups = 2}); },
 [](Ref x) { return convolution(x, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 2}); }, {{{1, 4, 3, 4}}, {{4, 2, 3, 2}}, {{4}}}, kProduct},
{"conv2d(each channel)", [](In x) { return conv2d(x[0], x[1], {}, {.groups = 3}); },
 [](Ref x) { return convolution(x, {{1, 1}, {0, 0}, {0, 0}, {1, 1}, 3}); }, {{{2, 3, 4, 4}}, {{6, 1, 3, 3}}}, kProduct},
{"conv2d(one)", [](In x) { return conv2d(x[0], x[1], x[2]); }, [](Ref x) { return convolution(x, kFlat); },
 {{{2, 4, 4}}, {{3, 2, 3, 3}}, {{3}}}, kProduct},
{"conv2d(pixels)", [](In x) { return conv2d(x[0], x[1], x[2]); }, [](Ref x) { return convolution(x, kFlat); },
 {{{2, 3, 2, 3}}, {{4, 3, 1, 1}}, {{4}}}, kProduct},
{"conv2d(as wide as x)", [](In x) { return conv2d(x[0], x[1], x[2], {.padding = {1, 0}}); },
 [](Ref x) { return convolution(x, {{1, 1}, {1, 0}, {1, 0}, {1, 1}}); }, {{{2, 1, 5, 6}}, {{3, 1, 3, 6}}, {{3}}}, kProduct},
{"conv2d(no batch)", [](In x) { return conv2d(x[0], x[1], x[2]); }, [](Ref x) { return convolution(x, kFlat); },
 {{{0, 2, 4, 4}}, {{3, 2, 3, 3}}, {{3}}}, kProduct},
{"conv2d(blocks)", [](In x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); },
 [](Ref x) { return convolution(x, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}); }, {{{2, 16, 5, 5}}, {{32, 16, 3, 3}}, {{32}}}, kLarge},
{"conv2d(odd channels)", [](In x) { return conv2d(x[0], x[1], x[2]); },
 [](Ref x) { return convolution(x, kFlat); }, {{{2, 20, 7, 6}}, {{18, 20, 5, 5}}, {{18}}}, kLarge},
{"conv3d",
 [](In x) { return conv3d(x[0], x[1], x[2], {.stride = {1, 2, 1}, .padding = {0, 1, 1}, .dilation = {1, 1, 2}}); },
 [](Ref x) { return convolution(x, {{1, 2, 1}, {0, 1, 1}, {0, 1, 1}, {1, 1, 2}}); },
 {{{1, 2, 2, 4, 3}}, {{2, 2, 2, 3, 2}}, {{2}}}, kProduct},
{"conv_transpose1d", [](In x) { return conv_transpose1d(x[0], x[1], x[2], {.stride = 3, .padding = 1, .output_padding = 2}); },
 [](Ref x) { return transposed(x, {{3}, {1}, {1}, {1}}, {15}); }, {{{2, 3, 5}}, {{3, 2, 3}}, {{2}}}, kProduct},
{"conv_transpose2d", [](In x) { return conv_transpose2d(x[0], x[1], x[2], {.stride = {2, 1}, .padding = {1, 0}}); },
 [](Ref x) { return transposed(x, {{2, 1}, {1, 0}, {1, 0}, {1, 1}}, {5, 4}); }, {{{2, 2, 3, 3}}, {{2, 3, 3, 2}}, {{3}}},
 kProduct},
{"conv_transpose2d(groups)",
 [](In x) { return conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .groups = 2, .dilation = {3, 1}}); },
 [](Ref x) { return transposed(x, {{2, 2}, {0, 0}, {0, 0}, {3, 1}, 2}, {6, 6}); },
 {{{1, 4, 2, 3}}, {{4, 1, 2, 2}}, {{2}}}, kProduct},
{"conv_transpose2d(output_padding)",
 [](In x) { return conv_transpose2d(x[0], x[1], {}, {.stride = 2, .padding = 1, .output_padding = 2, .dilation = 3}); },
 [](Ref x) { return transposed(x, {{2, 2}, {1, 1}, {1, 1}, {3, 3}}, {6, 8}); }, {{{1, 2, 2, 3}}, {{2, 2, 2, 2}}}, kProduct},
{"conv_transpose2d(one)", [](In x) { return conv_transpose2d(x[0], x[1], x[2]); },
 [](Ref x) { return transposed(x, kFlat, {3, 4}); }, {{{2, 2, 3}}, {{2, 3, 2, 2}}, {{3}}}, kProduct},
{"conv_transpose3d", [](In x) { return conv_transpose3d(x[0], x[1], x[2], {.stride = {1, 2, 1}}); },
 [](Ref x) { return transposed(x, {{1, 2, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}}, {3, 3, 4}); },
 {{{1, 2, 2, 2, 3}}, {{2, 1, 2, 1, 2}}, {{1}}}, kProduct},

// ---- channels last

{"conv1d(channels last)", [](In x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 1, [](Ref y) { return convolution(y, {{2}, {1}, {1}, {1}}); }); },
 {{{2, 6, 3}}, {{4, 3, 3}}, {{4}}}, kProduct},
{"conv2d(channels last)",
 [](In x) {
   return conv2d(x[0], x[1], x[2],
                 {.stride = {2, 1}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2, .channels_last = true});
 },
 [](Ref x) {
   return ref::channels_last(x, 2, [](Ref y) { return convolution(y, {{2, 1}, {2, 1}, {2, 1}, {1, 2}, 2}); });
 }, {{{2, 4, 5, 4}}, {{6, 2, 3, 2}}, {{6}}}, kProduct},
{"conv2d(channels last, one)", [](In x) { return conv2d(x[0], x[1], {}, {.padding = kSame, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return convolution(y, {{1, 1}, {1, 0}, {1, 1}, {1, 1}}); }); },
 {{{4, 5, 3}}, {{2, 3, 3, 2}}}, kProduct},
{"conv2d(channels last, no batch)", [](In x) { return conv2d(x[0], x[1], x[2], {.channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return convolution(y, kFlat); }); },
 {{{0, 4, 4, 2}}, {{3, 2, 3, 3}}, {{3}}}, kProduct},
{"conv2d(channels last, blocks)", [](In x) { return conv2d(x[0], x[1], x[2], {.padding = 1, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return convolution(y, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}); }); },
 {{{2, 5, 5, 16}}, {{32, 16, 3, 3}}, {{32}}}, kLarge},
{"conv3d(channels last)", [](In x) { return conv3d(x[0], x[1], x[2], {.stride = {1, 2, 1}, .channels_last = true}); },
 [](Ref x) {
   return ref::channels_last(x, 3, [](Ref y) { return convolution(y, {{1, 2, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}}); });
 }, {{{1, 2, 4, 3, 2}}, {{2, 2, 2, 3, 2}}, {{2}}}, kProduct},
{"conv_transpose1d(channels last)",
 [](In x) { return conv_transpose1d(x[0], x[1], x[2], {.stride = 3, .padding = 1, .output_padding = 2, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 1, [](Ref y) { return transposed(y, {{3}, {1}, {1}, {1}}, {15}); }); },
 {{{2, 5, 3}}, {{3, 2, 3}}, {{2}}}, kProduct},
{"conv_transpose2d(channels last)",
 [](In x) { return conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .groups = 2, .dilation = {3, 1}, .channels_last = true}); },
 [](Ref x) {
   return ref::channels_last(x, 2, [](Ref y) { return transposed(y, {{2, 2}, {0, 0}, {0, 0}, {3, 1}, 2}, {6, 6}); });
 }, {{{1, 2, 3, 4}}, {{4, 1, 2, 2}}, {{2}}}, kProduct},

// ---- sliding windows

{"unfold",
 [](In x) { return unfold(x[0], {3, 2}, {.dilation = {1, 2}, .padding = {1, 2}, .stride = {2, 1}}); },
 [](Ref x) { return columns(x[0], 3, 2, {{2, 1}, {1, 2}, {1, 2}, {1, 2}}); }, {{{2, 2, 4, 5}}}},
{"unfold(one)", [](In x) { return unfold(x[0], 2); }, [](Ref x) { return columns(x[0], 2, 2, kFlat); }, {{{2, 3, 4}}}},
{"fold",
 [](In x) { return fold(x[0], {4, 5}, {3, 2}, {.dilation = {1, 2}, .padding = {1, 2}, .stride = {2, 1}}); },
 [](Ref x) { return image(x[0], {4, 5}, {2, 7}, 3, 2, {{2, 1}, {1, 2}, {1, 2}, {1, 2}}); }, {{{2, 12, 14}}}, kProduct},
{"fold(one)", [](In x) { return fold(x[0], {3, 4}, 2); }, [](Ref x) { return image(x[0], {3, 4}, {2, 3}, 2, 2, kFlat); },
 {{{8, 6}}}, kProduct},

};
  return rows;
}
// clang-format on

// ---- what a row cannot say ------------------------------------------------------------------------------------------

namespace {

using Call = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

/// Of x, the weight and, if there is one, the bias.
Tensors gradients(const Call& call, Tensors inputs, const Tensor& cotangent) {
  for (Tensor& input : inputs) input = input.detach().requires_grad_();
  const Tensor y = call(inputs[0], inputs.size() > 1 ? inputs[1] : Tensor(), inputs.size() > 2 ? inputs[2] : Tensor());
  return grad({&y, 1}, inputs, {&cotangent, 1});
}

double distance(const Tensor& a, const Tensor& b) {
  return max(abs(a.to(kFloat64) - b.to(kFloat64))).item<double>() / (1e-30 + max(abs(b)).item<double>());
}

}  // namespace

// As in test/reference/conv.py.
static Tensor numbers(const Shape& shape, int64_t start = 0) {
  const Tensor i = arange(start, start + shape.numel());
  return ((fmod(i * 7919, 31) - 15).to(kFloat64) / 8).view(shape);
}

TEST_CASE("convolutions, windows and padding agree with PyTorch", "[conv]") {
  struct Case {
    const char* name;
    Call call;
    Shape x, weight, bias;
  };
  const std::vector<Case> cases{
      {"conv1d",
       [](auto& x, auto& w, auto& b) { return conv1d(x, w, b, {.stride = 2, .padding = 1}); },
       {2, 3, 9},
       {4, 3, 3},
       {4}},
      {"conv1d.same",
       [](auto& x, auto& w, auto& b) { return conv1d(x, w, b, {.padding = kSame, .dilation = 2}); },
       {2, 2, 7},
       {3, 2, 4},
       {3}},
      {"conv2d",
       [](auto& x, auto& w, auto& b) {
         return conv2d(x, w, b, {.stride = {2, 1}, .padding = {2, 1}, .dilation = {1, 2}});
       },
       {2, 2, 7, 6},
       {3, 2, 3, 2},
       {3}},
      {"conv2d.same",
       [](auto& x, auto& w, auto& b) { return conv2d(x, w, b, {.padding = kSame}); },
       {1, 2, 5, 6},
       {2, 2, 4, 3},
       {}},
      {"conv2d.groups",
       [](auto& x, auto& w, auto& b) { return conv2d(x, w, b, {.padding = 1, .groups = 2}); },
       {2, 4, 5, 5},
       {6, 2, 3, 3},
       {6}},
      {"conv2d.unbatched", [](auto& x, auto& w, auto& b) { return conv2d(x, w, b); }, {2, 5, 5}, {3, 2, 3, 3}, {3}},
      {"conv3d",
       [](auto& x, auto& w, auto& b) {
         return conv3d(x, w, b, {.stride = {1, 2, 2}, .padding = {0, 1, 1}});
       },
       {1, 2, 4, 5, 4},
       {2, 2, 2, 3, 2},
       {2}},
      {"conv_transpose1d",
       [](auto& x, auto& w, auto& b) {
         return conv_transpose1d(x, w, b, {.stride = 3, .padding = 2, .output_padding = 1});
       },
       {2, 3, 5},
       {3, 2, 4},
       {2}},
      {"conv_transpose2d",
       [](auto& x, auto& w, auto& b) {
         return conv_transpose2d(
             x, w, b, {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2, .dilation = {2, 1}});
       },
       {2, 4, 4, 3},
       {4, 3, 3, 2},
       {6}},
      {"conv_transpose3d",
       [](auto& x, auto& w, auto& b) {
         return conv_transpose3d(x, w, b, {.stride = 2, .output_padding = {1, 0, 1}});
       },
       {1, 2, 3, 2, 3},
       {2, 2, 2, 2, 3},
       {2}},
      {"unfold",
       [](auto& x, auto&, auto&) {
         return unfold(x, {3, 2}, {.dilation = {1, 2}, .padding = {1, 2}, .stride = {2, 1}});
       },
       {2, 2, 5, 6},
       {},
       {}},
      {"fold",
       [](auto& x, auto&, auto&) {
         return fold(x, {5, 6}, {3, 2}, {.dilation = {1, 2}, .padding = {1, 2}, .stride = {2, 1}});
       },
       {2, 12, 24},
       {},
       {}},
      {"pad.constant",
       [](auto& x, auto&, auto&) {
         return pad(x, {1, -2, -1, 2}, kConstant, 0.5);
       },
       {2, 3, 4},
       {},
       {}},
      {"pad.reflect",
       [](auto& x, auto&, auto&) {
         return pad(x, {4, 2, 1, 3}, kReflect);
       },
       {2, 4, 5},
       {},
       {}},
      {"pad.reflect.crop",
       [](auto& x, auto&, auto&) {
         return pad(x, {-1, 3}, kReflect);
       },
       {2, 5},
       {},
       {}},
      {"pad.replicate",
       [](auto& x, auto&, auto&) {
         return pad(x, {1, 2, 0, 3, 2, 1}, kReplicate);
       },
       {1, 2, 3, 2, 2},
       {},
       {}},
      {"pad.replicate.crop",
       [](auto& x, auto&, auto&) {
         return pad(x, {2, -3}, kReplicate);
       },
       {2, 5},
       {},
       {}},
      {"pad.circular",
       [](auto& x, auto&, auto&) {
         return pad(x, {4, 1, 0, 3}, kCircular);
       },
       {2, 1, 3, 4},
       {},
       {}},
      {"pad.circular.crop",
       [](auto& x, auto&, auto&) {
         return pad(x, {-2, 3}, kCircular);
       },
       {2, 5},
       {},
       {}},
  };
  const StateDict pins = load_reference("conv.safetensors");
  size_t compared = 0;
  for (const auto& [name, call, x, weight, bias] : cases)
    for (const DType dtype : {kFloat32, kFloat64}) {
      INFO(name << ' ' << dtype);
      const auto check = [&, name = std::string(name)](const char* key, const Tensor& found) {
        const Tensor* pin = find(pins, name + "/" + key);
        REQUIRE(pin);
        CHECK(found.shape() == pin->shape());
        CHECK(found.to_vector<float>() == pin->to_vector<float>());
        compared += dtype == kFloat32;
      };
      Tensors inputs{numbers(x).to(dtype)};
      if (!weight.empty()) inputs.push_back(numbers(weight, 5).to(dtype));
      if (!bias.empty()) inputs.push_back(numbers(bias, 9).to(dtype));
      const Tensor y =
          call(inputs[0], inputs.size() > 1 ? inputs[1] : Tensor(), inputs.size() > 2 ? inputs[2] : Tensor());
      check("y", y);
      const Tensors found = gradients(call, inputs, numbers(y.shape(), 3).to(dtype));
      const char* const keys[] = {"grad_x", "grad_weight", "grad_bias"};
      for (size_t i = 0; i < found.size(); ++i) check(keys[i], found[i]);
    }
  CHECK(compared == pins.size());
}

TEST_CASE("float32 convolutions have the gradients of float64 ones", "[conv][isa]") {
  struct Case {
    const char* what;
    Shape x, weight;
    Call call;
  };
  const auto conv = [](ConvOptions<2> options) {
    return [options](auto& x, auto& w, auto& b) { return conv2d(x, w, b, options); };
  };
  const std::vector<Case> cases{
      {"digits", {4, 1, 28, 28}, {20, 1, 5, 5}, conv({})},
      {"odd channels", {4, 20, 12, 12}, {50, 20, 5, 5}, conv({})},
      {"blocks", {2, 32, 14, 14}, {64, 32, 3, 3}, conv({.stride = 2, .padding = 1})},
      {"same", {2, 16, 9, 7}, {16, 16, 4, 2}, conv({.padding = kSame})},
      {"pixels", {2, 24, 7, 7}, {40, 24, 1, 1}, conv({})},
      {"each channel", {2, 16, 9, 9}, {16, 1, 3, 3}, conv({.padding = 1, .groups = 16})},
      {"groups", {2, 24, 9, 9}, {36, 8, 3, 3}, conv({.padding = 2, .dilation = 2, .groups = 3})},
      {"words", {3, 1, 17, 50}, {20, 1, 4, 50}, conv({})},
      {"words with edges", {3, 1, 17, 50}, {20, 1, 3, 50}, conv({.stride = {2, 1}, .padding = {2, 0}})},
      {"the stride skips the end", {2, 8, 10, 11}, {8, 8, 2, 3}, conv({.stride = {3, 4}})},
      {"sequence", {3, 30, 12}, {25, 30, 3}, [](auto& x, auto& w, auto& b) { return conv1d(x, w, b, {.padding = 1}); }},
      {"volume",
       {2, 3, 6, 7, 8},
       {5, 3, 3, 3, 3},
       [](auto& x, auto& w, auto& b) {
         return conv3d(x, w, b, {.stride = {1, 2, 1}, .padding = 1});
       }},
      {"transposed",
       {2, 20, 5, 6},
       {20, 12, 3, 3},
       [](auto& x, auto& w, auto& b) {
         return conv_transpose2d(x, w, b, {.stride = 2, .padding = 1, .output_padding = 1});
       }},
  };
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const Case& c : cases) {
      INFO(c.what << ", " << threads << " threads");
      manual_seed(5);
      const bool transposed = c.what == std::string("transposed");
      const Tensors inputs{randn(c.x), randn(c.weight), randn({c.weight[transposed ? 1 : 0]})};
      Tensors wide;
      for (const Tensor& input : inputs) wide.push_back(input.to(kFloat64));
      const Tensor y = c.call(inputs[0], inputs[1], inputs[2]), exact = c.call(wide[0], wide[1], wide[2]);
      REQUIRE(y.shape() == exact.shape());
      CHECK(distance(y, exact) < 1e-5);
      const Tensor cotangent = randn(y.shape());
      const Tensors found = gradients(c.call, inputs, cotangent),
                    expected = gradients(c.call, wide, cotangent.to(kFloat64));
      for (size_t i = 0; i < found.size(); ++i) CHECK(distance(found[i], expected[i]) < 1e-5);
    }
  }
  set_num_threads(1);
}

TEST_CASE("threads convolve side by side", "[conv][threads]") {
  manual_seed(6);
  const Tensor x = randn({2, 6, 9, 9}), w = randn({8, 6, 3, 3}).requires_grad_();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int step = 0; step < 5; ++step) sum(conv2d(x, w)).backward();
    });
  for (std::thread& thread : threads) thread.join();
  const Tensor once = grad({sum(conv2d(x, w))}, {w})[0];
  CHECK(distance(w.grad(), once * 20) < 1e-5);
}

TEST_CASE("a convolution of nothing is the bias", "[conv]") {
  const Tensor w = ones({3, 2, 3, 3}).requires_grad_(), b = ones({3}).requires_grad_();
  const Tensor none = conv2d(ones({0, 2, 5, 4}), w, b);
  CHECK(none.shape() == Shape{0, 3, 3, 2});
  sum(none).backward();
  CHECK(sum(abs(w.grad())).item<float>() == 0);
  CHECK(sum(abs(b.grad())).item<float>() == 0);
  const Tensor edges = conv2d(ones({1, 2, 0, 2}), w, b, {.padding = 2});
  CHECK(edges.shape() == Shape{1, 3, 2, 4});
  CHECK(edges.to_vector<float>() == std::vector<float>(24, 1));
}

TEST_CASE("a convolution can be differentiated three times", "[conv]") {
  manual_seed(3);
  const Tensors inputs{randn({1, 2, 5}, {.dtype = kFloat64}), randn({2, 2, 3}, {.dtype = kFloat64})};
  const auto slope = [](const Tensors& in) {
    const Tensor x = in[0] * 1, w = in[1] * 1, y = pow(conv1d(x, w, {}, {.stride = 2, .padding = 1}), 3);
    const Tensors first = grad({sum(y)}, {x, w}, {}, {.create_graph = true});
    return sum(first[0] * first[0]) + sum(first[1] * first[1]);
  };
  testing::gradgradcheck(slope, inputs);
}

TEST_CASE("more shapes than a thread remembers convolve as the first ones did", "[conv]") {
  const Tensor w = ones({2, 3, 3});
  for (int round = 0; round < 2; ++round)
    for (int64_t length = 3; length < 303; ++length)
      REQUIRE(sum(conv1d(ones({1, 3, length}), w)).item<float>() == static_cast<float>(18 * (length - 2)));
}

// ---- a oneDNN that fails --------------------------------------------------------------------------------------------

namespace {
constexpr int kNever = 1 << 30;
thread_local int calls_until_failure = kNever;  // and from then on they all fail
thread_local int failures = 0;
}  // namespace

/// In the place of oneDNN's own, which it calls.
extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  using Execute = decltype(&dnnl_primitive_execute);
  static const auto real = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  constexpr int kOutOfMemory = 1;
  if (calls_until_failure == 0) return ++failures, kOutOfMemory;
  --calls_until_failure;
  return real(primitive, stream, count, arguments);
}

TEST_CASE("a convolution is computed where oneDNN fails", "[conv][cpu]") {
  manual_seed(4);
  const Tensor x = randn({2, 16, 7, 8}).to(kFloat32), w = randn({16, 16, 3, 3}).to(kFloat32);
  const Tensor pull = randn({2, 16, 5, 6}).to(kFloat32);
  const auto run = [&](int calls, DType dtype) {
    const Tensor a = x.to(dtype).clone().requires_grad_(), b = w.to(dtype).clone().requires_grad_();
    calls_until_failure = calls;
    const Tensor y = conv2d(a, b);
    y.backward(pull.to(dtype));
    calls_until_failure = kNever;
    return std::vector{y.detach(), a.grad(), b.grad()};
  };
  const auto expected = run(kNever, kFloat64);
  for (int calls = 0; calls < 4; ++calls) {
    INFO("the first " << calls << " calls succeed");
    failures = 0;
    const auto found = run(calls, kFloat32);
    CHECK(failures > 0);
    for (size_t i = 0; i < found.size(); ++i)
      CHECK_NOTHROW(testing::assert_close(found[i].to(kFloat64), expected[i], {.rtol = 1e-4, .atol = 1e-4}));
  }
}

TEST_CASE("wrong convolutions say what is wrong", "[conv][errors]") {
  const WrongCall calls[] = {
      {[](World& w) { conv1d(w.vector, w.cube); }, "conv1d: expected x of shape [n, in, l] or [in, l], got [3]"},
      {[](World& w) { conv2d(w.matrix, w.cube); },
       "conv2d: expected x of shape [n, in, h, w] or [in, h, w], got [3, 4]"},
      {[](World& w) { conv1d(w.cube, w.matrix); }, "conv1d: expected a weight with 3 dimensions, got shape [3, 4]"},
      {[](World& w) { conv1d(w.undefined, w.cube); }, "conv1d: undefined tensor"},
      {[](World& w) { conv1d(w.cube, w.undefined); }, "conv1d: undefined tensor"},
      {[](World& w) { conv1d(w.cube, w.cube.to(kFloat64)); }, "conv1d: x is float32, the weight float64"},
      {[](World& w) { conv1d(w.cube, w.cube, w.doubles); }, "conv1d: a bias of shape [4, 3] for 2 output channels"},
      {[](World& w) {
         conv1d(w.ids.view({1, 3}), w.cube);
       },
       "conv1d: needs floating-point tensors, got int64"},
      {[](World& w) { conv1d(w.cube, w.cube, w.vector); }, "conv1d: a bias of shape [3] for 2 output channels"},
      {[](World& w) {
         conv1d(w.cube, zeros({2, 2, 1}));
       },
       "conv1d: x of shape [2, 3, 4], [n, in, l], has 3 channels, a weight of shape [2, 2, 1] in 1 groups takes 2"},
      {[](World& w) {
         conv1d(w.cube, zeros({2, 3, 1}), {}, {.channels_last = true});
       },
       "conv1d: x of shape [2, 3, 4], [n, l, in], has 4 channels, a weight of shape [2, 3, 1] in 1 groups takes 3"},
      {[](World& w) { conv2d(w.matrix, w.cube, {}, {.channels_last = true}); },
       "conv2d: expected x of shape [n, h, w, in] or [h, w, in], got [3, 4]"},
      {[](World& w) {
         conv1d(w.cube, zeros({2, 0, 1}));
       },
       "conv1d: the weight's shape [2, 0, 1] has no elements"},
      {[](World& w) {
         conv1d(w.cube, zeros({2, 1, 1}), {}, {.groups = 3});
       },
       "conv1d: 2 output channels do not divide into 3 groups"},
      {[](World& w) { conv1d(w.cube, w.cube, {}, {.groups = 0}); }, "conv1d: 0 groups"},
      {[](World& w) {
         conv1d(w.cube, zeros({2, 3, 5}));
       },
       "conv1d: a kernel of size 5 and dilation 1 does not fit into x of shape [2, 3, 4] with padding [0]"},
      {[](World& w) { conv1d(w.cube, w.cube, {}, {.stride = 0}); }, "conv1d: stride [0], of at least 1 expected"},
      {[](World& w) { conv1d(w.cube, w.cube, {}, {.padding = -1}); }, "conv1d: padding [-1], of at least 0 expected"},
      {[](World& w) { conv1d(w.cube, w.cube, {}, {.dilation = 0}); }, "conv1d: dilation [0], of at least 1 expected"},
      {[](World& w) { conv1d(w.cube, w.cube, {}, {.stride = 2, .padding = kSame}); },
       "conv1d: padding kSame needs stride 1, got [2]"},
      {[](World& w) { conv_transpose1d(w.cube, w.cube); },
       "conv_transpose1d: x of shape [2, 3, 4], [n, in, l], has 3 channels, a weight of shape [2, 3, 4] takes 2"},
      {[](World& w) {
         conv_transpose1d(w.cube, zeros({3, 2, 2}), {}, {.groups = 2});
       },
       "conv_transpose1d: 3 input channels do not divide into 2 groups"},
      {[](World& w) {
         conv_transpose1d(w.cube, zeros({3, 2, 2}), w.vector);
       },
       "conv_transpose1d: a bias of shape [3] for 2 output channels"},
      {[](World& w) {
         conv_transpose1d(w.cube, zeros({3, 2, 2}), {}, {.output_padding = 1});
       },
       "conv_transpose1d: output_padding [1] is neither less than stride [1] nor than dilation [1]"},
      {[](World& w) {
         conv_transpose1d(w.cube, zeros({3, 2, 1}), {}, {.padding = 2});
       },
       "conv_transpose1d: x of shape [2, 3, 4] and a weight of shape [3, 2, 1] with padding [2] leave no output"},
      {[](World& w) { unfold(w.matrix, 2); }, "unfold: expected x of shape [n, c, h, w] or [c, h, w], got [3, 4]"},
      {[](World& w) { unfold(w.cube, 5); },
       "unfold: a kernel of size [5, 5] and dilation [1, 1] does not fit into size [3, 4] with padding [0, 0]"},
      {[](World&) {
         unfold(zeros({4, 1, 1}), INT32_MAX, {.padding = 1 << 30});
       },
       "shape [4, 2147483647, 2147483647]: too many elements for 63 bits"},
      {[](World& w) { fold(w.cube, INT32_MAX, 1, {.padding = INT32_MAX}); },
       "shape [6442450941, 6442450941]: too many elements for 63 bits"},
      {[](World& w) { unfold(w.cube.to(kInt64), 2); }, "unfold: needs a floating-point tensor, got int64"},
      {[](World& w) { fold(w.vector, 2, 2); },
       "fold: expected x of shape [n, c * kernel, windows] or [c * kernel, windows], got [3]"},
      {[](World& w) { fold(w.cube, 3, 2); },
       "fold: x of shape [2, 3, 4] has 3 rows, not a multiple of 4, the kernel's area"},
      {[](World& w) {
         fold(w.cube, 2, {3, 1});
       },
       "fold: a kernel of size [3, 1] and dilation [1, 1] does not fit into size [2, 2] with padding [0, 0]"},
      {[](World& w) {
         fold(w.cube, {4, 1}, {3, 1});
       },
       "fold: x of shape [2, 3, 4] has 4 columns, but there are 2 x 1 = 2 windows"},
      {[](World&) { set_num_threads(0); }, "set_num_threads: 0 threads"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
