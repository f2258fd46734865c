#pragma once
#include <string>
#include <type_traits>
#include <utility>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Parameters and buffers, which register themselves in the module that has them.
namespace reel::nn {

class Module;

namespace internal {
struct ModuleParts;

/// What a registered tensor is to its module. A computed parameter (see parametrize.h) is not trained itself.
enum class TensorKind { kParameter, kComputed, kBuffer, kTransientBuffer };

/// What Parameter and Buffer share: a Tensor handle whose address its module has. The module reads and replaces the
/// tensor through that address, so there is no second handle that could differ from this one. The address follows when
/// the handle is moved, alone or as a member of its module, and is taken off the module's list when it is destroyed.
class RegisteredTensor : public Tensor {
 public:
  RegisteredTensor(const RegisteredTensor&) = delete;
  RegisteredTensor& operator=(const RegisteredTensor&) = delete;

 protected:
  RegisteredTensor(Module& owner, TensorKind kind, std::string name, const Tensor& tensor);
  RegisteredTensor(RegisteredTensor&& other) noexcept;
  ~RegisteredTensor();
  void assign(const Tensor& tensor, bool trainable);

 private:
  friend class nn::Module;
  friend struct ModuleParts;
  Module* owner_;
};

}  // namespace internal

/// A tensor that is trained. It is declared as a member of a module and registers itself there:
///
///   nn::Parameter scale{*this, "scale", ones({256})};
///
/// A Parameter is a Tensor and is used as one. Assigning another tensor replaces it everywhere: in forward,
/// parameters(), to() and state_dict(). Assigning another module's parameter ties the two: `out.weight = emb.weight`.
/// An optimizer that was made before keeps the tensor it was given, as in PyTorch, so tie first.
///
/// The tensor must be a floating-point leaf; anything else is an Error that names the parameter. Any shape is accepted,
/// as in PyTorch; layers check it when they are called. An undefined tensor (an optional bias) leaves the name
/// registered and empty: it is skipped in all lists until a tensor is assigned.
///
/// A Parameter can be moved, so std::vector<nn::Parameter> serves where the number is known at run time. It is not
/// copied: `Tensor w = layer.weight` makes a plain handle of the same tensor, and assigning to that changes no module.
class Parameter : public internal::RegisteredTensor {
 public:
  /// Registers `tensor` under `name`, and sets requires_grad. The name must be non-empty, unique in `owner` and without
  /// '.', or the call throws.
  Parameter(Module& owner, std::string name, const Tensor& tensor = {})
      : RegisteredTensor(owner, internal::TensorKind::kParameter, std::move(name), tensor) {}
  Parameter(Parameter&& other) noexcept = default;  ///< The registration moves along.
  /// Replaces the tensor, and sets requires_grad on the new one.
  Parameter& operator=(const Tensor& tensor) & { return assign(tensor, true), *this; }
  /// Shares the other's tensor, which stays frozen if it is.
  Parameter& operator=(const Parameter& other) & { return assign(other, false), *this; }
  Parameter& operator=(Parameter&&) = delete;
  template <class T>
  requires std::is_arithmetic_v<T> Parameter& operator=(T) = delete;  ///< fill_(number) changes the elements.
};

/// A tensor that moves with its module and is not trained, such as a running mean. Like a Parameter it is a Tensor that
/// registers itself, and assigning replaces it everywhere.
///
///   nn::Buffer running_mean{*this, "running_mean", zeros({256})};
class Buffer : public internal::RegisteredTensor {
 public:
  /// Registers a tensor of any dtype without history. It is saved with the module unless `persistent` is false.
  Buffer(Module& owner, std::string name, const Tensor& tensor = {}, bool persistent = true)
      : RegisteredTensor(owner, persistent ? internal::TensorKind::kBuffer : internal::TensorKind::kTransientBuffer,
                         std::move(name), tensor) {}
  Buffer(Buffer&& other) noexcept = default;  ///< The registration moves along.
  /// Replaces the tensor. One that was computed with recording on is an Error; detach() it.
  Buffer& operator=(const Tensor& tensor) & { return assign(tensor, false), *this; }
  Buffer& operator=(const Buffer& other) & { return assign(other, false), *this; }  ///< Shares the other's tensor.
  Buffer& operator=(Buffer&&) = delete;
  template <class T>
  requires std::is_arithmetic_v<T> Buffer& operator=(T) = delete;  ///< fill_(number) changes the elements.
};

}  // namespace reel::nn
#pragma GCC visibility pop
