#include "lib/device/kernels/cell.h"
#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/lanes.h"

// The pointwise part of child-sum Tree-LSTM cells (Tai et al. 2015); an LSTM cell is the one with one child.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
void cell_rows(const Cell& cell) {
  const int64_t hidden = cell.hidden, width = (3 + cell.children) * hidden;
  for_each_range(cell.rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < hidden; i += kWidth<T>) {
        const Lanes<T> lanes{hidden - i};
        const int64_t state = row * hidden + i, gate = row * width + i;
        const auto input = logistic(lanes.get(cell.gates, gate + cell.input));
        const auto output = logistic(lanes.get(cell.gates, gate + cell.output));
        const auto update = tanh(lanes.get(cell.gates, gate + cell.update));
        auto c = input * update;
        for (int k = 0; k < cell.children; ++k) {
          const int64_t at = gate + cell.forget + k * hidden;
          const auto forget = logistic(lanes.get(cell.gates, at));
          c = fma(forget, lanes.get(cell.child_c[k], state), c);
          lanes.set_if_wanted(cell.activated, at, forget);
        }
        const auto tanh_c = tanh(c);
        lanes.set_if_wanted(cell.activated, gate + cell.input, input);
        lanes.set_if_wanted(cell.activated, gate + cell.output, output);
        lanes.set_if_wanted(cell.activated, gate + cell.update, update);
        lanes.set_if_wanted(cell.tanh_c, state, tanh_c);
        lanes.set(cell.c, state, c);
        lanes.set(cell.h, state, output * tanh_c);
      }
    }
  });
}

template <class T>
void cell_grad_rows(const Cell& cell) {
  const Batch<T> one(T(1));
  const int64_t hidden = cell.hidden, width = (3 + cell.children) * hidden;
  for_each_range(cell.rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < hidden; i += kWidth<T>) {
        const Lanes<T> lanes{hidden - i};
        const int64_t state = row * hidden + i, gate = row * width + i;
        const auto input = lanes.get(cell.activated, gate + cell.input);
        const auto output = lanes.get(cell.activated, gate + cell.output);
        const auto update = lanes.get(cell.activated, gate + cell.update);
        const auto tanh_c = lanes.get(cell.tanh_c, state);
        const auto grad_h = lanes.get_or_zero(cell.grad_h, state);
        const auto grad_c = fma(grad_h * output, one - tanh_c * tanh_c, lanes.get_or_zero(cell.grad_c, state));
        for (int k = 0; k < cell.children; ++k) {
          const int64_t at = gate + cell.forget + k * hidden;
          const auto forget = lanes.get(cell.activated, at);
          if (cell.grad_gates)
            lanes.set(cell.grad_gates, at, grad_c * lanes.get(cell.child_c[k], state) * forget * (one - forget));
          if (cell.grad_child_c && cell.grad_child_c[k]) lanes.set(cell.grad_child_c[k], state, grad_c * forget);
        }
        if (!cell.grad_gates) continue;
        lanes.set(cell.grad_gates, gate + cell.input, grad_c * update * input * (one - input));
        lanes.set(cell.grad_gates, gate + cell.output, grad_h * tanh_c * output * (one - output));
        lanes.set(cell.grad_gates, gate + cell.update, grad_c * input * (one - update * update));
      }
    }
  });
}

void cell(const Cell& cell) {
  if (is_half(cell.dtype)) return REEL_ISA::cell(Widened().of(cell));
  cell.dtype == kFloat32 ? cell_rows<float>(cell) : cell_rows<double>(cell);
}
void cell_grad(const Cell& cell) {
  if (is_half(cell.dtype)) return cell_grad(Widened().of_grad(cell));
  cell.dtype == kFloat32 ? cell_grad_rows<float>(cell) : cell_grad_rows<double>(cell);
}

}  // namespace

void install_cell(KernelTable& table) {
  table.cell = cell;
  table.cell_grad = cell_grad;
}

}  // namespace reel::cpu::REEL_ISA
