#include "cuda/pointwise.h"
#include "lib/functors/pointwise.h"

// Unary pointwise functions (lib/functors/pointwise.h) over views. The gradient's kernels are in unary_grad.cu.
namespace reel::cuda {
namespace {

template <class F>
void unary(const void* f, const View& x, const View& y) {
  const Flat in(&x);
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    if (y.contiguous)
      map_flat<T, T>(functor<F>(f), y, in.view());
    else
      map<T, T>(functor<F>(f), y, in.view());
  };
  if constexpr (F::kIntegers)
    if (!is_floating_point(x.dtype)) return with_integer(x.dtype, run);
  with_floating(x.dtype, run);
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Unary rows[] = {&unary<F>...};
  table.unary = rows;
}

}  // namespace

void install_unary(KernelTable& table) { fill(table, static_cast<functors::UnaryList*>(nullptr)); }

}  // namespace reel::cuda
