#pragma once
#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Modules and parameters by number and by name. What a container holds is saved under "list.0.weight" or
/// "dict.name.weight", as in PyTorch. Containers are not callable; the module that holds them calls their parts.
namespace reel::nn {

namespace internal {
/// Iterates over unique_ptrs as if over the objects.
template <class Iterator, class T>
struct Dereferencing {
  Iterator at;
  T& operator*() const { return **at; }
  Dereferencing& operator++() { return ++at, *this; }
  bool operator==(const Dereferencing&) const = default;
};
}  // namespace internal

/// Modules of one type, made in place:
///
///   nn::ModuleList<nn::Linear> layers{*this, "layers"};
///   for (int i = 0; i < 3; ++i) layers.emplace(8, 8);
///   for (const nn::Linear& layer : layers) x = relu(layer(x));
///
/// T is Module or another base where the types differ: layers.emplace<nn::Linear>(8, 8),
/// layers[0].as_ref<nn::Linear>().
template <std::derived_from<Module> T = Module>
class ModuleList : public Module {
  using Items = std::vector<std::unique_ptr<T>>;

 public:
  using Module::Module;
  ModuleList() = default;

  /// Appends an L(args…).
  template <std::derived_from<T> L = T, class... Args>
  L& emplace(Args&&... args) {
    return push_back(std::make_unique<L>(std::forward<Args>(args)...));
  }
  /// Appends a module that is moved in: push_back(nn::Linear(8, 8, {.bias = false})).
  template <std::derived_from<T> L>
  L& push_back(L&& layer) requires(!std::is_reference_v<L>) {
    check_part(std::to_string(items_.size()), layer);
    return push_back(std::make_unique<L>(std::move(layer)));
  }
  /// Appends a module that is owned already.
  template <std::derived_from<T> L>
  L& push_back(std::unique_ptr<L>&& layer) {
    REEL_CHECK(layer, "ModuleList: module ", items_.size(), " is null");
    L& result = *layer;
    register_module(std::to_string(items_.size()), result);
    items_.push_back(std::move(layer));
    return result;
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }  ///< Modules in it.
  bool empty() const { return items_.empty(); }                         ///< Whether there are none.
  ///@{
  /// Negative numbers count from the end.
  T& operator[](int64_t index) { return *items_[wrap(index)]; }
  const T& operator[](int64_t index) const { return *items_[wrap(index)]; }
  ///@}

  ///@{
  /// For loops over the modules themselves.
  using iterator = internal::Dereferencing<typename Items::iterator, T>;
  using const_iterator = internal::Dereferencing<typename Items::const_iterator, const T>;
  iterator begin() { return {items_.begin()}; }
  iterator end() { return {items_.end()}; }
  const_iterator begin() const { return {items_.begin()}; }
  const_iterator end() const { return {items_.end()}; }
  ///@}

  std::string name() const override { return "ModuleList"; }

 private:
  size_t wrap(int64_t index) const {
    REEL_CHECK(index >= -size() && index < size(), "ModuleList: there is no module ", index, " among ", size());
    return static_cast<size_t>(index < 0 ? index + size() : index);
  }
  Items items_;
};

/// Modules by name, in the order in which they were added.
template <std::derived_from<Module> T = Module>
class ModuleDict : public Module {
  using Items = std::vector<std::pair<std::string, std::unique_ptr<T>>>;

 public:
  using Module::Module;
  ModuleDict() = default;

  /// Adds an L(args…) under a name that is not taken.
  template <std::derived_from<T> L = T, class... Args>
  L& emplace(std::string name, Args&&... args) {
    return insert(std::move(name), std::make_unique<L>(std::forward<Args>(args)...));
  }
  /// Adds a module that is moved in.
  template <std::derived_from<T> L>
  L& add(std::string name, L&& layer) requires(!std::is_reference_v<L>) {
    check_part(name, layer);
    return insert(std::move(name), std::make_unique<L>(std::move(layer)));
  }
  /// Adds a module that is owned already.
  template <std::derived_from<T> L>
  L& insert(std::string name, std::unique_ptr<L>&& layer) {
    REEL_CHECK(layer, "ModuleDict: the module '", name, "' is null");
    L& result = *layer;
    register_module(name, result);
    items_.emplace_back(std::move(name), std::move(layer));
    return result;
  }

  /// Destroys a module.
  void erase(std::string_view name) {
    at(name);
    std::erase_if(items_, [&](const auto& item) { return item.first == name; });
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }          ///< Modules in it.
  bool empty() const { return items_.empty(); }                                 ///< Whether there are none.
  bool contains(std::string_view name) const { return find(name) != nullptr; }  ///< Whether the name is taken.
  ///@{
  /// The module of that name, or an Error.
  T& operator[](std::string_view name) { return at(name); }
  const T& operator[](std::string_view name) const { return at(name); }
  ///@}
  /// The names, in order.
  std::vector<std::string> keys() const {
    std::vector<std::string> result;
    for (const auto& [name, item] : items_) result.push_back(name);
    return result;
  }
  ///@{
  /// For loops: for (auto [name, module] : dict.items()).
  std::vector<std::pair<std::string, T&>> items() { return list<T>(); }
  std::vector<std::pair<std::string, const T&>> items() const { return list<const T>(); }
  ///@}

  std::string name() const override { return "ModuleDict"; }

 private:
  T* find(std::string_view name) const {
    for (const auto& [key, item] : items_)
      if (key == name) return item.get();
    return nullptr;
  }
  T& at(std::string_view name) const {
    T* found = find(name);
    REEL_CHECK(found, "ModuleDict: there is no module '", name, "'");
    return *found;
  }
  template <class Item>
  std::vector<std::pair<std::string, Item&>> list() const {
    std::vector<std::pair<std::string, Item&>> result;
    for (const auto& [name, item] : items_) result.emplace_back(name, *item);
    return result;
  }
  Items items_;
};

/// Parameters by number, for a number that is known at run time: `params[0] = other.weight` ties as for a member.
class ParameterList : public Module {
 public:
  using Module::Module;
  ParameterList() = default;
  explicit ParameterList(TensorList parameters) {
    for (const Tensor& parameter : parameters) append(parameter);
  }

  /// Appends a parameter. The reference stays valid while the list, or what it is moved to, lives.
  Parameter& append(const Tensor& parameter);
  int64_t size() const { return static_cast<int64_t>(list_.size()); }  ///< Parameters in it.
  bool empty() const { return list_.empty(); }                         ///< Whether there are none.
  ///@{
  /// Negative numbers count from the end.
  Parameter& operator[](int64_t index) { return list_[wrap(index)]; }
  const Parameter& operator[](int64_t index) const { return list_[wrap(index)]; }
  ///@}
  ///@{
  /// For loops over the parameters.
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  ///@}
  std::string extra_repr() const override;

 private:
  size_t wrap(int64_t index) const;
  std::deque<Parameter> list_;
};

/// Parameters by name, in the order in which they were added, for names that are known at run time.
class ParameterDict : public Module {
 public:
  using Module::Module;
  ParameterDict() = default;

  /// Adds a parameter under a name that is not taken. The reference stays valid as that of ParameterList::append.
  Parameter& insert(const std::string& name, const Tensor& parameter);
  int64_t size() const { return static_cast<int64_t>(list_.size()); }  ///< Parameters in it.
  bool empty() const { return list_.empty(); }                         ///< Whether there are none.
  bool contains(std::string_view name) const;                          ///< Whether the name is taken.
  ///@{
  /// The parameter of that name, or an Error.
  Parameter& operator[](std::string_view name) { return get_parameter(name); }
  const Parameter& operator[](std::string_view name) const { return get_parameter(name); }
  ///@}
  std::vector<std::string> keys() const;                      ///< The names, in order.
  std::vector<std::pair<std::string, Tensor>> items() const;  ///< With the names, in order.
  std::string extra_repr() const override;

 private:
  std::deque<std::pair<std::string, Parameter>> list_;
};

// ---- trivial layers -------------------------------------------------------------------------------------------------

/// Returns its argument.
struct Identity : Layer<Identity> {
  Identity() = default;
  using Layer::Layer;
  template <class T>
  auto forward(const T& x) const {
    if constexpr (std::derived_from<T, Tensor>)
      return Tensor(x);
    else
      return x;
  }
};

/// A function without parameters as a layer, where an interface takes layers: nn::Functional(relu).
struct Functional : Layer<Functional> {
  using Function = std::function<Tensor(const Tensor&)>;  ///< What it is made of.
  explicit Functional(Function f) : f_(std::move(f)) { REEL_CHECK(f_, "Functional: the function is empty"); }
  Functional(Module& parent, std::string name, Function f) : Functional(std::move(f)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return f_(x); }

 private:
  Function f_;
};

}  // namespace reel::nn
#pragma GCC visibility pop
