// A Tree-LSTM (Tai et al. 2015) reads trees, one by one or many at once: film reviews, or nested arithmetic that needs
// no files.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataset.h"
#include "listops.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"

using namespace reel;

namespace {

struct Options : CommonOptions {
  int classes = kListOpsClasses;
  int embedding = 32, hidden = 96;
  double dropout = 0;
  bool batched = false;
  double embedding_range = 0.5;
  double embedding_lr = 0.05, weight_decay = 1e-6;
  int min_count = 1;
  bool lower_case = false;
  ListOpsOptions listops;
  Options() { epochs = 16, batch = 25, lr = 0.05; }
};

/// For the Stanford Sentiment Treebank: the setting of Tai et al.
void set_sentiment_defaults(Options& o) {
  o.classes = 5;
  o.embedding = 300, o.hidden = 150, o.dropout = 0.5, o.embedding_range = 0.05;
  o.epochs = 10, o.lr = 0.05, o.embedding_lr = 0.1, o.weight_decay = 1e-4;
  o.min_count = 2, o.lower_case = true;
}

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  // Defaults depend on the data, and --help shows those that hold.
  const auto names_data = [](std::string_view arg) { return arg == "--data" || arg.starts_with("--data="); };
  if (std::any_of(argv + 1, argv + argc, names_data)) set_sentiment_defaults(o);

  CLI::App app(
      "Trains a Tree-LSTM: on the Stanford Sentiment Treebank with --data DIR, without it on generated ListOps (Nangia "
      "& "
      "Bowman 2018): nested MAX, MIN, MED and SUM_MOD of digits, each labelled with its value. The defaults shown hold "
      "for the latter; --data DIR --help shows those for the treebank.");
  add_common_options(app, o, "trees");
  app.add_option("--data", o.data, "folder with train.txt, dev.txt and test.txt, a labelled tree in brackets a line");

  const std::string model = "Model";
  app.add_option("--embedding", o.embedding, "numbers in a word's vector")->group(model)->check(CLI::Range(1, 1000000));
  app.add_option("--hidden", o.hidden, "numbers in a node's state")->group(model)->check(CLI::Range(1, 1000000));
  app.add_option("--embedding-range", o.embedding_range, "word vectors start uniform in ±this")->group(model);
  app.add_option("--dropout", o.dropout, "on the classifier's input")->group(model)->check(CLI::Range(0.0, 1.0));
  app.add_option("--classes", o.classes, "labels are 0 to this - 1")->group(model)->check(CLI::Range(1, 1000000));
  app.add_option("--min-count", o.min_count, "rarer words count as unknown")->group(model);
  app.add_option("--lower-case", o.lower_case, "fold capital letters")->group(model);

  const std::string training = "Training";
  app.add_option("--lr", o.lr, "Adagrad's learning rate")->group(training);
  app.add_option("--embedding-lr", o.embedding_lr, "the same, for word vectors")->group(training);
  app.add_option("--weight-decay", o.weight_decay, "L2 of all but word vectors")->group(training);

  app.add_flag("--batched", o.batched, "run the model for all trees of a step at once (batching::map)")
      ->group(training);

  const std::string listops = "ListOps";
  app.add_option("--train-trees", o.listops.train, "expressions to learn from")->group(listops);
  app.add_option("--dev-trees", o.listops.dev, "expressions to choose the best epoch by")->group(listops);
  app.add_option("--test-trees", o.listops.test, "expressions held out")->group(listops);
  app.add_option("--max-depth", o.listops.max_depth, "how deep operators nest")->group(listops);
  app.add_option("--max-arguments", o.listops.max_arguments, "most arguments of an operator")->group(listops);
  app.add_option("--min-leaves", o.listops.min_leaves, "fewest leaves of an expression")->group(listops);
  app.add_option("--max-leaves", o.listops.max_leaves, "most leaves of an expression")->group(listops);
  app.add_option("--operator-probability", o.listops.operator_probability,
                 "chance that an argument is an expression itself")
      ->group(listops)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--data-seed", o.listops.seed, "seed of the expressions")->group(listops);
  return parse_arguments(app, argc, argv);
}

struct Dataset {
  std::vector<Tree> train, dev, test;
};

/// How many trees are read at the same time.
int64_t at_once(bool batched) { return batched ? batching::MapOptions().window : 1; }

/// How often the model is right, in per cent.
struct Scores {
  double nodes = 0, root = 0;
  double binary = 0;  ///< Of five sentiments: negative or positive, over roots that are either.
};

std::string to_string(const Scores& scores, int64_t classes) {
  char text[96];
  const int n = std::snprintf(text, sizeof text, "nodes %5.2f %%  root %5.2f %%", scores.nodes, scores.root);
  if (classes == 5) std::snprintf(text + n, sizeof text - n, "  binary %5.2f %%", scores.binary);
  return text;
}

Scores evaluate(TreeClassifier& model, const std::vector<Tree>& trees, bool batched) {
  NoGrad guard;
  model.eval();
  int64_t nodes = 0, right_nodes = 0, right_roots = 0, polar = 0, right_polar = 0;
  const auto score = [&](const Tree& tree) {
    const Tensor logits = model(tree);
    const Tensor right = argmax(logits, 1) == tree.labels;
    nodes += right.numel();
    right_nodes += sum(right).item<int64_t>();
    right_roots += right[-1].item<bool>();
    const int label = tree.root().label;
    if (model.out.out_features != 5 || label == 2) return;
    const auto p = softmax(logits[-1], 0).to_vector<float>();
    ++polar;
    right_polar += (p[3] + p[4] > p[0] + p[1]) == (label > 2);
  };
  batching::map(trees, score, {.window = at_once(batched)});
  const auto percent = [](int64_t part, int64_t all) { return all ? 100.0 * part / all : 0; };
  return {percent(right_nodes, nodes), percent(right_roots, trees.size()), percent(right_polar, polar)};
}

/// The rest of an epoch; trees a second.
double train(TreeClassifier& model, optim::Optimizer& optimizer, const std::vector<Tree>& trees, data::Batches& batches,
             bool batched, EpochTotals& totals, Checkpoints& checkpoints) {
  model.train();
  int64_t done = batches.position() * batches.batch_size();
  ProgressBar progress = progress_bar("epoch " + std::to_string(batches.epoch() + 1),
                                      batches.size() * batches.batch_size(), "trees", done);
  for (const std::vector<int64_t>& batch : batches) {
    int64_t nodes = 0;
    const auto loss_of = [&](int64_t i) {
      const Tree& tree = trees[i];
      nodes += tree.labels.numel();
      return cross_entropy(model(tree), tree.labels, kSum);
    };
    const std::vector<Tensor> losses = batching::map(batch, loss_of, {.window = at_once(batched)});
    // One backward pass over the graphs of all trees: the weights' gradients become few large products.
    const Tensor loss = sum(stack(losses));
    optimizer.zero_grad();
    (loss / static_cast<double>(batch.size())).backward();
    optimizer.step();
    totals.add(loss, nodes);
    done += static_cast<int64_t>(batch.size());
    progress.update(done, "loss", [&] { return totals.mean(); });
    checkpoints.step();
  }
  return progress.rate();
}

void print_baseline(const Dataset& data) {
  std::map<int, int64_t> counts;
  for (const Tree& tree : data.train) ++counts[tree.root().label];
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const int usual = std::max_element(counts.begin(), counts.end(), less)->first;
  const auto hits =
      std::count_if(data.test.begin(), data.test.end(), [&](const Tree& tree) { return tree.root().label == usual; });
  std::printf("baseline: always the most frequent label, %d, is right for %.2f %% of the test roots\n", usual,
              100.0 * static_cast<double>(hits) / static_cast<double>(data.test.size()));
}

void run(Options o) {
  manual_seed(o.seed);
  set_default_device(device_of(o));
  const Corpus corpus = o.data.empty() ? generate_listops(o.listops) : read_corpus(o.data);

  // The file of a saved model holds its sizes and its vocabulary.
  StateDict loaded;
  io::Metadata metadata;
  if (!o.load.empty()) {
    loaded = io::load(o.load, &metadata);
    const Tensor *embedding = find(loaded, "embedding.weight"), *out = find(loaded, "out.weight");
    REEL_CHECK(embedding && out && embedding->dim() == 2 && out->dim() == 2 && metadata.contains("vocabulary"), o.load,
               ": this is no model of this program");
    o.embedding = static_cast<int>(embedding->size(1));
    o.classes = static_cast<int>(out->size(0)), o.hidden = static_cast<int>(out->size(1));
    o.lower_case = metadata["lower_case"] == "1";
  }
  const Vocabulary words = o.load.empty() ? collect_words(corpus.train, o.min_count, o.lower_case)
                                          : Vocabulary::from_string(metadata["vocabulary"]);
  metadata = {{"vocabulary", words.to_string()}, {"lower_case", o.lower_case ? "1" : "0"}};

  const EncodeOptions encoding{.classes = o.classes, .lower_case = o.lower_case};
  const Dataset data{encode(corpus.train, words, encoding, "train"), encode(corpus.dev, words, encoding, "dev"),
                     encode(corpus.test, words, encoding, "test")};
  std::printf("data: %s, %zu + %zu + %zu trees to train, choose and test, %lld words\n",
              o.data.empty() ? "ListOps" : o.data.c_str(), data.train.size(), data.dev.size(), data.test.size(),
              static_cast<long long>(words.size()));
  print_baseline(data);

  TreeClassifier model({.words = words.size(),
                        .classes = o.classes,
                        .embedding = o.embedding,
                        .hidden = o.hidden,
                        .dropout = o.dropout});
  nn::init::uniform_(model.embedding.weight, -o.embedding_range, o.embedding_range);
  if (!o.load.empty()) model.load_state_dict(loaded);

  if (!o.evaluate) {
    std::vector<Tensor> weights = model.cell.parameters();
    for (const Tensor& weight : model.out.parameters()) weights.push_back(weight);
    optim::Adagrad adagrad(weights, {.lr = o.lr, .weight_decay = o.weight_decay});
    adagrad.add_param_group(model.embedding.parameters(), {.lr = o.embedding_lr});

    // On several processes each reads its share of the trees, and gradients are the mean over all.
    distributed::DistributedDataParallel ddp(model);
    const auto size = static_cast<int64_t>(data.train.size());
    data::BatchSampler batches(distributed::DistributedSampler(size, {.seed = o.seed}), o.batch);
    if (distributed::rank() > 0) manual_seed(o.seed + distributed::rank());  // dropout of its own
    EpochTotals totals;
    Best best;
    if (!o.load.empty()) best.keep(evaluate(model, data.dev, o.batched).root, model.state_dict());
    Checkpoints checkpoints(o, metadata);
    checkpoints.add("model", model).add("optimizer", adagrad).add("data", batches).add("totals", totals);
    checkpoints.add("best", best).resume();
    Log log(o, batches.epoch());
    while (batches.epoch() < o.epochs) {
      const int64_t epoch = batches.epoch() + 1;
      const double speed = train(model, adagrad, data.train, batches, o.batched, totals, checkpoints);
      totals.collect();
      const Scores dev = evaluate(model, data.dev, o.batched);
      const bool better = best.keep(dev.root, model.state_dict());
      std::printf("epoch %2lld  loss/node %.4f  dev: %s  %5.0f trees/s%s\n", static_cast<long long>(epoch),
                  totals.mean(), to_string(dev, o.classes).c_str(), speed, better ? "  best" : "");
      std::fflush(stdout);
      log.add({{"train/loss", totals.mean()},
               {"dev/root accuracy", dev.root},
               {"dev/node accuracy", dev.nodes},
               {"train/trees per second", speed}},
              epoch);
      if (better && !o.save.empty()) save_model(best.state(), o.save, metadata);
      totals.reset();
      checkpoints.save();
    }
    if (!o.save.empty()) save_model(best.state(), o.save, metadata);  // also if another run has found it
    model.load_state_dict(best.state());
  }
  std::printf("dev:  %s\n", to_string(evaluate(model, data.dev, o.batched), o.classes).c_str());
  std::printf("test: %s\n", to_string(evaluate(model, data.test, o.batched), o.classes).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("treelstm", [&] { run(options); });
}
