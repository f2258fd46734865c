#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "reel/nn/container.h"
#include "reel/nn/dropout.h"
#include "reel/nn/embedding.h"
#include "reel/nn/linear.h"
#include "reel/nn/norm.h"
#include "reel/ragged.h"

#pragma GCC visibility push(default)
/// BERT (Devlin et al. 2019), as in the transformers package: its names of parameters, its files, its figures.
///
///   const nn::Bert bert = nn::Bert::load("all-MiniLM-L6-v2/");
///   const data::WordPiece words = data::WordPiece::load("all-MiniLM-L6-v2/");
///   const Tensor vectors = no_grad([&] { return normalize(bert.embed(words.encode_all(sentences))); });
namespace reel::nn {

/// The sizes and settings of a Bert, under the names of config.json. The defaults are those of BERT base.
struct BertConfig {
  int64_t vocab_size = 30522;                 ///< Word pieces.
  int64_t hidden_size = 768;                  ///< Numbers in a vector.
  int64_t num_hidden_layers = 12;             ///< Blocks of attention and two linear layers.
  int64_t num_attention_heads = 12;           ///< A divisor of hidden_size.
  int64_t intermediate_size = 3072;           ///< Between the two linear layers.
  int64_t max_position_embeddings = 512;      ///< The longest sequence.
  int64_t type_vocab_size = 2;                ///< Token types: first and second text.
  double hidden_dropout_prob = 0.1;           ///< In training, at the end of each block's parts.
  double attention_probs_dropout_prob = 0.1;  ///< In training, of the attention weights.
  double layer_norm_eps = 1e-12;              ///< Of all norms.
  std::string hidden_act = "gelu";            ///< gelu, gelu_new, gelu_pytorch_tanh, relu or silu.
  bool pooler = true;                         ///< Whether there is the layer of BertPooling::kPooler; not in the file.

  /// Reads a config.json. A model of another kind, or with settings that Bert does not have, is an Error.
  static BertConfig load(const std::filesystem::path& path);
};

namespace internal {
/// A level of names.
struct BertPart : Module {
  using Module::Module;
};
}  // namespace internal

/// How a sequence becomes one vector.
enum class BertPooling {
  kMean,    ///< The mean of its vectors: sentence-transformers' usual way.
  kCls,     ///< Its first vector, that of [CLS].
  kPooler,  ///< tanh of a linear layer of that: transformers' pooler_output.
};

/// One block of Bert: x = norm(x + attention(x)), then norm(x + output(activation(intermediate(x)))).
struct BertLayer : Layer<BertLayer> {
  explicit BertLayer(const BertConfig& config);
  Ragged forward(const Ragged& x) const;

 private:
  const int64_t heads_;
  const double attention_dropout_;
  std::function<Tensor(const Tensor&)> activation_;
  // Named as in the files: "attention.self.query.weight".
  internal::BertPart attention_{*this, "attention"}, self_{attention_, "self"}, attended_{attention_, "output"};
  internal::BertPart intermediate_{*this, "intermediate"}, output_{*this, "output"};
  Linear query_, key_, value_, attended_dense_, intermediate_dense_, output_dense_;
  LayerNorm attended_norm_, output_norm_;
  Dropout dropout_;
};

/// The encoder: a vector for each word piece, which knows the pieces around it. Sequences of all lengths are computed
/// together and none is padded. Weights start normal with deviation 0.02, biases zero.
struct Bert : Layer<Bert> {
  explicit Bert(const BertConfig& config = {});
  Bert(Module& parent, std::string name, const BertConfig& config = {}) : Bert(config) {
    parent.register_module(std::move(name), *this);
  }
  /// Of a folder with a config.json and a model.safetensors, as transformers' save_pretrained writes it, in evaluation
  /// mode. Names may begin with "bert."; what does not belong to the encoder, such as a head for another task, is left
  /// out, and there is a pooler if the file has one. A weight that is missing or of another shape is an Error.
  static Bert load(const std::filesystem::path& folder);

  /// ids: numbers of word pieces, int64 or int32 values [total]. token_types: such values as well, 0 for all if
  /// undefined. The result has values [total, hidden_size]: transformers' last_hidden_state.
  Ragged forward(const Ragged& ids, const Tensor& token_types = {}) const;
  Ragged operator()(const Ragged& ids, const Tensor& token_types = {}) const {
    return Layer::operator()(ids, token_types);
  }
  /// A vector for each sequence, [n, hidden_size]; none of them may be empty, but for kMean, which gives zeros.
  Tensor embed(const Ragged& ids, BertPooling pooling = BertPooling::kMean) const;
  void reset_parameters();

  const BertConfig config;

 private:
  internal::BertPart embeddings_{*this, "embeddings"};
  Embedding words_, positions_, types_;
  LayerNorm norm_;
  Dropout dropout_;
  internal::BertPart encoder_{*this, "encoder"};
  ModuleList<BertLayer> layers_{encoder_, "layer"};
  std::optional<internal::BertPart> pooling_;
  std::optional<Linear> pooler_;
};

}  // namespace reel::nn
#pragma GCC visibility pop
