#include <algorithm>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/forward_backward.h"
#include "lib/device/kernels/crf.h"

// Linear-chain conditional random fields: forward-backward and Viterbi, with the states of a step in the lanes of
// vectors. Log-sum-exps subtract the maximum, so that every exponential is of a number that is not positive: nothing
// overflows, and what underflows is negligible.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
class Chain {
 public:
  Chain(const Crf& crf, int64_t s)
      : crf_(crf),
        tags_(crf.tags),
        first_(crf.offsets ? crf.offsets[s] : s),
        length_(crf.lengths ? crf.lengths[s] : crf.steps),
        s_(s) {}

  void likelihood() const {
    double log_z = 0;
    for (int64_t t = 0; t < length_; ++t) {
      T* alpha = row(crf_.alpha, t);
      if (t == 0)
        for (int64_t j = 0; j < tags_; ++j) alpha[j] = start(j) + emission(t)[j];
      else
        step(row(crf_.alpha, t - 1), emission(t), row(crf_.norm, t), alpha);
      normalize(alpha, tags_, log_z);
    }
    log_z += double(last());
    static_cast<T*>(crf_.result)[s_] = T(crf_.observed ? score() - log_z : -log_z);
    if (crf_.forbidden) crf_.forbidden[s_] = first_forbidden();
  }

  void gradient() const {
    const T g = static_cast<const T*>(crf_.grad)[s_], total = last();
    T *here = static_cast<T*>(crf_.scratch), *before = here + tags_;
    for (int64_t j = 0; j < tags_; ++j) {
      here[j] = std::exp(row(crf_.alpha, length_ - 1)[j] + end(j) - total);
      if (crf_.grad_end) static_cast<T*>(crf_.grad_end)[j] -= g * here[j];
    }
    for (int64_t t = length_ - 1; t >= 0; --t) {
      T* to = row(crf_.grad_emissions, t);
      for (int64_t j = 0; j < tags_; ++j) to[j] = -g * here[j];
      if (t == 0) break;
      backward_step(g, row(crf_.alpha, t - 1), row(crf_.norm, t), here, before);
      std::swap(here, before);
    }
    if (crf_.grad_start)
      for (int64_t j = 0; j < tags_; ++j) static_cast<T*>(crf_.grad_start)[j] -= g * here[j];
    if (crf_.observed) count_observed(g);
    if (!crf_.offsets)
      for (int64_t t = length_; t < crf_.steps; ++t)
        std::fill(row(crf_.grad_emissions, t), row(crf_.grad_emissions, t) + tags_, T(0));
  }

  void decode() const {
    T *here = static_cast<T*>(crf_.scratch), *before = here + tags_;
    for (int64_t j = 0; j < tags_; ++j) here[j] = start(j) + emission(0)[j];
    for (int64_t t = 1; t < length_; ++t) {
      std::swap(here, before);
      int32_t* from = crf_.from + place(t) * tags_;
      std::fill(here, here + tags_, kLogZero<T>);
      std::fill(from, from + tags_, 0);
      for (int64_t i = 0; i < tags_; ++i) {
        const T *out = transitions(i), arrived = before[i];
        for (int64_t j = 0; j < tags_; ++j) {
          const T score = arrived + out[j];
          from[j] = score > here[j] ? int32_t(i) : from[j];
          here[j] = score > here[j] ? score : here[j];
        }
      }
      for (int64_t j = 0; j < tags_; ++j) here[j] += emission(t)[j];
    }
    int64_t tag = 0;
    for (int64_t j = 0; j < tags_; ++j) {
      here[j] += end(j);
      if (here[j] > here[tag]) tag = j;
    }
    static_cast<T*>(crf_.result)[s_] = here[tag];
    crf_.path[place(length_ - 1)] = tag;
    for (int64_t t = length_ - 1; t > 0; --t) {
      tag = crf_.from[place(t) * tags_ + tag];
      crf_.path[place(t - 1)] = tag;
    }
    if (!crf_.offsets)
      for (int64_t t = length_; t < crf_.steps; ++t) crf_.path[place(t)] = -1;
  }

 private:
  int64_t place(int64_t t) const { return first_ + t * crf_.stride; }
  T* row(void* rows, int64_t t) const { return static_cast<T*>(rows) + place(t) * tags_; }
  const T* emission(int64_t t) const { return static_cast<const T*>(crf_.emissions) + place(t) * tags_; }
  const T* transitions(int64_t i) const { return static_cast<const T*>(crf_.transitions) + i * tags_; }
  T start(int64_t j) const { return crf_.start ? static_cast<const T*>(crf_.start)[j] : T(0); }
  T end(int64_t j) const { return crf_.end ? static_cast<const T*>(crf_.end)[j] : T(0); }

  /// norm[j] = log Σ_i exp(before[i] + transitions[i][j]), alpha = norm + emission.
  void step(const T* before, const T* emission, T* norm, T* alpha) const {
    for (int64_t j = 0; j < tags_; j += kWidth<T>) {
      const int64_t n = tags_ - j;
      Batch<T> top(kLogZero<T>), sum(T(0));
      const auto score = [&](int64_t i) { return load_up_to(transitions(i) + j, n) + Batch<T>(before[i]); };
      for (int64_t i = 0; i < tags_; ++i) top = max(top, score(i));
      top = finite_or_zero(top);
      for (int64_t i = 0; i < tags_; ++i) sum += exp(score(i) - top);
      const Batch<T> all = log(sum) + top;
      store_up_to(norm + j, all, n);
      store_up_to(alpha + j, all + load_up_to(emission + j, n), n);
    }
  }

  /// before[i] = Σ_j P(i, j), P(i, j) = here[j] exp(alpha[i] + transitions[i][j] - norm[j]): the probability of being
  /// at i and then j.
  void backward_step(T g, const T* alpha, const T* norm, const T* here, T* before) const {
    for (int64_t i = 0; i < tags_; ++i) {
      const Batch<T> a(alpha[i]);
      T* grad = static_cast<T*>(crf_.grad_transitions) + i * tags_;
      Batch<T> sum(T(0));
      for (int64_t j = 0; j < tags_; j += kWidth<T>) {
        const int64_t n = tags_ - j;
        const Batch<T> score = a + load_up_to(transitions(i) + j, n) - finite_or_zero(load_up_to(norm + j, n));
        const Batch<T> p = load_up_to(here + j, n) * exp(score);
        sum += p;
        store_up_to(grad + j, load_up_to(grad + j, n) - Batch<T>(g) * p, n);
      }
      before[i] = hadd(sum);
    }
  }

  /// The log-sum-exp over the last step's states.
  T last() const {
    const T* alpha = row(crf_.alpha, length_ - 1);
    T top = kLogZero<T>, sum = 0;
    for (int64_t j = 0; j < tags_; ++j) top = std::max(top, alpha[j] + end(j));
    if (top == kLogZero<T>) return top;
    for (int64_t j = 0; j < tags_; ++j) sum += std::exp(alpha[j] + end(j) - top);
    return top + std::log(sum);
  }

  double score() const {
    const int64_t* tags = crf_.observed;
    double sum = double(start(tags[place(0)])) + double(end(tags[place(length_ - 1)]));
    for (int64_t t = 0; t < length_; ++t) {
      sum += double(emission(t)[tags[place(t)]]);
      if (t > 0) sum += double(transitions(tags[place(t - 1)])[tags[place(t)]]);
    }
    return sum;
  }

  int64_t first_forbidden() const {
    const auto forbids = [](const bool* mask, int64_t i) { return mask && !mask[i]; };
    for (int64_t t = 0; t < length_; ++t) {
      const int64_t tag = crf_.observed[place(t)];
      if (t == 0 && forbids(crf_.allowed_start, tag)) return t;
      if (t > 0 && forbids(crf_.allowed_transitions, crf_.observed[place(t - 1)] * tags_ + tag)) return t;
      if (t == length_ - 1 && forbids(crf_.allowed_end, tag)) return t;
    }
    return -1;
  }

  void count_observed(T g) const {
    const int64_t* tags = crf_.observed;
    if (crf_.grad_start) static_cast<T*>(crf_.grad_start)[tags[place(0)]] += g;
    if (crf_.grad_end) static_cast<T*>(crf_.grad_end)[tags[place(length_ - 1)]] += g;
    for (int64_t t = 0; t < length_; ++t) {
      row(crf_.grad_emissions, t)[tags[place(t)]] += g;
      if (t > 0) static_cast<T*>(crf_.grad_transitions)[tags[place(t - 1)] * tags_ + tags[place(t)]] += g;
    }
  }

  const Crf& crf_;
  const int64_t tags_, first_, length_, s_;
};

template <class T>
void run_likelihood(const Crf& crf) {
  for (int64_t s = 0; s < crf.chains; ++s) Chain<T>(crf, s).likelihood();
}

template <class T>
void run_gradient(const Crf& crf) {
  const auto clear = [](void* data, int64_t n) {
    if (data) std::fill(static_cast<T*>(data), static_cast<T*>(data) + n, T(0));
  };
  clear(crf.grad_transitions, crf.tags * crf.tags);
  clear(crf.grad_start, crf.tags);
  clear(crf.grad_end, crf.tags);
  for (int64_t s = 0; s < crf.chains; ++s) Chain<T>(crf, s).gradient();
}

template <class T>
void run_decode(const Crf& crf) {
  for (int64_t s = 0; s < crf.chains; ++s) Chain<T>(crf, s).decode();
}

void crf(const Crf& crf) { crf.dtype == kFloat32 ? run_likelihood<float>(crf) : run_likelihood<double>(crf); }
void crf_grad(const Crf& crf) { crf.dtype == kFloat32 ? run_gradient<float>(crf) : run_gradient<double>(crf); }
void crf_decode(const Crf& crf) { crf.dtype == kFloat32 ? run_decode<float>(crf) : run_decode<double>(crf); }

}  // namespace

void install_crf(KernelTable& table) {
  table.crf = crf;
  table.crf_grad = crf_grad;
  table.crf_decode = crf_decode;
}

}  // namespace reel::cpu::REEL_ISA
