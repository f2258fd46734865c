#include "reel/nn/tree_lstm.h"

#include <array>
#include <cmath>

#include "lib/nn/repr.h"
#include "lib/ops/call.h"
#include "reel/nn/init.h"

namespace reel::nn {
namespace {

void uniform_by_hidden(const Module& cell, int64_t hidden) {
  const double bound = hidden > 0 ? 1 / std::sqrt(hidden) : 0;
  for (const Tensor& parameter : cell.parameters()) init::uniform_(parameter, -bound, bound);
}

void check(const char* cell, const Tensor& x, int64_t input, std::span<const CellState> children, int64_t hidden) {
  REEL_CHECK(x.defined() || !children.empty(), cell, ": a node without children needs an input");
  REEL_CHECK(!x.defined() || (x.dim() == 2 && x.size(1) == input), cell, ": expected x of shape [n, ", input, "], got ",
             x.shape());
  for (size_t k = 0; k < children.size(); ++k) {
    const auto& [h, c] = children[k];
    REEL_CHECK(h.defined() && c.defined(), cell, ": the state of child ", k, " is undefined");
    const Shape shape{x.defined() ? x.size(0) : children[0].h.size(0), hidden};
    REEL_CHECK(h.shape() == shape && c.shape() == shape, cell, ": expected h and c of child ", k, " of shape ", shape,
               ", got ", h.shape(), " and ", c.shape());
  }
}

/// Returns f(x, children), which is one op of x, the children's states and four weights, so that the calls of several
/// examples become one.
template <class F>
CellState call_cell(Op op, const detail::Input (&inputs)[5], std::span<const CellState> children, const F& f) {
  static_assert(sizeof(CellState) == 2 * sizeof(Tensor));
  const std::span<const Tensor> states(reinterpret_cast<const Tensor*>(children.data()), 2 * children.size());
  return call(
      op, inputs, states, {},
      [&](const Tensor& x, const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::span<const Tensor> states) {
        return f(x, {reinterpret_cast<const CellState*>(states.data()), states.size() / 2});
      });
}

}  // namespace

// ---- child-sum ------------------------------------------------------------------------------------------------------

ChildSumTreeLSTM::ChildSumTreeLSTM(int64_t input, int64_t hidden)
    : input_size(input),
      hidden_size(hidden),
      weight_x(*this, "weight_x", empty({4 * hidden, input})),
      bias(*this, "bias", empty({4 * hidden})),
      weight_h(*this, "weight_h", empty({3 * hidden, hidden})),
      weight_f(*this, "weight_f", empty({hidden, hidden})) {
  reset_parameters();
}

void ChildSumTreeLSTM::reset_parameters() { uniform_by_hidden(*this, hidden_size); }

CellState ChildSumTreeLSTM::forward(const Tensor& x, std::span<const CellState> children) const {
  check("ChildSumTreeLSTM", x, input_size, children, hidden_size);
  return call_cell("ChildSumTreeLSTM", {x, weight_x, bias, weight_h, weight_f}, children,
                   [&](const Tensor& x, std::span<const CellState> children) { return compute(x, children); });
}

CellState ChildSumTreeLSTM::compute(const Tensor& x, std::span<const CellState> children) const {
  const int64_t H = hidden_size, count = static_cast<int64_t>(children.size());
  const int64_t n = x.defined() ? x.size(0) : children[0].h.size(0);
  const Tensor from_x = x.defined() ? linear(x, weight_x, bias) : bias.expand({n, 4 * H});
  const Tensor iou_x = from_x.narrow(1, 0, 3 * H);
  if (count == 0) return tree_lstm_cell(iou_x, {});

  std::vector<Tensor> h, c;
  for (const CellState& child : children) h.push_back(child.h), c.push_back(child.c);
  const Tensor all_h = count == 1 ? h[0].unsqueeze(1) : stack(h, 1);  // [n, count, H]
  const Tensor f = linear(all_h, weight_f) + from_x.narrow(1, 3 * H, H).unsqueeze(1);
  const Tensor iou = iou_x + linear(sum(all_h, 1), weight_h);
  const Tensor gates = cat({iou.narrow(1, 0, H), f.reshape({n, count * H}), iou.narrow(1, H, 2 * H)}, 1);
  return tree_lstm_cell(gates, c);
}

std::string ChildSumTreeLSTM::extra_repr() const { return Repr(input_size, hidden_size).text(); }

// ---- N-ary ----------------------------------------------------------------------------------------------------------

NaryTreeLSTM::NaryTreeLSTM(int64_t input, int64_t hidden, NaryTreeLSTMOptions given)
    : input_size(input),
      hidden_size(hidden),
      options(given),
      weight_x(*this, "weight_x"),
      bias_x(*this, "bias_x"),
      weight_h(*this, "weight_h"),
      bias_h(*this, "bias_h") {
  const int64_t arity = options.arity, x_blocks = options.inner_input ? 4 : 3;
  REEL_CHECK(arity >= 1 && arity <= kMaxArity, "NaryTreeLSTM: arity must be between 1 and ", kMaxArity, ", got ",
             arity);
  weight_x = empty({x_blocks * hidden, input});
  bias_x = empty({x_blocks * hidden});
  weight_h = empty({(3 + arity) * hidden, arity * hidden});
  bias_h = empty({(3 + arity) * hidden});
  reset_parameters();
}

void NaryTreeLSTM::reset_parameters() { uniform_by_hidden(*this, hidden_size); }

CellState NaryTreeLSTM::forward(const Tensor& x, std::span<const CellState> children) const {
  check("NaryTreeLSTM", x, input_size, children, hidden_size);
  const int64_t arity = options.arity, count = static_cast<int64_t>(children.size());
  REEL_CHECK(count <= arity, "NaryTreeLSTM: ", count, " children, but arity is ", arity);
  REEL_CHECK(count == 0 || !x.defined() || options.inner_input,
             "NaryTreeLSTM: an inner node has an input, which needs the option inner_input");
  return call_cell("NaryTreeLSTM", {x, weight_x, bias_x, weight_h, bias_h}, children,
                   [&](const Tensor& x, std::span<const CellState> children) { return compute(x, children); });
}

CellState NaryTreeLSTM::compute(const Tensor& x, std::span<const CellState> children) const {
  const int64_t H = hidden_size, arity = options.arity, count = static_cast<int64_t>(children.size());
  Tensor from_x = x.defined() ? linear(x, weight_x, bias_x) : Tensor();
  if (count == 0) {
    if (options.inner_input) from_x = cat({from_x.narrow(1, 0, H), from_x.narrow(1, 2 * H, 2 * H)}, 1);
    return tree_lstm_cell(from_x, {});
  }

  std::array<Tensor, kMaxArity> h, c;
  for (int64_t k = 0; k < count; ++k) h[k] = children[k].h, c[k] = children[k].c;
  if (count < arity) {
    const Tensor zero = zeros(h[0].shape(), {.dtype = h[0].dtype(), .device = h[0].device()});
    for (int64_t k = count; k < arity; ++k) h[k] = c[k] = zero;
  }
  const std::span<const Tensor> all_h(h.data(), arity), all_c(c.data(), arity);
  const Tensor gates = linear(arity == 1 ? h[0] : cat(all_h, 1), weight_h, bias_h);
  if (!x.defined()) return tree_lstm_cell(gates, all_c);

  // i, f, o, u of the input under i, f_1 … f_N, o, u: all children share W_f.
  std::array<Tensor, kMaxArity + 2> blocks;
  blocks[0] = from_x.narrow(1, 0, H);
  for (int64_t k = 0; k < arity; ++k) blocks[1 + k] = from_x.narrow(1, H, H);
  blocks[1 + arity] = from_x.narrow(1, 2 * H, 2 * H);
  return tree_lstm_cell(gates + cat(std::span<const Tensor>(blocks.data(), arity + 2), 1), all_c);
}

std::string NaryTreeLSTM::extra_repr() const {
  return Repr(input_size, hidden_size)
      .add("arity", options.arity)
      .add_unless(false, "inner_input", options.inner_input)
      .text();
}

}  // namespace reel::nn
