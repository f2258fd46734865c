#pragma once
#include <array>

#include "lib/kernels/recurrence.h"
#include "reel/ops/rnn.h"
#include "reel/tensor.h"

// One layer of a recurrent net, in all its directions: what lib/ops/rnn.cpp stacks and single steps are made of.
namespace reel {

/// Throws an Error in the name of `op` unless all three probabilities are between 0 and 1.
void check_dropout(const char* op, const RecurrentOptions& options);

namespace recurrent {

/// A kind of recurrent net, and the names of its ops.
struct Formula {
  const char* op;
  const char* cell;
  Recurrence::Kind kind;
};

/// How many rows take part in each step.
struct StepSizes {
  int64_t count, rows, total;  // rows: in step 0
  Tensor sizes;                // int64 [count] on the CPU; undefined where it is `rows` in each

  int64_t at(int64_t t) const { return sizes.defined() ? sizes.data<int64_t>()[t] : rows; }
};

// Inputs of a layer, and of the node that records it, in this order; those of a direction follow one after the other.

enum Input { kX, kH, kC, kFirstOfDirection };
// kStateMask, of recurrent dropout: [rows, width], what h is multiplied with before W_hh is.
// The first are a RnnLayer's.
enum Parameter { kWeightIh, kWeightHh, kBiasIh, kBiasHh, kWeightHr, kStateMask, kParameters };
constexpr size_t kMaxInputs = kFirstOfDirection + 2 * kParameters;

/// The inputs.
struct LayerInputs {
  std::array<Tensor, kMaxInputs> all;  // undefined where there is none
  const Tensor& x() const { return all[kX]; }
  const Tensor& of(int direction, Parameter p) const { return all[index(direction, p)]; }
  static size_t index(int direction, Parameter p) { return kFirstOfDirection + direction * kParameters + p; }
};

/// All that is known of a layer before its inputs.
struct RnnLayerConfig {
  const Formula* formula;
  StepSizes steps;
  int directions;
  bool one_step;  // a cell: states are [n, …] instead of [directions, n, …], and there is no output besides
  int64_t hidden, width;

  int64_t gates() const { return gate_count(formula->kind) * hidden; }
  Shape state_shape(int64_t columns) const {
    return one_step ? Shape{steps.rows, columns} : Shape{directions, steps.rows, columns};
  }
  // The node's outputs: h, c of an LSTM, y unless it is one step.
  int output_c() const { return 1; }
  int output_y() const { return formula->kind == Recurrence::kLstm ? 2 : 1; }
};

struct LayerResult {
  Tensor y, h, c;
};

/// All inputs are contiguous, of one dtype, and checked.
LayerResult run_layer(const RnnLayerConfig& layer, const LayerInputs& in);

/// The rows of all steps, each times its sequence's row of the mask [rows, columns]; as they are without a mask.
Tensor masked_rows(const StepSizes& steps, const Tensor& x, const Tensor& mask);

}  // namespace recurrent
}  // namespace reel
