#include <algorithm>
#include <bit>
#include <numeric>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/device/dispatch.h"

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

constexpr int64_t kCost = 8;  // of an element, in the sense of for_each_part

template <class Row, class Before>
[[gnu::noinline]] void sort_range(Row& row, int64_t begin, int64_t end, const Before& before) {
  std::sort(row.begin() + begin, row.begin() + end, before);
}

/// Sorts integers digit by digit, from the lowest on (Knuth, volume 3, 5.2.5), where that takes few passes; false,
/// having done nothing, where it would not. The entries are in the order of their positions.
template <class Row>
bool sort_digits(Row& row, bool descending) {
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = uint64_t{1} << kBits;
  if (row.size() < 256) return false;
  const auto [low, high] =
      std::minmax_element(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
  const auto least = static_cast<uint64_t>(low->value), most = static_cast<uint64_t>(high->value);
  const int passes = (static_cast<int>(std::bit_width(most - least)) + kBits - 1) / kBits;
  if (2 * passes > static_cast<int>(std::bit_width(row.size()))) return false;
  Row dealt(row.size());
  for (int pass = 0; pass < passes; ++pass) {
    const auto digit = [&](const auto& entry) {
      const auto value = static_cast<uint64_t>(entry.value);
      return (descending ? most - value : value - least) >> (pass * kBits) & (kDigits - 1);
    };
    size_t ends[kDigits + 1] = {};
    for (const auto& entry : row) ++ends[digit(entry) + 1];
    for (uint64_t d = 0; d < kDigits; ++d) ends[d + 1] += ends[d];
    for (const auto& entry : row) dealt[ends[digit(entry)]++] = entry;
    row.swap(dealt);
  }
  return true;
}

/// Sorts. Many entries are first dealt out to ranges, which are then sorted at once.
template <class Row, class Before>
void sort_all(Row& row, const Before& before) {
  const int64_t n = static_cast<int64_t>(row.size());
  if constexpr (std::is_integral_v<decltype(row[0].value)>)
    if (sort_digits(row, std::is_same_v<Before, Descending>)) return;
  if (n <= part_size || num_threads() == 1) return sort_range(row, 0, n, before);  // there is one order
  constexpr int64_t kRanges = 32, kSamples = 16;                                   // as many for each range
  Row bounds(kRanges * kSamples), dealt(row.size());
  for (int64_t i = 0; i < kRanges * kSamples; ++i) bounds[i] = row[i * n / (kRanges * kSamples)];
  sort_range(bounds, 0, kRanges * kSamples, before);
  for (int64_t i = 1; i < kRanges; ++i) bounds[i - 1] = bounds[i * kSamples];
  bounds.resize(kRanges - 1);
  ScratchVector<uint8_t> ranges(row.size());
  int64_t ends[kRanges + 1] = {};
  for (int64_t i = 0; i < n; ++i) {
    ranges[i] = static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), row[i], before) - bounds.begin());
    ++ends[ranges[i] + 1];
  }
  for (int64_t range = 0; range < kRanges; ++range) ends[range + 1] += ends[range];
  for (int64_t i = 0; i < n; ++i) dealt[ends[ranges[i]]++] = row[i];
  parallel_for(kRanges, 1,
               [&](int64_t range, int64_t) { sort_range(dealt, range ? ends[range - 1] : 0, ends[range], before); });
  row.swap(dealt);
}

template <class Row, class Before>
void sort_first(Row& row, int64_t k, const Before& before) {
  if (k == static_cast<int64_t>(row.size())) return sort_all(row, before);
  std::nth_element(row.begin(), row.begin() + k, row.end(), before);
  sort_range(row, 0, k, before);
}

/// Whether rows, along the last dimension, are many: f(parts) has been called for parts of the views then. Parts of
/// contiguous views, the results, are contiguous.
template <size_t count, class F>
bool divided(const View* const (&views)[count], const F& f) {
  const Shape& shape = views[count - 1]->shape;
  if (views[count - 1]->numel * kCost <= part_size) return false;
  int outermost = 0;
  while (outermost < shape.size() && shape[outermost] == 1) ++outermost;
  return outermost + 1 < shape.size() && for_each_part(views, ~(1u << outermost), f, kCost);
}

void sort_part(bool descending, const View& x, const View& values, const View& indices) {
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

void sort(bool descending, const View& x, const View& values, const View& indices) {
  const View* const views[] = {&values, &indices, &x};
  if (!divided(views, [=](const View* const* part) { sort_part(descending, *part[2], *part[0], *part[1]); }))
    sort_part(descending, x, values, indices);
}

void kthvalue(int64_t k, bool nan_wins, const View& x, const View& indices) {
  if (x.numel == 0) return;
  const View* const views[] = {&indices, &x};
  if (divided(views, [=](const View* const* part) { kthvalue(k, nan_wins, *part[1], *part[0]); })) return;
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
    for_each_range(values.numel, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = sorted.as<const T>() + i / m * n;
        position[i] = (right ? std::upper_bound(row, row + n, value[i], before)
                             : std::lower_bound(row, row + n, value[i], before)) -
                      row;
      }
    });
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
