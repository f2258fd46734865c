// The code of sequences.md.
#include "samples/guide/guide.h"

namespace guide_sequences {
using namespace reel;

void run() {
  {
    // [ragged]
    nn::Embedding words(100, 8);
    nn::LSTM lstm(8, 16, {.bidirectional = true});
    nn::Linear tagger(32, 5);
    Ragged ids = Ragged::of({tensor({4, 8, 1}), tensor({5, 2})});  // two sentences; nothing is padded
    Ragged states = lstm(map(ids, words)).output;                  // a recurrent layer takes the Ragged
    Ragged scores = map(states, tagger);                           // what is done to each row takes the rows
    Tensor of_sentence = mean(states);                             // [2, 32]
    // [/ragged]
    REEL_CHECK(scores.values.shape() == (Shape{5, 5}) && of_sentence.shape() == (Shape{2, 32}), "ragged");
  }

  const std::vector<std::pair<Tensor, Tensor>> sentences = {
      {tensor({4, 8, 1}), tensor({0, 1, 0})}, {tensor({5, 2}), tensor({1, 4})}, {tensor({7}), tensor({3})}};
  nn::Embedding words(100, 8);
  nn::LSTM lstm(8, 16, {.bidirectional = true});
  nn::Linear tagger(32, 5);
  const Tensor kernel = randn({64, 32, 3});
  // [loader]
  data::DataLoader loader(sentences, {.batch_size = 64}, data::RaggedCollate());  // pairs of ids and tags, any lengths
  for (auto [ids, tags] : loader) {
    Ragged x = map(ids, words);  // what is done to each row takes the rows: a layer, relu, …
    Ragged h = lstm(x).output;   // what knows where a sequence ends takes the Ragged
    Ragged y = h + scaled_dot_product_attention(h, h, h);  // within each sequence; lengths that differ are an Error
    Tensor sentence = mean(conv1d(y, kernel, {}, {.padding = kSame}));  // [64, …]; no window crosses a boundary
    sum(cross_entropy(map(y, tagger), tags, kSum)).backward();          // [64]: a loss for each sentence
  }
  // [/loader]
  REEL_CHECK(words.weight.grad().defined() && tagger.weight.grad().defined(), "loader");
}

}  // namespace guide_sequences

void sequences() { guide_sequences::run(); }
