#pragma once
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Losses over many classes: sampled and hierarchical softmax.
///
/// All of them score a vector `hidden` [n, d] against rows of `weight` [classes, d], plus `bias` [classes] (or
/// undefined), of only some classes. Gradients of weight and bias are sparse where these are leaves: an optimizer
/// updates only the rows used. Where each vector has classes of its own, for negative_sampling_loss, nce_loss and
/// hierarchical_softmax_loss in float32 or float64, one kernel reads the rows where they are: no [n, classes, d] is
/// made, forward or backward.
///
/// Hogwild (Recht et al. 2011): threads may train one model without locks, each on its own examples, if a step touches
/// few rows. Each thread makes leaves of its own, which share the matrices' memory, and an optimizer for them:
///
///   Tensor in = shared_in.detach().requires_grad_(), out = shared_out.detach().requires_grad_();
///   optim::SGD sgd({in, out}, {.lr = 0.025});
///   for (…) sgd.zero_grad(), loss(in, out, …).backward(), sgd.step();
///
/// Gradients, tapes and states are the threads' own; elements of the matrices, and nothing else, are read and written
/// at the same time. An update may be lost, and results differ from run to run. In the terms of C++ that is a data
/// race; it is harmless where a float is read and written whole, as on all processors that reel is built for. A thread
/// sanitizer reports it unless TSAN_OPTIONS names a file of suppressions with a line "race:NAME" for the function that
/// the threads run. Use SGD, or another optimizer that updates rows only and has no state.
namespace reel {

// ---- drawing classes ------------------------------------------------------------------------------------------------

/// k classes drawn for a loss, with the log of the expected number of times that a class occurs among the k.
struct SampledClasses {
  Tensor ids;                  ///< int64: [k] shared by all rows, or each row's own [n, k].
  Tensor log_expected;         ///< Of the drawn classes, of ids' shape.
  Tensor target_log_expected;  ///< Of the targets [n].
};

/// Draws from a discrete distribution, each number in constant time (Walker 1977; the table after Vose 1991).
class AliasTable {
 public:
  /// Class i is drawn with probability weights[i] / Σ weights; none is negative, not all are 0.
  explicit AliasTable(const std::vector<double>& weights);
  /// Counts to the power of 3/4: the noise of word2vec (Mikolov et al. 2013).
  static AliasTable unigram(const std::vector<int64_t>& counts, double power = 0.75);
  /// log((i + 2) / (i + 1)): Zipf's law, for classes in the order of their frequency.
  static AliasTable log_uniform(int64_t classes);

  int64_t size() const;                                           ///< The number of classes.
  const Tensor& probabilities() const { return probabilities_; }  ///< float64 [size]
  Tensor sample(const Shape& shape) const;                        ///< int64, from the thread's generator (random.h)
  /// `count` classes for all rows of targets (int64 [n]) together. With `distinct`, classes are drawn until there are
  /// enough different ones, and the expected count of a class is the probability that it is among as many draws
  /// (TensorFlow's `unique`).
  SampledClasses sample_for(const Tensor& targets, int64_t count, bool distinct = false) const;
  /// `count` classes for each row of its own; one may be drawn more than once.
  SampledClasses sample_for_each(const Tensor& targets, int64_t count) const;

 private:
  Tensor probabilities_, threshold_, alias_;
};

// ---- losses ---------------------------------------------------------------------------------------------------------

/// Negative sampling (Mikolov et al. 2013): -log σ(s[target]) - Σ log σ(-s[negative]), with negatives, int64, for each
/// row [n, k] or shared [k]. Skip-gram is
///   negative_sampling_loss(embedding(in, centers, true), out, contexts, noise.sample({n, 5})).
Tensor negative_sampling_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                              const Tensor& negatives, Reduction reduction = kMean);

/// Noise-contrastive estimation (Gutmann & Hyvärinen 2010; Mnih & Teh 2012): logistic regression that
/// distinguishes the target from the samples, on s - log expected count.
Tensor nce_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                const SampledClasses& samples, Reduction reduction = kMean);

/// Of sampled_softmax_loss.
struct SampledSoftmaxOptions {
  /// A sample that equals the row's target is left out. That is for distinct samples; where a class may be drawn more
  /// than once, false makes the estimate consistent.
  bool remove_accidental_hits = true;
  Reduction reduction = kMean;  ///< Over the rows.
};
/// Cross entropy over the target and the samples, on s - log expected count (Bengio & Senécal 2008; Jean et al. 2015).
Tensor sampled_softmax_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const SampledClasses& samples, const SampledSoftmaxOptions& options = {});

// ---- hierarchical softmax -------------------------------------------------------------------------------------------

/// Huffman's tree over classes: frequent ones are near its root. The classes are leaves; inner node i of classes - 1,
/// the root last, decides by row i of a weight. The path to class c is entries offsets[c] … offsets[c + 1] of the
/// lists.
struct HuffmanTree {
  explicit HuffmanTree(const std::vector<int64_t>& counts);  ///< At least 2 classes, none negative.
  int64_t classes;                                           ///< The number of leaves.
  Tensor offsets;                                            ///< int64 [classes + 1]
  Tensor nodes;                                              ///< int64: inner nodes, from the root
  Tensor bits;                                               ///< bool: the branch taken at each node
  Tensor owners;                                             ///< int64: the class that each entry's path belongs to
};

/// -log p(target) = Σ softplus(∓ s) over the path to the target, a bit being true with probability σ(s), for s = hidden
/// · weight[node] + bias[node] (Morin & Bengio 2005). weight [classes - 1, d], bias [classes - 1] or undefined.
Tensor hierarchical_softmax_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                 const HuffmanTree& tree, const Tensor& targets, Reduction reduction = kMean);
/// log p of every class: [n, classes].
Tensor hierarchical_log_softmax(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                const HuffmanTree& tree);

}  // namespace reel
#pragma GCC visibility pop
