#include "cuda/pointwise.h"
#include "lib/functors/binary.h"

// Gradients of binary pointwise functions for either operand. Operands that a rule does not use are null pointers.
namespace reel::cuda {
namespace {

template <class F, bool of_a>
struct Gradient {
  F f;
  template <class T>
  __device__ T operator()(T g, T a, T b, T y) const {
    if constexpr (of_a)
      return f.grad_a(g, a, b, y);
    else
      return f.grad_b(g, a, b, y);
  }
};

template <class F, bool of_a>
void binary_grad(const void* f, const View& g, const View* a, const View* b, const View* y, const View& out) {
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T, T, T>(Gradient<F, of_a>{functor<F>(f)}, out, &g, a, b, y);
  });
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::BinaryGrad grads_a[] = {&binary_grad<F, true>...};
  table.grad_a = grads_a;
  static constexpr KernelTable::BinaryGrad grads_b[] = {&binary_grad<F, false>...};
  table.grad_b = grads_b;
}

}  // namespace

void install_binary_grad(KernelTable& table) { fill(table, static_cast<functors::BinaryList*>(nullptr)); }

}  // namespace reel::cuda
