#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/device/kernels/id_check.h"

// Softmax, log-softmax and cross entropy over the last dimension, and their gradients, row by row: the maximum, the sum
// of exponentials and the result are passes over a row that stays in the cache.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
struct Row {
  static Batch<T> load_at(const T* x, int64_t n, const Batch<T>& beyond) {
    if (n >= kWidth<T>) return load(x);
    return select(lanes() < Batch<T>(T(n)), load_part(x, n), beyond);
  }
  static void store_at(T* y, const Batch<T>& value, int64_t n) {
    if (n >= kWidth<T>)
      store(y, value);
    else
      store_part(y, value, n);
  }
  static Batch<T> lanes() {
    alignas(Arch::alignment()) T number[kWidth<T>];
    for (int64_t i = 0; i < kWidth<T>; ++i) number[i] = T(i);
    return Batch<T>::load_aligned(number);
  }
};

template <class T>
T largest(const T* x, int64_t n) {
  const Batch<T> lowest(-std::numeric_limits<T>::infinity());
  Batch<T> result = lowest;
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const Batch<T> v = Row<T>::load_at(x + i, n - i, lowest);
    result = select((v > result) | (v != v), v, result);
  }
  alignas(Arch::alignment()) T lanes[kWidth<T>];
  result.store_aligned(lanes);
  T all = lanes[0];
  for (T lane : lanes) all = lane > all || lane != lane ? lane : all;
  return all;
}

/// y = exp(x - shift); returns the sum.
template <class T>
T exp_row(const T* x, T* y, int64_t n, T shift) {
  Batch<T> sum(T(0));
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const Batch<T> e =
        exp(Row<T>::load_at(x + i, n - i, Batch<T>(-std::numeric_limits<T>::infinity())) - Batch<T>(shift));
    sum += e;
    if (y) Row<T>::store_at(y + i, e, n - i);
  }
  return hadd(sum);
}

template <class T>
T log_of(T x) {
  return log(Batch<T>(x)).get(0);
}

template <class T, class Op>
void map_row(const Op& op, int64_t n, T* y, const T* a, const T* b) {
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const Batch<T> zero(T(0));
    Row<T>::store_at(y + i, op(Row<T>::load_at(a + i, n - i, zero), Row<T>::load_at(b + i, n - i, zero)), n - i);
  }
}
template <class T, class Op>
T sum_row(const Op& op, int64_t n, const T* a, const T* b) {
  const Batch<T> zero(T(0));
  Batch<T> sum = zero;
  for (int64_t i = 0; i < n; i += kWidth<T>)
    sum += op(Row<T>::load_at(a + i, n - i, zero), Row<T>::load_at(b + i, n - i, zero));
  return hadd(sum);
}

/// f(row, n) for the rows of a contiguous view.
template <class F>
void for_each_row(const View& x, const F& f) {
  if (x.numel == 0) return;
  const int64_t n = x.shape.size() ? x.shape.back() : 1;
  for_each_range(x.numel / n, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, n);
  });
}

template <class T>
void softmax_rows(bool log, const View& x, const View& y) {
  for_each_row(x, [&](int64_t row, int64_t n) {
    const T* from = x.as<const T>() + row * n;
    T* to = y.as<T>() + row * n;
    const T shift = largest(from, n);
    const T sum = exp_row(from, log ? nullptr : to, n, shift);
    if (log) {
      const Batch<T> a(shift), b(log_of(sum));
      map_row([&](auto v, auto) { return v - a - b; }, n, to, from, from);
    } else {
      const Batch<T> scale(T(1) / sum);
      map_row([&](auto v, auto) { return v * scale; }, n, to, to, to);
    }
  });
}

template <class T>
void softmax_grad_rows(bool log, const View& g, const View& y, const View& gx) {
  for_each_row(g, [&](int64_t row, int64_t n) {
    const T *grad = g.as<const T>() + row * n, *out = y.as<const T>() + row * n;
    T* to = gx.as<T>() + row * n;
    if (log) {
      const Batch<T> sum(sum_row([](auto a, auto) { return a; }, n, grad, out));
      map_row([&](auto a, auto b) { return a - exp(b) * sum; }, n, to, grad, out);
    } else {
      const Batch<T> sum(sum_row([](auto a, auto b) { return a * b; }, n, grad, out));
      map_row([&](auto a, auto b) { return b * (a - sum); }, n, to, grad, out);
    }
  });
}

template <class T>
void cross_entropy_rows(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                        const View* norms) {
  for_each_row(logits, [&](int64_t row, int64_t n) {
    const T* from = logits.as<const T>() + row * n;
    const int64_t id = target.as<const int64_t>()[row];
    T* norm = norms ? norms->as<T>() + 2 * row : nullptr;
    if (id < 0) {
      if (norm) norm[0] = norm[1] = 0;
      loss.as<T>()[row] = 0;
      return;
    }
    const T shift = largest(from, n);
    const T picked = from[id];
    const T sum = exp_row(from, static_cast<T*>(nullptr), n, shift);
    if (norm) norm[0] = shift, norm[1] = T(1) / sum;
    T expected = picked - shift;
    if (smoothing != 0) {  // label smoothing: part of the picked logit is replaced by the mean of all
      Batch<T> total(T(0));
      for (int64_t i = 0; i < n; i += kWidth<T>)
        total += Row<T>::load_at(from + i, n - i, Batch<T>(shift)) - Batch<T>(shift);
      expected = T(1 - smoothing) * expected + T(smoothing) * (hadd(total) / T(n));
    }
    loss.as<T>()[row] = log_of(sum) - expected;
  });
  if (divisor)
    for (int64_t row = 0; row < loss.numel; ++row) loss.as<T>()[row] /= *divisor->as<const T>();
}

template <class T>
void cross_entropy_grad_rows(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                             const View* divisor, const View& gx) {
  const T share = divisor ? 1 / *divisor->as<const T>() : T(1);
  for_each_row(logits, [&](int64_t row, int64_t n) {
    const T *from = logits.as<const T>() + row * n, *norm = norms.as<const T>() + 2 * row;
    T* to = gx.as<T>() + row * n;
    const int64_t id = target.as<const int64_t>()[row];
    if (id < 0) {
      std::fill(to, to + n, T(0));
      return;
    }
    const T scale = g.as<const T>()[row * g.strides[0]] * share;
    const Batch<T> shift(norm[0]), unit(norm[1]), spread(smoothing == 0 ? T(0) : T(smoothing) / T(n));
    map_row([&](auto v, auto) { return (exp(v - shift) * unit - spread) * Batch<T>(scale); }, n, to, from, from);
    to[id] -= scale * T(1 - smoothing);
  });
}

void softmax(bool log, const View& x, const View& y) {
  if (is_half(x.dtype)) return in_float32<softmax, 1>(log, x, y);
  x.dtype == kFloat32 ? softmax_rows<float>(log, x, y) : softmax_rows<double>(log, x, y);
}
void softmax_grad(bool log, const View& g, const View& y, const View& gx) {
  if (is_half(g.dtype)) return in_float32<softmax_grad, 1>(log, g, y, gx);
  g.dtype == kFloat32 ? softmax_grad_rows<float>(log, g, y, gx) : softmax_grad_rows<double>(log, g, y, gx);
}
bool cross_entropy(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                   const View* norms, IdCheck* check) {
  for (int64_t row = 0; check && row < target.numel; ++row)
    if (const int64_t id = target.as<const int64_t>()[row];
        id != check->ignored && (id < 0 || id >= logits.shape.back()))
      return check->bad = id, true;
  if (is_half(logits.dtype))
    return cross_entropy(smoothing, Widened().in(logits), target, divisor, loss, norms, nullptr);
  logits.dtype == kFloat32 ? cross_entropy_rows<float>(smoothing, logits, target, divisor, loss, norms)
                           : cross_entropy_rows<double>(smoothing, logits, target, divisor, loss, norms);
  return false;
}
void cross_entropy_grad(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                        const View* divisor, const View& gx) {
  if (is_half(gx.dtype))
    return cross_entropy_grad(smoothing, g, Widened().in(logits), norms, target, divisor, Widened().out(gx));
  g.dtype == kFloat32 ? cross_entropy_grad_rows<float>(smoothing, g, logits, norms, target, divisor, gx)
                      : cross_entropy_grad_rows<double>(smoothing, g, logits, norms, target, divisor, gx);
}

}  // namespace

void install_softmax(KernelTable& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
}

}  // namespace reel::cpu::REEL_ISA
