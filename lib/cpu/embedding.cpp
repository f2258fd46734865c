#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/embedding_bag.h"

// Embedding bags: sums, means and maxima of table rows, chosen by ids, without a tensor of the chosen rows.
namespace reel::cpu {
namespace {

// Halves are summed in float32. They are not widened beforehand: a bag has few of the rows.
template <class T>
void bags_of(const EmbeddingBag& job, int64_t first, int64_t last) {
  using Total = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  const T* const weight = static_cast<const T*>(job.weight);
  const T* const factors = static_cast<const T*>(job.factors);
  const int64_t width = job.width;
  ScratchVector<Total> sums(std::is_same_v<T, Total> ? 0 : width);
  for (int64_t b = first; b < last; ++b) {
    T* const result = static_cast<T*>(job.out) + (job.max ? 0 : b * width);
    Total* y;
    if constexpr (std::is_same_v<T, Total>)
      y = result;
    else
      y = sums.data();
    int64_t* const from = static_cast<int64_t*>(job.out) + b * width;
    if (job.max)
      std::fill_n(from, width, 0);
    else
      std::fill_n(y, width, Total(0));
    int64_t count = 0;
    for (int64_t i = job.bounds[b]; i < job.bounds[b + 1]; ++i) {
      const int64_t id = job.ids[i];
      job.bag[i] = b;
      if (id == job.padding) continue;
      const T* const row = weight + id * job.stride;
      if (job.max) {
        for (int64_t j = 0; j < width; ++j) {
          const Total best = weight[from[j] * job.stride + j], value = row[j];
          if (count == 0 || value > best || (value != value && best == best)) from[j] = id;
        }
      } else if (factors) {
        const Total factor = factors[i];
        for (int64_t j = 0; j < width; ++j) y[j] += factor * row[j];
      } else {
        for (int64_t j = 0; j < width; ++j) y[j] += row[j];
      }
      ++count;
    }
    job.count[b] = count;
    if (job.mean && count > 1)
      for (int64_t j = 0; j < width; ++j) y[j] /= static_cast<Total>(count);
    if constexpr (!std::is_same_v<T, Total>)
      if (!job.max)
        for (int64_t j = 0; j < width; ++j) result[j] = T(y[j]);
  }
}

void embedding_bag(const EmbeddingBag& job) {
  if (job.bags == 0) return;
  const int64_t size = (job.bounds[job.bags] / job.bags + 1) * job.width;  // of a bag, on average
  with_type(job.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_integral_v<T>)
      for_each_range(job.bags, size, [&](int64_t begin, int64_t end) { bags_of<T>(job, begin, end); });
  });
}

}  // namespace

void install_embedding(KernelTable& table) { table.embedding_bag = embedding_bag; }

}  // namespace reel::cpu
