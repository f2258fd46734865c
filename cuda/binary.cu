#include "cuda/pointwise.h"
#include "lib/scalar.h"

// Binary and ternary pointwise functions, bitwise ones and comparisons (lib/scalar.h) over views of any layout.
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
void fill_binary(Backend& table, std::tuple<F...>*) {
  static constexpr Backend::Binary rows[] = {&binary<F>...};
  table.binary = rows;
}
template <class... F>
void fill_ternary(Backend& table, std::tuple<F...>*) {
  static constexpr Backend::Ternary rows[] = {&ternary<F>...};
  table.ternary = rows;
}
template <class... F>
void fill_bits(Backend& table, std::tuple<F...>*) {
  static constexpr Backend::Binary rows[] = {&bits<F>...};
  table.bits = rows;
}
template <class... F>
void fill_compare(Backend& table, std::tuple<F...>*) {
  static constexpr Backend::Binary rows[] = {&compare<F>...};
  table.compare = rows;
}

}  // namespace

void install_binary(Backend& table) {
  fill_binary(table, static_cast<scalar::BinaryList*>(nullptr));
  fill_ternary(table, static_cast<scalar::TernaryList*>(nullptr));
  fill_bits(table, static_cast<scalar::BitList*>(nullptr));
  fill_compare(table, static_cast<scalar::CompareList*>(nullptr));
}

void install_pointwise(Backend& table) {
  install_unary(table);
  install_unary_grad(table);
  install_binary(table);
  install_binary_grad(table);
}

}  // namespace reel::cuda
