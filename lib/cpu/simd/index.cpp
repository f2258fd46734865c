#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <type_traits>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/id_check.h"

// Indexing along one dimension: bounds checks, gather-like reads, scatter-like writes and nonzero. Slices that are
// contiguous in memory are moved by memcpy, single elements by loads and stores of their size.
namespace reel::cpu::REEL_ISA {
namespace {

/// a + b in the type of the elements.
template <class T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(uint64_t(a) + uint64_t(b));
  else
    return T(a + b);
}

// These return a · b in the type of the elements, and the larger and the smaller of a and b, where NaN propagates: by
// instructions that do not branch unless a is NaN.
template <class T>
T times(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(uint64_t(a) * uint64_t(b));
  else
    return T(a * b);
}
template <class T>
T larger(T a, T b) {
  const T other = a > b ? a : b;
  return a != a ? a : other;
}
template <class T>
T smaller(T a, T b) {
  const T other = a < b ? a : b;
  return a != a ? a : other;
}

/// Returns id, or id + size if it is negative, without a branch.
int64_t wrap(int64_t id, int64_t size) { return id + (size & (id >> 63)); }

int64_t id_at(const View& ids, int64_t i) {
  return ids.as<const int64_t>()[ids.shape.empty() ? 0 : i * ids.strides[0]];
}

/// Calls f(n) where the compiler knows a slice's size n, if that is a few elements: memcpy is a move then, not a call.
template <class F>
void with_size(int64_t n, const F& f) {
  switch (n) {
    case 1: return f(std::integral_constant<int64_t, 1>());
    case 2: return f(std::integral_constant<int64_t, 2>());
    case 4: return f(std::integral_constant<int64_t, 4>());
    case 8: return f(std::integral_constant<int64_t, 8>());
    case 16: return f(std::integral_constant<int64_t, 16>());
    default: return f(n);
  }
}

/// f(id, i) for the 1-d ids, each wrapped into [0, size).
template <class F>
void for_each_id(const View& ids, int64_t size, const F& f) {
  const int64_t* const id = ids.as<const int64_t>();
  const int64_t n = ids.numel, stride = ids.shape.empty() ? 0 : ids.strides[0];
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) f(wrap(id[i], size), i);
  else
    for (int64_t i = 0; i < n; ++i) f(wrap(id[i * stride], size), i);
}

/// Calls f(id, i) like for_each_id, but on several threads at once, where an id is the place of `inner` elements that f
/// changes. The calls for one id come in order and on one thread: what is added up does not depend on the division.
template <class F>
void for_each_target(const View& ids, int64_t size, int64_t inner, const F& f) {
  // Groups of ids are not worth their time for short rows, nor for two threads: rows that are read out of order take
  // about twice as long.
  constexpr int64_t kGroups = 16, kLeast = 32;
  const int64_t n = ids.numel;
  if (n * inner <= part_size || inner < std::min(kLeast, part_size) || num_threads() < 3)
    return for_each_id(ids, size, f);
  const Scratch scratch(static_cast<size_t>(n) * sizeof(int64_t));
  int64_t *const order = scratch.data<int64_t>(), ends[kGroups + 1] = {};
  for_each_id(ids, size, [&](int64_t id, int64_t) { ++ends[id % kGroups + 1]; });
  for (int64_t group = 0; group < kGroups; ++group) ends[group + 1] += ends[group];
  for_each_id(ids, size, [&](int64_t id, int64_t i) { order[ends[id % kGroups]++] = i; });
  parallel_for(kGroups, 1, [&](int64_t group, int64_t) {
    for (int64_t k = group ? ends[group - 1] : 0; k < ends[group]; ++k) f(wrap(id_at(ids, order[k]), size), order[k]);
  });
}

/// A contiguous view as [outer, shape[dim], inner].
struct Blocks {
  int64_t outer = 1, size, inner = 1;
  Blocks(const View& x, int dim) : size(x.shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= x.shape[d];
    for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  }
};

/// Returns whether the slices of x along dim follow each other in memory, each of them contiguous, in every block.
bool is_blocked(const View& x, int dim) {
  int64_t stride = 1;
  for (int d = x.shape.size() - 1; d >= dim; --d) {
    if (x.shape[d] != 1 && x.strides[d] != stride) return false;
    stride *= x.shape[d];
  }
  return true;
}
/// Returns where such a block begins.
const char* block_of(const View& x, int dim, int64_t block) {
  int64_t offset = 0;
  for (int d = dim - 1; d >= 0; --d) {
    offset += block % x.shape[d] * x.strides[d];
    block /= x.shape[d];
  }
  return x.as<const char>() + offset * size_of(x.dtype);
}

/// f(o, id, i) for the ids and each of `outer` blocks, in which id is the place of `inner` elements that f changes.
template <class F>
void for_each_block(int64_t outer, const View& ids, int64_t size, int64_t inner, const F& f) {
  if (outer == 1) return for_each_target(ids, size, inner, [&](int64_t id, int64_t i) { f(int64_t{0}, id, i); });
  for_each_range(outer, ids.numel * inner, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) for_each_id(ids, size, [&](int64_t id, int64_t i) { f(o, id, i); });
  });
}

/// Runs are those of consecutive ids, whose slices are copied together. There are none where few ids are consecutive,
/// or they are used once.
class Runs {
 public:
  struct Run {
    int64_t id, place, length;  // of the first id; its number among the ids
  };
  Runs(const View& ids, int64_t size, int64_t uses)
      : limit_(uses > 1 ? ids.numel / 4 : 0), runs_(static_cast<size_t>(limit_) * sizeof(Run)) {
    Run* const runs = runs_.data<Run>();
    for_each_id(ids, size, [&](int64_t id, int64_t i) {
      if (count_ > 0 && count_ <= limit_ && id == runs[count_ - 1].id + runs[count_ - 1].length)
        ++runs[count_ - 1].length;
      else if (count_ <= limit_ && ++count_ <= limit_)
        runs[count_ - 1] = {id, i, 1};
    });
    if (count_ > limit_) count_ = 0;
  }
  explicit operator bool() const { return count_ > 0; }
  const Run* begin() const { return runs_.data<Run>(); }
  const Run* end() const { return begin() + count_; }

 private:
  const int64_t limit_;
  const Scratch runs_;
  int64_t count_ = 0;
};

bool check_part(const View& ids, int64_t low, int64_t high, int64_t* bad) {
  const View* const views[] = {&ids};
  bool found = false;
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    if (found) return;
    const uint64_t first = low, count = uint64_t(high) - first;
    const auto is_bad = [=](int64_t id) { return uint64_t(id) - first >= count; };
    const auto look = [&](int64_t step) {
      uint64_t any = 0;
      for (int64_t i = 0; i < n; ++i) any |= uint64_t{is_bad(element<const int64_t>(p[0], i * step))};
      return any != 0;
    };
    if (!(s[0] == 8 ? look(8) : look(s[0]))) return;
    found = true;
    for (int64_t i = 0; i < n && !is_bad(*bad = element<const int64_t>(p[0], i * s[0])); ++i) {
    }
  });
  return found;
}

/// Calls f(views) with the dimensions of the views sorted by the strides of the last one where its rows are not
/// adjacent elements.
template <size_t count, class F>
void call_sorted(const View* const* views, const F& f) {
  const auto call = [](const void* g, const View* const* sorted) { (*static_cast<const F*>(g))(sorted); };
  needs_reordering(*views[count - 1]) ? call_reordered(views, count, call, &f) : f(views);
}

bool check_bounds(const char*, const View& ids, int64_t low, int64_t high, int64_t* bad) {
  if (ids.numel > part_size || needs_reordering(ids)) {
    std::atomic<bool> found{false};
    const View* const views[] = {&ids};
    const auto look = [&](const View* const* part) {
      int64_t any;
      if (check_part(*part[0], low, high, &any)) found = true;
    };
    for_each_part(views, 0, [&](const View* const* part) { call_sorted<1>(part, look); });
    if (!found) return false;
  }
  return check_part(ids, low, high, bad);  // the first one
}

/// Whether ids that index `size` elements are to be checked, and one is out of range.
bool fails(IdCheck* check, const View& ids, int64_t size) {
  return check && check_bounds(check->op, ids, 0, size, &check->bad);
}

/// Returns x in index's shape, with stride 0 along dim.
[[gnu::noinline]] View without_dim(const View& x, int dim, const View& index) {
  View base = x;
  base.shape = index.shape;
  if (!index.shape.empty()) base.strides[dim] = 0;
  base.numel = index.numel;
  base.contiguous = false;
  return base;
}

/// f(x[…, id, …], y[p]) for every element p of index, where id is index[p] and replaces p's coordinate along dim. If f
/// writes to x, then in order.
template <class T, class F>
void for_each_indexed(const View& x, int dim, const View& index, const View& y, bool writes_x, const F& f) {
  const bool scalar = index.shape.empty();
  const View base = without_dim(x, dim, index);
  const int64_t size = scalar ? 1 : x.shape[dim], stride = scalar ? 0 : x.strides[dim];
  const auto run = [&](const View* const* sorted) {
    const View* const views[] = {sorted[0], sorted[1], sorted[2]};
    for_each_run(views, [&, size, stride](int64_t n, char* const* p, const int64_t* s) {
      constexpr int64_t kUnit = sizeof(T);
      char *const ids = p[0], *const at = p[1], *const y = p[2];
      const auto elements =
          [ =, &f ](int64_t id_step, int64_t x_step, int64_t y_step, int64_t stride) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t id = wrap(element<const int64_t>(ids, i * id_step), size);
          f(element<T>(at, i * x_step + id * stride * kUnit), element<T>(y, i * y_step));
        }
      };
      if (s[0] == 8 && s[2] == kUnit)
        return s[1] == 0 && stride == 1 ? elements(8, 0, kUnit, 1) : elements(8, s[1], kUnit, stride);
      if (s[0] != 0) return elements(s[0], s[1], s[2], stride);
      char* const x = at + wrap(element<const int64_t>(ids, 0), size) * stride * kUnit;
      // One id, a row: the compiler knows the steps that are frequent.
      const auto row = [ =, &f ](int64_t x_step, int64_t y_step) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) f(element<T>(x, i * x_step), element<T>(y, i * y_step));
      };
      const auto row_of_one = [=, &f](int64_t x_step) {
        T value = element<T>(y, 0);
        for (int64_t i = 0; i < n; ++i) f(element<T>(x, i * x_step), value);
      };
      const auto row_along_y = [&](int64_t x_step) __attribute__((always_inline)) {
        s[2] == kUnit ? row(x_step, kUnit) : row(x_step, s[2]);
      };
      if (s[2] == 0) return s[1] == kUnit ? row_of_one(kUnit) : row_of_one(s[1]);
      return s[1] == kUnit ? row_along_y(kUnit) : s[1] == 2 * kUnit ? row_along_y(2 * kUnit) : row_along_y(s[1]);
    });
  };
  // The innermost loop is along adjacent elements of y.
  const auto run_sorted = [&](const View* const* part) { call_sorted<3>(part, run); };
  const View* const views[] = {&index, &base, &y};
  if (index.numel <= part_size || (writes_x && num_threads() == 1)) return run_sorted(views);
  if (!writes_x && for_each_part(views, 0, run_sorted)) return;
  // Each element of x is written by one part, in order, however the other dimensions are divided: into wide strips.
  constexpr int64_t kStrips = 16;
  const int d = writes_x ? divided_dim(y.shape, 1u << dim, kStrips) : -1;
  if (d < 0) return run_sorted(views);
  parallel_for(y.shape[d], step_of(y.shape[d], kStrips), [&](int64_t begin, int64_t end) {
    const View parts[] = {part_of(index, d, begin, end), part_of(base, d, begin, end), part_of(y, d, begin, end)};
    const View* const part[] = {&parts[0], &parts[1], &parts[2]};
    run_sorted(part);
  });
}

/// Returns 1-d ids as an index of the shape of y: the coordinate along dim chooses the id.
View expand_ids(const View& ids, int dim, const View& y) {
  View index = y;
  index.data = ids.data;
  index.dtype = ids.dtype;
  index.contiguous = false;
  for (int d = 0; d < index.strides.size(); ++d) index.strides[d] = 0;
  index.strides[dim] = ids.shape.empty() ? 0 : ids.strides[0];
  return index;
}

/// Returns whether x is large, and its rows are neither adjacent elements nor one element, repeated.
bool lies_across(const View& x) { return x.numel >= 1 << 14 && needs_reordering(x) && x.strides.back() != 0; }

/// Calls f with a row-major copy of x where that lies across rows, with x itself elsewhere.
template <class F>
void with_rows(const View& x, bool copies, const F& f) {
  if (!copies || !lies_across(x)) return f(x);
  const Scratch memory(static_cast<size_t>(x.numel) * size_of(x.dtype));
  const View rows = dense_like(x, memory.data<char>(), x.dtype);
  copy(x, rows);
  f(rows);
}

bool gather(const View& x, int dim, const View& index, const View& y, IdCheck* check) {
  if (fails(check, index, x.shape.empty() ? 1 : x.shape[dim])) return true;
  with_rows(index, true, [&](const View& index) {
    with_rows(x, y.numel >= x.numel / 2, [&](const View& x) {
      with_word(x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        for_each_indexed<T>(x, dim, index, y, false, [](const T& from, T& to) { to = from; });
      });
    });
  });
  return false;
}

void scatter(ScatterOp op, const View& y, int dim, const View& index, const View& from) {
  if (y.contiguous && (lies_across(index) || lies_across(from)))
    return with_rows(index, true, [&](const View& index) {
      with_rows(from, true, [&](const View& from) { scatter(op, y, dim, index, from); });
    });
  if (op == ScatterOp::kReplace)
    return with_word(y.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      for_each_indexed<T>(y, dim, index, from, true, [](T& to, const T& value) { to = value; });
    });
  if (is_half(y.dtype)) return scatter(op, Widened().in_out(y), dim, index, Widened().in(from));
  if (op == ScatterOp::kAdd && y.dtype == kBool) op = ScatterOp::kMax;  // of bytes 0 and 1
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto join = [&](auto f) {
      for_each_indexed<T>(y, dim, index, from, true, [f](T& to, const T& value) { to = f(to, value); });
    };
    switch (op) {
      case ScatterOp::kReplace: break;
      case ScatterOp::kAdd: return join([](T a, T b) { return plus(a, b); });
      case ScatterOp::kMul: return join([](T a, T b) { return times(a, b); });
      case ScatterOp::kMax: return join([](T a, T b) { return larger(a, b); });
      case ScatterOp::kMin: return join([](T a, T b) { return smaller(a, b); });
    }
  });
}

/// Copies slices along dim, for every i: with kSource to[i] = from[ids[i]], with kTarget to[ids[i]] = from[i].
enum class Lookup { kSource, kTarget };
template <Lookup lookup>
void move_slices(const View& from, int dim, const View& ids, const View& to) {
  if (ids.numel == 0 || to.numel == 0 || from.numel == 0) return;
  const int64_t size = lookup == Lookup::kSource ? from.shape[dim] : to.shape[dim];
  if (to.contiguous && (lookup == Lookup::kSource ? is_blocked(from, dim) : from.contiguous)) {
    const Blocks source(from, dim), target(to, dim);
    const int64_t bytes = source.inner * size_of(from.dtype);
    if constexpr (lookup == Lookup::kSource) {
      const int64_t n = ids.numel, cost = (bytes + 3) / 4;
      const int64_t *const id = ids.as<const int64_t>(), stride = ids.shape.empty() ? 0 : ids.strides[0];
      char* const b = to.as<char>();
      const Runs runs(ids, size, source.outer);
      with_size(bytes, [&](auto row) {
        if (runs)
          return for_each_range(source.outer, n * cost, [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block) {
              const char* const a = block_of(from, dim, block);
              for (const auto [first, place, length] : runs) {
                char* const target = b + (block * n + place) * row;
                length == 1 ? std::memcpy(target, a + first * row, row)
                            : std::memcpy(target, a + first * row, length * row);
              }
            }
          });
        for_each_range(source.outer * n, cost, [&](int64_t begin, int64_t end) {
          // Copies in registers: a memcpy could change what the closure holds.
          const int64_t slices = size, *const first_id = id, step = stride, count = n;
          char* const target = b;
          for (int64_t at = begin; at < end;) {  // block by block
            const int64_t block = at / count, first = block * count, stop = std::min(end, first + count);
            const char* const a = block_of(from, dim, block);
            for (; at < stop; ++at)
              std::memcpy(target + at * row, a + wrap(first_id[(at - first) * step], slices) * row, row);
          }
        });
      });
    } else {
      with_size(bytes, [&](auto row) {
        for_each_block(source.outer, ids, size, (bytes + 3) / 4, [&](int64_t o, int64_t id, int64_t i) {
          std::memcpy(to.as<char>() + (o * size + id) * row, from.as<const char>() + (o * source.size + i) * row, row);
        });
      });
    }
  } else if constexpr (lookup == Lookup::kSource) {
    gather(from, dim, expand_ids(ids, dim, to), to, nullptr);
  } else {
    scatter(ScatterOp::kReplace, to, dim, expand_ids(ids, dim, from), from);
  }
}

bool read_targets(const char*, const View& ids, int64_t classes, int64_t ignored, const View& kept, const View* marked,
                  int64_t* bad) {
  const int64_t* const id = ids.as<const int64_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < ids.numel; ++i) {
    const bool counts = id[i] != ignored;
    if (counts && (id[i] < 0 || id[i] >= classes)) return *bad = id[i], true;
    if (marked) marked->as<int64_t>()[i] = counts ? id[i] : -1;
    count += counts;
  }
  fill(kept, count);
  return false;
}

bool index_select(const View& x, int dim, const View& ids, const View& y, IdCheck* check) {
  if (fails(check, ids, x.shape.empty() ? 1 : x.shape[dim])) return true;
  if (x.shape.empty())
    copy(x, y);
  else
    move_slices<Lookup::kSource>(x, dim, ids, y);
  return false;
}

void index_copy(const View& y, int dim, const View& ids, const View& from) {
  if (y.shape.empty()) return copy(from, y);
  move_slices<Lookup::kTarget>(from, dim, ids, y);
}

/// to = join(to, slice) for the slices of `from`. Views of several dimensions are contiguous.
template <class T, class Join>
void join_slices(const View& y, int dim, const View& ids, const View& from, const Join& join) {
  if (y.contiguous && from.contiguous && !y.shape.empty()) {
    const Blocks target(y, dim), source(from, dim);
    const auto add = [&](auto inner) {
      for_each_block(target.outer, ids, target.size, inner, [&](int64_t o, int64_t id, int64_t i) {
        T* to = y.as<T>() + (o * target.size + id) * inner;
        const T* row = from.as<const T>() + (o * source.size + i) * inner;
        for (int64_t k = 0; k < inner; ++k) to[k] = join(to[k], row[k]);
      });
    };
    target.inner == 1 ? add(std::integral_constant<int64_t, 1>()) : add(target.inner);
  } else {
    T* const to = y.as<T>();
    const int64_t to_stride = y.shape.empty() ? 0 : y.strides[0], stride = from.shape.empty() ? 0 : from.strides[0];
    for_each_target(ids, y.numel, 1, [=, row = from.as<const T>()](int64_t id, int64_t i) {
      to[id * to_stride] = join(to[id * to_stride], row[i * stride]);
    });
  }
}

void add_rows(DType dtype, void* y, const void* from, std::span<const int64_t> rows, int64_t n) {
  const auto add = [=]<class T>(T* to, const T* first) {
    for (int64_t i = 0; i < n; i += kWidth<float>) {
      const int64_t count = std::min(n - i, kWidth<float>);
      const bool whole = count == kWidth<float>;
      const auto get = [=](const T* row) { return whole ? load_wide(row + i) : load_part_wide(row + i, count); };
      Batch<float> sum = get(to);
      for (const int64_t row : rows) sum += get(first + row * n);
      whole ? store_narrow(to + i, sum) : store_part_narrow(to + i, sum, count);
    }
  };
  if (dtype == kFloat16)
    add(static_cast<Float16*>(y), static_cast<const Float16*>(from));
  else
    add(static_cast<BFloat16*>(y), static_cast<const BFloat16*>(from));
}

void index_add(const View& y, int dim, const View& ids, const View& from) {
  if (ids.numel == 0 || y.numel == 0 || from.numel == 0) return;
  if (is_half(y.dtype)) return index_add_halves(index_add, add_rows, y, dim, ids, from);
  if (y.shape.size() > 1 && !(y.contiguous && from.contiguous))
    return scatter(ScatterOp::kAdd, y, dim, expand_ids(ids, dim, from), from);
  // A bool is a byte 0 or 1: its sum is the larger one.
  if (y.dtype == kBool)
    return join_slices<uint8_t>(y, dim, ids, from, [](uint8_t a, uint8_t b) { return larger(a, b); });
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    join_slices<T>(y, dim, ids, from, [](T a, T b) { return plus(a, b); });
  });
}

int64_t count_nonzero(const View& x) {
  int64_t count = 0;
  const View* const views[] = {&x};
  if (x.numel > part_size) {
    std::atomic<int64_t> total{0};
    for_each_part(views, 0, [&](const View* const* part) { total += count_nonzero(*part[0]); });
    return total;
  }
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      const auto add = [&, data = p[0]](int64_t step) {
        for (int64_t i = 0; i < n; ++i) count += element<const T>(data, i * step) != 0;
      };
      s[0] == sizeof(T) ? add(sizeof(T)) : add(s[0]);
    });
  });
  return count;
}

/// The positions in a line come from a loop without branches, a part of the line at a time.
void nonzero(const View& x, const View& positions) {
  if (x.numel == 0 || positions.numel == 0) return;
  constexpr int64_t kPart = 512;
  const int last = x.shape.size() - 1;
  const int64_t n = x.shape[last], stride = x.strides[last];
  int64_t* out = positions.as<int64_t>();
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* line = x.as<const T>();
    int64_t position[kMaxDims] = {};
    for (int64_t lines = x.numel / n; lines > 0; --lines) {
      for (int64_t begin = 0; begin < n; begin += kPart) {
        int32_t found[kPart];
        int count = 0;
        for (int64_t i = begin, end = std::min(n, begin + kPart); i < end; ++i) {
          found[count] = static_cast<int32_t>(i - begin);
          count += line[i * stride] != 0;
        }
        if (last == 0) {
          for (int k = 0; k < count; ++k) *out++ = begin + found[k];
        } else {
          for (int k = 0; k < count; ++k) {
            for (int d = 0; d < last; ++d) *out++ = position[d];
            *out++ = begin + found[k];
          }
        }
      }
      for (int d = last - 1; d >= 0; --d) {
        line += x.strides[d];
        if (++position[d] < x.shape[d]) break;
        line -= x.strides[d] * x.shape[d];
        position[d] = 0;
      }
    }
  });
}

}  // namespace

void install_index(KernelTable& table) {
  table.check_bounds = check_bounds;
  table.read_targets = read_targets;
  table.index_select = index_select;
  table.index_copy = index_copy;
  table.index_add = index_add;
  table.gather = gather;
  table.scatter = scatter;
  table.count_nonzero = count_nonzero;
  table.nonzero = nonzero;
}

}  // namespace reel::cpu::REEL_ISA
