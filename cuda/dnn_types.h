#pragma once
#include <cudnn.h>

#include "reel/types.h"

// reel's types and cuDNN's answers.
namespace reel::cuda {

inline cudnnDataType_t dnn_type(DType dtype) {
  switch (dtype) {
    case kFloat16: return CUDNN_DATA_HALF;
    case kBFloat16: return CUDNN_DATA_BFLOAT16;
    case kFloat32: return CUDNN_DATA_FLOAT;
    default: return CUDNN_DATA_DOUBLE;
  }
}
/// That an engine computes in.
inline cudnnDataType_t dnn_wide_type(DType dtype) { return dtype == kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }

/// Whether a status says that cuDNN cannot compute this, and not that something has failed, as for lack of memory.
inline bool is_refusal(cudnnStatus_t status) {
  const auto category = CUDNN_STATUS_CATEGORY(status);
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace reel::cuda
