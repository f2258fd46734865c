// GradMetadata describes a gradient before there is one.
#pragma once
#include "lib/tensor/tensor_impl.h"

namespace reel {

/// The dtype, device and shape of a gradient, which are those of the tensor that it belongs to.
struct GradMetadata {
  DType dtype;
  Device device;
  Shape shape;
};
inline GradMetadata metadata_of(const TensorImpl* impl) { return {impl->view.dtype, impl->device(), impl->view.shape}; }

}  // namespace reel
