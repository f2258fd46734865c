// A convolutional net reads sentences and says whether they praise or blame, by ten-fold cross-validation.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dataset.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"

using namespace reel;

namespace {

constexpr int kFolds = 10;

struct Options : CommonOptions, TextCnnOptions {
  std::string vectors;
  int folds = kFolds, threads = num_threads();
  Options() { epochs = 8, batch = 50, lr = 1e-3; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Classifies sentences as praise or blame by ten-fold cross-validation: with --data DIR those of *.pos and *.neg, "
      "a sentence a line, without it made-up ones. --save, and --load with --evaluate, are of the first fold's model.");
  add_common_options(app, o, "sentences");
  app.add_option("--data", o.data, "folder with a file *.pos and a file *.neg");
  app.add_option("--vectors", o.vectors, "word vectors: word2vec's or GloVe's text");
  app.add_option("--mode", o.mode, "rand, or with --vectors static, nonstatic or multichannel")
      ->check(CLI::IsMember({"rand", "static", "nonstatic", "multichannel"}));
  app.add_option("--size", o.size, "numbers in a word's vector, without --vectors")->check(CLI::Range(1, 1000000));
  app.add_option("--widths", o.widths, "of the filters, in words")->check(CLI::Range(1, 1000));
  app.add_option("--filters", o.filters, "filters of each width")->check(CLI::Range(1, 1000000));
  app.add_option("--dropout", o.dropout, "before the last layer")->check(CLI::Range(0.0, 1.0));
  app.add_option("--folds", o.folds, "train so many of the ten")->check(CLI::Range(1, kFolds));
  app.add_option("--threads", o.threads, "folds that are trained at a time")->check(CLI::Range(1, kFolds));
  app.add_option("--lr", o.lr, "Adam's learning rate");
  return parse_arguments(app, argc, argv);
}

using Part = std::vector<const Review*>;
/// A fold is tested on a tenth of the sentences; a tenth of the others is held out, to choose the best epoch by.
struct Fold {
  Part train, dev, test;
};
Fold make_fold(const Reviews& reviews, int number) {
  Fold fold;
  const std::vector<int64_t> order =
      randperm(static_cast<int64_t>(reviews.items.size()), {.device = kCPU}).to_vector<int64_t>();
  for (size_t i = 0; i < order.size(); ++i) {
    const int tenth = static_cast<int>(i) % kFolds, next = static_cast<int>(i / kFolds) % kFolds;
    (tenth == number  ? fold.test
     : next == number ? fold.dev
                      : fold.train)
        .push_back(&reviews.items[static_cast<size_t>(order[i])]);
  }
  return fold;
}

struct Batch {
  Ragged words;
  Tensor labels;
};
Batch make_batch(const Part& part, int64_t first, int64_t last) {
  std::vector<int64_t> ids, lengths, labels;
  for (int64_t i = first; i < last; ++i) {
    const Review& review = *part[static_cast<size_t>(i)];
    ids.insert(ids.end(), review.words.begin(), review.words.end());
    lengths.push_back(static_cast<int64_t>(review.words.size())), labels.push_back(review.positive);
  }
  return {{tensor(ids), Lengths::of(lengths)}, tensor(labels)};
}

/// The part of the sentences, in per cent, that the model is right about.
double accuracy(TextCnn& model, const Part& part) {
  NoGrad guard;
  model.eval();
  int64_t right = 0;
  const auto n = static_cast<int64_t>(part.size());
  for (int64_t first = 0; first < n; first += 200) {
    const Batch batch = make_batch(part, first, std::min(first + 200, n));
    right += sum(argmax(model.forward(batch.words), 1) == batch.labels).item<int64_t>();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(n);
}

/// An epoch: the mean of the losses, nothing if it was interrupted.
std::optional<double> train_epoch(TextCnn& model, optim::Optimizer& adam, const Part& part, int64_t batch_size,
                                  const std::atomic<bool>& stop) {
  model.train();
  const std::vector<int64_t> order = randperm(static_cast<int64_t>(part.size()), {.device = kCPU}).to_vector<int64_t>();
  Part shuffled;
  for (const int64_t i : order) shuffled.push_back(part[static_cast<size_t>(i)]);
  const auto n = static_cast<int64_t>(part.size());
  double total = 0;
  for (int64_t first = 0; first < n; first += batch_size) {
    if (stop) return {};
    const Batch batch = make_batch(shuffled, first, std::min(first + batch_size, n));
    adam.zero_grad();
    const Tensor loss = cross_entropy(model.forward(batch.words), batch.labels);
    loss.backward();
    adam.step();
    model.limit_norm();
    total += loss.item<double>() * static_cast<double>(batch.labels.numel());
  }
  return total / static_cast<double>(n);
}

/// Trains and tests one fold: the per cent of test sentences that it is right about, nothing if it was interrupted. It
/// depends on the seed and the fold alone, not on the thread.
std::optional<double> run_fold(const Reviews& reviews, const std::optional<data::WordVectors>& vectors,
                               const Options& o, int number, const std::atomic<bool>& stop) {
  set_default_device(device_of(o));
  manual_seed(o.seed);
  Fold fold = make_fold(reviews, number);
  manual_seed(o.seed + 1000 * static_cast<uint64_t>(number + 1));
  TextCnn model(reviews.words, vectors, o);
  if (!o.load.empty() && number == 0) io::load(model, o.load);
  if (o.evaluate) return accuracy(model, fold.test);
  optim::Adam adam(model.parameters(), {.lr = o.lr});
  Log log(o, 0, "fold" + std::to_string(number + 1));
  Best best;
  for (int epoch = 1; epoch <= o.epochs; ++epoch) {
    const auto loss = train_epoch(model, adam, fold.train, o.batch, stop);
    if (!loss) return {};
    const double dev = accuracy(model, fold.dev);
    log.add({{"train/loss", *loss}, {"dev/accuracy", dev}}, epoch);
    if (best.keep(dev, model.state_dict()))
      std::fprintf(stderr, "fold %d, epoch %d: dev accuracy %.2f %%\n", number + 1, epoch, dev);
  }
  model.load_state_dict(best.state());
  if (number == 0 && !o.save.empty()) save_model(best.state(), o.save);
  return accuracy(model, fold.test);
}

/// The test accuracies of the folds that are done, NaN of the others; a part of checkpoints.
struct Results {
  std::vector<double> accuracies = std::vector<double>(kFolds, std::nan(""));
  StateDict state_dict() const { return {{"accuracies", tensor(accuracies, {.dtype = kFloat64, .device = kCPU})}}; }
  void load_state_dict(const StateDict& dict) {
    const Tensor* const found = find(dict, "accuracies");
    REEL_CHECK(found && found->shape() == Shape{kFolds}, "the checkpoint has no accuracies of ", kFolds, " folds");
    accuracies = found->to_vector<double>();
  }
};

/// Runs the folds that are not done, so many threads at a time. This thread saves what is done, and stops the others.
void run_folds(const Reviews& reviews, const std::optional<data::WordVectors>& vectors, const Options& o,
               Results& results, Checkpoints& checkpoints) {
  std::mutex mutex;  // guards results, error and done
  std::exception_ptr error;
  int done = 0;
  std::vector<int> open;
  for (int fold = 0; fold < o.folds; ++fold)
    if (std::isnan(results.accuracies[static_cast<size_t>(fold)])) open.push_back(fold);
  std::atomic<bool> stop = false;
  std::atomic<size_t> next = 0;
  std::atomic<int> running = o.threads;
  const auto work = [&] {
    for (size_t i; !stop && (i = next++) < open.size();) try {
        const auto accuracy = run_fold(reviews, vectors, o, open[i], stop);
        std::lock_guard lock(mutex);
        if (accuracy) results.accuracies[static_cast<size_t>(open[i])] = *accuracy, ++done;
      } catch (...) {
        std::lock_guard lock(mutex);
        error = std::current_exception(), stop = true;
      }
    --running;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < o.threads; ++t) threads.emplace_back(work);
  try {
    for (int saved = 0; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      std::lock_guard lock(mutex);
      if (done > saved) checkpoints.save(), saved = done;
      checkpoints.step();
    }
  } catch (...) {
    stop = true;
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

void run(Options o) {
  REEL_CHECK(distributed::world_size() == 1, "this sample uses threads (--threads), not processes");
  REEL_CHECK((o.mode == "rand") == o.vectors.empty(), "--mode ", o.mode, o.vectors.empty() ? " needs" : " takes no",
             " --vectors");
  if (o.evaluate) o.folds = 1;
  o.threads = std::min(o.threads, o.folds);
  if (o.threads > 1) set_num_threads(1);
  const Reviews reviews = o.data.empty() ? generate_reviews(2000, o.seed) : read_reviews(o.data);
  std::optional<data::WordVectors> vectors;
  if (!o.vectors.empty()) {
    vectors =
        data::read_word_vectors(o.vectors, {.keep = [&](std::string_view w) { return reviews.words.contains(w); }});
    REEL_CHECK(vectors->words.size() > 1, o.vectors, ": no vectors of the words of the sentences");
  }
  std::printf("data: %s, %zu sentences, %lld words, %lld of them with vectors\n",
              o.data.empty() ? "made-up sentences" : o.data.c_str(), reviews.items.size(),
              static_cast<long long>(reviews.words.size()),
              static_cast<long long>(vectors ? vectors->words.size() : 0));
  Results results;
  Checkpoints checkpoints(o, {{"mode", o.mode}, {"words", std::to_string(reviews.words.size())}});
  checkpoints.add("results", results).resume();
  const auto start = std::chrono::steady_clock::now();
  run_folds(reviews, vectors, o, results, checkpoints);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double total = 0;
  for (int fold = 0; fold < o.folds; ++fold) {
    const double accuracy = results.accuracies[static_cast<size_t>(fold)];
    std::printf("fold %2d: test accuracy %.2f %%\n", fold + 1, accuracy);
    total += accuracy;
  }
  std::fprintf(stderr, "%.0f s\n", took.count());
  std::printf("%s: test accuracy %.2f %%, the mean of %d folds\n", o.mode.c_str(), total / o.folds, o.folds);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("textcnn", [&] { run(options); });
}
