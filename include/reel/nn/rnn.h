#pragma once
#include "reel/nn/module.h"
#include "reel/ops.h"

namespace reel::nn {

struct LSTMCellOptions {
  bool bias = true;
};

/// One step of an LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000): for x [n, input_size]
/// and the state h, c [n, hidden_size] (zero where undefined) the new state.
///
///   i, f, g, o = split(x · weight_ihᵀ + bias_ih + h · weight_hhᵀ + bias_hh)
///   c' = σ(f) c + σ(i) tanh(g),  h' = σ(o) tanh(c')
///
/// Names, gate order and initial values (uniform in ±1/√hidden_size) are PyTorch's: weight_ih [4 hidden, input],
/// weight_hh [4 hidden, hidden], bias_ih and bias_hh [4 hidden].
struct LSTMCell : Layer<LSTMCell> {
  LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellOptions options = {});
  LSTMCell(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, LSTMCellOptions options = {})
      : LSTMCell(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  CellState forward(const Tensor& x, const CellState& state = {}) const;
  CellState operator()(const Tensor& x, const CellState& state = {}) const { return Layer::operator()(x, state); }
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;
};

}  // namespace reel::nn
