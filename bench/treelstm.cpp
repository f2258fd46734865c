// The constituency Tree-LSTM of Tai et al. 2015 on one thread, every node by itself, as one first writes it.
#include "bench/bench.h"
#include "reel/reel.h"

using namespace reel;

namespace {

struct Model : nn::Module {
  nn::Embedding embedding;
  nn::NaryTreeLSTM cell{*this, "cell", bench::tree::kEmbedding, bench::tree::kHidden};
  nn::Linear out{*this, "out", bench::tree::kHidden, bench::tree::kClasses};

  explicit Model(int words) : embedding(*this, "embedding", words, bench::tree::kEmbedding, {.sparse = true}) {
    NoGrad guard;
    uint64_t seed = 1;
    for (Tensor weight : {embedding.weight, cell.weight_x, cell.weight_h, out.weight})
      weight.copy_(from(bench::filled(weight.numel(), seed++, 0.05f), weight.shape()));
    for (Tensor bias : {cell.bias_x, cell.bias_h, out.bias}) bias.zero_();
  }
};

/// A tree with its words and labels as tensors, one a node.
struct Example {
  const bench::Tree* tree;
  std::vector<Tensor> words, labels;

  explicit Example(const bench::Tree& t) : tree(&t) {
    for (int i = 0; i < t.size(); ++i) {
      words.push_back(t.left[i] < 0 ? from({t.word[i]}) : Tensor());
      labels.push_back(from({t.label[i]}));
    }
  }
};

/// The states of a tree's nodes.
std::vector<CellState> states(const Model& model, const Example& example) {
  const bench::Tree& tree = *example.tree;
  std::vector<CellState> states(tree.size());
  for (int i = 0; i < tree.size(); ++i)
    states[i] = tree.left[i] < 0 ? model.cell(model.embedding(example.words[i]))
                                 : model.cell({}, {states[tree.left[i]], states[tree.right[i]]});
  return states;
}

/// One step for every 25 trees; returns the loss a node.
double train(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples, int64_t nodes) {
  double total = 0;
  for (size_t begin = 0; begin < examples.size(); begin += bench::tree::kBatch) {
    std::vector<Tensor> losses;
    for (size_t i = begin; i < std::min(begin + bench::tree::kBatch, examples.size()); ++i) {
      const std::vector<CellState> tree = states(model, examples[i]);
      for (size_t k = 0; k < tree.size(); ++k)
        losses.push_back(cross_entropy(model.out(tree[k].h), examples[i].labels[k], kSum));
    }
    const Tensor loss = sum(stack(losses));
    optimizer.zero_grad();
    (loss / bench::tree::kBatch).backward();
    optimizer.step();
    total += loss.item<double>();
  }
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
  if (options.threads != 1) return std::fprintf(stderr, "reel computes in the calling thread: --threads 1\n"), 2;
  bench::Report report("reel", options);
  const auto with_model = [&](const auto& f) {
    return [&options, f] {
      const bench::Treebank bank = bench::load_trees(options);
      const Model model(bank.words);
      f(bank, model, std::vector<Example>(bank.trees.begin(), bank.trees.end()));
    };
  };

  report.run("tree.train.pernode", with_model([&](const auto& bank, const Model& model, const auto& examples) {
               optim::Adagrad adagrad(model.parameters(), {.lr = bench::tree::kLearningRate});
               const double loss = train(model, adagrad, examples, bank.nodes());
               const std::string more = bench::check_first_pass(bank, loss);
               const auto pass = [&] { train(model, adagrad, examples, bank.nodes()); };
               report.rate("tree.train.pernode", bench::measure(pass, options.secs, 0, 3), examples.size(), "trees/s",
                           more);
             }));
  const bool good = report.run(
      "tree.infer.pernode", with_model([&](const auto&, const Model& model, const auto& examples) {
        const auto pass = [&] { infer(model, examples); };
        report.rate("tree.infer.pernode", bench::measure(pass, options.secs, 1, 3), examples.size(), "trees/s");
      }));
  return good ? 0 : 1;
}
