#pragma once
#include <vector>

#include "dataset.h"
#include "reel/nn.h"

struct ModelOptions {
  int64_t words = 0, classes = 5;
  int64_t embedding = 300, hidden = 150;
  double dropout = 0.5;
};

/// The constituency Tree-LSTM of Tai, Socher & Manning 2015 (section 3.2, N = 2): words enter at the leaves, a state is
/// composed for each node from the states of its two children, and every labelled node is classified by its state.
struct TreeClassifier : reel::nn::Layer<TreeClassifier> {
  explicit TreeClassifier(const ModelOptions& options)
      : embedding(*this, "embedding", options.words, options.embedding, {.sparse = true}),
        cell(*this, "cell", options.embedding, options.hidden),
        dropout(*this, "dropout", options.dropout),
        out(*this, "out", options.hidden, options.classes) {}

  /// The logits [labelled nodes, classes] of one tree, in the order of tree.labels: the root last.
  reel::Tensor forward(const Tree& tree) const {
    std::vector<reel::Tensor> states;
    visit(tree, tree.root(), states);
    return out(dropout(reel::cat(states)));
  }

  reel::nn::Embedding embedding;
  reel::nn::NaryTreeLSTM cell;
  reel::nn::Dropout dropout;
  reel::nn::Linear out;

 private:
  reel::CellState visit(const Tree& tree, const Tree::Node& node, std::vector<reel::Tensor>& states) const {
    const reel::CellState state = node.is_leaf() ? cell(embedding(reel::tensor({node.word})))
                                                 : cell({}, {visit(tree, tree.nodes[node.left], states),  //
                                                             visit(tree, tree.nodes[node.right], states)});
    if (node.label != Tree::kUnlabelled) states.push_back(state.h);
    return state;
  }
};
