// One layer of a recurrent net, in all its directions: lib/ops/rnn.cpp stacks layers and computes single steps by it.
#pragma once
#include <array>

#include "lib/device/kernels/recurrence.h"
#include "lib/ops/op_info.h"
#include "reel/ops/rnn.h"
#include "reel/tensor.h"

namespace reel {

/// Throws an Error in the name of `op` unless all three probabilities are between 0 and 1.
void check_dropout(const char* op, const RecurrentOptions& options);

namespace recurrent {

/// A kind of recurrent net, and the names of its ops.
struct Formula {
  Op op, cell, with_lengths;
  Recurrence::Kind kind;
};

/// The number of rows that take part in each step.
struct StepSizes {
  int64_t count, rows, total;  // rows: in step 0
  Tensor sizes;                // int64 [count] on the CPU; undefined where it is `rows` in each

  int64_t at(int64_t t) const { return sizes.defined() ? sizes.data<int64_t>()[t] : rows; }
};

// The inputs of a layer, and of the node that records it, have this order. Those of a direction follow one another.

enum Input { kX, kH, kC, kFirstOfDirection };
// kStateMask is recurrent dropout's: h is multiplied with it, [rows, width], before it is multiplied with W_hh.
enum Parameter {
  kWeightIh = RnnLayer::kWeightIh,
  kWeightHh = RnnLayer::kWeightHh,
  kBiasIh = RnnLayer::kBiasIh,
  kBiasHh = RnnLayer::kBiasHh,
  kWeightHr,
  kStateMask,
  kParameters
};
constexpr size_t kMaxInputs = kFirstOfDirection + 2 * kParameters;

/// LayerInputs are the inputs of a layer.
struct LayerInputs {
  std::array<Tensor, kMaxInputs> all;  // undefined where there is none
  const Tensor& x() const { return all[kX]; }
  const Tensor& of(int direction, Parameter p) const { return all[index(direction, p)]; }
  static size_t index(int direction, Parameter p) { return kFirstOfDirection + direction * kParameters + p; }
};

/// An RnnLayerConfig is the configuration of a layer: all but its inputs.
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

/// Computes the layer and records it. All inputs are contiguous, of one dtype, and checked.
LayerResult run_layer(const RnnLayerConfig& layer, const LayerInputs& in);

/// Multiplies the rows of all steps with their sequence's row of the mask [rows, columns]. Returns x if there is no
/// mask.
Tensor masked_rows(const StepSizes& steps, const Tensor& x, const Tensor& mask);

}  // namespace recurrent
}  // namespace reel
