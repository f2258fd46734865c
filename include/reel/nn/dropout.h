#pragma once
#include <string>
#include <utility>

#include "reel/nn/detail/name.h"
#include "reel/nn/module.h"
#include "reel/ops/random.h"

#pragma GCC visibility push(default)
/// Dropout layers.
namespace reel::nn {

namespace internal {
void check_dropout(const char* name, double p);
std::string dropout_repr(double p);
}  // namespace internal

/// drop(x, p) in training, otherwise x itself.
template <internal::Name title, Tensor (*drop)(const Tensor&, double, bool)>
struct RandomDrop : Layer<RandomDrop<title, drop>> {
  explicit RandomDrop(double probability = 0.5) : p(probability) { internal::check_dropout(title.text, p); }
  RandomDrop(Module& parent, std::string name, double p = 0.5) : RandomDrop(p) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return drop(x, p, this->is_training()); }
  std::string name() const override { return title.text; }
  std::string extra_repr() const override { return internal::dropout_repr(p); }

  double p;
};

// See reel/ops/random.h.
using Dropout = RandomDrop<"Dropout", dropout>;                  ///< Drops elements.
using Dropout1d = RandomDrop<"Dropout1d", dropout1d>;            ///< Drops channels of x [n, channels, w].
using Dropout2d = RandomDrop<"Dropout2d", dropout2d>;            ///< Drops channels of x [n, channels, h, w].
using Dropout3d = RandomDrop<"Dropout3d", dropout3d>;            ///< Drops channels of x [n, channels, d, h, w].
using AlphaDropout = RandomDrop<"AlphaDropout", alpha_dropout>;  ///< Keeps mean and variance, for SELU.
using FeatureAlphaDropout = RandomDrop<"FeatureAlphaDropout", feature_alpha_dropout>;  ///< The same for channels.

}  // namespace reel::nn
#pragma GCC visibility pop
