#include <cstdio>  // jpeglib.h needs it

#include <jerror.h>
#include <jpeglib.h>

#include <cstdlib>
#include <utility>

#include "lib/image/codec.h"
#include "reel/ops.h"

// JPEG (ISO/IEC 10918) by libjpeg-turbo.
namespace reel::image {
namespace {

/// Where errors jump to, and their text.
struct Errors : jpeg_error_mgr {
  std::jmp_buf on_error;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void fail(j_common_ptr c) {
  Errors& errors = *static_cast<Errors*>(c->err);
  errors.format_message(c, errors.message);
  std::longjmp(errors.on_error, 1);
}

/// Level -1 is a warning. libjpeg goes on with grey where the file is cut off or damaged; here that is an error.
void hear(j_common_ptr c, int level) {
  if (level >= 0) return;
  switch (c->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:  // harmless, and found in files of cameras and old programs
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
    case JWRN_TOO_MUCH_DATA: return;
    default: fail(c);
  }
}

jpeg_error_mgr* install(Errors& errors) {
  jpeg_std_error(&errors);
  errors.error_exit = fail;
  errors.emit_message = hear;
  return &errors;
}

struct Reader {
  jpeg_decompress_struct c{};
  Errors errors;
  jpeg_progress_mgr progress{};
  ~Reader() { jpeg_destroy_decompress(&c); }
};

/// A few bytes can be one more scan over the whole image.
void limit_scans(j_common_ptr c) {
  constexpr int kMostScans = 100;  // progressive files have about 10
  const auto* const d = reinterpret_cast<j_decompress_ptr>(c);
  if (d->input_scan_number > kMostScans) ERREXIT(c, JERR_BAD_PROGRESSION);
}

struct Writer {
  jpeg_compress_struct c{};
  Errors errors;
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  ~Writer() {
    jpeg_destroy_compress(&c);
    std::free(file);
  }
};

/// Photoshop writes inverted CMYK, and marks such files; others hardly exist.
void cmyk_to_rgb(const Tensor& cmyk, bool inverted, const Tensor& rgb) {
  const uint8_t* in = cmyk.data<uint8_t>();
  uint8_t* out = rgb.data<uint8_t>();
  for (int64_t i = 0; i < cmyk.size(0) * cmyk.size(1); ++i, in += 4)
    for (int channel = 0; channel < 3; ++channel) {
      const int ink = inverted ? in[channel] : 255 - in[channel], key = inverted ? in[3] : 255 - in[3];
      *out++ = static_cast<uint8_t>((ink * key + 127) / 255);
    }
}

}  // namespace

Pixels decode_jpeg(std::span<const uint8_t> file, const std::string& name, int64_t max_pixels) {
  Reader r;
  const auto position = [&] {
    return r.c.src ? static_cast<int64_t>(file.size() - std::min(r.c.src->bytes_in_buffer, file.size())) : 0;
  };
  const auto run = [&](const auto& calls) {
    if (!completed(r.errors.on_error, calls))
      reel::detail::fail(name, ": byte ", position(), ": JPEG: ", r.errors.message);
  };
  r.c.err = install(r.errors);
  run([&] {
    jpeg_create_decompress(&r.c);
    r.progress.progress_monitor = limit_scans;
    r.c.progress = &r.progress;
    jpeg_mem_src(&r.c, file.data(), file.size());
    jpeg_read_header(&r.c, TRUE);
  });
  // Huffman's codes have a bit at least, and there is one for each block of 8 x 8; an arithmetic code has no such
  // bound.
  if (r.c.arith_code) reel::detail::fail(name, ": byte ", position(), ": JPEG: arithmetic coding is not supported");
  check_size(name, position(), r.c.image_height, r.c.image_width, max_pixels,
             64. * 8 * static_cast<double>(file.size()), file.size());
  bool cmyk = false;
  switch (r.c.jpeg_color_space) {
    case JCS_GRAYSCALE: r.c.out_color_space = JCS_GRAYSCALE; break;
    case JCS_RGB:
    case JCS_YCbCr: r.c.out_color_space = JCS_RGB; break;
    case JCS_CMYK:
    case JCS_YCCK: r.c.out_color_space = JCS_CMYK, cmyk = true; break;
    default:
      reel::detail::fail(name, ": byte ", position(), ": JPEG: an unknown colour space of ", r.c.num_components,
                         " components");
  }
  run([&] { jpeg_start_decompress(&r.c); });
  const int64_t height = r.c.output_height, width = r.c.output_width, channels = r.c.output_components;
  const Pixels pixels = empty({height, width, channels}, {.dtype = kUInt8, .device = kCPU});
  uint8_t* const first = pixels.data<uint8_t>();
  run([&] {
    while (r.c.output_scanline < r.c.output_height) {
      JSAMPROW row = first + r.c.output_scanline * width * channels;
      jpeg_read_scanlines(&r.c, &row, 1);
    }
    jpeg_finish_decompress(&r.c);
  });
  if (!cmyk) return pixels;
  const Pixels rgb = empty({height, width, 3}, {.dtype = kUInt8, .device = kCPU});
  cmyk_to_rgb(pixels, r.c.saw_Adobe_marker, rgb);
  return rgb;
}

std::string encode_jpeg(const Pixels& pixels, int quality) {
  const int64_t height = pixels.size(0), width = pixels.size(1), channels = pixels.size(2);
  REEL_CHECK(height <= JPEG_MAX_DIMENSION && width <= JPEG_MAX_DIMENSION, "JPEG: an image of ", height, " x ", width,
             "; both are at most ", JPEG_MAX_DIMENSION);
  uint8_t* const first = pixels.data<uint8_t>();
  Writer w;
  w.c.err = install(w.errors);
  const bool good = completed(w.errors.on_error, [&] {
    jpeg_create_compress(&w.c);
    jpeg_mem_dest(&w.c, &w.file, &w.bytes);
    w.c.image_width = static_cast<JDIMENSION>(width), w.c.image_height = static_cast<JDIMENSION>(height);
    w.c.input_components = static_cast<int>(channels);
    w.c.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&w.c);
    jpeg_set_quality(&w.c, quality, TRUE);
    jpeg_start_compress(&w.c, TRUE);
    while (w.c.next_scanline < w.c.image_height) {
      JSAMPROW row = first + w.c.next_scanline * width * channels;
      jpeg_write_scanlines(&w.c, &row, 1);
    }
    jpeg_finish_compress(&w.c);
  });
  REEL_CHECK(good, "JPEG: ", w.errors.message);
  return {reinterpret_cast<const char*>(w.file), w.bytes};
}

}  // namespace reel::image
