#include "lib/functors/compare.h"

#include <algorithm>
#include <cstring>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/tiles.h"

// One element at a time in the source: the compiler vectorises these, and better than batches of mixed widths would be.
namespace reel::cpu::REEL_ISA {
namespace {

template <size_t I>
void compare(const void* functor, const View& a, const View& b, const View& y) {
  using F = std::tuple_element_t<I, functors::CompareList>;
  const F& f = *static_cast<const F*>(functor);
  if (is_half(a.dtype) || is_half(b.dtype)) return in_float32<compare<I>>(functor, a, b, y);
  switch (a.dtype) {
    case kFloat32: return map_elements<float, bool>(f, y, a, b);
    case kFloat64: return map_elements<double, bool>(f, y, a, b);
    case kInt32: return map_elements<int32_t, bool>(f, y, a, b);
    case kInt64: return map_elements<int64_t, bool>(f, y, a, b);
    default: return map_elements<uint8_t, bool>(f, y, a, b);
  }
}

constexpr int64_t kBlock = 256;  // elements that are made adjacent at once

/// Adjacent has the n elements of a run, whatever lies between them, one behind the other: up to kBlock at once.
template <class T>
class Adjacent {
 public:
  Adjacent(const char* from, int64_t step, int64_t n) : from_(from), step_(step) {
    if (step == 0) std::fill_n(memory_, std::min(n, kBlock), at(0));
  }
  /// Returns n of them from the one at `begin` on, which stay until the next call.
  const T* operator()(int64_t begin, int64_t n) {
    constexpr int64_t kUnit = sizeof(T);
    if (step_ == kUnit) return reinterpret_cast<const T*>(from_) + begin;
    if (step_ == 2 * kUnit) {
      const T* const from = reinterpret_cast<const T*>(from_) + 2 * begin;
      for (int64_t i = 0; i < n; ++i) memory_[i] = from[2 * i];
    } else if (step_ != 0) {
      for (int64_t i = 0; i < n; ++i) memory_[i] = at(begin + i);
    }
    return memory_;
  }

 private:
  T at(int64_t i) const { return *reinterpret_cast<const T*>(from_ + i * step_); }
  const char* from_;
  int64_t step_;
  T memory_[kBlock];
};

/// Writes n elements from u where c is true, else from v.
template <class T>
void select_adjacent(int64_t n, const uint8_t* c, const T* u, const T* v, T* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u[i] : v[i];
}

/// Selects elements of a run of which an operand or the result lie apart, `steps` bytes.
template <class T>
void select_apart(int64_t n, char* const* p, const int64_t* steps) {
  Adjacent<uint8_t> c(p[1], steps[1], n);
  Adjacent<T> u(p[2], steps[2], n), v(p[3], steps[3], n);
  T memory[kBlock];
  const bool is_adjacent = steps[0] == sizeof(T);
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    T* const out = is_adjacent ? reinterpret_cast<T*>(p[0]) + i : memory;
    select_adjacent(count, c(i, count), u(i, count), v(i, count), out);
    if (is_adjacent) continue;
    for (int64_t j = 0; j < count; ++j) element<T>(p[0], (i + j) * steps[0]) = memory[j];
  }
}

/// Only bytes are moved, so any type of the right size will do.
template <class T>
void select_elements(const View& condition, const View& a, const View& b, const View& y) {
  const View* const views[] = {&y, &condition, &a, &b};
  for_each_run(views, [](int64_t n, char* const* p, const int64_t* s) {
    const uint8_t* c = reinterpret_cast<const uint8_t*>(p[1]);
    const T *u = reinterpret_cast<const T*>(p[2]), *v = reinterpret_cast<const T*>(p[3]);
    T* out = reinterpret_cast<T*>(p[0]);
    constexpr int64_t kUnit = sizeof(T);
    if (s[0] == kUnit && s[1] == 1 && s[2] == kUnit && s[3] == kUnit) {
      select_adjacent(n, c, u, v, out);
    } else if (s[0] == kUnit && s[1] == 0 && s[*c ? 2 : 3] == kUnit) {
      std::memcpy(out, *c ? u : v, n * sizeof(T));
    } else if (s[0] == kUnit && s[1] == 0 && s[*c ? 2 : 3] == 0) {
      std::fill_n(out, n, *c ? *u : *v);
    } else if (s[0] == kUnit && s[1] == 1 && s[2] == kUnit && s[3] == 0) {
      const T v0 = *v;
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u[i] : v0;
    } else if (s[0] == kUnit && s[1] == 1 && s[2] == 0 && s[3] == kUnit) {
      const T u0 = *u;
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u0 : v[i];
    } else {
      select_apart<T>(n, p, s);
    }
  });
}

void where(const View& condition, const View& a, const View& b, const View& y) {
  switch (size_of(y.dtype)) {
    case 1: return select_elements<uint8_t>(condition, a, b, y);
    case 2: return select_elements<uint16_t>(condition, a, b, y);
    case 4: return select_elements<uint32_t>(condition, a, b, y);
    default: return select_elements<uint64_t>(condition, a, b, y);
  }
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Binary rows[] = {Pointwise<compare<I>>::run...};
  table.compare = rows;
}

}  // namespace

void install_compare(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::CompareList>>());
  table.where = Pointwise<where>::run;
}

}  // namespace reel::cpu::REEL_ISA
