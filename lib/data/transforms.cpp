#include "reel/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "reel/ops.h"
#include "reel/random.h"

namespace reel::data::transforms {
namespace {

void check_image(const Tensor& image, const char* transform) {
  REEL_CHECK(image.defined() && image.dim() == 3, transform, ": expected an image [channels, height, width], got ",
             image.defined() ? image.shape().to_string() : "an undefined tensor");
}

void check_size(Size size, const char* transform) {
  REEL_CHECK(size.height > 0 && size.width > 0, transform, ": a size of ", size.height, " x ", size.width);
}

Tensor part(const Tensor& image, int64_t top, int64_t left, Size size) {
  return image.narrow(1, top, size.height).narrow(2, left, size.width);
}

double uniform() { return rand({}, {.dtype = kFloat64, .device = kCPU}).item<double>(); }
double uniform(double low, double high) { return low + (high - low) * uniform(); }
int64_t random_below(int64_t n) { return n == 1 ? 0 : randint(n, {}, {.device = kCPU}).item<int64_t>(); }

Tensor resize(const Tensor& image, Size size, const char* transform) {
  if (image.size(1) == size.height && image.size(2) == size.width) return image;
  const bool bytes = image.dtype() == kUInt8;
  REEL_CHECK(bytes || image.is_floating_point(), transform, ": expected uint8 or floating-point pixels, got ",
             image.dtype());
  const Tensor x = (bytes ? image.to(kFloat32) : image).unsqueeze(0);
  const Tensor y = interpolate(x, {.size = {size.height, size.width}, .mode = kBilinear, .antialias = true}).squeeze(0);
  return bytes ? round(y).clamp_(0, 255).to(kUInt8) : y;
}

}  // namespace

// ---- parts of images ------------------------------------------------------------------------------------------------

RandomCrop::RandomCrop(Size size, RandomCropOptions options) : size_(size), options_(options) {
  check_size(size, "RandomCrop");
  REEL_CHECK(options.padding >= 0, "RandomCrop: a padding of ", options.padding, " pixels");
}

Tensor RandomCrop::operator()(const Tensor& image) const {
  check_image(image, "RandomCrop");
  const int64_t p = options_.padding;
  const int64_t rows = image.size(1) + 2 * p - size_.height, columns = image.size(2) + 2 * p - size_.width;
  REEL_CHECK(rows >= 0 && columns >= 0, "RandomCrop: an image ", image.shape(), " with ", p,
             " pixels of padding is smaller than ", size_.height, " x ", size_.width);
  const int64_t top = random_below(rows + 1), left = random_below(columns + 1);
  const Tensor padded = p == 0 ? image : pad(image, {p, p, p, p}, options_.padding_mode, options_.fill);
  return part(padded, top, left, size_);
}

RandomResizedCrop::RandomResizedCrop(Size size, RandomResizedCropOptions options) : size_(size), options_(options) {
  check_size(size, "RandomResizedCrop");
  const auto& [scale, ratio] = options;
  REEL_CHECK(0 < scale[0] && scale[0] <= scale[1] && scale[1] <= 1, "RandomResizedCrop: scale from ", scale[0], " to ",
             scale[1], " is not within 0 and 1");
  REEL_CHECK(0 < ratio[0] && ratio[0] <= ratio[1] && std::isfinite(ratio[1]), "RandomResizedCrop: ratio from ",
             ratio[0], " to ", ratio[1]);
}

Tensor RandomResizedCrop::operator()(const Tensor& image) const {
  check_image(image, "RandomResizedCrop");
  const int64_t height = image.size(1), width = image.size(2);
  const auto area = static_cast<double>(height * width);
  for (int tries = 0; tries < 10; ++tries) {
    const double wanted = area * uniform(options_.scale[0], options_.scale[1]);
    const double ratio = std::exp(uniform(std::log(options_.ratio[0]), std::log(options_.ratio[1])));
    const int64_t h = std::llround(std::sqrt(wanted / ratio)), w = std::llround(std::sqrt(wanted * ratio));
    if (h < 1 || w < 1 || h > height || w > width) continue;
    const int64_t top = random_below(height - h + 1), left = random_below(width - w + 1);
    return resize(part(image, top, left, {h, w}), size_, "RandomResizedCrop");
  }
  const double ratio =
      std::clamp(static_cast<double>(width) / static_cast<double>(height), options_.ratio[0], options_.ratio[1]);
  const int64_t w = std::min<int64_t>(width, std::llround(static_cast<double>(height) * ratio));
  const int64_t h = std::min<int64_t>(height, std::llround(static_cast<double>(w) / ratio));
  return resize(part(image, (height - h) / 2, (width - w) / 2, {h, w}), size_, "RandomResizedCrop");
}

CenterCrop::CenterCrop(Size size) : size_(size) { check_size(size, "CenterCrop"); }

Tensor CenterCrop::operator()(const Tensor& image) const {
  check_image(image, "CenterCrop");
  const int64_t rows = image.size(1) - size_.height, columns = image.size(2) - size_.width;
  REEL_CHECK(rows >= 0 && columns >= 0, "CenterCrop: an image ", image.shape(), " is smaller than ", size_.height,
             " x ", size_.width);
  return part(image, rows / 2, columns / 2, size_);
}

Resize::Resize(int64_t shorter_side) : size_(shorter_side), keeps_ratio_(true) { check_size(size_, "Resize"); }

Resize::Resize(int64_t height, int64_t width) : size_(height, width), keeps_ratio_(false) {
  check_size(size_, "Resize");
}

Tensor Resize::operator()(const Tensor& image) const {
  check_image(image, "Resize");
  Size size = size_;
  if (keeps_ratio_) {
    const int64_t height = image.size(1), width = image.size(2), shorter = std::min(height, width);
    REEL_CHECK(shorter > 0, "Resize: the image ", image.shape(), " is empty");
    size = {height * size.height / shorter, width * size.height / shorter};
  }
  return resize(image, size, "Resize");
}

// ---- the same place, other values -----------------------------------------------------------------------------------

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) {
  REEL_CHECK(p >= 0 && p <= 1, "RandomHorizontalFlip: a probability of ", p);
}

Tensor RandomHorizontalFlip::operator()(const Tensor& image) const {
  check_image(image, "RandomHorizontalFlip");
  return uniform() < p_ ? flip(image, 2) : image;
}

ConvertImageDtype::ConvertImageDtype(DType dtype) : dtype_(dtype) {
  REEL_CHECK(is_floating_point(dtype), "ConvertImageDtype: expected a floating-point type, got ", dtype);
}

Tensor ConvertImageDtype::operator()(const Tensor& image) const {
  check_image(image, "ConvertImageDtype");
  if (image.is_floating_point()) return image.to(dtype_);
  REEL_CHECK(image.dtype() == kUInt8, "ConvertImageDtype: expected uint8 or floating-point pixels, got ",
             image.dtype());
  // Dividing is what torchvision does; a product with 1 / 255 would round some of the pixels otherwise.
  return image.to(kFloat32).div_(255).to(dtype_);
}

Normalize::Normalize(const std::vector<double>& mean, const std::vector<double>& std) {
  REEL_CHECK(!mean.empty() && mean.size() == std.size(), "Normalize: ", mean.size(), " means and ", std.size(),
             " deviations");
  for (size_t i = 0; i < mean.size(); ++i)
    REEL_CHECK(std::isfinite(mean[i]) && std::isfinite(std[i]) && std[i] > 0, "Normalize: channel ", i, " has mean ",
               mean[i], " and deviation ", std[i]);
  const Shape shape{static_cast<int64_t>(mean.size()), 1, 1};
  mean_ = tensor(mean, {.dtype = kFloat32, .device = kCPU}).view(shape);
  std_ = tensor(std, {.dtype = kFloat32, .device = kCPU}).view(shape);
}

Tensor Normalize::operator()(const Tensor& image) const {
  check_image(image, "Normalize");
  REEL_CHECK(image.is_floating_point(), "Normalize: expected floating-point pixels, got ", image.dtype(),
             "; ConvertImageDtype makes them");
  REEL_CHECK(mean_.size(0) == 1 || mean_.size(0) == image.size(0), "Normalize: means of ", mean_.size(0),
             " channels for an image ", image.shape());
  return (image - mean_.to(image.dtype())).div_(std_.to(image.dtype()));
}

}  // namespace reel::data::transforms
