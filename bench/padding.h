#pragma once
// Sentences of different lengths in batches, for every library the same: what padding costs.
#include <numeric>

#include "bench/corpus.h"

namespace bench {

/// A batch of sentences, and their rectangle [longest, n], time first.
class PaddedBatch {
 public:
  static constexpr int64_t kNoTag = -100;  // what cross entropy ignores
  std::vector<Sentence> sentences;

  int64_t size() const { return static_cast<int64_t>(sentences.size()); }
  int64_t longest() const {
    size_t most = 0;
    for (const Sentence& sentence : sentences) most = std::max(most, sentence.words.size());
    return static_cast<int64_t>(most);
  }
  int64_t tokens() const {
    size_t all = 0;
    for (const Sentence& sentence : sentences) all += sentence.words.size();
    return static_cast<int64_t>(all);
  }
  std::vector<int64_t> words() const { return fill(&Sentence::words, 0); }
  std::vector<int64_t> tags() const { return fill(&Sentence::tags, kNoTag); }
  /// For each cell the one that changes places with it when all sentences are turned around: cells of padding stay, so
  /// that a net which reads backwards meets them last.
  std::vector<int64_t> turned() const {
    std::vector<int64_t> cells(static_cast<size_t>(longest() * size()));
    std::iota(cells.begin(), cells.end(), 0);
    for (int64_t i = 0; i < size(); ++i) {
      const auto length = static_cast<int64_t>(sentences[static_cast<size_t>(i)].words.size());
      for (int64_t t = 0; t < length; ++t) cells[static_cast<size_t>(t * size() + i)] = (length - 1 - t) * size() + i;
    }
    return cells;
  }

 private:
  std::vector<int64_t> fill(std::vector<int64_t> Sentence::*member, int64_t padding) const {
    std::vector<int64_t> cells(static_cast<size_t>(longest() * size()), padding);
    for (size_t i = 0; i < sentences.size(); ++i)
      for (size_t t = 0; t < sentences[i].words.size(); ++t)
        cells[t * sentences.size() + i] = (sentences[i].*member)[t];
    return cells;
  }
};

/// The ways to read a batch; a library has some of them.
///   one        one sentence after the other
///   padded     all at once, short ones filled up, in the order of the file
///   bucketed   the same of sentences of similar lengths: all are sorted before they are divided into batches
///   packed     all at once, step by step as many as are that long
///   ragged     the same, written with reel::Ragged
///   map        reel's batching::map of `one`
/// All but `bucketed` have the same batches, and so the same losses.
struct PaddingData {
  Tagged tagged;
  std::vector<PaddedBatch> batches;
  double wasted = 0;  // the share of cells that are padding
};

/// The lengths of UD English EWT, by their distribution: 16 words on average, half of them at most 14, one in a hundred
/// over 57.
inline int random_length(Random& random) {
  constexpr double kShare[] = {0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
  constexpr double kLength[] = {1, 2, 3, 7, 14, 23, 32, 39, 57, 89, 159};
  const double share = (static_cast<double>(random.uniform(1)) + 1) / 2;
  int i = 1;
  while (i < 10 && share > kShare[i]) ++i;
  const double within = (share - kShare[i - 1]) / (kShare[i] - kShare[i - 1]);
  return static_cast<int>(kLength[i - 1] + within * (kLength[i] - kLength[i - 1]) + 0.5);
}

/// The words of all sentences, divided anew.
inline void give_lengths(std::vector<Sentence>& sentences) {
  Random random(17);
  Sentence all;
  for (const Sentence& sentence : sentences) {
    all.words.insert(all.words.end(), sentence.words.begin(), sentence.words.end());
    all.tags.insert(all.tags.end(), sentence.tags.begin(), sentence.tags.end());
  }
  size_t next = 0;
  for (Sentence& sentence : sentences) {
    sentence = {};
    for (int i = random_length(random); i > 0; --i, ++next) {
      sentence.words.push_back(all.words[next % all.words.size()]);
      sentence.tags.push_back(all.tags[next % all.tags.size()]);
    }
  }
}

constexpr int kPaddingSentences = 1280;
/// A word's loss in the first pass over so many sentences of UD English EWT.
inline double first_pass_loss(const std::string& way) { return way == "bucketed" ? 2.73608 : 2.688168; }

inline PaddingData load_padding(const Options& options, const std::string& way) {
  PaddingData data;
  data.tagged = load_tagged(options, tagger::kFiles);
  std::vector<Sentence>& sentences = data.tagged.sentences;
  if (!data.tagged.real) give_lengths(sentences);
  if (way == "bucketed")
    std::stable_sort(sentences.begin(), sentences.end(),
                     [](const Sentence& a, const Sentence& b) { return a.words.size() < b.words.size(); });
  for (size_t begin = 0; begin < sentences.size(); begin += tagger::kBatch) {
    const size_t end = std::min(begin + tagger::kBatch, sentences.size());
    PaddedBatch& batch = data.batches.emplace_back();
    batch.sentences.assign(sentences.begin() + static_cast<std::ptrdiff_t>(begin),
                           sentences.begin() + static_cast<std::ptrdiff_t>(end));
  }
  // Short and long batches by turns, as in a shuffled epoch.
  if (way == "bucketed") {
    Random random(19);
    for (size_t i = data.batches.size(); i > 1; --i)
      std::swap(data.batches[i - 1], data.batches[static_cast<size_t>(random.below(static_cast<int>(i)))]);
  }
  int64_t cells = 0;
  for (const PaddedBatch& batch : data.batches) cells += batch.longest() * batch.size();
  if (way == "padded" || way == "bucketed")
    data.wasted = 1 - static_cast<double>(data.tagged.tokens()) / static_cast<double>(cells);
  return data;
}

/// Measures training, an update for each batch, and inference in one way. A Reader has
///   Reader(const PaddingData&)        the model and all batches as tensors
///   double train(size_t batch)        an update; the sum of the losses
///   int64_t infer(size_t batch)       the sum of the first tags of all sentences
template <class Reader, class LibraryReport>
void measure_padding(LibraryReport& report, const Options& options, const std::string& way) {
  const std::string train = "padding.train." + way, infer = "padding.infer." + way;
  const auto words = [](const PaddingData& data) { return static_cast<double>(data.tagged.tokens()); };
  report.run(train, [&] {
    const PaddingData data = load_padding(options, way);
    Reader reader(data);
    const auto pass = [&] {
      double total = 0;
      for (size_t i = 0; i < data.batches.size(); ++i) total += reader.train(i);
      return total;
    };
    const double loss = pass() / words(data);
    const bool known = data.tagged.real && data.tagged.sentences.size() == kPaddingSentences;
    const std::string checked = known ? check_loss(loss, first_pass_loss(way)) : field("first_pass_loss", loss);
    report.rate(train, measure(pass, options.secs, 0, 3), words(data), "words/s",
                checked + ", " + field("wasted_cells", data.wasted));
  });
  report.run(infer, [&] {
    const PaddingData data = load_padding(options, way);
    Reader reader(data);
    int64_t first_tags = 0;
    const auto pass = [&] {
      first_tags = 0;
      for (size_t i = 0; i < data.batches.size(); ++i) first_tags += reader.infer(i);
    };
    const Samples samples = measure(pass, options.secs, 1, 3);
    report.rate(infer, samples, words(data), "words/s",
                field("first_tags", static_cast<double>(first_tags)) + ", " + field("wasted_cells", data.wasted));
  });
}

}  // namespace bench
