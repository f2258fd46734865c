// This file reduces embedding bags, which are table rows chosen by ids, without a tensor of the chosen rows: a few
// vectors of columns at a time in registers, while the next rows are on their way to the cache.
#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/embedding_bag.h"

namespace reel::cpu::REEL_ISA {
namespace {

/// Calls f(i, row) for each id of bag b that counts, where row is the first of `width` columns of its row of the table.
template <class T, class F>
void for_each_row(const EmbeddingBag& job, int64_t b, int64_t column, int64_t width, const F& f) {
  constexpr int64_t kAhead = 8, kLine = 64 / sizeof(T);  // rows, elements
  const T* const table = static_cast<const T*>(job.weight) + column;
  const int64_t last = job.bounds[job.bags] - 1;
  for (int64_t i = job.bounds[b]; i < job.bounds[b + 1]; ++i) {
    const T* const next = table + job.ids[std::min(i + kAhead, last)] * job.stride;
    for (int64_t j = 0; j < width; j += kLine) __builtin_prefetch(next + j);
    if (job.ids[i] != job.padding) f(i, table + job.ids[i] * job.stride);
  }
}

/// Writes the sums of `count` vectors of columns, of which the last one has n elements, divided by `divisor`.
template <int count, class T>
void sum_columns(const EmbeddingBag& job, int64_t b, int64_t column, int64_t n, T divisor) {
  const T* const factors = static_cast<const T*>(job.factors);
  Batch<T> sums[count];
  for (auto& sum : sums) sum = Batch<T>(T(0));
  for_each_row<T>(job, b, column, (count - 1) * kWidth<T> + n, [&](int64_t i, const T* row) {
    const Batch<T> factor(factors ? factors[i] : T(1));
    for (int v = 0; v < count; ++v) {
      const T* const from = row + v * kWidth<T>;
      sums[v] = sums[v] + factor * (count == 1 ? load_up_to(from, n) : load(from));
    }
  });
  T* const y = static_cast<T*>(job.out) + b * job.width + column;
  for (int v = 0; v < count; ++v) {
    const Batch<T> result = divisor == T(1) ? sums[v] : sums[v] / Batch<T>(divisor);
    count == 1 ? store_up_to(y, result, n) : store(y + v * kWidth<T>, result);
  }
}

/// Writes the sums of bag b. Halves are summed in float32; they are not widened beforehand: a bag has few of the rows.
template <class T>
void sum_bag(const EmbeddingBag& job, int64_t b, int64_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr int64_t kWide = 4 * kWidth<T>;
    int64_t column = 0;
    for (; column + kWide <= job.width; column += kWide)
      sum_columns<4>(job, b, column, kWidth<T>, static_cast<T>(divisor));
    for (; column < job.width; column += kWidth<T>)
      sum_columns<1>(job, b, column, std::min(kWidth<T>, job.width - column), static_cast<T>(divisor));
  } else {
    constexpr int64_t kBlock = 64;
    const T* const factors = static_cast<const T*>(job.factors);
    for (int64_t column = 0; column < job.width; column += kBlock) {
      const int64_t n = std::min(kBlock, job.width - column);
      float sums[kBlock] = {};
      for_each_row<T>(job, b, column, n, [&](int64_t i, const T* row) {
        const float factor = factors ? static_cast<float>(factors[i]) : 1;
        for (int64_t j = 0; j < n; ++j) sums[j] += factor * static_cast<float>(row[j]);
      });
      T* const y = static_cast<T*>(job.out) + b * job.width + column;
      for (int64_t j = 0; j < n; ++j) y[j] = T(sums[j] / static_cast<float>(divisor));
    }
  }
}

/// Finds the rows in which bag b has its largest elements.
template <class T>
void find_largest(const EmbeddingBag& job, int64_t b) {
  using Value = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  constexpr int64_t kBlock = 64;
  for (int64_t column = 0; column < job.width; column += kBlock) {
    const int64_t n = std::min(kBlock, job.width - column);
    Value largest[kBlock] = {};
    int64_t from[kBlock] = {};
    bool first = true;
    for_each_row<T>(job, b, column, n, [&](int64_t i, const T* row) {
      const int64_t id = job.ids[i];
      for (int64_t j = 0; j < n; ++j) {
        const Value value = static_cast<Value>(row[j]), best = largest[j];
        const bool wins = first | (value > best) | ((value != value) & (best == best));
        largest[j] = wins ? value : best;
        from[j] = wins ? id : from[j];
      }
      first = false;
    });
    std::copy_n(from, n, static_cast<int64_t*>(job.out) + b * job.width + column);
  }
}

void embedding_bag(const EmbeddingBag& job) {
  if (job.bags == 0) return;
  const int64_t size = (job.bounds[job.bags] / job.bags + 1) * job.width;  // of a bag, on average
  with_type(job.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_integral_v<T>)
      for_each_range(job.bags, size, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t *const ids = job.ids + job.bounds[b], n = job.bounds[b + 1] - job.bounds[b];
          int64_t count = 0;
          for (int64_t i = 0; i < n; ++i) count += ids[i] != job.padding;
          job.count[b] = count;
          if (job.bag) std::fill_n(job.bag + job.bounds[b], n, b);
          job.max ? find_largest<T>(job, b) : sum_bag<T>(job, b, job.mean ? std::max<int64_t>(count, 1) : 1);
        }
      });
  });
}

}  // namespace

void install_embedding(KernelTable& table) { table.embedding_bag = embedding_bag; }

}  // namespace reel::cpu::REEL_ISA
