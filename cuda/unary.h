#pragma once
#include <tuple>

#include "cuda/pointwise.h"

// Kernels of unary pointwise functions and of their gradients, over one list of functors: the lists of
// lib/functors/unary.h have a source each for both, since they take long to compile.
namespace reel::cuda {

template <class F>
void unary(const void* f, const View& x, const View& y) {
  const Flat in(&x);
  const ContiguousOutput out(y);
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    map_flat<T, T>(functor<F>(f), out.view(), in.view());
  };
  if constexpr (F::kIntegers)
    if (!is_floating_point(x.dtype)) return with_integer(x.dtype, run), out.store();
  with_floating(x.dtype, run);
  out.store();
}
template <class... F>
void fill_unary(KernelTable::Unary* rows, std::tuple<F...>*) {
  ((*rows++ = &unary<F>), ...);
}

template <class F>
struct UnaryGradient {
  F f;
  template <class T>
  __device__ T operator()(T g, T x, T y) const {
    return f.grad(g, x, y);
  }
};
/// Operands that a rule does not use are null pointers.
template <class F>
void unary_grad(const void* f, const View& g, const View* x, const View* y, const View& gx) {
  const Flat grad(&g), in(x), out(y);
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map_flat<T, T, T, T>(UnaryGradient<F>{functor<F>(f)}, gx, grad.view(), in.view(), out.view());
  });
}
template <class... F>
void fill_unary_grad(KernelTable::UnaryGrad* rows, std::tuple<F...>*) {
  ((*rows++ = &unary_grad<F>), ...);
}

// Each sets the rows of one list.
void fill_math(KernelTable::Unary* rows);
void fill_activation(KernelTable::Unary* rows);
void fill_math_grad(KernelTable::UnaryGrad* rows);
void fill_activation_grad(KernelTable::UnaryGrad* rows);

}  // namespace reel::cuda
