#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/nn/module.h"
#include "reel/ops.h"
#include "reel/ragged.h"

#pragma GCC visibility push(default)
// Recurrent nets over whole sequences, and their cells, which take one step. Parameters have PyTorch's names, layouts
// and initial values (uniform in ±1/√hidden_size); the formulas are in ops/rnn.h.
namespace reel::nn {

// Hooks see the tensors in what a list of sequences or a Ragged gives, too.
template <>
struct internal::Look<LSTMResult<std::vector<Tensor>>> {
  static constexpr Kind kind = Kind::kStruct;
};
template <>
struct internal::Look<RNNResult<std::vector<Tensor>>> {
  static constexpr Kind kind = Kind::kStruct;
};

template <>
struct internal::Look<LSTMResult<Ragged>> {
  static constexpr Kind kind = Kind::kStruct;
};
template <>
struct internal::Look<RNNResult<Ragged>> {
  static constexpr Kind kind = Kind::kStruct;
};

// ---- sequences ------------------------------------------------------------------------------------------------------

/// What LSTM, GRU and RNN have in common. Parameters are weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 (LSTM with
/// proj_size: weight_hr_l0), then those of layer 0 in reverse, weight_ih_l0_reverse …, then those of layer 1.
template <class Derived>
struct Recurrent : Layer<Derived> {
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size, proj_size;
  const RecurrentOptions options;  ///< `training` is not used: is_training() decides.
  std::vector<Parameter> weights;  ///< All parameters, in their order.

 protected:
  Recurrent(int64_t input_size, int64_t hidden_size, int64_t proj_size, const RecurrentOptions& options);
  RecurrentOptions now() const;              ///< `options` with `training`.
  std::vector<Tensor> flat_weights() const;  ///< As the ops take them.
  /// Returns the op of the net, a function of sequences of any kind and a state.
  auto op() const;
  /// Returns what the op of the net returns, which may be computed together with other calls of it.
  template <class Sequences, class State>
  auto run(const Sequences& x, const State& state) const;
};

/// Options of LSTM.
struct LSTMOptions {
  int64_t num_layers = 1;        ///< How many are stacked.
  bool bias = true;              ///< Whether there is one.
  bool batch_first = false;      ///< Dense inputs and outputs are [n, len, …] instead of [len, n, …].
  double dropout = 0;            ///< Of the outputs of all layers but the last, in training.
  bool bidirectional = false;    ///< With a second net that reads backwards.
  int64_t proj_size = 0;         ///< Not 0: h is projected to as many columns.
  double input_dropout = 0;      ///< Variational (ops/rnn.h), of each layer's inputs, in training.
  double recurrent_dropout = 0;  ///< The same of h where W_hh is multiplied with it.
};

/// A long short-term memory. Called with x and, unless it is zero, the state before the first step:
///
///   nn::LSTM lstm(128, 50, {.bidirectional = true});
///   auto [y, state] = lstm(x);                // [len, 128] gives y [len, 100], state.h and state.c [2, 50]
///   auto [z, next] = lstm(batch, {h0, c0});   // [len, n, 128] gives z [len, n, 100]; all states [2, n, 50]
///   auto [list, ends] = lstm(sentences);      // tensors [len_i, 128] of any lengths: z_i [len_i, 100]
///   auto [ragged, last] = lstm(Ragged::of(sentences));        // the same without a tensor for each sentence
///   auto [packed, last] = lstm(pack_sequence(sentences));
struct LSTM : Recurrent<LSTM> {
  LSTM(int64_t input_size, int64_t hidden_size, LSTMOptions options = {});
  LSTM(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, LSTMOptions options = {})
      : LSTM(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  ///@{
  /// Returns the outputs of all steps, in the form of the sequences, and the state after the last step. With D = 2 if
  /// bidirectional, otherwise 1, and P = proj_size or, if that is 0, hidden_size:
  /// - x [len, input_size] gives outputs [len, D P]; h is [num_layers D, P] and c [num_layers D, hidden_size];
  /// - x [len, n, input_size], with batch_first [n, len, input_size], gives [len, n, D P] or [n, len, D P]; states have
  ///   n in the middle: h [num_layers D, n, P];
  /// - a PackedSequence, a list of tensors [len_i, input_size] or a Ragged has n sequences of any lengths.
  ///
  /// An undefined h or c is zero. Another shape, dtype or device, and a tensor of no steps, are an Error.
  LSTMResult<Tensor> forward(const Tensor& x, const CellState& state = {}) const;
  LSTMResult<PackedSequence> forward(const PackedSequence& x, const CellState& state = {}) const;
  LSTMResult<std::vector<Tensor>> forward(TensorList sequences, const CellState& state = {}) const;
  LSTMResult<Ragged> forward(const Ragged& x, const CellState& state = {}) const;
  ///@}
  ///@{
  /// forward() of these arguments, with the hooks.
  LSTMResult<Tensor> operator()(const Tensor& x, const CellState& state = {}) const {
    return Layer::operator()(x, state);
  }
  LSTMResult<PackedSequence> operator()(const PackedSequence& x, const CellState& state = {}) const {
    return Layer::operator()(x, state);
  }
  LSTMResult<std::vector<Tensor>> operator()(TensorList sequences, const CellState& state = {}) const {
    return Layer::operator()(sequences, state);
  }
  LSTMResult<Ragged> operator()(const Ragged& x, const CellState& state = {}) const {
    return Layer::operator()(x, state);
  }
  LSTMResult<std::vector<Tensor>> operator()(std::initializer_list<Tensor> list, const CellState& state = {}) const {
    return (*this)(TensorList(list), state);  // {a, b} could be a PackedSequence as well as a TensorList
  }
  ///@}
};

/// A module from sequences and a state h to outputs and the last h, called like an LSTM: auto [y, h] = gru(x, h0).
template <class Derived>
struct OneStateRecurrent : Recurrent<Derived> {
  ///@{
  /// forward() of these arguments, with the hooks.
  RNNResult<Tensor> operator()(const Tensor& x, const Tensor& h = {}) const { return Layer<Derived>::operator()(x, h); }
  RNNResult<PackedSequence> operator()(const PackedSequence& x, const Tensor& h = {}) const {
    return Layer<Derived>::operator()(x, h);
  }
  RNNResult<std::vector<Tensor>> operator()(TensorList sequences, const Tensor& h = {}) const {
    return Layer<Derived>::operator()(sequences, h);
  }
  RNNResult<Ragged> operator()(const Ragged& x, const Tensor& h = {}) const { return Layer<Derived>::operator()(x, h); }
  RNNResult<std::vector<Tensor>> operator()(std::initializer_list<Tensor> list, const Tensor& h = {}) const {
    return (*this)(TensorList(list), h);
  }
  ///@}

 protected:
  using Recurrent<Derived>::Recurrent;
};

/// Options of GRU; see those of LSTM.
struct GRUOptions {
  int64_t num_layers = 1;        ///< How many are stacked.
  bool bias = true;              ///< Whether there is one.
  bool batch_first = false;      ///< [n, len, …] instead of [len, n, …].
  double dropout = 0;            ///< Its probability, in training.
  bool bidirectional = false;    ///< With a second net that reads backwards.
  double input_dropout = 0;      ///< Variational, of inputs, in training.
  double recurrent_dropout = 0;  ///< Variational, of the state, in training.
};

/// Gated recurrent units, called like an LSTM with one state: auto [y, h] = gru(x, h0).
struct GRU : OneStateRecurrent<GRU> {
  GRU(int64_t input_size, int64_t hidden_size, GRUOptions options = {});
  GRU(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, GRUOptions options = {})
      : GRU(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  ///@{
  /// Returns the outputs of all steps and the last h, of the shapes that LSTM::forward has without proj_size.
  RNNResult<Tensor> forward(const Tensor& x, const Tensor& h = {}) const;
  RNNResult<Ragged> forward(const Ragged& x, const Tensor& h = {}) const;
  RNNResult<PackedSequence> forward(const PackedSequence& x, const Tensor& h = {}) const;
  RNNResult<std::vector<Tensor>> forward(TensorList sequences, const Tensor& h = {}) const;
  ///@}
};

/// Options of RNN; see those of LSTM.
struct RNNOptions {
  /// The activation of the state.
  enum Nonlinearity { kTanh, kRelu };
  int64_t num_layers = 1;             ///< How many are stacked.
  Nonlinearity nonlinearity = kTanh;  ///< Of the state.
  bool bias = true;                   ///< Whether there is one.
  bool batch_first = false;           ///< [n, len, …] instead of [len, n, …].
  double dropout = 0;                 ///< Its probability, in training.
  bool bidirectional = false;         ///< With a second net that reads backwards.
  double input_dropout = 0;           ///< Variational, of inputs, in training.
  double recurrent_dropout = 0;       ///< Variational, of the state, in training.
};

/// An Elman net, called like a GRU: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or max(0, …) of that with kRelu.
struct RNN : OneStateRecurrent<RNN> {
  RNN(int64_t input_size, int64_t hidden_size, RNNOptions options = {});
  RNN(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, RNNOptions options = {})
      : RNN(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  ///@{
  /// Returns the outputs of all steps and the last h, of the shapes that LSTM::forward has without proj_size.
  RNNResult<Tensor> forward(const Tensor& x, const Tensor& h = {}) const;
  RNNResult<PackedSequence> forward(const PackedSequence& x, const Tensor& h = {}) const;
  RNNResult<std::vector<Tensor>> forward(TensorList sequences, const Tensor& h = {}) const;
  RNNResult<Ragged> forward(const Ragged& x, const Tensor& h = {}) const;
  ///@}

  const RNNOptions::Nonlinearity nonlinearity;
};

// ---- single steps ---------------------------------------------------------------------------------------------------

/// What the cells have in common: parameters weight_ih [G hidden, input], weight_hh [G hidden, hidden], bias_ih and
/// bias_hh [G hidden], where G is 4 for an LSTM, 3 for a GRU and 1 for an RNN.
template <class Derived>
struct RecurrentCell : Layer<Derived> {
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  Parameter weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  RecurrentCell(int64_t input_size, int64_t hidden_size, int64_t blocks, bool bias);
};

/// Options of LSTMCell.
struct LSTMCellOptions {
  bool bias = true;  ///< Whether there is one.
};

/// One step of an LSTM: for x [n, input_size] and the state h, c [n, hidden_size] (zero where undefined) the new state.
/// All without n for a single example.
struct LSTMCell : RecurrentCell<LSTMCell> {
  LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellOptions options = {});
  LSTMCell(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, LSTMCellOptions options = {})
      : LSTMCell(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  /// Returns the new state; another shape than those above is an Error.
  CellState forward(const Tensor& x, const CellState& state = {}) const;
  /// forward() of these arguments, with the hooks.
  CellState operator()(const Tensor& x, const CellState& state = {}) const { return Layer::operator()(x, state); }
};

/// Options of GRUCell.
struct GRUCellOptions {
  bool bias = true;  ///< Whether there is one.
};

/// One step of a GRU: for x [n, input_size] and h [n, hidden_size] (zero where undefined) the new h. All without n for
/// a single example.
struct GRUCell : RecurrentCell<GRUCell> {
  GRUCell(int64_t input_size, int64_t hidden_size, GRUCellOptions options = {});
  GRUCell(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, GRUCellOptions options = {})
      : GRUCell(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  /// Returns the new h; another shape than those above is an Error.
  Tensor forward(const Tensor& x, const Tensor& h = {}) const;
  /// forward() of these arguments, with the hooks.
  Tensor operator()(const Tensor& x, const Tensor& h = {}) const { return Layer::operator()(x, h); }
};

/// Options of RNNCell.
struct RNNCellOptions {
  bool bias = true;                                           ///< Whether there is one.
  RNNOptions::Nonlinearity nonlinearity = RNNOptions::kTanh;  ///< Of the state.
};

/// One step of an RNN: for x [n, input_size] and h [n, hidden_size] (zero where undefined) the new h. All without n for
/// a single example.
struct RNNCell : RecurrentCell<RNNCell> {
  RNNCell(int64_t input_size, int64_t hidden_size, RNNCellOptions options = {});
  RNNCell(Module& parent, std::string name, int64_t input_size, int64_t hidden_size, RNNCellOptions options = {})
      : RNNCell(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  /// Returns the new h; another shape than those above is an Error.
  Tensor forward(const Tensor& x, const Tensor& h = {}) const;
  /// forward() of these arguments, with the hooks.
  Tensor operator()(const Tensor& x, const Tensor& h = {}) const { return Layer::operator()(x, h); }
  std::string extra_repr() const override;

  const RNNOptions::Nonlinearity nonlinearity;
};

}  // namespace reel::nn
#pragma GCC visibility pop
