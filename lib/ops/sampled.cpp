#include "reel/ops/sampled.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <unordered_set>

#include "lib/ops/index.h"
#include "lib/ops/sampled.h"
#include "reel/random.h"

namespace reel {

// ---- the alias table ------------------------------------------------------------------------------------------------

AliasTable::AliasTable(const std::vector<double>& weights) {
  const size_t n = weights.size();
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    REEL_CHECK(weights[i] >= 0 && std::isfinite(weights[i]), "AliasTable: weight ", i, " is ", weights[i]);
    total += weights[i];
  }
  REEL_CHECK(total > 0 && std::isfinite(total), "AliasTable: the weights of ", n, " classes add up to ", total);
  // A column for each class, as high as all are on average: what it lacks is filled from one that is too high.
  std::vector<double> probabilities(n), height(n);
  std::vector<int64_t> alias(n);
  std::vector<size_t> low, high;
  for (size_t i = 0; i < n; ++i) {
    probabilities[i] = weights[i] / total;
    height[i] = probabilities[i] * static_cast<double>(n);
    alias[i] = static_cast<int64_t>(i);
    (height[i] < 1 ? low : high).push_back(i);
  }
  while (!low.empty() && !high.empty()) {
    const size_t short_one = low.back(), donor = high.back();
    low.pop_back();
    alias[short_one] = static_cast<int64_t>(donor);
    height[donor] -= 1 - height[short_one];
    if (height[donor] < 1) high.pop_back(), low.push_back(donor);
  }
  // What is left is 1 but for rounding; a class that must not come up has been filled long ago.
  for (const auto& rest : {low, high})
    for (const size_t i : rest) height[i] = 1;
  probabilities_ = tensor(probabilities, on_host()), threshold_ = tensor(height, on_host()),
  alias_ = tensor(alias, on_host());
}

AliasTable AliasTable::unigram(const std::vector<int64_t>& counts, double power) {
  std::vector<double> weights;
  for (const int64_t count : counts) {
    REEL_CHECK(count >= 0, "AliasTable: a count is ", count);
    weights.push_back(count == 0 ? 0 : std::pow(static_cast<double>(count), power));
  }
  return AliasTable(weights);
}

AliasTable AliasTable::log_uniform(int64_t classes) {
  std::vector<double> weights;
  for (int64_t i = 0; i < classes; ++i) weights.push_back(std::log1p(1 / static_cast<double>(i + 1)));
  return AliasTable(weights);
}

int64_t AliasTable::size() const { return probabilities_.numel(); }

Tensor AliasTable::sample(const Shape& shape) const {
  const Tensor uniform = rand({shape.numel()}, on_host(kFloat64)), ids = make_tensor(shape, kInt64, kCPU);
  const double *u = uniform.data<double>(), *threshold = threshold_.data<double>();
  const int64_t *alias = alias_.data<int64_t>(), last = size() - 1;
  int64_t* const to = ids.data<int64_t>();
  for (int64_t i = 0, n = ids.numel(); i < n; ++i) {
    // One number is both: its whole part the column, the rest the height.
    const double scaled = u[i] * static_cast<double>(last + 1);
    const int64_t column = std::min(static_cast<int64_t>(scaled), last);
    to[i] = scaled - static_cast<double>(column) < threshold[column] ? column : alias[column];
  }
  return ids;
}

namespace {

/// Of the targets, where they are.
Tensor expected_of(const Tensor& targets, const Tensor& log_counts) {
  const Tensor found = index_select(log_counts, 0, targets.to(kCPU).flatten()).reshape(targets.shape());
  REEL_CHECK(all(isfinite(found)).item<bool>(), "AliasTable: a target has weight 0, so it is never drawn");
  return found.to(targets.device());
}

/// `count` different ones of what the table draws, and how many draws that took.
std::pair<std::vector<int64_t>, int64_t> distinct_draws(int64_t count, const AliasTable& table) {
  std::vector<int64_t> ids;
  std::unordered_set<int64_t> seen;
  int64_t tries = 0;
  const int64_t most = 1000 * count + 1000000;
  while (tries < most)
    for (const int64_t id : table.sample({count}).to_vector<int64_t>()) {
      ++tries;
      if (seen.insert(id).second) ids.push_back(id);
      if (static_cast<int64_t>(ids.size()) == count) return {ids, tries};
    }
  detail::fail("AliasTable: ", tries, " draws gave only ", ids.size(), " distinct ones of ", count,
               "; the weights are too unlike");
}

}  // namespace

SampledClasses AliasTable::sample_for_each(const Tensor& targets, int64_t count) const {
  view_of(targets, "AliasTable");
  REEL_CHECK(count > 0 && targets.dim() == 1, "AliasTable: ", count, " samples for each of targets of shape ",
             targets.shape());
  const Tensor log_counts = log(probabilities_ * static_cast<double>(count)), ids = sample({targets.size(0), count});
  const Device device = targets.device();
  return {ids.to(device), index_select(log_counts, 0, ids.flatten()).reshape(ids.shape()).to(device),
          expected_of(targets, log_counts)};
}

SampledClasses AliasTable::sample_for(const Tensor& targets, int64_t count, bool distinct) const {
  const int64_t possible = sum(probabilities_ > 0).item<int64_t>();
  REEL_CHECK(count > 0 && (!distinct || count <= possible), "AliasTable: ", count, distinct ? " distinct" : "",
             " samples of ", possible, " classes");
  Tensor ids, log_counts;
  if (distinct) {
    const auto [drawn, tries] = distinct_draws(count, *this);
    ids = tensor(drawn, on_host()), log_counts = log(-expm1(static_cast<double>(tries) * log1p(-probabilities_)));
  } else {
    ids = sample({count}), log_counts = log(probabilities_ * static_cast<double>(count));
  }
  const Device device = targets.device();
  return {ids.to(device), index_select(log_counts, 0, ids).to(device), expected_of(targets, log_counts)};
}

// ---- sampled losses -------------------------------------------------------------------------------------------------

namespace {

Tensor reduced(const char* op, const Tensor& losses, Reduction reduction) {
  REEL_CHECK(reduction != kBatchMean, op, ": kBatchMean is a reduction of kl_div");
  return reduction == kMean ? mean(losses) : reduction == kSum ? sum(losses) : losses;
}

void check_rows(const char* op, const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets) {
  const Shape &h = view_of(hidden, op).shape, &w = view_of(weight, op).shape;
  REEL_CHECK(h.size() == 2 && w.size() == 2 && h[1] == w[1], op, ": vectors of shape ", h, " and a weight of shape ",
             w);
  REEL_CHECK(is_floating_point(hidden.dtype()), op, ": ", hidden.dtype(), " vectors");
  REEL_CHECK(!bias.defined() || bias.shape() == Shape{w[0]}, op, ": a bias of shape ", bias.shape(),
             " with a weight of shape ", w);
  REEL_CHECK(!targets.defined() || targets.shape() == Shape{h[0]}, op, ": ", h[0], " vectors but targets of shape ",
             targets.shape());
}

/// The target and the samples [n, k] of each row, one after the other.
Tensor entry_ids(const char* op, const Tensor& weight, const Tensor& targets, const Tensor& samples) {
  view_of(targets, op);
  REEL_CHECK(view_of(samples).shape[0] == targets.numel(), op, ": samples of shape ", samples.shape(), " for ",
             targets.numel(), " vectors");
  const Tensor ids = cat({to_ids(op, weight, targets).unsqueeze(1), to_ids(op, weight, samples)}, 1);
  return ids.reshape({ids.numel()});
}

Tensor rows_of(const Tensor& matrix, const Tensor& ids) { return to_compute(embedding(matrix, ids, true)); }

/// s = hidden · weight[id] + bias[id], of the targets [n] and of the samples [n, k].
struct Scores {
  Tensor target, samples;
};
Scores scores_of(const char* op, const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                 const Tensor& ids) {
  view_of(targets, op);
  check_rows(op, hidden, weight, bias, targets);
  const Shape& shape = view_of(ids, op).shape;
  const bool shared = shape.size() == 1;
  REEL_CHECK(shared || (shape.size() == 2 && shape[0] == hidden.size(0)), op, ": samples of shape ", shape, " for ",
             hidden.size(0), " vectors");
  const Tensor h = to_compute(hidden);
  Scores scores{sum(rows_of(weight, targets) * h, 1),
                shared ? matmul(h, rows_of(weight, ids).t()) : matmul(rows_of(weight, ids), h.unsqueeze(2)).squeeze(2)};
  if (bias.defined()) {
    scores.target = scores.target + rows_of(bias, targets);
    scores.samples = scores.samples + rows_of(bias, ids);
  }
  return scores;
}

/// log(1 + exp(x)); above 40 that is x to the last bit of a double.
Tensor cost(const Tensor& x) { return softplus(x, 1, 40); }

Tensor logistic_loss(const char* op, const Scores& scores, Reduction reduction, DType dtype) {
  return reduced(op, cost(-scores.target) + sum(cost(scores.samples), 1), reduction).to(dtype);
}

void check_counts(const char* op, const SampledClasses& samples, const Shape& targets) {
  const Tensor &of_samples = samples.log_expected, &of_targets = samples.target_log_expected;
  REEL_CHECK(view_of(of_samples, op).shape == samples.ids.shape() && view_of(of_targets, op).shape == targets, op,
             ": log expected counts of shape ", of_samples.shape(), " for samples of shape ", samples.ids.shape(),
             ", and of shape ", of_targets.shape(), " for targets of shape ", targets);
}

/// Less the logarithms of expected counts.
Scores corrected(const char* op, Scores scores, const SampledClasses& samples) {
  const Tensor &of_samples = samples.log_expected, &of_targets = samples.target_log_expected;
  check_counts(op, samples, scores.target.shape());
  const DType dtype = scores.target.dtype();
  return {scores.target - of_targets.to(dtype), scores.samples - of_samples.to(dtype)};
}

}  // namespace

Tensor negative_sampling_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                              const Tensor& negatives, Reduction reduction) {
  constexpr Op op = "negative_sampling_loss";
  if (view_of(negatives, op).shape.size() != 2)
    return call(
        "negative_sampling_loss(shared)", {hidden, weight}, {}, [&](const Tensor& hidden, const Tensor& weight) {
          return logistic_loss(op, scores_of(op, hidden, weight, {}, targets, negatives), reduction, hidden.dtype());
        });
  return call(op, {hidden, weight, targets, negatives}, {},
              [&](const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& negatives) {
                check_rows(op, hidden, weight, {}, targets);
                const LogitEntries entries{.ids = entry_ids(op, weight, targets, negatives)};
                return reduced(op, logistic_losses(op, hidden, weight, {}, entries), reduction).to(hidden.dtype());
              });
}

Tensor nce_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                const SampledClasses& samples, Reduction reduction) {
  constexpr Op op = "nce_loss";
  if (view_of(samples.ids, op).shape.size() != 2)
    return call("nce_loss(shared)", {hidden, weight, bias}, {},
                [&](const Tensor& hidden, const Tensor& weight, const Tensor& bias) {
                  const Scores scores = scores_of(op, hidden, weight, bias, targets, samples.ids);
                  return logistic_loss(op, corrected(op, scores, samples), reduction, hidden.dtype());
                });
  return call(
      op, {hidden, weight, bias, targets, samples.ids}, {},
      [&](const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets, const Tensor& drawn) {
        check_rows(op, hidden, weight, bias, targets);
        const Tensor ids = entry_ids(op, weight, targets, drawn);
        check_counts(op, samples, targets.shape());
        const Tensor shift =
            cat({samples.target_log_expected.unsqueeze(1), samples.log_expected}, 1).to(compute_dtype(hidden.dtype()));
        const LogitEntries entries{.ids = ids, .shift = shift.reshape({ids.numel()})};
        return reduced(op, logistic_losses(op, hidden, weight, bias, entries), reduction).to(hidden.dtype());
      });
}

Tensor sampled_softmax_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const SampledClasses& samples, const SampledSoftmaxOptions& options) {
  constexpr Op op = "sampled_softmax_loss";
  return call(
      op, {hidden, weight, bias, targets, samples.ids}, {},
      [&](const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets, const Tensor& drawn) {
        Scores scores = corrected(op, scores_of(op, hidden, weight, bias, targets, drawn), samples);
        if (options.remove_accidental_hits)
          scores.samples =
              masked_fill(scores.samples, drawn == targets.unsqueeze(1), -std::numeric_limits<double>::infinity());
        const Tensor logits = cat({scores.target.unsqueeze(1), scores.samples}, 1);
        return cross_entropy(logits, zeros_like(targets), options.reduction).to(hidden.dtype());
      });
}

// ---- hierarchical softmax -------------------------------------------------------------------------------------------

HuffmanTree::HuffmanTree(const std::vector<int64_t>& counts) : classes(static_cast<int64_t>(counts.size())) {
  REEL_CHECK(classes >= 2, "HuffmanTree: ", classes, " classes, not at least 2");
  using Weighed = std::pair<int64_t, int64_t>;  // count, node: leaves come first, then inner nodes
  std::priority_queue<Weighed, std::vector<Weighed>, std::greater<>> lightest;
  for (int64_t c = 0; c < classes; ++c) {
    const int64_t count = counts[static_cast<size_t>(c)];
    REEL_CHECK(count >= 0, "HuffmanTree: class ", c, " has the count ", count);
    lightest.emplace(count, c);
  }
  struct Up {
    int64_t parent = -1;
    bool bit = false;
  };
  std::vector<Up> up(static_cast<size_t>(2 * classes - 1));
  for (int64_t parent = classes; parent < 2 * classes - 1; ++parent) {
    int64_t count = 0;
    for (const bool bit : {false, true}) {
      up[static_cast<size_t>(lightest.top().second)] = {parent, bit};
      if (__builtin_add_overflow(count, lightest.top().first, &count)) count = std::numeric_limits<int64_t>::max();
      lightest.pop();
    }
    lightest.emplace(count, parent);
  }
  std::vector<int64_t> at{0}, path, owner;
  std::vector<bool> turns;
  for (int64_t c = 0; c < classes; ++c) {
    const auto begin = static_cast<std::ptrdiff_t>(path.size());
    for (Up step = up[static_cast<size_t>(c)]; step.parent >= 0; step = up[static_cast<size_t>(step.parent)]) {
      path.push_back(step.parent - classes), turns.push_back(step.bit), owner.push_back(c);
    }
    std::reverse(path.begin() + begin, path.end());
    std::reverse(turns.begin() + begin, turns.end());
    at.push_back(static_cast<int64_t>(path.size()));
  }
  const TensorOptions host = on_host();
  offsets = tensor(at, host), nodes = tensor(path, host), bits = tensor(turns, host), owners = tensor(owner, host);
}

namespace {
void check_tree(const char* op, const Tensor& weight, const HuffmanTree& tree) {
  REEL_CHECK(weight.size(0) == tree.classes - 1, op, ": a weight of shape ", weight.shape(), " for ", tree.classes - 1,
             " inner nodes");
}

/// The loss of each vector, in the type that it is computed in.
Tensor hierarchical_losses(const char* op, const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                           const HuffmanTree& tree, const Tensor& targets) {
  view_of(targets, op);
  check_rows(op, hidden, weight, bias, targets);
  check_tree(op, weight, tree);
  const Tensor ids = targets.to(kCPU).contiguous();
  int64_t bad = 0;
  REEL_CHECK(view_of(ids).dtype == kInt64, op, ": the targets are ", ids.dtype(), ", not int64");
  REEL_CHECK(!kernels_of(ids).check_bounds(op, view_of(ids), 0, tree.classes, &bad), op, ": target ", bad,
             " is out of range for ", tree.classes, " classes");
  // All steps of all paths, one after another.
  const int64_t n = ids.numel();
  const int64_t *target = ids.data<int64_t>(), *offset = tree.offsets.data<int64_t>();
  const Tensor bounds = make_tensor({n + 1}, kInt64, kCPU);
  int64_t* const begins = bounds.data<int64_t>();
  begins[0] = 0;
  for (int64_t i = 0; i < n; ++i) begins[i + 1] = begins[i] + offset[target[i] + 1] - offset[target[i]];
  const Tensor nodes = make_tensor({begins[n]}, kInt64, kCPU), owners = make_tensor({begins[n]}, kInt64, kCPU);
  const Tensor bits = make_tensor({begins[n]}, kBool, kCPU);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = offset[target[i]], length = begins[i + 1] - begins[i];
    std::copy_n(tree.nodes.data<int64_t>() + from, length, nodes.data<int64_t>() + begins[i]);
    std::copy_n(tree.bits.data<bool>() + from, length, bits.data<bool>() + begins[i]);
    std::fill_n(owners.data<int64_t>() + begins[i], length, i);
  }
  const Device device = hidden.device();
  return logistic_losses(op, hidden, weight, bias,
                         {.ids = nodes.to(device),
                          .bounds = bounds.to(device),
                          .owners = owners.to(device),
                          .truth = bits.to(device),
                          .shift = {}});
}
}  // namespace

Tensor hierarchical_softmax_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                 const HuffmanTree& tree, const Tensor& targets, Reduction reduction) {
  constexpr Op op = "hierarchical_softmax_loss";
  return call(op, {hidden, weight, bias, targets}, {},
              [&](const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets) {
                const Tensor losses = hierarchical_losses(op, hidden, weight, bias, tree, targets);
                return reduced(op, losses, reduction).to(hidden.dtype());
              });
}

Tensor hierarchical_log_softmax(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                const HuffmanTree& tree) {
  constexpr Op op = "hierarchical_log_softmax";
  return call(op, {hidden, weight, bias}, {}, [&](const Tensor& hidden, const Tensor& weight, const Tensor& bias) {
    check_rows(op, hidden, weight, bias, {});
    check_tree(op, weight, tree);
    const Tensor scores = linear(to_compute(hidden), to_compute(weight), bias.defined() ? to_compute(bias) : bias);
    const Tensor both = -cat({cost(scores), cost(-scores)}, 1);  // of bits that are false, and of those that are true
    const Tensor entries = (tree.nodes + where(tree.bits, tree.classes - 1, 0)).to(hidden.device());
    const Tensor steps = index_select(both, 1, entries);
    const Tensor zero = zeros({hidden.size(0), tree.classes}, {.dtype = steps.dtype(), .device = steps.device()});
    return scatter_add(zero, 1, tree.owners.to(hidden.device()).unsqueeze(0).expand(steps.shape()), steps)
        .to(hidden.dtype());
  });
}

}  // namespace reel
