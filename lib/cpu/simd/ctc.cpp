#include <algorithm>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/forward_backward.h"
#include "lib/device/kernels/ctc.h"

// Connectionist temporal classification (Graves et al. 2006). The states blank, label, blank, label, …, blank lie in
// the lanes; a state is reached from itself, from the one before it and, between different labels, from the one before
// that, skipping a blank. As in crf.cpp every exponential is of a number that is not positive.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
class Sequence {
 public:
  Sequence(const Ctc& ctc, int64_t n)
      : ctc_(ctc),
        n_(n),
        length_(ctc.input_lengths[n]),
        states_(2 * ctc.label_lengths[n] + 1),
        skip_(padded(0, kLogZero<T>)) {
    for (int64_t s = 3; s < states_; s += 2)
      if (label(s) != label(s - 2)) skip_[s] = 0;
  }

  void forward() const {
    T *here = padded(1, kLogZero<T>), *emitted = padded(2, kLogZero<T>);
    double log_z = 0;
    for (int64_t t = 0; t < length_; ++t) {
      const T* log_probs = row(t);
      if (t == 0) {
        for (int64_t s = 0; s < std::min<int64_t>(states_, 2); ++s) here[s] = log_probs[label(s)];
      } else {
        for (int64_t s = 0; s < states_; ++s) emitted[s] = log_probs[label(s)];
        step(here, emitted, norm(t));
      }
      normalize(here, states_, log_z);
      std::copy(here, here + states_, alpha(t));
    }
    static_cast<T*>(ctc_.loss)[n_] = length_ > 0 ? T(-(log_z + double(last()))) : states_ == 1 ? T(0) : -kLogZero<T>;
  }

  void gradient() const {
    const T total = length_ > 0 ? last() : T(0);
    const bool unreachable = total == kLogZero<T>;
    const T g = unreachable ? (ctc_.zero_infinity ? T(0) : std::numeric_limits<T>::quiet_NaN())
                            : static_cast<const T*>(ctc_.grad)[n_];
    T *here = padded(1, 0), *a = padded(2, kLogZero<T>), *below = padded(3, 0);
    for (int64_t s = std::max<int64_t>(0, states_ - 2); s < states_ && length_ > 0 && !unreachable; ++s)
      here[s] = std::exp(alpha(length_ - 1)[s] - total);
    for (int64_t t = ctc_.steps - 1; t >= 0; --t) {
      T* to = static_cast<T*>(ctc_.grad_log_probs) + (t * ctc_.batch + n_) * ctc_.classes;
      if (t >= length_ || g == 0) {
        std::fill(to, to + ctc_.classes, T(0));
        continue;
      }
      for (int64_t c = 0; c < ctc_.classes; c += kWidth<T>) {
        const int64_t n = ctc_.classes - c;
        store_up_to(to + c, Batch<T>(g) * exp(load_up_to(row(t) + c, n)), n);
      }
      for (int64_t s = 0; s < states_; ++s) to[label(s)] -= g * here[s];
      if (t == 0) break;
      std::copy(alpha(t - 1), alpha(t - 1) + states_, a);
      std::copy(norm(t), norm(t) + states_, below);
      backward_step(a, below, here);
    }
  }

 private:
  int64_t label(int64_t s) const { return s % 2 ? ctc_.labels[n_ * ctc_.most_labels + s / 2] : ctc_.blank; }
  const T* row(int64_t t) const { return static_cast<const T*>(ctc_.log_probs) + (t * ctc_.batch + n_) * ctc_.classes; }
  /// Row i of the scratch, filled with what lies beyond the states: shifts by two and whole batches read it.
  T* padded(int i, T beyond) const {
    const int64_t width = 2 * ctc_.most_labels + 1 + kCtcMargin;
    static_assert(2 + 2 + kWidth<T> <= kCtcMargin);
    T* begin = static_cast<T*>(ctc_.scratch) + i * width;
    std::fill(begin, begin + width, beyond);
    return begin + 2;
  }
  T* state_row(void* rows, int64_t t) const {
    return static_cast<T*>(rows) + (n_ * ctc_.steps + t) * (2 * ctc_.most_labels + 1);
  }
  T* alpha(int64_t t) const { return state_row(ctc_.alpha, t); }
  T* norm(int64_t t) const { return state_row(ctc_.norm, t); }

  /// here[s] becomes emitted[s] + norm[s], norm[s] = log(exp(here[s]) + exp(here[s - 1]) + exp(here[s - 2] + skip[s])).
  /// From the last states to the first, so that it can be done in place.
  void step(T* here, const T* emitted, T* norm) const {
    const int64_t most = (states_ - 1) / kWidth<T> * kWidth<T>;
    for (int64_t s = most; s >= 0; s -= kWidth<T>) {
      const Batch<T> stay = load(here + s), advance = load(here + s - 1), skip = load(here + s - 2) + load(skip_ + s);
      const Batch<T> top = finite_or_zero(max(stay, max(advance, skip)));
      const Batch<T> all = log(exp(stay - top) + exp(advance - top) + exp(skip - top)) + top;
      store_up_to(norm + s, all, states_ - s);
      store_up_to(here + s, all + load(emitted + s), states_ - s);
    }
  }

  /// The probabilities of the states a step earlier: here[s] becomes the sum over s' = s, s + 1, s + 2 of
  /// here[s'] exp(alpha[s] - norm[s']). From the first states to the last.
  void backward_step(const T* alpha, const T* norm, T* here) const {
    for (int64_t s = 0; s < states_; s += kWidth<T>) {
      const Batch<T> a = load(alpha + s);
      const auto from = [&](int64_t to, const Batch<T>& extra) {
        return load(here + to) * exp(a + extra - finite_or_zero(load(norm + to)));
      };
      const Batch<T> none(T(0)), sum = from(s, none) + from(s + 1, none) + from(s + 2, load(skip_ + s + 2));
      store_up_to(here + s, sum, states_ - s);
    }
  }

  /// The log-sum-exp over the two states that a path may end in.
  T last() const {
    const T* a = alpha(length_ - 1);
    const T one = a[states_ - 1], two = states_ > 1 ? a[states_ - 2] : kLogZero<T>, top = std::max(one, two);
    return top == kLogZero<T> ? top : top + std::log(std::exp(one - top) + std::exp(two - top));
  }

  const Ctc& ctc_;
  const int64_t n_, length_, states_;
  T* const skip_;  // 0 where the blank before a state may be left out, -infinity elsewhere
};

template <class T>
void run_forward(const Ctc& ctc) {
  for (int64_t n = 0; n < ctc.batch; ++n) Sequence<T>(ctc, n).forward();
}
template <class T>
void run_gradient(const Ctc& ctc) {
  for (int64_t n = 0; n < ctc.batch; ++n) Sequence<T>(ctc, n).gradient();
}

void ctc(const Ctc& ctc) { ctc.dtype == kFloat32 ? run_forward<float>(ctc) : run_forward<double>(ctc); }
void ctc_grad(const Ctc& ctc) { ctc.dtype == kFloat32 ? run_gradient<float>(ctc) : run_gradient<double>(ctc); }

}  // namespace

void install_ctc(KernelTable& table) {
  table.ctc = ctc;
  table.ctc_grad = ctc_grad;
}

}  // namespace reel::cpu::REEL_ISA
