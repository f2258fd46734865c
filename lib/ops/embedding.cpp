#include "lib/ops/internal.h"

namespace reel {}  // namespace reel
