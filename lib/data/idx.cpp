#include "reel/data/idx.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/elements.h"
#include "reel/ops/index.h"
#include "reel/ops/pointwise.h"

// IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, the code of the element type, the
// number of dimensions, their sizes (32 bits each) and the elements, all big-endian.
namespace reel::data {
namespace {

std::optional<io::Element> element_of(uint8_t code) {
  using io::Element;
  switch (code) {
    case 0x08: return Element{Element::kUnsigned, 1, true};
    case 0x09: return Element{Element::kSigned, 1, true};
    case 0x0B: return Element{Element::kSigned, 2, true};
    case 0x0C: return Element{Element::kSigned, 4, true};
    case 0x0D: return Element{Element::kFloat, 4, true};
    case 0x0E: return Element{Element::kFloat, 8, true};
    default: return {};
  }
}

}  // namespace

Tensor read_idx(const std::filesystem::path& path) {
  io::Source source(path);
  uint8_t magic[4];
  source.read_exactly(magic, sizeof magic);
  const auto element = element_of(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !element)
    source.fail_at(0, "not an IDX file, it begins with ", int{magic[0]}, " ", int{magic[1]}, " ", int{magic[2]});
  std::vector<int64_t> shape(magic[3]);
  for (int64_t& size : shape) {
    uint8_t bytes[4];
    source.read_exactly(bytes, sizeof bytes);
    size = int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  }
  Tensor tensor = read_elements(source, *element, shape, "the data");
  source.expect_end();
  return tensor;
}

Mnist::Mnist(const std::filesystem::path& folder, const MnistOptions& options)
    : scale_(1 / (255 * options.std)), shift_(-options.mean / options.std) {
  REEL_CHECK(options.std > 0 && std::isfinite(options.mean), "Mnist: mean ", options.mean, ", std ", options.std);
  const auto file = [&](const std::string& name) {
    std::error_code unused;
    const std::filesystem::path plain = folder / ((options.train ? "train-" : "t10k-") + name);
    return std::filesystem::exists(plain, unused) ? plain : std::filesystem::path(plain.string() + ".gz");
  };
  const auto images = file("images-idx3-ubyte"), labels = file("labels-idx1-ubyte");
  images_ = read_idx(images);
  labels_ = read_idx(labels);
  REEL_CHECK(images_.dtype() == kUInt8 && images_.dim() == 3, images.string(),
             ": expected images, uint8 [n, height, width], got ", images_.dtype(), " ", images_.shape());
  REEL_CHECK(labels_.dtype() == kUInt8 && labels_.shape() == Shape{images_.size(0)}, labels.string(),
             ": expected labels, uint8 ", Shape{images_.size(0)}, ", got ", labels_.dtype(), " ", labels_.shape());
  labels_ = labels_.to(kInt64);
}

Tensor Mnist::to_pixels(const Tensor& images) const { return images.to(kFloat32).mul_(scale_).add_(shift_); }

std::pair<Tensor, int64_t> Mnist::get(int64_t i) const {
  return {to_pixels(images_.select(0, i)).unsqueeze(0), labels_[i].item<int64_t>()};
}

std::pair<Tensor, Tensor> Mnist::get_batch(std::span<const int64_t> indices) const {
  const Tensor rows = tensor(indices, {.device = kCPU});
  return {to_pixels(index_select(images_, 0, rows)).unsqueeze(1), index_select(labels_, 0, rows)};
}

}  // namespace reel::data
