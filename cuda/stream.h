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
/// The block's memory may be used again only when what `stream` has been given by the time of its release is done.
void record_use(Block* block, const Stream& stream);

}  // namespace reel::cuda
