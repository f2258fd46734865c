#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "reel/ops/pad.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Changes of images, with the names of torchvision.transforms. Each is a function of one image [channels, height,
/// width] to another, for data::transform:
///
///   using namespace data::transforms;
///   const Compose shown{RandomCrop(32, {.padding = 4}), RandomHorizontalFlip()};
///   data::DataLoader loader(data::transform(data::Cifar10("cifar/"), shown), {.batch_size = 128, .shuffle = true});
///
/// Random ones draw from the thread's generator, which a DataLoader seeds for each example: every epoch shows an
/// example differently, and the same seed shows it the same way for any number of workers. An image of another shape or
/// dtype than a transform takes is an Error that names it.
namespace reel::data::transforms {

/// Applies functions in order: Compose(f, g)(x) is g(f(x)).
template <class... F>
class Compose {
 public:
  /// Of at least one function.
  explicit Compose(F... functions) : functions_(std::move(functions)...) {}
  /// Their result.
  template <class T>
  auto operator()(const T& x) const {
    return apply_from<0>(x);
  }

 private:
  template <size_t i, class T>
  auto apply_from(const T& x) const {
    if constexpr (i + 1 == sizeof...(F))
      return std::get<i>(functions_)(x);
    else
      return apply_from<i + 1>(std::get<i>(functions_)(x));
  }
  static_assert(sizeof...(F) > 0, "Compose: there is no function to apply");
  std::tuple<F...> functions_;
};

/// The height and width of an image; one number is both.
struct Size {
  int64_t height;                                      ///< In pixels.
  int64_t width;                                       ///< In pixels.
  Size(int64_t side) : height(side), width(side) {}    ///< A square.
  Size(int64_t h, int64_t w) : height(h), width(w) {}  ///< Any rectangle.
};

/// Of RandomCrop.
struct RandomCropOptions {
  int64_t padding = 0;               ///< Pixels that are added on each side first.
  Scalar fill = 0;                   ///< Their value with kConstant.
  PadMode padding_mode = kConstant;  ///< How they are made, see reel/ops/pad.h.
};
/// A part of the image of the given size, at a random place. Any dtype. A padded image that is smaller is an Error.
class RandomCrop {
 public:
  explicit RandomCrop(Size size, RandomCropOptions options = {});  ///< To this size.
  Tensor operator()(const Tensor& image) const;                    ///< [c, height, width]

 private:
  Size size_;
  RandomCropOptions options_;
};

/// Of RandomResizedCrop.
struct RandomResizedCropOptions {
  std::array<double, 2> scale = {0.08, 1};         ///< The least and the largest part of the image's area.
  std::array<double, 2> ratio = {3. / 4, 4. / 3};  ///< The least and the largest ratio of width to height.
};
/// A random part of the image with a random area and a random ratio of its sides, resized to the given size (Szegedy et
/// al. 2015): torchvision's, where ten tries to find such a part are followed by the largest one in the middle.
class RandomResizedCrop {
 public:
  /// To this size.
  explicit RandomResizedCrop(Size size, RandomResizedCropOptions options = {});
  Tensor operator()(const Tensor& image) const;  ///< [c, height, width], of the image's dtype

 private:
  Size size_;
  RandomResizedCropOptions options_;
};

/// The part of the image of the given size in its middle. An image that is smaller is an Error.
class CenterCrop {
 public:
  explicit CenterCrop(Size size);                ///< To this size.
  Tensor operator()(const Tensor& image) const;  ///< [c, height, width]

 private:
  Size size_;
};

/// Resizes an image by bilinear interpolation, with the filter that avoids aliasing. uint8 or floating point; uint8 is
/// rounded.
class Resize {
 public:
  /// With one number the shorter side becomes that long, and the ratio of the sides is kept.
  explicit Resize(int64_t shorter_side);
  /// To this size.
  Resize(int64_t height, int64_t width);
  Tensor operator()(const Tensor& image) const;  ///< [c, height, width], of the image's dtype

 private:
  Size size_;
  bool keeps_ratio_;
};

/// Mirrors an image left to right with probability p. Any dtype.
class RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);  ///< 0 ≤ p ≤ 1
  Tensor operator()(const Tensor& image) const;   ///< Of the same shape.

 private:
  double p_;
};

/// Pixels of uint8, from 0 to 255, as floating-point numbers from 0 to 1. Floating-point images only change their
/// dtype.
class ConvertImageDtype {
 public:
  explicit ConvertImageDtype(DType dtype = kFloat32);  ///< To this floating-point type.
  Tensor operator()(const Tensor& image) const;        ///< Of the same shape.

 private:
  DType dtype_;
};

/// (image - mean) / std for each channel, of a floating-point image. One number is for all channels.
class Normalize {
 public:
  /// Of as many means as deviations, which are positive.
  Normalize(const std::vector<double>& mean, const std::vector<double>& std);
  Tensor operator()(const Tensor& image) const;  ///< Of the same shape.

 private:
  Tensor mean_, std_;  // [channels or 1, 1, 1]
};

}  // namespace reel::data::transforms
#pragma GCC visibility pop
