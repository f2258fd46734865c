#pragma once
// The BiLSTM tagger of bench/tagger_model.h in libtorch.
#include "bench/corpus.h"
#include "bench/libtorch/torch.h"

namespace tagger_model {

using torch::Tensor;
namespace F = torch::nn::functional;

struct BiLSTM {
  int64_t hidden;
  std::vector<Tensor> weights;

  BiLSTM(int64_t input, int64_t hidden) : hidden(hidden) {
    for (uint64_t seed : {10, 20}) {
      weights.push_back(filled({4 * hidden, input}, seed, 0.1f));
      weights.push_back(filled({4 * hidden, hidden}, seed + 1, 0.1f));
      Tensor bias = torch::zeros({4 * hidden});
      bias.narrow(0, hidden, hidden).fill_(1);  // of the forget gate
      weights.push_back(bias.set_requires_grad(true));
      weights.push_back(zeros(4 * hidden));
    }
  }
  Tensor operator()(const Tensor& x, bool train) const {
    const Tensor zero = torch::zeros({2, 1, hidden});
    const auto result = torch::lstm(x.unsqueeze(1), {zero, zero}, weights, /*has_biases=*/true, /*num_layers=*/1,
                                    /*dropout=*/0, train, /*bidirectional=*/true, /*batch_first=*/false);
    return std::get<0>(result).squeeze(1);
  }
};

Tensor look_up(const Tensor& embedding, const Tensor& words) {
  return torch::embedding(embedding, words, -1, false, /*sparse=*/true);
}

/// C++ has no SparseAdam: this is Adam for an embedding's rows that have a gradient.
class RowAdam {
 public:
  RowAdam(const Tensor& weight, double lr)
      : weight_(weight), mean_(torch::zeros_like(weight)), square_(torch::zeros_like(weight)), lr_(lr) {}

  void zero_grad() { weight_.mutable_grad() = Tensor(); }
  void step() {
    torch::NoGradGuard guard;
    const Tensor grad = weight_.grad().coalesce(), rows = grad._indices()[0], g = grad._values();
    ++steps_;
    const Tensor mean = mean_.index_select(0, rows).mul_(kBeta1).add_(g, 1 - kBeta1);
    Tensor square = square_.index_select(0, rows).mul_(kBeta2).addcmul_(g, g, 1 - kBeta2);
    mean_.index_copy_(0, rows, mean);
    square_.index_copy_(0, rows, square);
    const double rate = lr_ * std::sqrt(1 - std::pow(kBeta2, steps_)) / (1 - std::pow(kBeta1, steps_));
    weight_.index_add_(0, rows, mean.div(square.sqrt_().add_(1e-8)), -rate);
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  Tensor weight_, mean_, square_;
  double lr_;
  int64_t steps_ = 0;
};

struct Example {
  std::vector<int64_t> tag_ids;
  Tensor words, tags;
  explicit Example(const bench::Sentence& s)
      : tag_ids(s.tags), words(torch::tensor(s.words, torch::kLong)), tags(torch::tensor(s.tags, torch::kLong)) {}
};

struct Tagger {
  static constexpr int kE = bench::tagger::kEmbedding, kH = bench::tagger::kHidden, kM = bench::tagger::kMlp;
  Tensor embedding, hidden, out;
  BiLSTM lstm{kE, kH};

  Tagger(int words, int tags)
      : embedding(filled({words, kE}, 1, 0.1f)),
        hidden(filled({kM, 2 * kH}, 30, 0.1f)),
        out(filled({tags, kM}, 31, 0.1f)) {}

  Tensor scores(const Example& example, bool train) const {
    return scores_of(lstm(look_up(embedding, example.words), train));
  }
  Tensor scores_of(const Tensor& states) const { return F::linear(torch::tanh(F::linear(states, hidden)), out); }
  Tensor loss(const Example& example) const {
    return F::cross_entropy(scores(example, true), example.tags, F::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
  int64_t first_tag(const Example& example) const { return scores(example, false).argmax(1).data_ptr<int64_t>()[0]; }

  struct Optimizer {
    torch::optim::Adam adam;
    RowAdam rows;
    Optimizer(const Tagger& m)
        : adam(parameters(m), torch::optim::AdamOptions(bench::tagger::kLearningRate)),
          rows(m.embedding, bench::tagger::kLearningRate) {}
    static std::vector<Tensor> parameters(const Tagger& m) {
      std::vector<Tensor> all = m.lstm.weights;
      all.insert(all.end(), {m.hidden, m.out});
      return all;
    }
    void zero_grad() { adam.zero_grad(), rows.zero_grad(); }
    void step() { adam.step(), rows.step(); }
  };
};

}  // namespace tagger_model
