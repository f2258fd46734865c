#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/kernels/embedding_bag.h"

// Embedding bags: sums, means and maxima of table rows, chosen by ids, without a tensor of the chosen rows.
namespace reel::cpu {
namespace {

template <class T>
void bags_of(const EmbeddingBag& job) {
  const T* const weight = static_cast<const T*>(job.weight);
  const T* const factors = static_cast<const T*>(job.factors);
  const int64_t width = job.width;
  for (int64_t b = 0; b < job.bags; ++b) {
    T* const y = static_cast<T*>(job.out) + (job.max ? 0 : b * width);
    int64_t* const from = static_cast<int64_t*>(job.out) + b * width;
    if (job.max)
      std::fill_n(from, width, 0);
    else
      std::fill_n(y, width, T(0));
    int64_t count = 0;
    for (int64_t i = job.bounds[b]; i < job.bounds[b + 1]; ++i) {
      const int64_t id = job.ids[i];
      job.bag[i] = b;
      if (id == job.padding) continue;
      const T* const row = weight + id * job.stride;
      if (job.max) {
        for (int64_t j = 0; j < width; ++j) {
          const T best = weight[from[j] * job.stride + j];
          if (count == 0 || row[j] > best || (row[j] != row[j] && best == best)) from[j] = id;
        }
      } else if (factors) {
        const T factor = factors[i];
        for (int64_t j = 0; j < width; ++j) y[j] += factor * row[j];
      } else {
        for (int64_t j = 0; j < width; ++j) y[j] += row[j];
      }
      ++count;
    }
    job.count[b] = count;
    if (job.mean && count > 1)
      for (int64_t j = 0; j < width; ++j) y[j] /= static_cast<T>(count);
  }
}

}  // namespace

void embedding_bag(const EmbeddingBag& job) {
  if (job.dtype == kFloat32)
    bags_of<float>(job);
  else
    bags_of<double>(job);
}

}  // namespace reel::cpu
