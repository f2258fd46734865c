#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Layers and functions that are applied in order.
namespace reel::nn {

/// A layer from one Tensor to one Tensor.
template <class T>
concept TensorLayer = std::derived_from<T, Module> && requires(T& layer) {
  { layer(Tensor()) } -> std::convertible_to<Tensor>;
};
/// What a Sequential is made of: a layer that is moved in or owned, or a function.
template <class T>
concept SequentialItem = TensorLayer<T> ||
    (!std::derived_from<std::remove_cvref_t<T>, Module> &&
     (std::invocable<T, const Tensor&> ||
      TensorLayer<typename std::pointer_traits<std::remove_cvref_t<T>>::element_type>));

namespace internal {

class Fusion;

/// static_asserts with the reason why an item cannot be a step.
template <class Item>
constexpr void explain_step() {
  using T = std::remove_cvref_t<Item>;
  if constexpr (!SequentialItem<Item> && std::derived_from<T, Module>) {
    static_assert(std::is_same_v<Item, T>,
                  "Sequential: a layer is moved in, std::move(layer), or comes as a std::unique_ptr");
    static_assert(!std::is_same_v<Item, T>,
                  "Sequential: this module does not make one Tensor of one; call it in a layer of your own");
  } else {
    static_assert(
        SequentialItem<Item>,
        "Sequential: neither a layer nor a function of one Tensor; [](const Tensor& x) { return elu(x); } is");
  }
}
template <class... Items>
inline constexpr bool kAllSteps = (SequentialItem<Items> && ...);
template <class... Items>
inline constexpr bool kHasParent = false;
template <std::derived_from<Module> Parent, std::convertible_to<std::string> Name, class... Items>
inline constexpr bool kHasParent<Parent&, Name, Items...> = true;

}  // namespace internal

/// Layers and functions, applied in order:
///
///   nn::Sequential mlp{nn::Linear(784, 256), relu, nn::Linear(256, 10)};
///
/// They are named by their positions, functions included, so that paths ("0.weight", "2.weight") are PyTorch's;
/// push_back() takes other names. A layer that cannot be moved is given as a std::unique_ptr.
struct Sequential : Layer<Sequential> {
  template <SequentialItem... Items>
  explicit Sequential(Items&&... items) {
    (push_back(std::forward<Items>(items)), ...);
  }
  template <SequentialItem... Items>
  Sequential(Module& parent, std::string name, Items&&... items) : Sequential(std::forward<Items>(items)...) {
    parent.register_module(std::move(name), *this);
  }

  // Overloads that only produce a readable compile error.
  template <class... Items>
  requires(!internal::kAllSteps<Items...> && !internal::kHasParent<Items...>) explicit Sequential(Items&&...) {
    (internal::explain_step<Items>(), ...);
  }
  template <class... Items>
  requires(!internal::kAllSteps<Items...>) Sequential(Module&, std::string, Items&&...) {
    (internal::explain_step<Items>(), ...);
  }
  /// An explained compile error.
  template <class Item>
  requires(!SequentialItem<Item>) Sequential& push_back(Item&&) { return internal::explain_step<Item>(), *this; }

  /// Appends a step, under the name of its position or a given one.
  template <SequentialItem Item>
  Sequential& push_back(Item&& item) {
    return push_back(std::to_string(size()), std::forward<Item>(item));
  }
  /// The same under a given name.
  template <TensorLayer L>
  requires(!std::is_reference_v<L>) Sequential& push_back(std::string name, L&& layer) {
    check_step(name, &layer);
    return push_back(std::move(name), std::make_unique<L>(std::move(layer)));
  }
  /// A layer that is owned already.
  template <TensorLayer L>
  Sequential& push_back(std::string name, std::unique_ptr<L>&& layer) {
    REEL_CHECK(layer, "Sequential: layer '", name, "' is null");
    check_step(name, layer.get());
    std::function<Tensor(const Tensor&)> run = [raw = layer.get()](const Tensor& x) -> Tensor { return (*raw)(x); };
    append(std::move(name), std::move(run), std::move(layer));
    return *this;
  }
  /// A function.
  Sequential& push_back(std::string name, std::function<Tensor(const Tensor&)> f) {
    REEL_CHECK(f, "Sequential: function '", name, "' is empty");
    append(std::move(name), std::move(f), nullptr);
    return *this;
  }
  /// Takes over the steps of another, which are named by their new positions.
  Sequential& extend(Sequential&& other);

  int64_t size() const { return static_cast<int64_t>(steps_.size()); }  ///< Steps, functions included.
  ///@{
  /// The layer at a position, which negative numbers count from the end; an Error for a function. Its type is named by
  /// mlp[0].as_ref<nn::Linear>().
  Module& operator[](int64_t index) { return at(index); }
  const Module& operator[](int64_t index) const { return at(index); }
  Module& operator[](std::string_view name) { return get_submodule(name); }
  const Module& operator[](std::string_view name) const { return get_submodule(name); }
  ///@}
  Tensor forward(const Tensor& x) const;

 private:
  friend class internal::Fusion;
  struct Step {
    std::string name;
    std::function<Tensor(const Tensor&)> run;
    std::unique_ptr<Module> layer;
  };
  Module& at(int64_t index) const;
  void check_step(const std::string& name, const Module* layer) const;
  void append(std::string name, std::function<Tensor(const Tensor&)> run, std::unique_ptr<Module> layer);
  std::vector<Step> steps_;
};

}  // namespace reel::nn
#pragma GCC visibility pop
