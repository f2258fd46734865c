#pragma once
#include <cstdint>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Initial values, written into a tensor in place and without recording; each returns the tensor it was given.
/// For a weight [out, in, k…], fan_in is in·k… and fan_out is out·k…; functions that need them throw for tensors of
/// fewer than two dimensions.
namespace reel::nn::init {

/// The nonlinearity that follows a layer, for calculate_gain.
enum class Nonlinearity { kLinear, kSigmoid, kTanh, kRelu, kLeakyRelu, kSelu };
///@{
/// Its values.
inline constexpr Nonlinearity kLinear = Nonlinearity::kLinear, kSigmoid = Nonlinearity::kSigmoid,
                              kTanh = Nonlinearity::kTanh, kRelu = Nonlinearity::kRelu,
                              kLeakyRelu = Nonlinearity::kLeakyRelu, kSelu = Nonlinearity::kSelu;
///@}
/// Which side of a weight keeps its variance: inputs (forward) or outputs (backward).
enum class FanMode { kFanIn, kFanOut };
///@{
/// Its values.
inline constexpr FanMode kFanIn = FanMode::kFanIn, kFanOut = FanMode::kFanOut;
///@}

/// The factor that keeps the variance of a layer's output at 1 through this nonlinearity, as PyTorch has it: 1, 1, 5/3,
/// √2, √(2 / (1 + slope²)), 3/4.
double calculate_gain(Nonlinearity nonlinearity, double negative_slope = 0.01);

Tensor uniform_(Tensor tensor, double low = 0, double high = 1);  ///< Uniform in [low, high).
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);   ///< With this mean and standard deviation.
Tensor constant_(Tensor tensor, double value);                    ///< All elements `value`,
Tensor zeros_(Tensor tensor);                                     ///< 0,
Tensor ones_(Tensor tensor);                                      ///< or 1.
Tensor eye_(Tensor matrix);  ///< Ones on the diagonal of a matrix, which need not be square.
/// Of a convolution's weight [out, in, k…] an identity: channel i goes to channel i, in each of `groups` groups.
Tensor dirac_(Tensor weight, int64_t groups = 1);
/// Of a matrix: normal, but for a fraction `sparsity` of each column's elements, drawn at random, which is 0 (Martens
/// 2010).
Tensor sparse_(Tensor matrix, double sparsity, double std = 0.01);

/// Glorot & Bengio 2010: standard deviation gain √(2 / (fan_in + fan_out)).
Tensor xavier_uniform_(Tensor tensor, double gain = 1);
Tensor xavier_normal_(Tensor tensor, double gain = 1);  ///< The same, normal.

/// Options of kaiming_uniform_ and kaiming_normal_.
struct KaimingOptions {
  double a = 0;                            ///< The negative slope of the leaky ReLU that follows.
  FanMode mode = kFanIn;                   ///< Which fan is divided by.
  Nonlinearity nonlinearity = kLeakyRelu;  ///< What follows the layer.
};
/// He et al. 2015: standard deviation gain / √fan.
Tensor kaiming_uniform_(Tensor tensor, KaimingOptions options = {});
Tensor kaiming_normal_(Tensor tensor, KaimingOptions options = {});  ///< The same, normal.

/// A random matrix with orthonormal rows or columns, whichever are fewer, times gain (Saxe et al. 2014); dimensions
/// after the first are taken as one.
Tensor orthogonal_(Tensor tensor, double gain = 1);

}  // namespace reel::nn::init
#pragma GCC visibility pop
