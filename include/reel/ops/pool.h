#pragma once
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Pooling over windows of the last one, two or three dimensions of x, which is [n, channels, …] or [channels, …] and
/// of floating point. Sizes are one number for all of these dimensions or one for each. With channels_last x and the
/// result are [n, …, channels] or […, channels].
///
/// A window is kernel_size elements, `dilation` apart. Windows are `stride` apart (0 means kernel_size). The first
/// begins `padding` elements before x; padding is at most half of kernel_size. There are ⌊(size + 2 padding - dilation
/// (kernel_size - 1) - 1) / stride⌋ + 1 of them; with ceil_mode ⌈…⌉ + 1, without a last one that would begin past the
/// end of x and its left padding.
///
/// Global pooling is adaptive_…_pool to size 1, or amax(x, {-2, -1}) and mean(x, {-2, -1}); {-3, -2} where channels lie
/// last.
namespace reel {

// ---- maxima ---------------------------------------------------------------------------------------------------------

/// Of max_pool1d, max_pool2d and max_pool3d.
template <int N>
struct MaxPoolOptions {
  PerDim<N> stride = 0;        ///< Elements from one window to the next; 0: kernel_size.
  PerDim<N> padding = 0;       ///< Elements in front of x and behind it.
  PerDim<N> dilation = 1;      ///< Elements from one element of a window to the next.
  bool ceil_mode = false;      ///< Also a last window that reaches beyond the padding.
  bool channels_last = false;  ///< x is [n, …, channels], not [n, channels, …].
};
///@{
/// The largest element of each window, the first of equals; NaN is larger than any. Padding counts as -∞.
Tensor max_pool1d(const Tensor& x, PerDim<1> kernel_size, const MaxPoolOptions<1>& options = {});
Tensor max_pool2d(const Tensor& x, PerDim<2> kernel_size, const MaxPoolOptions<2>& options = {});
Tensor max_pool3d(const Tensor& x, PerDim<3> kernel_size, const MaxPoolOptions<3>& options = {});
///@}

///@{
/// The same with the positions (int64) of the maxima in the N pooled dimensions of x, flattened.
ValuesIndices max_pool1d_with_indices(const Tensor& x, PerDim<1> kernel_size, const MaxPoolOptions<1>& options = {});
ValuesIndices max_pool2d_with_indices(const Tensor& x, PerDim<2> kernel_size, const MaxPoolOptions<2>& options = {});
ValuesIndices max_pool3d_with_indices(const Tensor& x, PerDim<3> kernel_size, const MaxPoolOptions<3>& options = {});
///@}

/// Of max_unpool1d, max_unpool2d and max_unpool3d: those of the pooling, and the size that it had.
template <int N>
struct MaxUnpoolOptions {
  PerDim<N> stride = 0;        ///< Elements from one window to the next; 0: kernel_size.
  PerDim<N> padding = 0;       ///< Elements in front of the result and behind it.
  PerDim<N> output_size = 0;   ///< 0: (size - 1) stride - 2 padding + kernel_size
  bool channels_last = false;  ///< x is [n, …, channels], not [n, channels, …].
};
///@{
/// Zeros with the elements of x at `indices` of max_pool…_with_indices.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, PerDim<1> kernel_size,
                    const MaxUnpoolOptions<1>& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, PerDim<2> kernel_size,
                    const MaxUnpoolOptions<2>& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, PerDim<3> kernel_size,
                    const MaxUnpoolOptions<3>& options = {});
///@}

/// Of the adaptive pools.
struct AdaptivePoolOptions {
  bool channels_last = false;  ///< x is [n, …, channels], not [n, channels, …].
};
///@{
/// The largest element of each of output_size windows: window i of size / output_size is [⌊i size / output_size⌋,
/// ⌈(i + 1) size / output_size⌉). An output size of -1 is that of x; of 0 it leaves nothing.
Tensor adaptive_max_pool1d(const Tensor& x, PerDim<1> output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_max_pool2d(const Tensor& x, PerDim<2> output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_max_pool3d(const Tensor& x, PerDim<3> output_size, const AdaptivePoolOptions& options = {});
ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& x, PerDim<1> output_size,
                                               const AdaptivePoolOptions& options = {});
ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& x, PerDim<2> output_size,
                                               const AdaptivePoolOptions& options = {});
ValuesIndices adaptive_max_pool3d_with_indices(const Tensor& x, PerDim<3> output_size,
                                               const AdaptivePoolOptions& options = {});
///@}

/// Of fractional_max_pool2d and fractional_max_pool3d. Exactly one of output_size and output_ratio must be given.
template <int N>
struct FractionalPoolOptions {
  PerDim<N> output_size = 0;              ///< Windows along each dimension.
  std::vector<double> output_ratio = {};  ///< Of the size of x, in (0, 1): one for all dimensions or one for each.
  /// [n, channels, N] in [0, 1), drawn if undefined: in two dimensions those of the last come first, as in PyTorch.
  Tensor random_samples = {};
};
///@{
/// The largest element of each of pseudo-random windows that cover x, drawn for each channel (Graham 2014). Channels
/// first only.
Tensor fractional_max_pool2d(const Tensor& x, PerDim<2> kernel_size, const FractionalPoolOptions<2>& options);
Tensor fractional_max_pool3d(const Tensor& x, PerDim<3> kernel_size, const FractionalPoolOptions<3>& options);
ValuesIndices fractional_max_pool2d_with_indices(const Tensor& x, PerDim<2> kernel_size,
                                                 const FractionalPoolOptions<2>& options);
ValuesIndices fractional_max_pool3d_with_indices(const Tensor& x, PerDim<3> kernel_size,
                                                 const FractionalPoolOptions<3>& options);
///@}

// ---- averages -------------------------------------------------------------------------------------------------------

/// Of avg_pool1d, avg_pool2d and avg_pool3d.
template <int N>
struct AvgPoolOptions {
  PerDim<N> stride = 0;           ///< Elements from one window to the next; 0: kernel_size.
  PerDim<N> padding = 0;          ///< Zeros in front of x and behind it.
  bool ceil_mode = false;         ///< Also a last window that reaches beyond the padding.
  bool count_include_pad = true;  ///< Zeros of the padding count as elements of a window.
  int64_t divisor_override = 0;   ///< Divide the sums by this instead of the number of elements.
  bool channels_last = false;     ///< x is [n, …, channels], not [n, channels, …].
};
///@{
/// The mean of each window.
Tensor avg_pool1d(const Tensor& x, PerDim<1> kernel_size, const AvgPoolOptions<1>& options = {});
Tensor avg_pool2d(const Tensor& x, PerDim<2> kernel_size, const AvgPoolOptions<2>& options = {});
Tensor avg_pool3d(const Tensor& x, PerDim<3> kernel_size, const AvgPoolOptions<3>& options = {});
///@}

///@{
/// The mean of each of output_size windows, those of adaptive_max_pool.
Tensor adaptive_avg_pool1d(const Tensor& x, PerDim<1> output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool2d(const Tensor& x, PerDim<2> output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool3d(const Tensor& x, PerDim<3> output_size, const AdaptivePoolOptions& options = {});
///@}

/// Of lp_pool1d, lp_pool2d and lp_pool3d.
template <int N>
struct LPPoolOptions {
  PerDim<N> stride = 0;        ///< Elements from one window to the next; 0: kernel_size.
  bool ceil_mode = false;      ///< Also a last window that reaches beyond x.
  bool channels_last = false;  ///< x is [n, …, channels], not [n, channels, …].
};
///@{
/// (Σ x^norm_type)^(1 / norm_type) of each window; the gradient where that is 0 is 0.
Tensor lp_pool1d(const Tensor& x, double norm_type, PerDim<1> kernel_size, const LPPoolOptions<1>& options = {});
Tensor lp_pool2d(const Tensor& x, double norm_type, PerDim<2> kernel_size, const LPPoolOptions<2>& options = {});
Tensor lp_pool3d(const Tensor& x, double norm_type, PerDim<3> kernel_size, const LPPoolOptions<3>& options = {});
///@}

}  // namespace reel
#pragma GCC visibility pop
