#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Distances and similarities of vectors.
namespace reel {

/// a · b / (max(‖a‖, eps) max(‖b‖, eps)) along dim; a and b broadcast.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);

/// Of pairwise_distance.
struct PairwiseDistanceOptions {
  double p = 2;          ///< Of the norm.
  double eps = 1e-6;     ///< Added to each difference.
  bool keepdim = false;  ///< The last dimension stays, with size 1.
};
/// The p-norm of a - b + eps along the last dimension; a and b broadcast.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& options = {});

/// The p-norm of a[…, i, :] - b[…, j, :] for every i and j: a […, m, d] and b […, n, d] give […, m, n], leading
/// dimensions broadcast. Differences are taken one by one, so that points close to each other keep their digits. The
/// gradient at distance 0 is 0.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);

/// The p-norm of x[i, :] - x[j, :] for every i < j, ordered by i, then j: x [n, d] gives [n (n - 1) / 2], the upper
/// triangle of cdist(x, x).
Tensor pdist(const Tensor& x, double p = 2);

}  // namespace reel
#pragma GCC visibility pop
