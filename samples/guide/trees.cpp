#include "samples/guide/guide.h"

namespace guide_trees {
using namespace reel;

// [tree]
struct Node {
  int64_t word = 0;            // of a leaf
  std::vector<Node> children;  // none or two
};

struct TreeModel : nn::Layer<TreeModel> {
  nn::Embedding words{*this, "words", 100, 8, {.sparse = true}};
  nn::NaryTreeLSTM cell{*this, "cell", 8, 16};  // Tai, Socher & Manning 2015
  nn::Linear out{*this, "out", 16, 2};

  CellState visit(const Node& node) const {
    if (node.children.empty()) return cell(words(tensor({node.word})));
    auto [left, right] = batching::both([&] { return visit(node.children[0]); },  // outside of a map: one by one
                                        [&] { return visit(node.children[1]); });
    return cell({}, {left, right});
  }
  Tensor forward(const Node& root) const { return out(visit(root).h); }  // [1, 2]
};
// [/tree]

Node random_tree(int depth) {
  if (depth == 0 || rand({}).item<float>() < 0.2) return {randint(0, 100, {}).item<int64_t>(), {}};
  return {0, {random_tree(depth - 1), random_tree(depth - 1)}};
}

void run() {
  std::vector<Node> trees;
  for (int i = 0; i < 20; ++i) trees.push_back(random_tree(5));
  const Tensor label = tensor({1});

  // [single]
  TreeModel model;
  optim::Adagrad adagrad(model.parameters(), {.lr = 0.05});
  for (const Node& tree : trees) {  // an update for each tree
    Tensor loss = cross_entropy(model(tree), label);
    adagrad.zero_grad();
    loss.backward();
    adagrad.step();
  }
  // [/single]

  // [map]
  batching::Report report;
  std::vector<Tensor> losses =
      batching::map(trees, [&](const Node& tree) { return cross_entropy(model(tree), label); }, {.report = &report});
  adagrad.zero_grad();
  mean(stack(losses)).backward();  // one update for all of them
  adagrad.step();
  std::cout << report.table();
  // [/map]
  NoGrad guard;
  const std::vector<Tensor> mapped = batching::map(trees, [&](const Node& tree) { return model(tree); });
  for (size_t i = 0; i < trees.size(); ++i) REEL_CHECK(allclose(mapped[i], model(trees[i]), 1e-4, 1e-5), "map differs");
  int64_t calls = 0, groups = 0;
  for (const auto& row : report.rows) calls += row.calls, groups += row.groups;
  REEL_CHECK(groups > 0 && groups * 3 < calls, "little was batched");
}

}  // namespace guide_trees

void trees() { guide_trees::run(); }
