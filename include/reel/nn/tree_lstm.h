#pragma once
#include <initializer_list>
#include <span>

#include "reel/nn/module.h"
#include "reel/ops.h"

#pragma GCC visibility push(default)
// Tree-structured LSTMs (Tai, Socher & Manning 2015, "Improved Semantic Representations From Tree-Structured Long
// Short-Term Memory Networks"). A cell maps a node's input and its children's states to the node's state; nodes of one
// arity may be batched as rows.
namespace reel::nn {

/// The cell whose children are an unordered set of any size (eq. 2–8). For node j with children k, h~ = Σ h_k:
///
///   i = σ(Wᵢ x + Uᵢ h~ + bᵢ)   o = σ(Wₒ x + Uₒ h~ + bₒ)   u = tanh(Wᵤ x + Uᵤ h~ + bᵤ)
///   f_k = σ(W_f x + U_f h_k + b_f)        c = i u + Σ f_k c_k        h = o tanh(c)
///
/// Parameters: weight_x [4 hidden, input] and bias [4 hidden] in the order i, o, u, f; weight_h [3 hidden, hidden] in
/// the order i, o, u; weight_f [hidden, hidden]. All start uniform in ±1/√hidden.
struct ChildSumTreeLSTM : Layer<ChildSumTreeLSTM> {
  ChildSumTreeLSTM(int64_t input_size, int64_t hidden_size);
  ChildSumTreeLSTM(Module& parent, std::string name, int64_t input_size, int64_t hidden_size)
      : ChildSumTreeLSTM(input_size, hidden_size) {
    parent.register_module(std::move(name), *this);
  }
  /// x [n, input] or, for a node without an input of its own, undefined; the children's states [n, hidden] each. A leaf
  /// has no children and must have an x.
  CellState forward(const Tensor& x, std::span<const CellState> children = {}) const;
  CellState operator()(const Tensor& x, std::span<const CellState> children = {}) const {
    return Layer::operator()(x, children);
  }
  CellState operator()(const Tensor& x, std::initializer_list<CellState> children) const {
    return Layer::operator()(x, std::span(children.begin(), children.size()));
  }
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  Parameter weight_x, bias, weight_h, weight_f;

 private:
  CellState compute(const Tensor& x, std::span<const CellState> children) const;
};

/// Options of NaryTreeLSTM.
struct NaryTreeLSTMOptions {
  int64_t arity = 2;         ///< The most children that a node has, at most NaryTreeLSTM::kMaxArity.
  bool inner_input = false;  ///< Inner nodes may have an input, too, not only leaves.
};

/// The cell whose children are ordered, with weights of its own for each position (eq. 9–14). Node j with children
/// 1 … N:
///
///   i = σ(Wᵢ x + Σ Uᵢₗ h_l + bᵢ)   o, u likewise   f_k = σ(W_f x + Σ U_fkl h_l + b_f)
///   c = i u + Σ f_k c_k        h = o tanh(c)
///
/// Children that a node lacks (it has fewer than N, but not none) count as zero. Parameters: weight_x [3 hidden, input]
/// and bias_x [3 hidden] in the order i, o, u; weight_h [(3 + N) hidden, N hidden] and bias_h [(3 + N) hidden] in the
/// order i, f_1 … f_N, o, u, weight_h and bias_h are used at inner nodes only, weight_x and bias_x at nodes with an
/// input. With inner_input weight_x and bias_x have 4 blocks, i, f, o, u. All start uniform in ±1/√hidden.
struct NaryTreeLSTM : Layer<NaryTreeLSTM> {
  static constexpr int64_t kMaxArity = 16;

  NaryTreeLSTM(int64_t input_size, int64_t hidden_size, NaryTreeLSTMOptions options = {});
  NaryTreeLSTM(Module& parent, std::string name, int64_t input_size, int64_t hidden_size,
               NaryTreeLSTMOptions options = {})
      : NaryTreeLSTM(input_size, hidden_size, options) {
    parent.register_module(std::move(name), *this);
  }
  /// A leaf: x [n, input] and no children. An inner node: the states of its children, [n, hidden] each, and x where
  /// inner_input allows it, undefined otherwise.
  CellState forward(const Tensor& x, std::span<const CellState> children = {}) const;
  CellState operator()(const Tensor& x, std::span<const CellState> children = {}) const {
    return Layer::operator()(x, children);
  }
  CellState operator()(const Tensor& x, std::initializer_list<CellState> children) const {
    return Layer::operator()(x, std::span(children.begin(), children.size()));
  }
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  const NaryTreeLSTMOptions options;
  Parameter weight_x, bias_x, weight_h, bias_h;

 private:
  CellState compute(const Tensor& x, std::span<const CellState> children) const;
};

}  // namespace reel::nn
#pragma GCC visibility pop
