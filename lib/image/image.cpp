#include "reel/image.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "lib/image/codec.h"
#include "lib/io/file.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::image {

void check_size(const std::string& name, int64_t position, int64_t height, int64_t width, int64_t max_pixels,
                double capacity, size_t bytes) {
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  if (pixels == 0) reel::detail::fail(name, ": byte ", position, ": an image of ", height, " x ", width);
  if (pixels > static_cast<double>(max_pixels))
    reel::detail::fail(name, ": byte ", position, ": an image of ", height, " x ", width, ", more than max_pixels, ",
                       max_pixels);
  if (pixels > capacity)
    reel::detail::fail(name, ": byte ", position, ": an image of ", height, " x ", width, " in a file of ", bytes,
                       " bytes, which holds ", static_cast<int64_t>(capacity), " pixels at most");
}

namespace {

/// [height, width, channels] as [channels', height, width].
Tensor to_planes(const Pixels& pixels, ImageMode mode) {
  const int64_t from = pixels.size(2), n = pixels.size(0) * pixels.size(1);
  const int64_t to = mode == kUnchanged ? from : static_cast<int64_t>(mode);
  const bool colored = from >= 3, has_alpha = from % 2 == 0;
  const Tensor image = empty({to, pixels.size(0), pixels.size(1)}, {.dtype = kUInt8, .device = kCPU});
  const uint8_t* in = pixels.data<uint8_t>();
  uint8_t* const out = image.data<uint8_t>();
  for (int64_t i = 0; i < n; ++i, in += from) {
    const int r = in[0], g = colored ? in[1] : r, b = colored ? in[2] : r;
    if (to >= 3) {
      out[i] = static_cast<uint8_t>(r), out[n + i] = static_cast<uint8_t>(g), out[2 * n + i] = static_cast<uint8_t>(b);
    } else {
      // ITU-R BT.601 in 16 bits, rounded.
      out[i] = colored ? static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + (1 << 15)) >> 16) : in[0];
    }
    if (to % 2 == 0) out[(to - 1) * n + i] = has_alpha ? in[from - 1] : 255;
  }
  return image;
}

/// What write_image takes, as files have it.
Pixels to_pixels(const Tensor& image) {
  REEL_CHECK(image.defined() && (image.dim() == 2 || image.dim() == 3),
             "write_image: expected [channels, height, width] or [height, width], got ",
             image.defined() ? image.shape().to_string() : "an undefined tensor");
  const Tensor chw = (image.dim() == 2 ? image.unsqueeze(0) : image).detach().to(Device());
  REEL_CHECK(chw.size(0) >= 1 && chw.size(0) <= 4 && chw.numel() > 0, "write_image: an image ", image.shape(),
             "; it has 1 to 4 channels, and pixels");
  if (chw.dtype() == kUInt8) return chw.permute({1, 2, 0}).contiguous();
  REEL_CHECK(chw.is_floating_point(), "write_image: an image of ", image.dtype(),
             "; expected uint8, or floating-point numbers in [0, 1]");
  const Tensor x = chw.to(kFloat32).permute({1, 2, 0}).contiguous();
  const float least = min(x).item<float>(), most = max(x).item<float>();
  REEL_CHECK(least >= 0 && most <= 1, "write_image: values from ", least, " to ", most,
             "; expected floating-point numbers in [0, 1], or uint8");
  return round(x * 255).to(kUInt8);
}

std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_jpeg_name(const std::string& extension) { return extension == ".jpg" || extension == ".jpeg"; }

}  // namespace

Tensor read_image(const std::filesystem::path& path, const ReadImageOptions& options) {
  REEL_CHECK(options.max_pixels > 0, "read_image: max_pixels is ", options.max_pixels);
  const io::InputFile file(path);
  std::vector<uint8_t> bytes(static_cast<size_t>(file.size()));
  file.read(bytes.data(), file.size(), 0);
  const auto begins = [&](std::string_view with) {
    return bytes.size() >= with.size() && std::memcmp(bytes.data(), with.data(), with.size()) == 0;
  };
  if (begins("\x89PNG\r\n\x1a\n")) return to_planes(decode_png(bytes, path.string(), options.max_pixels), options.mode);
  if (begins("\xff\xd8\xff")) return to_planes(decode_jpeg(bytes, path.string(), options.max_pixels), options.mode);
  reel::detail::fail(path.string(), ": byte 0: neither PNG nor JPEG");
}

void write_image(const Tensor& image, const std::filesystem::path& path, const WriteImageOptions& options) {
  REEL_CHECK(options.compression_level >= 0 && options.compression_level <= 9, "write_image: compression_level ",
             options.compression_level, " is not from 0 to 9");
  REEL_CHECK(options.quality >= 1 && options.quality <= 100, "write_image: quality ", options.quality,
             " is not from 1 to 100");
  const std::string extension = lower_extension(path);
  REEL_CHECK(extension == ".png" || is_jpeg_name(extension), "write_image: ", path.string(),
             " does not end in .png, .jpg or .jpeg");
  const NoGrad guard;
  const Pixels pixels = to_pixels(image);
  REEL_CHECK(extension == ".png" || pixels.size(2) % 2 == 1, "write_image: an image ", image.shape(),
             " has an alpha channel, which JPEG lacks");
  const std::string bytes =
      extension == ".png" ? encode_png(pixels, options.compression_level) : encode_jpeg(pixels, options.quality);
  io::AtomicFile file(path);
  file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  file.commit();
}

Tensor make_grid(const Tensor& given, const MakeGridOptions& o) {
  REEL_CHECK(given.defined() && given.dim() >= 2 && given.dim() <= 4,
             "make_grid: expected images [n, channels, height, width], got ",
             given.defined() ? given.shape().to_string() : "an undefined tensor");
  REEL_CHECK(o.nrow > 0 && o.padding >= 0, "make_grid: nrow ", o.nrow, ", padding ", o.padding);
  const NoGrad guard;
  Tensor images = given.detach();
  while (images.dim() < 4) images = images.unsqueeze(0);
  REEL_CHECK(images.numel() > 0, "make_grid: images ", given.shape(), " are empty");
  if (images.size(1) == 1) images = images.expand({-1, 3, -1, -1});
  if (o.normalize) {
    REEL_CHECK(images.is_floating_point(), "make_grid: expected floating-point images to normalize, got ",
               given.dtype());
    const auto scaled = [&](const Tensor& x) {
      const double low = o.value_range ? (*o.value_range)[0] : min(x).item<double>();
      const double high = o.value_range ? (*o.value_range)[1] : max(x).item<double>();
      return (clamp(x, low, high) - low) / std::max(high - low, 1e-5);
    };
    if (o.scale_each) {
      std::vector<Tensor> each;
      for (int64_t i = 0; i < images.size(0); ++i) each.push_back(scaled(images.select(0, i)));
      images = stack(each);
    } else {
      images = scaled(images);
    }
  }
  const int64_t n = images.size(0), channels = images.size(1);
  if (n == 1) return images.select(0, 0).contiguous();
  const int64_t columns = std::min(o.nrow, n), rows = (n + columns - 1) / columns;
  const int64_t height = images.size(2) + o.padding, width = images.size(3) + o.padding;
  const Tensor grid = full({channels, rows * height + o.padding, columns * width + o.padding}, o.pad_value,
                           {.dtype = images.dtype(), .device = images.device()});
  for (int64_t i = 0; i < n; ++i)
    grid.narrow(1, i / columns * height + o.padding, images.size(2))
        .narrow(2, i % columns * width + o.padding, images.size(3))
        .copy_(images.select(0, i));
  return grid;
}

}  // namespace reel::image

namespace reel::data {

ImageFolder::ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options) try : options_(options) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  // A link may lead to a disk that is not mounted: without this check the data set would be smaller unnoticed.
  const auto check_target = [](const fs::directory_entry& entry) {
    REEL_CHECK(!entry.is_symlink() || entry.exists(), "ImageFolder: ", entry.path().string(),
               " is a link to what is not there");
  };
  for (const auto& entry : fs::directory_iterator(root)) {
    check_target(entry);
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    std::vector<fs::path> files;
    constexpr auto follow = fs::directory_options::follow_directory_symlink;
    for (const auto& entry : fs::recursive_directory_iterator(folder, follow)) {
      check_target(entry);
      const std::string extension = image::lower_extension(entry.path());
      if (entry.is_regular_file() && (extension == ".png" || image::is_jpeg_name(extension)))
        files.push_back(entry.path());
    }
    REEL_CHECK(!files.empty(), "ImageFolder: ", folder.string(), " holds no .png, .jpg or .jpeg");
    std::sort(files.begin(), files.end());
    for (fs::path& file : files) samples_.emplace_back(std::move(file), static_cast<int64_t>(classes_.size()));
    classes_.push_back(folder.filename().string());
  }
  REEL_CHECK(!classes_.empty(), "ImageFolder: ", root.string(), " has no folders, of which each would be a class");
} catch (const std::filesystem::filesystem_error& error) {
  reel::detail::fail("ImageFolder: ", error.what());
}

std::pair<Tensor, int64_t> ImageFolder::get(int64_t i) const {
  REEL_CHECK(i >= 0 && i < size(), "ImageFolder: image ", i, " of ", size());
  const auto& [file, label] = samples_[static_cast<size_t>(i)];
  return {image::read_image(file, options_.read), label};
}

}  // namespace reel::data
