#include "reel/nn/embedding.h"

#include "lib/nn/repr.h"
#include "reel/autograd.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {
namespace {

// The padding row counted from 0.
std::optional<int64_t> wrap(const char* layer, std::optional<int64_t> padding, int64_t rows) {
  if (!padding) return padding;
  REEL_CHECK(*padding >= -rows && *padding < rows, layer, ": padding_idx ", *padding, " is out of range for ", rows,
             " embeddings");
  return *padding < 0 ? *padding + rows : *padding;
}

void start(const Tensor& weight, std::optional<int64_t> padding) {
  init::normal_(weight);
  if (padding) init::zeros_(no_grad([&] { return weight.select(0, *padding); }));
}

const Tensor& matrix(const char* layer, const Tensor& weight) {
  REEL_CHECK(weight.defined() && weight.dim() == 2, layer, ": expected a matrix, got ",
             weight.defined() ? weight.shape().to_string() : "an undefined tensor");
  return weight;
}

template <class Options>
std::string described(int64_t rows, int64_t width, const Options& options) {
  Repr repr(rows, width);
  if (options.padding_idx) repr.add("padding_idx", *options.padding_idx);
  if (options.max_norm) repr.add("max_norm", *options.max_norm);
  return repr.add_unless(2, "norm_type", options.norm_type)
      .add_unless(false, "scale_grad_by_freq", options.scale_grad_by_freq)
      .add_unless(false, "sparse", options.sparse)
      .text();
}

}  // namespace

// ---- Embedding ------------------------------------------------------------------------------------------------------

Embedding::Embedding(Tensor table, EmbeddingOptions given)
    : num_embeddings(matrix("Embedding", table).size(0)),
      embedding_dim(table.size(1)),
      options(given),
      weight(*this, "weight", table) {
  options.padding_idx = wrap("Embedding", options.padding_idx, num_embeddings);
}

Embedding::Embedding(int64_t num, int64_t dim, EmbeddingOptions given) : Embedding(empty({num, dim}), given) {
  reset_parameters();
}

Embedding Embedding::from_pretrained(Tensor weight, bool freeze, EmbeddingOptions options) {
  Embedding layer(std::move(weight), options);
  layer.weight.requires_grad_(!freeze);
  return layer;
}

void Embedding::reset_parameters() { start(weight, options.padding_idx); }

// Not where a call depends on all of its ids.
// The rows that a sparse gradient has say which have been looked up: by an example that has a part in it.

Tensor Embedding::forward(const Tensor& ids) const {
  if (options.max_norm) embedding_renorm_(weight, ids, *options.max_norm, options.norm_type);
  return embedding(
      weight, ids,
      {.padding_idx = options.padding_idx, .scale_grad_by_freq = options.scale_grad_by_freq, .sparse = options.sparse});
}

std::string Embedding::extra_repr() const { return described(num_embeddings, embedding_dim, options); }

// ---- EmbeddingBag ---------------------------------------------------------------------------------------------------

EmbeddingBag::EmbeddingBag(Tensor table, EmbeddingBagOptions given)
    : num_embeddings(matrix("EmbeddingBag", table).size(0)),
      embedding_dim(table.size(1)),
      options(given),
      weight(*this, "weight", table) {
  options.padding_idx = wrap("EmbeddingBag", options.padding_idx, num_embeddings);
}

EmbeddingBag::EmbeddingBag(int64_t num, int64_t dim, EmbeddingBagOptions given)
    : EmbeddingBag(empty({num, dim}), given) {
  reset_parameters();
}

EmbeddingBag EmbeddingBag::from_pretrained(Tensor weight, bool freeze, EmbeddingBagOptions options) {
  EmbeddingBag layer(std::move(weight), options);
  layer.weight.requires_grad_(!freeze);
  return layer;
}

void EmbeddingBag::reset_parameters() { start(weight, options.padding_idx); }

Tensor EmbeddingBag::forward(const Tensor& ids, const Tensor& offsets, const Tensor& per_sample_weights) const {
  if (options.max_norm) embedding_renorm_(weight, ids, *options.max_norm, options.norm_type);
  return embedding_bag(weight, ids,
                       {.offsets = offsets,
                        .mode = options.mode,
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = options.include_last_offset,
                        .padding_idx = options.padding_idx,
                        .scale_grad_by_freq = options.scale_grad_by_freq,
                        .sparse = options.sparse});
}

std::string EmbeddingBag::extra_repr() const {
  const char* const mode = options.mode == Reduce::kSum ? "sum" : options.mode == Reduce::kMean ? "mean" : "max";
  return described(num_embeddings, embedding_dim, options) + ", mode=" + mode;
}

}  // namespace reel::nn
