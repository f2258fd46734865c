#include <algorithm>
#include <numeric>
#include <vector>

#include "lib/cpu/dispatch.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"

namespace reel::cpu {
namespace {

template <class V>
bool less(V a, V b) {
  return a < b || (b != b && a == a);  // NaN is the largest
}

template <class T>
void sort_rows(bool descending, const View& x, const View& values, const View& indices) {
  using V = std::conditional_t<std::is_integral_v<T>, T, std::conditional_t<std::is_same_v<T, double>, double, float>>;
  const int64_t n = x.shape.empty() ? 1 : x.shape.back(), stride = x.shape.empty() ? 0 : x.strides.back();
  std::vector<std::pair<V, int64_t>> row(n);
  T* value = values.as<T>();
  int64_t* index = indices.as<int64_t>();
  // The rows are found by looping over x without its last dimension.
  View rows = x;
  if (!rows.shape.empty()) rows.shape.resize(rows.shape.size() - 1), rows.strides.resize(rows.shape.size());
  const View* const views[] = {&rows};
  plain::for_each_run(views, [&](int64_t count, char* const* p, const int64_t* s) {
    for (int64_t r = 0; r < count; ++r) {
      const T* from = reinterpret_cast<const T*>(p[0] + r * s[0]);
      for (int64_t i = 0; i < n; ++i) row[i] = {static_cast<V>(from[i * stride]), i};
      if (descending) {
        std::stable_sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return less(b.first, a.first); });
      } else {
        std::stable_sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return less(a.first, b.first); });
      }
      for (int64_t i = 0; i < n; ++i) *value++ = from[row[i].second * stride], *index++ = row[i].second;
    }
  });
}

}  // namespace

void sort(bool descending, const View& x, const View& values, const View& indices) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) { sort_rows<typename decltype(type)::type>(descending, x, values, indices); });
}

}  // namespace reel::cpu
