// Compiles the kernels of the functions of the bits of integers, over views of any layout.
#include "cuda/pointwise.h"
#include "lib/functors/bits.h"

namespace reel::cuda {
namespace {

template <class F>
void bits(const void* f, const View& a, const View& b, const View& y) {
  with_integer(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T>(functor<F>(f), y, &a, &b);
  });
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&bits<F>...};
  table.bits = rows;
}

}  // namespace

void install_bits(KernelTable& table) { fill(table, static_cast<functors::BitList*>(nullptr)); }

}  // namespace reel::cuda
