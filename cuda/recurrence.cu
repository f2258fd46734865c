#include <algorithm>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/recurrence.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/gemm.h"
#include "lib/functors/unary.h"

// Recurrent layers (LSTM, GRU, tanh and ReLU RNNs) over a batch of sequences, and their gradients. The pointwise part
// of a step is written once (cell_forward, cell_backward); around it there are three implementations:
//   run_persistent: one launch for all steps, a thread block for each row of the batch, with w_hh and the state in
//     shared memory. For weights that fit there.
//   run_per_unit: a launch for each step, a warp for each hidden unit, which multiplies its rows of w_hh with the
//     states of all rows and goes on with the pointwise part. For few rows, where a GEMM is all latency.
//   forward_by_gemm, backward_by_gemm: for each step a GEMM and a pointwise kernel. For everything else.
// A whole layer whose states are large is computed by cuDNN (cuda/rnn_layer.cu).
// Sequences of different lengths are packed: step t has the first sizes[t] rows, as in PyTorch's PackedSequence.
namespace reel::cuda {
namespace {

constexpr int kMaxGates = 4;

// ---- one step of one hidden unit ------------------------------------------------------------------------------------

/// A Recurrence with typed pointers, as an argument of kernels. T is the type of elements in memory, W the one that is
/// computed in; a state that stays in registers or shared memory is rounded to T only where it is written.
template <class T>
struct Job {
  using W = Wide<T>;
  Recurrence::Kind kind;
  int64_t hidden, width, gate_width, y_stride;  // gate_width: all blocks of `hidden`
  const T *w_hh, *b_hh, *mask;
  bool w_hh_transposed;
  T *gates, *h, *c, *y, *h_before, *c_before, *inner, *masked;
  const T* grad_y;
  T *grad_h, *grad_c, *grad_gates, *grad_hidden, *grad_projected;

  explicit Job(const Recurrence& r)
      : kind(r.kind),
        hidden(r.hidden),
        width(r.width),
        gate_width(gate_count(r.kind) * r.hidden),
        y_stride(r.y_stride),
        w_hh(static_cast<const T*>(r.w_hh)),
        b_hh(static_cast<const T*>(r.b_hh)),
        mask(static_cast<const T*>(r.mask)),
        w_hh_transposed(r.w_hh_transposed),
        gates(static_cast<T*>(r.gates)),
        h(static_cast<T*>(r.h)),
        c(static_cast<T*>(r.c)),
        y(static_cast<T*>(r.y)),
        h_before(static_cast<T*>(r.h_before)),
        c_before(static_cast<T*>(r.c_before)),
        inner(static_cast<T*>(r.inner)),
        masked(static_cast<T*>(r.masked)),
        grad_y(static_cast<const T*>(r.grad_y)),
        grad_h(static_cast<T*>(r.grad_h)),
        grad_c(static_cast<T*>(r.grad_c)),
        grad_gates(static_cast<T*>(r.grad_gates)),
        grad_hidden(static_cast<T*>(r.grad_hidden)),
        grad_projected(static_cast<T*>(r.grad_projected)) {}

  __device__ int64_t num_gates() const { return gate_count(kind); }
  /// What w_hh is multiplied with where h is this, or its gradient: the mask of recurrent dropout applies.
  __device__ W drop(W h, int64_t state) const { return mask ? h * widen(mask[state]) : h; }
  __device__ W bias(int64_t block, int64_t i) const { return b_hh ? widen(b_hh[block * hidden + i]) : W(0); }
};

/// One value for each gate.
template <class W>
struct Gates {
  W of[kMaxGates];
};
/// `row` has elements of T or, in shared memory, of W.
template <class T, class M>
__device__ Gates<Wide<T>> read_gates(const Job<T>& job, const M* row, int64_t i) {
  Gates<Wide<T>> gates{};
  for (int b = 0; b < kMaxGates; ++b)
    if (b < job.num_gates()) gates.of[b] = widen(row[b * job.hidden + i]);
  return gates;
}
template <class T, class M>
__device__ void write_gates(const Job<T>& job, M* row, int64_t i, const Gates<Wide<T>>& gates) {
  for (int b = 0; b < kMaxGates; ++b)
    if (b < job.num_gates()) row[b * job.hidden + i] = narrow<M>(gates.of[b]);
}

/// Advances unit i by one step. `at`: the row's number among the rows of all steps; from_x, from_h: the gates'
/// contributions of the input and of the state (with its bias). Stores what the gradient needs, updates c, and returns
/// the new h (of a projected LSTM, o tanh(c)).
template <class T>
__device__ Wide<T> cell_forward(const Job<T>& job, int64_t at, int64_t i, const Gates<Wide<T>>& from_x,
                                const Gates<Wide<T>>& from_h, Wide<T> h, Wide<T>& c) {
  using W = Wide<T>;
  Gates<W> out{};
  W result;
  const auto sum = [&](int b) { return from_x.of[b] + from_h.of[b]; };
  if (job.kind == Recurrence::kLstm) {
    const W input = functors::sigmoid(sum(0)), forget = functors::sigmoid(sum(1));
    const W update = functors::tanh(sum(2)), output = functors::sigmoid(sum(3));
    if (job.c_before) job.c_before[at * job.hidden + i] = narrow<T>(c);
    c = forget * c + input * update;
    out = {input, forget, update, output};
    result = output * functors::tanh(c);
  } else if (job.kind == Recurrence::kGru) {
    const W reset = functors::sigmoid(sum(0)), keep = functors::sigmoid(sum(1)), inner = from_h.of[2];
    const W update = functors::tanh(from_x.of[2] + reset * inner);
    if (job.inner) job.inner[at * job.hidden + i] = narrow<T>(inner);
    out = {reset, keep, update};
    result = keep * (h - update) + update;
  } else {
    result = job.kind == Recurrence::kRelu ? functors::Relu()(sum(0)) : functors::tanh(sum(0));
    out = {result};
  }
  write_gates(job, job.gates + at * job.gate_width, i, out);
  return result;
}

/// The gradient of cell_forward: g is that of its result; grad_c is updated. Returns the gradient of w_hh h + b_hh;
/// `direct` is the part of the previous h's gradient that does not go through w_hh (a GRU's keep gate).
template <class T>
__device__ Gates<Wide<T>> cell_backward(const Job<T>& job, int64_t at, int64_t i, Wide<T> g, Wide<T>& grad_c,
                                        Wide<T>& direct) {
  using W = Wide<T>;
  const Gates<W> gates = read_gates(job, job.gates + at * job.gate_width, i);
  Gates<W> grad{}, of_hidden{};
  direct = 0;
  if (job.kind == Recurrence::kLstm) {
    const auto [input, forget, update, output] = gates.of;
    const W c = widen(job.c_before[at * job.hidden + i]), tanh_c = functors::tanh(forget * c + input * update);
    const W gc = g * output * (1 - tanh_c * tanh_c) + grad_c;
    of_hidden = grad = {gc * update * input * (1 - input), gc * c * forget * (1 - forget),
                        gc * input * (1 - update * update), g * tanh_c * output * (1 - output)};
    grad_c = gc * forget;
  } else if (job.kind == Recurrence::kGru) {
    const W reset = gates.of[0], keep = gates.of[1], update = gates.of[2];
    const W g_update = g * (1 - keep) * (1 - update * update);
    const W g_reset = g_update * widen(job.inner[at * job.hidden + i]) * reset * (1 - reset);
    const W g_keep = g * (widen(job.h_before[at * job.hidden + i]) - update) * keep * (1 - keep);
    grad = {g_reset, g_keep, g_update};
    of_hidden = {g_reset, g_keep, g_update * reset};
    direct = g * keep;
    write_gates(job, job.grad_hidden + at * job.gate_width, i, of_hidden);
  } else {
    const W y = gates.of[0];
    of_hidden =
        grad = {job.kind == Recurrence::kRelu ? functors::Relu().grad(g, y, y) : functors::Tanh().grad(g, y, y)};
  }
  write_gates(job, job.grad_gates + at * job.gate_width, i, grad);
  return of_hidden;
}

/// The gradient of the layer's output y for row `at`.
template <class T>
__device__ Wide<T> grad_of_y(const Job<T>& job, int64_t at, int64_t i) {
  return job.grad_y ? widen(job.grad_y[at * job.y_stride + i]) : Wide<T>(0);
}

// ---- all steps in one launch ----------------------------------------------------------------------------------------

constexpr int kMaxRows = 128, kMaxThreads = 1024;
constexpr int kMaxGatesPerLane = 16;  // gates of a row for each lane of a warp

/// The number of steps of each row, in descending order.
struct Lengths {
  int64_t of[kMaxRows];
  int rows;
};

/// The rows of a time step: the first n of the batch, from number `first` on among the rows of all steps. Moves to the
/// next or the previous step.
struct TimeStep {
  const Lengths& lengths;
  int64_t step = 0, first = 0;
  int n;
  __device__ TimeStep(const Lengths& l, int64_t at) : lengths(l), n(l.rows) {
    for (int r = 0; r < l.rows; ++r) first += l.of[r] < at ? l.of[r] : at;
    step = at;
    while (n > 0 && l.of[n - 1] <= at) --n;
  }
  __device__ void next() {
    first += n, ++step;
    while (n > 0 && lengths.of[n - 1] <= step) --n;
  }
  __device__ void previous() {
    --step;
    while (n < lengths.rows && lengths.of[n] > step) ++n;
    first -= n;
  }
};

/// Loads w_hh to shared memory as [width, gates] with rows of an odd number of elements, so that reading along rows
/// (backward) and columns (forward) is free of bank conflicts.
template <class T>
__device__ void load_weights(const Job<T>& job, Wide<T>* w, int stride) {
  const int rows = static_cast<int>(job.width), columns = static_cast<int>(job.gate_width), n = rows * columns;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    const int k = job.w_hh_transposed ? i / columns : i % rows, j = job.w_hh_transposed ? i % columns : i / rows;
    w[k * stride + j] = widen(job.w_hh[i]);
  }
}

/// The layout of a block's shared memory: h (or its gradient), w_hh, and the sums (or gradients) of the gates.
template <class W>
struct SharedLayout {
  int hidden, gates, stride;
  __host__ __device__ SharedLayout(int64_t hidden, int64_t gates)
      : hidden(static_cast<int>(hidden)), gates(static_cast<int>(gates)), stride(this->gates | 1) {}
  __host__ __device__ int padded() const { return (hidden + 3) / 4 * 4; }
  __device__ W* h(W* memory) const { return memory; }
  __device__ W* w(W* memory) const { return memory + padded(); }
  __device__ W* sums(W* memory) const { return w(memory) + hidden * stride; }
  size_t bytes(int64_t parts) const {
    return static_cast<size_t>(padded() + hidden * stride + parts * gates) * sizeof(W);
  }
};

/// Σ over begin ≤ k < end of a column of w times h. begin is a multiple of 4.
template <class W>
__device__ W multiply_column(const W* column, int stride, const W* h, int begin, int end) {
  struct alignas(16) Four {
    W of[4];
  };
  W sum = 0;
  int k = begin;
  for (; k + 4 <= end; k += 4) {
    const Four four = *reinterpret_cast<const Four*>(h + k);
    for (int i = 0; i < 4; ++i) sum += column[(k + i) * stride] * four.of[i];
  }
  for (; k < end; ++k) sum += column[k * stride] * h[k];
  return sum;
}

/// Each gate's product is summed by `parts` threads.
template <class T>
__global__ void __launch_bounds__(kMaxThreads)
    forward_persistent(Job<T> job, Lengths lengths, bool reverse, int parts) {
  using W = Wide<T>;
  REEL_SHARED(W, memory);
  const SharedLayout<W> shared(job.hidden, job.gate_width);
  const int columns = shared.gates, hidden = shared.hidden, stride = shared.stride;
  W *const w = shared.w(memory), *const h = shared.h(memory), *const sums = shared.sums(memory);
  const int thread = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  const int column = thread % columns, part = thread / columns;
  const auto border = [&](int p) { return p < parts ? hidden * p / parts / 4 * 4 : hidden; };
  const bool has_unit = thread < hidden;
  load_weights(job, w, stride);
  const int64_t state = int64_t(row) * hidden + thread;
  W c = 0, before = 0;
  if (has_unit) {
    before = widen(job.h[state]);
    h[thread] = job.drop(before, state);
    if (job.c) c = widen(job.c[state]);
  }
  int64_t left = lengths.of[row];  // counted down, which takes fewer registers than a number and its limit
  TimeStep time(lengths, reverse ? left : 0);
  for (; left > 0; --left) {
    if (reverse) time.previous();
    const int64_t at = time.first + row;
    Gates<W> from_x{}, from_h{};
    if (has_unit)
      from_x = read_gates(job, job.gates + at * columns, thread);  // loaded before the barrier, to overlap with it
    __syncthreads();
    if (part < parts)
      sums[part * columns + column] = multiply_column(w + column, stride, h, border(part), border(part + 1));
    __syncthreads();
    if (has_unit) {
      for (int b = 0; b < kMaxGates; ++b) {
        if (b >= job.num_gates()) break;
        from_h.of[b] = job.bias(b, thread);
#pragma unroll 1  // unrolled, it would take too many registers
        for (int p = 0; p < parts; ++p) from_h.of[b] += sums[p * columns + b * hidden + thread];
      }
      if (job.h_before) job.h_before[at * hidden + thread] = narrow<T>(before);
      before = cell_forward(job, at, thread, from_x, from_h, before, c);
      if (job.y) job.y[at * job.y_stride + thread] = narrow<T>(before);
      h[thread] = job.drop(before, state);
    }
    if (!reverse) time.next();
  }
  if (!has_unit) return;
  job.h[state] = narrow<T>(before);
  if (job.c) job.c[state] = narrow<T>(c);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads)
    backward_persistent(Job<T> job, Lengths lengths, bool reverse, bool first_wanted) {
  using W = Wide<T>;
  REEL_SHARED(W, memory);
  const SharedLayout<W> shared(job.hidden, job.gate_width);
  const int columns = shared.gates, hidden = shared.hidden, stride = shared.stride;
  W *const w = shared.w(memory), *const grad_h = shared.h(memory), *const grads = shared.sums(memory);
  const int thread = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  const int lane = thread % kWarp, warp = thread / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  const bool has_unit = thread < hidden;
  load_weights(job, w, stride);
  W grad_c = 0;
  if (has_unit) {
    grad_h[thread] = widen(job.grad_h[row * hidden + thread]);
    if (job.grad_c) grad_c = widen(job.grad_c[row * hidden + thread]);
  }
  int64_t left = lengths.of[row];
  TimeStep time(lengths, reverse ? 0 : left);
  for (; left > 0; --left) {
    if (!reverse) time.previous();
    const int64_t at = time.first + row;
    __syncthreads();
    if (has_unit) {
      W direct;
      const W g = grad_h[thread] + grad_of_y(job, at, thread);
      const Gates<W> of_hidden = cell_backward(job, at, thread, g, grad_c, direct);
      write_gates(job, grads, thread, of_hidden);
      grad_h[thread] = direct;
    }
    __syncthreads();
    if (left > 1 || first_wanted) {
      W own[kMaxGatesPerLane];  // of the gates' gradients, the same for each k
      for (int e = 0; e < kMaxGatesPerLane; ++e) own[e] = lane + e * kWarp < columns ? grads[lane + e * kWarp] : W(0);
      for (int k = warp; k < hidden; k += warps) {
        W sum = 0;
        for (int e = 0; e < kMaxGatesPerLane; ++e)
          if (lane + e * kWarp < columns) sum += w[k * stride + lane + e * kWarp] * own[e];
        sum = warp_reduce(sum, Plus());
        if (lane == 0) grad_h[k] += job.drop(sum, int64_t(row) * hidden + k);
      }
    }
    if (reverse) time.next();
  }
  __syncthreads();
  if (!has_unit) return;
  job.grad_h[row * hidden + thread] = narrow<T>(grad_h[thread]);
  if (job.grad_c) job.grad_c[row * hidden + thread] = narrow<T>(grad_c);
}

/// Threads for each gate's product: at least 16 terms each, within the block's limit of threads.
int64_t parts_of(const Recurrence& r) {
  const int64_t most = kMaxThreads / (gate_count(r.kind) * r.hidden);
  return std::clamp<int64_t>(ceil_div(r.hidden, 16), 1, std::max<int64_t>(most, 1));
}

template <class T>
bool fits_persistent(const Recurrence& r) {
  const int64_t gates = gate_count(r.kind) * r.hidden;
  return !r.w_hr && r.width == r.hidden && r.rows <= kMaxRows && gates <= kMaxGatesPerLane * kWarp &&
         SharedLayout<Wide<T>>(r.hidden, gates).bytes(parts_of(r)) <= max_shared_memory();
}

Lengths lengths_of(const Recurrence& r) {
  Lengths lengths{{}, static_cast<int>(r.rows)};
  write_lengths(r, lengths.of);
  return lengths;
}

template <class T>
void run_persistent(const Recurrence& r, bool backward) {
  const int64_t gates = gate_count(r.kind) * r.hidden, parts = parts_of(r);
  const dim3 grid(static_cast<unsigned>(r.rows)), block(static_cast<unsigned>(ceil_div(gates * parts, kWarp) * kWarp));
  const SharedLayout<Wide<T>> shared(r.hidden, gates);
  if (backward)
    launch(backward_persistent<T>, grid, block, shared.bytes(1), Job<T>(r), lengths_of(r), r.reverse, r.first_wanted);
  else
    launch(forward_persistent<T>, grid, block, shared.bytes(parts), Job<T>(r), lengths_of(r), r.reverse,
           static_cast<int>(parts));
}

// ---- one launch a step ----------------------------------------------------------------------------------------------

constexpr int kUnits = 4;  // of a block

/// Sums over a warp's lanes, which all get them.
template <class W, int n>
__device__ void reduce_all(W (&sums)[n]) {
  for (int i = 0; i < n; ++i) sums[i] = warp_reduce(sums[i], Plus());
}

/// One step for the rows from blockIdx.y * rows_each on. The state is read from `from` and written to `to`; rows from n
/// on, which take no part in the step, are copied. w_hh is [gates, width].
template <class T, int rows_each>
__global__ void forward_units(Job<T> job, const T* w_hh, const T* from, T* to, int64_t first, int n, int rows) {
  using W = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t unit = int64_t(blockIdx.x) * kUnits + threadIdx.x / kWarp, width = job.width;
  if (unit >= job.hidden) return;
  const int row = static_cast<int>(blockIdx.y) * rows_each;
  const int count = rows - row < rows_each ? rows - row : rows_each;
  W sums[kMaxGates * rows_each] = {};
  for (int64_t k = lane; k < width; k += kWarp) {
    W h[rows_each] = {};
    for (int r = 0; r < rows_each; ++r)
      if (r < count) h[r] = job.drop(widen(from[(row + r) * width + k]), (row + r) * width + k);
    for (int b = 0; b < kMaxGates; ++b) {
      const W w = b < job.num_gates() ? widen(w_hh[(b * job.hidden + unit) * width + k]) : W(0);
      for (int r = 0; r < rows_each; ++r) sums[b * rows_each + r] += w * h[r];
    }
  }
  reduce_all(sums);
  for (int r = 0; r < rows_each; ++r) {  // a lane a row
    if (lane != r || r >= count) continue;
    const int64_t at = first + row + r, state = (row + r) * width + unit;
    const T before = from[state];
    if (row + r >= n) {
      to[state] = before;
      continue;
    }
    Gates<W> from_h{};
    for (int b = 0; b < kMaxGates; ++b)
      if (b < job.num_gates()) from_h.of[b] = sums[b * rows_each + r] + job.bias(b, unit);
    const Gates<W> from_x = read_gates(job, job.gates + at * job.gate_width, unit);
    if (job.h_before) job.h_before[at * width + unit] = before;
    W c = job.c ? widen(job.c[state]) : W(0);
    const T next = narrow<T>(cell_forward(job, at, unit, from_x, from_h, widen(before), c));
    if (job.c) job.c[state] = narrow<T>(c);
    if (job.y) job.y[at * job.y_stride + unit] = next;
    to[state] = next;
  }
}

/// A range of rows of the gates' gradients.
struct GradRows {
  int64_t first;
  int n;
};

/// Two halves of neighbouring steps in one launch: the gradient of the state between them, a product with the gates'
/// gradients of the step `done`, then the pointwise gradient of the step `now`. w is [width, gates].
template <class T, int rows_each>
__global__ void backward_units(Job<T> job, const T* w, GradRows done, GradRows now, int rows) {
  using W = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t unit = int64_t(blockIdx.x) * kUnits + threadIdx.x / kWarp;
  if (unit >= job.hidden) return;
  const int row = static_cast<int>(blockIdx.y) * rows_each;
  const int count = rows - row < rows_each ? rows - row : rows_each;
  const int with_done = done.n - row < count ? done.n - row : count;
  const T* const grads = (job.grad_hidden ? job.grad_hidden : job.grad_gates) + (done.first + row) * job.gate_width;
  W sums[rows_each] = {};
  if (with_done > 0) {
    for (int64_t j = lane; j < job.gate_width; j += kWarp) {
      const W weight = widen(w[unit * job.gate_width + j]);
      for (int r = 0; r < rows_each; ++r)
        if (r < with_done) sums[r] += weight * widen(grads[r * job.gate_width + j]);
    }
    reduce_all(sums);
  }
  for (int r = 0; r < rows_each; ++r) {
    if (lane != r || r >= count) continue;
    const int64_t at = now.first + row + r, state = (row + r) * job.width + unit;
    W g = widen(job.grad_h[state]) + job.drop(sums[r], state);
    if (row + r < now.n) {
      W grad_c = job.grad_c ? widen(job.grad_c[state]) : W(0), direct;
      cell_backward(job, at, unit, g + grad_of_y(job, at, unit), grad_c, direct);
      if (job.grad_c) job.grad_c[state] = narrow<T>(grad_c);
      g = direct;
    }
    job.grad_h[state] = narrow<T>(g);
  }
}

/// visit(first row, number of rows, count of steps so far) for each step, in the order of time or in reverse.
template <class Visit>
void for_each_step(const Recurrence& r, bool backwards, const Visit& visit) {
  int64_t first = backwards ? r.total : 0;
  for (int64_t i = 0; i < r.steps; ++i) {
    const int64_t n = r.sizes ? r.sizes[backwards ? r.steps - 1 - i : i] : r.rows;
    if (backwards) first -= n;
    visit(first, n, i);
    if (!backwards) first += n;
  }
}

/// w_hh as [gates, width] or transposed; a copy if it is stored the other way.
template <class T>
class Weights {
 public:
  Weights(const Recurrence& r, bool transposed)
      : copy_(r.w_hh_transposed == transposed ? 0 : gate_count(r.kind) * r.hidden * r.width),
        data_(static_cast<const T*>(r.w_hh)) {
    if (r.w_hh_transposed == transposed) return;
    int64_t rows = gate_count(r.kind) * r.hidden, columns = r.width;  // of the copy
    if (transposed) std::swap(rows, columns);
    const auto view = [&](const void* data, const Strides& strides, bool contiguous) {
      View view;
      view.data = const_cast<void*>(data), view.numel = rows * columns, view.dtype = r.dtype;
      view.shape = {rows, columns}, view.strides = strides, view.contiguous = contiguous;
      return view;
    };
    table().copy(view(r.w_hh, {1, rows}, false), view(copy_.data(), {columns, 1}, true));
    data_ = copy_;
  }
  operator const T*() const { return data_; }

 private:
  Scratch<T> copy_;
  const T* data_;
};

template <class T, int rows_each>
void run_per_unit(const Recurrence& r, bool backward) {
  const dim3 block(kUnits * kWarp),
      grid(static_cast<unsigned>(ceil_div(r.hidden, kUnits)), static_cast<unsigned>(ceil_div(r.rows, rows_each)));
  const Job<T> job(r);
  const Weights<T> w(r, backward);
  const int rows = static_cast<int>(r.rows);
  if (backward) {
    GradRows done{0, 0};
    for_each_step(r, !r.reverse, [&](int64_t first, int64_t n, int64_t) {
      const GradRows now{first, static_cast<int>(n)};
      launch(backward_units<T, rows_each>, grid, block, 0, job, w, done, now, rows);
      done = now;
    });
    if (r.first_wanted) launch(backward_units<T, rows_each>, grid, block, 0, job, w, done, GradRows{0, 0}, rows);
    return;
  }
  // Warps of one launch read all states of the step before, so new ones go to another buffer: two in turn.
  const Scratch<T> between(2 * r.rows * r.width);
  const T* from = job.h;
  for_each_step(r, r.reverse, [&](int64_t first, int64_t n, int64_t i) {
    T* const to = i + 1 == r.steps ? job.h : between + i % 2 * r.rows * r.width;
    launch(forward_units<T, rows_each>, grid, block, 0, job, w, from, to, first, static_cast<int>(n), rows);
    from = to;
  });
}

bool suits_per_unit(const Recurrence& r) {
  return !r.w_hr && r.width == r.hidden && r.rows <= kMaxWarpPerUnitBatch && r.steps > 1;
}

// ---- a GEMM, then the pointwise part --------------------------------------------------------------------------------

/// visit(row, i) for the elements of [n, columns]: threads lie along a row, blocks stride over the rows by gridDim.y.
template <class Visit>
__device__ void for_each_element(int64_t n, int64_t columns, const Visit& visit) {
  const int64_t i = first_index();
  if (i >= columns) return;
  for (int64_t row = blockIdx.y; row < n; row += gridDim.y) visit(row, i);
}
template <class... P, class... A>
void launch_rows(void (*kernel)(P...), int64_t n, int64_t columns, const A&... args) {
  const int64_t threads = std::clamp<int64_t>(ceil_div(columns, kWarp) * kWarp, kWarp, kThreads);
  launch(kernel,
         dim3(static_cast<unsigned>(n ? ceil_div(columns, threads) : 0),
              static_cast<unsigned>(std::clamp<int64_t>(n, 1, 65535))),
         dim3(static_cast<unsigned>(threads)), 0, args...);
}

/// `from_h_rows`: a GRU's product with its bias, which its reset gate takes apart from the input's; the other kinds
/// have accumulated theirs in the gates and pass nullptr. `out` is h, or what a projected LSTM multiplies with w_hr.
template <class T>
__global__ void forward_rows(Job<T> job, const T* from_h_rows, T* out, int64_t first, int64_t n) {
  using W = Wide<T>;
  for_each_element(n, job.hidden, [&](int64_t row, int64_t i) {
    const int64_t at = first + row, state = row * job.hidden + i;
    Gates<W> from_h{};
    if (from_h_rows) {
      from_h = read_gates(job, from_h_rows + row * job.gate_width, i);
    } else {
      for (int b = 0; b < kMaxGates; ++b)
        if (b < job.num_gates()) from_h.of[b] = job.bias(b, i);
    }
    const Gates<W> from_x = read_gates(job, job.gates + at * job.gate_width, i);
    const bool projected = out != job.h;
    const T before = projected ? narrow<T>(W(0)) : job.h[state];
    if (!projected && job.h_before) job.h_before[at * job.hidden + i] = before;
    W c = job.c ? widen(job.c[state]) : W(0);
    const T next = narrow<T>(cell_forward(job, at, i, from_x, from_h, widen(before), c));
    if (job.c) job.c[state] = narrow<T>(c);
    if (!projected && job.y) job.y[at * job.y_stride + i] = next;
    out[state] = next;
  });
}

/// For projected LSTMs: copies h before a step for the gradient, and to the output after it.
template <class T>
__global__ void keep_rows(const T* h, int64_t width, T* to, int64_t stride, int64_t n) {
  for_each_element(n, width, [&](int64_t row, int64_t i) { to[row * stride + i] = h[row * width + i]; });
}
template <class T>
__global__ void projected_grad(Job<T> job, int64_t first, int64_t n) {
  for_each_element(n, job.width, [&](int64_t row, int64_t i) {
    const int64_t at = first + row;
    job.grad_projected[at * job.width + i] = narrow<T>(widen(job.grad_h[row * job.width + i]) + grad_of_y(job, at, i));
  });
}

/// to = mask ∘ from (+ to), for recurrent dropout: h as w_hh is multiplied with it, and the gradient back.
template <class T>
__global__ void drop_rows(Job<T> job, const T* from, T* to, bool add, int64_t n) {
  for_each_element(n, job.width, [&](int64_t row, int64_t i) {
    const int64_t state = row * job.width + i;
    to[state] = narrow<T>(job.drop(widen(from[state]), state) + (add ? widen(to[state]) : Wide<T>(0)));
  });
}

/// `projected`: the gradient of what is projected to h, or nullptr. The part of the previous h's gradient that does not
/// go through w_hh is left in grad_h.
template <class T>
__global__ void backward_rows(Job<T> job, const T* projected, int64_t first, int64_t n) {
  using W = Wide<T>;
  for_each_element(n, job.hidden, [&](int64_t row, int64_t i) {
    const int64_t at = first + row, state = row * job.hidden + i;
    const W g = projected ? widen(projected[state]) : widen(job.grad_h[state]) + grad_of_y(job, at, i);
    W grad_c = job.grad_c ? widen(job.grad_c[state]) : W(0), direct;
    cell_backward(job, at, i, g, grad_c, direct);
    if (job.grad_c) job.grad_c[state] = narrow<T>(grad_c);
    if (!projected) job.grad_h[state] = narrow<T>(direct);
  });
}

/// c = beta c + a op(w) (+ bias) for a [n, k] and c [n, m].
void multiply(DType dtype, int64_t n, int64_t m, int64_t k, const void* a, const void* w, bool trans_w, void* c,
              double beta, const void* bias = nullptr) {
  table().gemm({.dtype = dtype,
                .trans_b = trans_w,
                .m = n,
                .n = m,
                .k = k,
                .a = a,
                .lda = std::max<int64_t>(k, 1),
                .b = w,
                .ldb = std::max<int64_t>(trans_w ? k : m, 1),
                .c = c,
                .ldc = std::max<int64_t>(m, 1),
                .beta = beta,
                .bias = bias});
}

template <class T>
void forward_by_gemm(const Recurrence& r) {
  const Job<T> job(r);
  T* const from_h = r.kind == Recurrence::kGru ? static_cast<T*>(r.scratch) : nullptr;
  for_each_step(r, r.reverse, [&](int64_t first, int64_t n, int64_t i) {
    const auto keep = [&](T* all, int64_t stride) {
      if (all) launch_rows(keep_rows<T>, n, r.width, job.h, r.width, all + first * stride, stride, n);
    };
    if (r.w_hr) keep(job.h_before, r.width);
    if (r.mask) launch_rows(drop_rows<T>, n, r.width, job, job.h, job.masked, false, n);
    const T* const h = r.mask ? job.masked : job.h;
    if (from_h)
      multiply(r.dtype, n, job.gate_width, r.width, h, r.w_hh, !r.w_hh_transposed, from_h, 0, r.b_hh);
    else if (i > 0 || !r.zero_h)
      multiply(r.dtype, n, job.gate_width, r.width, h, r.w_hh, !r.w_hh_transposed, job.gates + first * job.gate_width,
               1);
    T* const out = r.w_hr ? job.inner + first * r.hidden : job.h;
    launch_rows(forward_rows<T>, n, r.hidden, job, from_h, out, first, n);
    if (!r.w_hr) return;
    multiply(r.dtype, n, r.width, r.hidden, out, r.w_hr, true, job.h, 0);
    keep(job.y, r.y_stride);
  });
}

template <class T>
void backward_by_gemm(const Recurrence& r) {
  const Job<T> job(r);
  const bool gru = r.kind == Recurrence::kGru;
  const T* const grads = gru ? job.grad_hidden : job.grad_gates;
  T* const projected = r.w_hr ? static_cast<T*>(r.scratch) : nullptr;
  for_each_step(r, !r.reverse, [&](int64_t first, int64_t n, int64_t i) {
    if (projected) {
      launch_rows(projected_grad<T>, n, r.width, job, first, n);
      multiply(r.dtype, n, r.hidden, r.width, job.grad_projected + first * r.width, r.w_hr, false, projected, 0);
    }
    launch_rows(backward_rows<T>, n, r.hidden, job, projected, first, n);
    if (i + 1 == r.steps && !r.first_wanted) return;
    multiply(r.dtype, n, r.width, job.gate_width, grads + first * job.gate_width, r.w_hh, r.w_hh_transposed,
             r.mask ? job.masked : job.grad_h, gru && !r.mask);
    if (r.mask) launch_rows(drop_rows<T>, n, r.width, job, job.masked, job.grad_h, gru, n);
  });
}

// ---- entries of the table -------------------------------------------------------------------------------------------

template <class T>
void dispatch(const Recurrence& r, bool backward) {
  if (r.rows == 0 || r.hidden == 0) return;
  if (fits_persistent<T>(r)) return run_persistent<T>(r, backward);
  constexpr int kRowsEach = sizeof(Wide<T>) == 4 ? 4 : 2;  // bounded by registers
  if (suits_per_unit(r)) return r.rows == 1 ? run_per_unit<T, 1>(r, backward) : run_per_unit<T, kRowsEach>(r, backward);
  backward ? backward_by_gemm<T>(r) : forward_by_gemm<T>(r);
}

void run(const Recurrence& r, bool backward) {
  with_floating(r.dtype, [&](auto type) { dispatch<typename decltype(type)::type>(r, backward); });
}

}  // namespace

void install_recurrence(KernelTable& table) {
  table.recurrence = [](const Recurrence& r) { run(r, false); };
  table.recurrence_grad = [](const Recurrence& r) { run(r, true); };
}

}  // namespace reel::cuda
