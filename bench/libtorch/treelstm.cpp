// The Tree-LSTM of bench/treelstm.cpp in libtorch. Two things are done as libtorch likes them best: the words of a tree
// are looked up together, and each tree is walked back by itself.
#include <atomic>
#include <thread>

#include "bench/corpus.h"
#include "bench/libtorch/torch.h"

using torch::Tensor;
namespace F = torch::nn::functional;

namespace {

struct State {
  Tensor h, c;
};

struct Model {
  static constexpr int kE = bench::tree::kEmbedding, kH = bench::tree::kHidden, kC = bench::tree::kClasses;
  Tensor embedding, weight_x, weight_h, out;
  Tensor bias_x = zeros(3 * kH), bias_h = zeros(5 * kH), out_bias = zeros(kC);

  explicit Model(int words)
      : embedding(filled({words, kE}, 1, 0.05f)),
        weight_x(filled({3 * kH, kE}, 2, 0.05f)),
        weight_h(filled({5 * kH, 2 * kH}, 3, 0.05f)),
        out(filled({kC, kH}, 4, 0.05f)) {}

  std::vector<Tensor> parameters() const { return {embedding, weight_x, bias_x, weight_h, bias_h, out, out_bias}; }

  State leaf(const Tensor& x) const {
    const auto gates = F::linear(x, weight_x, bias_x).chunk(3, 1);
    const Tensor c = torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
    return {torch::sigmoid(gates[1]) * torch::tanh(c), c};
  }
  State inner(const State& left, const State& right) const {
    const auto gates = F::linear(torch::cat({left.h, right.h}, 1), weight_h, bias_h).chunk(5, 1);
    const Tensor c = torch::sigmoid(gates[0]) * torch::tanh(gates[4]) + torch::sigmoid(gates[1]) * left.c +
                     torch::sigmoid(gates[2]) * right.c;
    return {torch::sigmoid(gates[3]) * torch::tanh(c), c};
  }
  Tensor classify(const State& state) const { return F::linear(state.h, out, out_bias); }
};

struct Example {
  const bench::Tree* tree;
  Tensor words;                // of the leaves
  std::vector<Tensor> labels;  // of all nodes

  explicit Example(const bench::Tree& t) : tree(&t) {
    std::vector<int64_t> ids;
    for (int i = 0; i < t.size(); ++i)
      if (t.left[i] < 0) ids.push_back(t.word[i]);
    words = torch::tensor(ids, torch::kLong);
    labels = torch::tensor(std::vector<int64_t>(t.label.begin(), t.label.end()), torch::kLong).split(1);
  }
};

std::vector<State> states(const Model& model, const Example& example) {
  const bench::Tree& tree = *example.tree;
  const auto words = torch::embedding(model.embedding, example.words, -1, false, /*sparse=*/true).split(1);
  std::vector<State> states(tree.size());
  size_t word = 0;
  for (int i = 0; i < tree.size(); ++i)
    states[i] = tree.left[i] < 0 ? model.leaf(words[word++]) : model.inner(states[tree.left[i]], states[tree.right[i]]);
  return states;
}

/// Walks one tree back; returns the sum of its losses.
double backward(const Model& model, const Example& example) {
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum);
  const auto tree = states(model, example);
  std::vector<Tensor> losses;
  for (size_t i = 0; i < tree.size(); ++i)
    losses.push_back(F::cross_entropy(model.classify(tree[i]), example.labels[i], options));
  const Tensor loss = torch::stack(losses).sum();
  (loss / bench::tree::kBatch).backward();
  return loss.item<double>();
}

/// One step for every 25 trees, which several threads share; returns the loss a node.
double train(const Model& model, torch::optim::Optimizer& optimizer, const std::vector<Example>& examples,
             int64_t nodes, int threads) {
  std::vector<double> totals(threads);
  for (size_t begin = 0; begin < examples.size(); begin += bench::tree::kBatch) {
    const size_t end = std::min(begin + bench::tree::kBatch, examples.size());
    std::atomic<size_t> next{begin};
    const auto work = [&](int thread) {
      for (size_t i; (i = next++) < end;) totals[thread] += backward(model, examples[i]);
    };
    optimizer.zero_grad();
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    optimizer.step();
  }
  double total = 0;
  for (double t : totals) total += t;
  return total / static_cast<double>(nodes);
}

int64_t infer(const Model& model, const std::vector<Example>& examples) {
  torch::InferenceMode guard;
  int64_t classes = 0;
  for (const Example& example : examples)
    classes += model.classify(states(model, example).back()).argmax(1).item<int64_t>();
  return classes;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  TorchReport report(options);
  const auto run = [&](const std::string& workload, const auto& f) {
    return report.run(workload, [&] {
      const bench::Treebank bank = bench::load_trees(options);
      const Model model(bank.words);
      f(bank, model, std::vector<Example>(bank.trees.begin(), bank.trees.end()));
    });
  };

  const auto train_on = [&](const std::string& name, int threads) {
    run(name, [&](const auto& bank, const Model& model, const auto& examples) {
      torch::optim::Adagrad adagrad(model.parameters(), torch::optim::AdagradOptions(bench::tree::kLearningRate));
      const auto pass = [&] { return train(model, adagrad, examples, bank.nodes(), threads); };
      const std::string more = bench::check_loss(bank, pass());
      if (threads > 1) report.set_threads(threads);
      report.rate(name, bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s", more);
    });
  };
  train_on("tree.train.pernode", 1);
  train_on("tree.train.parallel", std::max(2, options.threads));
  run("tree.infer.pernode", [&](const auto&, const Model& model, const auto& examples) {
    const auto pass = [&] { infer(model, examples); };
    report.rate("tree.infer.pernode", bench::measure(pass, options.secs, 1, 3), examples.size(), "trees/s");
  });
  return report.good() ? 0 : 1;
}
