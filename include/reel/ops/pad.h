#pragma once
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Padding.
namespace reel {

/// The values beyond the edge. kConstant: a given value; kReflect: mirrored at the edge's element, c b | a b c | b a;
/// kReplicate: the edge's element, a a | a b c | c c; kCircular: wraps around, b c | a b c | a b.
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };
///@{
/// The PadMode of that name; kZeros is kConstant.
inline constexpr PadMode kConstant = PadMode::kConstant, kReflect = PadMode::kReflect, kReplicate = PadMode::kReplicate,
                         kCircular = PadMode::kCircular, kZeros = PadMode::kConstant;
///@}

/// x with amounts[0] elements added before and amounts[1] after its last dimension, amounts[2] and amounts[3] around
/// the one before, and so on; negative amounts cut off instead. Any dtype.
///
/// kConstant pads any dimensions, with `value`. The other modes pad the last 1, 2 or 3 dimensions and leave 1 or 2
/// in front of them; kReflect pads by less than the size, kCircular by at most what is left of the size.
Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, PadMode mode = kConstant, Scalar value = 0);

}  // namespace reel
#pragma GCC visibility pop
