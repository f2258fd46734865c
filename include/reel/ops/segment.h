#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Reductions over ragged rows: sequences of different lengths, concatenated, never padded.
///
/// Segment s of x [n, …] is the rows offsets[s] to offsets[s + 1]; offsets is int64 [segments + 1], begins with 0, is
/// non-decreasing and ends with n. Segments may be empty. Offsets that break these rules throw; checking them
/// synchronizes with a GPU.
namespace reel {

/// [segments, …]: the kSum, kMean, kMax or kMin of the rows of each segment. An empty segment gives 0 for kSum and
/// kMean, -infinity for kMax and infinity for kMin (as in PyTorch, except that its mean of an empty segment is NaN).
/// Ties share the gradient evenly.
Tensor segment_reduce(const Tensor& x, const Tensor& offsets, Reduce reduce = Reduce::kSum);
/// The softmax over the rows of each segment, for each of the other positions: attention over sequences, or over the
/// neighbours of a node.
Tensor segment_softmax(const Tensor& x, const Tensor& offsets);
/// x [segments, …] with row s repeated for each row of segment s: [n, …].
Tensor segment_expand(const Tensor& x, const Tensor& offsets);
/// [0, l0, l0 + l1, …] for int64 [segments] lengths.
Tensor segment_offsets(const Tensor& lengths);

}  // namespace reel
#pragma GCC visibility pop
