// A neural module network answers questions about scenes: for each question a net of its own, put together from
// modules.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataset.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"
#include "scenes.h"

using namespace reel;

namespace {

struct Options : CommonOptions {
  std::string write;
  bool baseline = false;
  int features = 32, window = 64;
  ScenesOptions scenes;
  Options() { epochs = 20, batch = 64, lr = 3e-3; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Trains a neural module network (Andreas et al. 2016) to answer questions about scenes, which are generated, or "
      "read with --data DIR. A question is a program, such as (count (and (find red) (left (find circle)))).");
  add_common_options(app, o, "questions");
  app.add_option("--data", o.data,
                 "folder with train.npy, the scenes as bytes [n, channels, height, width], train.txt, with a scene's "
                 "number, an answer and a program a line and tabs between, and the same of dev and test");
  app.add_flag("--baseline", o.baseline, "a CNN and an LSTM over the program's words instead of modules");
  app.add_option("--features", o.features, "numbers that describe a cell of a scene")->check(CLI::Range(1, 1000000));
  app.add_option("--window", o.window, "questions that are answered at the same time (batching::map); 1: one by one")
      ->check(CLI::Range(1, 4096));
  app.add_option("--lr", o.lr, "Adam's first learning rate, which falls to a hundredth");

  const std::string scenes = "Scenes";
  app.add_option("--write", o.write, "only write the generated scenes and questions to this folder, for --data")
      ->group(scenes);
  app.add_option("--train-questions", o.scenes.train, "questions to learn from")->group(scenes);
  app.add_option("--dev-questions", o.scenes.dev, "questions to choose the best epoch by")->group(scenes);
  app.add_option("--test-questions", o.scenes.test, "questions held out")->group(scenes);
  app.add_option("--train-depth", o.scenes.train_depth, "of the deepest programs to learn from")->group(scenes);
  app.add_option("--test-depth", o.scenes.test_depth, "of the deepest programs held out")->group(scenes);
  app.add_option("--grid", o.scenes.grid, "rows and columns of a scene")->group(scenes);
  app.add_option("--data-seed", o.scenes.seed, "seed of scenes and questions")->group(scenes);
  return parse_arguments(app, argc, argv);
}

/// Of the questions of each depth, how many there are and how many are answered right.
struct Scores {
  struct Count {
    int64_t right = 0, all = 0;
    double percent() const { return 100.0 * static_cast<double>(right) / static_cast<double>(all); }
  };
  std::map<int, Count> by_depth;
  double loss = 0;  ///< Of all questions.

  void add(int depth, bool right) { ++by_depth[depth].all, by_depth[depth].right += right; }
  double percent() const {
    Count total;
    for (const auto& [depth, count] : by_depth) total.right += count.right, total.all += count.all;
    return total.percent();
  }
  /// `deepest` are the programs of the training set.
  void print(const char* part, int deepest) const {
    std::printf("%s: %.2f %% right\n", part, percent());
    for (const auto& [depth, count] : by_depth)
      std::printf("  depth %2d: %6.2f %% of %lld%s\n", depth, count.percent(), static_cast<long long>(count.all),
                  depth > deepest ? ", deeper than in training" : "");
  }
};

template <class Model>
Scores evaluate(Model& model, const Part& part, int64_t window) {
  NoGrad guard;
  model.eval();
  Scores scores;
  const auto ask = [&](const Question& question) {
    const Tensor answers = model(part.scenes.narrow(0, question.scene, 1), question);
    scores.add(question.program.depth(), (argmax(answers, 1) == question.target).template item<bool>());
    scores.loss += cross_entropy(answers, question.target, kSum).template item<double>();
  };
  batching::map(part.questions, ask, {.window = window});
  return scores;
}

/// The rest of an epoch; questions a second.
template <class Model>
double train(Model& model, optim::Optimizer& adam, const Part& part, data::Batches& batches, int64_t window,
             EpochTotals& totals, Checkpoints& checkpoints) {
  model.train();
  int64_t done = batches.position() * batches.batch_size();
  ProgressBar progress = progress_bar("epoch " + std::to_string(batches.epoch() + 1),
                                      batches.size() * batches.batch_size(), "questions", done);
  for (const std::vector<int64_t>& batch : batches) {
    const auto loss_of = [&](int64_t i) {
      const Question& question = part.questions[static_cast<size_t>(i)];
      return cross_entropy(model(part.scenes.narrow(0, question.scene, 1), question), question.target, kSum);
    };
    // The graphs differ; modules that several questions use are called once for all of them.
    const Tensor loss = sum(stack(batching::map(batch, loss_of, {.window = window})));
    adam.zero_grad();
    (loss / static_cast<double>(batch.size())).backward();
    adam.step();
    totals.add(loss, static_cast<int64_t>(batch.size()));
    done += static_cast<int64_t>(batch.size());
    progress.update(done, "loss", [&] { return totals.mean(); });
    checkpoints.step();
  }
  return progress.rate();
}

/// The most frequent answer to each kind of question.
void print_baseline(const Corpus& corpus) {
  const auto kind = [](const Question& question) { return question.program.names()[0]; };
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const Question& question : corpus.train.questions) ++counts[kind(question)][question.answer];
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  Scores scores;
  for (const Question& question : corpus.test.questions) {
    const auto& answers = counts[kind(question)];
    scores.add(0, std::max_element(answers.begin(), answers.end(), less)->first == question.answer);
  }
  std::printf("baseline: always the most frequent answer to a kind of question is right for %.2f %% of the test set\n",
              scores.percent());
}

template <class Model>
void run(const Options& o) {
  manual_seed(o.seed);
  set_default_device(device_of(o));
  Corpus corpus = o.data.empty() ? generate_scenes(o.scenes) : read_corpus(o.data);
  if (!o.write.empty()) return write_corpus(corpus, o.write);

  // The file of a saved model holds the names of its modules.
  StateDict loaded;
  io::Metadata metadata;
  if (!o.load.empty()) loaded = io::load(o.load, &metadata);
  const Words words = o.load.empty() ? Words(corpus.train.questions) : Words(metadata);
  int deepest = 0;
  for (const Question& question : corpus.train.questions) deepest = std::max(deepest, question.program.depth());
  std::printf("data: %s, %zu + %zu + %zu questions to train, choose and test, %lld answers\n",
              o.data.empty() ? "generated scenes" : o.data.c_str(), corpus.train.questions.size(),
              corpus.dev.questions.size(), corpus.test.questions.size(), static_cast<long long>(words.answers.size()));
  print_baseline(corpus);
  for (auto [name, part] : {std::pair("train", &corpus.train), {"dev", &corpus.dev}, {"test", &corpus.test}}) {
    words.encode(part->questions, name);
    part->scenes = part->scenes.to(device_of(o));
  }

  Model model(words, corpus.train.scenes.shape(), o.features);
  if (!o.load.empty()) model.load_state_dict(loaded);
  if (!o.evaluate) {
    optim::Adam adam(model.parameters(), {.lr = o.lr});
    optim::CosineAnnealingLR schedule(adam, {.T_max = o.epochs, .eta_min = o.lr / 100});
    // On several processes each reads its share of the questions, and gradients are the mean over all.
    distributed::DistributedDataParallel ddp(model);
    const auto size = static_cast<int64_t>(corpus.train.questions.size());
    data::BatchSampler batches(distributed::DistributedSampler(size, {.seed = o.seed}), o.batch);
    EpochTotals totals;
    Best best;
    if (!o.load.empty()) best.keep(-evaluate(model, corpus.dev, o.window).loss, model.state_dict());
    Checkpoints checkpoints(o, words.metadata());
    checkpoints.add("model", model).add("optimizer", adam).add("schedule", schedule).add("data", batches);
    checkpoints.add("totals", totals).add("best", best).resume();
    Log log(o, batches.epoch());
    while (batches.epoch() < o.epochs) {
      const int64_t epoch = batches.epoch() + 1;
      const double speed = train(model, adam, corpus.train, batches, o.window, totals, checkpoints);
      schedule.step();
      totals.collect();
      // By the loss, which still falls when all answers are right.
      const Scores dev = evaluate(model, corpus.dev, o.window);
      const bool better = best.keep(-dev.loss, model.state_dict());
      std::printf("epoch %2lld  loss/question %.4f  dev: %.2f %%  %5.0f questions/s%s\n", static_cast<long long>(epoch),
                  totals.mean(), dev.percent(), speed, better ? "  best" : "");
      std::fflush(stdout);
      log.add({{"train/loss", totals.mean()}, {"dev/accuracy", dev.percent()}, {"train/questions per second", speed}},
              epoch);
      if (better && !o.save.empty()) save_model(best.state(), o.save, words.metadata());
      totals.reset();
      checkpoints.save();
    }
    if (!o.save.empty()) save_model(best.state(), o.save, words.metadata());  // also if another run has found it
    model.load_state_dict(best.state());
  }
  evaluate(model, corpus.dev, o.window).print("dev", deepest);
  evaluate(model, corpus.test, o.window).print("test", deepest);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("modules", [&] { options.baseline ? run<CnnLstm>(options) : run<ModuleNet>(options); });
}
