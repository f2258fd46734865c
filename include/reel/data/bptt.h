#pragma once
#include <cstdint>
#include <utility>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// One long sequence in pieces, for truncated back-propagation through time.
namespace reel::data {

/// How BpttDataset cuts a sequence.
struct BpttOptions {
  int64_t batch_size = 1;  ///< Sequences that are read side by side.
  int64_t steps = 1;       ///< Steps of each in a piece; the last piece may be shorter.
};

/// One long sequence of token numbers, cut for truncated back-propagation through time (Williams & Peng 1990). It is
/// divided into batch_size parts of one length, which are read side by side, a piece after the other: a recurrent net's
/// state after piece i belongs before piece i + 1, without its graph.
///
///   data::BpttDataset text(ids, {.batch_size = 32, .steps = 64});
///   CellState state;
///   for (int64_t i = 0; i < text.size(); ++i) {
///     const auto [x, y] = text.get(i);       // int64 [steps, batch_size]: the tokens, and those that follow them
///     auto result = lstm(embedding(x), state);
///     state = result.state.detach();
///     …
///
/// Every token but the first is predicted once, but for up to batch_size - 1 at the end.
class BpttDataset {
 public:
  /// Of tokens [n] of any integer dtype, not copied if contiguous; uint8 or int32 saves memory. Fewer than batch_size +
  /// 1 of them are an Error.
  BpttDataset(Tensor tokens, BpttOptions options);
  int64_t size() const;  ///< The number of pieces.
  /// Piece i: x and y, int64 [steps, batch_size] on the device of the tokens. y[t][j] follows x[t][j] in the sequence.
  std::pair<Tensor, Tensor> get(int64_t i) const;
  int64_t num_predictions() const { return length_ * options_.batch_size; }  ///< Elements of the y of all pieces.

 private:
  Tensor tokens_;
  BpttOptions options_;
  int64_t length_;  // of each of the parts
};

}  // namespace reel::data
#pragma GCC visibility pop
