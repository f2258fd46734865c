// What padding costs: a BiLSTM tagger reads sentences of different lengths one by one, padded, packed, as a Ragged, and
// under batching::map, with an update for each batch in all of these ways.
#include "bench/padding.h"

#include <numeric>
#include <span>

#include "bench/reel.h"
#include "bench/tagger_model.h"

using namespace reel;
using tagger_model::Tagger;

namespace {

/// What all ways share.
struct Reader {
  Tagger model;
  optim::Adam adam;
  std::vector<int64_t> sizes;  // of the batches

  explicit Reader(const bench::PaddingData& data)
      : model(data.tagged.words, data.tagged.tags), adam(model.parameters(), {.lr = bench::tagger::kLearningRate}) {
    for (const bench::PaddedBatch& batch : data.batches) sizes.push_back(batch.size());
  }
  double update(size_t batch, const Tensor& loss) {
    adam.zero_grad();
    (loss / static_cast<double>(sizes[batch])).backward();
    adam.step();
    return loss.item<double>();
  }
};

/// Sentences one after the other, or in a map.
template <bool mapped>
struct Singly : Reader {
  struct Example {
    Tensor words, tags;
  };
  std::vector<std::vector<Example>> batches;

  explicit Singly(const bench::PaddingData& data) : Reader(data) {
    for (const bench::PaddedBatch& batch : data.batches) {
      batches.emplace_back();
      for (const bench::Sentence& s : batch.sentences) batches.back().push_back({tensor(s.words), tensor(s.tags)});
    }
  }
  template <class F>
  auto for_each(size_t batch, const F& f) const {
    return batching::map(batches[batch], f, {.window = mapped ? batching::MapOptions().window : 1});
  }
  double train(size_t batch) {
    return update(batch, sum(stack(for_each(batch, [&](const Example& e) { return model.loss(e.words, e.tags); }))));
  }
  int64_t infer(size_t batch) const {
    NoGrad guard;
    const auto first = [&](const Example& e) { return argmax(model.scores(e.words), 1).template data<int64_t>()[0]; };
    const auto tags = for_each(batch, first);
    return std::accumulate(tags.begin(), tags.end(), int64_t(0));
  }
};

/// All sentences of a batch as rows of one tensor.
struct AtOnce : Reader {
  std::vector<Tensor> targets;               // of the batches: for each row its tag
  std::vector<std::vector<int64_t>> begins;  // and the rows with which sentences begin

  using Reader::Reader;
  virtual ~AtOnce() = default;
  virtual Tensor scores(size_t batch) const = 0;
  double train(size_t batch) { return update(batch, cross_entropy(scores(batch), targets[batch], kSum)); }
  int64_t infer(size_t batch) const {
    NoGrad guard;
    const Tensor best = argmax(scores(batch), 1);
    int64_t total = 0;
    for (const int64_t row : begins[batch]) total += best.data<int64_t>()[row];
    return total;
  }
};

/// The first rows, where they are the sentences' first words.
std::vector<int64_t> first_rows(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}
std::vector<Tensor> each(const bench::PaddedBatch& batch, std::vector<int64_t> bench::Sentence::*member) {
  std::vector<Tensor> all;
  for (const bench::Sentence& sentence : batch.sentences) all.push_back(tensor(sentence.*member));
  return all;
}

struct Padded final : AtOnce {
  std::vector<Tensor> words, turned;  // [longest · n]

  explicit Padded(const bench::PaddingData& data) : AtOnce(data) {
    for (const bench::PaddedBatch& batch : data.batches) {
      words.push_back(tensor(batch.words())), turned.push_back(tensor(batch.turned()));
      targets.push_back(tensor(batch.tags())), begins.push_back(first_rows(batch.size()));
    }
  }
  /// The second direction reads sentences that are turned around, each by itself.
  Tensor scores(size_t i) const override {
    const std::vector<nn::Parameter>& weights = model.lstm.weights;
    const Tensor x = model.embedding(words[i]);
    const auto read = [&](const Tensor& rows, int direction) {
      const std::vector<Tensor> parameters(weights.begin() + 4 * direction, weights.begin() + 4 * direction + 4);
      return lstm(rows.view({-1, sizes[i], rows.size(1)}), {}, parameters).output.flatten(0, 1);
    };
    const Tensor backwards = index_select(read(index_select(x, 0, turned[i]), 1), 0, turned[i]);
    return model.scores_of(cat({read(x, 0), backwards}, 1));
  }
};

struct Packed final : AtOnce {
  std::vector<PackedSequence> words;

  explicit Packed(const bench::PaddingData& data) : AtOnce(data) {
    for (const bench::PaddedBatch& batch : data.batches) {
      words.push_back(pack_sequence(each(batch, &bench::Sentence::words)));
      targets.push_back(pack_sequence(each(batch, &bench::Sentence::tags)).data);
      begins.push_back(first_rows(batch.size()));
    }
  }
  Tensor scores(size_t i) const override {
    PackedSequence x = words[i];
    x.data = model.embedding(x.data);
    return model.scores_of(model.lstm(x).output.data);
  }
};

struct AsRagged final : AtOnce {
  std::vector<Ragged> words;

  explicit AsRagged(const bench::PaddingData& data) : AtOnce(data) {
    for (const bench::PaddedBatch& batch : data.batches) {
      words.push_back(Ragged::of(each(batch, &bench::Sentence::words)));
      targets.push_back(cat(each(batch, &bench::Sentence::tags)));
      const std::span<const int64_t> offsets = words.back().lengths->offsets();
      begins.emplace_back(offsets.begin(), offsets.end() - 1);
    }
  }
  Tensor scores(size_t i) const override {
    return model.scores_of(model.lstm(map(words[i], model.embedding)).output.values);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  bench::measure_padding<Singly<false>>(report, options, "one");
  bench::measure_padding<Padded>(report, options, "padded");
  bench::measure_padding<Padded>(report, options, "bucketed");
  bench::measure_padding<Packed>(report, options, "packed");
  bench::measure_padding<AsRagged>(report, options, "ragged");
  bench::measure_padding<Singly<true>>(report, options, "map");
  return report.good() ? 0 : 1;
}
