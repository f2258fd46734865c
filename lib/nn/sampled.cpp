#include "reel/nn/sampled.h"

#include <cmath>

#include "lib/nn/repr.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {

// ---- AdaptiveLogSoftmaxWithLoss -------------------------------------------------------------------------------------

namespace {

std::vector<int64_t> checked_cutoffs(std::vector<int64_t> cutoffs, int64_t classes) {
  REEL_CHECK(!cutoffs.empty(), "AdaptiveLogSoftmaxWithLoss: no cutoffs");
  int64_t before = 0;
  for (const int64_t cutoff : cutoffs) {
    REEL_CHECK(cutoff > before && cutoff < classes, "AdaptiveLogSoftmaxWithLoss: cutoff ", cutoff, " is not between ",
               before, " and ", classes);
    before = cutoff;
  }
  cutoffs.push_back(classes);
  return cutoffs;
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(int64_t in, int64_t classes, std::vector<int64_t> limits,
                                                       AdaptiveLogSoftmaxWithLossOptions options)
    : in_features(in),
      n_classes(classes),
      cutoffs(checked_cutoffs(std::move(limits), classes)),
      shortlist_size(cutoffs[0]),
      n_clusters(static_cast<int64_t>(cutoffs.size()) - 1),
      head(*this, "head", in, shortlist_size + n_clusters, {.bias = options.head_bias}),
      tail(*this, "tail") {
  for (int64_t i = 0; i < n_clusters; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto hidden = static_cast<int64_t>(
        std::floor(static_cast<double>(in) / std::pow(options.div_value, static_cast<double>(i + 1))));
    const int64_t size = cutoffs[at + 1] - cutoffs[at];
    tail.emplace(Linear(in, hidden, {.bias = false}), Linear(hidden, size, {.bias = false}));
  }
}

void AdaptiveLogSoftmaxWithLoss::reset_parameters() {
  for (auto& [path, module] : named_modules())
    if (auto* layer = dynamic_cast<Linear*>(module)) layer->reset_parameters();
}

AdaptiveLogSoftmaxWithLoss::Output AdaptiveLogSoftmaxWithLoss::forward(const Tensor& x, const Tensor& target) const {
  REEL_CHECK(x.defined() && target.defined() && x.dim() == 2 && target.shape() == Shape{x.size(0)},
             "AdaptiveLogSoftmaxWithLoss: expected x of shape [n, ", in_features, "] and targets of shape [n]");
  REEL_CHECK(!any((target < 0) | (target >= n_classes)).item<bool>(),
             "AdaptiveLogSoftmaxWithLoss: a target is not between 0 and ", n_classes - 1);
  Tensor in_head = target, rest;  // the targets of the head, and what clusters add
  for (int64_t i = 0; i < n_clusters; ++i) {
    const int64_t low = cutoffs[static_cast<size_t>(i)], high = cutoffs[static_cast<size_t>(i + 1)];
    const Tensor member = (target >= low) & (target < high), rows = nonzero(member).squeeze(1);
    if (rows.numel() == 0) continue;
    in_head = where(member, shortlist_size + i, in_head);
    const Tensor scores = log_softmax(tail[i](index_select(x, 0, rows)), 1);
    const Tensor own = gather(scores, 1, (index_select(target, 0, rows) - low).unsqueeze(1)).squeeze(1);
    if (!rest.defined()) rest = zeros(target.shape(), {.dtype = own.dtype(), .device = own.device()});
    rest = scatter_add(rest, 0, rows, own);
  }
  Tensor output = gather(log_softmax(head(x), 1), 1, in_head.unsqueeze(1)).squeeze(1);
  if (rest.defined()) output = output + rest;
  return {output, -mean(output)};
}

Tensor AdaptiveLogSoftmaxWithLoss::with_tail(const Tensor& x, const Tensor& head_scores) const {
  const Tensor of_head = log_softmax(head_scores, 1);
  std::vector<Tensor> parts{of_head.narrow(1, 0, shortlist_size)};
  for (int64_t i = 0; i < n_clusters; ++i)
    parts.push_back(log_softmax(tail[i](x), 1) + of_head.narrow(1, shortlist_size + i, 1));
  return cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& x) const { return with_tail(x, head(x)); }

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& x) const {
  // A class of the shortlist that is ahead of a cluster is ahead of all its classes.
  const Tensor scores = head(x), best = argmax(scores, 1), rows = nonzero(best >= shortlist_size).squeeze(1);
  if (rows.numel() == 0) return best;
  const Tensor of_rows = with_tail(index_select(x, 0, rows), index_select(scores, 0, rows));
  return scatter(best, 0, rows, argmax(of_rows, 1));
}

// ---- HierarchicalSoftmax --------------------------------------------------------------------------------------------

HierarchicalSoftmax::HierarchicalSoftmax(int64_t in, const std::vector<int64_t>& counts,
                                         HierarchicalSoftmaxOptions options)
    : in_features(in),
      tree(counts),
      weight(*this, "weight", empty({tree.classes - 1, in})),
      bias(*this, "bias", options.bias ? empty({tree.classes - 1}) : Tensor()) {
  reset_parameters();
}

void HierarchicalSoftmax::reset_parameters() {
  const double bound = in_features > 0 ? 1 / std::sqrt(in_features) : 0;
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -bound, bound);
}

Tensor HierarchicalSoftmax::forward(const Tensor& x, const Tensor& target, Reduction reduction) const {
  return hierarchical_softmax_loss(x, weight, bias, tree, target, reduction);
}

Tensor HierarchicalSoftmax::log_prob(const Tensor& x) const { return hierarchical_log_softmax(x, weight, bias, tree); }

std::string HierarchicalSoftmax::extra_repr() const {
  return Repr().add("in_features", in_features, "classes", tree.classes).text();
}

}  // namespace reel::nn
