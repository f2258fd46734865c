#include "cuda/pointwise.h"
#include "lib/functors/ternary.h"

// Ternary pointwise functions over views of any layout.
namespace reel::cuda {
namespace {

template <class F>
void ternary(const void* f, const View& a, const View& b, const View& c, const View& y) {
  with_floating(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T, T>(functor<F>(f), y, &a, &b, &c);
  });
}

template <class... F>
void fill(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Ternary rows[] = {&ternary<F>...};
  table.ternary = rows;
}

}  // namespace

void install_ternary(KernelTable& table) { fill(table, static_cast<functors::TernaryList*>(nullptr)); }

}  // namespace reel::cuda
