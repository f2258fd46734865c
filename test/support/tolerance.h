#pragma once
#include "reel/types.h"

namespace reel {

/// How far a result that was rounded once may be from the exact one, relative to the largest element.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case kFloat64: return 1e-12;
    case kFloat32: return 2e-6;
    case kFloat16: return 2e-3;
    case kBFloat16: return 1.6e-2;
    default: return 0;
  }
}

}  // namespace reel
