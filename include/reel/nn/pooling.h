#pragma once
#include "reel/nn/module.h"
#include "reel/ops/pool.h"

#pragma GCC visibility push(default)
/// Layers of the ops in ops/pool.h, for the last N dimensions of x [n, channels, …] or [channels, …]; with
/// channels_last for those before the last of x [n, …, channels] or […, channels].
namespace reel::nn {

/// max_pool over windows of kernel_size.
template <int N>
struct MaxPool : Layer<MaxPool<N>> {
  explicit MaxPool(PerDim<N> kernel_size_, MaxPoolOptions<N> options_ = {})
      : kernel_size(kernel_size_), options(options_) {}
  MaxPool(Module& parent, std::string name, PerDim<N> kernel_size, MaxPoolOptions<N> options = {})
      : MaxPool(kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  ValuesIndices forward_with_indices(const Tensor& x) const;  ///< For MaxUnpool.
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> kernel_size;
  const MaxPoolOptions<N> options;
};
using MaxPool1d = MaxPool<1>;  ///< For x [n, channels, w].
using MaxPool2d = MaxPool<2>;  ///< For x [n, channels, h, w].
using MaxPool3d = MaxPool<3>;  ///< For x [n, channels, d, h, w].

/// max_unpool: puts maxima back where MaxPool::forward_with_indices found them.
template <int N>
struct MaxUnpool : Layer<MaxUnpool<N>> {
  explicit MaxUnpool(PerDim<N> kernel_size_, MaxUnpoolOptions<N> options_ = {})
      : kernel_size(kernel_size_), options(options_) {}
  MaxUnpool(Module& parent, std::string name, PerDim<N> kernel_size, MaxUnpoolOptions<N> options = {})
      : MaxUnpool(kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x, const Tensor& indices) const;
  /// With output_size instead of that of the options; max_pool of a tensor of this size must give x's.
  Tensor forward(const Tensor& x, const Tensor& indices, PerDim<N> output_size) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> kernel_size;
  const MaxUnpoolOptions<N> options;
};
using MaxUnpool1d = MaxUnpool<1>;  ///< For x [n, channels, w].
using MaxUnpool2d = MaxUnpool<2>;  ///< For x [n, channels, h, w].
using MaxUnpool3d = MaxUnpool<3>;  ///< For x [n, channels, d, h, w].

/// avg_pool over windows of kernel_size.
template <int N>
struct AvgPool : Layer<AvgPool<N>> {
  explicit AvgPool(PerDim<N> kernel_size_, AvgPoolOptions<N> options_ = {})
      : kernel_size(kernel_size_), options(options_) {}
  AvgPool(Module& parent, std::string name, PerDim<N> kernel_size, AvgPoolOptions<N> options = {})
      : AvgPool(kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> kernel_size;
  const AvgPoolOptions<N> options;
};
using AvgPool1d = AvgPool<1>;  ///< For x [n, channels, w].
using AvgPool2d = AvgPool<2>;  ///< For x [n, channels, h, w].
using AvgPool3d = AvgPool<3>;  ///< For x [n, channels, d, h, w].

/// fractional_max_pool to the size or by the ratio in the options.
template <int N>
struct FractionalMaxPool : Layer<FractionalMaxPool<N>> {
  explicit FractionalMaxPool(PerDim<N> kernel_size_, FractionalPoolOptions<N> options_)
      : kernel_size(kernel_size_), options(options_) {}
  FractionalMaxPool(Module& parent, std::string name, PerDim<N> kernel_size, FractionalPoolOptions<N> options)
      : FractionalMaxPool(kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  ValuesIndices forward_with_indices(const Tensor& x) const;  ///< For MaxUnpool.
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> kernel_size;
  const FractionalPoolOptions<N> options;
};
using FractionalMaxPool2d = FractionalMaxPool<2>;  ///< For x [n, channels, h, w].
using FractionalMaxPool3d = FractionalMaxPool<3>;  ///< For x [n, channels, d, h, w].

/// lp_pool over windows of kernel_size.
template <int N>
struct LPPool : Layer<LPPool<N>> {
  LPPool(double norm_type_, PerDim<N> kernel_size_, LPPoolOptions<N> options_ = {})
      : norm_type(norm_type_), kernel_size(kernel_size_), options(options_) {}
  LPPool(Module& parent, std::string name, double norm_type, PerDim<N> kernel_size, LPPoolOptions<N> options = {})
      : LPPool(norm_type, kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const double norm_type;
  const PerDim<N> kernel_size;
  const LPPoolOptions<N> options;
};
using LPPool1d = LPPool<1>;  ///< For x [n, channels, w].
using LPPool2d = LPPool<2>;  ///< For x [n, channels, h, w].
using LPPool3d = LPPool<3>;  ///< For x [n, channels, d, h, w].

/// adaptive_max_pool to output_size (-1: that of x).
template <int N>
struct AdaptiveMaxPool : Layer<AdaptiveMaxPool<N>> {
  explicit AdaptiveMaxPool(PerDim<N> output_size_, AdaptivePoolOptions options_ = {})
      : output_size(output_size_), options(options_) {}
  AdaptiveMaxPool(Module& parent, std::string name, PerDim<N> output_size, AdaptivePoolOptions options = {})
      : AdaptiveMaxPool(output_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  ValuesIndices forward_with_indices(const Tensor& x) const;  ///< For MaxUnpool.
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> output_size;
  const AdaptivePoolOptions options;
};
using AdaptiveMaxPool1d = AdaptiveMaxPool<1>;  ///< For x [n, channels, w].
using AdaptiveMaxPool2d = AdaptiveMaxPool<2>;  ///< For x [n, channels, h, w].
using AdaptiveMaxPool3d = AdaptiveMaxPool<3>;  ///< For x [n, channels, d, h, w].

/// adaptive_avg_pool to output_size (-1: that of x).
template <int N>
struct AdaptiveAvgPool : Layer<AdaptiveAvgPool<N>> {
  explicit AdaptiveAvgPool(PerDim<N> output_size_, AdaptivePoolOptions options_ = {})
      : output_size(output_size_), options(options_) {}
  AdaptiveAvgPool(Module& parent, std::string name, PerDim<N> output_size, AdaptivePoolOptions options = {})
      : AdaptiveAvgPool(output_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<N> output_size;
  const AdaptivePoolOptions options;
};
using AdaptiveAvgPool1d = AdaptiveAvgPool<1>;  ///< For x [n, channels, w].
using AdaptiveAvgPool2d = AdaptiveAvgPool<2>;  ///< For x [n, channels, h, w].
using AdaptiveAvgPool3d = AdaptiveAvgPool<3>;  ///< For x [n, channels, d, h, w].

}  // namespace reel::nn
#pragma GCC visibility pop
