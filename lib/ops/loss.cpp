#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/id_check.h"
#include "lib/ops/internal.h"
#include "lib/ops/joined_loss.h"
#include "lib/ops/loss_blocks.h"
#include "lib/ops/pointwise.h"
#include "reel/threads.h"

namespace reel {
namespace {

Tensor reduced(const char* op, const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case kMean: return mean(losses);
    case kSum: return sum(losses);
    case kNoReduction: return losses;
    case kBatchMean: break;
  }
  detail::fail(op, ": kBatchMean is a reduction of kl_div");
}

// ---- what targets say -----------------------------------------------------------------------------------------------

/// nullptr where x is undefined.
const View* view_if(const Tensor& x) { return x.defined() ? &view_of(x) : nullptr; }

struct Targets {
  Tensor ids;             // int64, contiguous; -1 for a row that is ignored
  bool ignoring = false;  // there may be such rows
  Tensor kept;            // on a GPU then: how many others there are, in the losses' dtype
  // What is left to check, by the kernel that reads them: which negative number is ignored.
  std::optional<int64_t> unchecked = {};

  /// In range everywhere.
  Tensor places() const { return ignoring ? where(ids < 0, 0, ids) : ids; }
  Tensor masked(const Tensor& rows) const { return ignoring ? where(ids < 0, 0, rows) : rows; }
  Tensor count() const { return kept.defined() ? kept : sum(ids >= 0); }
};

Tensor as_ids(const char* op, const Tensor& target) {
  const DType dtype = view_of(target, op).dtype;
  REEL_CHECK(dtype == kInt64 || dtype == kInt32 || dtype == kUInt8, op, ": the target is ", dtype, ", not int64");
  return dtype == kInt64 && view_of(target).contiguous ? target : target.to(kInt64).contiguous();
}

void check_range(const char* op, const Tensor& ids, int64_t classes) {
  int64_t bad = 0;
  REEL_CHECK(!kernels_of(ids).check_bounds(op, view_of(ids), 0, classes, &bad), op, ": target ", bad,
             " is out of range for ", classes, " classes");
}

/// Targets for scores [n, classes, d…] or [classes]; a single row's come as [1]. On a GPU they are neither checked nor
/// counted if a kernel can do the one, and nobody needs the other.
Targets read_targets(const char* op, const Tensor& target, const Tensor& scores, std::optional<int64_t> ignore,
                     bool uncounted = false) {
  const Shape& shape = view_of(scores).shape;
  const bool one_row = shape.size() == 1, flat = shape.size() <= 2;
  const int64_t classes = shape[one_row ? 0 : 1], n = one_row ? 1 : shape[0];
  Tensor ids = as_ids(op, target);
  if (ids.device() == kCPU) ids = ids.to(scores.device());
  check_device(op, scores, {&ids});
  const Shape& given = view_of(ids).shape;
  bool fits = flat ? given.size() <= 1 && view_of(ids).numel == n : given.size() == shape.size() - 1 && given[0] == n;
  for (int d = 1; d < given.size() && fits; ++d) fits = given[d] == shape[d + 1];
  REEL_CHECK(fits, op, ": scores of shape ", shape, " but a target of shape ", given,
             flat ? "" : "; the classes are dimension 1 of the scores");
  if (given.empty()) ids = ids.reshape({1});
  if (!ignore) {
    check_range(op, ids, classes);
    return {ids, false, {}};
  }
  int64_t bad = 0;
  const bool readable = is_readable(ids), is_class = *ignore >= 0 && *ignore < classes;
  if (readable && !is_class && !kernels_of(ids).check_bounds(op, view_of(ids), 0, classes, &bad))
    return {ids, false, {}};  // none is ignored
  if (!readable && uncounted && *ignore < 0) return {ids, true, {}, ignore};
  const Tensor kept = make_tensor({}, compute_dtype(scores.dtype()), ids.device());
  Tensor marked;
  if (*ignore >= 0) marked = make_tensor(view_of(ids).shape, kInt64, ids.device());  // negative ids count nowhere
  REEL_CHECK(!kernels_of(ids).read_targets(op, view_of(ids), classes, *ignore, view_of(kept), view_if(marked), &bad),
             op, ": target ", bad, " is out of range for ", classes, " classes");
  return {marked.defined() ? marked : ids, true, readable ? Tensor() : kept};
}

/// The weight of each row's class, 0 for ignored rows.
Tensor row_weights(const char* op, const Tensor& weight, const Targets& targets, int64_t classes, DType dtype) {
  REEL_CHECK(view_of(weight).shape == Shape{classes}, op, ": class weights of shape ", weight.shape(), " for ", classes,
             " classes");
  const Tensor places = targets.places();
  return targets.masked(index_select(weight.to(dtype), 0, places.flatten()).reshape(places.shape()));
}

/// The mean is over the weights, if there are any, or else over the rows that are not ignored.
Tensor reduced_rows(const char* op, const Tensor& losses, const Targets& targets, const Tensor& weights,
                    Reduction reduction) {
  if (reduction == kMean && weights.defined()) return sum(losses) / sum(weights);
  if (reduction == kMean && targets.ignoring) return sum(losses) / targets.count();
  return reduced(op, losses, reduction);
}

void check_scores(const char* op, const Tensor& x) {
  const View& view = view_of(x, op);
  REEL_CHECK(is_floating_point(view.dtype), op, ": ", view.dtype, " scores");
  REEL_CHECK(!view.shape.empty(), op, ": scores of shape ", view.shape, ", not [n, classes]");
}

/// f(rows) for x [classes] as one row, and its result as that of no rows; otherwise f(x).
template <class F>
Tensor for_one_row(const Tensor& x, const F& f) {
  if (view_of(x).shape.size() != 1) return f(x);
  const Tensor y = f(x.unsqueeze(0));
  return y.dim() ? y.reshape({}) : y;
}

/// Returns the score of each row's class, for scores [n, classes, d…]. The gradient is scattered, since no two are of
/// one place, where that of gather() is added up.
Tensor scores_of(const Tensor& scores, const Tensor& places) {
  const Tensor x = scores, at = places.unsqueeze(1), y = no_grad([&] { return gather(x, 1, at); });
  if (recording(x))
    record("gather", y, inputs(x), [shape = view_of(x).shape, at = SavedTensor(at)](Backward& back) {
      const Tensor zero = zeros(shape, {.dtype = back.grad().dtype(), .device = back.grad().device()});
      if (back.create_graph()) return back.set(0, scatter(zero, 1, back.get(at), back.grad()));
      kernels_of(zero).scatter(ScatterOp::kReplace, view_of(zero), 1, view_of(back.get(at)), view_of(back.grad()));
      back.set(0, zero);
    });
  return y.squeeze(1);
}

}  // namespace

// ---- classes --------------------------------------------------------------------------------------------------------

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NLLLossOptions& options) {
  constexpr Op op = "nll_loss";
  check_scores(op, log_probs);
  return call(op, {log_probs, target}, {}, [&](const Tensor& log_probs, const Tensor& target) {
    const DType dtype = log_probs.dtype();
    const Targets targets = read_targets(op, target, log_probs, options.ignore_index);
    return for_one_row(log_probs, [&](const Tensor& x) {
      const Tensor picked = to_compute(scores_of(x, targets.places()));
      Tensor losses = targets.masked(-picked), weights;
      if (options.weight.defined()) {
        weights = row_weights(op, options.weight, targets, x.size(1), picked.dtype());
        losses = losses * weights;
      }
      return reduced_rows(op, losses, targets, weights, options.reduction).to(dtype);
    });
  });
}

namespace {

/// Returns whether logits are so many rows of so few classes on the host that they are faster as columns, with a copy.
bool has_short_rows(const View& logits) {
  constexpr int64_t kMaxClasses = 32, kMinRows = 256;
  return logits.host && logits.shape.size() == 2 && logits.shape[0] >= kMinRows && logits.shape[1] > 1 &&
         logits.shape[1] <= kMaxClasses && !is_half(logits.dtype) && !is_tracing();
}

/// Calls the fused kernel for logits [n, classes, d…], whose losses have the targets' shape, and reduces these. The
/// result is float32 for half types.
Tensor fused_cross_entropy(const Tensor& logits, const Targets& targets, double smoothing, Reduction reduction) {
  if (has_short_rows(view_of(logits))) {  // lanes that are rows, not classes
    Targets row = targets;
    row.ids = targets.ids.unsqueeze(0);
    const Tensor y = fused_cross_entropy(logits.t().unsqueeze(0), row, smoothing, reduction);
    return y.dim() ? y.squeeze(0) : y;
  }
  const Tensor x = logits.contiguous();
  const View& view = view_of(x);
  const Tensor& ids = targets.ids;
  const int64_t n = view_of(ids).numel;
  const DType wide = compute_dtype(view.dtype);
  Tensor losses = make_tensor(view_of(ids).shape, wide, x.device()), norms;
  if (recording(x)) norms = make_tensor({n, 2}, wide, x.device());
  double scale = 1;
  Tensor divisor;  // where rows may be ignored on a GPU, with which this does not synchronize
  if (reduction == kMean && targets.kept.defined())
    divisor = targets.kept;
  else if (reduction == kMean)
    scale /= static_cast<double>(targets.ignoring ? targets.count().item<int64_t>() : n);
  IdCheck check{.op = "cross_entropy", .ignored = targets.unchecked.value_or(-1)};
  REEL_CHECK(!kernels_of(x).cross_entropy(smoothing, view, view_of(ids), view_if(divisor), view_of(losses),
                                          view_if(norms), targets.unchecked ? &check : nullptr),
             "cross_entropy: target ", check.bad, " is out of range for ", view.shape[1], " classes");
  Tensor y = losses;
  if (reduction != kNoReduction) {
    NoGrad guard;
    y = n == 1 ? losses.reshape({}) : sum(losses);
    if (scale != 1) y = y * scale;
    if (divisor.defined() && n == 0) y = y / divisor;  // there was no row to divide
  }
  if (recording(x))
    record("cross_entropy", y, inputs(x),
           [x = SavedTensor(x), norms = SavedTensor(norms), ids = SavedTensor(ids), scale, divisor,
            smoothing](Backward& back) {
             const Tensor logits = back.get(x), t = back.get(ids);
             Tensor g = scale == 1 ? back.grad() : back.grad() * scale;
             if (back.create_graph()) {
               if (divisor.defined()) g = g / divisor;
               const int64_t classes = logits.size(1);
               const Tensor p = softmax(to_compute(logits), 1);
               const Tensor hot = movedim(one_hot(where(t < 0, 0, t), classes), -1, 1).to(p.dtype());
               const Tensor gap = p - hot * (1 - smoothing) - smoothing / static_cast<double>(classes);
               return back.set(0, where(t < 0, 0, g).unsqueeze(1) * gap);
             }
             Tensor gx = make_tensor(logits.shape(), logits.dtype(), logits.device());
             g = g.dim() ? g.flatten() : g.expand({t.numel()});
             kernels_of(logits).cross_entropy_grad(smoothing, view_of(g), view_of(logits), view_of(back.get(norms)),
                                                   view_of(t), view_if(divisor), view_of(gx));
             back.set(0, std::move(gx));
           });
  return y;
}

/// Returns the losses of the rows, of targets that are classes.
RowLosses row_losses(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options) {
  const Targets targets = read_targets("cross_entropy", target, logits, options.ignore_index, true);
  return {fused_cross_entropy(logits, targets, options.label_smoothing, kNoReduction), targets.ids};
}

/// Returns the weights of classes in x's type, as they broadcast to x [n, classes, d…].
Tensor class_column(const Tensor& weight, const Tensor& x) {
  Shape column{x.size(1)};
  while (column.size() < x.dim() - 1) column.push_back(1);
  return weight.to(x.dtype()).reshape(column);
}

/// Class weights weigh the share of the target and, each class by its own, the share of all classes.
Tensor weighted_smooth_losses(const Tensor& x, const Targets& targets, const Tensor& weights, const Tensor& weight,
                              double smoothing) {
  const Tensor log_probs = log_softmax(x, 1);
  const Tensor nll = -gather(log_probs, 1, targets.places().unsqueeze(1)).squeeze(1);
  const Tensor all = -sum(log_probs * class_column(weight, x), 1);
  return targets.masked((1 - smoothing) * weights * nll + smoothing / static_cast<double>(x.size(1)) * all);
}

/// Probability targets [n, classes, d…].
Tensor soft_cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyLossOptions& options) {
  const int64_t classes = x.size(1);
  Tensor share = target.to(x.dtype());
  if (const double s = options.label_smoothing; s != 0) share = share * (1 - s) + s / static_cast<double>(classes);
  if (options.weight.defined()) {
    REEL_CHECK(options.weight.shape() == Shape{classes}, "cross_entropy: class weights of shape ",
               options.weight.shape(), " for ", classes, " classes");
    share = share * class_column(options.weight, x);
  }
  const Tensor losses = -sum(log_softmax(x, 1) * share, 1);
  return reduced("cross_entropy", losses, options.reduction);
}

/// Returns the loss of targets that are classes, for logits of one dimension, or with class weights.
Tensor hard_cross_entropy(const Tensor& logits, const Targets& targets, const CrossEntropyLossOptions& options) {
  const char* op = "cross_entropy";
  const double smoothing = options.label_smoothing;
  return for_one_row(logits, [&](const Tensor& x) {
    if (!options.weight.defined()) return fused_cross_entropy(x, targets, smoothing, options.reduction);
    const Tensor weights = row_weights(op, options.weight, targets, x.size(1), x.dtype());
    const Tensor losses = smoothing == 0 ? fused_cross_entropy(x, targets, 0, kNoReduction) * weights
                                         : weighted_smooth_losses(x, targets, weights, options.weight, smoothing);
    return reduced_rows(op, losses, targets, weights, options.reduction);
  });
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options) {
  const char* op = "cross_entropy";
  check_scores(op, logits);
  const Shape& shape = view_of(logits).shape;
  const bool soft = is_floating_point(view_of(target, op).dtype), one = shape.size() == 1;
  const double smoothing = options.label_smoothing;
  REEL_CHECK(smoothing >= 0 && smoothing <= 1, op, ": label_smoothing must be between 0 and 1, got ", smoothing);
  REEL_CHECK(shape[one ? 0 : 1] > 0, op, ": no classes, logits of shape ", shape);
  if (soft) {
    REEL_CHECK(view_of(target).shape == shape, op, ": logits of shape ", shape, " and a ", target.dtype(),
               " target of shape ", target.shape(), "; classes are int64, probabilities have the logits' shape");
    return call("cross_entropy(probabilities)", {logits}, {}, [&](const Tensor& logits) {
      return for_one_row(
          logits, [&](const Tensor& x) { return soft_cross_entropy(x, one ? target.unsqueeze(0) : target, options); });
    });
  }
  REEL_CHECK(options.reduction != kBatchMean, op, ": kBatchMean is a reduction of kl_div");
  if (!one && !options.weight.defined()) {
    // The kernel takes logits of half types as they are, and its losses are float32: autocast need not cast the logits.
    const DType result = is_autocast_enabled() ? compute_dtype(logits.dtype()) : logits.dtype();
    std::optional<detail::NoSuspendGuard> alone;
    if (std::optional<Tensor> y = joined_cross_entropy(logits, target, options, result, row_losses, alone))
      return *std::move(y);
    return call("cross_entropy", {logits, target}, {}, [&](const Tensor& logits, const Tensor& target) {
      // The targets are checked before anything is copied.
      const Targets targets = read_targets(op, target, logits, options.ignore_index, options.reduction != kMean);
      return fused_cross_entropy(logits, targets, smoothing, options.reduction).to(result);
    });
  }
  return call("cross_entropy(composed)", {logits, target}, {}, [&](const Tensor& logits, const Tensor& target) {
    return hard_cross_entropy(logits, read_targets(op, target, logits, options.ignore_index), options);
  });
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossOptions& options) {
  constexpr Op op = "multi_margin_loss";
  check_scores(op, x);
  REEL_CHECK(x.dim() <= 2, op, ": scores of shape ", x.shape(), ", not [n, classes]");
  REEL_CHECK(options.p == 1 || options.p == 2, op, ": p must be 1 or 2, got ", options.p);
  return call(op, {x, target}, {}, [&](const Tensor& x, const Tensor& target) {
    const Targets targets = read_targets(op, target, x, {});
    return for_one_row(x, [&](const Tensor& rows) {
      const int64_t classes = rows.size(1);
      // The gap of a target to itself does not count, and must not be NaN where it is infinite.
      const Tensor gap = rows - gather(rows, 1, targets.ids.unsqueeze(1)) + options.margin;
      Tensor gaps = relu(masked_fill(gap, one_hot(targets.ids, classes).to(kBool), 0));
      if (options.p == 2) gaps = square(gaps);
      if (options.weight.defined())
        gaps = gaps * row_weights(op, options.weight, targets, classes, rows.dtype()).unsqueeze(1);
      return reduced(op, sum(gaps, 1) / static_cast<double>(classes), options.reduction);
    });
  });
}

namespace {

/// A MarginRow adds up the margins of one row, max(0, 1 - x[target] + x[other]) over the pairs of its targets and its
/// other classes, by sorting both instead of visiting the pairs.
class MarginRow {
 public:
  /// Returns the sum for `scores` and the row's targets, which may repeat a class and end before a negative number.
  template <class T>
  double sum(const T* scores, const int64_t* labels, int64_t classes) {
    is_target_.assign(static_cast<size_t>(classes), 0);
    targets_.clear(), others_.clear();
    for (int64_t i = 0; i < classes && labels[i] >= 0; ++i) {
      is_target_[static_cast<size_t>(labels[i])] = 1;
      targets_.push_back(static_cast<double>(scores[labels[i]]));
    }
    double of_others = 0;
    for (int64_t c = 0; c < classes; ++c)
      if (!is_target_[static_cast<size_t>(c)])
        others_.push_back(static_cast<double>(scores[c])), of_others += others_.back();
    std::sort(targets_.begin(), targets_.end());
    std::sort(others_.begin(), others_.end());
    double total = 0;
    auto first = others_.begin();  // of the others that are within the margin of a target
    for (const double target : targets_) {
      for (; first != others_.end() && *first <= target - 1; ++first) of_others -= *first;
      total += static_cast<double>(others_.end() - first) * (1 - target) + of_others;
    }
    return total;
  }
  /// Writes the derivatives of the last sum, divided by the number of classes.
  template <class T>
  void slopes(const T* scores, const int64_t* labels, int64_t classes, T* slopes) const {
    const auto size = static_cast<double>(classes);
    for (int64_t c = 0; c < classes; ++c) {
      const auto end = std::lower_bound(targets_.begin(), targets_.end(), static_cast<double>(scores[c]) + 1);
      slopes[c] = is_target_[static_cast<size_t>(c)] ? T(0) : T(static_cast<double>(end - targets_.begin()) / size);
    }
    for (int64_t i = 0; i < classes && labels[i] >= 0; ++i) {
      const auto first = std::upper_bound(others_.begin(), others_.end(), static_cast<double>(scores[labels[i]]) - 1);
      slopes[labels[i]] -= T(static_cast<double>(others_.end() - first) / size);
    }
  }

 private:
  std::vector<char> is_target_;
  std::vector<double> targets_, others_;
};

template <class T>
void margin_losses(const Tensor& x, const Tensor& labels, const Tensor& losses, const Tensor& slopes) {
  constexpr int64_t kPartElements = 2048;
  const int64_t classes = x.size(1);
  const T* const scores = view_of(x).as<const T>();
  const auto* const ids = view_of(labels).as<const int64_t>();
  parallel_for(x.size(0), std::max<int64_t>(kPartElements / classes, 1), [&](int64_t begin, int64_t end) {
    MarginRow row;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * classes;
      view_of(losses).as<T>()[i] = T(row.sum(scores + at, ids + at, classes) / static_cast<double>(classes));
      if (slopes.defined()) row.slopes(scores + at, ids + at, classes, view_of(slopes).as<T>() + at);
    }
  });
}

/// Returns the losses of the rows of finite scores on the host.
Tensor sorted_margin_losses(const char* op, const Tensor& x_in, const Tensor& labels) {
  const Tensor x = x_in.contiguous();
  const int64_t classes = x.size(1);
  const auto* const ids = view_of(labels).as<const int64_t>();
  for (int64_t row = 0; row < x.numel(); row += classes)
    for (int64_t i = row; i < row + classes && ids[i] >= 0; ++i)
      REEL_CHECK(ids[i] < classes, op, ": target ", ids[i], " is out of range for ", classes, " classes");
  const Tensor losses = make_tensor({x.size(0)}, x.dtype(), x.device());
  const bool records = recording(x_in);
  const Tensor slopes = records ? make_tensor(x.shape(), x.dtype(), x.device()) : Tensor();
  x.dtype() == kFloat64 ? margin_losses<double>(x, labels, losses, slopes)
                        : margin_losses<float>(x, labels, losses, slopes);
  if (records)
    record(op, losses, inputs(x_in), [slopes = SavedTensor(slopes)](Backward& back) {
      back.set(0, back.grad().unsqueeze(1) * back.get(slopes));
    });
  return losses;
}

}  // namespace

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  constexpr Op op = "multilabel_margin_loss";
  check_scores(op, x);
  REEL_CHECK(x.dim() <= 2 && view_of(target, op).shape == x.shape(), op, ": scores of shape ", x.shape(),
             " but a target of shape ", target.shape());
  return call(op, {x, target}, {}, [&](const Tensor& x, const Tensor& target) {
    if (x.dim() == 1) {
      const Tensor y = multilabel_margin_loss(x.unsqueeze(0), target.unsqueeze(0), reduction);
      return y.dim() ? y.squeeze(0) : y;
    }
    const int64_t n = x.size(0), classes = x.size(1);
    const Tensor labels = as_ids(op, target);
    if (is_readable(x) && is_readable(labels) && x.numel() && all(isfinite(x.detach())).item<bool>())
      return reduced(op, sorted_margin_losses(op, x, labels), reduction);
    const Tensor named = cumsum(labels < 0, 1) == 0;
    const int64_t max_targets = n && classes ? max(sum(named, 1)).item<int64_t>() : 0;
    const Tensor some = named.narrow(1, 0, max_targets), ids = where(some, labels.narrow(1, 0, max_targets), 0);
    check_range(op, ids, classes);
    const Tensor is_target =
        scatter_add(zeros({n, classes}, {.dtype = kInt64, .device = x.device()}), 1, ids, some.to(kInt64)) > 0;
    const Tensor gaps = relu(1 - gather(x, 1, ids).unsqueeze(2) + x.unsqueeze(1));  // [n, target, class]
    const Tensor counts = some.unsqueeze(2) & !is_target.unsqueeze(1);
    return reduced(op, sum(where(counts, gaps, 0), {1, 2}) / static_cast<double>(classes), reduction);
  });
}

// ---- differences ----------------------------------------------------------------------------------------------------

namespace {

/// Losses do not broadcast: of [n, 1] and [n] there would be n² of them. Only a number (a 0-d tensor) is the target of
/// all elements.
void check_target(const char* op, const Tensor& input, const Tensor& target) {
  const Shape &shape = view_of(input, op).shape, &given = view_of(target, op).shape;
  REEL_CHECK(given.empty() || given == shape, op, ": input of shape ", shape, " and target of shape ", given);
}

/// Returns f(a, b, others…), reduced, in the type that losses of a and b are computed in; the result has the type that
/// they promote to. With kEachElement f computes the loss of each element from that of each operand.
constexpr bool kEachElement = true;
template <bool each_element = false, class F, class... Others>
Tensor loss_of(Op op, Reduction reduction, const Tensor& a, const Tensor& b, const F& f, const Others&... others) {
  check_target(op, a, b);
  return call(op, {a, b}, {}, [&](const Tensor& a, const Tensor& b) {
    const DType dtype = result_type(a, b), wide = compute_dtype(dtype);
    REEL_CHECK(is_floating_point(dtype), op, ": ", a.dtype(), " and ", b.dtype(),
               " tensors, neither of a floating point type");
    if constexpr (each_element)
      if (const Tensor y = losses_in_blocks(reduction, wide, f, a, b, others...); y.defined()) return y.to(dtype);
    return reduced(op, f(without_number(a.to(wide)), without_number(b.to(wide)), others.to(wide)...), reduction)
        .to(dtype);
  });
}

void check_same_shape(const char* op, const Tensor& input, const Tensor& target) {
  REEL_CHECK(view_of(input, op).shape == view_of(target, op).shape, op, ": input of shape ", input.shape(),
             " and target of shape ", target.shape());
}

/// y, or t, times a weight that broadcasts to it, if there is one.
Tensor weighted(const char* op, const Tensor& y, const Tensor& weight) {
  if (!weight.defined()) return y;
  const Shape &shape = y.shape(), &given = view_of(weight).shape;
  REEL_CHECK(broadcast_shapes(shape, given, op) == shape, op, ": a weight of shape ", given, " for shape ", shape);
  return y * weight.to(y.dtype());
}

/// max(0, x)
Tensor hinge(const Tensor& x) { return clamp(x, 0); }

/// Returns f(x, t) by the kernel of the functor or, where the parts of ops are written down, by its formula.
template <class F>
Tensor losses_by(Op op, const F& f, const Tensor& x, const Tensor& t) {
  if (is_tracing()) return f(x, t);
  const Device device = common_device(op, {&x, &t});
  const Tensor a = x.to(device);
  return binary_same(op, a, t.to(device), a, f);
}

}  // namespace

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return loss_of<kEachElement>("l1_loss", reduction, input, target,
                               [](const Tensor& x, const Tensor& t) { return abs(x - t); });
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  constexpr Op op = "mse_loss";
  return loss_of<kEachElement>(op, reduction, input, target, [&](const Tensor& x, const Tensor& t) {
    return losses_by(op, functors::SquaredError(), x, t);
  });
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& options) {
  constexpr Op op = "smooth_l1_loss";
  const double beta = options.beta;
  REEL_CHECK(beta >= 0, op, ": beta ", beta, " is negative");
  return loss_of<kEachElement>(op, options.reduction, input, target, [&](const Tensor& x, const Tensor& t) {
    return beta == 0 ? abs(x - t) : losses_by(op, functors::HuberError{beta, beta}, x, t);
  });
}

Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& options) {
  constexpr Op op = "huber_loss";
  REEL_CHECK(options.delta > 0, op, ": delta ", options.delta, " is not positive");
  return loss_of<kEachElement>(op, options.reduction, input, target, [&](const Tensor& x, const Tensor& t) {
    return losses_by(op, functors::HuberError{options.delta, 1}, x, t);
  });
}

// ---- probabilities --------------------------------------------------------------------------------------------------

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, const BCELossOptions& options) {
  constexpr Op op = "binary_cross_entropy";
  check_same_shape(op, probability, target);
  return call(op, {probability}, {}, [&](const Tensor& probability) {
    const Tensor p = to_float(probability), t = target.to(p.dtype());
    check_values(
        p, [&] { return !((p >= 0) & (p <= 1)); }, op,
        ": the input is not a probability, some element is outside [0, 1]");
    check_values(
        t, [&] { return !((t >= 0) & (t <= 1)); }, op,
        ": the target is not a probability, some element is outside [0, 1]");
    const auto losses = [](const Tensor& pt, const Tensor& tt) {
      return -(tt * clamp(log(pt), -100) + (1 - tt) * clamp(log1p(-pt), -100));
    };
    const Tensor y = no_grad([&] { return losses(p, t); });
    if (recording(p, t))
      record(op, y, inputs(p, t), [p = SavedTensor(p), t = SavedTensor(t)](Backward& back) {
        const Tensor &g = back.grad(), pt = back.get(p), tt = back.get(t);
        // The exact slope but for the poles, as PyTorch has it.
        if (back.needs(0)) back.set(0, g * (pt - tt) / maximum((1 - pt) * pt, 1e-12));
        if (back.needs(1)) back.set(1, g * (clamp(log1p(-pt), -100) - clamp(log(pt), -100)));
      });
    return reduced(op, weighted(op, y, options.weight), options.reduction);
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BCEWithLogitsLossOptions& options) {
  constexpr Op op = "binary_cross_entropy_with_logits";
  check_same_shape(op, logits, target);
  return loss_of(op, options.reduction, logits, target, [&](const Tensor& x, const Tensor& t) {
    if (!options.pos_weight.defined())
      return weighted(op, losses_by(op, functors::LogisticLoss(), x, t), options.weight);
    // log(1 - σ(x)) is log σ(-x): each term is exact by itself, so nothing cancels.
    const Tensor share = weighted(op, t, options.pos_weight);
    return weighted(op, -(share * logsigmoid(x) + (1 - t) * logsigmoid(-x)), options.weight);
  });
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultiLabelSoftMarginLossOptions& options) {
  constexpr Op op = "multilabel_soft_margin_loss";
  check_same_shape(op, x, target);
  return loss_of(op, options.reduction, x, target, [&](const Tensor& z, const Tensor& t) {
    return mean(binary_cross_entropy_with_logits(z, t, {.weight = options.weight, .reduction = kNoReduction}), -1);
  });
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivLossOptions& options) {
  const bool per_batch = options.reduction == kBatchMean && view_of(input, "kl_div").shape.size() > 0;
  const Reduction reduction = options.reduction == kBatchMean ? kSum : options.reduction;
  const Tensor y = loss_of<kEachElement>("kl_div", reduction, input, target, [&](const Tensor& x, const Tensor& t) {
    if (options.log_target) return exp(t) * (t - x);
    return t * log(where(t == 0, 1, t)) - t * x;
  });
  return per_batch ? y / static_cast<double>(input.size(0)) : y;
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossOptions& options) {
  return loss_of<kEachElement>(
      "poisson_nll_loss", options.reduction, input, target, [&](const Tensor& x, const Tensor& t) {
        const Tensor y = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
        if (!options.full) return y;
        const Tensor large = where(t > 1, t, 1);
        const Tensor stirling = large * log(large) - large + 0.5 * log(2 * std::numbers::pi * large);
        return y + where(t > 1, stirling, 0);
      });
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLLossOptions& options) {
  constexpr Op op = "gaussian_nll_loss";
  REEL_CHECK(options.eps > 0, op, ": eps ", options.eps, " is not positive");
  view_of(var, op);
  check_values(
      var, [&] { return var < 0; }, op, ": a variance is negative");
  const Shape &shape = view_of(input, op).shape, &given = view_of(var).shape;
  Shape without_last = shape;
  if (shape.size()) without_last.resize(shape.size() - 1);
  const Tensor spread = shape.size() && !(given == shape) && given == without_last ? var.unsqueeze(-1) : var;
  REEL_CHECK(broadcast_shapes(spread.shape(), shape, op) == shape, op, ": an input of shape ", shape,
             " and variances of shape ", given);
  return loss_of<kEachElement>(
      op, options.reduction, input, target,
      [&](const Tensor& x, const Tensor& t, const Tensor& v) {
        const Tensor bounded = v + no_grad([&] { return clamp(v, options.eps) - v; });
        const Tensor y = 0.5 * (log(bounded) + square(x - t) / bounded);
        return options.full ? y + 0.5 * std::log(2 * std::numbers::pi) : y;
      },
      spread);
}

// ---- margins --------------------------------------------------------------------------------------------------------

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss_of<kEachElement>("soft_margin_loss", reduction, x, target,
                               [](const Tensor& z, const Tensor& t) { return softplus(-t * z, 1, 40); });
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, const HingeEmbeddingLossOptions& options) {
  return loss_of<kEachElement>("hinge_embedding_loss", options.reduction, x, target,
                               [&](const Tensor& z, const Tensor& t) {
                                 // A target that is neither gets both, as in PyTorch.
                                 return where(t == -1, 0, z) + where(t == 1, 0, hinge(options.margin - z));
                               });
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, const MarginLossOptions& options) {
  constexpr Op op = "margin_ranking_loss";
  check_target(op, a, target);
  return loss_of<kEachElement>(
      op, options.reduction, a, b,
      [&](const Tensor& x, const Tensor& y, const Tensor& t) { return hinge(t * (y - x) + options.margin); }, target);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, const MarginLossOptions& options) {
  constexpr Op op = "cosine_embedding_loss";
  const Shape &shape = view_of(a, op).shape, &of_target = view_of(target, op).shape;
  const int rank = of_target.size();
  REEL_CHECK(
      rank <= 1 && shape.size() == rank + 1 && view_of(b, op).shape == shape && (rank == 0 || of_target[0] == shape[0]),
      op, ": vectors of shape ", shape, " and ", b.shape(), " with a target of shape ", of_target);
  return loss_of(op, options.reduction, a, b, [&](const Tensor& x, const Tensor& y) {
    constexpr double kLeast = 1e-12;  // PyTorch's, too
    const Tensor norms = (sum(square(x), -1) + kLeast) * (sum(square(y), -1) + kLeast);
    const Tensor cosine = sum(x * y, -1) / sqrt(norms);
    return where(target == 1, 1 - cosine, 0) + where(target == -1, hinge(cosine - options.margin), 0);
  });
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options) {
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return options.distance ? options.distance(a, b) : pairwise_distance(a, b);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return loss_of("triplet_margin_loss", options.reduction, near, far,
                 [&](const Tensor& x, const Tensor& y) { return hinge(x - y + options.margin); });
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options) {
  constexpr Op op = "triplet_margin_loss";
  const int rank = view_of(anchor, op).shape.size();
  REEL_CHECK(rank == view_of(positive, op).shape.size() && rank == view_of(negative, op).shape.size(), op,
             ": vectors of shape ", anchor.shape(), ", ", positive.shape(), " and ", negative.shape());
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, {.p = options.p, .eps = options.eps});
  };
  return call(
      op, {anchor, positive, negative}, {}, [&](const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
        return triplet_margin_with_distance_loss(
            anchor, positive, negative,
            {.distance = distance, .margin = options.margin, .swap = options.swap, .reduction = options.reduction});
      });
}

}  // namespace reel
