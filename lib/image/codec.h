#pragma once
#include <csetjmp>
#include <cstdint>
#include <span>
#include <string>

#include "reel/image.h"

// What png.cpp and jpeg.cpp do for read_image and write_image.
namespace reel::image {

/// An image as files have it: uint8 [height, width, channels], where 1 and 2 channels are grey, 3 and 4 RGB, and the
/// last of 2 and 4 is alpha.
using Pixels = Tensor;

/// Decodes a file of which `name` is the name. They check the announced size against max_pixels and the size of the
/// file before they allocate.
Pixels decode_png(std::span<const uint8_t> file, const std::string& name, int64_t max_pixels);
Pixels decode_jpeg(std::span<const uint8_t> file, const std::string& name, int64_t max_pixels);
std::string encode_png(const Pixels& pixels, int compression_level);
std::string encode_jpeg(const Pixels& pixels, int quality);

/// libpng and libjpeg report errors by a callback that must not return, and no exception may pass through C. So the
/// callback jumps here: false if it did. `calls` holds nothing that has a destructor, and neither do the callbacks.
template <class F>
[[gnu::noinline]] bool completed(std::jmp_buf& on_error, const F& calls) {
  if (setjmp(on_error)) return false;
  calls();
  return true;
}

/// "cat.png: byte 33: an image of 70000 x 70000 …" if that is more than is allowed, or than `capacity` pixels, which a
/// file of `bytes` can hold at most.
void check_size(const std::string& name, int64_t position, int64_t height, int64_t width, int64_t max_pixels,
                double capacity, size_t bytes);

}  // namespace reel::image
