#pragma once
#include "lib/device/kernels/enums.h"
#include "lib/ops/internal.h"
#include "reel/ragged.h"

// What the ops on ragged tensors share.
namespace reel {

/// What is kept of Lengths where a device needs it: int64, made when it is first asked for.
struct LengthsOnDevice {
  const Lengths& lengths;
  Device device;

  Tensor offsets() const;        ///< [n + 1]
  Tensor counts() const;         ///< [n]: the lengths
  Tensor sequences() const;      ///< [total]: which sequence a row is of
  Tensor packed_rows() const;    ///< [total]: which row is there in the order of a PackedSequence
  Tensor packed_places() const;  ///< [total]: the inverse
  Tensor sorted() const;         ///< [n]: the sequences by falling length; equal ones keep their order
  Tensor unsorted() const;       ///< [n]: the inverse
  Tensor step_sizes() const;     ///< [longest], on the CPU: how many sequences have a row at each step
  Tensor not_empty() const;      ///< [m]: the sequences that are not empty
  Tensor starts() const;         ///< [m]: where they begin
  Tensor lengths_of() const;     ///< [m]: their lengths
  /// [total]: where a row is among those of [n, longest] (batch_first) or [longest, n].
  Tensor padded_places(bool batch_first) const;

 private:
  using Fill = void (*)(const Lengths& lengths, std::vector<int64_t>& to);
  Tensor get(int kind, Fill fill) const;
};
/// How many sequences are not empty.
int64_t count_not_empty(const Lengths& lengths);

inline LengthsOnDevice on_device(const Ragged& x) { return {*x.lengths, x.values.device()}; }

/// x's rows in another order: row i is row order[i], and back[order[i]] is i. Recorded.
Tensor permute_rows(const Tensor& x, const Tensor& order, const Tensor& back);

/// Rows [m, …] at `places` (int64 [m], each once) among those of `shape`, [a, b, …] with a b rows; `value` elsewhere.
/// Recorded; its adjoint is take_rows.
Tensor spread_rows(const Tensor& rows, const Tensor& places, const Shape& shape, Scalar value);
/// The rows at `places` of x [a, b, …].
Tensor take_rows(const Tensor& x, const Tensor& places);

// Of segments whose offsets are known to be right (lib/ops/segment.cpp). x of any floating-point type.
Tensor reduce_segments(SegmentOp op, const char* name, const Tensor& x, const Tensor& offsets);
Tensor expand_segments(const char* name, const Tensor& x, const Tensor& offsets, int64_t rows);
Tensor softmax_segments(const char* name, const Tensor& x, const Tensor& offsets);

}  // namespace reel
