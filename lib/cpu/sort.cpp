#include <algorithm>
#include <bit>
#include <limits>
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

template <class T>
using Key = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
constexpr Key<T> kKeyOfNaN = sizeof(T) == 2 ? Key<T>{0xffff} : static_cast<Key<T>>(~Key<T>{0});
/// Returns an unsigned number for each element; numbers are in the order of the elements. That of NaN is the largest.
template <class T>
Key<T> key_of(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key<T>>(x) ^ (std::is_signed_v<T> ? Key<T>{1} << (8 * sizeof(Key<T>) - 1) : Key<T>{0});
  } else {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, Key<T>>;
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
    constexpr Bits kInfinity = std::is_same_v<T, double>    ? static_cast<Bits>(0x7ff0000000000000)
                               : std::is_same_v<T, float>   ? static_cast<Bits>(0x7f800000)
                               : std::is_same_v<T, Float16> ? Bits{0x7c00}
                                                            : Bits{0x7f80};
    const Bits bits = std::bit_cast<Bits>(x), magnitude = bits & static_cast<Bits>(~kSign);
    const Bits key = static_cast<Bits>(bits & kSign ? kSign - magnitude : kSign + magnitude);  // -0 is 0
    return magnitude > kInfinity ? kKeyOfNaN<T> : key;
  }
}
/// An Entry is a key and, in its low half, the element's position. This decides between equal elements, so that every
/// algorithm sorts stably, std::nth_element and heaps included.
__extension__ using WideEntry = unsigned __int128;

template <class E>
constexpr int kHalf = 4 * sizeof(E);
template <class E>
int64_t position_of(E entry) {
  return static_cast<int64_t>(entry & ((E{1} << kHalf<E>)-1));
}
template <class E>
uint64_t key_in(E entry) {
  return static_cast<uint64_t>(entry >> kHalf<E>);
}
/// Returns an element's entry.
template <class E, bool descending, class T>
E entry_of(T x, int64_t position) {
  const Key<T> key = key_of(x);
  return E{descending ? static_cast<Key<T>>(~key) : key} << kHalf<E> | static_cast<E>(position);
}

/// Calls f(E()) for the type of the entries of rows of n elements.
template <class T, class F>
void with_entry(int64_t n, const F& f) {
  if constexpr (sizeof(T) < 8)
    if (n <= int64_t{1} << 32) return f(uint64_t{});
  f(WideEntry{});
}

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
template <class E, bool descending, class T, class F>
void for_each_row(const View& x, const F& f) {
  const int64_t n = x.shape.empty() ? 1 : x.shape.back();
  ScratchVector<E> row(n);
  for_each_line<T>(x, [&](const T* from, int64_t stride) {
    for (int64_t i = 0; i < n; ++i) row[i] = entry_of<E, descending>(from[i * stride], i);
    f(row, from, stride);
  });
}

/// The first entries of a long line in sorted order: a heap holds the best so far, and most elements are compared with
/// its top only.
template <bool descending, class E, class T>
void find_first(const T* from, int64_t n, int64_t stride, ScratchVector<E>& best) {
  const int64_t k = static_cast<int64_t>(best.size());
  for (int64_t i = 0; i < k; ++i) best[i] = entry_of<E, descending>(from[i * stride], i);
  std::make_heap(best.begin(), best.end());
  for (int64_t i = k; i < n; ++i) {
    const E entry = entry_of<E, descending>(from[i * stride], i);
    if (entry > best.front()) continue;
    std::pop_heap(best.begin(), best.end());
    best.back() = entry;
    std::push_heap(best.begin(), best.end());
  }
  std::sort_heap(best.begin(), best.end());
}

constexpr int64_t kCost = 8;  // of an element, in the sense of for_each_part

/// Sorts n entries, whose positions ascend, by one digit of the keys after the other, from the lowest on (Knuth, volume
/// 3, 5.2.5).
template <int bits, class E>
void sort_digits(E* row, int64_t n, uint64_t min, int passes) {
  constexpr uint64_t kDigits = uint64_t{1} << bits;
  const Scratch other(static_cast<size_t>(n) * sizeof(E));
  E *from = row, *to = other.data<E>();
  for (int pass = 0; pass < passes; ++pass) {
    const auto digit = [&](E entry) { return (key_in(entry) - min) >> (pass * bits) & (kDigits - 1); };
    int64_t ends[kDigits + 1] = {};
    for (int64_t i = 0; i < n; ++i) ++ends[digit(from[i]) + 1];
    for (uint64_t d = 0; d < kDigits; ++d) ends[d + 1] += ends[d];
    for (int64_t i = 0; i < n; ++i) to[ends[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != row) std::copy_n(from, n, row);
}

/// Sorts n entries, whose positions ascend: by digits where that takes few passes.
template <class E>
[[gnu::noinline]] void sort_range(E* row, int64_t n) {
  uint64_t min = std::numeric_limits<uint64_t>::max(), max = 0;
  for (int64_t i = 0; i < n; ++i) min = std::min(min, key_in(row[i])), max = std::max(max, key_in(row[i]));
  const int width = static_cast<int>(std::bit_width(max - min));
  const int bits = n < 4096 ? 8 : 11, passes = (width + bits - 1) / bits;
  if (passes * (n + (int64_t{1} << bits) / 2) > n * static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))))
    return std::sort(row, row + n);
  bits == 8 ? sort_digits<8>(row, n, min, passes) : sort_digits<11>(row, n, min, passes);
}

/// Sorts entries whose positions ascend. Many are first dealt out to ranges, which are then sorted at once.
template <class Row>
void sort_all(Row& row) {
  const int64_t n = static_cast<int64_t>(row.size());
  if (n <= part_size || num_threads() == 1) return sort_range(row.data(), n);  // there is one order
  constexpr int64_t kRanges = 32, kSamples = 16;                               // as many for each range
  Row bounds(kRanges * kSamples), dealt(row.size());
  for (int64_t i = 0; i < kRanges * kSamples; ++i) bounds[i] = row[i * n / (kRanges * kSamples)];
  std::sort(bounds.begin(), bounds.end());
  for (int64_t i = 1; i < kRanges; ++i) bounds[i - 1] = bounds[i * kSamples];
  bounds.resize(kRanges - 1);
  ScratchVector<uint8_t> ranges(row.size());
  int64_t ends[kRanges + 1] = {};
  for (int64_t i = 0; i < n; ++i) {
    ranges[i] = static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), row[i]) - bounds.begin());
    ++ends[ranges[i] + 1];
  }
  for (int64_t range = 0; range < kRanges; ++range) ends[range + 1] += ends[range];
  for (int64_t i = 0; i < n; ++i) dealt[ends[ranges[i]]++] = row[i];
  parallel_for(kRanges, 1, [&](int64_t range, int64_t) {
    const int64_t begin = range ? ends[range - 1] : 0;
    sort_range(dealt.data() + begin, ends[range] - begin);
  });
  row.swap(dealt);
}

template <class Row>
void sort_first(Row& row, int64_t k) {
  if (k == static_cast<int64_t>(row.size())) return sort_all(row);
  std::nth_element(row.begin(), row.begin() + k, row.end());
  std::sort(row.begin(), row.begin() + k);
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

template <class E, bool descending, class T>
void sort_rows(const View& x, const View& values, const View& indices) {
  const int64_t n = x.shape.empty() ? 1 : x.shape.back(), k = values.shape.empty() ? 1 : values.shape.back();
  T* value = values.as<T>();
  int64_t* index = indices.as<int64_t>();
  const auto write = [&](const ScratchVector<E>& first, const T* from, int64_t stride) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t position = position_of(first[i]);
      *value++ = from[position * stride], *index++ = position;
    }
  };
  if (k > n / 64)
    return for_each_row<E, descending, T>(x, [&](ScratchVector<E>& row, const T* from, int64_t stride) {
      sort_first(row, k);
      write(row, from, stride);
    });
  ScratchVector<E> best(k);
  for_each_line<T>(x, [&](const T* from, int64_t stride) {
    find_first<descending>(from, n, stride, best);
    write(best, from, stride);
  });
}

void sort_part(bool descending, const View& x, const View& values, const View& indices) {
  if (values.numel == 0) return;
  const int64_t n = x.shape.empty() ? 1 : x.shape.back();
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_entry<T>(n, [&](auto entry) {
      using E = decltype(entry);
      descending ? sort_rows<E, true, T>(x, values, indices) : sort_rows<E, false, T>(x, values, indices);
    });
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
    with_entry<T>(x.shape.empty() ? 1 : x.shape.back(), [&](auto entry) {
      using E = decltype(entry);
      for_each_row<E, false, T>(x, [&](auto& row, const T*, int64_t) {
        const auto is_nan = [](E e) { return !std::is_integral_v<T> && key_in(e) == kKeyOfNaN<T>; };
        if (const auto bad = nan_wins ? std::find_if(row.begin(), row.end(), is_nan) : row.end(); bad != row.end()) {
          *index++ = position_of(*bad);
        } else {
          std::nth_element(row.begin(), row.begin() + k, row.end());
          *index++ = position_of(row[k]);
        }
      });
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
