#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/onednn_gemm.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/lanes.h"
#include "lib/device/kernels/gemm.h"
#include "lib/device/kernels/recurrence.h"
#include "lib/functors/unary.h"

// Recurrent layers, a step at a time: a matrix product with the previous state, then the pointwise part of the cell.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
const T* at(const void* data, int64_t offset) {
  return data ? static_cast<const T*>(data) + offset : nullptr;
}
template <class T>
T* at(void* data, int64_t offset) {
  return data ? static_cast<T*>(data) + offset : nullptr;
}

/// Rows first … first + n of everything that has a row for each step.
template <class T>
struct Step {
  const Recurrence& r;
  int64_t first, n;
  int64_t width = gate_count(r.kind) * r.hidden;  // of gates
  T* gates = at<T>(r.gates, first* width);
  T* inner = at<T>(r.inner, first* r.hidden);
  const T* c_before = at<T>(r.c_before, first* r.hidden);
  const T* h_before = at<T>(r.h_before, first* r.width);
  T* grad_gates = at<T>(r.grad_gates, first* width);
  T* grad_hidden = at<T>(r.grad_hidden, first* width);
};

template <class T, class Visit>
void for_each_step(const Recurrence& r, bool reverse, const Visit& visit) {
  int64_t first = reverse ? r.total : 0;
  for (int64_t i = 0; i < r.steps; ++i) {
    const int64_t n = r.sizes ? r.sizes[reverse ? r.steps - 1 - i : i] : r.rows;
    if (reverse) first -= n;
    visit(Step<T>{r, first, n}, i);
    if (!reverse) first += n;
  }
}

/// c = beta c + op(a) w (+ bias) for a [n, k] and c [n, m].
template <class T>
void multiply(int64_t n, int64_t m, int64_t k, const T* a, const void* w, bool trans_w, T* c, double beta,
              const void* bias = nullptr) {
  cpu_kernels().gemm({.dtype = sizeof(T) == 4 ? kFloat32 : kFloat64,
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

/// body(lanes, i) for the batches of a row of `hidden` elements.
template <class T, class Body>
void for_each_batch(int64_t hidden, const Body& body) {
  for (int64_t i = 0; i < hidden; i += kWidth<T>) body(Lanes<T>{hidden - i}, i);
}

/// HalfProducts multiplies by w_hh in bfloat16 where the processor has instructions for it: the other factor and the
/// product are rounded, sums and the state are not.
class HalfProducts {
 public:
  HalfProducts() = default;
  /// r is of bfloat16.
  explicit HalfProducts(const Recurrence& r) : w_(r.w_hh), factor_(bytes_of(r)), product_(bytes_of(r)) {}

  /// Does what multiply() does with w_hh; returns false, having changed nothing, where float32 is faster.
  bool multiply(int64_t n, int64_t m, int64_t k, const float* a, bool trans_w, float* c, bool adds,
                const void* bias) const {
    if (!w_) return false;
    auto *const factor = factor_.data<BFloat16>(), *const product = product_.data<BFloat16>();
    convert(a, factor, n * k);
    if (!bfloat16_gemm({.dtype = kBFloat16,
                        .trans_b = trans_w,
                        .m = n,
                        .n = m,
                        .k = k,
                        .a = factor,
                        .lda = k,
                        .b = w_,
                        .ldb = trans_w ? k : m,
                        .c = product,
                        .ldc = m}))
      return false;
    for (int64_t row = 0; row < n; ++row)
      for_each_batch<float>(m, [&, to = c + row * m, from = product + row * m](const Lanes<float>& lanes, int64_t i) {
        const auto start = adds ? lanes.get(to, i) : lanes.get_or_zero(bias, i);
        lanes.set(to, i, start + (lanes.whole ? load_wide(from + i) : load_part_wide(from + i, lanes.n)));
      });
    return true;
  }
  bool multiply(int64_t, int64_t, int64_t, const double*, bool, double*, bool, const void*) const { return false; }

 private:
  /// Returns how many bytes the factor or the product of a step has, whichever is larger.
  static size_t bytes_of(const Recurrence& r) {
    return static_cast<size_t>(r.rows * std::max(gate_count(r.kind) * r.hidden, r.width)) * sizeof(BFloat16);
  }
  const void* w_ = nullptr;
  const Scratch factor_, product_;
};

/// c = op(a) w_hh (+ c or bias) for a [n, k] and c [n, m].
template <class T>
void multiply_hidden(const Recurrence& r, const HalfProducts& halves, int64_t n, int64_t m, int64_t k, const T* a,
                     bool trans_w, T* c, bool adds, const void* bias = nullptr) {
  if (!halves.multiply(n, m, k, a, trans_w, c, adds, bias)) multiply(n, m, k, a, r.w_hh, trans_w, c, adds, bias);
}

// ---- forward --------------------------------------------------------------------------------------------------------

/// What the product with w_hh takes of h.
template <class T>
const T* masked(const Step<T>& s, const T* h) {
  const Recurrence& r = s.r;
  if (!r.mask) return h;
  for_each_batch<T>(s.n * r.width, [&](const Lanes<T>& lanes, int64_t i) {
    lanes.set(r.masked, i, lanes.get(h, i) * lanes.get(r.mask, i));
  });
  return static_cast<T*>(r.masked);
}

template <class T>
void lstm_rows(const Step<T>& s, T* out) {
  const Recurrence& r = s.r;
  const int64_t hidden = r.hidden;
  for (int64_t row = 0; row < s.n; ++row) {
    T *gates = s.gates + row * s.width, *c = at<T>(r.c, row * hidden), *m = out + row * hidden;
    for_each_batch<T>(hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto gate = [&](int64_t block) {
        return lanes.get(gates, block * hidden + i) + lanes.get_or_zero(r.b_hh, block * hidden + i);
      };
      const auto input = logistic(gate(0)), forget = logistic(gate(1)), update = tanh(gate(2)),
                 output = logistic(gate(3));
      const auto next = fma(forget, lanes.get(c, i), input * update);
      lanes.set(gates, i, input);
      lanes.set(gates, hidden + i, forget);
      lanes.set(gates, 2 * hidden + i, update);
      lanes.set(gates, 3 * hidden + i, output);
      lanes.set(c, i, next);
      lanes.set(m, i, output * tanh(next));
    });
  }
}

template <class T>
void gru_rows(const Step<T>& s, const T* from_h) {
  const int64_t hidden = s.r.hidden;
  for (int64_t row = 0; row < s.n; ++row) {
    T *gates = s.gates + row * s.width, *h = at<T>(s.r.h, row * hidden);
    const T* mine = from_h + row * s.width;
    for_each_batch<T>(hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto reset = logistic(lanes.get(gates, i) + lanes.get(mine, i));
      const auto keep = logistic(lanes.get(gates, hidden + i) + lanes.get(mine, hidden + i));
      const auto inner = lanes.get(mine, 2 * hidden + i);
      const auto update = tanh(fma(reset, inner, lanes.get(gates, 2 * hidden + i)));
      lanes.set(gates, i, reset);
      lanes.set(gates, hidden + i, keep);
      lanes.set(gates, 2 * hidden + i, update);
      if (s.inner) lanes.set(s.inner + row * hidden, i, inner);
      lanes.set(h, i, fma(keep, lanes.get(h, i) - update, update));
    });
  }
}

template <class T, bool relu>
void simple_rows(const Step<T>& s) {
  const int64_t hidden = s.r.hidden;
  for (int64_t row = 0; row < s.n; ++row) {
    T *gates = s.gates + row * hidden, *h = at<T>(s.r.h, row * hidden);
    for_each_batch<T>(hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto sum = lanes.get(gates, i) + lanes.get_or_zero(s.r.b_hh, i);
      Batch<T> next;
      if constexpr (relu)
        next = functors::Relu()(sum);
      else
        next = tanh(sum);
      lanes.set(gates, i, next);
      lanes.set(h, i, next);
    });
  }
}

template <class T>
void forward(const Recurrence& r, const HalfProducts& halves = {}) {
  T* const h = static_cast<T*>(r.h);
  for_each_step<T>(r, r.reverse, [&](const Step<T>& s, int64_t i) {
    if (r.h_before) std::copy_n(h, s.n * r.width, at<T>(r.h_before, s.first * r.width));
    if (r.c_before) std::copy_n(at<T>(r.c, 0), s.n * r.hidden, at<T>(r.c_before, s.first * r.hidden));
    if (r.kind == Recurrence::kGru) {
      T* const from_h = static_cast<T*>(r.scratch);
      multiply_hidden(r, halves, s.n, s.width, r.width, masked(s, h), !r.w_hh_transposed, from_h, false, r.b_hh);
      gru_rows(s, from_h);
    } else {
      if (i > 0 || !r.zero_h)
        multiply_hidden(r, halves, s.n, s.width, r.width, masked(s, h), !r.w_hh_transposed, s.gates, true);
      switch (r.kind) {
        case Recurrence::kTanh: simple_rows<T, false>(s); break;
        case Recurrence::kRelu: simple_rows<T, true>(s); break;
        default: lstm_rows(s, r.w_hr ? s.inner : h);
      }
      if (r.w_hr) multiply(s.n, r.width, r.hidden, s.inner, r.w_hr, true, h, 0);
    }
    if (r.y)
      for (int64_t row = 0; row < s.n; ++row)
        std::copy_n(h + row * r.width, r.width, at<T>(r.y, (s.first + row) * r.y_stride));
  });
}

// ---- backward -------------------------------------------------------------------------------------------------------
// Before a step, grad_h is the gradient that later steps contribute; the step adds its grad_y and replaces it by the
// gradient of the previous state.

template <class T>
void lstm_grad_rows(const Step<T>& s, const T* grad_out) {
  const Batch<T> one(T(1));
  const Recurrence& r = s.r;
  const int64_t hidden = r.hidden;
  for (int64_t row = 0; row < s.n; ++row) {
    const T *gates = s.gates + row * s.width, *before = s.c_before + row * hidden, *grad_m = grad_out + row * hidden;
    const T* grad_y = r.w_hr ? nullptr : at<T>(r.grad_y, (s.first + row) * r.y_stride);
    T *grad_c = at<T>(r.grad_c, row * hidden), *grad = s.grad_gates + row * s.width;
    for_each_batch<T>(hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto input = lanes.get(gates, i), forget = lanes.get(gates, hidden + i);
      const auto update = lanes.get(gates, 2 * hidden + i), output = lanes.get(gates, 3 * hidden + i);
      const auto c = lanes.get(before, i), tanh_c = tanh(fma(forget, c, input * update));
      const auto gm = lanes.get(grad_m, i) + lanes.get_or_zero(grad_y, i);
      const auto gc = fma(gm * output, one - tanh_c * tanh_c, lanes.get(grad_c, i));
      lanes.set(grad, i, gc * update * input * (one - input));
      lanes.set(grad, hidden + i, gc * c * forget * (one - forget));
      lanes.set(grad, 2 * hidden + i, gc * input * (one - update * update));
      lanes.set(grad, 3 * hidden + i, gm * tanh_c * output * (one - output));
      lanes.set(grad_c, i, gc * forget);
    });
  }
}

template <class T>
void gru_grad_rows(const Step<T>& s) {
  const Batch<T> one(T(1));
  const Recurrence& r = s.r;
  const int64_t hidden = r.hidden;
  for (int64_t row = 0; row < s.n; ++row) {
    const T *gates = s.gates + row * s.width, *before = s.h_before + row * hidden, *inner = s.inner + row * hidden;
    const T* grad_y = at<T>(r.grad_y, (s.first + row) * r.y_stride);
    T *grad_h = at<T>(r.grad_h, row * hidden), *grad = s.grad_gates + row * s.width;
    T* of_hidden = s.grad_hidden + row * s.width;
    for_each_batch<T>(hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto reset = lanes.get(gates, i), keep = lanes.get(gates, hidden + i);
      const auto update = lanes.get(gates, 2 * hidden + i);
      const auto g = lanes.get(grad_h, i) + lanes.get_or_zero(grad_y, i);
      const auto g_update = g * (one - keep) * (one - update * update);
      const auto g_reset = g_update * lanes.get(inner, i) * reset * (one - reset);
      const auto g_keep = g * (lanes.get(before, i) - update) * keep * (one - keep);
      lanes.set(grad, i, g_reset);
      lanes.set(grad, hidden + i, g_keep);
      lanes.set(grad, 2 * hidden + i, g_update);
      lanes.set(of_hidden, i, g_reset);
      lanes.set(of_hidden, hidden + i, g_keep);
      lanes.set(of_hidden, 2 * hidden + i, g_update * reset);
      lanes.set(grad_h, i, g * keep);
    });
  }
}

template <class T>
void simple_grad_rows(const Step<T>& s) {
  const Recurrence& r = s.r;
  for (int64_t row = 0; row < s.n; ++row) {
    const T *h = s.gates + row * r.hidden, *grad_y = at<T>(r.grad_y, (s.first + row) * r.y_stride);
    for_each_batch<T>(r.hidden, [&](const Lanes<T>& lanes, int64_t i) {
      const auto y = lanes.get(h, i);
      const auto g = lanes.get(r.grad_h, row * r.hidden + i) + lanes.get_or_zero(grad_y, i);
      const Batch<T> of_sum =
          r.kind == Recurrence::kRelu ? functors::Relu().grad(g, y, y) : functors::Tanh().grad(g, y, y);
      lanes.set(s.grad_gates, row * r.hidden + i, of_sum);
    });
  }
}

/// The gradient of o tanh(c) of this step, whose projection is h.
template <class T>
const T* grad_before_projection(const Step<T>& s) {
  const Recurrence& r = s.r;
  T* grad = at<T>(r.grad_projected, s.first * r.width);
  for (int64_t row = 0; row < s.n; ++row) {
    const T* grad_y = at<T>(r.grad_y, (s.first + row) * r.y_stride);
    for (int64_t i = 0; i < r.width; ++i)
      grad[row * r.width + i] = at<T>(r.grad_h, row * r.width)[i] + (grad_y ? grad_y[i] : T(0));
  }
  multiply(s.n, r.hidden, r.width, grad, r.w_hr, false, static_cast<T*>(r.scratch), 0);
  return static_cast<T*>(r.scratch);
}

/// Replaces grad_h by the gradient of the previous state: the product with w_hh, added to what a GRU has left there.
template <class T>
void multiply_grad(const Step<T>& s, const HalfProducts& halves) {
  const Recurrence& r = s.r;
  const bool gru = r.kind == Recurrence::kGru;
  T* const product = static_cast<T*>(r.mask ? r.masked : r.grad_h);
  multiply_hidden(r, halves, s.n, r.width, s.width, gru ? s.grad_hidden : s.grad_gates, r.w_hh_transposed, product,
                  gru && !r.mask);
  if (!r.mask) return;
  for_each_batch<T>(s.n * r.width, [&](const Lanes<T>& lanes, int64_t i) {
    lanes.set(r.grad_h, i,
              fma(lanes.get(product, i), lanes.get(r.mask, i), lanes.get_or_zero(gru ? r.grad_h : nullptr, i)));
  });
}

template <class T>
void backward(const Recurrence& r, const HalfProducts& halves = {}) {
  for_each_step<T>(r, !r.reverse, [&](const Step<T>& s, int64_t i) {
    switch (r.kind) {
      case Recurrence::kGru: gru_grad_rows(s); break;
      case Recurrence::kLstm: lstm_grad_rows(s, r.w_hr ? grad_before_projection(s) : at<T>(r.grad_h, 0)); break;
      default: simple_grad_rows(s);
    }
    if (i + 1 < r.steps || r.first_wanted) multiply_grad(s, halves);
  });
}

bool multiplies_halves(const Recurrence& r) { return r.dtype == kBFloat16 && multiplies_bfloat16(); }

void recurrence(const Recurrence& r) {
  if (multiplies_halves(r)) return forward<float>(Widened().of(r), HalfProducts(r));
  if (is_half(r.dtype)) return recurrence(Widened().of(r));
  r.dtype == kFloat32 ? forward<float>(r) : forward<double>(r);
}
void recurrence_grad(const Recurrence& r) {
  if (multiplies_halves(r)) return backward<float>(Widened().of_grad(r), HalfProducts(r));
  if (is_half(r.dtype)) return recurrence_grad(Widened().of_grad(r));
  r.dtype == kFloat32 ? backward<float>(r) : backward<double>(r);
}

}  // namespace

void install_recurrence(KernelTable& table) {
  table.recurrence = recurrence;
  table.recurrence_grad = recurrence_grad;
  table.rnn_layer_workspace = [](const RnnLayer&) -> int64_t { return -1; };
  table.rnn_layer = table.rnn_layer_grad = [](const RnnLayer&) { return false; };
}

}  // namespace reel::cpu::REEL_ISA
