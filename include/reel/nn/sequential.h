#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <vector>

#include "reel/nn/module.h"

namespace reel::nn {

/// What a Sequential is made of: an owned layer or a function, each from one Tensor to one Tensor.
template <class T>
concept SequentialItem = !std::derived_from<std::remove_cvref_t<T>, Module> &&
                         (std::invocable<T, const Tensor&> || requires(std::remove_cvref_t<T> item) {
                           { *item } -> std::convertible_to<Module&>;
                           { (*item)(Tensor()) } -> std::convertible_to<Tensor>;
                         });

/// Layers and functions, applied in order:
///
///   nn::Sequential mlp{std::make_unique<nn::Linear>(784, 256), relu, std::make_unique<nn::Linear>(256, 10)};
///
/// They are named by their positions, functions included, so that paths ("0.weight", "2.weight") are PyTorch's.
struct Sequential : Layer<Sequential> {
  template <SequentialItem... Items>
  explicit Sequential(Items&&... items) {
    (add(std::forward<Items>(items)), ...);
  }
  template <SequentialItem... Items>
  Sequential(Module& parent, std::string name, Items&&... items) : Sequential(std::forward<Items>(items)...) {
    parent.register_module(std::move(name), *this);
  }
  /// Appends a layer, which is owned from here on.
  template <std::derived_from<Module> L>
  Sequential& add(std::unique_ptr<L> layer) {
    REEL_CHECK(layer, "Sequential: layer ", steps_.size(), " is null");
    register_module(std::to_string(steps_.size()), *layer);
    steps_.push_back([raw = layer.get()](const Tensor& x) -> Tensor { return (*raw)(x); });
    layers_.push_back(std::move(layer));
    return *this;
  }
  /// Appends a function without parameters.
  Sequential& add(std::function<Tensor(const Tensor&)> f) {
    REEL_CHECK(f, "Sequential: function ", steps_.size(), " is empty");
    steps_.push_back(std::move(f));
    return *this;
  }
  int64_t size() const { return static_cast<int64_t>(steps_.size()); }
  Tensor forward(const Tensor& x) const;

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
  std::vector<std::unique_ptr<Module>> layers_;
};

}  // namespace reel::nn
