#pragma once
// The BiLSTM tagger of the DyNet benchmark: what bench/tagger.cpp and bench/padding.cpp train.
#include "bench/corpus.h"
#include "bench/reel.h"

namespace tagger_model {

using namespace reel;

struct BiLSTM : nn::LSTM {
  BiLSTM(nn::Module& parent, int64_t input, int64_t hidden)
      : nn::LSTM(parent, "lstm", input, hidden, {.bidirectional = true}) {
    for (int direction : {0, 1}) {  // weight_ih, weight_hh, bias_ih, bias_hh
      const nn::Parameter* w = &weights[4 * direction];
      const uint64_t seed = 10 + 10 * direction;
      fill(w[0], seed, 0.1f), fill(w[1], seed + 1, 0.1f);
      zero({w[2], w[3]});
      NoGrad guard;
      w[2].narrow(0, hidden, hidden).fill_(1);  // of the forget gate
    }
  }
};

struct Tagger : nn::Module {
  nn::Embedding embedding;
  BiLSTM lstm{*this, bench::tagger::kEmbedding, bench::tagger::kHidden};
  nn::Linear hidden{*this, "hidden", 2 * bench::tagger::kHidden, bench::tagger::kMlp, {.bias = false}};
  nn::Linear out;

  Tagger(int words, int tags)
      : embedding(*this, "embedding", words, bench::tagger::kEmbedding, {.sparse = true}),
        out(*this, "out", bench::tagger::kMlp, tags, {.bias = false}) {
    fill(embedding.weight, 1, 0.1f), fill(hidden.weight, 30, 0.1f), fill(out.weight, 31, 0.1f);
  }
  Tensor scores(const Tensor& words) const { return scores_of(lstm(embedding(words)).output); }
  Tensor scores_of(const Tensor& states) const { return out(tanh(hidden(states))); }
  Tensor loss(const Tensor& words, const Tensor& tags) const { return cross_entropy(scores(words), tags, kSum); }
  Tensor decode(const Tensor& words) const { return argmax(scores(words), 1); }
};

}  // namespace tagger_model
