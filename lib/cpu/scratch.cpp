#include "lib/cpu/scratch.h"

namespace reel::cpu {

Scratch::Scratch(size_t bytes) : bytes_(bytes), data_(bytes ? allocate_cpu(bytes) : nullptr) {}
Scratch::~Scratch() {
  if (data_) release_cpu(data_, bytes_);
}

}  // namespace reel::cpu
