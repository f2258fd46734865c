#include "reel/data/idx.h"

#include <cstdlib>

#include "reel/data/loader.h"
#include "reel/ops.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {
double distance(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }
}  // namespace

TEST_CASE("IDX files of every type", "[cpu]") {
  const Folder folder;
  const auto idx = [&](const std::string& bytes) { return data::read_idx(write(folder / "x", bytes)); };
  const Tensor bytes = idx("\0\0\x08\2\0\0\0\2\0\0\0\3"s + "\1\2\3\4\5\xff"s);
  CHECK(bytes.dtype() == kUInt8);
  CHECK(bytes.shape() == Shape{2, 3});
  CHECK(bytes.to_vector<int32_t>() == std::vector<int32_t>{1, 2, 3, 4, 5, 255});
  CHECK(idx("\0\0\x09\1\0\0\0\2\1\xff"s).to_vector<int32_t>() == std::vector<int32_t>{1, -1});
  CHECK(idx("\0\0\x0b\1\0\0\0\2\1\2\xff\xfe"s).to_vector<int32_t>() == std::vector<int32_t>{258, -2});
  CHECK(idx("\0\0\x0c\1\0\0\0\1\1\2\3\4"s).to_vector<int32_t>() == std::vector<int32_t>{0x01020304});
  CHECK(idx("\0\0\x0d\1\0\0\0\1\x3f\xc0\0\0"s).to_vector<float>() == std::vector<float>{1.5});
  CHECK(idx("\0\0\x0e\0\x3f\xf8\0\0\0\0\0\0"s).item<double>() == 1.5);
  CHECK(idx("\0\0\x08\2\0\0\0\0\0\0\0\5"s).shape() == Shape{0, 5});
  CHECK(data::read_idx(write_gzip(folder / "x.gz", "\0\0\x08\1\0\0\0\2\7\x08"s)).to_vector<int32_t>() ==
        std::vector<int32_t>{7, 8});
  std::string wide = "\0\0\x0b\1\0\0\x40\0"s;  // more than is converted at once
  for (int i = 0; i < 0x4000; ++i) (wide += static_cast<char>(i >> 8)) += static_cast<char>(i);
  CHECK(equal(idx(wide), arange(0x4000).to(kInt32)));
}

TEST_CASE("malformed IDX files are refused with the byte and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(data::read_idx(write(folder / "x", bytes)), Contains("x: byte " + message));
  };
  check("", "0: ends where 4 more bytes were expected");
  check("\0\0\x08"s, "3: ends where 1 more bytes");
  check("\0\1\x08\1"s, "0: not an IDX file, it begins with 0 1 8");
  check("\0\0\x0a\1"s, "0: not an IDX file");
  check("\0\0\x08\2\0\0\0\2"s, "8: ends where 4 more bytes");
  check("\0\0\x08\1\0\0\0\3\1\2"s, "8: the data of shape [3] has 3 bytes, where at most 2 can follow");
  check("\0\0\x08\1\0\0\0\1\1\2"s, "9: there are bytes after the end");
  check("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s,
        "16: the shape [4294967295, 4294967295, 4294967295] of the data is too large");
  check("\0\0\x08\2\xff\xff\xff\xff\0\0\0\0"s + "x", "12: there are bytes after the end");
  std::string many = "\0\0\x08\xff"s;
  for (int i = 0; i < 255; ++i) many += "\0\0\0\1"s;
  check(many, "1024: the data has 255 dimensions, more than 8");
  // A small gzip file cannot promise a terabyte.
  CHECK_THROWS_WITH(data::read_idx(write_gzip(folder / "x", "\0\0\x08\2\xff\xff\xff\xff\0\0\1\0"s)),
                    Contains("can follow"));
}

TEST_CASE("MNIST's files become images and labels", "[cpu]") {
  const Folder folder;
  std::string images = "\0\0\x08\3\0\0\0\3\0\0\0\2\0\0\0\2"s;
  for (int i = 0; i < 12; ++i) images += static_cast<char>(i * 20);
  write(folder / "train-images-idx3-ubyte", images);
  write_gzip(folder / "train-labels-idx1-ubyte.gz", "\0\0\x08\1\0\0\0\3\7\1\2"s);
  const data::Mnist mnist(folder.path);
  CHECK(mnist.size() == 3);
  const auto [image, label] = mnist.get(1);
  CHECK(image.shape() == Shape{1, 2, 2});
  CHECK(image.dtype() == kFloat32);
  CHECK(distance(image.flatten(), tensor({80., 100., 120., 140.}) / 255) < 1e-6);
  CHECK(label == 1);
  const data::Mnist normal(folder.path, {.mean = 0.5, .std = 0.25});
  CHECK(distance(normal.get(1).first, (image - 0.5) / 0.25) < 1e-5);

  data::DataLoader loader(mnist, {.batch_size = 2});
  data::DataLoader mapped(data::map(mnist, [](const auto& sample) { return sample; }), {.batch_size = 2});
  auto other = mapped.begin();
  for (auto [x, y] : loader) {
    CHECK(x.dim() == 4);
    CHECK(y.dtype() == kInt64);
    CHECK(equal(x, other->first));  // whole batches are the samples' batches
    CHECK(equal(y, other->second));
    ++other;
  }
  CHECK_THROWS_WITH(data::Mnist(folder.path, {.train = false}), Contains("t10k-images-idx3-ubyte.gz"));
  write(folder / "train-labels-idx1-ubyte", "\0\0\x08\1\0\0\0\2\7\1"s);
  CHECK_THROWS_WITH(data::Mnist(folder.path), Contains("expected labels, uint8 [3], got uint8 [2]"));
  write(folder / "train-images-idx3-ubyte", "\0\0\x08\1\0\0\0\0"s);
  CHECK_THROWS_WITH(data::Mnist(folder.path), Contains("expected images, uint8 [n, height, width], got uint8 [0]"));
}

TEST_CASE("real images are read whole", "[real]") {
  const char* data = std::getenv("REEL_DATA");
  if (!data) {
    WARN("skipped: REEL_DATA does not name a folder");
    return;
  }
  for (const char* name : {"mnist", "fashion-mnist"}) {
    const auto folder = std::filesystem::path(data) / name;
    const data::Mnist train(folder), test(folder, {.train = false});
    CHECK(train.images().shape() == Shape{60000, 28, 28});
    CHECK(test.images().shape() == Shape{10000, 28, 28});
    CHECK(max(train.images()).item<int>() == 255);
    CHECK(max(test.labels()).item<int>() == 9);
    const double mean_pixel = mean(train.images().to(kFloat64)).item<double>() / 255;
    CHECK(std::abs(mean_pixel - (name[0] == 'm' ? 0.1307 : 0.2860)) < 1e-4);
  }
}
