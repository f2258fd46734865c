#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Rows of embedding matrices.
namespace reel {

/// How embedding's gradient is made.
struct EmbeddingLookup {
  /// The id of padding: its row gets no gradient. Negative counts from the end.
  std::optional<int64_t> padding_idx = {};
  /// Divide the gradient of a row by how often it was looked up here.
  bool scale_grad_by_freq = false;
  /// The gradient is sparse (Tensor::sparse_grad) if weight is a leaf, and optimizers update only the rows used.
  bool sparse = false;
};
///@{
/// weight[ids]: rows of a matrix [n, …] for int64 or int32 ids of any shape. An id out of range is an Error.
Tensor embedding(const Tensor& weight, const Tensor& ids, bool sparse = false);
Tensor embedding(const Tensor& weight, const Tensor& ids, const EmbeddingLookup& options);
///@}

/// Scales the rows of weight at ids, in place and without recording, to a p-norm of at most max_norm. Returns weight.
Tensor embedding_renorm_(Tensor weight, const Tensor& ids, double max_norm, double norm_type = 2);

/// Where embedding_bag's bags are and how they are reduced.
struct EmbeddingBagLookup {
  /// For 1-d ids: where each bag begins among them, int64, ascending from 0; it ends where the next one begins.
  Tensor offsets = {};
  Reduce mode = Reduce::kMean;              ///< kSum, kMean or kMax.
  Tensor per_sample_weights = {};           ///< A factor for each id, of ids' shape; only with kSum.
  bool include_last_offset = false;         ///< offsets ends with the number of ids instead of implying it.
  std::optional<int64_t> padding_idx = {};  ///< An id that is left out of its bag; negative counts from the end.
  bool scale_grad_by_freq = false;          ///< As for embedding; not with kMax.
  bool sparse = false;                      ///< As for embedding; not with kMax.
};
/// The sum, mean or largest elements of bags of rows of weight [n, d], without making the rows: for ids [bags, k] of
/// equal bags, or ids [k] and offsets, the result is [bags, d]. An empty bag gives zeros.
Tensor embedding_bag(const Tensor& weight, const Tensor& ids, const EmbeddingBagLookup& options = {});

}  // namespace reel
#pragma GCC visibility pop
