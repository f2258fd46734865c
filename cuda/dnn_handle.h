#pragma once
#include <cudnn.h>

#include "cuda/plans.h"
#include "cuda/runtime.h"

namespace reel::cuda {

inline void dnn_check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char why[512] = "";
  cudnnGetLastErrorString(why, sizeof why);
  reel::detail::fail("cuDNN: ", cudnnGetErrorString(status), " from ", call, ". ", why);
}
#define CUDNN_CHECK(call) dnn_check(call, #call)

/// The calling thread's handle for its current device, which works on its current stream.
class DnnHandle {
 public:
  static cudnnHandle_t get() {
    DnnHandle& mine = of_this_thread<DnnHandle>();
    if (mine.stream_ != stream()) {
      CUDNN_CHECK(cudnnSetStream(mine.handle_, stream()));
      mine.stream_ = stream();
    }
    return mine.handle_;
  }
  DnnHandle() { CUDNN_CHECK(cudnnCreate(&handle_)); }

 private:
  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace reel::cuda
