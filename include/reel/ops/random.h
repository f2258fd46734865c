#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Random masks (dropout). All of these return x itself when not training.
namespace reel {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al. 2014).
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
///@{
/// The same for whole channels, each with all its positions (Tompson et al. 2014): of x [N, C, L] or [C, L]; of
/// [N, C, H, W] or [N, C, L]; of [N, C, D, H, W] or [C, D, H, W].
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true);
///@}
/// Sets elements to selu's lower limit instead of 0, and keeps mean 0 and variance 1 (Klambauer et al. 2017).
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same for whole channels, of x [N, C, …].
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace reel
#pragma GCC visibility pop
