#include <png.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "lib/image/codec.h"
#include "reel/ops.h"

// PNG (ISO/IEC 15948) by libpng.
namespace reel::image {
namespace {

/// What a reader and a writer share: where errors jump to, and their text.
struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf on_error;
  char message[160] = "out of memory";  // which libpng reports by null pointers at first
};

void fail(png_structp png, png_const_charp message) {
  Png& state = *static_cast<Png*>(png_get_error_ptr(png));
  std::snprintf(state.message, sizeof state.message, "%s", message);
  std::longjmp(state.on_error, 1);
}

void ignore(png_structp, png_const_charp) {}  // warnings, of chunks that are not used, mostly

struct Reader : Png {
  std::span<const uint8_t> left;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void read(png_structp png, png_bytep to, size_t bytes) {
  Reader& reader = *static_cast<Reader*>(png_get_io_ptr(png));
  if (bytes > reader.left.size()) png_error(png, "the file is cut off");
  std::memcpy(to, reader.left.data(), bytes);
  reader.left = reader.left.subspan(bytes);
}

struct Writer : Png {
  std::string file;
  ~Writer() { png_destroy_write_struct(&png, &info); }
  bool append(const uint8_t* data, size_t bytes) noexcept try {
    file.append(reinterpret_cast<const char*>(data), bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
};

void write(png_structp png, png_bytep data, size_t bytes) {
  if (!static_cast<Writer*>(png_get_io_ptr(png))->append(data, bytes)) png_error(png, "out of memory");
}

std::vector<png_bytep> rows_of(const Pixels& pixels) {
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < pixels.size(0); ++y)
    rows.push_back(pixels.data<uint8_t>() + y * pixels.size(1) * pixels.size(2));
  return rows;
}

}  // namespace

Pixels decode_png(std::span<const uint8_t> file, const std::string& name, int64_t max_pixels) {
  Reader r;
  r.left = file;
  const auto position = [&] { return static_cast<int64_t>(file.size() - r.left.size()); };
  const auto run = [&](const auto& calls) {
    if (!completed(r.on_error, calls)) reel::detail::fail(name, ": byte ", position(), ": PNG: ", r.message);
  };
  run([&] {
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, static_cast<Png*>(&r), fail, ignore);
    if (!r.png || !(r.info = png_create_info_struct(r.png))) std::longjmp(r.on_error, 1);
    png_set_read_fn(r.png, &r, read);
    png_set_user_limits(r.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // see check_size
    png_read_info(r.png, r.info);
  });
  const int64_t height = png_get_image_height(r.png, r.info), width = png_get_image_width(r.png, r.info);
  const int bits = png_get_bit_depth(r.png, r.info) * png_get_channels(r.png, r.info);
  constexpr double kMaxInflation = 1032;
  check_size(name, position(), height, width, max_pixels, kMaxInflation * 8 / bits * static_cast<double>(file.size()),
             file.size());
  run([&] {
    png_set_scale_16(r.png);
    png_set_expand(r.png);  // palettes, 1, 2 and 4 bits of grey, transparent colours
    png_set_interlace_handling(r.png);
    png_read_update_info(r.png, r.info);
  });
  const Pixels pixels = empty({height, width, png_get_channels(r.png, r.info)}, {.dtype = kUInt8, .device = kCPU});
  std::vector<png_bytep> rows = rows_of(pixels);
  run([&] {
    png_read_image(r.png, rows.data());
    png_read_end(r.png, nullptr);
  });
  return pixels;
}

std::string encode_png(const Pixels& pixels, int compression_level) {
  constexpr int kColors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                             PNG_COLOR_TYPE_RGB_ALPHA};
  const auto height = static_cast<png_uint_32>(pixels.size(0)), width = static_cast<png_uint_32>(pixels.size(1));
  const int color = kColors[pixels.size(2) - 1];
  std::vector<png_bytep> rows = rows_of(pixels);
  Writer w;
  const bool good = completed(w.on_error, [&] {
    w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, static_cast<Png*>(&w), fail, ignore);
    if (!w.png || !(w.info = png_create_info_struct(w.png))) std::longjmp(w.on_error, 1);
    png_set_write_fn(w.png, &w, write, nullptr);
    png_set_user_limits(w.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_compression_level(w.png, compression_level);
    png_set_IHDR(w.png, w.info, width, height, 8, color, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w.png, w.info);
    png_write_image(w.png, rows.data());
    png_write_end(w.png, nullptr);
  });
  REEL_CHECK(good, "PNG: ", w.message);
  return std::move(w.file);
}

}  // namespace reel::image
