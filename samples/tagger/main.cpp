// A bidirectional LSTM, with a CRF where wanted, tags words: parts of speech, names, or a made-up language without
// files.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dataset.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"
#include "score.h"

using namespace reel;

namespace {

struct Options : CommonOptions {
  ReadOptions read;
  std::string score, truth;
  int crf = -1;  // -1: where tags name entities
  int word_size = 100, letter_size = 30, letter_hidden = 50, hidden = 100;
  double dropout = 0.4, word_dropout = 0.5;
  bool batched = false;
  Options() { epochs = 8, batch = 4, lr = 2e-3; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Tags the words of sentences, read one by one or many at once and never padded: with --data DIR parts of speech "
      "(CoNLL-U) or names (columns, tags in IOB1, IOB2 or IOBES), without it the sentences of a made-up language.");
  add_common_options(app, o, "sentences");
  app.add_option("--data", o.data, "folder of three files whose names hold train, dev and test, plain or gzip");
  app.add_option("--word-prefix", o.read.word_prefix, "take this off every word (WikiANN: en:)");
  app.add_option("--word-column", o.read.word_column, "where words are: from 1, or from -1 for the last; 0 looks");
  app.add_option("--tag-column", o.read.tag_column, "where tags are");
  app.add_option("--tag-scheme", o.read.scheme, "how tags mark entities; they become IOB2")
      ->check(CLI::IsMember({"auto", "none", "iob1", "iob2", "iobes"}));
  app.add_option("--comment", o.read.comment, "skip lines that begin with this");
  app.add_flag("--latin1", o.read.latin1, "files are in ISO 8859-1, not UTF-8");
  auto* truth = app.add_option("--truth", o.truth, "with --score: the file with the true tags");
  app.add_option("--score", o.score, "only score the entities that the last column of this file names")->needs(truth);
  app.add_option("--crf", o.crf, "1: a CRF over the tags, 0: each tag by itself, -1: a CRF where tags name entities")
      ->check(CLI::Range(-1, 1));
  app.add_option("--word-size", o.word_size, "numbers in a word's vector")->check(CLI::Range(1, 1000000));
  app.add_option("--letter-size", o.letter_size, "numbers in a letter's vector")->check(CLI::Range(1, 1000000));
  app.add_option("--letter-hidden", o.letter_hidden, "state of the LSTM over letters")->check(CLI::Range(1, 1000000));
  app.add_option("--hidden", o.hidden, "state of the LSTM over words")->check(CLI::Range(1, 1000000));
  app.add_option("--dropout", o.dropout, "before and after the LSTM over words")->check(CLI::Range(0.0, 1.0));
  app.add_option("--word-dropout", o.word_dropout, "how often a word seen once is shown as unknown")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--lr", o.lr, "Adam's first learning rate, which falls to a tenth");
  app.add_flag("--batched", o.batched, "run the model for all sentences of a step at once (batching::map)");
  return parse_arguments(app, argc, argv);
}

/// How many sentences are read at the same time.
int64_t at_once(bool batched) { return batched ? batching::MapOptions().window : 1; }

std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

/// The words (lower-cased), letters (bytes) and tags of a model.
struct Alphabet {
  data::Vocabulary words, letters, tags;

  explicit Alphabet(const std::vector<Sentence>& sentences) {
    data::TokenCounts word_counts, letter_counts, tag_counts;
    for (const Sentence& sentence : sentences) {
      for (const std::string& word : sentence.words) {
        word_counts.add(lower(word));
        for (const char c : word) letter_counts.add(std::string_view(&c, 1));
      }
      tag_counts.add_all(sentence.tags);
    }
    words = data::Vocabulary(word_counts);
    letters = data::Vocabulary(letter_counts);
    tags = data::Vocabulary(tag_counts, {.specials = {}, .unknown = {}});
  }
  /// As saved in a file's metadata.
  explicit Alphabet(const io::Metadata& metadata) {
    const auto read = [&](const char* name) {
      const auto found = metadata.find(name);
      REEL_CHECK(found != metadata.end(), "the file is no model of this program: it has no ", name);
      return data::Vocabulary::from_string(found->second);
    };
    words = read("words"), letters = read("letters"), tags = read("tags");
  }
  io::Metadata metadata() const {
    return {{"words", words.to_string()}, {"letters", letters.to_string()}, {"tags", tags.to_string()}};
  }

  Encoded encode(const Sentence& sentence) const {
    constexpr size_t kMaxLetters = 40;  // of a word; the rest (of addresses, mostly) is not read
    Encoded encoded;
    std::vector<std::string> low;
    std::vector<int64_t> letter_ids;
    for (const std::string& word : sentence.words) {
      low.push_back(lower(word));
      encoded.lengths.push_back(static_cast<int64_t>(std::min(word.size(), kMaxLetters)));
      for (const char& c : word.substr(0, kMaxLetters)) letter_ids.push_back(letters.id({&c, 1}));
    }
    encoded.letters = tensor(letter_ids);
    encoded.words = words.encode(low);
    std::vector<int64_t> ids;
    for (const std::string& tag : sentence.tags) ids.push_back(tags.find(tag).value_or(0));
    encoded.tags = tensor(ids);
    return encoded;
  }
};

Score evaluate(Tagger& model, const Alphabet& alphabet, const std::vector<Sentence>& sentences, bool entities,
               bool batched) {
  NoGrad guard;
  model.eval();
  Score score(entities);
  const auto add = [&](const Sentence& sentence) {
    score.add(alphabet.tags.decode(model.decode(alphabet.encode(sentence))), sentence.tags);
  };
  batching::map(sentences, add, {.window = at_once(batched)});
  return score;
}

/// The rest of an epoch; sentences a second.
double train(Tagger& model, optim::Optimizer& adam, const std::vector<Encoded>& sentences, const Tensor& rare,
             double word_dropout, data::Batches& batches, bool batched, EpochTotals& totals, Checkpoints& checkpoints) {
  model.train();
  int64_t done = batches.position() * batches.batch_size();
  ProgressBar progress = progress_bar("epoch " + std::to_string(batches.epoch() + 1),
                                      batches.size() * batches.batch_size(), "sentences", done);
  for (const std::vector<int64_t>& batch : batches) {
    int64_t words = 0;
    const auto loss_of = [&](int64_t i) {
      Encoded sentence = sentences[static_cast<size_t>(i)];
      // Words seen once are unknown now and then, so that the model learns what to do with unknown ones.
      const Tensor hidden = index_select(rare, 0, sentence.words) & (rand(sentence.words.shape()) < word_dropout);
      sentence.words = masked_fill(sentence.words, hidden, 0);
      words += sentence.words.numel();
      return model.loss(sentence);
    };
    const std::vector<Tensor> losses = batching::map(batch, loss_of, {.window = at_once(batched)});
    const Tensor loss = sum(stack(losses));
    adam.zero_grad();
    (loss / static_cast<double>(words)).backward();
    optim::clip_grad_norm(model.parameters(), 5);
    adam.step();
    totals.add(loss, words);
    done += static_cast<int64_t>(batch.size());
    progress.update(done, "loss", [&] { return totals.mean(); });
    checkpoints.step();
  }
  return progress.rate();
}

/// The most frequent tag of each word in training, over all words for unknown ones.
void print_baseline(const Corpus& corpus, bool entities) {
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const Sentence& sentence : corpus.train)
    for (size_t i = 0; i < sentence.words.size(); ++i)
      ++counts[sentence.words[i]][sentence.tags[i]], ++counts[""][sentence.tags[i]];
  const auto usual = [](const std::map<std::string, int64_t>& tags) {
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::max_element(tags.begin(), tags.end(), less)->first;
  };
  Score score(entities);
  for (const Sentence& sentence : corpus.test) {
    std::vector<std::string> tags;
    for (const std::string& word : sentence.words)
      tags.push_back(usual(counts.contains(word) ? counts.at(word) : counts.at("")));
    score.add(tags, sentence.tags);
  }
  std::printf("baseline: each word's most frequent tag: test %s\n", score.to_string().c_str());
}

void run(Options o) {
  if (!o.score.empty()) {
    const auto predicted = read_sentences(o.score, o.read), truth = read_sentences(o.truth, o.read);
    REEL_CHECK(predicted.size() == truth.size(), o.score, ": ", predicted.size(), " sentences, not ", truth.size());
    Score score(true);
    for (size_t i = 0; i < truth.size(); ++i) score.add(predicted[i].tags, truth[i].tags);
    std::printf("%s\n", score.to_string().c_str());
    return;
  }
  manual_seed(o.seed);
  set_default_device(device_of(o));
  const Corpus corpus = o.data.empty() ? generate_language({}) : read_corpus(o.data, o.read);
  const bool entities = names_entities(corpus.train);

  // The file of a saved model holds its sizes and its vocabulary.
  StateDict loaded;
  io::Metadata metadata;
  if (!o.load.empty()) loaded = io::load(o.load, &metadata);
  const Alphabet alphabet = o.load.empty() ? Alphabet(corpus.train) : Alphabet(metadata);
  TaggerOptions sizes{.words = alphabet.words.size(),
                      .letters = alphabet.letters.size(),
                      .tags = alphabet.tags.size(),
                      .word_size = o.word_size,
                      .letter_size = o.letter_size,
                      .letter_hidden = o.letter_hidden,
                      .hidden = o.hidden,
                      .dropout = o.dropout,
                      .crf = o.crf < 0 ? entities : o.crf == 1};
  if (entities) sizes.allowed = crf_bio_constraints(alphabet.tags.tokens());
  Tagger model(sizes);
  if (!o.load.empty()) model.load_state_dict(loaded);
  std::printf("data: %s, %zu + %zu + %zu sentences to train, choose and test, %lld words, %lld tags\n",
              o.data.empty() ? "a made-up language" : o.data.c_str(), corpus.train.size(), corpus.dev.size(),
              corpus.test.size(), static_cast<long long>(sizes.words), static_cast<long long>(sizes.tags));
  print_baseline(corpus, entities);

  if (!o.evaluate) {
    std::vector<Encoded> sentences;
    for (const Sentence& sentence : corpus.train) sentences.push_back(alphabet.encode(sentence));
    std::vector<bool> seen_once;
    for (int64_t i = 0; i < alphabet.words.size(); ++i) seen_once.push_back(alphabet.words.count(i) <= 1);
    const Tensor rare = tensor(seen_once);
    optim::Adam adam(model.parameters(), {.lr = o.lr});
    optim::CosineAnnealingLR schedule(adam, {.T_max = o.epochs, .eta_min = o.lr / 10});
    // On several processes each reads its share of the sentences, and gradients are the mean over all.
    distributed::DistributedDataParallel ddp(model);
    const auto size = static_cast<int64_t>(sentences.size());
    data::BatchSampler batches(distributed::DistributedSampler(size, {.seed = o.seed}), o.batch);
    if (distributed::rank() > 0) manual_seed(o.seed + distributed::rank());  // dropout of its own
    EpochTotals totals;
    Best best;
    if (!o.load.empty())
      best.keep(evaluate(model, alphabet, corpus.dev, entities, o.batched).value(), model.state_dict());
    Checkpoints checkpoints(o, alphabet.metadata());
    checkpoints.add("model", model).add("optimizer", adam).add("schedule", schedule).add("data", batches);
    checkpoints.add("totals", totals).add("best", best).resume();
    Log log(o, batches.epoch());
    while (batches.epoch() < o.epochs) {
      const int64_t epoch = batches.epoch() + 1;
      const double speed = train(model, adam, sentences, rare, o.word_dropout, batches, o.batched, totals, checkpoints);
      schedule.step();
      totals.collect();
      const Score dev = evaluate(model, alphabet, corpus.dev, entities, o.batched);
      const bool better = best.keep(dev.value(), model.state_dict());
      std::printf("epoch %2lld  loss/word %.4f  dev: %s  %5.0f sentences/s%s\n", static_cast<long long>(epoch),
                  totals.mean(), dev.to_string().c_str(), speed, better ? "  best" : "");
      std::fflush(stdout);
      log.add({{"train/loss", totals.mean()}, {"dev/score", dev.value()}, {"train/sentences per second", speed}},
              epoch);
      if (better && !o.save.empty()) save_model(best.state(), o.save, alphabet.metadata());
      totals.reset();
      checkpoints.save();
    }
    if (!o.save.empty()) save_model(best.state(), o.save, alphabet.metadata());  // also if another run has found it
    model.load_state_dict(best.state());
  }
  std::printf("dev:  %s\n", evaluate(model, alphabet, corpus.dev, entities, o.batched).to_string().c_str());
  std::printf("test: %s\n", evaluate(model, alphabet, corpus.test, entities, o.batched).to_string().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("tagger", [&] { run(options); });
}
