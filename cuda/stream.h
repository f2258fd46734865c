#pragma once
#include <memory>

#include "cuda/runtime.h"
#include "reel/cuda.h"

// What a stream is, for those who work with more than the current one.
namespace reel::cuda {

inline constexpr int kMostDevices = 16;
struct DeviceState;
struct Pool;

struct Stream::Impl {
  DeviceState& state;
  Pool* const pool;
  cudaStream_t stream = nullptr;
  std::weak_ptr<Impl> holder;  // of a stream that a user made

  explicit Impl(DeviceState& on);
};

Stream::Impl& current_stream(int device);

}  // namespace reel::cuda
