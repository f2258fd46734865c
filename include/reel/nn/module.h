#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "reel/nn/detail/call.h"
#include "reel/nn/parameter.h"
#include "reel/profile.h"
#include "reel/state_dict.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Modules, layers, which are modules that are called, and hooks.
namespace reel::nn {

class Module;

/// What load_state_dict skipped, where it was allowed to.
struct LoadResult {
  std::vector<std::string> missing;     ///< Paths of the module that the dict has no tensor for.
  std::vector<std::string> unexpected;  ///< Names to be loaded that the module has no tensor for.
  std::vector<std::string> mismatched;  ///< Paths whose tensor in the dict has another shape.
};
/// Writes what there is of them: "missing: fc.weight, fc.bias".
std::ostream& operator<<(std::ostream& out, const LoadResult& result);

/// Runs before a module's forward and may replace the Tensors that it is called with.
using ForwardPreHook = std::function<void(Module& module, std::vector<Tensor>& inputs)>;
/// Runs after a module's forward and may replace the Tensors that it returns.
using ForwardHook =
    std::function<void(Module& module, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs)>;
/// Runs in backward() when the gradients of a module's inputs are known, and may replace them. Undefined are those of
/// inputs without a gradient and of outputs that do not contribute to the result.
using FullBackwardHook =
    std::function<void(Module& module, std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs)>;

/// The base of everything that has parameters. A module is a plain struct whose members register themselves where they
/// are declared:
///
///   struct Net : nn::Layer<Net> {
///     nn::Linear hidden{*this, "hidden", 784, 256};
///     nn::Parameter scale{*this, "scale", ones({256})};
///     Tensor forward(const Tensor& x) const { return relu(hidden(x)) * scale; }
///   };
///
/// Layer<Net>, below, is a Module that is called: net(x) is net.forward(x) with the hooks run. Names are joined by dots
/// to paths: "hidden.weight". Assigning to a member replaces the parameter (see parameter.h). Modules are movable (all
/// of reel's, and plain structs of movable members), not copyable; pointers into a moved module dangle, such as a
/// captured `this`. A module that has a parent cannot be moved into a container: that throws and changes nothing.
class Module {
 public:
  /// For modules that are parts of others: `using Module::Module;` makes `Block block{*this, "block"}` possible.
  Module(Module& parent, std::string name) { parent.register_module(std::move(name), *this); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module& operator=(Module&&) = delete;  // use nn::replace(net.fc, nn::Linear(16, 3)) instead of net.fc = …
  virtual ~Module();

  /// Does not compile, and says why: a Layer has the call, which runs hooks.
  template <class... Args>
  void operator()(Args&&...) const {
    static_assert(sizeof...(Args) > 1000,
                  "a plain nn::Module is not called: derive from nn::Layer<Net> for net(x), or write net.forward(x)");
  }

  /// Makes `child`, which has no parent yet, a part of this module. The name must be non-empty, unique in this module
  /// and without '.', or the call throws. The child must live as long as it is used through here; a child that is
  /// destroyed is unregistered.
  void register_module(std::string name, Module& child);

  // Everything below covers this module and all modules in it, in the order of declaration.
  std::vector<Tensor> parameters(bool recurse = true) const;  ///< Each tensor once, however often it is shared.
  /// Each once, under its first path. Without `recurse`, here and elsewhere: only this module's own.
  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;  ///< As parameters().
  /// As named_parameters().
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  std::vector<Module*> children() const;                                ///< The direct ones.
  std::vector<std::pair<std::string, Module*>> named_children() const;  ///< With their names.
  std::vector<Module*> modules();                                       ///< This one and all below.
  std::vector<std::pair<std::string, Module*>> named_modules();  ///< The same with their paths, this one's is "".
  /// f(module) for all modules below, then for this one: net.apply([](nn::Module& m) { … }).
  void apply(const std::function<void(Module&)>& f);

  // By path, "encoder.cell.weight"; an Error where there is nothing.
  Parameter& get_parameter(std::string_view path);              ///< The member itself: assigning to it replaces.
  const Parameter& get_parameter(std::string_view path) const;  ///< The same.
  Buffer& get_buffer(std::string_view path);                    ///< The member itself.
  const Buffer& get_buffer(std::string_view path) const;        ///< The same.
  Module& get_submodule(std::string_view path);                 ///< The empty path is this module.
  const Module& get_submodule(std::string_view path) const;     ///< The same.
  ///@{
  /// Returns this module as its concrete type, or nullptr if it has another:
  /// if (auto* fc = module.as<nn::Linear>()) init::zeros_(fc->weight).
  template <class M>
  M* as() {
    return dynamic_cast<M*>(this);
  }
  template <class M>
  const M* as() const {
    return dynamic_cast<const M*>(this);
  }
  ///@}
  ///@{
  /// Returns this module as its concrete type; an Error if it has another:
  /// net.get_submodule("fc").as_ref<nn::Linear>().weight.
  template <class M>
  M& as_ref() {
    return const_cast<M&>(std::as_const(*this).as_ref<M>());
  }
  template <class M>
  const M& as_ref() const {
    const M* const module = as<M>();
    REEL_CHECK(module, "Module::as_ref: ", path(), path().empty() ? "" : " ", "is a ", name());
    return *module;
  }
  ///@}
  /// Where this module is in the largest one that it is part of: "encoder.cell", "" for one that is no part.
  std::string path() const;

  /// Sets is_training(), initially true, which layers that behave differently in training read, such as dropout. True
  /// is an Error for modules that were fused for inference.
  void train(bool on = true);
  void eval() { train(false); }                   ///< train(false).
  bool is_training() const { return training_; }  ///< As train() and eval() have set it.
  /// Returns whether fuse_for_inference has prepared this module: it cannot be trained any more.
  bool is_fused() const { return fused_; }

  /// Moves parameters, buffers and gradients in place, so every handle to them sees the change. Converting to a
  /// floating-point type leaves integer and bool buffers alone. Optimizer states are not moved: call to() before the
  /// first step().
  void to(Device device);
  void to(DType dtype);                    ///< An Error for a type that is not floating-point.
  void requires_grad_(bool value = true);  ///< False freezes the parameters.
  void zero_grad();                        ///< Drops the gradients.

  /// Parameters and buffers by path, without history, sharing storage with the module. Shared ones appear under each of
  /// their paths.
  StateDict state_dict() const;
  /// Copies values (cast, moved to the module's device) into the parameters and buffers. The Error lists every name
  /// that is missing or unexpected and every shape that differs, and leaves the module as it was. For a tensor with
  /// several paths one of them is enough.
  LoadResult load_state_dict(const StateDict& dict, const LoadOptions& options = {});

  // Hooks run when a Layer is called as a function, layer(x); layer.forward(x) does not run them. Registering one on a
  // module that is no Layer, which has no such call, is an Error. Hooks see the Tensors among the arguments and
  // results, also inside of lists, pairs and structs of Tensors such as CellState; structs that also have other members
  // are not searched. They run in the order in which they were registered. Each registration returns a number for
  // remove_hook; without hooks a call costs nothing.
  int64_t register_forward_pre_hook(ForwardPreHook hook);  ///< Before forward.
  int64_t register_forward_hook(ForwardHook hook);         ///< After forward.
  /// Runs when the gradients of the inputs are complete or, if no input requires grad, those of the outputs, with
  /// undefined grad_inputs. A call that records and gives no Tensors is an Error. As in PyTorch, forward gets views of
  /// its inputs and the caller views of the outputs, whose in-place changes while recording are an Error: clone() them.
  int64_t register_full_backward_hook(FullBackwardHook hook);
  void remove_hook(int64_t id);  ///< Does nothing for a number that is not in use.

  /// What the printed form calls this module: its C++ type without namespaces.
  virtual std::string name() const;
  /// What the printed form puts into the parentheses: "in_features=784, out_features=256, bias=true".
  virtual std::string extra_repr() const { return {}; }
  std::string to_string() const;  ///< The tree of modules, as PyTorch prints it.

 protected:
  Module() = default;      ///< For modules that are no parts, or not yet.
  Module(Module&& other);  ///< Takes over the registrations, the place in the parent and the hooks.
  /// Unregisters a child.
  void unregister_module(Module& child);
  /// Throws what register_module(name, child) would; called before the child is moved.
  void check_part(const std::string& name, const Module& child) const;

  std::string label() const;  ///< "encoder.fc (Linear)"
  /// Whether a call has more to do than forward().
  bool has_hooks() const { return hooks_ != nullptr; }
  /// Returns whether the layer in front computes what this one did.
  bool is_folded() const { return folded_dims_ != 0; }
  /// Throws unless x has as many dimensions as what the layer in front computes.
  void check_folded(const Tensor& x) const;
  /// In a catch block: throws what has been caught, with the path of this module if it is a bare Error.
  [[noreturn]] void rethrow_with_path() const;

 private:
  friend class internal::HookedCall;
  friend class internal::RegisteredTensor;
  friend struct internal::ModuleParts;
  struct Entry {
    std::string name;
    Module* module = nullptr;  // a child, or
    internal::RegisteredTensor* tensor = nullptr;
    internal::TensorKind kind = {};  // of the tensor
  };
  virtual bool is_layer() const { return false; }

  std::vector<Entry> entries_;
  Module* parent_ = nullptr;
  std::shared_ptr<internal::Hooks> hooks_;  // none, mostly
  bool training_ = true, fused_ = false;
  int8_t folded_dims_ = 0;  // of what a folded layer returns as it is; 0 for others
};

/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Module& module);

namespace internal {
Module* leave_parent(Module& part, const Module& with, const std::type_info& type);
void enter_parent(Module& part, Module* parent);
}  // namespace internal

/// Puts a module in the place of one that is a part, as net.fc = nn.Linear(16, 3) does in Python:
///
///   io::load(net, "pretrained.safetensors");
///   nn::replace(net.fc, nn::Linear(16, 3));
///
/// Pointers and references to the old module are to the new one, whose parameters and mode are its own; hooks of the
/// old one are gone. `with` must not be a part of a module, and both must be of type M itself, or the call throws and
/// changes nothing. An optimizer that was made before trains the old parameters: make it afterwards.
template <std::derived_from<Module> M>
M& replace(M& part, std::type_identity_t<M>&& with) {
  Module* const parent = internal::leave_parent(part, with, typeid(M));
  // Members are const, so it is made anew at its address; nothing but moves, which do not throw.
  [&]() noexcept { std::destroy_at(&part), std::construct_at(&part, std::move(with)); }();
  internal::enter_parent(part, parent);
  return part;
}

/// A module that is called like a function: layer(x) is layer.forward(x) with the hooks run. `struct Block :
/// nn::Layer<Block>` makes one; with `using Layer::Layer;` it can be declared as a part: `Block block{*this, "block"}`.
/// The message of an Error that is thrown in forward names the part of the model.
template <class Derived>
struct Layer : Module {
  using Module::Module;
  /// forward(args…), with the hooks.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return call(static_cast<const Derived&>(*this), std::forward<Args>(args)...);
  }
  /// The same for a forward that changes the layer.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return call(static_cast<Derived&>(*this), std::forward<Args>(args)...);
  }

 protected:
  Layer() = default;  ///< For layers that are no parts, or not yet.

 private:
  bool is_layer() const final { return true; }
  template <class Self, class... Args>
  static decltype(auto) call(Self& self, Args&&... args) {
    if (__builtin_expect(profile::running(), 0)) return call_profiled(self, std::forward<Args>(args)...);
    return call_unprofiled(self, std::forward<Args>(args)...);
  }
  template <class Self, class... Args>
  [[gnu::noinline]] static decltype(auto) call_profiled(Self& self, Args&&... args) {
    const profile::Scope scope(self.label(), profile::Kind::kLayer);
    return call_unprofiled(self, std::forward<Args>(args)...);
  }
  template <class Self, class... Args>
  static decltype(auto) call_unprofiled(Self& self, Args&&... args) {
    if (__builtin_expect(self.has_hooks(), 0)) return internal::call_with_hooks(self, std::forward<Args>(args)...);
    try {
      return self.forward(std::forward<Args>(args)...);
    } catch (const std::exception&) {
      self.rethrow_with_path();
    }
  }
};

namespace internal {
template <class Derived>
void as_layer(const Layer<Derived>* layer);
/// The Tensors of model(inputs…), or of its forward if it is no Layer.
template <std::derived_from<Module> M, class... Inputs>
std::vector<Tensor> tensors_of_call(M& model, const Inputs&... inputs) {
  if constexpr (requires { as_layer(&model); })
    return collect_tensors(model(inputs...));
  else
    return collect_tensors(model.forward(inputs...));
}
/// The same with model(inputs[0], inputs[1], …). An Error if it does not take that many.
template <std::derived_from<Module> M>
std::vector<Tensor> call_with_list(M& model, const std::vector<Tensor>& inputs) {
  constexpr size_t kMost = 6;
  std::optional<std::vector<Tensor>> outputs;
  const auto call = [&]<size_t... i>(std::index_sequence<i...>) {
    if constexpr (requires { model.forward(inputs[i]...); }) outputs = tensors_of_call(model, inputs[i]...);
  };
  [&]<size_t... n>(std::index_sequence<n...>) {
    ((inputs.size() == n ? call(std::make_index_sequence<n>()) : void()), ...);
  }
  (std::make_index_sequence<kMost + 1>());
  if (!outputs) detail::fail(model.name(), ": it cannot be called with ", inputs.size(), " tensors");
  return *std::move(outputs);
}
}  // namespace internal

}  // namespace reel::nn
#pragma GCC visibility pop
