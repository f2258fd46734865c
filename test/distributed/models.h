#pragma once
// Models for tests of DistributedDataParallel, and how to compare what comes of them.
#include "reel/distributed/ddp.h"
#include "reel/reel.h"
#include "test/distributed/ranks.h"

namespace reel::distributed::test {

using ranks::on_ranks, ranks::Outcome, ranks::try_ranks;

using Tensors = std::vector<Tensor>;

inline Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& t : tensors) result.push_back(t.defined() ? t.detach().clone() : Tensor());
  return result;
}
inline Tensors grads(const nn::Module& module) {
  Tensors result;
  for (const Tensor& p : module.parameters()) result.push_back(p.grad());
  return copies(result);
}
inline bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (a[i].defined() && !equal(a[i], b[i])) return false;
  }
  return true;
}

/// Two parameters, for losses that reach either.
struct Two : nn::Module {
  nn::Parameter a{*this, "a", ones({2})}, b{*this, "b", ones({3})};
};

/// Models whose loss of example number `i` is a scalar.
struct Mlp : nn::Module {
  nn::Linear a{*this, "a", 6, 8}, b{*this, "b", 8, 3};
  Tensor loss(int i) const {
    manual_seed(100 + static_cast<uint64_t>(i));
    const Tensor x = randn({5, 6});
    return reel::mean(square(b(tanh(a(x)))));
  }
};
struct Recurrent : nn::Module {
  nn::LSTM lstm{*this, "lstm", 4, 5};
  nn::Linear out{*this, "out", 5, 2};
  Tensor loss(int i) const {
    manual_seed(100 + static_cast<uint64_t>(i));
    const Tensor x = randn({4 + i % 3, 4});
    auto [y, state] = lstm(x);
    return reel::mean(square(out(y)));
  }
};
struct Tree : nn::Module {
  nn::Embedding words{*this, "words", 40, 4, {.sparse = true}};
  nn::ChildSumTreeLSTM cell{*this, "cell", 4, 5};
  nn::Linear out{*this, "out", 5, 2};
  CellState node(int depth, int& word) const {
    const Tensor x = words(tensor({word % 40}));
    word = (word * 7 + 3) % 1000;
    if (depth == 0) return cell(x);
    const CellState left = node(depth - 1, word), right = node(word % 2 ? depth - 1 : 0, word);
    return cell(x, {left, right});
  }
  Tensor loss(int i) const {
    int word = i;
    return reel::mean(square(out(node(2 + i % 2, word).h)));
  }
};

constexpr int kSteps = 20;

// One process with the examples of all ranks, whose gradients are settled between their walks: products of two walks
// that are multiplied at once are rounded otherwise.
template <class Model, class Optimizer>
Tensors alone(int ranks, int steps = kSteps) {
  manual_seed(1);
  Model model;
  Optimizer optimizer(model.parameters(), {.lr = 0.0625});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int r = 0; r < ranks; ++r) {
      model.loss(step * ranks + r).backward();
      for (const Tensor& p : model.parameters()) {
        if (!p.sparse_grad()) p.grad();
      }
    }
    for (const Tensor& p : model.parameters()) {
      if (const SparseGrad* rows = p.sparse_grad()) {
        rows->values.detach().div_(ranks);
      } else if (p.grad().defined()) {
        p.grad().div_(ranks);
      }
    }
    optimizer.step();
  }
  return copies(model.parameters());
}

template <class Model, class Optimizer>
Tensors on_rank(int rank, int ranks, DistributedDataParallelOptions options = {}, int steps = kSteps) {
  manual_seed(1 + static_cast<uint64_t>(rank));  // rank 0's parameters win
  Model model;
  DistributedDataParallel ddp(model, options);
  Optimizer optimizer(model.parameters(), {.lr = 0.0625});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model.loss(step * ranks + rank).backward();
    optimizer.step();
  }
  return copies(model.parameters());
}

}  // namespace reel::distributed::test
