#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// A reader of the IDX format, and the data set MNIST.
namespace reel::data {

/// Reads the IDX format (http://yann.lecun.com/exdb/mnist): any number of dimensions of uint8, int8, int16, int32,
/// float32 or float64. 8- and 16-bit signed integers become int32. An Error reads "file: byte N: what is wrong".
Tensor read_idx(const std::filesystem::path& path);

/// Of Mnist. Pixels, scaled to [0, 1], become (pixel - mean) / std.
struct MnistOptions {
  bool train = true;  ///< The training files, otherwise the test files (t10k).
  double mean = 0;    ///< 0.1307 for MNIST.
  double std = 1;     ///< 0.3081 for MNIST.
};

/// MNIST, and everything in the same four files, such as Fashion-MNIST: `folder` holds train-images-idx3-ubyte,
/// train-labels-idx1-ubyte and their t10k- twins, as they are or with .gz. Sample i is the pair of an image, float32
/// [1, 28, 28], and its label.
class Mnist {
 public:
  /// Reads the two files of the chosen part whole.
  explicit Mnist(const std::filesystem::path& folder, const MnistOptions& options = {});

  int64_t size() const { return labels_.numel(); }  ///< The number of images.
  std::pair<Tensor, int64_t> get(int64_t i) const;  ///< Image and label i.
  /// float32 [n, 1, 28, 28] and int64 [n].
  std::pair<Tensor, Tensor> get_batch(std::span<const int64_t> indices) const;

  const Tensor& images() const { return images_; }  ///< uint8 [n, 28, 28], as in the file.
  const Tensor& labels() const { return labels_; }  ///< int64 [n]

 private:
  Tensor to_pixels(const Tensor& images) const;

  Tensor images_, labels_;
  double scale_, shift_;
};

}  // namespace reel::data
#pragma GCC visibility pop
