#pragma once
#include <vector>

#include "reel/ops/common.h"
#include "reel/ops/packed.h"

#pragma GCC visibility push(default)
/// Recurrent nets: whole sequences, and single steps.
namespace reel {

// ---- sequences ------------------------------------------------------------------------------------------------------

/// The state of an LSTM.
struct CellState {
  Tensor h;  ///< The hidden state, which is also the output of a step.
  Tensor c;  ///< The memory cell.
  /// Both without their history: what truncated back-propagation carries over.
  CellState detach() const { return {h.detach(), c.detach()}; }
};
/// What lstm returns.
template <class Sequence>
struct LSTMResult {
  Sequence output;  ///< Of every step, in the form of the input.
  CellState state;  ///< After the last step: [layers · directions, n, hidden].
};
/// What gru, rnn_tanh and rnn_relu return.
template <class Sequence>
struct RNNResult {
  Sequence output;  ///< Of every step, in the form of the input.
  Tensor h;         ///< The state after the last step: [layers · directions, n, hidden].
};

/// Of lstm, gru, rnn_tanh and rnn_relu.
struct RecurrentOptions {
  int64_t num_layers = 1;        ///< Each layer takes the outputs of the one before it.
  bool bias = true;              ///< Whether the parameters have biases.
  bool batch_first = false;      ///< A tensor of sequences is [n, len, in] instead of [len, n, in].
  double dropout = 0;            ///< Between layers, when training.
  bool bidirectional = false;    ///< A second cell per layer runs from the end to the beginning; outputs are joined.
  bool training = false;         ///< Whether dropout is applied.
  double input_dropout = 0;      ///< Of each layer's inputs, by one mask for all steps of a sequence, when training.
  double recurrent_dropout = 0;  ///< Of h where a step multiplies it with W_hh, by one mask for all steps likewise.
};

/// Recurrent layers over whole sequences, which are one of
/// - a tensor [len, in]: one sequence; outputs [len, directions · hidden], states [layers · directions, hidden],
/// - a tensor [len, n, in] (batch_first: [n, len, in]): sequences of one length,
/// - a PackedSequence, or a list of tensors [len_i, in], of any lengths; there is no padding. Sequences of a list or a
///   Ragged may be empty.
///
/// The state before the first step is zero where it is undefined; of an LSTM's h and c also one alone.
///
/// `parameters`, PyTorch's: for each layer, forwards and then, if bidirectional, backwards, weight_ih [G hidden, in],
/// weight_hh [G hidden, hidden], and unless bias is false bias_ih and bias_hh [G hidden]. Layers but the first have
/// directions · hidden inputs. Per layer and direction there is one product for all inputs and, in backward, one for
/// each weight; individual steps are not recorded.
///
/// Variational dropout (Gal & Ghahramani 2016) is input_dropout and recurrent_dropout: every sequence, layer and, for
/// the state, direction draws a mask m of 0 (with the given probability p) or 1 / (1 - p), and x ∘ m and W_hh (h ∘ m)
/// stand below for x and W_hh h in all steps of the call, with each gate the same m. Outputs, states, a GRU's z h and c
/// are not dropped. A sequence that is read in pieces gets new masks for each piece.

///@{
/// A long short-term memory (Hochreiter & Schmidhuber 1997) with the forget gate of Gers et al. 2000. G = 4:
///   i, f, g, o = split(W_ih x + b_ih + W_hh h + b_hh)    c' = σ(f) c + σ(i) tanh(g)    h' = σ(o) tanh(c')
/// With a fifth parameter weight_hr [proj, hidden], h' = W_hr (σ(o) tanh(c')) (Sak et al. 2014): h has proj columns
/// wherever `hidden` stands above, c keeps hidden.
LSTMResult<Tensor> lstm(const Tensor& x, const CellState& state, TensorList parameters,
                        const RecurrentOptions& options = {});
LSTMResult<PackedSequence> lstm(const PackedSequence& x, const CellState& state, TensorList parameters,
                                const RecurrentOptions& options = {});
LSTMResult<std::vector<Tensor>> lstm(TensorList sequences, const CellState& state, TensorList parameters,
                                     const RecurrentOptions& options = {});
///@}

///@{
/// Gated recurrent units (Cho et al. 2014) in PyTorch's form, with b_hn inside the product with r. G = 3:
///   r, z = σ(split(W_i x + b_i + W_h h + b_h))    n = tanh(W_in x + b_in + r (W_hn h + b_hn))    h' = (1 - z) n + z h
RNNResult<Tensor> gru(const Tensor& x, const Tensor& h, TensorList parameters, const RecurrentOptions& options = {});
RNNResult<PackedSequence> gru(const PackedSequence& x, const Tensor& h, TensorList parameters,
                              const RecurrentOptions& options = {});
RNNResult<std::vector<Tensor>> gru(TensorList sequences, const Tensor& h, TensorList parameters,
                                   const RecurrentOptions& options = {});
///@}

///@{
/// An Elman net (Elman 1990). G = 1: h' = tanh(W_ih x + b_ih + W_hh h + b_hh)
RNNResult<Tensor> rnn_tanh(const Tensor& x, const Tensor& h, TensorList parameters,
                           const RecurrentOptions& options = {});
RNNResult<PackedSequence> rnn_tanh(const PackedSequence& x, const Tensor& h, TensorList parameters,
                                   const RecurrentOptions& options = {});
RNNResult<std::vector<Tensor>> rnn_tanh(TensorList sequences, const Tensor& h, TensorList parameters,
                                        const RecurrentOptions& options = {});
///@}

///@{
/// An Elman net with max(0, ·) instead of tanh.
RNNResult<Tensor> rnn_relu(const Tensor& x, const Tensor& h, TensorList parameters,
                           const RecurrentOptions& options = {});
RNNResult<PackedSequence> rnn_relu(const PackedSequence& x, const Tensor& h, TensorList parameters,
                                   const RecurrentOptions& options = {});
RNNResult<std::vector<Tensor>> rnn_relu(TensorList sequences, const Tensor& h, TensorList parameters,
                                        const RecurrentOptions& options = {});
///@}

// ---- single steps ---------------------------------------------------------------------------------------------------

///@{
/// One step of the above: x [n, in], states [n, hidden], each zero where undefined; the new state. The biases may be
/// undefined, both of them.
CellState lstm_cell(const Tensor& x, const CellState& state, const Tensor& weight_ih, const Tensor& weight_hh,
                    const Tensor& bias_ih = {}, const Tensor& bias_hh = {});
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& weight_ih, const Tensor& weight_hh,
                const Tensor& bias_ih = {}, const Tensor& bias_hh = {});
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& weight_ih, const Tensor& weight_hh,
                     const Tensor& bias_ih = {}, const Tensor& bias_hh = {});
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& weight_ih, const Tensor& weight_hh,
                     const Tensor& bias_ih = {}, const Tensor& bias_hh = {});
///@}

/// The pointwise part alone; products are the caller's.
/// gates [n, 4H] = input, forget, cell, output pre-activations in PyTorch's order i f g o; c [n, H]:
/// c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c').
CellState lstm_cell(const Tensor& gates, const Tensor& c);
///@{
/// N-ary Tree-LSTM (Tai et al. 2015, eq. 9–14) for N = children.size() ≥ 0 with memory cells [n, H] each.
/// gates [n, (3 + N) H] holds the pre-activations in the order i, f_1 … f_N, o, u:
///   c = σ(i) tanh(u) + Σ σ(f_k) c_k    h = σ(o) tanh(c)
/// A Child-Sum Tree-LSTM (eq. 2–8) differs only in how the gates are computed.
CellState tree_lstm_cell(const Tensor& gates, TensorList children);
///@}

}  // namespace reel
#pragma GCC visibility pop
