#pragma once
#include <optional>

#include "reel/nn/module.h"

namespace reel::nn {

struct EmbeddingOptions {
  /// Row-sparse gradients: backward and optimizers touch only the rows that were looked up.
  bool sparse = false;
  /// Ids that say "nothing here": they give zeros and no gradient. Negative counts from the end.
  std::optional<int64_t> padding_idx = {};
};

/// Rows of weight [num_embeddings, embedding_dim], which starts standard normal, for int64 ids of any shape: the result
/// is [ids' shape…, embedding_dim]. An id out of range is an Error.
struct Embedding : Layer<Embedding> {
  Embedding(int64_t num_embeddings, int64_t embedding_dim, EmbeddingOptions options = {});
  Embedding(Module& parent, std::string name, int64_t num_embeddings, int64_t embedding_dim,
            EmbeddingOptions options = {})
      : Embedding(num_embeddings, embedding_dim, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& ids) const;
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  EmbeddingOptions options;
  Tensor weight;
};

}  // namespace reel::nn
