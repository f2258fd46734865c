#pragma once
#include <algorithm>
#include <cstdint>
#include <tuple>

#include "cuda/aligned_vector.h"

// How a function of single elements becomes a kernel over views: y[i] = f(x0[i], x1[i], …).
//
// flat: every operand is contiguous, or one element for all; read and written 16 bytes at a time, as these kernels
//   are limited by memory.
// strided: any strides, dimensions merged where all operands allow it. Coordinates are computed from an
//   element's index by multiplications with precomputed factors: GPUs have no integer division in hardware. Where y's
//   innermost dimension is adjacent and divides into packs of 16 bytes, they are computed once for a pack, which is
//   written by one store and read by one load from each operand that allows it.
//
// Inputs are views or null pointers, which read as zeros: a gradient rule that does not need an operand has none. A
// view of the host (a number that the user wrote) travels as a kernel argument, without a copy.
namespace reel::cuda {

/// n / divisor for n < 2^31 by one multiplication (Granlund & Montgomery 1994).
struct Divider {
  uint32_t divisor = 1, factor = 1, shift = 0;
  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, factor) + n) >> shift; }
};

/// The strides of N operands of one shape, for 32-bit indices. Dimension 0 is the innermost; strides in elements.
template <int N>
struct Layout {
  int rank = 0;
  Divider sizes[kMaxDims];
  int64_t strides[kMaxDims][N];

  __device__ void locate(uint32_t i, int64_t (&at)[N]) const {
    for (int v = 0; v < N; ++v) at[v] = 0;
    for (int d = 0; d < rank; ++d) {
      const uint32_t rest = sizes[d].divide(i), index = i - rest * sizes[d].divisor;
      for (int v = 0; v < N; ++v) at[v] += index * strides[d][v];
      i = rest;
    }
  }
};

/// An input of a kernel: elements in memory (step 1), one element in memory for all (step 0), or without memory a
/// number for all, `value`. In a strided kernel, `step` is that from element to element of a pack, and `packed` says
/// that each pack is adjacent and aligned.
template <class T>
struct Operand {
  const T* data = nullptr;
  int64_t step = 0;
  Wide<T> value = {};
  bool packed = false;

  __device__ Wide<T> at(int64_t i) const { return data ? widen(data[i]) : value; }
  template <int n>
  __device__ AlignedVector<Wide<T>, n> load(int64_t vector, bool aligned) const {
    AlignedVector<Wide<T>, n> result;
    if (step && aligned) {
      const auto stored = reinterpret_cast<const AlignedVector<T, n>*>(data)[vector];
      for (int j = 0; j < n; ++j) result.items[j] = widen(stored.items[j]);
    } else {
      for (int j = 0; j < n; ++j) result.items[j] = at((vector * n + j) * step);
    }
    return result;
  }
  /// The pack that begins at offset i.
  template <int n>
  __device__ AlignedVector<Wide<T>, n> load_pack(int64_t i) const {
    AlignedVector<Wide<T>, n> result;
    if (packed) {
      const auto stored = *reinterpret_cast<const AlignedVector<T, n>*>(data + i);
      for (int j = 0; j < n; ++j) result.items[j] = widen(stored.items[j]);
    } else if (step == 0) {
      const Wide<T> all = at(i);
      for (int j = 0; j < n; ++j) result.items[j] = all;
    } else {
      for (int j = 0; j < n; ++j) result.items[j] = at(i + j * step);
    }
    return result;
  }
};

namespace detail {

template <int n, class Out, class F, class... In>
__device__ AlignedVector<Out, n> evaluate(const F& f, const AlignedVector<In, n>&... x) {
  AlignedVector<Out, n> y;
  for (int j = 0; j < n; ++j) y.items[j] = narrow<Out>(f(x.items[j]...));
  return y;
}

template <int n, class F, class Out, class... In>
__global__ void flat_kernel(F f, bool aligned, int64_t count, Out* y, Operand<In>... x) {
  const int64_t vectors = aligned ? count / n : 0;
  for (int64_t i = first_index(); i < vectors; i += index_step())
    reinterpret_cast<AlignedVector<Out, n>*>(y)[i] = evaluate<n, Out>(f, x.template load<n>(i, true)...);
  for (int64_t i = vectors * n + first_index(); i < count; i += index_step())
    y[i] = evaluate<1, Out>(f, x.template load<1>(i, false)...).items[0];
}

template <class F, class Out, int... v, class... In>
__device__ void evaluate_at(std::integer_sequence<int, v...>, const F& f, Out* y, const int64_t* at,
                            const Operand<In>&... x) {
  y[at[0]] = narrow<Out>(f(x.at(at[v + 1])...));
}
template <int n, class F, class Out, int... v, class... In>
__device__ AlignedVector<Out, n> evaluate_pack(std::integer_sequence<int, v...>, const F& f, const int64_t* at,
                                               const Operand<In>&... x) {
  return evaluate<n, Out>(f, x.template load_pack<n>(at[v + 1])...);
}
/// `count` elements, or packs of n of them if `packed`.
template <int n, class F, class Out, class... In>
__global__ void strided_kernel(F f, Layout<1 + sizeof...(In)> layout, bool packed, uint32_t count, Out* y,
                               Operand<In>... x) {
  if (packed) {
    for (int64_t i = first_index(); i < count; i += index_step()) {
      int64_t at[1 + sizeof...(In)];
      layout.locate(static_cast<uint32_t>(i), at);
      store_vector(y + at[0], evaluate_pack<n, F, Out>(std::make_integer_sequence<int, sizeof...(In)>(), f, at, x...));
    }
    return;
  }
  for (int64_t i = first_index(); i < count; i += index_step()) {
    int64_t at[1 + sizeof...(In)];
    layout.locate(static_cast<uint32_t>(i), at);
    evaluate_at(std::make_integer_sequence<int, sizeof...(In)>(), f, y, at, x...);
  }
}

/// The element of a view of the host. Among halves it may be a float32, the type in which they are computed: a number
/// is then not rounded to half precision first.
template <class T>
Wide<T> host_value(const View& view) {
  if constexpr (!std::is_same_v<T, Wide<T>>)
    if (view.dtype == kFloat32) return *view.as<const float>();
  return widen(*view.as<const T>());
}
/// Whether all elements are one in memory: a broadcast number.
inline bool is_single(const View& view) {
  for (int d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] != 1 && view.strides[d] != 0) return false;
  return true;
}
template <class T>
Operand<T> operand_of(const View* view) {
  if (!view) return {};
  if (view->host) return {nullptr, 0, host_value<T>(*view)};
  return {view->as<const T>(), is_single(*view) ? 0 : 1, Wide<T>{}};
}
inline bool is_flat(const View* view) { return !view || view->host || view->contiguous || is_single(*view); }

/// The layout of views whose shapes agree; neighbouring dimensions are merged where every view can be stepped through
/// both with one stride.
template <int N>
Layout<N> merged(const View* const (&views)[N]) {
  Layout<N> layout;
  int64_t size[kMaxDims];
  const Shape& shape = views[0]->shape;
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    int64_t stride[N];
    bool merge = layout.rank > 0;
    for (int v = 0; v < N; ++v) {
      stride[v] = views[v] && !views[v]->host ? views[v]->strides[d] : 0;
      merge = merge && stride[v] == layout.strides[layout.rank - 1][v] * size[layout.rank - 1];
    }
    if (merge) {
      size[layout.rank - 1] *= shape[d];
      continue;
    }
    size[layout.rank] = shape[d];
    for (int v = 0; v < N; ++v) layout.strides[layout.rank][v] = stride[v];
    ++layout.rank;
  }
  for (int d = 0; d < layout.rank; ++d) layout.sizes[d] = Divider(static_cast<uint32_t>(size[d]));
  return layout;
}

/// Whether packs of n elements of a view are adjacent and aligned, for a layout's operand number v.
template <int n, int N>
bool has_packs(const Layout<N>& layout, const View* const (&views)[N], int v) {
  const View* const view = views[v];
  if (!view || view->host || layout.strides[0][v] != 1) return false;
  for (int d = 1; d < layout.rank; ++d)
    if (layout.strides[d][v] % n) return false;
  return reinterpret_cast<uintptr_t>(view->data) % static_cast<size_t>(n * size_of(view->dtype)) == 0;
}

/// The largest number of elements of a strided launch, whose kernel counts in 32 bits. In test/simt it is small, so
/// that the CPU runs the splitting below, too.
#if defined(__CUDACC__)
inline constexpr int64_t kMaxStridedCount = (int64_t{1} << 31) - 1;
#else
inline constexpr int64_t kMaxStridedCount = int64_t{1} << 15;
#endif

/// The part of a view that begins at `start` and has `size` elements along dimension d.
inline View narrow_view(const View& view, int d, int64_t start, int64_t size) {
  if (view.host) return view;  // one number for all
  View half = view;
  half.shape[d] = size;
  half.numel = view.numel / view.shape[d] * size;
  half.data = static_cast<char*>(view.data) + start * view.strides[d] * size_of(view.dtype);
  return half;
}

/// How many elements of the largest type make 16 bytes.
template <class... T>
inline constexpr int kPack = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <class Out, class... In, class F, size_t... v>
void map_strided(const F& f, const View* const (&views)[1 + sizeof...(In)], std::index_sequence<v...> inputs) {
  const View& y = *views[0];
  if (y.numel <= kMaxStridedCount) {
    constexpr int n = kPack<Out, In...>;
    auto layout = merged(views);
    const bool packed = layout.rank && layout.sizes[0].divisor % n == 0 && has_packs<n>(layout, views, 0);
    const auto operand = [&](auto type, int number) {
      auto x = operand_of<typename decltype(type)::type>(views[number]);
      x.packed = packed && has_packs<n>(layout, views, number);
      x.step = layout.rank ? layout.strides[0][number] : 0;
      return x;
    };
    const std::tuple operands{operand(Type<In>(), static_cast<int>(v) + 1)...};
    if (packed) {
      layout.sizes[0] = Divider(layout.sizes[0].divisor / n);
      for (int64_t& stride : layout.strides[0]) stride *= n;
    }
    const int64_t count = packed ? y.numel / n : y.numel;
    launch(strided_kernel<n, F, Out, In...>, blocks_for(count), kThreads, 0, f, layout, packed,
           static_cast<uint32_t>(count), y.as<Out>(), std::get<v>(operands)...);
    return;
  }
  // Too many for 32 bits: halves along the largest dimension, which takes the fewest launches.
  int d = 0;
  for (int i = 1; i < y.shape.size(); ++i)
    if (y.shape[i] > y.shape[d]) d = i;
  const int64_t size = y.shape[d], middle = size / 2;
  for (const bool second : {false, true}) {
    const auto half = [&](const View& view) {
      return second ? narrow_view(view, d, middle, size - middle) : narrow_view(view, d, 0, middle);
    };
    const View halves[] = {half(y), (views[1 + v] ? half(*views[1 + v]) : View())...};
    map_strided<Out, In...>(f, {&halves[0], (views[1 + v] ? &halves[1 + v] : nullptr)...}, inputs);
  }
}

}  // namespace detail

/// y[i] = f(x[i]…) where y is contiguous and every x is, or is one element; a null pointer reads as zeros. The vector
/// has as many elements as 16 bytes of the largest type; operands that are not aligned go element by element.
template <class Out, class... In, class F, class... V>
void map_flat(const F& f, const View& y, const V*... x) {
  if (y.numel == 0) return;
  constexpr int n = detail::kPack<Out, In...>;
  const bool aligned = (is_aligned(y.data) && ... && (!x || x->host || detail::is_single(*x) || is_aligned(x->data)));
  const int64_t threads = aligned ? ceil_div(y.numel, n) : y.numel;
  launch(detail::flat_kernel<n, F, Out, In...>, blocks_for(threads), kThreads, 0, f, aligned, y.numel, y.as<Out>(),
         detail::operand_of<In>(x)...);
}

/// y[i] = f(x[i]…) for any layouts of one shape; a null pointer reads as zeros.
template <class Out, class... In, class F, class... V>
void map(const F& f, const View& y, const V*... x) {
  if (y.numel == 0) return;
  if (y.contiguous && (detail::is_flat(x) && ...)) return map_flat<Out, In...>(f, y, x...);
  const View* const views[] = {&y, x...};
  detail::map_strided<Out, In...>(f, views, std::index_sequence_for<In...>());
}

}  // namespace reel::cuda
