#include "lib/device/kernels/sampled.h"

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/functors/activation.h"

// Logistic losses of vectors against sampled rows of a matrix: negative sampling, NCE, hierarchical softmax. Rows lie
// anywhere in a matrix that may exceed every cache, so those of the next vector are asked for in advance, and a row is
// used for the score and for the vector's gradient while it is near.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  Batch<T> even(T(0)), odd(T(0));
  int64_t i = 0;
  for (; i + 2 * kWidth<T> <= n; i += 2 * kWidth<T>) {
    even = fma(load(a + i), load(b + i), even);
    odd = fma(load(a + i + kWidth<T>), load(b + i + kWidth<T>), odd);
  }
  for (; i < n; i += kWidth<T>) even = fma(load_up_to(a + i, n - i), load_up_to(b + i, n - i), even);
  return hadd(even + odd);
}

template <class T>
class Losses {
 public:
  explicit Losses(const SampledLogits& job) : job_(job), each_(job.n ? job.entries / job.n : 0) {}

  void run(int64_t first, int64_t last) const {
    for (int64_t i = first; i < last; ++i) {
      if (i + 1 < last) prefetch(i + 1);
      const int64_t begin = begin_of(i), end = begin_of(i + 1);
      scores(i, begin, end);
      static_cast<T*>(job_.loss)[i] = costs(begin, end);
      if (job_.unit_grad) unit_grad(i, begin, end);
    }
  }

 private:
  int64_t begin_of(int64_t i) const { return job_.bounds ? job_.bounds[i] : i * each_; }
  const T* row(int64_t entry) const { return static_cast<const T*>(job_.weight) + job_.ids[entry] * job_.stride; }
  T* slope() const { return static_cast<T*>(job_.slope); }
  void prefetch(int64_t i) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t e = begin_of(i), end = begin_of(i + 1); e < end; ++e)
      for (int64_t j = 0; j < job_.width; j += kLine) __builtin_prefetch(row(e) + j);
  }

  /// Of the vector's entries, in the place of the slopes.
  void scores(int64_t i, int64_t begin, int64_t end) const {
    const T* const h = static_cast<const T*>(job_.hidden) + i * job_.width;
    for (int64_t e = begin; e < end; ++e) {
      T score = dot(h, row(e), job_.width);
      if (job_.bias) score += static_cast<const T*>(job_.bias)[job_.ids[e]];
      if (job_.shift) score -= static_cast<const T*>(job_.shift)[e];
      slope()[e] = score;
    }
  }
  /// Their sum; scores become slopes.
  T costs(int64_t begin, int64_t end) const {
    Batch<T> sum(T(0));
    for (int64_t e = begin; e < end; e += kWidth<T>) {
      const int64_t n = std::min(end - e, kWidth<T>);
      alignas(Arch::alignment()) T signs[kWidth<T>] = {}, inside[kWidth<T>] = {};
      for (int64_t k = 0; k < n; ++k) {
        signs[k] = (job_.truth ? job_.truth[e + k] : e + k == begin) ? T(1) : T(-1);
        inside[k] = T(1);
      }
      const Batch<T> sign = Batch<T>::load_aligned(signs), z = sign * load_up_to(slope() + e, n);
      const Batch<T> cost = functors::LogSigmoid()(z);
      sum = sum - select(Batch<T>::load_aligned(inside) > Batch<T>(T(0)), cost, Batch<T>(T(0)));
      store_up_to(slope() + e, functors::LogSigmoid().grad(-sign, z, z), n);
    }
    return hadd(sum);
  }
  void unit_grad(int64_t i, int64_t begin, int64_t end) const {
    T* const to = static_cast<T*>(job_.unit_grad) + i * job_.width;
    for (int64_t j = 0; j < job_.width; j += kWidth<T>) {
      const int64_t n = job_.width - j;
      Batch<T> sum(T(0));
      for (int64_t e = begin; e < end; ++e) sum = fma(Batch<T>(slope()[e]), load_up_to(row(e) + j, n), sum);
      store_up_to(to + j, sum, n);
    }
  }

  const SampledLogits& job_;
  const int64_t each_;
};

void sampled_logits(const SampledLogits& job) {
  if (job.n == 0) return;
  const int64_t size = (job.entries / job.n + 1) * (job.width + 1);
  const auto run = [&]<class T>(T) {
    for_each_range(job.n, size, [&](int64_t begin, int64_t end) { Losses<T>(job).run(begin, end); });
  };
  job.dtype == kFloat32 ? run(float()) : run(double());
}

template <class T>
void rows_of(const SampledLogitsGrad& job, int64_t first, int64_t last) {
  const auto factor = [&](int64_t entry, int64_t owner) {
    return static_cast<const T*>(job.slope)[entry] * static_cast<const T*>(job.grad)[owner];
  };
  for (int64_t r = first; r < last; ++r) {
    T* const to = job.of_rows ? static_cast<T*>(job.of_rows) + r * job.width : nullptr;
    T bias = 0;
    for (int64_t at = job.begins[r]; at < job.begins[r + 1]; ++at) {
      const int64_t entry = job.order[at], owner = job.owners ? job.owners[entry] : entry / job.each;
      const T scale = factor(entry, owner);
      bias += scale;
      if (!job.of_rows) continue;
      const T* const h = static_cast<const T*>(job.hidden) + owner * job.width;
      const bool add = at > job.begins[r];
      for (int64_t j = 0; j < job.width; j += kWidth<T>) {
        const int64_t n = job.width - j;
        const Batch<T> part = Batch<T>(scale) * load_up_to(h + j, n);
        store_up_to(to + j, add ? load_up_to(to + j, n) + part : part, n);
      }
    }
    if (job.of_bias) static_cast<T*>(job.of_bias)[r] = bias;
  }
}

void sampled_logits_grad(const SampledLogitsGrad& job) {
  if (job.count == 0) return;
  const int64_t size = (job.entries / job.count + 1) * (job.width + 1);
  const auto run = [&]<class T>(T) {
    for_each_range(job.count, size, [&](int64_t begin, int64_t end) { rows_of<T>(job, begin, end); });
  };
  job.dtype == kFloat32 ? run(float()) : run(double());
}

}  // namespace

void install_sampled(KernelTable& table) {
  table.sampled_logits = sampled_logits;
  table.sampled_logits_grad = sampled_logits_grad;
}

}  // namespace reel::cpu::REEL_ISA
