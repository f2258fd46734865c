#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "reel/nn/call.h"
#include "reel/profile.h"
#include "reel/state_dict.h"
#include "reel/tensor.h"

namespace reel::nn {

class Module;

struct LoadOptions {
  bool strict = true;  ///< Refuse names that are missing or not expected. Wrong shapes are refused always.
};
/// What load_state_dict passed over when not strict.
struct LoadResult {
  std::vector<std::string> missing, unexpected;
};

/// Runs before a module's forward and may replace the Tensors that it is called with.
using ForwardPreHook = std::function<void(Module& module, std::vector<Tensor>& inputs)>;
/// Runs after a module's forward and may replace the Tensors that it returns.
using ForwardHook =
    std::function<void(Module& module, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs)>;
/// Runs in backward() when the gradients of a module's inputs are known, and may replace them. Undefined: an input
/// without gradient, an output that none arrived at.
using FullBackwardHook =
    std::function<void(Module& module, std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs)>;

namespace internal {
struct Computed;
struct Hooks;
class HookedCall;
struct ModuleParts;
}  // namespace internal

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
/// parameter are one tensor: change its values (no_grad, copy_, to). For another tensor use replace_parameter, since
/// `fc.weight = emb.weight` changes only what forward reads: parameters(), to() and state_dict() go on with the old
/// one. A module is not copied. It can be moved (returned, put into a vector or a Sequential) if its type can: that is
/// so for all of reel's and for plain structs of such members. What holds pointers into it, a lambda with its `this`,
/// say, does not follow. What is part of another module stays there: containers refuse it before they move anything.
class Module {
 public:
  /// For modules that are parts of others: `using Module::Module;` makes `Block block{*this, "block"}` possible.
  Module(Module& parent, std::string name) { parent.register_module(std::move(name), *this); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module& operator=(Module&&) = delete;
  virtual ~Module();

  // Registration. Names are neither empty nor used twice in a module nor hold a '.'; anything else is an Error.
  /// Makes `tensor`, a floating-point leaf, a parameter: it gets requires_grad, and is returned. An undefined tensor is
  /// returned as it is, without being registered (an optional bias).
  Tensor register_parameter(std::string name, Tensor tensor);
  /// A tensor that is moved with the module but not trained, such as a running mean; unless `persistent` is false, it
  /// is saved with it, too.
  Tensor register_buffer(std::string name, Tensor tensor, bool persistent = true);
  /// Makes `child`, which has no parent yet, a part of this module. It must live as long as it is used through here; a
  /// child that dies is taken off the list.
  void register_module(std::string name, Module& child);

  /// Makes `tensor` a parameter in the place of `member`, which is one of this module's own: layer.replace_parameter(
  /// layer.weight, other.weight) has the two share a weight. Optimizers and others that hold the old one go on with it.
  /// Layers refuse a copy of their member's handle, which forward does not read; a plain Module cannot tell.
  void replace_parameter(Tensor& member, Tensor tensor);
  /// The same for a buffer.
  void replace_buffer(Tensor& member, Tensor tensor);

  // Everything below covers this module and all modules in it, in the order of declaration.
  std::vector<Tensor> parameters(bool recurse = true) const;  ///< Each tensor once, however often it is shared.
  /// Each once, under its first path. Without `recurse`, here and elsewhere: only this module's own.
  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  std::vector<Module*> children() const;  ///< The direct ones.
  std::vector<std::pair<std::string, Module*>> named_children() const;
  std::vector<Module*> modules();                                ///< This one and all below.
  std::vector<std::pair<std::string, Module*>> named_modules();  ///< The same with their paths, this one's is "".
  /// f(module) for all modules below, then for this one: net.apply([](nn::Module& m) { … }).
  void apply(const std::function<void(Module&)>& f);

  // By path, "encoder.cell.weight"; an Error where there is nothing. The empty path is this module.
  Tensor get_parameter(std::string_view path) const;
  Tensor get_buffer(std::string_view path) const;
  Module& get_submodule(std::string_view path);
  const Module& get_submodule(std::string_view path) const { return const_cast<Module*>(this)->get_submodule(path); }
  /// This module as what it is; an Error where it is something else: net.get_submodule("fc").as<nn::Linear>().weight.
  template <class M>
  M& as() {
    return const_cast<M&>(std::as_const(*this).as<M>());
  }
  template <class M>
  const M& as() const {
    const M* const module = dynamic_cast<const M*>(this);
    REEL_CHECK(module, "Module::as: ", path(), path().empty() ? "" : " ", "is a ", name());
    return *module;
  }
  /// Where this module is in the largest one that it is part of: "encoder.cell", "" for one that is no part.
  std::string path() const;

  /// Layers that behave differently in training (dropout) ask is_training(); true at first.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Moves parameters, buffers and gradients in place: all handles to them follow. Converting to a floating-point type
  /// leaves integer and bool buffers alone. An optimizer keeps the states it has, so move before the first step().
  void to(Device device);
  void to(DType dtype);
  void requires_grad_(bool value = true);  ///< False freezes the parameters.
  void zero_grad();                        ///< Drops the gradients.

  /// Parameters and buffers by path, without history, sharing storage with the module. Shared ones appear under each of
  /// their paths.
  StateDict state_dict() const;
  /// Copies values (cast, moved to the module's device) into the parameters and buffers. The Error lists every name
  /// that is missing or unexpected and every shape that differs, and leaves the module as it was. For a tensor with
  /// several paths one of them is enough.
  LoadResult load_state_dict(const StateDict& dict, LoadOptions options = {});

  // Hooks run when the module is called as a function, layer(x); layer.forward(x) passes them by. So those of a plain
  // `struct Net : nn::Module`, which has no such call, never run: make it an nn::Layer<Net>. They see the Tensors among
  // the arguments and results, also inside of lists, pairs and structs of Tensors such as CellState; a struct with
  // other members, too, is not looked into. They run in the order in which they were registered. Each registration
  // returns a number for remove_hook; without hooks a call costs nothing.
  int64_t register_forward_pre_hook(ForwardPreHook hook);
  int64_t register_forward_hook(ForwardHook hook);
  /// Needs inputs that require grad to learn of their gradients: without any, it runs when those of the outputs arrive.
  /// A call that records and gives no Tensors is an Error.
  int64_t register_full_backward_hook(FullBackwardHook hook);
  void remove_hook(int64_t id);

  /// What the printed form calls this module: its C++ type without namespaces.
  virtual std::string name() const;
  /// What the printed form puts into the parentheses: "in_features=784, out_features=256, bias=true".
  virtual std::string extra_repr() const { return {}; }
  std::string to_string() const;  ///< The tree of modules, as PyTorch prints it.

 protected:
  Module() = default;
  Module(Module&& other);
  /// Takes a child off the list.
  void unregister_module(Module& child);
  /// Throws what register_module(name, child) would, for those who have to know before they move the child.
  void check_part(const std::string& name, const Module& child) const;

  /// Where a handle to a tensor is, as seen from a module: in the module itself, in what it owns (a vector, which takes
  /// its elements along when it is moved), or somewhere else, a copy.
  enum class Place { kUnknown, kInside, kOwned, kElsewhere };
  /// A plain Module does not know. A Layer knows itself; one that has parameters in a vector overrides this.
  virtual Place place_of(const Tensor& /*handle*/) const { return Place::kUnknown; }

  std::string label() const;  ///< "encoder.fc (Linear)"
  bool has_hooks() const { return hooks_ != nullptr; }
  /// In a catch block: throws what has been caught, with the path of this module if it is a bare Error.
  [[noreturn]] void rethrow_with_path() const;

 private:
  friend class internal::HookedCall;
  friend struct internal::ModuleParts;
  struct Entry {
    enum Kind { kParameter, kBuffer, kTransientBuffer, kModule } kind;
    std::string name;
    Tensor tensor;
    Module* module = nullptr;
  };
  void check_name(const std::string& name) const;
  void add(Entry entry);
  Entry& entry_of(const char* op, const Tensor& member, bool parameter);
  template <class Visit>
  void for_each_tensor(const std::string& prefix, bool recurse, const Visit& visit) const;
  std::vector<std::pair<std::string, Tensor>> named(bool buffers, bool recurse) const;
  Entry* find_entry(std::string_view path) const;
  internal::Hooks& hooks();
  void drop_empty_hooks();
  void list_modules(const std::string& path, std::vector<std::pair<std::string, Module*>>& all);
  std::vector<internal::Computed*> shown_parameters();
  template <class Convert>
  void replace_tensors(const Convert& convert);

  std::vector<Entry> entries_;
  Module* parent_ = nullptr;
  std::shared_ptr<internal::Hooks> hooks_;  // none, mostly
  bool training_ = true;
};

std::ostream& operator<<(std::ostream& out, const Module& module);

namespace internal {

/// What goes on around the forward of a module with hooks.
class HookedCall {
 public:
  HookedCall(const Module& module, std::vector<Tensor> inputs);
  ~HookedCall();
  HookedCall(const HookedCall&) = delete;
  HookedCall& operator=(const HookedCall&) = delete;
  const std::vector<Tensor>& inputs() const { return inputs_; }
  std::vector<Tensor> finish(std::vector<Tensor> outputs);
  /// For those that are not the call's own.
  void finish_in_place(const std::vector<Tensor>& outputs);
  [[noreturn]] void rethrow() const { module_.rethrow_with_path(); }

 private:
  struct Backward;
  const Module& module_;
  const std::shared_ptr<Hooks> hooks_;
  std::vector<Tensor> inputs_, shown_;
  std::shared_ptr<Backward> backward_;
};

template <class Self, class... Args>
[[gnu::noinline]] decltype(auto) call_with_hooks(Self& self, Args&&... args) {
  using Result = decltype(self.forward(std::forward<Args>(args)...));
  const auto replace = [](const std::vector<Tensor>& by, auto&... values) {
    [[maybe_unused]] auto next = by.begin();
    (visit_tensors(values, [&](Tensor& tensor) { tensor = *next++; }), ...);
  };
  const auto call = [&](auto... held) -> Result {
    HookedCall call(self, collect_tensors(held.value...));
    replace(call.inputs(), held.value...);
    try {
      if constexpr (std::is_void_v<Result>) {
        self.forward(held.pass()...);
        call.finish({});
      } else if constexpr (std::is_reference_v<Result>) {
        Result result = self.forward(held.pass()...);
        call.finish_in_place(collect_tensors(result));
        return static_cast<Result>(result);
      } else {
        std::remove_cv_t<Result> result = self.forward(held.pass()...);
        replace(call.finish(collect_tensors(result)), result);
        return result;
      }
    } catch (const Error&) {
      call.rethrow();
    }
  };
  return call(hold(static_cast<std::remove_cvref_t<Args>*>(nullptr), std::forward<Args>(args))...);
}

}  // namespace internal

namespace internal {
/// A name as an argument of a template: using ReLU = Pointwise<"ReLU", relu>.
template <size_t n>
struct Name {
  char text[n];
  constexpr Name(const char (&name)[n]) {
    for (size_t i = 0; i < n; ++i) text[i] = name[i];
  }
};
}  // namespace internal

/// A module that is called like a function: layer(x) is layer.forward(x) with the hooks run. `struct Block :
/// nn::Layer<Block>` makes one; with `using Layer::Layer;` it can be declared as a part: `Block block{*this, "block"}`.
/// An Error that leaves forward says in which part of the model it was thrown.
template <class Derived>
struct Layer : Module {
  using Module::Module;
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return call(static_cast<const Derived&>(*this), std::forward<Args>(args)...);
  }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return call(static_cast<Derived&>(*this), std::forward<Args>(args)...);
  }

 protected:
  Layer() = default;
  Module::Place place_of(const Tensor& handle) const override {
    const auto* const layer = static_cast<const Derived*>(this);
    const std::less<const void*> before;
    if (!before(&handle, layer) && before(&handle, layer + 1)) return Module::Place::kInside;
    return typeid(*this) == typeid(Derived) ? Module::Place::kElsewhere : Module::Place::kUnknown;
  }

 private:
  template <class Self, class... Args>
  static decltype(auto) call(Self& self, Args&&... args) {
    if (__builtin_expect(profile::running(), 0)) return call_recorded(self, std::forward<Args>(args)...);
    return call_unrecorded(self, std::forward<Args>(args)...);
  }
  template <class Self, class... Args>
  [[gnu::noinline]] static decltype(auto) call_recorded(Self& self, Args&&... args) {
    const profile::Scope scope(self.label(), profile::Kind::kLayer);
    return call_unrecorded(self, std::forward<Args>(args)...);
  }
  template <class Self, class... Args>
  static decltype(auto) call_unrecorded(Self& self, Args&&... args) {
    if (__builtin_expect(self.has_hooks(), 0)) return internal::call_with_hooks(self, std::forward<Args>(args)...);
    try {
      return self.forward(std::forward<Args>(args)...);
    } catch (const Error&) {
      self.rethrow_with_path();
    }
  }
};

}  // namespace reel::nn
