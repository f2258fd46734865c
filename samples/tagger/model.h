#pragma once
#include <string>
#include <vector>

#include "reel/reel.h"

struct TaggerOptions {
  int64_t words, letters, tags;  ///< How many there are of each.
  int64_t word_size = 100, letter_size = 30, letter_hidden = 50, hidden = 100;
  double dropout = 0.4;
  bool crf = false;
  reel::CrfConstraints allowed = {};
};

/// A sentence in numbers: word ids [n], the letters of all words as ids and how many each word has, tag ids [n].
struct Encoded {
  reel::Tensor words;
  reel::Tensor letters;
  std::vector<int64_t> lengths;
  reel::Tensor tags;
};

/// Tags sentences: a bidirectional LSTM over the letters of each word (Ling et al. 2015) gives, beside a vector of the
/// word itself, what a bidirectional LSTM over the sentence reads; a linear layer scores the tags, each by itself or,
/// with a CRF, all of a sentence together (Lample et al. 2016). Sentences and words are of any length, nothing is
/// padded.
struct Tagger : reel::nn::Module {
  explicit Tagger(const TaggerOptions& o)
      : options(o),
        word(*this, "word", o.words, o.word_size, {.sparse = true}),
        letter(*this, "letter", o.letters, o.letter_size),
        spelling(*this, "spelling", o.letter_size, o.letter_hidden, {.bidirectional = true}),
        context(*this, "context", o.word_size + 2 * o.letter_hidden, o.hidden, {.bidirectional = true}),
        dropout(*this, "dropout", o.dropout),
        out(*this, "out", 2 * o.hidden, o.tags),
        crf(*this, "crf", o.tags, {.allowed = o.allowed}) {
    reel::nn::init::uniform_(word.weight, -0.1, 0.1);
  }

  /// The scores [n, tags].
  reel::Tensor forward(const Encoded& sentence) const {
    const reel::Tensor ends = spelling(split(letter(sentence.letters), sentence.lengths)).state.h;  // [2, n, …]
    const reel::Tensor features = reel::cat({word(sentence.words), ends[0], ends[1]}, 1);
    return out(dropout(context(dropout(features)).output));
  }
  reel::Tensor loss(const Encoded& sentence) const {
    const reel::Tensor scores = forward(sentence);
    return options.crf ? -crf(scores, sentence.tags) : reel::cross_entropy(scores, sentence.tags, reel::kSum);
  }
  /// The best tags [n].
  reel::Tensor decode(const Encoded& sentence) const {
    const reel::Tensor scores = forward(sentence);
    return options.crf ? crf.decode(scores).tags : reel::argmax(scores, 1);
  }

  const TaggerOptions options;
  reel::nn::Embedding word, letter;
  reel::nn::LSTM spelling, context;
  reel::nn::Dropout dropout;
  reel::nn::Linear out;
  reel::nn::CRF crf;
};
