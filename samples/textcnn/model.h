#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reel/reel.h"

struct TextCnnOptions {
  /// Where word vectors come from: "rand", learnt from nothing; "static", given and kept; "nonstatic", given and
  /// trained; "multichannel", the last two side by side.
  std::string mode = "rand";
  int64_t size = 300;                       ///< Numbers in a word's vector, unless vectors are given.
  std::vector<int64_t> widths = {3, 4, 5};  ///< Of the filters, in words.
  int64_t filters = 100;                    ///< Of each width.
  double dropout = 0.5;
};

/// A convolutional net over the words of a sentence (Kim 2014): filters over windows of words, of each filter the
/// largest value in the sentence, a linear layer. Sentences are of any length; nothing is padded but their ends, with
/// zeros, so that each word is seen by each position of a filter.
struct TextCnn : reel::nn::Module {
  TextCnn(const reel::data::Vocabulary& words, const std::optional<reel::data::WordVectors>& vectors,
          const TextCnnOptions& o)
      : options(o),
        tuned(*this, "tuned", first_vectors(words, vectors, o)),
        fixed(*this, "fixed", o.mode == "multichannel" ? tuned.detach().clone() : reel::Tensor()),
        convolutions(*this, "convolutions"),
        dropout(*this, "dropout", o.dropout),
        out(*this, "out", o.filters * static_cast<int64_t>(o.widths.size()), 2) {
    for (const int64_t width : o.widths) convolutions.emplace(tuned.size(1), o.filters, width);
    if (o.mode == "static") tuned.requires_grad_(false);
  }

  /// Scores [n, 2] of sentences of word numbers.
  reel::Tensor forward(const reel::Ragged& sentences) const {
    using namespace reel;
    const Ragged words = map(sentences, [&](const Tensor& ids) {
      // A filter's two channels are added before anything else happens to them, so their vectors may be added first.
      const Tensor vectors = embedding(tuned, ids, true);
      return fixed.defined() ? vectors + embedding(fixed, ids) : vectors;
    });
    std::vector<Tensor> features;
    for (const nn::Conv1d& layer : convolutions) {
      const int64_t beyond = layer.weight.size(2) - 1;
      features.push_back(relu(max(conv1d(words, layer.weight, layer.bias, {.padding = beyond}))));
    }
    return out(dropout(cat(features, 1)));
  }

  /// To be called after each step: no class's weights are longer than 3 (Hinton et al. 2012).
  void limit_norm() {
    reel::NoGrad guard;
    out.weight.copy_(renorm(out.weight, 2, 0, 3));
  }

  const TextCnnOptions options;
  reel::nn::Parameter tuned;
  reel::nn::Buffer fixed;
  reel::nn::ModuleList<reel::nn::Conv1d> convolutions;
  reel::nn::Dropout dropout;
  reel::nn::Linear out;

 private:
  /// Words without a given vector start at random, with the variance of those that have one.
  static reel::Tensor first_vectors(const reel::data::Vocabulary& words,
                                    const std::optional<reel::data::WordVectors>& vectors, const TextCnnOptions& o) {
    using namespace reel;
    const double bound = vectors ? std::sqrt(3 * var(vectors->vectors, Dims{}).item<double>()) : 0.25;
    const Tensor all = (rand({words.size(), vectors ? vectors->vectors.size(1) : o.size}) * 2 - 1) * bound;
    if (vectors) vectors->copy_into(all, words);
    return all;
  }
};
