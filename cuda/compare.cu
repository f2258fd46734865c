// Compiles the kernels of comparisons, over views of any layout.
#include "cuda/pointwise.h"
#include "lib/functors/compare.h"

namespace reel::cuda {
namespace {

template <class F>
void compare(const void* f, const View& a, const View& b, const View& y) {
  with_type((a.host ? b : a).dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<bool, T, T>(functor<F>(f), y, &a, &b);
  });
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&compare<F>...};
  table.compare = rows;
}

}  // namespace

void install_compare(KernelTable& table) { fill(table, static_cast<functors::CompareList*>(nullptr)); }

}  // namespace reel::cuda
