#include "cuda/pointwise.h"
#include "lib/functors/pointwise.h"

// Binary and ternary pointwise functions, bitwise ones and comparisons (lib/functors/pointwise.h) over views of any
// layout.
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

template <class F>
void ternary(const void* f, const View& a, const View& b, const View& c, const View& y) {
  with_floating(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T, T>(functor<F>(f), y, &a, &b, &c);
  });
}

template <class F>
void bits(const void* f, const View& a, const View& b, const View& y) {
  with_integer(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, T>(functor<F>(f), y, &a, &b);
  });
}

template <class F>
void compare(const void* f, const View& a, const View& b, const View& y) {
  with_type((a.host ? b : a).dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<bool, T, T>(functor<F>(f), y, &a, &b);
  });
}

template <class... F>
void fill_binary(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&binary<F>...};
  table.binary = rows;
}
template <class... F>
void fill_ternary(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Ternary rows[] = {&ternary<F>...};
  table.ternary = rows;
}
template <class... F>
void fill_bits(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&bits<F>...};
  table.bits = rows;
}
template <class... F>
void fill_compare(KernelTable& table, std::tuple<F...>*) {
  static constexpr KernelTable::Binary rows[] = {&compare<F>...};
  table.compare = rows;
}

}  // namespace

void install_binary(KernelTable& table) {
  fill_binary(table, static_cast<functors::BinaryList*>(nullptr));
  fill_ternary(table, static_cast<functors::TernaryList*>(nullptr));
  fill_bits(table, static_cast<functors::BitList*>(nullptr));
  fill_compare(table, static_cast<functors::CompareList*>(nullptr));
}

void install_pointwise(KernelTable& table) {
  install_unary(table);
  install_unary_grad(table);
  install_binary(table);
  install_binary_grad(table);
}

}  // namespace reel::cuda
