#include "reel/data/transforms.h"

#include "reel/data/dataset.h"
#include "reel/data/loader.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/pch.h"

using namespace reel;
using namespace reel::data::transforms;
using Catch::Matchers::Contains;

namespace {
/// uint8 [channels, height, width], each element its position modulo 251.
Tensor numbered(int64_t channels, int64_t height, int64_t width) {
  return remainder(arange(channels * height * width), 251).to(kUInt8).view({channels, height, width});
}
}  // namespace

TEST_CASE("crops are parts of the padded image, at every place", "[data][cpu]") {
  manual_seed(1);
  const Tensor image = numbered(2, 4, 5), padded = pad(image, {2, 2, 2, 2}, kConstant, 9);
  const RandomCrop crop({3, 5}, {.padding = 2, .fill = 9});
  std::vector<int> found(6 * 5);
  for (int i = 0; i < 600; ++i) {
    const Tensor part = crop(image);
    CHECK(part.shape() == Shape{2, 3, 5});
    CHECK(part.dtype() == kUInt8);
    int matches = 0;
    for (int64_t top = 0; top <= 5; ++top)
      for (int64_t left = 0; left <= 4; ++left)
        if (equal(part, padded.narrow(1, top, 3).narrow(2, left, 5))) ++found[top * 5 + left], ++matches;
    CHECK(matches == 1);
  }
  CHECK(*std::min_element(found.begin(), found.end()) > 0);  // of 20 on average
  const Tensor mirrored = RandomCrop({8, 9}, {.padding = 2, .padding_mode = kReflect})(image.to(kFloat32));
  CHECK(equal(mirrored, pad(image.to(kFloat32), {2, 2, 2, 2}, kReflect)));
  CHECK(equal(CenterCrop({2, 3})(image), image.narrow(1, 1, 2).narrow(2, 1, 3)));
}

TEST_CASE("flips happen as often as they are asked for", "[data][cpu]") {
  manual_seed(1);
  const Tensor image = numbered(3, 2, 3);
  int flipped = 0;
  for (int i = 0; i < 1000; ++i) flipped += equal(RandomHorizontalFlip(0.25)(image), flip(image, 2));
  CHECK(flipped > 200);  // 4 deviations
  CHECK(flipped < 300);
  CHECK(equal(RandomHorizontalFlip(0)(image), image));
  CHECK(equal(RandomHorizontalFlip(1)(image), flip(image, 2)));
}

TEST_CASE("pixels become numbers, normalised by channel", "[data][cpu]") {
  const Tensor image = tensor({0, 51, 255, 102}).to(kUInt8).view({2, 1, 2});
  const Tensor x = Compose(ConvertImageDtype(), Normalize({0, 0.5}, {1, 0.25}))(image);
  CHECK(x.dtype() == kFloat32);
  CHECK(max(abs(x.flatten() - tensor({0.f, 0.2f, 2.f, -0.4f}))).item<float>() < 1e-6);
  CHECK(ConvertImageDtype(kFloat64)(image).dtype() == kFloat64);
  CHECK(Normalize({0.5}, {0.5})(x).shape() == x.shape());
}

TEST_CASE("images are resized to a size or to a shorter side", "[data][cpu]") {
  const Tensor image = numbered(3, 8, 12);
  CHECK(Resize(4)(image).shape() == Shape{3, 4, 6});
  CHECK(Resize(16)(image.transpose(1, 2)).shape() == Shape{3, 24, 16});
  CHECK(Resize(4)(image).dtype() == kUInt8);
  CHECK(equal(Resize(8)(image), image));
  const Tensor x = image.to(kFloat32);
  CHECK(equal(Resize(5, 7)(x),
              interpolate(x.unsqueeze(0), {.size = {5, 7}, .mode = kBilinear, .antialias = true}).squeeze(0)));
  manual_seed(1);
  for (int i = 0; i < 50; ++i) CHECK(RandomResizedCrop({5, 6})(image).shape() == Shape{3, 5, 6});
  // An image that is too wide for any of the ratios: the largest part of a ratio of 4 / 3 in its middle.
  const Tensor wide = numbered(1, 3, 40);
  CHECK(equal(RandomResizedCrop({3, 4}, {.scale = {1, 1}})(wide), wide.narrow(2, 18, 4)));
}

TEST_CASE("random transforms come out the same for any number of workers, and anew in each epoch",
          "[data][threads][cpu]") {
  const data::TensorDataset set(numbered(40, 9, 9).view({40, 1, 9, 9}), arange(40));
  const auto shown = data::transform(set, Compose(RandomCrop(9, {.padding = 3}), RandomHorizontalFlip()));
  std::vector<Tensor> first;
  for (const int workers : {0, 1, 3}) {
    data::DataLoader loader(&shown, {.batch_size = 7, .shuffle = true, .workers = workers, .seed = 5});
    std::vector<Tensor> epochs;
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<Tensor> batches;
      for (auto [x, y] : loader) batches.push_back(x.flatten(1) + y.view({-1, 1}));
      epochs.push_back(sum(cat(batches).to(kFloat64), {1}));
      if (workers == 0)
        first.push_back(cat(batches));
      else
        CHECK(equal(cat(batches), first[static_cast<size_t>(epoch)]));
    }
    CHECK_FALSE(equal(sort(epochs[0]).values, sort(epochs[1]).values));
  }
}

TEST_CASE("transforms refuse what they cannot change", "[data][cpu]") {
  const Tensor image = numbered(3, 8, 8);
  CHECK_THROWS_WITH(RandomCrop(9)(image), Contains("RandomCrop: an image [3, 8, 8] with 0 pixels of padding"));
  CHECK_THROWS_WITH(RandomCrop({0, 3}), Contains("RandomCrop: a size of 0 x 3"));
  CHECK_THROWS_WITH(RandomCrop(3, {.padding = -1}), Contains("a padding of -1"));
  CHECK_THROWS_WITH(CenterCrop(9)(image), Contains("CenterCrop: an image [3, 8, 8] is smaller than 9 x 9"));
  CHECK_THROWS_WITH(CenterCrop(4)(image.select(0, 0)),
                    Contains("expected an image [channels, height, width], got [8, 8]"));
  CHECK_THROWS_WITH(RandomHorizontalFlip(1.5), Contains("a probability of 1.5"));
  CHECK_THROWS_WITH(RandomHorizontalFlip()(Tensor()), Contains("an undefined tensor"));
  CHECK_THROWS_WITH(Normalize({0, 0}, {1, 1})(image.to(kFloat32)),
                    Contains("means of 2 channels for an image [3, 8, 8]"));
  CHECK_THROWS_WITH(Normalize({0}, {1})(image), Contains("expected floating-point pixels, got uint8"));
  CHECK_THROWS_WITH(Normalize({0}, {0}), Contains("channel 0 has mean 0 and deviation 0"));
  CHECK_THROWS_WITH(Normalize({0, 1}, {1}), Contains("2 means and 1 deviations"));
  CHECK_THROWS_WITH(ConvertImageDtype(kInt64), Contains("expected a floating-point type, got int64"));
  CHECK_THROWS_WITH(ConvertImageDtype()(image.to(kInt64)), Contains("got int64"));
  CHECK_THROWS_WITH(Resize(4)(image.to(kInt64)), Contains("Resize: expected uint8 or floating-point"));
  CHECK_THROWS_WITH(RandomResizedCrop(4, {.scale = {0.5, 2}}), Contains("scale from 0.5 to 2"));
  CHECK_THROWS_WITH(RandomResizedCrop(4, {.ratio = {2, 1}}), Contains("ratio from 2 to 1"));
}
