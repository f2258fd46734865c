// This file has the guards of autocast, which programs make.
#include "reel/amp/autocast.h"

#include "lib/autograd/autocast.h"

namespace reel::amp {

bool autocast_enabled() { return is_autocast_enabled(); }
DType autocast_dtype() { return op_modes.autocast; }

Autocast::Autocast(DType dtype, bool enabled) : before_(op_modes.autocast), outermost_(enabled && !parameter_casts) {
  REEL_CHECK(is_half(dtype), "Autocast: ", dtype, ", neither bfloat16 nor float16");
  if (outermost_) keep_parameter_casts();
  op_modes.set_autocast(enabled ? dtype : kFloat32);
}
Autocast::~Autocast() {
  op_modes.set_autocast(before_);
  if (outermost_) release_parameter_casts();
}

}  // namespace reel::amp
