// Nets whose channels lie last beside the same nets whose channels lie first, from one state dict.
#include <catch2/catch.hpp>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/batching.h"
#include "reel/models.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"

using namespace reel;

namespace {

const testing::AssertCloseOptions kClose{.rtol = 1e-4, .atol = 1e-4};

Tensor laid_out(const Tensor& images, bool channels_last) { return channels_last ? movedim(images, 1, -1) : images; }

/// Layers of every kind that have the option, one after the other.
struct Net : nn::Layer<Net> {
  explicit Net(bool last)
      : same(*this, "same", 3, 8, 3, {.padding = kSame, .padding_mode = kReflect, .channels_last = last}),
        norm(*this, "norm", 8, {.channels_last = last}),
        most(*this, "most", 3, {.stride = 2, .padding = 1, .channels_last = last}),
        groups(*this, "groups", 8, 12, 3,
               {.padding = {2, 1}, .groups = 4, .padding_mode = kCircular, .channels_last = last}),
        up(*this, "up", 12, 6, 3, {.stride = 2, .padding = 1, .channels_last = last}),
        larger(*this, "larger", {.scale_factor = {1.5}, .mode = kBilinear, .channels_last = last}),
        mean(*this, "mean", 2, {.channels_last = last}),
        adaptive(*this, "adaptive", {3, 4}, {.channels_last = last}),
        one(*this, "one", 1, {.channels_last = last}),
        out(*this, "out", 6, 5) {}
  Tensor forward(const Tensor& x) const {
    const Tensor a = groups(most(relu(norm(same(x)))));
    const Tensor b = mean(larger(up(a, PerDim<2>{18, 12})));
    return out(one(adaptive(b)).flatten(1));
  }

  nn::Conv2d same;
  nn::BatchNorm2d norm;
  nn::MaxPool2d most;
  nn::Conv2d groups;
  nn::ConvTranspose2d up;
  nn::Upsample larger;
  nn::AvgPool2d mean;
  nn::AdaptiveMaxPool2d adaptive;
  nn::AdaptiveAvgPool2d one;
  nn::Linear out;
};

/// The losses, gradients and running statistics of two nets that begin alike.
template <class Model>
void compare(Model& first, Model& last, const Tensor& images) {
  last.load_state_dict(first.state_dict());
  const Tensor target = remainder(arange(images.size(0)), 5);
  const Tensor losses[] = {cross_entropy(first(images), target), cross_entropy(last(laid_out(images, true)), target)};
  testing::assert_close(losses[1], losses[0], kClose);
  for (const Tensor& loss : losses) loss.backward();
  const auto named = first.named_parameters(), other = last.named_parameters();
  REQUIRE(named.size() == other.size());
  for (size_t i = 0; i < named.size(); ++i) {
    INFO(named[i].first);
    CHECK(named[i].first == other[i].first);
    testing::assert_close(other[i].second.grad(), named[i].second.grad(), kClose);
  }
  const StateDict moved = first.state_dict();
  for (const auto& [name, x] : last.state_dict()) testing::assert_close(x, moved.at(name), kClose);
  first.eval(), last.eval();
  NoGrad guard;
  testing::assert_close(last(laid_out(images, true)), first(images), kClose);
}

}  // namespace

TEST_CASE("layers on channels that lie last have the gradients of those on channels that lie first", "[nn][conv]") {
  manual_seed(2);
  Net first(false), last(true);
  compare(first, last, randn({3, 3, 14, 12}));
}

TEST_CASE("residual nets on channels that lie last train as those on channels that lie first", "[nn]") {
  manual_seed(3);
  models::ResNetOptions options{.layers = {1, 1, 1}, .num_classes = 5, .width = 8};
  for (const bool projection : {true, false}) {
    options.projection = projection, options.channels_last = false;
    models::ResNet first(options);
    options.channels_last = true;
    models::ResNet last(options);
    compare(first, last, randn({4, 3, 33, 30}));
  }
  CHECK(models::resnet8({.channels_last = true})(randn({1, 9, 7, 3})).shape() == Shape{1, 10});
}

TEST_CASE("layers without a batch take channels last, too", "[nn][conv]") {
  manual_seed(4);
  const Tensor x = randn({3, 9, 8});
  const nn::Conv2d first(3, 4, 3, {.padding = 1, .padding_mode = kReplicate});
  nn::Conv2d last(3, 4, 3, {.padding = 1, .padding_mode = kReplicate, .channels_last = true});
  last.load_state_dict(first.state_dict());
  testing::assert_close(movedim(last(movedim(x, 0, -1)), -1, 0), first(x), kClose);
  const nn::Conv3d deep(2, 3, 2, {.padding = 1, .padding_mode = kReflect});
  nn::Conv3d deep_last(2, 3, 2, {.padding = 1, .padding_mode = kReflect, .channels_last = true});
  deep_last.load_state_dict(deep.state_dict());
  const Tensor volume = randn({1, 2, 4, 3, 5});
  testing::assert_close(movedim(deep_last(movedim(volume, 1, -1)), -1, 1), deep(volume), kClose);
}

TEST_CASE("layers on channels that lie last say so", "[nn][conv]") {
  CHECK(nn::Conv2d(2, 4, 1, {.channels_last = true}).to_string() ==
        "Conv2d(2, 4, kernel_size=(1, 1), stride=(1, 1), channels_last=true)");
  CHECK(nn::ConvTranspose1d(2, 4, 1, {.channels_last = true}).to_string() ==
        "ConvTranspose1d(2, 4, kernel_size=(1,), stride=(1,), channels_last=true)");
  CHECK(nn::AdaptiveAvgPool2d(1, {.channels_last = true}).to_string() ==
        "AdaptiveAvgPool2d(output_size=1, channels_last=true)");
  CHECK(nn::AvgPool2d(2, {.channels_last = true}).to_string() ==
        "AvgPool2d(kernel_size=2, stride=2, padding=0, channels_last=true)");
  CHECK(nn::BatchNorm2d(3, {.channels_last = true}).to_string() ==
        "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true, channels_last=true)");
}

TEST_CASE("a layer that is not told that channels lie last says what it expects", "[nn][errors]") {
  using Catch::Matchers::Contains;
  const Tensor x = randn({2, 8, 9, 4});
  CHECK_THROWS_WITH(nn::Conv2d(4, 6, 3)(x), Contains("x of shape [2, 8, 9, 4], [n, in, h, w], has 8 channels"));
  CHECK_THROWS_WITH(nn::Conv2d(8, 6, 3, {.channels_last = true})(x),
                    Contains("x of shape [2, 8, 9, 4], [n, h, w, in], has 4 channels"));
  CHECK_THROWS_WITH(nn::BatchNorm2d(4)(x), Contains("8 channels of x [2, 8, 9, 4], [n, channels, …]"));
}

TEST_CASE("both layouts of one layer's shape are batched apart, and cast as they are", "[nn][batching]") {
  manual_seed(6);
  nn::Conv2d first(4, 4, 3, {.padding = 1});
  nn::Conv2d last(4, 4, 3, {.padding = 1, .channels_last = true});
  last.load_state_dict(first.state_dict());
  std::vector<Tensor> images;
  for (int i = 0; i < 4; ++i) images.push_back(randn({1, 4, 4, 4}));
  const auto both = [&](const Tensor& x) { return first(x) + movedim(last(movedim(x, 1, -1)), -1, 1); };
  const std::vector<Tensor> together = batching::map(images, both);
  for (size_t i = 0; i < images.size(); ++i) testing::assert_close(together[i], 2 * first(images[i]), kClose);
  const amp::Autocast cast(kBFloat16);
  CHECK(last(images[0]).dtype() == kBFloat16);
  CHECK(equal(movedim(last(movedim(images[0], 1, -1)), -1, 1), first(images[0])));
}
