// This file calls ISA-L for checksums.
#include "lib/io/checksum.h"

#include <isa-l/crc.h>

namespace reel::io {

uint32_t crc_of(const void* data, size_t bytes, uint32_t before) {
  return crc32_gzip_refl(before, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace reel::io
