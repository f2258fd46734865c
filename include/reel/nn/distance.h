#pragma once
#include <utility>

#include "reel/nn/module.h"
#include "reel/ops/distance.h"

#pragma GCC visibility push(default)
/// Distances and similarities.
namespace reel::nn {

/// Options of CosineSimilarity.
struct CosineSimilarityOptions {
  int64_t dim = 1;    ///< The dimension that is reduced.
  double eps = 1e-8;  ///< Added to the denominator.
};
/// cosine_similarity of a and b along a dimension.
struct CosineSimilarity : Layer<CosineSimilarity> {
  explicit CosineSimilarity(CosineSimilarityOptions given = {}) : options(given) {}
  CosineSimilarity(Module& parent, std::string name, CosineSimilarityOptions given = {}) : CosineSimilarity(given) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& a, const Tensor& b) const { return cosine_similarity(a, b, options.dim, options.eps); }
  const CosineSimilarityOptions options;
};

/// pairwise_distance of a and b [n, d]: a p-norm of their difference for each row.
struct PairwiseDistance : Layer<PairwiseDistance> {
  explicit PairwiseDistance(PairwiseDistanceOptions given = {}) : options(given) {}
  PairwiseDistance(Module& parent, std::string name, PairwiseDistanceOptions given = {}) : PairwiseDistance(given) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& a, const Tensor& b) const { return pairwise_distance(a, b, options); }
  const PairwiseDistanceOptions options;
};

}  // namespace reel::nn
#pragma GCC visibility pop
