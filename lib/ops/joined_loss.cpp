#include "lib/ops/joined_loss.h"

#include <utility>
#include <vector>

#include "lib/ops/joined_call.h"
#include "lib/ops/ragged.h"
#include "lib/ops/rows.h"

namespace reel {
namespace {

/// JoinedLosses are the losses of one call, whose rows may be a group's with those of other calls: all of them are
/// computed by one kernel, and the rows of each call are added up by one more.
class JoinedLosses final : public JoinedCall {
 public:
  JoinedLosses(Op op, const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options,
               DType result_type, RowLossesOf& row_losses)
      : JoinedCall(&op.info(), typeid(JoinedLosses)),
        logits_(logits),
        target_(target),
        options_(options),
        result_type_(result_type),
        row_losses_(row_losses) {
    add(&logits_), add(&target_);
    rows = view_of(logits).shape[0];
  }
  bool same_arguments(const Call& other) const override {
    const CrossEntropyLossOptions& o = static_cast<const JoinedLosses&>(other).options_;
    return o.reduction == options_.reduction && o.ignore_index == options_.ignore_index &&
           o.label_smoothing == options_.label_smoothing;
  }
  std::string label() const override { return "cross_entropy"; }

  void run_all(RowGroup* group) override {
    std::vector<Tensor> all_logits, all_targets;
    std::vector<int64_t> counts;
    const bool whole_rows = options_.reduction == kNoReduction;
    for_each_call(*this, [&](JoinedLosses& own) {
      all_logits.push_back(own.logits_), all_targets.push_back(own.target_);
      counts.push_back(whole_rows ? own.rows : view_of(own.target_).numel);
    });
    const auto [losses, ids] =
        row_losses_(detail::gather_rows(all_logits, group), detail::gather_rows(all_targets), options_);
    if (whole_rows) return give(detail::scatter_rows(losses.to(result_type_), counts, group));
    const Tensor offsets = LengthsOnDevice{Lengths(counts), losses.device()}.offsets();
    const auto sums = [&](const Tensor& x) {
      return reduce_segments(SegmentOp::kSum, "cross_entropy", x.flatten(), offsets);
    };
    Tensor y = sums(losses);
    if (options_.reduction == kMean) y = y / sums((ids >= 0).to(y.dtype()));
    give(detail::scatter_numbers(y.to(result_type_), group));
  }

  Tensor result;

 private:
  void give(std::vector<Tensor> results) {
    size_t at = 0;
    for_each_call(*this, [&](JoinedLosses& own) { own.result = std::move(results[at++]); });
  }
  const Tensor &logits_, &target_;
  const CrossEntropyLossOptions& options_;
  const DType result_type_;
  RowLossesOf& row_losses_;
};

}  // namespace

std::optional<Tensor> joined_cross_entropy(const Tensor& logits, const Tensor& target,
                                           const CrossEntropyLossOptions& options, DType result_type,
                                           RowLossesOf& row_losses, std::optional<detail::NoSuspendGuard>& alone) {
  if (!JoinedCall::may_wait(logits)) return {};
  if (target.device() != logits.device() && target.device() != kCPU) return {};
  Shape rows = view_of(logits).shape;
  rows.erase(1);
  if (view_of(target).shape != rows) return {};  // an Error of the call's own, or a single number
  JoinedLosses joined("cross_entropy", logits, target, options, result_type, row_losses);
  if (!joined.wait(alone)) return {};
  return std::move(joined.result);
}

}  // namespace reel
