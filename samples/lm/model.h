#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "reel/reel.h"

struct LanguageModelOptions {
  bool transformer = false;        ///< Else an LSTM.
  int64_t embedding = 64;          ///< Numbers in a token's vector; of a transformer they are as many as `hidden`.
  int64_t hidden = 512;            ///< Numbers in a state.
  int64_t layers = 1;              ///< Of the LSTM or the transformer.
  int64_t heads = 4;               ///< Of a transformer.
  int64_t context = 128;           ///< Tokens that a transformer sees, at most.
  double dropout = 0;              ///< Of inputs and outputs of layers: an LSTM's inputs by one mask for all steps.
  double recurrent_dropout = 0;    ///< Of the LSTM's state, likewise (Gal & Ghahramani 2016).
  std::vector<int64_t> cutoffs{};  ///< Of an adaptive softmax (Grave et al. 2017); none: a plain one.
};

/// What a model remembers of the tokens that it has read.
struct Memory {
  reel::Tensor h, c;    ///< The LSTM's.
  reel::Tensor tokens;  ///< A transformer reads its last tokens again: [len, n].

  /// The same without its graph, for the next piece of a text.
  Memory detach() const {
    const auto cut = [](const reel::Tensor& x) { return x.defined() ? x.detach() : x; };
    return {cut(h), cut(c), tokens};
  }
};

/// Predicts each token of a text from those before it.
struct LanguageModel : reel::nn::Module {
  LanguageModel(int64_t tokens, const LanguageModelOptions& o)
      : options(o),
        embedding(*this, "embedding", tokens, o.transformer ? o.hidden : o.embedding),
        positions(*this, "positions", o.transformer ? 0.02 * reel::randn({o.context, 1, o.hidden}) : reel::Tensor()),
        dropout(*this, "dropout", o.transformer ? 0 : o.dropout) {
    using namespace reel;
    if (o.transformer) {
      nn::init::normal_(embedding.weight, 0, 0.02);
      encoder.emplace(*this, "encoder", o.hidden, o.heads, o.layers,
                      nn::TransformerLayerOptions{.dim_feedforward = 4 * o.hidden,
                                                  .dropout = o.dropout,
                                                  .activation = [](const Tensor& x) { return gelu(x); },
                                                  .norm_first = true,
                                                  .final_norm = true});
    } else {
      lstm.emplace(*this, "lstm", o.embedding, o.hidden,
                   nn::LSTMOptions{
                       .num_layers = o.layers, .input_dropout = o.dropout, .recurrent_dropout = o.recurrent_dropout});
    }
    if (o.cutoffs.empty())
      out.emplace(*this, "out", o.hidden, tokens);
    else
      adaptive.emplace(*this, "out", o.hidden, tokens, o.cutoffs);
  }

  /// What is known after each of the tokens x [len, n] and those before them: [len n, hidden]. `memory` becomes what is
  /// known after the last one; it may be empty.
  reel::Tensor forward(const reel::Tensor& x, Memory& memory) const {
    using namespace reel;
    if (lstm) {
      const auto [y, state] = (*lstm)(embedding(x), {memory.h, memory.c});
      memory = {state.h, state.c, {}};
      return dropout(y).flatten(0, 1);
    }
    REEL_CHECK(x.size(0) <= options.context, "a transformer with a context of ", options.context,
               " tokens cannot read a piece of ", x.size(0));
    const int64_t before =
        memory.tokens.defined() ? std::min(memory.tokens.size(0), options.context - x.size(0)) : int64_t{0};
    const Tensor all = before > 0 ? cat({memory.tokens.narrow(0, memory.tokens.size(0) - before, before), x}) : x;
    memory = {{}, {}, all};
    const Tensor y = (*encoder)(embedding(all) + positions.narrow(0, 0, all.size(0)), {.is_causal = true});
    return y.narrow(0, before, x.size(0)).flatten(0, 1);
  }

  /// The mean of -log p of the tokens y that follow.
  reel::Tensor loss(const reel::Tensor& features, const reel::Tensor& y) const {
    return adaptive ? adaptive->forward(features, y.flatten()).loss
                    : reel::cross_entropy((*out)(features), y.flatten());
  }

  /// The logarithms of all tokens' probabilities [n, tokens].
  reel::Tensor log_prob(const reel::Tensor& features) const {
    return adaptive ? adaptive->log_prob(features) : reel::log_softmax((*out)(features), 1);
  }

  const LanguageModelOptions options;
  reel::nn::Embedding embedding;
  reel::nn::Parameter positions;
  reel::nn::Dropout dropout;
  std::optional<reel::nn::LSTM> lstm;
  std::optional<reel::nn::TransformerEncoder> encoder;
  std::optional<reel::nn::Linear> out;
  std::optional<reel::nn::AdaptiveLogSoftmaxWithLoss> adaptive;
};
