#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/distributed/group.h"
#include "reel/tensor.h"

// Tensors of collectives as memory that an engine reads and writes.
namespace reel::distributed {

/// An Error unless the tensor is defined.
void check_tensor(const char* op, const Tensor& tensor);
/// An Error unless an engine may write into it.
void check_written(const char* op, const Tensor& tensor);

void* address(const Tensor& tensor);
size_t bytes_of(const Tensor& tensor);
inline void* at(const Tensor& tensor, size_t offset) { return static_cast<char*>(address(tensor)) + offset; }
bool share_memory(const Tensor& a, const Tensor& b);

/// Keeps what is on a GPU from being used again before the stream has done what it has been given.
void record_stream(const Tensor& tensor, DeviceStream& stream);

/// Tensors of an op whose engine moves memory of the host. Those on a GPU go through pinned memory, to which they are
/// copied on the group's own stream, behind what the current one has been given.
class Stage {
 public:
  explicit Stage(Core& core) : core_(core) {}
  /// Its elements, contiguous. With a GPU they are there when wait_for() returns.
  Tensor read(const Tensor& tensor);
  void read(const Tensor& tensor, const Tensor& into);
  /// The elements of all tensors, one after the other.
  Tensor joined(std::span<const Tensor> tensors, std::vector<size_t>& sizes);
  /// Waits, in whatever thread runs the op, for copies from GPUs.
  std::function<void()> wait_for();

 private:
  Core& core_;
  std::vector<std::pair<Device, std::shared_ptr<DeviceEvent>>> copied_;
};

/// Memory of the host for a tensor's elements or for any bytes; pinned if a GPU copies from or to it.
Tensor host_memory(const Shape& shape, DType dtype, Device copied_with);

/// Its elements, contiguous, where they are.
Tensor packed(const Tensor& tensor);

/// Memory that an engine writes to, which is the tensor's own or copied to it afterwards.
class Written {
 public:
  /// For an engine of the host's memory, or one of the tensor's device.
  enum At { kHost, kDevice };
  explicit Written(const Tensor& tensor, At at = kHost);
  const Tensor& dense() const { return dense_; }
  bool is_copied() const { return !dense_.is_same(tensor_); }
  /// Gives it the tensor's elements.
  void fill(Stage& stage) const;
  void finish() const;

 private:
  Tensor tensor_, dense_;
};

/// Tensors of one device that its engine writes to; undefined ones are of no bytes.
class Parts {
 public:
  explicit Parts(std::span<const Tensor> tensors);
  const std::vector<Tensor>& dense() const { return dense_; }  // without those that are undefined
  const std::vector<void*>& addresses() const { return addresses_; }
  const std::vector<size_t>& sizes() const { return sizes_; }
  void finish() const;

 private:
  std::vector<Written> written_;
  std::vector<Tensor> dense_;
  std::vector<void*> addresses_;
  std::vector<size_t> sizes_;
};

/// Room for tensors, one after the other, and what copies it to them.
std::pair<Tensor, std::function<void()>> split(std::span<const Tensor> tensors, std::vector<size_t>& sizes);

}  // namespace reel::distributed
