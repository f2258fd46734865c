#include "cuda/pointwise.h"
#include "lib/functors/pointwise.h"

// Gradients of unary pointwise functions. Operands that a rule does not use are null pointers.
namespace reel::cuda {
namespace {

template <class F>
struct Gradient {
  F f;
  template <class T>
  __device__ T operator()(T g, T x, T y) const {
    return f.grad(g, x, y);
  }
};

template <class F>
void unary_grad(const void* f, const View& g, const View* x, const View* y, const View& gx) {
  const Flat grad(&g), in(x), out(y);
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map_flat<T, T, T, T>(Gradient<F>{functor<F>(f)}, gx, grad.view(), in.view(), out.view());
  });
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::UnaryGrad rows[] = {&unary_grad<F>...};
  table.unary_grad = rows;
}

}  // namespace

void install_unary_grad(KernelTable& table) { fill(table, static_cast<functors::UnaryList*>(nullptr)); }

}  // namespace reel::cuda
