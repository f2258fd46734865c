#include <algorithm>
#include <numeric>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/scratch.h"
#include "lib/dispatch.h"

// Sorting along the last dimension, top-k, k-th values, lexicographic order of rows and binary search. Sorts are
// stable; NaN is larger than every number.
namespace reel::cpu {
namespace {

template <class V>
bool less(V a, V b) {
  return a < b || (b != b && a == a);  // NaN is the largest
}

/// The type that elements are compared in.
template <class T>
using Value =
    std::conditional_t<std::is_integral_v<T>, T, std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// An element and its position, which decides between equal elements: so every algorithm sorts stably, std::nth_element
/// and heaps included.
template <class T>
struct Entry {
  Value<T> value;
  int64_t position;
};
struct Ascending {
  template <class E>
  bool operator()(const E& a, const E& b) const {
    return less(a.value, b.value) || (!less(b.value, a.value) && a.position < b.position);
  }
};
struct Descending {
  template <class E>
  bool operator()(const E& a, const E& b) const {
    return less(b.value, a.value) || (!less(a.value, b.value) && a.position < b.position);
  }
};

/// f(elements, stride) for each row, the last dimension, of x.
template <class T, class F>
void for_each_line(const View& x, const F& f) {
  const int64_t stride = x.shape.empty() ? 0 : x.strides.back();
  View lines = x;
  if (!lines.shape.empty()) lines.shape.resize(lines.shape.size() - 1), lines.strides.resize(lines.shape.size());
  const View* const views[] = {&lines};
  plain::for_each_run(views, [&](int64_t count, char* const* p, const int64_t* s) {
    for (int64_t r = 0; r < count; ++r) f(reinterpret_cast<const T*>(p[0] + r * s[0]), stride);
  });
}

/// f(entries, elements, stride) for each of these rows.
template <class T, class F>
void for_each_row(const View& x, const F& f) {
  const int64_t n = x.shape.empty() ? 1 : x.shape.back();
  ScratchVector<Entry<T>> row(n);
  for_each_line<T>(x, [&](const T* from, int64_t stride) {
    for (int64_t i = 0; i < n; ++i) row[i] = {static_cast<Value<T>>(from[i * stride]), i};
    f(row, from, stride);
  });
}

/// The first k entries of a long line in sorted order: a heap holds the best k so far, and most elements are compared
/// with its top only.
template <class T, class Before>
void find_first(const T* from, int64_t n, int64_t stride, ScratchVector<Entry<T>>& best, const Before& before) {
  const int64_t k = static_cast<int64_t>(best.size());
  for (int64_t i = 0; i < k; ++i) best[i] = {static_cast<Value<T>>(from[i * stride]), i};
  std::make_heap(best.begin(), best.end(), before);
  for (int64_t i = k; i < n; ++i) {
    const Entry<T> entry{static_cast<Value<T>>(from[i * stride]), i};
    if (!before(entry, best.front())) continue;
    std::pop_heap(best.begin(), best.end(), before);
    best.back() = entry;
    std::push_heap(best.begin(), best.end(), before);
  }
  std::sort_heap(best.begin(), best.end(), before);
}

template <class Row, class Before>
void sort_first(Row& row, int64_t k, const Before& before) {
  if (k < static_cast<int64_t>(row.size())) std::nth_element(row.begin(), row.begin() + k, row.end(), before);
  std::sort(row.begin(), row.begin() + k, before);
}

void sort(bool descending, const View& x, const View& values, const View& indices) {
  if (values.numel == 0) return;
  const int64_t n = x.shape.empty() ? 1 : x.shape.back(), k = values.shape.empty() ? 1 : values.shape.back();
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* value = values.as<T>();
    int64_t* index = indices.as<int64_t>();
    const auto write = [&](const ScratchVector<Entry<T>>& first, const T* from, int64_t stride) {
      for (int64_t i = 0; i < k; ++i) *value++ = from[first[i].position * stride], *index++ = first[i].position;
    };
    const auto run = [&](auto before) {
      if (k > n / 64)
        return for_each_row<T>(x, [&](ScratchVector<Entry<T>>& row, const T* from, int64_t stride) {
          sort_first(row, k, before);
          write(row, from, stride);
        });
      ScratchVector<Entry<T>> best(k);
      for_each_line<T>(x, [&](const T* from, int64_t stride) {
        find_first(from, n, stride, best, before);
        write(best, from, stride);
      });
    };
    descending ? run(Descending()) : run(Ascending());
  });
}

void kthvalue(int64_t k, bool nan_wins, const View& x, const View& indices) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    int64_t* index = indices.as<int64_t>();
    for_each_row<T>(x, [&](auto& row, const T*, int64_t) {
      const auto is_nan = [](const Entry<T>& e) { return e.value != e.value; };
      if (const auto bad = nan_wins ? std::find_if(row.begin(), row.end(), is_nan) : row.end(); bad != row.end()) {
        *index++ = bad->position;
      } else {
        std::nth_element(row.begin(), row.begin() + k, row.end(), Ascending());
        *index++ = row[k].position;
      }
    });
  });
}

void lexsort(const View& x, const View& order) {
  const int64_t n = x.shape[0], m = x.shape[1];
  int64_t* at = order.as<int64_t>();
  std::iota(at, at + n, int64_t{0});
  if (m == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto before = [](T a, T b) { return less(static_cast<Value<T>>(a), static_cast<Value<T>>(b)); };
    std::stable_sort(at, at + n, [&](int64_t i, int64_t j) {
      const T *a = x.as<const T>() + i * m, *b = x.as<const T>() + j * m;
      return std::lexicographical_compare(a, a + m, b, b + m, before);
    });
  });
}

void searchsorted(bool right, const View& sorted, const View& values, const View& positions) {
  if (values.numel == 0) return;
  const bool rows = sorted.shape.size() > 1;
  const int64_t n = sorted.shape.back(), m = rows ? values.shape.back() : values.numel;
  with_type(values.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto before = [](T a, T b) { return less(static_cast<Value<T>>(a), static_cast<Value<T>>(b)); };
    const T* value = values.as<const T>();
    int64_t* position = positions.as<int64_t>();
    for (const T* row = sorted.as<const T>(); value < values.as<const T>() + values.numel; row += n)
      for (int64_t i = 0; i < m; ++i, ++value)
        *position++ =
            (right ? std::upper_bound(row, row + n, *value, before) : std::lower_bound(row, row + n, *value, before)) -
            row;
  });
}

}  // namespace

void install_sort(KernelTable& table) {
  table.sort = sort;
  table.kthvalue = kthvalue;
  table.lexsort = lexsort;
  table.searchsorted = searchsorted;
}

}  // namespace reel::cpu
