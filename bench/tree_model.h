#pragma once
// The constituency Tree-LSTM of Tai et al. 2015, every node by itself, as one first writes it: what bench/treelstm.cpp
// and bench/distributed.cpp train.
#include "bench/corpus.h"
#include "bench/reel.h"

namespace tree_model {

using namespace reel;

struct Model : nn::Module {
  nn::Embedding embedding;
  nn::NaryTreeLSTM cell{*this, "cell", bench::tree::kEmbedding, bench::tree::kHidden};
  nn::Linear out{*this, "out", bench::tree::kHidden, bench::tree::kClasses};

  explicit Model(int words) : embedding(*this, "embedding", words, bench::tree::kEmbedding, {.sparse = true}) {
    uint64_t seed = 1;
    for (const Tensor& weight : std::vector<Tensor>{embedding.weight, cell.weight_x, cell.weight_h, out.weight})
      fill(weight, seed++, 0.05f);
    zero({cell.bias_x, cell.bias_h, out.bias});
  }
};

/// A tree with its words and labels as tensors, one a node, and all labels in one.
struct Example {
  const bench::Tree* tree;
  std::vector<Tensor> words, labels;
  Tensor all_labels;

  explicit Example(const bench::Tree& t) : tree(&t) {
    for (int i = 0; i < t.size(); ++i) {
      words.push_back(t.left[i] < 0 ? tensor({t.word[i]}) : Tensor());
      labels.push_back(tensor({t.label[i]}));
    }
    all_labels = tensor(std::vector<int64_t>(t.label.begin(), t.label.end()));
  }
};

/// The states of a tree's nodes.
inline std::vector<CellState> states(const Model& model, const Example& example) {
  const bench::Tree& tree = *example.tree;
  std::vector<CellState> states(tree.size());
  for (int i = 0; i < tree.size(); ++i)
    states[i] = tree.left[i] < 0 ? model.cell(model.embedding(example.words[i]))
                                 : model.cell({}, {states[tree.left[i]], states[tree.right[i]]});
  return states;
}

/// The losses of a tree's nodes, behind those of others.
inline void add_losses(const Model& model, const Example& example, std::vector<Tensor>& losses) {
  const std::vector<CellState> tree = states(model, example);
  for (size_t i = 0; i < tree.size(); ++i)
    losses.push_back(cross_entropy(model.out(tree[i].h), example.labels[i], kSum));
}

/// The state of a node, and the h of all nodes below it. In a batching::map both children are visited at the same time.
inline CellState visit(const Model& model, const Example& example, size_t node, std::vector<Tensor>& h) {
  const bench::Tree& tree = *example.tree;
  const auto child = [&](const std::vector<int>& of) {
    return [&, at = static_cast<size_t>(of[node])] { return visit(model, example, at, h); };
  };
  CellState state;
  if (tree.left[node] < 0) {
    state = model.cell(model.embedding(example.words[node]));
  } else {
    auto [left, right] = batching::both(child(tree.left), child(tree.right));
    state = model.cell({}, {left, right});
  }
  h[node] = state.h;
  return state;
}

/// The state of the root, and the loss of all nodes if it is wanted.
struct Read {
  Tensor root, loss;
};
inline Read read(const Model& model, const Example& example, bool loss) {
  std::vector<Tensor> h(static_cast<size_t>(example.tree->size()));
  const CellState root = visit(model, example, h.size() - 1, h);
  return {root.h, loss ? cross_entropy(model.out(cat(h)), example.all_labels, kSum) : Tensor()};
}

inline double backward(const std::vector<Tensor>& losses, size_t trees = bench::tree::kBatch) {
  const Tensor loss = sum(stack(losses));
  (loss / static_cast<double>(trees)).backward();
  return loss.item<double>();
}

}  // namespace tree_model
