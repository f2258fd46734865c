#include "reel/data/cifar.h"

#include "reel/data/loader.h"
#include "reel/ops.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

/// An image whose red, green and blue are these everywhere but in the first pixel, which is white.
std::string pixels(uint8_t red, uint8_t green, uint8_t blue) {
  std::string all;
  for (const uint8_t value : {red, green, blue}) all += '\xff' + std::string(1023, static_cast<char>(value));
  return all;
}

}  // namespace

TEST_CASE("CIFAR-10's files become images and labels", "[cpu]") {
  const Folder folder;
  for (int i = 1; i <= 5; ++i)
    write(folder.path / ("data_batch_" + std::to_string(i) + ".bin"),
          std::string(1, static_cast<char>(i)) + pixels(0, 51, static_cast<uint8_t>(i)) + '\x09' + pixels(1, 2, 3));
  write_gzip(folder / "test_batch.bin.gz", std::string(1, '\0') + pixels(255, 102, 0));
  const data::Cifar10 train(folder.path),
      test(folder.path, {.train = false, .mean = {0, 0.5, 0.5}, .std = {1, 0.5, 2}});
  CHECK(train.size() == 10);
  CHECK(train.images().shape() == Shape{10, 3, 32, 32});
  CHECK(train.labels().to_vector<int64_t>() == std::vector<int64_t>{1, 9, 2, 9, 3, 9, 4, 9, 5, 9});
  CHECK(train.images().index({4, Slice(), 0, Slice(0, 2)}).to_vector<int>() ==
        std::vector<int>{255, 0, 255, 51, 255, 3});
  const auto [image, label] = train.get(0);
  CHECK(label == 1);
  CHECK(image.shape() == Shape{3, 32, 32});
  CHECK(image.dtype() == kFloat32);
  CHECK(image.index({1, 5, 7}).item<float>() == Approx(0.2));
  const Tensor normal = test.get(0).first.select(2, 31).select(1, 31);
  CHECK(max(abs(normal - tensor({1.f, -0.2f, -0.25f}))).item<float>() < 1e-6);

  data::DataLoader loader(train, {.batch_size = 4});
  data::DataLoader mapped(data::map(train, [](const auto& sample) { return sample; }), {.batch_size = 4});
  auto other = mapped.begin();
  for (auto [x, y] : loader) {
    CHECK(equal(x, other->first));  // whole batches are the samples' batches
    CHECK(equal(y, other->second));
    ++other;
  }
}

TEST_CASE("CIFAR-100's files have two labels an image", "[cpu]") {
  const Folder folder;
  write(folder / "train.bin", "\x13\x63" + pixels(1, 2, 3) + "\x01\x02" + pixels(4, 5, 6));
  CHECK(data::Cifar100(folder.path).labels().to_vector<int64_t>() == std::vector<int64_t>{99, 2});
  CHECK(data::Cifar100(folder.path, {{}, true}).labels().to_vector<int64_t>() == std::vector<int64_t>{19, 1});
  CHECK(data::Cifar100(folder.path).get(1).first.index({2, 1, 1}).item<float>() == Approx(6 / 255.));
}

TEST_CASE("malformed CIFAR files are refused with the byte and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(data::read_cifar(write(folder / "x", bytes), std::array<int64_t, 1>{10}),
                      Contains("x: byte " + message));
  };
  CHECK(data::read_cifar(write(folder / "x", ""), std::array<int64_t, 1>{10}).images.shape() == Shape{0, 3, 32, 32});
  check("\x0a" + pixels(1, 2, 3), "0: label 10 of 10 classes");
  check("\x01" + pixels(1, 2, 3) + "\xff", "3073: label 255 of 10 classes");
  check("\x01" + pixels(1, 2, 3).substr(1), "3072: ends where 1 more bytes were expected");
  check("\x01", "1: ends where 3072 more bytes were expected");
  write(folder / "data_batch_1.bin", "\x01" + pixels(1, 2, 3));
  CHECK_THROWS_WITH(data::Cifar10(folder.path), Contains("data_batch_2.bin"));
  CHECK_THROWS_WITH(data::Cifar10(folder.path, {.std = {1, 0, 1}}), Contains("channel 1 has mean 0 and std 0"));
}
