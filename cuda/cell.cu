#include <algorithm>

#include "cuda/kernels.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/cell.h"
#include "lib/functors/number.h"

// The pointwise part of child-sum Tree-LSTM cells (Tai et al. 2015), of which an LSTM cell is the one with one child.
namespace reel::cuda {
namespace {

constexpr int kMaxChildren = 16;  // of a launch; a cell with more takes several launches

/// Pointers to the states of some of a cell's children, in the kernel's arguments: an array in GPU memory would have to
/// be copied there first.
template <class Pointer>
struct Children {
  Pointer at[kMaxChildren];
  int first, count;
};

/// Threads take the columns of a row; blocks stride over the rows by gridDim.y, whose limit is 65535.
struct LaunchShape {
  dim3 grid, block;
  explicit LaunchShape(const Cell& cell) {
    const int64_t threads = std::min<int64_t>(ceil_div(cell.hidden, kWarp) * kWarp, kThreads);
    block = dim3(static_cast<unsigned>(threads));
    const bool empty = cell.rows == 0 || cell.hidden == 0;
    grid = dim3(empty ? 0 : static_cast<unsigned>(ceil_div(cell.hidden, threads)),
                static_cast<unsigned>(std::clamp<int64_t>(cell.rows, 1, 65535)));
  }
};

template <class T>
__device__ Wide<T> get(const void* data, int64_t i) {
  return widen(static_cast<const T*>(data)[i]);
}
template <class T>
__device__ void set(void* data, int64_t i, Wide<T> value) {
  static_cast<T*>(data)[i] = narrow<T>(value);
}

template <class T>
__device__ void set_if_wanted(void* data, int64_t i, Wide<T> value) {
  if (data) set<T>(data, i, value);
}

/// visit(state, gate) for the calling thread's elements: their offsets in a state and in the rows of gates.
template <class Visit>
__device__ void for_each_element(const Cell& cell, const Visit& visit) {
  const int64_t i = first_index(), width = (3 + cell.children) * cell.hidden;
  if (i >= cell.hidden) return;
  for (int64_t row = blockIdx.y; row < cell.rows; row += gridDim.y) visit(row * cell.hidden + i, row * width + i);
}

/// Where the children take several launches, cell.c holds the sum so far between them.
template <class T>
struct Forward {
  const Cell& cell;
  const Children<const void*>& children;
  __device__ void operator()(int64_t state, int64_t gate) const {
    using W = Wide<T>;
    W c;
    if (children.first == 0) {
      const W input = functors::sigmoid(get<T>(cell.gates, gate + cell.input));
      const W update = functors::tanh(get<T>(cell.gates, gate + cell.update));
      c = input * update;
      set_if_wanted<T>(cell.activated, gate + cell.input, input);
      set_if_wanted<T>(cell.activated, gate + cell.update, update);
    } else {
      c = get<T>(cell.c, state);
    }
    for (int k = 0; k < children.count; ++k) {
      const int64_t at = gate + cell.forget + (children.first + k) * cell.hidden;
      const W forget = functors::sigmoid(get<T>(cell.gates, at));
      c += forget * get<T>(children.at[k], state);
      set_if_wanted<T>(cell.activated, at, forget);
    }
    set<T>(cell.c, state, c);
    if (children.first + children.count < cell.children) return;
    const W tanh_c = functors::tanh(c), output = functors::sigmoid(get<T>(cell.gates, gate + cell.output));
    set_if_wanted<T>(cell.activated, gate + cell.output, output);
    set_if_wanted<T>(cell.tanh_c, state, tanh_c);
    set<T>(cell.h, state, output * tanh_c);
  }
};

template <class T>
struct Backward {
  const Cell& cell;
  const Children<const void*>& children;
  const Children<void*>& grads;
  __device__ void operator()(int64_t state, int64_t gate) const {
    using W = Wide<T>;
    const W input = get<T>(cell.activated, gate + cell.input), output = get<T>(cell.activated, gate + cell.output);
    const W update = get<T>(cell.activated, gate + cell.update), tanh_c = get<T>(cell.tanh_c, state);
    const W grad_h = cell.grad_h ? get<T>(cell.grad_h, state) : W(0);
    const W grad_c = grad_h * output * (1 - tanh_c * tanh_c) + (cell.grad_c ? get<T>(cell.grad_c, state) : W(0));
    for (int k = 0; k < children.count; ++k) {
      const int64_t at = gate + cell.forget + (children.first + k) * cell.hidden;
      const W forget = get<T>(cell.activated, at);
      if (cell.grad_gates) set<T>(cell.grad_gates, at, grad_c * get<T>(children.at[k], state) * forget * (1 - forget));
      if (grads.at[k]) set<T>(grads.at[k], state, grad_c * forget);
    }
    if (!cell.grad_gates || children.first > 0) return;
    set<T>(cell.grad_gates, gate + cell.input, grad_c * update * input * (1 - input));
    set<T>(cell.grad_gates, gate + cell.output, grad_h * tanh_c * output * (1 - output));
    set<T>(cell.grad_gates, gate + cell.update, grad_c * input * (1 - update * update));
  }
};

template <class T>
__global__ void forward(Cell cell, Children<const void*> children) {
  for_each_element(cell, Forward<T>{cell, children});
}
template <class T>
__global__ void backward(Cell cell, Children<const void*> children, Children<void*> grads) {
  for_each_element(cell, Backward<T>{cell, children, grads});
}

template <class Pointer>
Children<Pointer> children_range(Pointer const* all, int first, int count) {
  Children<Pointer> some{{}, first, count};
  if (all) std::copy_n(all + first, count, some.at);
  return some;
}

/// visit(first, count) for the range of children of each launch; once where there are none.
template <class Visit>
void for_each_chunk(const Cell& cell, const Visit& visit) {
  int first = 0;
  do {
    const int count = std::min(cell.children - first, kMaxChildren);
    visit(first, count);
    first += count;
  } while (first < cell.children);
}

void cell(const Cell& cell) {
  const LaunchShape shape(cell);
  with_floating(cell.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_chunk(cell, [&](int first, int count) {
      launch(forward<T>, shape.grid, shape.block, 0, cell, children_range(cell.child_c, first, count));
    });
  });
}

void cell_grad(const Cell& cell) {
  const LaunchShape shape(cell);
  with_floating(cell.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_chunk(cell, [&](int first, int count) {
      launch(backward<T>, shape.grid, shape.block, 0, cell, children_range(cell.child_c, first, count),
             children_range(cell.grad_child_c, first, count));
    });
  });
}

}  // namespace

void install_cell(KernelTable& table) {
  table.cell = cell;
  table.cell_grad = cell_grad;
}

}  // namespace reel::cuda
