#pragma once
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Resizing and resampling of images.
namespace reel {

/// How values between the elements of x are found.
enum class Interpolation { kNearest, kNearestExact, kLinear, kBilinear, kTrilinear, kBicubic, kArea };
///@{
/// The Interpolation of that name.
inline constexpr Interpolation kNearest = Interpolation::kNearest, kNearestExact = Interpolation::kNearestExact,
                               kBilinear = Interpolation::kBilinear, kTrilinear = Interpolation::kTrilinear,
                               kBicubic = Interpolation::kBicubic, kArea = Interpolation::kArea;
///@}

/// Of interpolate. Exactly one of size and scale_factor must be given: one number for all dimensions or one for each.
struct InterpolateOptions {
  Shape size = {};                        ///< The new sizes of the resampled dimensions.
  std::vector<double> scale_factor = {};  ///< The new size is ⌊size scale_factor⌋.
  Interpolation mode = kNearest;          ///< See interpolate.
  /// The outer elements of x and of the result meet at their centres, not at their outer edges (linear and cubic
  /// modes).
  bool align_corners = false;
  /// When downsampling, filter over all of x (kBilinear and kBicubic).
  bool antialias = false;
  bool channels_last = false;  ///< x is [n, …, channels], not [n, channels, …].
};
/// x [n, channels, …] of floating point resampled in its one to three last dimensions; x [n, …, channels] in those
/// between, with channels_last. Interpolation::kLinear is for one, kBilinear and kBicubic (a = -0.75, Keys 1981) for
/// two, kTrilinear for three; kArea is adaptive_avg_pool. Coordinates are computed in double precision, so where
/// rounding decides the nearest neighbour it may differ from PyTorch's.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

///@{
/// [..., c r², h, w] to [..., c, h r, w r] (Shi et al. 2016), and back.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);
///@}
/// The channels of x [n, channels, …] taken from each of `groups` groups in turn (Zhang et al. 2018).
Tensor channel_shuffle(const Tensor& x, int64_t groups);

/// The values that grid_sample takes outside of x: 0, those of the edge, or those of the mirror image.
enum class GridPadding { kZeros, kBorder, kReflection };
/// Of grid_sample.
struct GridSampleOptions {
  Interpolation mode = kBilinear;             ///< Or kNearest, or kBicubic for images.
  GridPadding padding = GridPadding::kZeros;  ///< Outside of x.
  bool align_corners = false;  ///< -1 and 1 are the centres of the outer elements, not their outer edges.
};
/// The values of x [n, channels, h, w] at the positions grid [n, h', w', 2], which are (x, y) from -1 to 1: [n,
/// channels, h', w'] (Jaderberg et al. 2015). With one more dimension, x [n, channels, d, h, w] and grid [n, d', h',
/// w', 3].
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

/// The grid that samples images of `size` [n, channels, h, w] (or [n, channels, d, h, w]) under the affine maps theta
/// [n, 2, 3] (or [n, 3, 4]).
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace reel
#pragma GCC visibility pop
