#include <array>

#include "lib/device/kernels/cell.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

// Where the blocks of `hidden` columns lie in a row of gates.
struct Layout {
  int64_t input, forget, output, update;
};

constexpr int kMaxInPlace = 8;  // children whose addresses need no heap

// A list of addresses, one a child.
template <class T>
struct Addresses {
  explicit Addresses(size_t n) {
    if (n > kMaxInPlace) more.resize(n);
  }
  T* data() { return more.empty() ? few.data() : more.data(); }
  std::array<T, kMaxInPlace> few{};
  std::vector<T> more;
};

Cell describe(const View& h, int children, const Layout& layout) {
  const int64_t hidden = h.shape[1];
  return {.dtype = h.dtype,
          .rows = h.shape[0],
          .hidden = hidden,
          .children = children,
          .input = layout.input * hidden,
          .forget = layout.forget * hidden,
          .output = layout.output * hidden,
          .update = layout.update * hidden,
          .gates = nullptr,
          .child_c = nullptr,
          .h = nullptr,
          .c = nullptr,
          .activated = nullptr,
          .tanh_c = nullptr,
          .grad_h = nullptr,
          .grad_c = nullptr,
          .grad_gates = nullptr,
          .grad_child_c = nullptr};
}

// The node's outputs are h and c and, unseen by the user, the activated gates and tanh(c): what its rule reads. So
// these have a history when the rule itself is differentiated, and may then receive gradients like the other two.
enum Output { kH, kC, kActivated, kTanhC };

struct CellRule {
  Layout layout;
  int children;
  SavedTensor activated, tanh_c;
  std::array<SavedTensor, 2> first;  // the children's memory cells; more than two are rare enough for the heap
  std::vector<SavedTensor> others;

  const SavedTensor& child(int k) const {
    return k < 2 ? first[static_cast<size_t>(k)] : others[static_cast<size_t>(k - 2)];
  }

  void operator()(Backward& back) {
    if (back.create_graph() || back.grad(kActivated).defined() || back.grad(kTanhC).defined())
      composed(back);
    else
      fused(back);
  }

  void composed(Backward& back) {
    const Tensor act = to_compute(back.get(activated)), tc = to_compute(back.get(tanh_c));
    const Tensor gh = to_compute(back.grad_or_zeros(kH)), gc_in = to_compute(back.grad_or_zeros(kC));
    const Tensor ga = to_compute(back.grad_or_zeros(kActivated));
    const int64_t hidden = tc.size(1);
    const auto block = [&](const Tensor& x, int64_t at) { return x.narrow(1, at * hidden, hidden); };
    const auto through_sigmoid = [](const Tensor& g, const Tensor& a) { return g * a * (1 - a); };
    const Tensor i = block(act, layout.input), o = block(act, layout.output), u = block(act, layout.update);
    const Tensor gc = gc_in + (gh * o + to_compute(back.grad_or_zeros(kTanhC))) * (1 - tc * tc);
    std::vector<Tensor> g_gates(static_cast<size_t>(3 + children));
    g_gates[layout.input] = through_sigmoid(gc * u + block(ga, layout.input), i);
    g_gates[layout.output] = through_sigmoid(gh * tc + block(ga, layout.output), o);
    g_gates[layout.update] = (gc * i + block(ga, layout.update)) * (1 - u * u);
    for (int k = 0; k < children; ++k) {
      const int64_t at = layout.forget + k;
      const Tensor f = block(act, at);
      g_gates[at] = through_sigmoid(gc * to_compute(back.get(child(k))) + block(ga, at), f);
      back.set(1 + k, gc * f);
    }
    back.set(0, cat(g_gates, 1));
  }

  void fused(Backward& back) {
    const Tensor act = back.get(activated), tc = back.get(tanh_c);
    Cell cell = describe(view_of(tc), children, layout);
    const Tensor gh = back.grad(kH).defined() ? back.grad(kH).contiguous() : Tensor();
    const Tensor gc = back.grad(kC).defined() ? back.grad(kC).contiguous() : Tensor();
    Tensor g_gates = make_tensor(act.shape(), act.dtype(), act.device());
    Addresses<const void*> c_at(children);
    Addresses<void*> gc_at(children);
    Addresses<Tensor> c_held(children), g_held(children);
    for (int k = 0; k < children; ++k) {
      c_held.data()[k] = back.get(child(k));
      c_at.data()[k] = view_of(c_held.data()[k]).data;
      if (!back.needs(1 + k)) continue;
      g_held.data()[k] = make_tensor(tc.shape(), tc.dtype(), tc.device());
      gc_at.data()[k] = view_of(g_held.data()[k]).data;
    }
    cell.child_c = c_at.data();
    cell.activated = view_of(act).data;
    cell.tanh_c = view_of(tc).data;
    cell.grad_h = gh.defined() ? view_of(gh).data : nullptr;
    cell.grad_c = gc.defined() ? view_of(gc).data : nullptr;
    cell.grad_gates = view_of(g_gates).data;
    cell.grad_child_c = gc_at.data();
    kernels_of(act).cell_grad(cell);
    back.set(0, std::move(g_gates));
    for (int k = 0; k < children; ++k) back.set(1 + k, std::move(g_held.data()[k]));
  }
};

CellState fused_cell(const char* op, const Tensor& gates_in, std::span<const Tensor> children_in,
                     const Layout& layout) {
  const View& gv = view_of(gates_in, op);
  const int n = static_cast<int>(children_in.size());
  REEL_CHECK(gv.shape.size() == 2 && gv.shape[1] % (3 + n) == 0, op, ": gates of shape ", gv.shape, " are not [n, ",
             3 + n, " H]");
  const Shape shape{gv.shape[0], gv.shape[1] / (3 + n)};
  REEL_CHECK(is_floating_point(gv.dtype), op, ": ", gv.dtype, " gates");
  for (const Tensor& c : children_in) {
    REEL_CHECK(view_of(c, op).shape == shape, op, ": a memory cell of shape ", c.shape(), " with gates of shape ",
               gv.shape, "; it should be ", shape);
    check_device(op, gates_in, {&c});
    REEL_CHECK(c.dtype() == gv.dtype, op, ": ", gv.dtype, " gates and a ", c.dtype(), " memory cell");
  }
  const Tensor gates = gates_in.contiguous();
  Addresses<Tensor> children(children_in.size());
  Addresses<const void*> at(children_in.size());
  for (int k = 0; k < n; ++k) {
    children.data()[k] = children_in[static_cast<size_t>(k)].contiguous();
    at.data()[k] = view_of(children.data()[k]).data;
  }
  const std::span<const Tensor> cs(children.data(), children_in.size());
  const Device device = gates.device();
  const CellState state{make_tensor(shape, gv.dtype, device), make_tensor(shape, gv.dtype, device)};
  const bool records = recording(gates) || recording(cs);
  const Tensor activated = records ? make_tensor(gv.shape, gv.dtype, device) : Tensor();
  const Tensor tanh_c = records ? make_tensor(shape, gv.dtype, device) : Tensor();
  Cell cell = describe(view_of(state.h), n, layout);
  cell.gates = view_of(gates).data;
  cell.child_c = at.data();
  cell.h = view_of(state.h).data;
  cell.c = view_of(state.c).data;
  if (records) cell.activated = view_of(activated).data, cell.tanh_c = view_of(tanh_c).data;
  kernels_on(device).cell(cell);
  if (!records) return state;

  CellRule rule{layout, n, SavedTensor::output(activated, kActivated), SavedTensor::output(tanh_c, kTanhC), {}, {}};
  for (size_t k = 0; k < cs.size(); ++k)
    if (k < 2)
      rule.first[k] = SavedTensor(cs[k]);
    else
      rule.others.emplace_back(cs[k]);
  Addresses<const Tensor*> ins(children_in.size() + 1);
  ins.data()[0] = &gates;
  for (int k = 0; k < n; ++k) ins.data()[k + 1] = &cs[static_cast<size_t>(k)];
  const Tensor* outs[] = {&state.h, &state.c, &activated, &tanh_c};
  record_always(op, outs, {ins.data(), children_in.size() + 1}, std::move(rule));
  return state;
}

}  // namespace

CellState lstm_cell(const Tensor& gates, const Tensor& c) {
  return call("lstm_cell(gates)", {gates, c}, {}, [](const Tensor& gates, const Tensor& c) {
    return fused_cell("lstm_cell", gates, {&c, 1}, {.input = 0, .forget = 1, .output = 3, .update = 2});
  });
}

CellState tree_lstm_cell(const Tensor& gates, TensorList children) {
  return call("tree_lstm_cell", {gates}, children, {}, [](const Tensor& gates, std::span<const Tensor> children) {
    const int64_t n = static_cast<int64_t>(children.size());
    return fused_cell("tree_lstm_cell", gates, children, {.input = 0, .forget = 1, .output = 1 + n, .update = 2 + n});
  });
}

}  // namespace reel
