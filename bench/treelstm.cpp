// A Tree-LSTM on one thread and on several that share the parameters.
#include <atomic>
#include <barrier>
#include <thread>

#include "bench/tree_model.h"

using namespace reel;
using namespace tree_model;

namespace {

/// One step for every 25 trees; returns the loss a node.
double train(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples, int64_t nodes) {
  double total = 0;
  for (size_t begin = 0; begin < examples.size(); begin += bench::tree::kBatch) {
    std::vector<Tensor> losses;
    for (size_t i = begin; i < std::min(begin + bench::tree::kBatch, examples.size()); ++i)
      add_losses(model, examples[i], losses);
    optimizer.zero_grad();
    total += backward(losses);
    optimizer.step();
  }
  return total / static_cast<double>(nodes);
}

/// The same on several threads: each takes trees from a common counter, records a graph of its own and runs backward on
/// it; the gradients of the shared parameters are summed.
double train_parallel(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples,
                      int64_t nodes, int threads) {
  std::atomic<size_t> next = 0;
  std::atomic<double> total = 0;
  size_t end = 0;
  const auto next_batch = [&]() noexcept {
    next = end;
    end = std::min(end + bench::tree::kBatch, examples.size());
  };
  next_batch();
  optimizer.zero_grad();
  std::barrier batch_done(threads, [&]() noexcept {
    optimizer.step();
    optimizer.zero_grad();
    next_batch();
  });
  const auto work = [&] {
    for (size_t begin = 0; begin < examples.size(); begin += bench::tree::kBatch) {
      std::vector<Tensor> losses;
      for (size_t i; (i = next++) < end;) add_losses(model, examples[i], losses);
      if (!losses.empty()) total += backward(losses);
      batch_done.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  others.clear();
  return total / static_cast<double>(nodes);
}

int64_t infer(const Model& model, const std::vector<Example>& examples) {
  NoGrad guard;
  int64_t classes = 0;
  for (const Example& example : examples)
    classes += argmax(model.out(states(model, example).back().h), 1).item<int64_t>();
  return classes;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  const auto run = [&](const std::string& workload, const auto& f) {
    report.run(workload, [&] {
      const bench::Treebank bank = bench::load_trees(options);
      const Model model(bank.words);
      f(bank, model, std::vector<Example>(bank.trees.begin(), bank.trees.end()));
    });
  };

  run("tree.train.pernode", [&](const auto& bank, const Model& model, const auto& examples) {
    optim::Adagrad adagrad(model.parameters(), {.lr = bench::tree::kLearningRate});
    const auto pass = [&] { return train(model, adagrad, examples, bank.nodes()); };
    const std::string more = bench::check_loss(bank, pass());
    report.rate("tree.train.pernode", bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s", more);
  });
  if (report.on_gpu())
    report.skip("tree.train.parallel", "its threads would share the one queue of work");
  else
    run("tree.train.parallel", [&](const auto& bank, const Model& model, const auto& examples) {
      const int threads = std::max(2, options.threads);
      report.set_threads(threads);
      optim::Adagrad adagrad(model.parameters(), {.lr = bench::tree::kLearningRate});
      const auto pass = [&] { return train_parallel(model, adagrad, examples, bank.nodes(), threads); };
      const std::string more = bench::check_loss(bank, pass());
      report.rate("tree.train.parallel", bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s", more);
    });
  run("tree.infer.pernode", [&](const auto&, const Model& model, const auto& examples) {
    const auto pass = [&] { infer(model, examples); };
    report.rate("tree.infer.pernode", bench::measure(pass, options.secs, 1, 3), examples.size(), "trees/s");
  });
  return report.good() ? 0 : 1;
}
