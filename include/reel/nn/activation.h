#pragma once
#include <string>
#include <utility>

#include "reel/nn/detail/name.h"
#include "reel/nn/module.h"
#include "reel/ops/activation.h"
#include "reel/ops/loss.h"
#include "reel/ops/pointwise.h"

#pragma GCC visibility push(default)
/// Activations (reel/ops/activation.h) as modules, with PyTorch's arguments and defaults. In a Sequential the function
/// itself will do where it takes only x.
namespace reel::nn {

// ---- those without arguments ----------------------------------------------------------------------------------------

/// x ↦ f(x)
template <internal::Name title, Tensor (*f)(const Tensor&)>
struct Pointwise : Layer<Pointwise<title, f>> {
  using Layer<Pointwise>::Layer;
  Pointwise() = default;
  Tensor forward(const Tensor& x) const { return f(x); }
  std::string name() const override { return title.text; }
};

using ReLU = Pointwise<"ReLU", relu>;                       ///< max(x, 0).
using ReLU6 = Pointwise<"ReLU6", relu6>;                    ///< x, clamped to [0, 6].
using SELU = Pointwise<"SELU", selu>;                       ///< Scaled ELU (Klambauer et al. 2017).
using SiLU = Pointwise<"SiLU", silu>;                       ///< x σ(x).
using Mish = Pointwise<"Mish", mish>;                       ///< x tanh(softplus(x)).
using Hardswish = Pointwise<"Hardswish", hardswish>;        ///< x ReLU6(x + 3) / 6.
using Sigmoid = Pointwise<"Sigmoid", sigmoid>;              ///< 1 / (1 + e⁻ˣ).
using Hardsigmoid = Pointwise<"Hardsigmoid", hardsigmoid>;  ///< ReLU6(x + 3) / 6.
using LogSigmoid = Pointwise<"LogSigmoid", logsigmoid>;     ///< log σ(x).
using Tanh = Pointwise<"Tanh", tanh>;                       ///< tanh(x).
using Tanhshrink = Pointwise<"Tanhshrink", tanhshrink>;     ///< x - tanh(x).
using Softsign = Pointwise<"Softsign", softsign>;           ///< x / (1 + |x|).

// ---- those with arguments -------------------------------------------------------------------------------------------

/// max(x, 0) + negative_slope min(x, 0).
struct LeakyReLU : Layer<LeakyReLU> {
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope(negative_slope) {}
  LeakyReLU(Module& parent, std::string name, double negative_slope = 0.01) : LeakyReLU(negative_slope) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return leaky_relu(x, negative_slope); }
  std::string extra_repr() const override;

  double negative_slope;
};

/// x for x > 0, otherwise alpha (eˣ - 1) (Clevert, Unterthiner & Hochreiter 2016).
struct ELU : Layer<ELU> {
  explicit ELU(double alpha = 1) : alpha(alpha) {}
  ELU(Module& parent, std::string name, double alpha = 1) : ELU(alpha) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return elu(x, alpha); }
  std::string extra_repr() const override;

  double alpha;
};

/// max(x, 0) + min(0, alpha (e^(x / alpha) - 1)) (Barron 2017).
struct CELU : Layer<CELU> {
  explicit CELU(double alpha = 1) : alpha(alpha) {}
  CELU(Module& parent, std::string name, double alpha = 1) : CELU(alpha) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return celu(x, alpha); }
  std::string extra_repr() const override;

  double alpha;
};

/// approximate: "none" or "tanh".
struct GELU : Layer<GELU> {
  explicit GELU(std::string approximate = "none");
  GELU(Module& parent, std::string name, std::string approximate = "none") : GELU(approximate) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return approximate == "tanh" ? gelu_tanh(x) : gelu(x); }
  std::string extra_repr() const override;

  std::string approximate;
};

/// x, clamped to [min_val, max_val].
struct Hardtanh : Layer<Hardtanh> {
  explicit Hardtanh(double min_val = -1, double max_val = 1) : min_val(min_val), max_val(max_val) {}
  Hardtanh(Module& parent, std::string name, double min_val = -1, double max_val = 1) : Hardtanh(min_val, max_val) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return hardtanh(x, min_val, max_val); }
  std::string extra_repr() const override;

  double min_val;
  double max_val;
};

/// x where |x| > lambda, otherwise 0.
struct Hardshrink : Layer<Hardshrink> {
  explicit Hardshrink(double lambda = 0.5) : lambda(lambda) {}
  Hardshrink(Module& parent, std::string name, double lambda = 0.5) : Hardshrink(lambda) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return hardshrink(x, lambda); }
  std::string extra_repr() const override;

  double lambda;
};

/// x moved towards 0 by lambda, and 0 where |x| ≤ lambda.
struct Softshrink : Layer<Softshrink> {
  explicit Softshrink(double lambda = 0.5) : lambda(lambda) {}
  Softshrink(Module& parent, std::string name, double lambda = 0.5) : Softshrink(lambda) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return softshrink(x, lambda); }
  std::string extra_repr() const override;

  double lambda;
};

/// log(1 + e^(beta x)) / beta, and x itself where beta x > threshold.
struct Softplus : Layer<Softplus> {
  explicit Softplus(double beta = 1, double threshold = 20) : beta(beta), threshold(threshold) {}
  Softplus(Module& parent, std::string name, double beta = 1, double threshold = 20) : Softplus(beta, threshold) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return softplus(x, beta, threshold); }
  std::string extra_repr() const override;

  double beta;
  double threshold;
};

/// x where x > threshold, otherwise value.
struct Threshold : Layer<Threshold> {
  Threshold(double threshold, double value) : threshold(threshold), value(value) {}
  Threshold(Module& parent, std::string name, double threshold, double value) : Threshold(threshold, value) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return reel::threshold(x, threshold, value); }
  std::string extra_repr() const override;

  double threshold;
  double value;
};

/// x for x > 0, otherwise x times a slope: in training uniform in [lower, upper] for each element, otherwise their
/// mean.
struct RReLU : Layer<RReLU> {
  explicit RReLU(double lower = 1. / 8, double upper = 1. / 3) : lower(lower), upper(upper) {}
  RReLU(Module& parent, std::string name, double lower = 1. / 8, double upper = 1. / 3) : RReLU(lower, upper) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return rrelu(x, lower, upper, is_training()); }
  std::string extra_repr() const override;

  double lower;
  double upper;
};

/// weight, [num_parameters], starts at `init`: one slope for all, or one for each channel.
struct PReLU : Layer<PReLU> {
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  PReLU(Module& parent, std::string name, int64_t num_parameters = 1, double init = 0.25)
      : PReLU(num_parameters, init) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return prelu(x, weight); }
  std::string extra_repr() const override;

  Parameter weight;
};

/// a σ(b), where a and b are the halves of x along dim (Dauphin et al. 2017).
struct GLU : Layer<GLU> {
  explicit GLU(int64_t dim = -1) : dim(dim) {}
  GLU(Module& parent, std::string name, int64_t dim = -1) : GLU(dim) { parent.register_module(std::move(name), *this); }
  Tensor forward(const Tensor& x) const { return glu(x, dim); }
  std::string extra_repr() const override;

  int64_t dim;
};

// ---- softmax and its variants --------------------------------------------------------------------------------------

/// eˣ, normalised to the sum 1 along dim.
struct Softmax : Layer<Softmax> {
  explicit Softmax(int64_t dim) : dim(dim) {}
  Softmax(Module& parent, std::string name, int64_t dim) : Softmax(dim) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return softmax(x, dim); }
  std::string extra_repr() const override;

  int64_t dim;
};

/// The logarithm of Softmax.
struct LogSoftmax : Layer<LogSoftmax> {
  explicit LogSoftmax(int64_t dim) : dim(dim) {}
  LogSoftmax(Module& parent, std::string name, int64_t dim) : LogSoftmax(dim) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return log_softmax(x, dim); }
  std::string extra_repr() const override;

  int64_t dim;
};

/// Softmax of -x.
struct Softmin : Layer<Softmin> {
  explicit Softmin(int64_t dim) : dim(dim) {}
  Softmin(Module& parent, std::string name, int64_t dim) : Softmin(dim) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return softmin(x, dim); }
  std::string extra_repr() const override;

  int64_t dim;
};

/// Softmax over the channels of x [N, C, H, W] or [C, H, W].
struct Softmax2d : Layer<Softmax2d> {
  using Layer::Layer;
  Softmax2d() = default;
  Tensor forward(const Tensor& x) const;
};

// ---- shapes --------------------------------------------------------------------------------------------------------

/// x with its dimensions start_dim to end_dim made one.
struct Flatten : Layer<Flatten> {
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  Flatten(Module& parent, std::string name, int64_t start_dim = 1, int64_t end_dim = -1) : Flatten(start_dim, end_dim) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return x.flatten(start_dim, end_dim); }
  std::string extra_repr() const override;

  int64_t start_dim;
  int64_t end_dim;
};

/// Makes dimension dim of x the dimensions unflattened_size, of which one may be -1.
struct Unflatten : Layer<Unflatten> {
  Unflatten(int64_t dim, Shape unflattened_size) : dim(dim), unflattened_size(unflattened_size) {}
  Unflatten(Module& parent, std::string name, int64_t dim, Shape unflattened_size) : Unflatten(dim, unflattened_size) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  int64_t dim;
  Shape unflattened_size;
};

}  // namespace reel::nn
#pragma GCC visibility pop
