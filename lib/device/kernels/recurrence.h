// Arguments of the recurrent kernels: a layer in one direction (Recurrence), and a whole layer (RnnLayer).
#pragma once
#include <array>
#include <cstdint>

#include "lib/functors/number.h"
#include "reel/precision.h"
#include "reel/types.h"

namespace reel {

/// One layer of a recurrent net in one direction, but for the product with its input. It takes `steps` steps over rows
/// that lie one step after the other, `total` in all: sizes[t] at step t (`rows` at each where there are no sizes),
/// never more than at step t - 1; a row's state stays as it is while the row takes no part. `reverse` takes the last
/// step first. G = 4 blocks of `hidden` columns for an LSTM (i f g o), 3 for a GRU (r z n), 1 for the others; h has
/// `width` columns, as many as `hidden` unless w_hr projects it. w_hh is multiplied with h or, for recurrent dropout,
/// with h ∘ mask; nothing else uses the mask. Everything is contiguous, but for rows of y and grad_y.
struct Recurrence {
  enum Kind : uint8_t { kLstm, kGru, kTanh, kRelu } kind;
  DType dtype;  // a floating-point one
  bool reverse;
  int64_t steps, rows, total, hidden, width;
  const int64_t* sizes = nullptr;
  const void* w_hh = nullptr;  // [G hidden, width], or its transpose
  bool w_hh_transposed = false;
  const void* b_hh = nullptr;  // [G hidden] or nullptr
  const void* w_hr = nullptr;  // [width, hidden]
  const void* mask = nullptr;  // [rows, width] or nullptr
  void* masked = nullptr;      // [rows, width] for intermediate results, where there is a mask
  void* gates = nullptr;       // [total, G hidden]: in what the input gives, out the activated gates
  void* h = nullptr;           // [rows, width]: in the first state, out the last
  void* c = nullptr;           // [rows, hidden], the same, LSTM only
  bool zero_h = false;         // the first h is zero
  void* y = nullptr;           // [total, width], every h; or nullptr
  int64_t y_stride = 0;
  // For backward. They are nullptr if nothing is recorded, except `inner` with a projection.
  void* h_before = nullptr;  // [total, width], h before each step
  void* c_before = nullptr;  // [total, hidden]
  void* inner = nullptr;     // [total, hidden]: a GRU's w_hn h + b_hn; o tanh(c) before it is projected
  void* scratch = nullptr;   // [rows, G hidden]
  // Backward, beside the above. gates and the states before each step are read.
  const void* grad_y = nullptr;    // like y
  void* grad_h = nullptr;          // [rows, width]: in the last state's gradient, out the first's
  void* grad_c = nullptr;          // [rows, hidden], the same
  bool first_wanted = true;        // else grad_h need not become the first state's gradient
  void* grad_gates = nullptr;      // [total, G hidden]: of gates as they came in
  void* grad_hidden = nullptr;     // [total, G hidden]: of w_hh h + b_hh; only for a GRU, where it is another
  void* grad_projected = nullptr;  // [total, width]: of each h, where it is projected
};

/// Returns G, the number of blocks of `hidden` columns in a row of gates.
REEL_HD constexpr int64_t gate_count(Recurrence::Kind kind) {
  return kind == Recurrence::kLstm ? 4 : kind == Recurrence::kGru ? 3 : 1;
}

/// A whole layer, with the product with its input, in one or both directions, the second of which takes the last step
/// first. It has neither a projection nor a mask; steps, rows, total, sizes and G are a Recurrence's. Everything is
/// contiguous.
struct RnnLayer {
  Recurrence::Kind kind;
  DType dtype;
  MatmulPrecision precision;  // of float32; backward uses forward's, whatever is set by then
  int directions;
  int64_t steps, rows, total, in, hidden;
  const int64_t* sizes = nullptr;
  // Each direction has weights [G hidden, in] and [G hidden, hidden], and biases [G hidden], which both may be nullptr.
  enum Parameter { kWeightIh, kWeightHh, kBiasIh, kBiasHh, kParameters };
  std::array<const void*, kParameters> parameters[2] = {};
  const void* x = nullptr;        // [total, in]
  const void* first_h = nullptr;  // [directions, rows, hidden], or nullptr for zeros
  const void* first_c = nullptr;  // like first_h, LSTM only
  void* y = nullptr;              // [total, directions hidden]
  void* h = nullptr;              // [directions, rows, hidden], after the last step
  void* c = nullptr;              // like h, LSTM only
  void* reserve_space = nullptr;  // what forward saves for backward; nullptr if nothing is recorded
  int64_t reserve_bytes = 0;      // rnn_layer_workspace's result
  // Backward reads the above but for h and c. Outputs are nullptr if they are not wanted.
  bool retain = false;           // else backward may overwrite reserve_space, and runs no second time
  const void* grad_y = nullptr;  // like y
  const void* grad_h = nullptr;  // like h, or nullptr for zeros
  const void* grad_c = nullptr;
  void* grad_x = nullptr;  // like x; always wanted
  void* grad_first_h = nullptr;
  void* grad_first_c = nullptr;
  std::array<void*, kParameters> grad_parameters[2] = {};
};

}  // namespace reel
