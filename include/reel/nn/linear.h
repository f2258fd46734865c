#pragma once
#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Linear and bilinear layers.
namespace reel::nn {

namespace internal {
class Fusion;
}  // namespace internal

/// Options of Linear.
struct LinearOptions {
  bool bias = true;  ///< Without it, `bias` is undefined.
};

/// x · weightᵀ + bias, for x […, in_features]. weight is [out_features, in_features] and bias [out_features]; both
/// start uniform in ±1/√in_features.
struct Linear : Layer<Linear> {
  Linear(int64_t in_features, int64_t out_features, LinearOptions options = {});
  Linear(Module& parent, std::string name, int64_t in_features, int64_t out_features, LinearOptions options = {})
      : Linear(in_features, out_features, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in_features, out_features;
  Parameter weight, bias;

 private:
  friend class internal::Fusion;
  bool relu_follows_ = false;  // and may be computed by the layer
};

/// Options of Bilinear.
struct BilinearOptions {
  bool bias = true;  ///< Whether there is one.
};

/// y_k = x1ᵀ W_k x2 + b_k, for x1 […, in1_features] and x2 […, in2_features]. weight is [out, in1, in2] and bias [out];
/// both start uniform in ±1/√in1_features.
struct Bilinear : Layer<Bilinear> {
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, BilinearOptions options = {});
  Bilinear(Module& parent, std::string name, int64_t in1_features, int64_t in2_features, int64_t out_features,
           BilinearOptions options = {})
      : Bilinear(in1_features, in2_features, out_features, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x1, const Tensor& x2) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in1_features, in2_features, out_features;
  Parameter weight, bias;
};

}  // namespace reel::nn
#pragma GCC visibility pop
