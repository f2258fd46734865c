#include "lib/functors/compare.h"
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
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u[i] : v[i];
    } else if (s[0] == kUnit && s[1] == 1 && s[2] == kUnit && s[3] == 0) {
      const T v0 = *v;
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u[i] : v0;
    } else if (s[0] == kUnit && s[1] == 1 && s[2] == 0 && s[3] == kUnit) {
      const T u0 = *u;
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? u0 : v[i];
    } else {
      for (int64_t i = 0; i < n; ++i)
        element<T>(p[0], i * s[0]) = c[i * s[1]] ? element<T>(p[2], i * s[2]) : element<T>(p[3], i * s[3]);
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
