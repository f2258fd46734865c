#include <cmath>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/narrow.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/norm.h"
#include "lib/functors/number.h"

// Layer, RMS and group norms (statistics of rows) and batch norms (statistics of channels), with their gradients.
//
// Sums are taken in T for a few terms a lane and then in double precision. A mean is corrected by the mean of the
// differences from it, and is subtracted as a sum of two numbers of type T: a large mean costs a small variance no
// digits. Elements, of type E, are widened to T where they are read, and weights have been.
namespace reel::cpu::REEL_ISA {
namespace {

constexpr int kFlush = 32;  // terms of a lane that are summed in T before they are added in double precision

/// kWidth elements, or the first n of them, from position i on. Halves are widened, and rounded again.
template <class T>
struct Whole {
  int64_t i;
  template <class E>
  Batch<T> operator()(const E* p) const {
    return load_wide(p + i);
  }
  template <class E>
  void set(E* p, const Batch<T>& x) const {
    store_rounded(p + i, x, kWidth<T>);
  }
  Batch<T> keep(const Batch<T>& x) const { return x; }
};
template <class T>
struct Part {
  int64_t i, n;
  template <class E>
  Batch<T> operator()(const E* p) const {
    return load_part_wide(p + i, n);
  }
  template <class E>
  void set(E* p, const Batch<T>& x) const {
    store_rounded(p + i, x, n);
  }
  /// x with zeros in the lanes that are not there.
  Batch<T> keep(const Batch<T>& x) const {
    alignas(Arch::alignment()) T number[kWidth<T>];
    for (int64_t k = 0; k < kWidth<T>; ++k) number[k] = T(k);
    return select(Batch<T>::load_aligned(number) < Batch<T>(T(n)), x, Batch<T>(T(0)));
  }
};

/// f(at) for the batches of n elements from `begin` on.
template <class T, class F>
void for_each_batch(int64_t begin, int64_t n, const F& f) {
  const int64_t end = begin + n;
  int64_t i = begin;
  for (; i + kWidth<T> <= end; i += kWidth<T>) f(Whole<T>{i});
  if (i < end) f(Part<T>{i, end - i});
}

/// K sums at a time.
template <class T, int K>
class Sums {
 public:
  Sums() {
    for (auto& part : parts_) part = Batch<T>(T(0));
  }
  template <class At, class... Terms>
  void add(const At& at, const Terms&... terms) {
    int k = 0;
    ((parts_[k] += at.keep(terms), ++k), ...);
    if (++count_ == kFlush) flush();
  }
  double get(int k = 0) {
    if (count_) flush();
    return totals_[k];
  }

 private:
  void flush() {
    for (int k = 0; k < K; ++k) {
      totals_[k] += double(hadd(parts_[k]));
      parts_[k] = Batch<T>(T(0));
    }
    count_ = 0;
  }
  Batch<T> parts_[K];
  double totals_[K] = {};
  int count_ = 0;
};

/// x - mean, where mean is the sum of two numbers.
template <class T>
struct Centre {
  Batch<T> high, low;
  explicit Centre(double mean) : high(T(mean)), low(T(rest_of(mean))) {}
  Centre(const Batch<T>& h, const Batch<T>& l) : high(h), low(l) {}
  Batch<T> operator()(const Batch<T>& x) const { return (x - high) - low; }
  /// What rounding to T takes from a mean; nothing from one that is infinite there.
  static double rest_of(double mean) { return std::isfinite(T(mean)) ? mean - double(T(mean)) : 0; }
};

/// Mean and variance from the sums of d and d², d = x - mean, over n elements: the mean is off by that of d.
void correct(double sum, double squares, double n, double* mean, double* variance) {
  const double off = sum / n, around = squares / n - off * off;
  *mean += off;
  *variance = around < 0 ? 0 : around;
}

/// Mean and variance where squares have left the range of T: in double precision, of `outer` runs of `inner` elements
/// that are `stride` apart.
template <class E>
void exact_moments(const E* x, int64_t outer, int64_t stride, int64_t inner, bool center, double* mean,
                   double* variance) {
  const auto average = [&](auto term) {
    double sum = 0;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) sum += term(double(widen(x[o * stride + i])));
    return sum / double(outer * inner);
  };
  const double about = center ? average([](double value) { return value; }) : 0;
  *mean = about;
  *variance = average([about](double value) { return (value - about) * (value - about); });
}

double rstd_of(double variance, double eps) { return 1 / functors::sqrt(variance + eps); }

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class T>
T at_or(const T* p, int64_t i, T otherwise) {
  return p ? p[i] : otherwise;
}

/// Rows of outer indices begin … end or, where there is but one outer index, of groups begin … end.
template <class E>
Norm rows_of(const Norm& norm, int64_t begin, int64_t end) {
  const bool by_groups = norm.outer == 1;
  const int64_t rows = by_groups ? 1 : norm.groups, n = norm.channels * norm.inner;
  Norm part = norm;
  (by_groups ? part.groups : part.outer) = end - begin;
  const auto skip = [](auto*& data, int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(+data)>>, const char, char>;
    if (data) data = static_cast<Byte*>(data) + bytes;
  };
  const int64_t bytes = begin * rows * n * static_cast<int64_t>(sizeof(E));
  skip(part.x, bytes), skip(part.y, bytes), skip(part.grad_y, bytes), skip(part.grad_x, bytes);
  part.mean += begin * rows, part.variance += begin * rows;
  if (!by_groups) return part;
  const int64_t first = begin * norm.channels;
  skip(part.weight, first * static_cast<int64_t>(sizeof(Compute<E>)));
  skip(part.bias, first * static_cast<int64_t>(sizeof(Compute<E>)));
  skip(part.grad_weight, first * static_cast<int64_t>(sizeof(double)));
  skip(part.grad_bias, first * static_cast<int64_t>(sizeof(double)));
  return part;
}

/// How many units there are to divide, and how many elements each has: see rows_of.
int64_t units_of(const Norm& norm) { return norm.outer == 1 ? norm.groups : norm.outer; }
int64_t unit_size(const Norm& norm) { return (norm.outer == 1 ? 1 : norm.groups) * norm.channels * norm.inner; }

template <class E>
void row_norm_part(const Norm& norm) {
  using T = Compute<E>;
  const int64_t channels = norm.channels, inner = norm.inner, n = channels * inner;
  for (int64_t row = 0; row < norm.outer * norm.groups; ++row) {
    const E* x = static_cast<const E*>(norm.x) + row * n;
    E* y = static_cast<E*>(norm.y) + row * n;
    const int64_t first = row % norm.groups * channels;
    const T* weight = norm.weight ? static_cast<const T*>(norm.weight) + first : nullptr;
    const T* bias = norm.bias ? static_cast<const T*>(norm.bias) + first : nullptr;

    double mean = 0;
    if (norm.center) {
      Sums<T, 1> sum;
      for_each_batch<T>(0, n, [&](auto at) { sum.add(at, at(x)); });
      mean = sum.get() / double(n);
    }
    const Centre<T> rough(mean);
    Sums<T, 2> sums;
    for_each_batch<T>(0, n, [&](auto at) {
      const Batch<T> d = rough(at(x));
      sums.add(at, d, d * d);
    });
    if (sums.get(1) < functors::kInfinity)
      correct(norm.center ? sums.get(0) : 0, sums.get(1), double(n), &mean, norm.variance + row);
    else
      exact_moments(x, 1, n, n, norm.center, &mean, norm.variance + row);
    norm.mean[row] = mean;
    const Centre<T> centre(mean);
    const double rstd = rstd_of(norm.variance[row], norm.eps);

    if (inner == 1 && weight) {
      const Batch<T> scale = Batch<T>(T(rstd));
      for_each_batch<T>(0, n, [&](auto at) {
        const Batch<T> z = centre(at(x)) * scale * at(weight);
        at.set(y, bias ? z + at(bias) : z);
      });
    } else {
      for (int64_t c = 0; c < channels; ++c) {
        const Batch<T> scale(T(rstd) * at_or(weight, c, T(1))), shift(at_or(bias, c, T(0)));
        for_each_batch<T>(c * inner, inner, [&](auto at) { at.set(y, fma(centre(at(x)), scale, shift)); });
      }
    }
  }
}

template <class E>
void row_norm(const Norm& norm) {
  if (units_of(norm) * unit_size(norm) <= part_size) return row_norm_part<E>(norm);
  for_each_range(units_of(norm), unit_size(norm),
                 [&](int64_t begin, int64_t end) { row_norm_part<E>(rows_of<E>(norm, begin, end)); });
}

// gx = rstd (h - ⟨h⟩ - x̂ ⟨h x̂⟩) with h = g weight, x̂ = (x - mean) rstd and ⟨⟩ the mean over a row; without centring,
// there is no ⟨h⟩.

/// A weight for each run of `inner` elements, or none.
template <class E>
void row_norm_grad_by_runs(const Norm& norm) {
  using T = Compute<E>;
  const int64_t channels = norm.channels, inner = norm.inner, n = channels * inner;
  for (int64_t row = 0; row < norm.outer * norm.groups; ++row) {
    const E *x = static_cast<const E*>(norm.x) + row * n, *g = static_cast<const E*>(norm.grad_y) + row * n;
    const int64_t first = row % norm.groups * channels;
    const T* weight = norm.weight ? static_cast<const T*>(norm.weight) + first : nullptr;
    const Centre<T> centre(norm.mean[row]);
    const double rstd = rstd_of(norm.variance[row], norm.eps);

    double sum_h = 0, sum_hd = 0;  // d = x - mean
    for (int64_t c = 0; c < channels; ++c) {
      Sums<T, 2> sums;
      for_each_batch<T>(c * inner, inner, [&](auto at) { sums.add(at, at(g), at(g) * centre(at(x))); });
      const double w = at_or(weight, c, T(1));
      sum_h += w * sums.get(0);
      sum_hd += w * sums.get(1);
      if (norm.grad_bias) static_cast<double*>(norm.grad_bias)[first + c] += sums.get(0);
      if (norm.grad_weight) static_cast<double*>(norm.grad_weight)[first + c] += sums.get(1) * rstd;
    }
    if (!norm.grad_x) continue;
    E* gx = static_cast<E*>(norm.grad_x) + row * n;
    const Batch<T> unit = Batch<T>(T(rstd)), shift(T(norm.center ? -rstd * sum_h / double(n) : 0)),
                   slope(T(-rstd * rstd * sum_hd / double(n)));
    for (int64_t c = 0; c < channels; ++c) {
      const Batch<T> scale(T(rstd) * at_or(weight, c, T(1)));
      for_each_batch<T>(c * inner, inner,
                        [&](auto at) { at.set(gx, fma(centre(at(x)) * unit, slope, fma(at(g), scale, shift))); });
    }
  }
}

/// A weight for each element of a row.
template <class E>
void row_norm_grad_by_elements(const Norm& norm) {
  using T = Compute<E>;
  const int64_t n = norm.channels, rows = norm.outer * norm.groups;
  const T* weights = static_cast<const T*>(norm.weight);
  // The gradients of the weights are sums over rows: blocks of as many rows as stay in the cache are summed at a time.
  constexpr int64_t kCached = 32768;
  const int64_t most = n * kFlush <= kCached ? kFlush : n < kCached ? kCached / n : 1;
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t end = begin + most < rows ? begin + most : rows;
    double rstds[kFlush];
    for (int64_t row = begin; row < end; ++row) rstds[row - begin] = rstd_of(norm.variance[row], norm.eps);
    for (int64_t row = begin; row < end && norm.grad_x; ++row) {
      const E *x = static_cast<const E*>(norm.x) + row * n, *g = static_cast<const E*>(norm.grad_y) + row * n;
      const T* weight = weights + row % norm.groups * n;
      E* gx = static_cast<E*>(norm.grad_x) + row * n;
      const Centre<T> centre(norm.mean[row]);
      const double rstd = rstds[row - begin];
      Sums<T, 2> sums;
      for_each_batch<T>(0, n, [&](auto at) {
        const Batch<T> h = at(g) * at(weight);
        sums.add(at, h, h * centre(at(x)));
      });
      const Batch<T> unit = Batch<T>(T(rstd)), shift(T(norm.center ? -rstd * sums.get(0) / double(n) : 0)),
                     slope(T(-rstd * rstd * sums.get(1) / double(n)));
      for_each_batch<T>(
          0, n, [&](auto at) { at.set(gx, fma(centre(at(x)) * unit, slope, fma(at(g) * at(weight), unit, shift))); });
    }
    if (!norm.grad_weight && !norm.grad_bias) continue;
    for (int64_t group = 0; group < norm.groups; ++group)
      for_each_batch<T>(0, n, [&](auto at) {
        Batch<T> to_weight(T(0)), to_bias(T(0));
        for (int64_t row = begin + (group - begin % norm.groups + norm.groups) % norm.groups; row < end;
             row += norm.groups) {
          const Batch<T> g = at(static_cast<const E*>(norm.grad_y) + row * n);
          const Batch<T> d = Centre<T>(norm.mean[row])(at(static_cast<const E*>(norm.x) + row * n));
          to_weight = fma(g, d * Batch<T>(T(rstds[row - begin])), to_weight);
          to_bias += g;
        }
        T lanes[2][kWidth<T>];
        store(lanes[0], to_weight);
        store(lanes[1], to_bias);
        for (int64_t k = 0; k < kWidth<T> && at.i + k < n; ++k) {
          if (norm.grad_weight) static_cast<double*>(norm.grad_weight)[group * n + at.i + k] += double(lanes[0][k]);
          if (norm.grad_bias) static_cast<double*>(norm.grad_bias)[group * n + at.i + k] += double(lanes[1][k]);
        }
      });
  }
}

template <class E>
void row_norm_grad_part(const Norm& norm) {
  norm.inner == 1 && norm.weight ? row_norm_grad_by_elements<E>(norm) : row_norm_grad_by_runs<E>(norm);
}

/// The gradients of weight and bias are sums over outer indices: each part has sums of its own, which are then added in
/// order.
template <class E>
void row_norm_grad(const Norm& norm) {
  const int64_t units = units_of(norm), numel = units * unit_size(norm);
  if (numel <= part_size) return row_norm_grad_part<E>(norm);
  // How many weights have sums of parts, which are to take little memory.
  const int64_t n = norm.outer == 1 || !(norm.grad_weight || norm.grad_bias) ? 0 : norm.groups * norm.channels;
  const int64_t most = n ? std::clamp<int64_t>(numel / (16 * n), 1, 64) : units;
  const int64_t step = step_of(units, std::min(parts_of(numel), most)), count = (units - 1) / step + 1;
  const Scratch scratch(static_cast<size_t>(2 * n * count) * sizeof(double));
  double* const sums = scratch.data<double>();
  for (int64_t i = 0; i < 2 * n * count; ++i) sums[i] = 0;
  parallel_for(units, step, [&](int64_t begin, int64_t end) {
    Norm part = rows_of<E>(norm, begin, end);
    if (n && part.grad_weight) part.grad_weight = sums + 2 * n * (begin / step);
    if (n && part.grad_bias) part.grad_bias = sums + 2 * n * (begin / step) + n;
    row_norm_grad_part<E>(part);
  });
  const auto add = [n](double* total, const double* part) {
    for (int64_t i = 0; total && i < n; ++i) total[i] += part[i];
  };
  for (int64_t part = 0; part < count; ++part) {
    add(static_cast<double*>(norm.grad_weight), sums + 2 * n * part);
    add(static_cast<double*>(norm.grad_bias), sums + 2 * n * part + n);
  }
}

// ---- channels -------------------------------------------------------------------------------------------------------

/// Calls f(at) for the elements of channel c, run by run.
template <class T, class F>
void for_each_in_channel(const Norm& norm, int64_t c, const F& f) {
  for (int64_t o = 0; o < norm.outer; ++o) for_each_batch<T>((o * norm.groups + c) * norm.inner, norm.inner, f);
}
template <class F>
void for_each_channel(const Norm& norm, const F& f) {
  for_each_range(norm.groups, norm.outer * norm.inner, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

template <class E>
void run_norm(const Norm& norm) {
  using T = Compute<E>;
  const E* x = static_cast<const E*>(norm.x);
  const T* weight = static_cast<const T*>(norm.weight);
  const T* bias = static_cast<const T*>(norm.bias);
  E* y = static_cast<E*>(norm.y);
  const double n = double(norm.outer * norm.inner);
  for_each_channel(norm, [&](int64_t c) {
    double *mean = norm.mean + c, *variance = norm.variance + c;
    if (!norm.given) {
      Sums<T, 1> sum;
      for_each_in_channel<T>(norm, c, [&](auto at) { sum.add(at, at(x)); });
      *mean = sum.get() / n;
      const Centre<T> rough(*mean);
      Sums<T, 2> sums;
      for_each_in_channel<T>(norm, c, [&](auto at) {
        const Batch<T> d = rough(at(x));
        sums.add(at, d, d * d);
      });
      if (sums.get(1) < functors::kInfinity)
        correct(sums.get(0), sums.get(1), n, mean, variance);
      else
        exact_moments(x + c * norm.inner, norm.outer, norm.groups * norm.inner, norm.inner, true, mean, variance);
    }
    const Centre<T> centre(*mean);
    const Batch<T> scale(T(rstd_of(*variance, norm.eps) * at_or(weight, c, T(1)))), shift(at_or(bias, c, T(0)));
    for_each_in_channel<T>(norm, c, [&](auto at) { at.set(y, fma(centre(at(x)), scale, shift)); });
  });
}

/// The formula of rows, with a weight that is the same for all elements of a mean. With given statistics (evaluation)
/// these are constants, and gx = rstd weight g.
template <class E>
void run_norm_grad(const Norm& norm) {
  using T = Compute<E>;
  const E* x = static_cast<const E*>(norm.x);
  const T* weight = static_cast<const T*>(norm.weight);
  const E* g = static_cast<const E*>(norm.grad_y);
  E* gx = static_cast<E*>(norm.grad_x);
  const double n = double(norm.outer * norm.inner);
  for_each_channel(norm, [&](int64_t c) {
    const Centre<T> centre(norm.mean[c]);
    Sums<T, 2> sums;
    if (!norm.given || norm.grad_weight || norm.grad_bias)
      for_each_in_channel<T>(norm, c, [&](auto at) { sums.add(at, at(g), at(g) * centre(at(x))); });
    const double rstd = rstd_of(norm.variance[c], norm.eps), factor = rstd * at_or(weight, c, T(1));
    if (norm.grad_bias) static_cast<double*>(norm.grad_bias)[c] += sums.get(0);
    if (norm.grad_weight) static_cast<double*>(norm.grad_weight)[c] += sums.get(1) * rstd;
    if (!gx) return;
    const Batch<T> scale = Batch<T>(T(factor));
    if (norm.given) return for_each_in_channel<T>(norm, c, [&](auto at) { at.set(gx, at(g) * scale); });
    const Batch<T> shift(T(-factor * sums.get(0) / n)), unit = Batch<T>(T(rstd));
    const Batch<T> slope(T(-factor * rstd * sums.get(1) / n));
    for_each_in_channel<T>(norm, c,
                           [&](auto at) { at.set(gx, fma(centre(at(x)) * unit, slope, fma(at(g), scale, shift))); });
  });
}

// ---- channels whose runs are of one element -------------------------------------------------------------------------
// They are columns of a matrix, whose rows are read in their order: lanes are neighbouring channels.

/// Columns are some channels, and numbers for each of them.
template <class T>
class Columns {
 public:
  Columns(const Norm& norm, int64_t begin, int64_t end)
      : begin(begin),
        count(end - begin),
        sums_(static_cast<size_t>(2 * count) * sizeof(double)),
        numbers_(static_cast<size_t>(kNumbers * count) * sizeof(T)),
        norm_(norm) {
    set_centre();
  }
  const int64_t begin, count;

  enum Number { kHigh, kLow, kScale, kShift, kUnit, kSlope, kNumbers };
  T* operator[](Number number) const { return numbers_.template data<T>() + number * count; }
  /// Sets the number of each channel to that of value(channel).
  template <class F>
  void set(Number number, const F& value) const {
    for (int64_t i = 0; i < count; ++i) (*this)[number][i] = T(value(i));
  }
  /// Sets what is subtracted to the means as they are now.
  void set_centre() const {
    set(kHigh, [&](int64_t i) { return norm_.mean[begin + i]; });
    set(kLow, [&](int64_t i) { return Centre<T>::rest_of(norm_.mean[begin + i]); });
  }
  template <class At>
  Centre<T> centre(const At& at) const {
    return {at((*this)[kHigh]), at((*this)[kLow])};
  }

  /// Returns sum k of channel i.
  double sum(int k, int64_t i) const { return sums_.template data<double>()[k * count + i]; }
  /// Adds up K terms of each channel, which add(at, row, sums) adds to K vectors, over all rows; `row` is where the
  /// elements of the first of these channels are.
  template <int K, class Add>
  void add_up(const Add& add) const {
    double* const totals = sums_.template data<double>();
    std::fill_n(totals, K * count, 0.);
    for (int64_t first = 0; first < norm_.outer; first += kFlush) {
      const int64_t last = first + kFlush < norm_.outer ? first + kFlush : norm_.outer;
      for_each_batch<T>(0, count, [&](auto at) {
        Batch<T> sums[K];
        for (auto& s : sums) s = Batch<T>(T(0));
        for (int64_t row = first; row < last; ++row) add(at, row * norm_.groups + begin, sums);
        T lanes[kWidth<T>];
        for (int k = 0; k < K; ++k) {
          store(lanes, sums[k]);
          for (int64_t i = 0; i < kWidth<T> && at.i + i < count; ++i) totals[k * count + at.i + i] += double(lanes[i]);
        }
      });
    }
  }
  /// Calls f(at, row) for all elements.
  template <class F>
  void for_each(const F& f) const {
    for (int64_t row = 0; row < norm_.outer; ++row)
      for_each_batch<T>(0, count, [&](auto at) { f(at, row * norm_.groups + begin); });
  }

 private:
  const Scratch sums_, numbers_;
  const Norm& norm_;
};

/// Calls f(columns) for parts of the channels.
template <class T, class F>
void for_each_columns(const Norm& norm, const F& f) {
  constexpr int64_t kStep = kWidth<T>;
  for_each_range((norm.groups + kStep - 1) / kStep, norm.outer * kStep, [&](int64_t begin, int64_t end) {
    f(Columns<T>(norm, begin * kStep, end * kStep < norm.groups ? end * kStep : norm.groups));
  });
}

template <class E>
void column_norm(const Norm& norm) {
  using T = Compute<E>;
  using C = Columns<T>;
  const E* x = static_cast<const E*>(norm.x);
  E* y = static_cast<E*>(norm.y);
  const double n = double(norm.outer);
  for_each_columns<T>(norm, [&](const C& columns) {
    double *mean = norm.mean + columns.begin, *variance = norm.variance + columns.begin;
    if (!norm.given) {
      columns.template add_up<1>([&](auto at, int64_t row, Batch<T>* sums) { sums[0] += at(x + row); });
      for (int64_t i = 0; i < columns.count; ++i) mean[i] = columns.sum(0, i) / n;
      columns.set_centre();
      columns.template add_up<2>([&](auto at, int64_t row, Batch<T>* sums) {
        const Batch<T> d = columns.centre(at)(at(x + row));
        sums[0] += d, sums[1] += d * d;
      });
      for (int64_t i = 0; i < columns.count; ++i)
        if (columns.sum(1, i) < functors::kInfinity)
          correct(columns.sum(0, i), columns.sum(1, i), n, mean + i, variance + i);
        else
          exact_moments(x + columns.begin + i, norm.outer, norm.groups, 1, true, mean + i, variance + i);
      columns.set_centre();
    }
    columns.set(C::kScale, [&](int64_t i) {
      return rstd_of(variance[i], norm.eps) * at_or(static_cast<const T*>(norm.weight), columns.begin + i, T(1));
    });
    columns.set(C::kShift, [&](int64_t i) { return at_or(static_cast<const T*>(norm.bias), columns.begin + i, T(0)); });
    columns.for_each([&](auto at, int64_t row) {
      at.set(y + row, fma(columns.centre(at)(at(x + row)), at(columns[C::kScale]), at(columns[C::kShift])));
    });
  });
}

template <class E>
void column_norm_grad(const Norm& norm) {
  using T = Compute<E>;
  using C = Columns<T>;
  const E *x = static_cast<const E*>(norm.x), *g = static_cast<const E*>(norm.grad_y);
  E* gx = static_cast<E*>(norm.grad_x);
  const double n = double(norm.outer);
  for_each_columns<T>(norm, [&](const C& columns) {
    const bool sums_up = !norm.given || norm.grad_weight || norm.grad_bias;
    if (sums_up)
      columns.template add_up<2>([&](auto at, int64_t row, Batch<T>* sums) {
        sums[0] += at(g + row), sums[1] += at(g + row) * columns.centre(at)(at(x + row));
      });
    const auto rstd = [&](int64_t i) { return rstd_of(norm.variance[columns.begin + i], norm.eps); };
    for (int64_t i = 0; i < columns.count; ++i) {
      if (norm.grad_bias) static_cast<double*>(norm.grad_bias)[columns.begin + i] += columns.sum(0, i);
      if (norm.grad_weight) static_cast<double*>(norm.grad_weight)[columns.begin + i] += columns.sum(1, i) * rstd(i);
    }
    if (!gx) return;
    const auto factor = [&](int64_t i) {
      return rstd(i) * at_or(static_cast<const T*>(norm.weight), columns.begin + i, T(1));
    };
    columns.set(C::kScale, factor);
    if (norm.given)
      return columns.for_each([&](auto at, int64_t row) { at.set(gx + row, at(g + row) * at(columns[C::kScale])); });
    columns.set(C::kShift, [&](int64_t i) { return -factor(i) * columns.sum(0, i) / n; });
    columns.set(C::kUnit, rstd);
    columns.set(C::kSlope, [&](int64_t i) { return -factor(i) * rstd(i) * columns.sum(1, i) / n; });
    columns.for_each([&](auto at, int64_t row) {
      const Batch<T> normal = columns.centre(at)(at(x + row)) * at(columns[C::kUnit]);
      at.set(gx + row,
             fma(normal, at(columns[C::kSlope]), fma(at(g + row), at(columns[C::kScale]), at(columns[C::kShift]))));
    });
  });
}

template <class E>
void channel_norm(const Norm& norm) {
  norm.inner == 1 ? column_norm<E>(norm) : run_norm<E>(norm);
}
template <class E>
void channel_norm_grad(const Norm& norm) {
  norm.inner == 1 ? column_norm_grad<E>(norm) : run_norm_grad<E>(norm);
}

/// Calls kernel(type of the elements, norm), with weights that have been widened.
template <class Kernel>
void run(const Norm& norm, const Kernel& kernel) {
  Widened wide;
  Norm call = norm;
  const bool half_weights = is_half(norm.dtype) && !norm.wide_parameters;
  for (const void** weights : {&call.weight, &call.bias})
    if (half_weights && *weights) *weights = wide.in(flat_view(*weights, norm.dtype, norm.groups * norm.channels)).data;
  dispatch::with_floating(norm.dtype, [&](auto type) { kernel(type, call); });
}
template <class Type>
using ElementOf = typename Type::type;

void move_running(const View& mean, const View& variance, double unbiased, double momentum, const View& running_mean,
                  const View& running_var) {
  const auto move = [&](const View& now, double scale, const View& running) {
    dispatch::with_floating(running.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      using W = std::conditional_t<std::is_same_v<T, double>, double, float>;
      for (int64_t i = 0; i < running.numel; ++i) {
        T& item = running.as<T>()[i * running.strides[0]];
        item = T(moved(W(item), W(T(now.as<const double>()[i] * scale)), W(momentum)));
      }
    });
  };
  move(mean, 1, running_mean), move(variance, unbiased, running_var);
}

}  // namespace

void install_norm(KernelTable& table) {
  table.row_norm = [](const Norm& norm) {
    run(norm, [](auto type, const Norm& wide) { row_norm<ElementOf<decltype(type)>>(wide); });
  };
  table.channel_norm = [](const Norm& norm) {
    run(norm, [](auto type, const Norm& wide) { channel_norm<ElementOf<decltype(type)>>(wide); });
  };
  table.row_norm_grad = [](const Norm& norm) {
    norm_grad(
        [](const Norm& sums) {
          run(sums, [](auto type, const Norm& wide) { row_norm_grad<ElementOf<decltype(type)>>(wide); });
        },
        norm);
  };
  table.channel_norm_grad = [](const Norm& norm) {
    norm_grad(
        [](const Norm& sums) {
          run(sums, [](auto type, const Norm& wide) { channel_norm_grad<ElementOf<decltype(type)>>(wide); });
        },
        norm);
  };
  table.move_running = move_running;
}

}  // namespace reel::cpu::REEL_ISA
