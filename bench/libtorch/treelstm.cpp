// The Tree-LSTM of bench/treelstm.cpp in libtorch. Two things are done as libtorch likes them best: the words of a tree
// are looked up together, and each tree is walked back by itself.
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

  static Tensor zeros(int n) { return torch::zeros({n}).set_requires_grad(true); }
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

double train(const Model& model, torch::optim::Optimizer& optimizer, const std::vector<Example>& examples,
             int64_t nodes) {
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum);
  double total = 0;
  for (size_t begin = 0; begin < examples.size(); begin += bench::tree::kBatch) {
    optimizer.zero_grad();
    for (size_t i = begin; i < std::min(begin + bench::tree::kBatch, examples.size()); ++i) {
      const auto tree = states(model, examples[i]);
      std::vector<Tensor> losses;
      for (size_t k = 0; k < tree.size(); ++k)
        losses.push_back(F::cross_entropy(model.classify(tree[k]), examples[i].labels[k], options));
      const Tensor loss = torch::stack(losses).sum();
      (loss / bench::tree::kBatch).backward();
      total += loss.item<double>();
    }
    optimizer.step();
  }
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
  bench::Report report = torch_report(options);
  const auto run = [&](const std::string& workload, const auto& f) {
    return report.run(workload, [&] {
      use_threads(options);
      const bench::Treebank bank = bench::load_trees(options);
      const Model model(bank.words);
      f(bank, model, std::vector<Example>(bank.trees.begin(), bank.trees.end()));
    });
  };

  run("tree.train.pernode", [&](const auto& bank, const Model& model, const auto& examples) {
    torch::optim::Adagrad adagrad(model.parameters(), torch::optim::AdagradOptions(bench::tree::kLearningRate));
    const double loss = train(model, adagrad, examples, bank.nodes());
    const std::string more = bench::check_first_pass(bank, loss);
    const auto pass = [&] { train(model, adagrad, examples, bank.nodes()); };
    report.rate("tree.train.pernode", bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s", more);
  });
  const bool good = run("tree.infer.pernode", [&](const auto&, const Model& model, const auto& examples) {
    const auto pass = [&] { infer(model, examples); };
    report.rate("tree.infer.pernode", bench::measure(pass, options.secs, 1, 3), examples.size(), "trees/s");
  });
  return good ? 0 : 1;
}
