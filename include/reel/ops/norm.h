#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Normalisation. Computed so that a mean much larger than the standard deviation loses no precision. Half types are
/// computed in float32, where weights and biases may also be float32. Weights and biases may be undefined: 1 and 0.
namespace reel {

/// (x - mean) / √(variance + eps) · weight + bias for each channel of x [n, channels, …], the statistics over all other
/// dimensions (Ioffe & Szegedy 2015). In training they are those of x, and, where defined, running_mean and running_var
/// [channels] move towards them by `momentum` (in place, without history; the variance over count - 1); an Error if
/// there is only one value per channel. Otherwise they are running_mean and running_var. With channels_last x is
/// [n, …, channels].
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5,
                  bool channels_last = false);

/// batch_norm's formula with the statistics of each channel of each example of x [n, channels, …] (Ulyanov et al.
/// 2016). The running statistics are averaged over the examples; they are used instead of x's own where use_input_stats
/// is false.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5);

/// batch_norm's formula with the statistics of each of num_groups groups of channels of each example of x [n, channels,
/// …] (Wu & He 2018); weight and bias are [channels]. A group of one value is an Error if x is one example.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// batch_norm's formula with statistics over the last dimensions, which are `normalized_shape`, as are weight and bias
/// (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// x / √(mean(x²) + eps) · weight over the last dimensions (Zhang & Sennrich 2019). eps defaults to the distance from 1
/// to the next larger number of the dtype that is computed in.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

/// x / (k + alpha · mean)^beta, where the mean is that of x² over the `size` channels around each (zeros beyond the
/// first and last), for x [n, channels, …] (Krizhevsky et al. 2012).
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

/// x / max(‖x‖_p, eps) along dims.
Tensor normalize(const Tensor& x, double p = 2, const Dims& dims = 1, double eps = 1e-12);

}  // namespace reel
#pragma GCC visibility pop
