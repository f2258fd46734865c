#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/device/kernels/ctc.h"
#include "lib/ops/forward_backward.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

Tensor as_lengths(const char* what, const Tensor& lengths, int64_t n, int64_t most, Device device) {
  const View& view = view_of(lengths, "ctc_loss");
  REEL_CHECK((view.dtype == kInt64 || view.dtype == kInt32) && view.numel == n && view.shape.size() <= 1,
             "ctc_loss: ", view.dtype, " ", what, " lengths of shape ", view.shape, " for ", n, " sequences");
  const Tensor list = lengths.to(kInt64).to(device).reshape({n}).contiguous();
  int64_t bad;
  REEL_CHECK(!kernels_of(list).check_bounds("ctc_loss", view_of(list), 0, most + 1, &bad), "ctc_loss: ", what,
             " length ", bad, " is not between 0 and ", most);
  return list;
}

int64_t largest(const Tensor& list) { return list.numel() ? max(list).item<int64_t>() : 0; }

/// [n, most], 0 beyond the targets' ends, from targets padded or one after another.
Tensor padded_targets(const Tensor& targets, const Tensor& lengths, int64_t most, int64_t classes) {
  const bool joined = view_of(targets).shape.size() == 1;
  const int64_t width = joined ? 0 : targets.size(1);
  const Tensor column = arange(0, most, 1, {.dtype = kInt64, .device = lengths.device()});
  const Tensor valid = column < lengths.unsqueeze(1);
  const Tensor begin = joined ? cumsum(lengths, 0) - lengths
                              : arange(0, lengths.numel(), 1, {.dtype = kInt64, .device = lengths.device()}) * width;
  const Tensor at = where(valid, begin.unsqueeze(1) + column, 0), ids = targets.to(kInt64).flatten();
  const Tensor labels = ids.numel() ? index_select(ids, 0, at.flatten()).reshape(at.shape()) : at;
  const Tensor read = where(valid, labels, 0).contiguous();
  int64_t bad = 0;
  REEL_CHECK(!kernels_of(read).check_bounds("ctc_loss", view_of(read), 0, classes, &bad), "ctc_loss: target ", bad,
             " is out of range for ", classes, " classes");
  return read;
}

/// How probable each class is at each step, given the target: [steps, classes] for one sequence. Composed, so that it
/// can be differentiated.
Tensor posterior(const Tensor& log_probs, const std::vector<int64_t>& labels, int64_t blank) {
  const int64_t steps = log_probs.size(0), states = 2 * static_cast<int64_t>(labels.size()) + 1;
  std::vector<int64_t> state(static_cast<size_t>(states), blank);
  std::vector<double> skip(state.size(), kNever), begin(state.size(), kNever), end(state.size(), kNever);
  for (size_t i = 0; i < labels.size(); ++i) {
    state[2 * i + 1] = labels[i];
    if (i > 0 && labels[i] != labels[i - 1]) skip[2 * i + 1] = 0;
  }
  for (size_t i = 0; i < std::min<size_t>(2, state.size()); ++i) begin[i] = end[state.size() - 1 - i] = 0;
  const TensorOptions options{.dtype = log_probs.dtype(), .device = log_probs.device()};
  const Tensor ids = tensor(state).to(log_probs.device()), leap = tensor(skip, options);
  const Tensor emitted = index_select(log_probs, 1, ids), edge = full({2}, kNever, options);
  const auto shifted = [&](const Tensor& x, int64_t by) {  // to later states where positive
    return by > 0 ? cat({edge, x}).narrow(0, 2 - by, states) : cat({x, edge}).narrow(0, -by, states);
  };
  const auto [alpha, beta, log_z] = forward_backward(
      emitted, tensor(begin, options), tensor(end, options),
      [&](const Tensor& a) {
        return logsumexp(stack({a, shifted(a, 1), shifted(a, 2) + leap}), 0);
      },
      [&](const Tensor& b) {
        return logsumexp(stack({b, shifted(b, -1), shifted(b + leap, -2)}), 0);
      });
  const Tensor gamma = exp(stack(alpha) + stack(beta) - log_z);
  return scatter_add(zeros(log_probs.shape(), options), 1, ids.unsqueeze(0).expand({steps, states}), gamma);
}

struct CtcRule {
  SavedTensor log_probs, labels, input_lengths, label_lengths, loss, alpha, norm;
  int64_t blank;
  bool zero_infinity;

  void operator()(Backward& back) { back.create_graph() ? composed(back) : fused(back); }

  void fused(Backward& back) {
    const Tensor x = back.get(log_probs), g = back.grad().contiguous();
    const Tensor y = back.get(labels), ins = back.get(input_lengths), outs = back.get(label_lengths);
    const Tensor a = back.get(alpha), n = back.get(norm), gx = make_tensor(x.shape(), x.dtype(), x.device());
    Ctc ctc = describe(x, y, ins, outs, a, n, blank, zero_infinity);
    const Tensor scratch = scratch_for(ctc, x);
    ctc.scratch = view_of(scratch).data, ctc.grad = view_of(g).data, ctc.grad_log_probs = view_of(gx).data;
    kernels_of(x).ctc_grad(ctc);
    back.set(0, gx);
  }

  void composed(Backward& back) {
    const Tensor x = back.get(log_probs), g = back.grad(), y = back.get(labels), costs = back.get(loss);
    const std::vector<int64_t> ins = back.get(input_lengths).to_vector<int64_t>();
    const std::vector<int64_t> outs = back.get(label_lengths).to_vector<int64_t>();
    const int64_t steps = x.size(0);
    std::vector<Tensor> columns;
    for (int64_t i = 0; i < x.size(1); ++i) {
      const int64_t used = ins[static_cast<size_t>(i)];
      std::vector<int64_t> target = y[i].to_vector<int64_t>();
      target.resize(static_cast<size_t>(outs[static_cast<size_t>(i)]));
      const bool lost = std::isinf(costs[i].item<double>());
      const Tensor rows = x.select(1, i).narrow(0, 0, used);
      const Tensor rest = zeros({lost ? steps : steps - used, x.size(2)}, {.dtype = x.dtype(), .device = x.device()});
      if (lost)
        columns.push_back(zero_infinity ? rest : rest / 0);
      else if (used == 0)
        columns.push_back(rest);
      else
        columns.push_back(cat({g[i] * (exp(rows) - posterior(rows, target, blank)), rest}, 0));
    }
    back.set(0, stack(columns, 1));
  }

  static Ctc describe(const Tensor& x, const Tensor& labels, const Tensor& ins, const Tensor& outs, const Tensor& alpha,
                      const Tensor& norm, int64_t blank, bool zero_infinity) {
    Ctc ctc;
    ctc.dtype = x.dtype();
    ctc.steps = x.size(0), ctc.batch = x.size(1), ctc.classes = x.size(2);
    ctc.blank = blank, ctc.zero_infinity = zero_infinity;
    ctc.log_probs = view_of(x).data, ctc.labels = view_of(labels).as<const int64_t>();
    ctc.input_lengths = view_of(ins).as<const int64_t>(), ctc.label_lengths = view_of(outs).as<const int64_t>();
    ctc.most_labels = labels.size(1);
    ctc.alpha = view_of(alpha).data, ctc.norm = view_of(norm).data;
    return ctc;
  }
  static Tensor scratch_for(const Ctc& ctc, const Tensor& x) {
    return make_tensor({4, 2 * ctc.most_labels + 1 + kCtcMargin}, x.dtype(), x.device());
  }
};

/// One loss for each sequence.
Tensor ctc_losses(const Tensor& x, const Tensor& labels, const Tensor& ins, const Tensor& outs,
                  const CTCLossOptions& options) {
  const int64_t steps = x.size(0), n = x.size(1), states = 2 * labels.size(1) + 1;
  const Tensor y = make_tensor({n}, x.dtype(), x.device());
  const Tensor alpha = make_tensor({n, steps, states}, x.dtype(), x.device());
  const Tensor norm = make_tensor({n, steps, states}, x.dtype(), x.device());
  Ctc ctc = CtcRule::describe(x, labels, ins, outs, alpha, norm, options.blank, false);
  const Tensor scratch = CtcRule::scratch_for(ctc, x);
  ctc.scratch = view_of(scratch).data, ctc.loss = view_of(y).data;
  kernels_of(x).ctc(ctc);
  const Tensor kept = options.zero_infinity ? no_grad([&] { return where(y == -kNever, 0, y); }) : y;
  if (recording(x))
    record("ctc_loss", kept, inputs(x),
           CtcRule{SavedTensor(x), SavedTensor(labels), SavedTensor(ins), SavedTensor(outs),
                   options.zero_infinity ? SavedTensor(y) : SavedTensor::output(y), SavedTensor(alpha),
                   SavedTensor(norm), options.blank, options.zero_infinity});
  return kept;
}

/// Computes the losses for log probabilities [steps, n, classes].
Tensor reduced_losses(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                      const Tensor& target_lengths, const CTCLossOptions& options) {
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), classes = log_probs.size(2);
  REEL_CHECK(options.blank >= 0 && options.blank < classes, "ctc_loss: the blank, ", options.blank,
             ", is out of range for ", classes, " classes");
  const bool joined = targets.dim() == 1;
  REEL_CHECK(joined || (targets.dim() == 2 && targets.size(0) == n), "ctc_loss: targets of shape ", targets.shape(),
             " for ", n, " sequences");
  const Device device = log_probs.device();
  const Tensor ins = as_lengths("input", input_lengths, n, steps, device);
  const Tensor outs = as_lengths("target", target_lengths, n, joined ? targets.numel() : targets.size(1), device);
  if (joined)
    REEL_CHECK(sum(outs).item<int64_t>() == targets.numel(), "ctc_loss: the target lengths add up to ",
               sum(outs).item<int64_t>(), ", but there are ", targets.numel(), " targets");
  const Tensor labels = padded_targets(targets.to(device), outs, largest(outs), classes);
  const Tensor losses = ctc_losses(log_probs.contiguous(), labels, ins, outs, options);
  switch (options.reduction) {
    case kMean: return mean(losses / maximum(outs, 1).to(log_probs.dtype()));
    case kSum: return sum(losses);
    default: return losses;
  }
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossOptions& options) {
  const Shape& shape = view_of(log_probs, "ctc_loss").shape;
  REEL_CHECK(shape.size() == 2 || shape.size() == 3, "ctc_loss: log probabilities of shape ", shape,
             ", not [steps, n, classes] or [steps, classes]");
  const DType of_targets = view_of(targets, "ctc_loss").dtype;
  REEL_CHECK(is_floating_point(log_probs.dtype()), "ctc_loss: ", log_probs.dtype(), " log probabilities");
  REEL_CHECK(of_targets == kInt64 || of_targets == kInt32, "ctc_loss: the targets are ", of_targets, ", not int64");
  REEL_CHECK(options.reduction != kBatchMean, "ctc_loss: kBatchMean is a reduction of kl_div");
  return call("ctc_loss", {log_probs, targets, input_lengths, target_lengths}, {},
              [&](const Tensor& log_probs, const Tensor& targets, const Tensor& ins, const Tensor& outs) {
                if (log_probs.dim() == 3) return reduced_losses(log_probs, targets, ins, outs, options);
                const Tensor y = reduced_losses(
                    log_probs.unsqueeze(1), targets.dim() == 1 ? targets.unsqueeze(0) : targets, ins, outs, options);
                return y.dim() ? y.squeeze(0) : y;
              });
}

}  // namespace reel
