#pragma once
#include <span>

#include "reel/ops/common.h"

/// Recurrent cells: the pointwise parts; products are the caller's.
namespace reel {

struct CellState {
  Tensor h, c;
};
/// gates [n, 4H] = input, forget, cell, output pre-activations in PyTorch's order i f g o; c [n, H]:
/// c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c').
CellState lstm_cell(const Tensor& gates, const Tensor& c);
/// N-ary Tree-LSTM (Tai et al. 2015, eq. 9–14) for N = children.size() ≥ 0 with memory cells [n, H] each.
/// gates [n, (3 + N) H] holds the pre-activations in the order i, f_1 … f_N, o, u:
/// c = σ(i) tanh(u) + Σ σ(f_k) c_k, h = σ(o) tanh(c).
/// A Child-Sum Tree-LSTM (eq. 2–8) is the same with its own way to the gates.
CellState tree_lstm_cell(const Tensor& gates, std::span<const Tensor> children);
inline CellState tree_lstm_cell(const Tensor& gates, std::initializer_list<Tensor> children) {
  return tree_lstm_cell(gates, std::span(children.begin(), children.size()));
}

}  // namespace reel
