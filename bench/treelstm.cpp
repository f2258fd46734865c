// A Tree-LSTM on one thread, tree by tree and many trees at once, and on several threads that share the parameters.
// Only by name, as --workload sweep: over batch sizes, of the treebank's trees and of trees that are all of one shape.
#include <atomic>
#include <barrier>
#include <optional>
#include <span>
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

/// How many trees are read at once, in a batching::map; none: the same function is called for each by itself.
using Batch = std::optional<size_t>;

/// f(results of g) for every `batch` examples, or 25.
template <class G, class F>
void for_each_batch(const std::vector<Example>& examples, Batch batch, G g, F f) {
  const size_t size = batch.value_or(bench::tree::kBatch);
  for (size_t begin = 0; begin < examples.size(); begin += size) {
    const std::span<const Example> some = std::span(examples).subspan(begin, std::min(size, examples.size() - begin));
    std::vector<decltype(g(some[0]))> results;
    if (batch)
      results = batching::map(some, g, {.window = static_cast<int64_t>(size)});
    else
      for (const Example& example : some) results.push_back(g(example));
    f(results);
  }
}

/// One step for every batch; returns the loss a node.
double train_batched(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples,
                     int64_t nodes, Batch batch) {
  double total = 0;
  const auto loss = [&](const Example& example) { return read(model, example, true).loss; };
  for_each_batch(examples, batch, loss, [&](const std::vector<Tensor>& losses) {
    optimizer.zero_grad();
    total += backward(losses, batch.value_or(bench::tree::kBatch));
    optimizer.step();
  });
  return total / static_cast<double>(nodes);
}

int64_t infer_batched(const Model& model, const std::vector<Example>& examples, Batch batch) {
  NoGrad guard;
  int64_t sum = 0;
  const auto answer = [&](const Example& example) {
    return argmax(model.out(read(model, example, false).root), 1).item<int64_t>();
  };
  for_each_batch(examples, batch, answer, [&](const std::vector<int64_t>& classes) {
    for (const int64_t c : classes) sum += c;
  });
  return sum;
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
  const auto run = [&](const std::string& workload, const auto& f, bool equal = false) {
    report.run(workload, [&] {
      bench::Treebank bank = bench::load_trees(options);
      if (equal) bench::equalize(bank);
      const Model model(bank.words);
      f(bank, model, std::vector<Example>(bank.trees.begin(), bank.trees.end()));
    });
  };

  // With each_node, as one first writes it: tree by tree, every node's loss by itself, a step for every 25 trees.
  const auto run_train = [&](const std::string& workload, Batch batch, bool equal = false, bool each_node = false) {
    const auto f = [&](const bench::Treebank& bank, const Model& model, const std::vector<Example>& examples) {
      optim::Adagrad adagrad(model.parameters(), {.lr = bench::tree::kLearningRate});
      const auto pass = [&] {
        return each_node ? train(model, adagrad, examples, bank.nodes())
                         : train_batched(model, adagrad, examples, bank.nodes(), batch);
      };
      const bool known = batch.value_or(bench::tree::kBatch) == bench::tree::kBatch;
      const double loss = pass();
      const std::string more = known ? bench::check_loss(bank, loss) : bench::field("first_pass_loss", loss);
      report.rate(workload, bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s", more);
    };
    run(workload, f, equal);
  };
  const auto run_infer = [&](const std::string& workload, Batch batch, bool equal = false, bool each_node = false) {
    const auto f = [&](const bench::Treebank&, const Model& model, const std::vector<Example>& examples) {
      const auto pass = [&] { each_node ? infer(model, examples) : infer_batched(model, examples, batch); };
      report.rate(workload, bench::measure(pass, options.secs, 1, 3), examples.size(), "trees/s");
    };
    run(workload, f, equal);
  };

  run_train("tree.train.pernode", {}, false, true);
  run_train("tree.train.batched", bench::tree::kBatch);
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
  run_infer("tree.infer.pernode", {}, false, true);
  run_infer("tree.infer.batched", bench::tree::kBatch);
  if (options.workload.starts_with("sweep"))
    for (const bool equal : {false, true}) {
      const std::string trees = equal ? "equal." : "real.";
      run_train("sweep.train." + trees + "eager", {}, equal);
      run_infer("sweep.infer." + trees + "eager", {}, equal);
      for (const size_t batch : {1, 4, 16, 64, 256}) {
        run_train("sweep.train." + trees + std::to_string(batch), batch, equal);
        run_infer("sweep.infer." + trees + std::to_string(batch), batch, equal);
      }
    }
  return report.good() ? 0 : 1;
}
