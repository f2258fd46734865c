#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "reel/distributed/group.h"
#include "reel/types.h"

// What moves bytes of host memory between the ranks of a group: Gloo, or memory that threads share.
namespace reel::distributed {

/// Numbers a collective of a group; a call waits for the calls with the same tag on the other ranks.
using Tag = uint32_t;

/// A message under way. The memory must live until it is over; the destructor forgets one that is not.
class Message {
 public:
  virtual ~Message() = default;
  virtual int wait() = 0;   ///< Blocks until it is over, and returns the other rank. Throws as a collective does.
  virtual bool done() = 0;  ///< Whether wait() would return or throw at once.
};

/// Collectives block, and throw whatever the engine throws when it fails: who calls them asks the member for the cause.
/// Calls with different tags may run at the same time, in different threads. Sizes are equal on all ranks: callers
/// check.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void all_reduce(Tag tag, void* data, int64_t count, DType dtype, ReduceOp op) = 0;  // not kAvg
  virtual void broadcast(Tag tag, void* data, size_t bytes, int root) = 0;
  /// out = the ranks' `in`, one after the other; bytes[r] are rank r's. in may be at its place in out.
  virtual void all_gather(Tag tag, const void* in, void* out, std::span<const size_t> bytes) = 0;
  /// ins and outs are the parts for and from the ranks, one after the other.
  virtual void all_to_all(Tag tag, const void* in, std::span<const size_t> in_bytes, void* out,
                          std::span<const size_t> out_bytes) = 0;
  virtual void barrier(Tag tag) = 0;
  /// Messages go on by themselves, in whatever order the caller waits for them. Those of one tag between two ranks are
  /// received in the order in which they were sent.
  virtual std::unique_ptr<Message> send(int to, int tag, const void* data, size_t bytes, DType dtype) = 0;
  /// From whichever of these ranks sends first. If that is not of this size and dtype, wait() throws an Error of
  /// kMismatch with the rank of the group.
  virtual std::unique_ptr<Message> recv(std::span<const int> from, int tag, void* data, size_t bytes, DType dtype) = 0;
  /// From any thread: all calls under way, and all later ones, throw soon.
  virtual void abort() noexcept = 0;
};

/// Over TCP, bound to `address` unless options name an interface. `store` is the group's own part of the job's; ranks
/// are those of the group. `abort` is told how to end the rendezvous from another thread, before it begins, and is told
/// nullptr after it.
std::unique_ptr<Engine> make_gloo_engine(std::shared_ptr<Store> store, int rank, int size,
                                         const ProcessGroupOptions& options, const std::string& address,
                                         const std::function<void(std::function<void()>)>& abort);
/// Between threads of this process that name the same group.
std::unique_ptr<Engine> make_thread_engine(std::shared_ptr<Store> store, int rank, int size, Milliseconds timeout);

/// into[i] = into[i] op from[i]; op is not kAvg.
void combine(void* into, const void* from, int64_t count, DType dtype, ReduceOp op);
/// out[i] = parts[0][i] op parts[1][i] op …, in this order; halves are added in float32 and rounded once. kAvg divides
/// by the number of parts. out may be one of the parts.
void reduce_parts(std::span<const void* const> parts, int64_t count, DType dtype, ReduceOp op, void* out);
/// data[i] /= divisor, of a floating-point type.
void divide(void* data, int64_t count, DType dtype, int divisor);

}  // namespace reel::distributed
