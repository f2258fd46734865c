#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/distributed/channel.h"
#include "reel/tensor.h"

// Gradients side by side in flat memory, which travels as one.
namespace reel::distributed {

/// Some parameters of one dtype and device, whose gradients travel together.
struct Bucket {
  DType dtype;
  Device device;
  std::vector<uint32_t> slots;   // of its parameters
  std::vector<int64_t> offsets;  // of each in `flat`, in elements
  int64_t header = 0;            // elements at the front that are no gradients
  int64_t count = 0;             // of all elements, with the gaps between parameters
  std::string name;              // "bucket 3 (float32)"
  Tensor flat;                   // [count], allocated by the caller
  bool adopted = false;          // gradients are its parts, divided on their way into it: see adopt_gradient

  // Of one reduction.
  uint32_t missing = 0;  // parameters that are not in flat yet
  Channel::Ticket ticket = 0;
  std::function<void()> finish;                         // in place of the ticket, with a hook
  int64_t ready_at = 0, launched_at = 0, ended_at = 0;  // of the profiler's clock

  int64_t bytes() const { return count * size_of(dtype); }
};

/// The buckets of the parameters `slots`, last ones first, since a backward pass reaches those earliest. It depends on
/// the parameters alone. A bucket has more bytes than its limit only with a single parameter.
std::vector<Bucket> make_buckets(std::span<const Tensor> parameters, std::span<const uint32_t> slots,
                                 size_t first_bytes, size_t bytes);

/// Writes a gradient of any layout to its place in a flat tensor, zeros if it is undefined.
void put_gradient(const Tensor& grad, const Tensor& flat, int64_t offset, int64_t numel);
/// Makes the gradient of a parameter its place in a flat tensor / divisor; in the place of the present gradient, where
/// that is possible.
void set_gradient(const Tensor& parameter, const Tensor& flat, int64_t offset, double divisor);
/// The same for a bucket of which gradients become parts: no byte is copied after the reduction. `flat` must then be
/// left to them. Not where somebody else holds the present gradient, and would be left with an old one: false.
bool adopt_gradient(const Tensor& parameter, const Tensor& flat, int64_t offset);
/// Whether gradients of this bucket are, which are divided before they are added: the same bits as afterwards, if the
/// divisor is a power of two, but for sums that leave the range of normal numbers. On the CPU.
bool can_adopt(const Bucket& bucket, int divisor);
/// Writes a gradient / divisor to its place.
void put_divided(const Tensor& grad, const Tensor& flat, int64_t offset, int64_t numel, double divisor);
/// Memory of a CPU tensor.
void* memory_of(const Tensor& tensor);
/// Makes the tensors on all ranks those of the root's, in pieces.
void broadcast_tensors(Channel& channel, std::span<const Tensor> tensors, int root, int rank, const char* name);

}  // namespace reel::distributed
