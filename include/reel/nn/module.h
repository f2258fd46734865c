#pragma once
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "reel/state_dict.h"
#include "reel/tensor.h"

namespace reel::nn {

struct LoadOptions {
  bool strict = true;  ///< Refuse names that are missing or not expected. Wrong shapes are refused always.
};
/// What load_state_dict passed over when not strict.
struct LoadResult {
  std::vector<std::string> missing, unexpected;
};

/// The base of everything that has parameters. A module is a plain struct whose members register themselves where they
/// are declared:
///
///   struct Net : nn::Module {
///     nn::Linear hidden{*this, "hidden", 784, 256};
///     Tensor scale = register_parameter("scale", ones({256}));
///     Tensor forward(const Tensor& x) const { return relu(hidden(x)) * scale; }
///   };
///
/// Names are joined by dots to paths: "hidden.weight". Tensors are handles, so the member `scale` and the registered
/// parameter are one tensor for good: change its values (no_grad, copy_, to), never assign another tensor to it.
/// A module stays where it was made: it is neither copied nor moved.
class Module {
 public:
  /// For modules that are parts of others: `using Module::Module;` makes `Block block{*this, "block"}` possible.
  Module(Module& parent, std::string name) { parent.register_module(std::move(name), *this); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  // Registration. Names are neither empty nor used twice in a module nor hold a '.'; anything else is an Error.
  /// Makes `tensor`, a floating-point leaf, a parameter: it gets requires_grad, and is returned. An undefined tensor is
  /// returned as it is, without being registered (an optional bias).
  Tensor register_parameter(std::string name, Tensor tensor);
  /// A tensor that is saved and moved with the module but not trained, such as a running mean.
  Tensor register_buffer(std::string name, Tensor tensor);
  /// Makes `child`, which has no parent yet, a part of this module. It must live as long as it is used through here; a
  /// child that dies is taken off the list.
  void register_module(std::string name, Module& child);

  // Everything below covers this module and all modules in it, in the order of declaration.
  std::vector<Tensor> parameters() const;  ///< Each tensor once, however often it is shared.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;  ///< Each once, under its first path.
  std::vector<Tensor> buffers() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  std::vector<std::pair<std::string, Module*>> children() const;  ///< The direct ones.
  std::vector<std::pair<std::string, Module*>> named_modules();   ///< This one, as "", and all below.

  /// Layers that behave differently in training (dropout) ask is_training(); true at first.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Moves parameters, buffers and gradients in place: all handles to them follow. Converting to a floating-point type
  /// leaves integer and bool buffers alone. An optimizer keeps the states it has, so move before the first step().
  void to(Device device);
  void to(DType dtype);
  void requires_grad_(bool value = true);
  void zero_grad();  ///< Drops the gradients.

  /// Parameters and buffers by path, without history, sharing storage with the module. Shared ones appear under each of
  /// their paths.
  StateDict state_dict() const;
  /// Copies values (cast, moved to the module's device) into the parameters and buffers. The Error lists every name
  /// that is missing or unexpected and every shape that differs, and leaves the module as it was.
  LoadResult load_state_dict(const StateDict& dict, LoadOptions options = {});

  /// What the printed form calls this module: its C++ type without namespaces.
  virtual std::string name() const;
  /// What the printed form puts into the parentheses: "in_features=784, out_features=256, bias=true".
  virtual std::string extra_repr() const { return {}; }
  std::string to_string() const;  ///< The tree of modules, as PyTorch prints it.

 protected:
  Module() = default;

 private:
  struct Entry {
    enum Kind { kParameter, kBuffer, kModule } kind;
    std::string name;
    Tensor tensor;
    Module* module = nullptr;
  };
  void add(Entry entry);
  template <class Visit>
  void for_each_tensor(const std::string& prefix, const Visit& visit) const;
  std::vector<std::pair<std::string, Tensor>> named(Entry::Kind kind) const;
  void list_modules(const std::string& path, std::vector<std::pair<std::string, Module*>>& all);
  template <class Convert>
  void replace_tensors(const Convert& convert);

  std::vector<Entry> entries_;
  Module* parent_ = nullptr;
  bool training_ = true;
};

std::ostream& operator<<(std::ostream& out, const Module& module);

/// A module that is called like a function: layer(x) is layer.forward(x). `struct Block : nn::Layer<Block>` makes one;
/// with `using Layer::Layer;` it can be declared as a part: `Block block{*this, "block"}`.
template <class Derived>
struct Layer : Module {
  using Module::Module;
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return static_cast<const Derived&>(*this).forward(std::forward<Args>(args)...);
  }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return static_cast<Derived&>(*this).forward(std::forward<Args>(args)...);
  }

 protected:
  Layer() = default;
};

}  // namespace reel::nn
