#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "reel/autograd.h"
#include "reel/ops.h"

// What the tests of edges share.
namespace reel {

using Numbers = std::vector<double>;
using Integers = std::vector<int64_t>;

inline const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

inline Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }
inline Integers integers(const Tensor& x) { return x.to_vector<int64_t>(); }
inline Tensor bytes(std::vector<int64_t> values) { return tensor(values).to(kUInt8); }
inline Tensor doubles(std::vector<double> values) { return tensor(values); }
inline TensorOptions wide() { return {.dtype = kFloat64}; }  // on the default device, which main() chooses

/// The gradient of sum(f(x) weights), with weights 1, 2, …
inline Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& at, bool create_graph = false) {
  const Tensor x = create_graph ? at : at.detach().requires_grad_(), y = f(x);
  const Tensor weights = arange(1, y.numel() + 1, 1, wide()).reshape(y.shape()).to(y.dtype());
  return grad({y}, {x}, {weights}, {.create_graph = create_graph})[0];
}
inline Tensor second_derivative(const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
  const Tensor x = at.detach().requires_grad_();
  return gradient([&](const Tensor& z) { return gradient(f, z, true); }, x, true);
}

}  // namespace reel
