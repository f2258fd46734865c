#pragma once
#include <cstdint>
#include <string>

namespace reel::tensorboard {

/// A PNG file (ISO/IEC 15948) of `channels` 1 (grey), 3 (RGB) or 4 (RGBA), from bytes [height, width, channels].
std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace reel::tensorboard
