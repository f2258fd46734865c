#pragma once
#include <vector>

#include "reel/nn/container.h"
#include "reel/nn/linear.h"
#include "reel/nn/sequential.h"
#include "reel/ops/sampled.h"

#pragma GCC visibility push(default)
/// Softmax over many classes.
namespace reel::nn {

/// Options of AdaptiveLogSoftmaxWithLoss.
struct AdaptiveLogSoftmaxWithLossOptions {
  double div_value = 4;    ///< Cluster i is scored from in_features / div_value^(i + 1) numbers.
  bool head_bias = false;  ///< Of the first layer.
};

/// The adaptive softmax of Grave et al. 2017. Classes are in the order of their frequency; `cutoffs`, ascending, divide
/// them: those below the first are scored directly, the others by cluster, first the cluster and then the class in it.
/// Parameters are PyTorch's: head.weight, tail.i.0.weight, tail.i.1.weight.
struct AdaptiveLogSoftmaxWithLoss : Layer<AdaptiveLogSoftmaxWithLoss> {
  AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs,
                             AdaptiveLogSoftmaxWithLossOptions options = {});
  AdaptiveLogSoftmaxWithLoss(Module& parent, std::string name, int64_t in_features, int64_t n_classes,
                             std::vector<int64_t> cutoffs, AdaptiveLogSoftmaxWithLossOptions options = {})
      : AdaptiveLogSoftmaxWithLoss(in_features, n_classes, std::move(cutoffs), options) {
    parent.register_module(std::move(name), *this);
  }
  /// What a call returns.
  struct Output {
    Tensor output;  ///< [n]: the log probability of each target
    Tensor loss;    ///< [], the mean of -output
  };
  /// For x [n, in_features] and targets int64 [n].
  Output forward(const Tensor& x, const Tensor& target) const;
  Tensor log_prob(const Tensor& x) const;  ///< Of all classes: [n, n_classes].
  Tensor predict(const Tensor& x) const;   ///< The most probable class: int64 [n].
  void reset_parameters();

  const int64_t in_features, n_classes;
  const std::vector<int64_t> cutoffs;  ///< ends with n_classes
  const int64_t shortlist_size, n_clusters;
  Linear head;
  ModuleList<Sequential> tail;

 private:
  Tensor with_tail(const Tensor& x, const Tensor& head_scores) const;
};

/// Options of HierarchicalSoftmax.
struct HierarchicalSoftmaxOptions {
  bool bias = true;  ///< Whether there is one.
};

/// A softmax over Huffman's tree of the classes with these counts (hierarchical_softmax_loss). weight [classes - 1,
/// in_features] and bias [classes - 1] start uniform in ±1/√in_features.
struct HierarchicalSoftmax : Layer<HierarchicalSoftmax> {
  HierarchicalSoftmax(int64_t in_features, const std::vector<int64_t>& counts, HierarchicalSoftmaxOptions options = {});
  HierarchicalSoftmax(Module& parent, std::string name, int64_t in_features, const std::vector<int64_t>& counts,
                      HierarchicalSoftmaxOptions options = {})
      : HierarchicalSoftmax(in_features, counts, options) {
    parent.register_module(std::move(name), *this);
  }
  /// The loss, for x [n, in_features] and targets int64 [n].
  Tensor forward(const Tensor& x, const Tensor& target, Reduction reduction = kMean) const;
  Tensor log_prob(const Tensor& x) const;  ///< Of all classes: [n, classes].
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in_features;
  const HuffmanTree tree;
  Parameter weight, bias;
};

}  // namespace reel::nn
#pragma GCC visibility pop
