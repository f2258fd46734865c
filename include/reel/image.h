#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Image files: PNG by libpng, JPEG by libjpeg-turbo. Not part of reel/reel.h, and in a library of its own, reel::image
/// (pkg-config: reel-image), so that other programs link neither.
namespace reel::image {

/// The channels of an image that is read, as torchvision's ImageReadMode. Grey of a colour is 0.299 R + 0.587 G +
/// 0.114 B; an alpha channel that the file lacks is 255, and one that is not wanted is dropped.
enum class ImageMode { kUnchanged, kGray, kGrayAlpha, kRgb, kRgba };
///@{
/// The ImageMode of that name: the file's own, 1, 2, 3 or 4 channels.
inline constexpr ImageMode kUnchanged = ImageMode::kUnchanged, kGray = ImageMode::kGray,
                           kGrayAlpha = ImageMode::kGrayAlpha, kRgb = ImageMode::kRgb, kRgba = ImageMode::kRgba;
///@}

/// Of read_image.
struct ReadImageOptions {
  ImageMode mode = kUnchanged;  ///< The channels of the result.
  /// Height times width of the largest image that is read; larger ones are an Error before anything is allocated. A
  /// small file may hold a large image: 1 KB of PNG up to 8 M pixels.
  int64_t max_pixels = 89'478'485;
};
/// Reads a PNG or JPEG file, whichever its first bytes say, as uint8 [channels, height, width]. A palette becomes RGB
/// or RGBA, 16 bits a channel are rounded to 8, CMYK becomes RGB. Not applied are colour profiles, gamma and EXIF's
/// orientation. A file that is damaged, cut off or larger than its bytes can hold is an Error that reads
/// "file: byte N: what is wrong".
Tensor read_image(const std::filesystem::path& path, const ReadImageOptions& options = {});

/// Of write_image.
struct WriteImageOptions {
  int compression_level = 6;  ///< Of PNG, from 0 (fast) to 9 (small).
  int quality = 75;           ///< Of JPEG, from 1 to 100.
};
/// Writes an image [channels, height, width] or [height, width] as PNG or JPEG, whichever the name's end says: .png,
/// .jpg or .jpeg. uint8, or floating-point numbers in [0, 1]; others are an Error. 1 channel is grey, 2 are grey and
/// alpha, 3 RGB, 4 RGBA; JPEG has 1 or 3. The file is written atomically.
void write_image(const Tensor& image, const std::filesystem::path& path, const WriteImageOptions& options = {});

/// Of make_grid.
struct MakeGridOptions {
  int64_t nrow = 8;        ///< Images in a row.
  int64_t padding = 2;     ///< Pixels around each.
  bool normalize = false;  ///< Map the values from value_range to [0, 1].
  /// The least and the largest value; what is beyond is clamped. None: those of the images.
  std::optional<std::array<double, 2>> value_range = {};
  bool scale_each = false;  ///< With a range of its own for each image.
  double pad_value = 0;     ///< Of the pixels between images.
};
/// Images [n, channels, height, width] side by side as one, [channels, …], as torchvision.utils.make_grid: images of
/// one channel get three, one image alone gets no padding, and [channels, height, width] or [height, width] is one
/// image. Normalizing takes floating-point images.
Tensor make_grid(const Tensor& images, const MakeGridOptions& options = {});

}  // namespace reel::image

namespace reel::data {

/// Of ImageFolder.
struct ImageFolderOptions {
  image::ReadImageOptions read = {.mode = image::kRgb};  ///< As image::read_image takes them.
};

/// Images in a folder for each class, root/cat/1.png, root/dog/x/2.jpg, …: torchvision's ImageFolder. Classes are
/// numbered in the order of their folders' names; files that do not end in .png, .jpg or .jpeg are passed over. Sample
/// i is the pair of an image, uint8 [channels, height, width], read at each access, and its class. Images may differ in
/// size: transforms::Resize and a crop make them of one.
class ImageFolder {
 public:
  /// Lists the folders. A root without classes, a class without images, or a link that leads nowhere is an Error.
  explicit ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  int64_t size() const { return static_cast<int64_t>(samples_.size()); }  ///< The number of images.
  std::pair<Tensor, int64_t> get(int64_t i) const;                        ///< Image and class i.

  const std::vector<std::string>& classes() const { return classes_; }  ///< Their names, in order.
  /// Files and classes, in the order of the samples: by class, then by path.
  const std::vector<std::pair<std::filesystem::path, int64_t>>& samples() const { return samples_; }

 private:
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::filesystem::path, int64_t>> samples_;
};

}  // namespace reel::data
#pragma GCC visibility pop
