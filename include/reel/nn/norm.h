#pragma once
#include <optional>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Layers of the ops in ops/norm.h.
namespace reel::nn {

/// Options of BatchNorm.
struct BatchNormOptions {
  double eps = 1e-5;                     ///< Added to the variance.
  std::optional<double> momentum = 0.1;  ///< None: running statistics are plain averages over all batches.
  bool affine = true;                    ///< With weight and bias, initially 1 and 0.
  bool track_running_stats = true;       ///< Without them, batches are normalised by their own in evaluation, too.
  bool channels_last = false;            ///< x is [n, …, num_features], not [n, num_features, …].
};

/// What BatchNorm1d … 3d and InstanceNorm1d … 3d have in common: parameters weight and bias [num_features], buffers
/// running_mean, running_var [num_features] and num_batches_tracked (int64 []); undefined where options say so.
template <class Derived>
struct RunningNorm : Layer<Derived> {
  void reset_running_stats();  ///< Sets them to their initial values.
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_features;
  const BatchNormOptions options;
  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;

 protected:
  RunningNorm(int64_t num_features, BatchNormOptions options);
};

/// batch_norm of x [n, num_features, …] or, channels_last, [n, …, num_features], of N sizes; of one or none for N = 1.
template <int N>
struct BatchNorm : RunningNorm<BatchNorm<N>> {
  explicit BatchNorm(int64_t num_features, BatchNormOptions options = {})
      : RunningNorm<BatchNorm>(num_features, options) {}
  BatchNorm(Module& parent, std::string name, int64_t num_features, BatchNormOptions options = {})
      : BatchNorm(num_features, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
};
using BatchNorm1d = BatchNorm<1>;  ///< For x [n, channels, w].
using BatchNorm2d = BatchNorm<2>;  ///< For x [n, channels, h, w].
using BatchNorm3d = BatchNorm<3>;  ///< For x [n, channels, d, h, w].

/// Options of InstanceNorm; see those of BatchNorm.
struct InstanceNormOptions {
  double eps = 1e-5;                 ///< Added to the variance.
  double momentum = 0.1;             ///< The weight of a batch in the running statistics.
  bool affine = false;               ///< With weight and bias, initially 1 and 0.
  bool track_running_stats = false;  ///< With running statistics, which are used in evaluation.
};

/// instance_norm of x [n, num_features, …] or [num_features, …] with N further dimensions.
template <int N>
struct InstanceNorm : RunningNorm<InstanceNorm<N>> {
  explicit InstanceNorm(int64_t num_features, InstanceNormOptions options = {})
      : RunningNorm<InstanceNorm>(num_features,
                                  {options.eps, options.momentum, options.affine, options.track_running_stats}) {}
  InstanceNorm(Module& parent, std::string name, int64_t num_features, InstanceNormOptions options = {})
      : InstanceNorm(num_features, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
};
using InstanceNorm1d = InstanceNorm<1>;  ///< For x [n, channels, w].
using InstanceNorm2d = InstanceNorm<2>;  ///< For x [n, channels, h, w].
using InstanceNorm3d = InstanceNorm<3>;  ///< For x [n, channels, d, h, w].

/// Options of LayerNorm.
struct LayerNormOptions {
  double eps = 1e-5;               ///< Added to the variance.
  bool elementwise_affine = true;  ///< With a weight, initially 1.
  bool bias = true;                ///< Whether there is one.
};
/// layer_norm over the last dimensions of x; weight and bias are of their shape, initially 1 and 0.
struct LayerNorm : Layer<LayerNorm> {
  explicit LayerNorm(const Shape& normalized_shape, LayerNormOptions options = {});
  explicit LayerNorm(int64_t size, LayerNormOptions options = {}) : LayerNorm(Shape{size}, options) {}
  LayerNorm(Module& parent, std::string name, const Shape& normalized_shape, LayerNormOptions options = {})
      : LayerNorm(normalized_shape, options) {
    parent.register_module(std::move(name), *this);
  }
  LayerNorm(Module& parent, std::string name, int64_t size, LayerNormOptions options = {})
      : LayerNorm(parent, std::move(name), Shape{size}, options) {}
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const Shape normalized_shape;
  const LayerNormOptions options;
  Parameter weight, bias;
};

/// Options of RMSNorm.
struct RMSNormOptions {
  std::optional<double> eps = {};  ///< Added to the variance.
  bool elementwise_affine = true;  ///< With a weight, initially 1.
};
/// rms_norm over the last dimensions of x; weight is of their shape, initially 1.
struct RMSNorm : Layer<RMSNorm> {
  explicit RMSNorm(const Shape& normalized_shape, RMSNormOptions options = {});
  explicit RMSNorm(int64_t size, RMSNormOptions options = {}) : RMSNorm(Shape{size}, options) {}
  RMSNorm(Module& parent, std::string name, const Shape& normalized_shape, RMSNormOptions options = {})
      : RMSNorm(normalized_shape, options) {
    parent.register_module(std::move(name), *this);
  }
  RMSNorm(Module& parent, std::string name, int64_t size, RMSNormOptions options = {})
      : RMSNorm(parent, std::move(name), Shape{size}, options) {}
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const Shape normalized_shape;
  const RMSNormOptions options;
  Parameter weight;
};

/// Options of GroupNorm.
struct GroupNormOptions {
  double eps = 1e-5;   ///< Added to the variance.
  bool affine = true;  ///< With weight and bias, initially 1 and 0.
};
/// group_norm of x [n, num_channels, …]; weight and bias are [num_channels], initially 1 and 0.
struct GroupNorm : Layer<GroupNorm> {
  GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormOptions options = {});
  GroupNorm(Module& parent, std::string name, int64_t num_groups, int64_t num_channels, GroupNormOptions options = {})
      : GroupNorm(num_groups, num_channels, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_groups, num_channels;
  const GroupNormOptions options;
  Parameter weight, bias;
};

/// Options of LocalResponseNorm and CrossMapLRN2d; the formula is in ops/norm.h.
struct LocalResponseNormOptions {
  double alpha = 1e-4;  ///< The factor of the sum of squares.
  double beta = 0.75;   ///< The exponent.
  double k = 1;         ///< Added before the power is taken.
};
/// local_response_norm over `size` channels.
struct LocalResponseNorm : Layer<LocalResponseNorm> {
  explicit LocalResponseNorm(int64_t size_, LocalResponseNormOptions options_ = {}) : size(size_), options(options_) {}
  LocalResponseNorm(Module& parent, std::string name, int64_t size, LocalResponseNormOptions options = {})
      : LocalResponseNorm(size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const int64_t size;
  const LocalResponseNormOptions options;
};

/// The same but for even sizes, whose windows are of size - 1 channels, with sums divided by size all the same, as in
/// PyTorch. PyTorch keeps the first channel in all later sums, by a bug; here sums cover their window only.
struct CrossMapLRN2d : Layer<CrossMapLRN2d> {
  explicit CrossMapLRN2d(int64_t size_, LocalResponseNormOptions options_ = {}) : size(size_), options(options_) {}
  CrossMapLRN2d(Module& parent, std::string name, int64_t size, LocalResponseNormOptions options = {})
      : CrossMapLRN2d(size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const int64_t size;
  const LocalResponseNormOptions options;
};

}  // namespace reel::nn
#pragma GCC visibility pop
