#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "reel/reel.h"

struct WordModelOptions {
  bool cbow = false;        ///< Predict a word from all words around it together; else from each (skip-gram).
  std::string loss = "ns";  ///< "ns", "nce" or "hs".
  int64_t size = 100;       ///< Numbers in a vector.
  int64_t window = 5;       ///< At most so many words on each side count; how many is drawn for each position.
  int64_t negatives = 5;    ///< Words of noise for each example.
};

/// Vectors of words that predict their neighbours (Mikolov et al. 2013).
struct WordModel : reel::nn::Module {
  WordModel(const reel::data::Vocabulary& words, const WordModelOptions& o)
      : options(o),
        noise(reel::AliasTable::unigram(words.counts())),
        in(*this, "in", (reel::rand({words.size(), o.size}) - 0.5) / static_cast<double>(o.size)),
        out(*this, "out", reel::zeros({words.size() - (o.loss == "hs"), o.size})),
        // NCE learns the logarithms of probabilities themselves. It starts at those of the words alone.
        bias(*this, "bias", o.loss == "nce" ? log(noise.probabilities()).to(reel::kFloat32) : reel::Tensor()) {
    if (o.loss == "hs") tree.emplace(words.counts());
  }

  const WordModelOptions options;
  const reel::AliasTable noise;
  reel::nn::Parameter in, out, bias;
  std::optional<reel::HuffmanTree> tree;
};

/// Words to predict and what they are predicted from.
struct Examples {
  std::vector<int64_t> inputs, targets;
  std::vector<int64_t> offsets;  ///< CBOW: where the inputs of each target begin.

  void clear() { inputs.clear(), targets.clear(), offsets.clear(); }
  int64_t size() const { return static_cast<int64_t>(targets.size()); }
  /// Those of a sentence.
  void add(std::span<const int64_t> sentence, const WordModelOptions& o, std::minstd_rand& random) {
    const auto n = static_cast<int64_t>(sentence.size());
    for (int64_t at = 0; at < n; ++at) {
      const int64_t reach = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(o.window));
      const int64_t first = std::max<int64_t>(at - reach, 0), last = std::min(at + reach, n - 1);
      if (first == last) continue;
      if (o.cbow) offsets.push_back(static_cast<int64_t>(inputs.size())), targets.push_back(sentence[at]);
      for (int64_t i = first; i <= last; ++i) {
        if (i == at) continue;
        inputs.push_back(sentence[i]);
        if (!o.cbow) targets.push_back(sentence[at]);
      }
    }
  }
};

/// One thread's handles to a model: leaves of its own, with gradients of its own, that share the model's memory
/// (Hogwild, see reel/ops/sampled.h).
class Trainer {
 public:
  explicit Trainer(const WordModel& model)
      : model_(model),
        in_(own(model.in)),
        out_(own(model.out)),
        bias_(model.bias.defined() ? own(model.bias) : reel::Tensor()),
        sgd_(leaves()) {}

  /// A step; returns the sum of the losses.
  double step(const Examples& examples, double lr) {
    sgd_.set_lr(lr);
    sgd_.zero_grad();
    const reel::Tensor loss = loss_of(examples);
    loss.backward();
    sgd_.step();
    return loss.item<double>();
  }

 private:
  static reel::Tensor own(const reel::Tensor& shared) { return shared.detach().requires_grad_(); }
  std::vector<reel::Tensor> leaves() const {
    return bias_.defined() ? std::vector{in_, out_, bias_} : std::vector{in_, out_};
  }
  reel::Tensor loss_of(const Examples& examples) const {
    using namespace reel;
    const Device device = in_.device();
    const auto ids = [&](const std::vector<int64_t>& list) { return tensor(list, {.device = device}); };
    const Tensor inputs = ids(examples.inputs), targets = ids(examples.targets);
    const Tensor hidden = model_.options.cbow
                              ? embedding_bag(in_, inputs, {.offsets = ids(examples.offsets), .sparse = true})
                              : embedding(in_, inputs, true);
    const int64_t k = model_.options.negatives;
    if (model_.tree) return hierarchical_softmax_loss(hidden, out_, {}, *model_.tree, targets, kSum);
    if (bias_.defined()) return nce_loss(hidden, out_, bias_, targets, model_.noise.sample_for_each(targets, k), kSum);
    return negative_sampling_loss(hidden, out_, targets, model_.noise.sample({examples.size(), k}).to(device), kSum);
  }

  const WordModel& model_;
  reel::Tensor in_, out_, bias_;
  reel::optim::SGD sgd_;
};
