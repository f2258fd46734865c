#pragma once
#include <optional>

#include "reel/nn/module.h"
#include "reel/ops/embedding.h"

#pragma GCC visibility push(default)
/// Embedding matrices as layers.
namespace reel::nn {

/// Options of Embedding.
struct EmbeddingOptions {
  /// Sparse gradients: backward and optimizers touch only the rows that were looked up.
  bool sparse = false;
  /// The id of padding: its row starts as zeros and gets no gradient. Negative counts from the end.
  std::optional<int64_t> padding_idx = {};
  /// Rows with a larger norm_type-norm are scaled down to it, in place, when they are looked up: forward changes the
  /// weight, also in evaluation, and is not thread-safe.
  std::optional<double> max_norm = {};
  double norm_type = 2;  ///< Of max_norm.
  /// Divide the gradient of a row by how often it was looked up in the call.
  bool scale_grad_by_freq = false;
};

/// Rows of weight [num_embeddings, embedding_dim], which starts standard normal, for int64 or int32 ids of any shape:
/// the result is [ids' shape…, embedding_dim]. An id out of range is an Error.
struct Embedding : Layer<Embedding> {
  Embedding(int64_t num_embeddings, int64_t embedding_dim, EmbeddingOptions options = {});
  Embedding(Module& parent, std::string name, int64_t num_embeddings, int64_t embedding_dim,
            EmbeddingOptions options = {})
      : Embedding(num_embeddings, embedding_dim, options) {
    parent.register_module(std::move(name), *this);
  }
  /// With `weight`, a matrix of floats, itself as the weight, which is not trained if `freeze`.
  static Embedding from_pretrained(Tensor weight, bool freeze = true, EmbeddingOptions options = {});
  Tensor forward(const Tensor& ids) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  EmbeddingOptions options;
  Parameter weight;

 private:
  Embedding(Tensor weight, EmbeddingOptions options);
};

/// Options of EmbeddingBag; those without a comment mean what they do for Embedding.
struct EmbeddingBagOptions {
  bool sparse = false;                      ///< As for Embedding.
  std::optional<int64_t> padding_idx = {};  ///< An id that is left out of the bag; its row is initially zero.
  std::optional<double> max_norm = {};      ///< As for Embedding.
  double norm_type = 2;                     ///< As for Embedding.
  bool scale_grad_by_freq = false;          ///< Not with kMax.
  Reduce mode = Reduce::kMean;              ///< kSum, kMean or kMax.
  bool include_last_offset = false;         ///< The offsets end with the number of ids.
};

/// embedding_bag as a layer: the sum, mean or largest elements of the rows of weight for each bag of ids.
struct EmbeddingBag : Layer<EmbeddingBag> {
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, EmbeddingBagOptions options = {});
  EmbeddingBag(Module& parent, std::string name, int64_t num_embeddings, int64_t embedding_dim,
               EmbeddingBagOptions options = {})
      : EmbeddingBag(num_embeddings, embedding_dim, options) {
    parent.register_module(std::move(name), *this);
  }
  /// As Embedding::from_pretrained.
  static EmbeddingBag from_pretrained(Tensor weight, bool freeze = true, EmbeddingBagOptions options = {});
  /// ids [bags, k], or ids [k] with the offsets of the bags; per_sample_weights of ids' shape only with sums.
  Tensor forward(const Tensor& ids, const Tensor& offsets = {}, const Tensor& per_sample_weights = {}) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  EmbeddingBagOptions options;
  Parameter weight;

 private:
  EmbeddingBag(Tensor weight, EmbeddingBagOptions options);
};

}  // namespace reel::nn
#pragma GCC visibility pop
