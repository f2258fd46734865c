#include "reel/version.h"

#define REEL_TEXT_OF(x) #x
#define REEL_TEXT(x) REEL_TEXT_OF(x)

namespace reel {

const char* version() {
  return REEL_TEXT(REEL_VERSION_MAJOR) "." REEL_TEXT(REEL_VERSION_MINOR) "." REEL_TEXT(REEL_VERSION_PATCH);
}

}  // namespace reel
