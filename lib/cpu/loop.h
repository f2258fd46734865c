#pragma once
#include "lib/device/view.h"

// Loops over the elements of strided views. Templates live in the namespace of the instruction set that they are
// compiled for: without it the linker could keep the AVX-512 instance of an inline function for all of the program,
// which would crash on a machine without AVX-512. Files that are compiled once use `plain`.
#ifndef REEL_ISA
#define REEL_ISA plain
#endif

namespace reel::cpu::REEL_ISA {

/// Calls inner(n, pointers, strides) for runs of n elements that together are all elements of the N views, whose shapes
/// agree. Strides are in bytes. Dimensions are merged where all views allow it, so runs are as long as they can be.
template <int N, class Inner>
void for_each_run(const View* const (&views)[N], const Inner& inner) {
  int64_t sizes[kMaxDims], strides[kMaxDims][N], bytes[N];
  char* data[N];
  for (int v = 0; v < N; ++v) {
    data[v] = static_cast<char*>(views[v]->data);
    bytes[v] = size_of(views[v]->dtype);
  }
  // Dimension 0 of the arrays is the innermost.
  int rank = 0;
  const Shape& shape = views[0]->shape;
  for (int d = 0; d < shape.size(); ++d)
    if (shape[d] == 0) return;  // the other sizes may be so large that their product overflows
  for (int d = shape.size() - 1; d >= 0; --d) {
    const int64_t size = shape[d];
    if (size == 1) continue;
    bool merge = rank > 0;
    for (int v = 0; v < N && merge; ++v)
      merge = views[v]->strides[d] * bytes[v] == strides[rank - 1][v] * sizes[rank - 1];
    if (merge) {
      sizes[rank - 1] *= size;
      continue;
    }
    sizes[rank] = size;
    for (int v = 0; v < N; ++v) strides[rank][v] = views[v]->strides[d] * bytes[v];
    ++rank;
  }
  if (rank == 0) {
    sizes[0] = 1;
    for (int v = 0; v < N; ++v) strides[0][v] = bytes[v];
    rank = 1;
  }
  int64_t at[kMaxDims] = {};
  while (true) {
    inner(sizes[0], data, strides[0]);
    int d = 1;
    for (; d < rank; ++d) {
      for (int v = 0; v < N; ++v) data[v] += strides[d][v];
      if (++at[d] < sizes[d]) break;
      for (int v = 0; v < N; ++v) data[v] -= strides[d][v] * sizes[d];
      at[d] = 0;
    }
    if (d == rank) return;
  }
}

/// Writes the dimensions of x whose size is not 1 to `order`, from the innermost in memory to the outermost, and
/// returns their number. Those whose elements are repeated are the last.
inline int order_by_strides(const View& x, int* order) {
  const auto is_before = [&](int a, int b) {
    return x.strides[b] == 0 ? x.strides[a] != 0 : x.strides[a] != 0 && x.strides[a] < x.strides[b];
  };
  int rank = 0;
  for (int d = x.shape.size() - 1; d >= 0; --d) {
    if (x.shape[d] == 1) continue;
    int at = rank++;
    for (; at > 0 && is_before(d, order[at - 1]); --at) order[at] = order[at - 1];
    order[at] = d;
  }
  return rank;
}

template <class T>
T& element(char* data, int64_t offset) {
  return *reinterpret_cast<T*>(data + offset);
}

/// out = op(in), one element at a time.
template <class T, class Out, class Op>
void map_elements(const Op& op, const View& out, const View& in) {
  const View* const views[] = {&out, &in};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    if (s[0] == sizeof(Out) && s[1] == sizeof(T)) {
      Out* y = reinterpret_cast<Out*>(p[0]);
      const T* x = reinterpret_cast<const T*>(p[1]);
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(op(x[i]));
    } else {
      for (int64_t i = 0; i < n; ++i)
        element<Out>(p[0], i * s[0]) = static_cast<Out>(op(element<const T>(p[1], i * s[1])));
    }
  });
}

/// out = op(a, b), one element at a time.
template <class T, class Out, class Op>
void map_elements(const Op& op, const View& out, const View& a, const View& b) {
  const View* const views[] = {&out, &a, &b};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    constexpr int64_t kUnit = sizeof(T);
    Out* y = reinterpret_cast<Out*>(p[0]);
    const T *u = reinterpret_cast<const T*>(p[1]), *v = reinterpret_cast<const T*>(p[2]);
    // The compiler vectorises these three loops; broadcasting a row, a column or a number ends in one of them.
    if (s[0] == sizeof(Out) && s[1] == kUnit && s[2] == kUnit) {
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(op(u[i], v[i]));
    } else if (s[0] == sizeof(Out) && s[1] == kUnit && s[2] == 0) {
      const T b0 = *v;
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(op(u[i], b0));
    } else if (s[0] == sizeof(Out) && s[1] == 0 && s[2] == kUnit) {
      const T a0 = *u;
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(op(a0, v[i]));
    } else {
      for (int64_t i = 0; i < n; ++i)
        element<Out>(p[0], i * s[0]) =
            static_cast<Out>(op(element<const T>(p[1], i * s[1]), element<const T>(p[2], i * s[2])));
    }
  });
}

}  // namespace reel::cpu::REEL_ISA
