#include "lib/base/lazy.h"
#include "lib/onnx/writer/emitter.h"

// Recurrent layers and cells.
namespace reel::onnx::writer {
namespace {

/// What an op of reel is in ONNX: its type, the order of its blocks of gates there, and its activations.
struct Kind {
  const char* type;
  std::vector<size_t> order;
  std::vector<std::string> activations;  // of one direction; empty for ONNX's own
};
Kind kind_of(const std::string& op) {
  if (op.starts_with("lstm")) return {"LSTM", {0, 3, 1, 2}, {}};  // i f g o as i o f c
  if (op.starts_with("gru")) return {"GRU", {1, 0, 2}, {}};       // r z n as z r h
  return {"RNN", {0}, {op.starts_with("rnn_relu") ? "Relu" : "Tanh"}};
}

/// The blocks of a weight or bias in another order.
Name reordered(Emitter& e, const Name& x, const std::vector<size_t>& order) {
  if (order.size() == 1) return x;
  const Names parts = e.nodes("Split", {x}, order.size(), {{"axis", 0}});
  Names moved;
  for (const size_t from : order) moved.push_back(parts[from]);
  return e.node("Concat", moved, {{"axis", 0}});
}
Name joined(Emitter& e, const Names& parts, int64_t dim) {
  return parts.size() == 1 ? parts[0] : e.node("Concat", parts, {{"axis", dim}});
}

void layers(Emitter& e) {
  const Kind kind = kind_of(e.op());
  const bool lstm = e.op() == "lstm", bias = e.flag("bias"), both = e.flag("bidirectional");
  const bool one = e.rank(0) == 2, swapped = !one && e.flag("batch_first");
  const size_t directions = both ? 2 : 1, count = static_cast<size_t>(e.integer("layers"));
  const size_t given = e.count() - 3, each = given / (count * directions);
  if (each > (bias ? 4U : 2U)) e.fail("a projection, which ONNX has not");
  if (e.flag("dropout")) e.fail("it is in training mode, with dropout");
  const int64_t blocks = static_cast<int64_t>(kind.order.size()), hidden = e.shape(3)[0] / blocks;
  Name x = e.in(0);
  if (one) x = e.unsqueezed(x, {1});
  if (swapped) x = e.transposed(x, {1, 0, 2});
  Names all_h, all_c;
  for (size_t l = 0; l < count; ++l) {
    Names w, r, b;
    for (size_t d = 0; d < directions; ++d) {
      const size_t at = 3 + (l * directions + d) * each;
      const auto block = [&](size_t i) { return reordered(e, e.in(at + i), kind.order); };
      w.push_back(e.unsqueezed(block(0), {0}));
      r.push_back(e.unsqueezed(block(1), {0}));
      if (bias) b.push_back(e.unsqueezed(e.node("Concat", {block(2), block(3)}, {{"axis", 0}}), {0}));
    }
    const auto first = [&](size_t input) -> Name {
      if (!e.has(input)) return {};
      const Name all = one ? e.unsqueezed(e.in(input), {1}) : e.in(input);
      const int64_t from = static_cast<int64_t>(l * directions);
      return count == 1 ? all : e.sliced(all, 0, from, from + static_cast<int64_t>(directions));
    };
    Attributes attributes{{"hidden_size", hidden}, {"direction", both ? "bidirectional" : "forward"}};
    if (e.op() == "gru") attributes.emplace_back("linear_before_reset", 1);
    if (!kind.activations.empty()) {
      std::vector<std::string> activations;
      for (size_t d = 0; d < directions; ++d) activations.push_back(kind.activations[0]);
      attributes.emplace_back("activations", activations);
    }
    Names inputs{x, joined(e, w, 0), joined(e, r, 0), bias ? joined(e, b, 0) : Name(), Name(), first(1)};
    if (lstm) inputs.push_back(first(2));
    const Names y = e.nodes(kind.type, inputs, lstm ? 3 : 2, attributes);
    x = both ? e.reshaped(e.transposed(y[0], {0, 2, 1, 3}), {0, 0, 2 * hidden}) : e.squeezed(y[0], {1});
    all_h.push_back(y[1]);
    if (lstm) all_c.push_back(y[2]);
  }
  const auto state = [&](const Names& parts) {
    const Name all = joined(e, parts, 0);
    return one ? e.squeezed(all, {1}) : all;
  };
  e.set(one ? e.squeezed(x, {1}) : swapped ? e.transposed(x, {1, 0, 2}) : x);
  if (e.has_result(1)) e.set(state(all_h), 1);
  if (lstm && e.has_result(2)) e.set(state(all_c), 2);
}

// ---- one step -------------------------------------------------------------------------------------------------------

Names gates_of(Emitter& e, const Name& all, size_t count) { return e.nodes("Split", {all}, count, {{"axis", 1}}); }

/// h and c of gates i f g o.
void lstm_step(Emitter& e, const Name& gates, const Name& c) {
  const Names part = gates_of(e, gates, 4);
  const auto sigmoid = [&](size_t i) { return e.node("Sigmoid", {part[i]}); };
  Name next = e.node("Mul", {sigmoid(0), e.node("Tanh", {part[2]})});
  if (!c.empty()) next = e.node("Add", {e.node("Mul", {sigmoid(1), c}), next});
  e.set(e.node("Mul", {sigmoid(3), e.node("Tanh", {next})}));
  e.set(next, 1);
}

void cell(Emitter& e) {
  const Name x = e.node("Gemm", {e.in(0), e.in(3), e.in(5)}, {{"transB", 1}});
  // Without a state, h is 0.
  const Name h = e.has(1) ? e.node("Gemm", {e.in(1), e.in(4), e.in(6)}, {{"transB", 1}}) : e.in(6);
  const auto sum = [&](const Name& a, const Name& b) { return b.empty() ? a : e.node("Add", {a, b}); };
  if (e.op() == "lstm_cell") return lstm_step(e, sum(x, h), e.in(2));
  if (e.op() != "gru_cell") return e.is(e.op() == "rnn_relu_cell" ? "Relu" : "Tanh", {sum(x, h)});
  const auto half = [&](const Name& a, int64_t axis) { return e.nodes("Split", {a}, 3, {{"axis", axis}}); };
  const Names in = half(x, 1), from = h.empty() ? Names(3) : half(h, e.has(1) ? 1 : 0);
  const Name r = e.node("Sigmoid", {sum(in[0], from[0])}), z = e.node("Sigmoid", {sum(in[1], from[1])});
  const Name n = e.node("Tanh", {from[2].empty() ? in[2] : e.node("Add", {in[2], e.node("Mul", {r, from[2]})})});
  // (1 - z) n + z h
  if (!e.has(1)) return e.set(e.node("Sub", {n, e.node("Mul", {z, n})}));
  e.set(e.node("Add", {n, e.node("Mul", {z, e.node("Sub", {e.in(1), n})})}));
}

}  // namespace

const EmitTable& recurrent_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return EmitTable{
        {"lstm", layers},
        {"gru", layers},
        {"rnn_tanh", layers},
        {"rnn_relu", layers},
        {"lstm_cell", cell},
        {"gru_cell", cell},
        {"rnn_tanh_cell", cell},
        {"rnn_relu_cell", cell},
        {"lstm_cell(gates)", [](Emitter& e) { lstm_step(e, e.in(0), e.in(1)); }},
    };
  });
}

}  // namespace reel::onnx::writer
