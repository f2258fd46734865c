#include "reel/data/cifar.h"

#include <cmath>
#include <string>
#include <vector>

#include "lib/io/source.h"
#include "reel/ops/index.h"
#include "reel/ops/join.h"
#include "reel/ops/pointwise.h"

// The binary files of CIFAR: for each image a byte for each label, then 1024 bytes of red, green and blue, row by row.
namespace reel::data {

CifarFile read_cifar(const std::filesystem::path& path, std::span<const int64_t> classes) {
  REEL_CHECK(!classes.empty(), "read_cifar: an image needs a label");
  constexpr int64_t kPixels = 3 * 32 * 32;
  io::Source source(path);
  // The file says nowhere how many images it has, and gzip hides its length, so these grow with what is read.
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  while (!source.at_end()) {
    for (const int64_t limit : classes) {
      const int64_t position = source.position();
      uint8_t label;
      source.read_exactly(&label, 1);
      if (label >= limit) source.fail_at(position, "label ", int{label}, " of ", limit, " classes");
      labels.push_back(label);
    }
    pixels.resize(pixels.size() + kPixels);
    source.read_exactly(pixels.data() + pixels.size() - kPixels, kPixels);
  }
  const auto each = static_cast<int64_t>(classes.size()), n = static_cast<int64_t>(labels.size()) / each;
  return {tensor(pixels, {n, 3, 32, 32}, {.device = kCPU}), tensor(labels, {n, each}, {.device = kCPU})};
}

namespace internal {

Cifar::Cifar(const CifarOptions& options) {
  std::vector<double> scale, shift;
  for (size_t c = 0; c < 3; ++c) {
    REEL_CHECK(options.std[c] > 0 && std::isfinite(options.std[c]) && std::isfinite(options.mean[c]), "Cifar: channel ",
               c, " has mean ", options.mean[c], " and std ", options.std[c]);
    scale.push_back(1 / (255 * options.std[c]));
    shift.push_back(-options.mean[c] / options.std[c]);
  }
  const auto by_channel = [](const std::vector<double>& x) {
    return tensor(x, {.dtype = kFloat32, .device = kCPU}).view({3, 1, 1});
  };
  scale_ = by_channel(scale), shift_ = by_channel(shift);
}

Tensor Cifar::to_pixels(const Tensor& images) const { return images.to(kFloat32).mul_(scale_).add_(shift_); }

std::pair<Tensor, int64_t> Cifar::get(int64_t i) const {
  return {to_pixels(images_.select(0, i)), labels_[i].item<int64_t>()};
}

std::pair<Tensor, Tensor> Cifar::get_batch(std::span<const int64_t> indices) const {
  const Tensor rows = tensor(indices, {.device = kCPU});
  return {to_pixels(index_select(images_, 0, rows)), index_select(labels_, 0, rows)};
}

namespace {

CifarFile read_part(const std::filesystem::path& folder, const std::string& name, std::span<const int64_t> classes) {
  std::error_code unused;
  const auto plain = folder / name;
  return read_cifar(std::filesystem::exists(plain, unused) ? plain : folder / (name + ".gz"), classes);
}

}  // namespace
}  // namespace internal

Cifar10::Cifar10(const std::filesystem::path& folder, const CifarOptions& options) : Cifar(options) {
  std::vector<Tensor> images, labels;
  const std::vector<std::string> training = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                             "data_batch_4.bin", "data_batch_5.bin"};
  for (const std::string& name : options.train ? training : std::vector<std::string>{"test_batch.bin"}) {
    const CifarFile file = internal::read_part(folder, name, std::array<int64_t, 1>{10});
    images.push_back(file.images), labels.push_back(file.labels.select(1, 0));
  }
  images_ = cat(images), labels_ = cat(labels);
}

Cifar100::Cifar100(const std::filesystem::path& folder, const Cifar100Options& options) : Cifar(options) {
  const CifarFile file =
      internal::read_part(folder, options.train ? "train.bin" : "test.bin", std::array<int64_t, 2>{20, 100});
  images_ = file.images, labels_ = file.labels.select(1, options.coarse ? 0 : 1).contiguous();
}

}  // namespace reel::data
