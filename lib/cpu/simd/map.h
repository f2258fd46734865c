#pragma once
#include <utility>

#include "lib/cpu/loop.h"
#include "lib/cpu/simd/batch.h"

// Pointwise functions over views, a vector at a time.
namespace reel::cpu::REEL_ISA {

/// One run of an operand: its batches from contiguous, repeated or strided elements.
template <class T>
struct Source {
  const T* data;
  int64_t stride;  // in elements
  Batch<T> load_at(int64_t i) const {
    if (stride == 1) return load(data + i);
    if (stride == 0) return Batch<T>(*data);
    return load_strided(data + i * stride, stride, kWidth<T>);
  }
  Batch<T> load_part_at(int64_t i, int64_t n) const {
    if (stride == 1) return load_part(data + i, n);
    if (stride == 0) return Batch<T>(*data);
    return load_strided(data + i * stride, stride, n);
  }
};

/// A RowSource is a Source of contiguous or repeated elements, the latter as a vector of their own, so that its loads
/// do not branch.
template <class T>
struct RowSource {
  alignas(Arch::alignment()) T repeated[kWidth<T>];
  const T* data;
  int64_t step = 1;
  RowSource(const T* at, int64_t stride) : data(at) {
    if (stride != 0) return;
    store(repeated, Batch<T>(*at));
    data = repeated, step = 0;
  }
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;
  Batch<T> load_at(int64_t i) const { return load(data + i * step); }
  Batch<T> load_part_at(int64_t i, int64_t n) const { return load_part(data + i * step, n); }
};

/// y[i] = op(x[i]...) over n contiguous elements. The tail goes through a batch, too: scalar code could round
/// differently, and an element's result would depend on its position.
template <class T, class Op, class... In>
void map_flat(const Op& op, int64_t n, T* y, const In*... x) {
  constexpr int64_t kStep = kWidth<T>;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) store<T>(y + i, op(load(x + i)...));
  if (i < n) store_part(y + i, Batch<T>(op(load_part(x + i, n - i)...)), n - i);
}

template <class T, class Op, class... In>
void map_run(const Op& op, int64_t n, T* y, int64_t stride, const In&... x) {
  constexpr int64_t kStep = kWidth<T>;
  int64_t i = 0;
  if (stride == 1) {
    for (; i + kStep <= n; i += kStep) store<T>(y + i, op(x.load_at(i)...));
    if (i < n) store_part(y + i, Batch<T>(op(x.load_part_at(i, n - i)...)), n - i);
  } else {
    for (; i + kStep <= n; i += kStep) store_strided<T>(y + i * stride, stride, op(x.load_at(i)...), kStep);
    if (i < n) store_strided(y + i * stride, stride, Batch<T>(op(x.load_part_at(i, n - i)...)), n - i);
  }
}

template <class T, size_t... I, class Op, class... Views>
[[gnu::noinline]] void map_strided(std::index_sequence<I...>, const Op& op, const View& y, const Views&... x) {
  const View* const views[] = {&y, &x...};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    constexpr int64_t kUnit = sizeof(T);
    if (s[0] == kUnit && ((s[I + 1] == 0 || s[I + 1] == kUnit) && ...))
      return map_run<T>(op, n, reinterpret_cast<T*>(p[0]), 1,
                        RowSource<T>(reinterpret_cast<const T*>(p[I + 1]), s[I + 1])...);
    map_run<T>(op, n, reinterpret_cast<T*>(p[0]), s[0] / kUnit,
               Source<T>{reinterpret_cast<const T*>(p[I + 1]), s[I + 1] / kUnit}...);
  });
}

/// y = op(x...), element by element, in batches: op takes and returns Batch<T>.
template <class T, class Op, class... Views>
void map(const Op& op, const View& y, const Views&... x) {
  if ((y.contiguous && ... && x.contiguous)) return map_flat<T>(op, y.numel, y.as<T>(), x.template as<const T>()...);
  map_strided<T>(std::make_index_sequence<sizeof...(Views)>(), op, y, x...);
}

}  // namespace reel::cpu::REEL_ISA
