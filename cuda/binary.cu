#include "cuda/pointwise.h"
#include "lib/functors/binary.h"

// Binary pointwise functions over views of any layout.
namespace reel::cuda {
namespace {

template <class F>
void binary(const void* f, const View& a, const View& b, const View& y) {
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T>(functor<F>(f), y, &a, &b);
  };
  if constexpr (F::kIntegers)
    if (!is_floating_point(y.dtype)) return with_integer(y.dtype, run);
  with_floating(y.dtype, run);
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&binary<F>...};
  table.binary = rows;
}

}  // namespace

void install_binary(KernelTable& table) { fill(table, static_cast<functors::BinaryList*>(nullptr)); }

}  // namespace reel::cuda
