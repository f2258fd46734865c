#pragma once
#include "reel/nn/module.h"

namespace reel::nn {

/// In training, zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al. 2014);
/// otherwise x itself.
struct Dropout : Layer<Dropout> {
  explicit Dropout(double p = 0.5);
  Dropout(Module& parent, std::string name, double p = 0.5) : Dropout(p) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  double p;
};

}  // namespace reel::nn
