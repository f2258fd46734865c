#include "reel/image.h"

#include "reel/data/dataset.h"
#include "reel/data/loader.h"
#include "reel/data/transforms.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/folder.h"
#include "test/support/load.h"
#include "test/support/pch.h"

// Against torchvision: test/reference/images.py is the other side.
using namespace reel;
using Catch::Matchers::Contains;

namespace {

std::filesystem::path seed(const std::string& name) {
  return std::filesystem::path("test/fuzz/seeds") / (name.ends_with("png") ? "png" : "jpeg") / name;
}

int largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return max(abs(a.to(kInt32) - b.to(kInt32))).item<int>();
}

std::string big_endian(uint32_t x) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(x >> shift);
  return bytes;
}

}  // namespace

TEST_CASE("PNG of every kind, pixel by pixel", "[image][cpu]") {
  const StateDict figures = load_reference("images.safetensors");
  for (const char* name : {"gray.png", "gray_alpha.png", "rgb.png", "rgba.png", "deep.png", "bits.png", "palette.png",
                           "palette_alpha.png", "interlaced.png"}) {
    INFO(name);
    const Tensor image = image::read_image(seed(name));
    CHECK(image.dtype() == kUInt8);
    CHECK(equal(image, figures[name].cpu()));
  }
}

TEST_CASE("JPEG of every kind, as torchvision reads it", "[image][cpu]") {
  const StateDict figures = load_reference("images.safetensors");
  for (const char* name : {"rgb.jpg", "progressive.jpg", "gray.jpg"}) {
    INFO(name);
    CHECK(largest_difference(image::read_image(seed(name)), figures[name].cpu()) <= 1);
  }
  // From RGB to CMYK, to JPEG, and back.
  CHECK(largest_difference(image::read_image(seed("cmyk.jpg")), figures["cmyk.jpg"].cpu()) <= 24);
}

TEST_CASE("images are read with the channels that are asked for", "[image][cpu]") {
  const StateDict figures = load_reference("images.safetensors");
  const auto read = [](const char* name, image::ImageMode mode) {
    return image::read_image(seed(name), {.mode = mode});
  };
  const Tensor rgba = figures["rgba.png"].cpu(), gray = figures["gray.png"].cpu();
  CHECK(largest_difference(read("rgb.png", image::kGray), figures["rgb.png.gray"].cpu()) <= 1);
  CHECK(largest_difference(read("rgb.jpg", image::kGray), figures["rgb.jpg.gray"].cpu()) <= 1);
  CHECK(equal(read("rgba.png", image::kRgb), rgba.narrow(0, 0, 3)));
  CHECK(equal(read("rgba.png", image::kGrayAlpha).select(0, 1), rgba.select(0, 3)));
  CHECK(equal(read("gray.png", image::kRgb), gray.expand({3, -1, -1})));
  CHECK(equal(read("gray.png", image::kRgba), cat({gray.expand({3, -1, -1}), full_like(gray, 255)})));
  CHECK(equal(read("gray_alpha.png", image::kGray), figures["gray_alpha.png"].cpu().narrow(0, 0, 1)));
  CHECK(read("gray.jpg", image::kRgba).size(0) == 4);
}

TEST_CASE("images that are written are read back", "[image]") {
  const Folder folder;
  manual_seed(1);
  for (const int64_t channels : {1, 2, 3, 4}) {
    const Tensor image = randint(256, {channels, 5, 9}, {.dtype = kUInt8});
    image::write_image(image, folder / "x.png");
    CHECK(equal(image::read_image(folder / "x.png"), image.cpu()));
  }
  const Tensor gray = randint(256, {6, 4}, {.dtype = kUInt8});
  image::write_image(gray, folder / "x.PNG", {.compression_level = 0});
  CHECK(equal(image::read_image(folder / "x.PNG"), gray.cpu().unsqueeze(0)));
  const Tensor numbers = arange(12).view({1, 3, 4}) / 11;
  image::write_image(numbers, folder / "x.png");
  CHECK(equal(image::read_image(folder / "x.png"), round(numbers * 255).to(kUInt8).cpu()));
  // Views, and a smooth image that JPEG hardly changes.
  const Tensor slope =
      (arange(32).view({1, 32, 1}) * 4 + arange(48).view({1, 1, 48}) * 2).expand({3, -1, -1}).to(kUInt8);
  image::write_image(slope.transpose(1, 2), folder / "x.png");
  CHECK(equal(image::read_image(folder / "x.png"), slope.transpose(1, 2).cpu()));
  for (const char* name : {"x.jpg", "x.jpeg"}) {
    image::write_image(slope, folder / name, {.quality = 95});
    CHECK(largest_difference(image::read_image(folder / name), slope.cpu()) <= 3);
  }
  image::write_image(slope.narrow(0, 0, 1), folder / "gray.jpg", {.quality = 95});
  CHECK(largest_difference(image::read_image(folder / "gray.jpg"), slope.narrow(0, 0, 1).cpu()) <= 3);
  image::write_image(slope, folder / "small.jpg", {.quality = 5});
  CHECK(std::filesystem::file_size(folder / "small.jpg") < std::filesystem::file_size(folder / "x.jpg"));
}

TEST_CASE("what is no image cannot be written", "[image][cpu]") {
  const Folder folder;
  const auto check = [&](const Tensor& x, const char* name, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(image::write_image(x, folder / name), Contains("write_image: " + message));
    CHECK_FALSE(std::filesystem::exists(folder / name));
  };
  check(zeros({5, 2, 2}).to(kUInt8), "x.png", "an image [5, 2, 2]; it has 1 to 4 channels");
  check(zeros({3, 0, 2}).to(kUInt8), "x.png", "an image [3, 0, 2]");
  check(zeros({1, 3, 2, 2}), "x.png", "expected [channels, height, width] or [height, width], got [1, 3, 2, 2]");
  check(Tensor(), "x.png", "expected [channels, height, width] or [height, width], got an undefined tensor");
  check(full({2, 2}, 1.5), "x.png", "values from 1.5 to 1.5");
  check(zeros({2, 2}).to(kInt64), "x.png", "an image of int64");
  check(zeros({4, 2, 2}), "x.jpg", "an image [4, 2, 2] has an alpha channel");
  check(zeros({2, 2}), "x.gif", (folder / "x.gif").string() + " does not end in .png, .jpg or .jpeg");
  CHECK_THROWS_WITH(image::write_image(zeros({2, 2}), folder / "x.jpg", {.quality = 0}), Contains("quality 0"));
  CHECK_THROWS_WITH(image::write_image(zeros({2, 2}), folder / "x.png", {.compression_level = 10}),
                    Contains("level 10"));
  CHECK_THROWS_AS(image::write_image(zeros({2, 2}), folder / "none" / "x.png"), Error);
  CHECK_THROWS_WITH(image::write_image(zeros({1, 70000}), folder / "x.jpg"), Contains("an image of 1 x 70000"));
}

TEST_CASE("damaged image files are refused with the byte and the reason", "[image][cpu]") {
  const Folder folder;
  const auto check = [&](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(image::read_image(write(folder / "x", bytes)), Contains("x: byte ") && Contains(message));
  };
  check("", "byte 0: neither PNG nor JPEG");
  check("GIF89a", "byte 0: neither PNG nor JPEG");
  const std::string png = contents(seed("rgb.png")), jpeg = contents(seed("rgb.jpg"));
  check(png.substr(0, 20), "PNG: the file is cut off");
  check(png.substr(0, png.size() - 30), "PNG: the file is cut off");
  check(png.substr(0, png.size() - 6), "PNG: the file is cut off");
  std::string changed = png;
  changed[60] ^= 1;
  check(changed, "byte ");  // of the compressed pixels, or their checksum
  check(jpeg.substr(0, 100), "JPEG: ");
  check(jpeg.substr(0, jpeg.size() - 20), "JPEG: Premature end of JPEG file");
  check(std::string(jpeg).replace(jpeg.find("\xff\xdb"), 2, "zz"), "JPEG: Quantization table 0x00 was not defined");
  CHECK_THROWS_WITH(image::read_image(folder / "none.png"), Contains("none.png"));
  CHECK_THROWS_WITH(image::read_image(seed("rgb.png"), {.max_pixels = 34}),
                    Contains("an image of 5 x 7, more than max_pixels, 34"));
  CHECK_THROWS_WITH(image::read_image(seed("rgb.jpg"), {.max_pixels = 493}),
                    Contains("an image of 19 x 26, more than max_pixels, 493"));
  CHECK(image::read_image(seed("rgb.png"), {.max_pixels = 35}).numel() == 105);
}

TEST_CASE("a small file that announces a large image is refused before anything is allocated", "[image][cpu]") {
  const Folder folder;
  // The header's own checksum: libpng checks it before the sizes are looked at.
  const auto checksum = [](const std::string& bytes) {
    uint32_t crc = 0xffffffff;
    for (const char c : bytes) {
      crc ^= static_cast<uint8_t>(c);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
  };
  const auto announce = [&](uint32_t width, uint32_t height) {
    const std::string png = contents(seed("rgb.png"));
    const std::string header = "IHDR" + big_endian(width) + big_endian(height) + png.substr(24, 5);
    return write(folder / "x.png", png.substr(0, 12) + header + big_endian(checksum(header)) + png.substr(33));
  };
  const Tensor pixels = image::read_image(announce(7, 5));
  CHECK(pixels.shape() == Shape{3, 5, 7});
  CHECK_THROWS_WITH(image::read_image(announce(9000, 9000)),
                    Contains("an image of 9000 x 9000 in a file of 178 bytes, which holds 61232 pixels at most"));
  CHECK_THROWS_WITH(image::read_image(announce(2000000000, 2000000000)), Contains("more than max_pixels"));
  CHECK_THROWS_WITH(image::read_image(announce(0, 5)), Contains("PNG: "));
  std::string jpeg = contents(seed("rgb.jpg"));
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\x1f\xff\x1f\xff");
  CHECK_THROWS_WITH(image::read_image(write(folder / "x.jpg", jpeg)),
                    Contains("an image of 8191 x 8191 in a file of " + std::to_string(jpeg.size()) + " bytes"));
  jpeg.replace(frame + 5, 4, std::string("\xff\x00\xff\x00", 4));
  CHECK_THROWS_WITH(image::read_image(write(folder / "x.jpg", jpeg)), Contains("more than max_pixels"));
}

TEST_CASE("grids are torchvision's", "[image]") {
  const StateDict figures = load_reference("images.safetensors");
  const Tensor x = figures["grid.x"];
  const auto close = [&](const Tensor& y, const char* name) {
    INFO(name);
    testing::assert_close(y, figures[name], {.rtol = 1e-6, .atol = 1e-6});
  };
  close(image::make_grid(x, {.nrow = 3, .pad_value = 0.25}), "grid.plain");
  close(image::make_grid(x, {.nrow = 2, .padding = 1, .normalize = true}), "grid.normal");
  close(image::make_grid(x, {.padding = 0, .normalize = true, .scale_each = true}), "grid.each");
  close(image::make_grid(x, {.normalize = true, .value_range = {{-1, 0.5}}}), "grid.range");
  close(image::make_grid(figures["grid.gray"]), "grid.of_gray");
  CHECK(equal(image::make_grid(x.narrow(0, 1, 1)), x.select(0, 1)));
  CHECK(equal(image::make_grid(x.select(0, 1)), x.select(0, 1)));
  CHECK(image::make_grid(figures["grid.gray"].select(0, 0).select(0, 0)).shape() == Shape{3, 2, 2});
  CHECK(image::make_grid((abs(x) * 50).to(kUInt8)).dtype() == kUInt8);
  CHECK_THROWS_WITH(image::make_grid(zeros({1, 1, 1, 1, 1})), Contains("make_grid: expected images"));
  CHECK_THROWS_WITH(image::make_grid(x, {.nrow = 0}), Contains("make_grid: nrow 0, padding 2"));
  CHECK_THROWS_WITH(image::make_grid(x.to(kInt64), {.normalize = true}), Contains("got int64"));
  CHECK_THROWS_WITH(image::make_grid(zeros({0, 3, 2, 2})), Contains("are empty"));
}

TEST_CASE("an image folder has a class for each folder", "[image][cpu]") {
  const Folder folder;
  namespace fs = std::filesystem;
  for (const char* name : {"dog/b", "cat", "dog/a"}) fs::create_directories(folder / name);
  const auto paint = [&](const char* file, int value) {
    image::write_image(full({2, 3}, value, {.dtype = kUInt8}), folder / file);
  };
  paint("dog/b/2.png", 20), paint("dog/a/3.PNG", 10), paint("cat/1.png", 5), paint("cat/0.jpeg", 200);
  write(folder / "cat" / "notes.txt", "no image");
  write(folder / "readme.txt", "no class");
  const data::ImageFolder images(folder.path);
  CHECK(images.classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(images.size() == 4);
  CHECK(images.samples()[2].first == folder / "dog" / "a" / "3.PNG");
  CHECK(images.get(3).second == 1);
  CHECK(equal(images.get(3).first, full({3, 2, 3}, 20, {.dtype = kUInt8, .device = kCPU})));
  CHECK(images.get(1).second == 0);
  CHECK(data::ImageFolder(folder.path, {.read = {.mode = image::kUnchanged}}).get(2).first.size(0) == 1);
  using namespace data::transforms;
  data::DataLoader loader(data::transform(images, Compose(Resize(4, 4), ConvertImageDtype())),
                          {.batch_size = 4, .workers = 2});
  for (auto [x, y] : loader) {
    CHECK(x.shape() == Shape{4, 3, 4, 4});
    CHECK(y.to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1, 1});
  }
  CHECK_THROWS_WITH(images.get(4), Contains("ImageFolder: image 4 of 4"));
  for (const char* link : {"cat/3.png", "cat/more", "bird"}) {  // of a disk that is not mounted, say
    fs::create_symlink("nowhere", folder / link);
    CHECK_THROWS_WITH(data::ImageFolder(folder.path),
                      Contains((folder / link).string() + " is a link to what is not there"));
    fs::remove(folder / link);
  }
  fs::create_directory(folder / "empty");
  CHECK_THROWS_WITH(data::ImageFolder(folder.path), Contains((folder / "empty").string() + " holds no .png, .jpg"));
  CHECK_THROWS_WITH(data::ImageFolder(folder / "empty"), Contains("has no folders, of which each would be a class"));
  CHECK_THROWS_WITH(data::ImageFolder(folder / "missing"), Contains("missing"));
}
