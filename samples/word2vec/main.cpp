// Skip-gram or CBOW learns vectors of words from text, on all cores; finds neighbours and analogies.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "corpus.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"

using namespace reel;

namespace {

struct Options : CommonOptions, WordModelOptions {
  std::string vectors, eval;
  std::vector<std::string> nearest, analogy;
  int min_count = 5, threads = num_threads();
  double sample = 1e-4;
  Options() { epochs = 5, batch = 1000, lr = 0; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Learns vectors of words: with --data of a text file, or a folder of .txt files, plain or gzip; without it of a "
      "made-up language.");
  add_common_options(app, o, "text");
  app.get_option("--batch")->description("examples in a step of each thread");
  app.add_option("--data", o.data, "text file or folder, words between spaces");
  app.add_option("--eval", o.eval, "folder with questions-words.txt and EN-*.txt, similarities of pairs of words");
  app.add_option("--vectors", o.vectors, "write the vectors to this file, as word2vec's text");
  app.add_option("--nearest", o.nearest, "print the nearest words of these");
  app.add_option("--analogy", o.analogy, "A B C: print what is to C as B is to A")->expected(3);
  app.add_flag("--cbow", o.cbow, "predict a word from all words around it, not from each");
  app.add_option("--loss", o.loss, "ns (negative sampling), nce or hs (hierarchical softmax)")
      ->check(CLI::IsMember({"ns", "nce", "hs"}));
  app.add_option("--size", o.size, "numbers in a vector")->check(CLI::Range(1, 1000000));
  app.add_option("--window", o.window, "words on each side that count, at most")->check(CLI::Range(1, 1000));
  app.add_option("--negatives", o.negatives, "words of noise for each example")->check(CLI::Range(1, 1000));
  app.add_option("--sample", o.sample, "words more frequent than this are thinned out; 0: none");
  app.add_option("--min-count", o.min_count, "rarer words are left out")->check(CLI::Range(1, 1000000));
  app.add_option("--threads", o.threads, "they share the vectors; with one a run can be repeated bit for bit")
      ->check(CLI::Range(1, 1024));
  app.add_option("--lr", o.lr, "first learning rate, which falls to 0; 0: 0.025, of CBOW 0.05");
  return parse_arguments(app, argc, argv);
}

/// How far a run is; a part of checkpoints.
struct Position {
  int64_t round = 0, words = 0;
  StateDict state_dict() const { return {{"round", tensor({round}, on_cpu())}, {"words", tensor({words}, on_cpu())}}; }
  void load_state_dict(const StateDict& dict) {
    const Tensor *const r = find(dict, "round"), *const w = find(dict, "words");
    REEL_CHECK(r && w, "the checkpoint has no position");
    round = r->item<int64_t>(), words = w->item<int64_t>();
  }
  static TensorOptions on_cpu() { return {.dtype = kInt64, .device = kCPU}; }
};

/// Lines [first, last) of the text.
struct Lines {
  int64_t first, last;
};

/// The text in parts of about so many words.
std::vector<Lines> parts_of(const Corpus& corpus, int64_t words) {
  std::vector<Lines> parts;
  int64_t first = 0;
  for (int64_t line = 1; line <= corpus.lines(); ++line)
    if (line == corpus.lines() || corpus.begins[line] - corpus.begins[first] >= words)
      parts.push_back({first, line}), first = line;
  return parts;
}

/// Trains on some lines, before which the earlier epochs had so many words. Returns the mean loss.
double train_lines(Trainer& trainer, const Corpus& corpus, const Subsampling& subsampling, const Options& o,
                   const Lines& lines, int64_t words_before, uint64_t seed) {
  manual_seed(seed);
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed % 1000003 + 1));
  const double total = static_cast<double>(o.epochs) * static_cast<double>(corpus.size());
  Examples examples;
  std::vector<int64_t> kept;
  double loss = 0;
  int64_t count = 0;
  for (int64_t line = lines.first; line < lines.last; ++line) {
    const auto begin = static_cast<size_t>(corpus.begins[line]), end = static_cast<size_t>(corpus.begins[line + 1]);
    subsampling.sample(std::span(corpus.ids).subspan(begin, end - begin), random, kept);
    examples.add(kept, o, random);
    if (examples.size() == 0 || (examples.size() < o.batch && line + 1 < lines.last)) continue;
    const double done = static_cast<double>(words_before + corpus.begins[line + 1]) / total;
    loss += trainer.step(examples, o.lr * std::max(1 - done, 1e-4));
    count += examples.size();
    examples.clear();
  }
  return count ? loss / static_cast<double>(count) : 0;
}

/// Calls f(trainer, i) for i from 0 to n - 1, on as many threads as there are trainers. A thread that is done with one
/// takes the next one that is left, so that none waits long for another. Throws what f throws.
template <class F>
void share_among(std::deque<Trainer>& trainers, int64_t n, const F& f) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](Trainer& trainer) {
    try {
      for (int64_t i; (i = next++) < n;) f(trainer, i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception(), next = n;
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < trainers.size(); ++t) threads.emplace_back(work, std::ref(trainers[t]));
  work(trainers[0]);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

void train(WordModel& model, const Corpus& corpus, const Options& o) {
  const Subsampling subsampling(corpus, o.sample);
  std::deque<Trainer> trainers;
  for (int t = 0; t < o.threads; ++t) trainers.emplace_back(model);
  // All threads meet after every round of so many parts; there a run can be stopped and continued.
  constexpr int64_t kRound = 64;
  const std::vector<Lines> parts = parts_of(corpus, std::clamp<int64_t>(corpus.size() / 8, kRound, 1000000) / kRound);
  const auto count = static_cast<int64_t>(parts.size()), per_epoch = (count + kRound - 1) / kRound;
  Position at;
  Checkpoints checkpoints(o, {{"words", std::to_string(corpus.words.size())}});
  checkpoints.add("model", model).add("position", at).resume();
  Log log(o, at.round / per_epoch);
  while (at.round < o.epochs * per_epoch) {
    const int64_t epoch = at.round / per_epoch, before = at.words - epoch * corpus.size();
    ProgressBar progress = progress_bar("epoch " + std::to_string(epoch + 1), corpus.size(), "words", before);
    double loss = 0;  // of this epoch's parts, the mean
    int64_t seen = 0;
    do {
      const int64_t first = at.round % per_epoch * kRound, n = std::min(kRound, count - first);
      std::vector<double> losses(static_cast<size_t>(n));
      share_among(trainers, n, [&](Trainer& trainer, int64_t i) {
        losses[i] = train_lines(trainer, corpus, subsampling, o, parts[first + i], epoch * corpus.size(),
                                o.seed + static_cast<uint64_t>(epoch * count + first + i + 1) * 7919);
      });
      for (const double part_loss : losses) loss += (part_loss - loss) / static_cast<double>(++seen);
      at.words = epoch * corpus.size() + corpus.begins[parts[first + n - 1].last];
      ++at.round;
      progress.update(at.words - epoch * corpus.size(), "loss", [&] { return loss; });
      checkpoints.step();
    } while (at.round % per_epoch);
    std::printf("epoch %2lld  loss %.4f  %.0f words/s\n", static_cast<long long>(epoch + 1), loss, progress.rate());
    std::fflush(stdout);
    log.add({{"train/loss", loss}, {"train/words per second", progress.rate()}}, epoch + 1);
    checkpoints.save();
  }
}

void evaluate(const data::WordVectors& vectors, const Options& o) {
  const auto print = [](const data::AnalogyScore& score) {
    std::printf("analogies: %lld of %lld right, %.2f %%; %lld have unknown words\n",
                static_cast<long long>(score.right), static_cast<long long>(score.asked), 100 * score.accuracy(),
                static_cast<long long>(score.skipped));
  };
  if (o.data.empty()) print(data::score_analogies(vectors, generated_questions()));
  if (o.eval.empty()) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(o.eval)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    if (file.filename() == "questions-words.txt") {
      print(data::score_analogies(vectors, data::read_lines(file)));
    } else if (file.filename().string().starts_with("EN-")) {
      const data::SimilarityScore score = data::score_similarities(vectors, data::read_lines(file));
      std::printf("%s: rank correlation %.3f over %lld pairs, %lld have unknown words\n", file.stem().c_str(),
                  score.correlation, static_cast<long long>(score.pairs), static_cast<long long>(score.skipped));
    }
  }
}

void run(Options o) {
  REEL_CHECK(distributed::world_size() == 1, "this sample uses threads (--threads), not processes");
  if (o.lr == 0) o.lr = o.cbow ? 0.05 : 0.025;
  set_num_threads(1);  // a thread's ops are its own
  manual_seed(o.seed);
  set_default_device(device_of(o));
  const Corpus corpus = o.data.empty() ? generate_corpus(40000, o.seed) : read_corpus(o.data, o.min_count);
  std::printf("data: %s, %lld words, %lld different ones\n", o.data.empty() ? "a made-up language" : o.data.c_str(),
              static_cast<long long>(corpus.size()), static_cast<long long>(corpus.words.size()));
  WordModel model(corpus.words, o);
  if (!o.load.empty()) io::load(model, o.load);
  if (!o.evaluate) train(model, corpus, o);
  if (!o.save.empty()) save_model(model.state_dict(), o.save);
  const data::WordVectors vectors{corpus.words, model.in.detach().to(kCPU)};
  if (!o.vectors.empty()) data::write_word_vectors(o.vectors, vectors.words, vectors.vectors);
  evaluate(vectors, o);
  const auto print = [](const std::vector<data::Neighbour>& found) {
    for (const auto& [word, cosine] : found) std::printf("  %-20s %.3f\n", word.c_str(), cosine);
  };
  for (const std::string& word : o.nearest) std::printf("%s\n", word.c_str()), print(vectors.nearest(word, 10));
  if (!o.analogy.empty()) {
    std::printf("%s : %s = %s :\n", o.analogy[0].c_str(), o.analogy[1].c_str(), o.analogy[2].c_str());
    print(vectors.analogy(o.analogy[0], o.analogy[1], o.analogy[2], 10));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("word2vec", [&] { run(options); });
}
