#pragma once
#include <optional>
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Sequences of different lengths as one tensor.
namespace reel {

/// Sequences [len, …] without padding, PyTorch's layout: first the elements at time 0 of all of them, the longest
/// sequence first, then those at time 1, and so on. Step t has batch_sizes[t] rows, never more than step t - 1.
struct PackedSequence {
  Tensor data;         ///< [total, …]
  Tensor batch_sizes;  ///< int64 [longest length], on the CPU
  ///@{
  /// int64 [n]: the sequences in their order in here, and where in here each of them is; undefined where they were
  /// packed in the order of their lengths. Results per sequence (the states of an LSTM) are in the original order.
  Tensor sorted_indices = {}, unsorted_indices = {};
  ///@}

  PackedSequence to(DType dtype) const;    ///< With `data` of that dtype.
  PackedSequence to(Device device) const;  ///< With all but batch_sizes there.
};

/// Packs sequences [len_i, …] of at least one element each. In any order. (PyTorch's default is enforce_sorted, with
/// which a sequence longer than the one before it is an Error.)
PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted = false);
/// The opposite: the sequences in their original order.
std::vector<Tensor> unpack_sequence(const PackedSequence& packed);

/// Packs the first lengths[i] elements of the sequences in `padded`, [longest, n, …] or, batch_first, [n, longest, …].
PackedSequence pack_padded_sequence(const Tensor& padded, const std::vector<int64_t>& lengths, bool batch_first = false,
                                    bool enforce_sorted = false);
/// What pad_packed_sequence returns.
struct PaddedSequence {
  Tensor data;                   ///< [longest, n, …] or, batch_first, [n, longest, …].
  std::vector<int64_t> lengths;  ///< Of each sequence.
};
/// The opposite: positions past the end of a sequence hold padding_value, up to the longest one's length or
/// total_length.
PaddedSequence pad_packed_sequence(const PackedSequence& packed, bool batch_first = false, Scalar padding_value = 0,
                                   std::optional<int64_t> total_length = {});

/// Sequences [len_i, …] as one tensor [longest, n, …] or, batch_first, [n, longest, …].
Tensor pad_sequence(TensorList sequences, bool batch_first = false, Scalar padding_value = 0);
/// The opposite: views of the first lengths[i] elements.
std::vector<Tensor> unpad_sequence(const Tensor& padded, const std::vector<int64_t>& lengths, bool batch_first = false);

}  // namespace reel
#pragma GCC visibility pop
