#include "lib/tensorboard/png.h"

#include <zlib.h>

#include <string_view>

#include "reel/error.h"

namespace reel::tensorboard {
namespace {

std::string big_endian(uint64_t number) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(number >> 8 * (3 - i));
  return bytes;
}

void append_chunk(std::string& png, std::string_view type, std::string_view data) {
  png += big_endian(data.size());
  const size_t begin = png.size();
  png.append(type).append(data);
  png +=
      big_endian(::crc32(0, reinterpret_cast<const Bytef*>(png.data() + begin), static_cast<uInt>(png.size() - begin)));
}

}  // namespace

std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels) {
  // A byte before each row says how it was filtered: 0, not at all.
  std::string rows;
  for (int64_t y = 0; y < height; ++y)
    rows.append(1, '\0').append(reinterpret_cast<const char*>(pixels) + y * width * channels, width * channels);
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  const int status = compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                              reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  REEL_CHECK(status == Z_OK, "PNG: zlib's compress failed with status ", status);
  packed.resize(size);

  constexpr int kGrey = 0, kRgb = 2, kRgba = 6, kBits = 8;
  const int color = channels == 1 ? kGrey : channels == 3 ? kRgb : kRgba;
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR",
               big_endian(width) + big_endian(height) + std::string{kBits, static_cast<char>(color), 0, 0, 0});
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace reel::tensorboard
