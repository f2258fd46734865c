// This file has what makes one call of the cross_entropy of several examples.
#pragma once
#include <optional>

#include "reel/base/detail/no_suspend_guard.h"
#include "reel/ops/loss.h"

namespace reel {

/// RowLosses are the loss of each row, float32 for half types, and the ids of their classes. Those of ignored rows are
/// negative.
struct RowLosses {
  Tensor losses, ids;
};
using RowLossesOf = RowLosses(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options);

/// Returns the loss of logits [n, classes, d…] and a target that is classes, without class weights, if it was computed
/// as one with those of other examples, by row_losses. If there were none, `alone` keeps its parts from waiting.
std::optional<Tensor> joined_cross_entropy(const Tensor& logits, const Tensor& target,
                                           const CrossEntropyLossOptions& options, DType result_type,
                                           RowLossesOf& row_losses, std::optional<detail::NoSuspendGuard>& alone);

}  // namespace reel
