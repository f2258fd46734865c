#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "lib/device/device.h"
#include "reel/distributed/group.h"

// NCCL, which is opened when it is first needed: it takes hundreds of megabytes. What reel calls of it has had the same
// ABI since 2.14, and is declared in nccl.cpp, so that a build needs nothing of it.
namespace reel::distributed {

/// Whether NCCL can be opened on this machine.
bool has_nccl();
/// Its version, 22809 for 2.28.9; an Error that says why if it cannot be opened.
int nccl_version();

/// A communicator: the ranks of a group, each with one GPU. Calls queue work on a stream of that GPU and return. They
/// must come in the same order on all ranks, and throw
///
///   reel::Error         if a call was wrong,
///   std::runtime_error  if NCCL failed: another rank may be the cause,
///   Nccl::Late          at the deadline, or
///   Nccl::Aborted       once abort() has been called.
///
/// All calls are made without blocking in NCCL: what takes longer is polled, so that abort() never finds a thread
/// inside of NCCL.
class Nccl {
 public:
  struct Late {};
  struct Aborted {};
  using Deadline = std::chrono::steady_clock::time_point;

  /// Connects nothing yet.
  Nccl(int rank, int size, Device device);
  /// abort(), and waits for its end. Nothing is lost if what all ranks have queued is done.
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// Rendezvous of all ranks; `store` is the group's own part of the job's.
  void connect(Store& store, Deadline deadline);
  Device device() const { return device_; }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, DeviceStream& stream, Deadline deadline);
  void broadcast(void* data, size_t bytes, int root, DeviceStream& stream, Deadline deadline);
  void all_gather(const void* in, void* out, size_t bytes, DeviceStream& stream, Deadline deadline);
  /// outs[r] = rank r's `in`, of bytes[r].
  void all_gather_v(const void* in, std::span<void* const> outs, std::span<const size_t> bytes, DeviceStream& stream,
                    Deadline deadline);
  void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, DeviceStream& stream,
                      Deadline deadline);
  /// outs[r] = ins[this rank] of rank r; where there are no bytes, nothing is sent.
  void all_to_all(std::span<const void* const> ins, std::span<const size_t> in_bytes, std::span<void* const> outs,
                  std::span<const size_t> out_bytes, DeviceStream& stream, Deadline deadline);

  /// What has failed behind the calls, "" if nothing has.
  std::string failure();
  /// From any thread: what is under way on the GPU ends soon, its results undefined, and all calls throw. Returns at
  /// once. NCCL's own abort has been seen to hang: if it does for kAbortLimit, the process ends with code 70.
  void abort() noexcept;
  static constexpr auto kAbortLimit = std::chrono::seconds(10);

 private:
  struct Library;
  static const Library& library();
  friend bool has_nccl();
  friend int nccl_version();

  void make_current() const;
  /// Throws unless the result is success, for which it waits.
  void finish(int result, const char* call, Deadline deadline);
  /// A call, or several that NCCL is given as one.
  void issue(const char* call, const std::function<int()>& f, Deadline deadline);
  std::string reason(int result) const;

  const int rank_, size_;
  const Device device_;
  std::mutex mutex_;  // of the communicator
  void* communicator_ = nullptr;
  std::atomic<bool> aborted_{false};
  std::thread aborter_;
};

}  // namespace reel::distributed
