#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// The data sets CIFAR-10 and CIFAR-100.
namespace reel::data {

/// Of Cifar10 and Cifar100. Pixels, scaled to [0, 1], become (pixel - mean) / std, channel by channel.
struct CifarOptions {
  bool train = true;                       ///< The training files, otherwise the test file.
  std::array<double, 3> mean = {0, 0, 0};  ///< {0.4914, 0.4822, 0.4465} for CIFAR-10.
  std::array<double, 3> std = {1, 1, 1};   ///< {0.2470, 0.2435, 0.2616} for CIFAR-10.
};

namespace internal {
/// What the two have in common.
class Cifar {
 public:
  int64_t size() const { return labels_.numel(); }  ///< The number of images.
  std::pair<Tensor, int64_t> get(int64_t i) const;  ///< Image and label i.
  /// float32 [n, 3, 32, 32] and int64 [n].
  std::pair<Tensor, Tensor> get_batch(std::span<const int64_t> indices) const;

  const Tensor& images() const { return images_; }  ///< uint8 [n, 3, 32, 32], as in the files.
  const Tensor& labels() const { return labels_; }  ///< int64 [n]

 protected:
  explicit Cifar(const CifarOptions& options);
  Tensor to_pixels(const Tensor& images) const;

  Tensor images_, labels_;
  Tensor scale_, shift_;  // [3, 1, 1]
};
}  // namespace internal

/// CIFAR-10 in its binary version (https://www.cs.toronto.edu/~kriz/cifar.html): `folder` holds data_batch_1.bin …
/// data_batch_5.bin and test_batch.bin, as they are or with .gz. Sample i is the pair of an image, float32 [3, 32, 32],
/// and its label, 0 to 9. An Error reads "file: byte N: what is wrong".
class Cifar10 : public internal::Cifar {
 public:
  /// Reads the files of the chosen part whole.
  explicit Cifar10(const std::filesystem::path& folder, const CifarOptions& options = {});
};

/// Of Cifar100.
struct Cifar100Options : CifarOptions {
  bool coarse = false;  ///< Labels are the 20 superclasses instead of the 100 classes.
};
/// CIFAR-100 in its binary version: `folder` holds train.bin and test.bin, as they are or with .gz. As Cifar10 else.
class Cifar100 : public internal::Cifar {
 public:
  /// Reads the file of the chosen part whole.
  explicit Cifar100(const std::filesystem::path& folder, const Cifar100Options& options = {});
};

/// What a file in the binary format of CIFAR holds.
struct CifarFile {
  Tensor images;  ///< uint8 [n, 3, 32, 32]
  Tensor labels;  ///< int64 [n, labels per image]
};
/// Reads one file whose images have so many labels as `classes` has elements, each below the element: {10} for
/// CIFAR-10, {20, 100} for CIFAR-100.
CifarFile read_cifar(const std::filesystem::path& path, std::span<const int64_t> classes);

}  // namespace reel::data
#pragma GCC visibility pop
