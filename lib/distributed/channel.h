#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "reel/distributed/group.h"

namespace reel::distributed {

/// Collectives over the host's memory, or contiguous tensors of any device, with tags of their own, without
/// fingerprints: what DistributedDataParallel talks over, in the order of its launches, whatever else the group does.
/// Memory must live until the launch has been waited for.
class Channel {
 public:
  /// All ranks of the group open it, in the same order of channels.
  explicit Channel(ProcessGroup& group);
  /// Waits for what is under way.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Of a launch, from 1. wait() throws the group's Error if it has failed; its memory is free again in either case.
  /// The calling thread runs what no worker has begun yet. Returns when it has ended, on the profiler's clock; 0 if it
  /// has been waited for before. Of a tensor on a GPU only the current stream waits, if NCCL moves it.
  using Ticket = uint64_t;
  Ticket all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, const char* name);
  Ticket broadcast(void* data, size_t bytes, int root, const char* name);
  Ticket all_reduce(const Tensor& tensor, ReduceOp op, const char* name);
  Ticket broadcast(const Tensor& tensor, int root, const char* name);
  Ticket all_gather(const void* in, void* out, std::span<const size_t> bytes, const char* name);
  int64_t wait(Ticket ticket);
  bool done(Ticket ticket) const;

  /// The group's Error, or an exception of this rank's code during a step: ends the job with it on all ranks.
  void abort(const std::string& why) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reel::distributed
