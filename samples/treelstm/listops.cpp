#include "listops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <unordered_set>

#include "reel/error.h"

namespace {

constexpr std::array kOperators{"[MAX", "[MIN", "[MED", "[SM"};

int apply(int op, std::vector<int> arguments) {
  std::sort(arguments.begin(), arguments.end());
  const size_t n = arguments.size();
  switch (op) {
    case 0: return arguments.back();
    case 1: return arguments.front();
    case 2: return (arguments[(n - 1) / 2] + arguments[n / 2]) / 2;
    default: return std::accumulate(arguments.begin(), arguments.end(), 0) % 10;
  }
}

class Generator {
 public:
  explicit Generator(const ListOpsOptions& options) : options_(options), random_(options.seed) {}

  reel::data::Tree tree() {
    constexpr int kTries = 100000;
    for (int i = 0; i < kTries; ++i) {
      tree_ = {};
      expression(options_.max_depth);
      if (leaves() >= options_.min_leaves && leaves() <= options_.max_leaves) return std::move(tree_);
    }
    reel::detail::fail("ListOps: of ", kTries, " random trees none has between ", options_.min_leaves, " and ",
                       options_.max_leaves, " leaves");
  }

 private:
  // Each of these appends a subtree and returns its value; its root is then the last node.
  int expression(int depth) {
    const int op = below(4), count = 2 + below(options_.max_arguments - 1);
    leaf("-", kOperators[op]);
    std::vector<int> arguments;
    for (int i = 0; i < count; ++i) {
      const int32_t open = last();
      arguments.push_back(argument(depth - 1));
      join(open, "-");
    }
    const int32_t open = last();
    leaf("-", "]");
    const int value = apply(op, arguments);
    join(open, std::to_string(value));
    return value;
  }
  int argument(int depth) {
    // A tree that is too large already will be thrown away: no need to let it grow.
    if (depth > 0 && leaves() < options_.max_leaves && chance() < options_.operator_probability)
      return expression(depth);
    const int digit = below(10);
    leaf(std::to_string(digit), std::to_string(digit));
    return digit;
  }

  // The standard's distributions would give other numbers in other libraries.
  double chance() { return std::ldexp(static_cast<double>(random_()), -64); }
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int32_t last() const { return static_cast<int32_t>(tree_.nodes.size()) - 1; }
  int leaves() const { return static_cast<int>(tree_.nodes.size() + 1) / 2; }
  void leaf(std::string label, std::string word) { tree_.nodes.push_back({std::move(label), std::move(word)}); }
  // The parent of the node `left` and of the last one.
  void join(int32_t left, std::string label) {
    const auto first = static_cast<int32_t>(tree_.child_ids.size());
    tree_.child_ids.insert(tree_.child_ids.end(), {left, last()});
    tree_.nodes.push_back({std::move(label), {}, first, 2});
  }

  const ListOpsOptions& options_;
  std::mt19937_64 random_;
  reel::data::Tree tree_;
};

}  // namespace

Corpus generate_listops(const ListOpsOptions& options) {
  REEL_CHECK(options.train > 0 && options.dev > 0 && options.test > 0, "ListOps: every part needs a tree");
  REEL_CHECK(options.max_depth >= 1 && options.max_depth <= 50, "ListOps: the depth must be between 1 and 50, got ",
             options.max_depth);
  REEL_CHECK(options.max_arguments >= 2, "ListOps: an operator has at least 2 arguments, the limit is ",
             options.max_arguments);

  Generator generator(options);
  std::unordered_set<std::string> seen;
  Corpus corpus;
  const auto fill = [&](std::vector<reel::data::Tree>& part, int count) {
    int rejected = 0;
    while (static_cast<int>(part.size()) < count) {
      auto tree = generator.tree();
      if (seen.insert(tree.to_string()).second)
        part.push_back(std::move(tree));
      else
        REEL_CHECK(++rejected < 100 * count, "ListOps: the bounds do not allow for ", count, " different trees");
    }
  };
  // The training trees come last, so that their number does not change what is held out.
  fill(corpus.test, options.test);
  fill(corpus.dev, options.dev);
  fill(corpus.train, options.train);
  return corpus;
}
