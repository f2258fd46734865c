#include "lib/backend.h"
#include "lib/scalar.h"

// The proof that the seam is CUDA C++: every functor of scalar.h with its derivatives as device code, for the types
// that a GPU computes in, in tables of Backend's types. Compiled wherever there is a toolkit, linked into nothing.
namespace reel {
namespace {

template <class F, class T>
__global__ void unary_kernel(F f, const T* x, T* y) {
  y[threadIdx.x] = f(x[threadIdx.x]);
}
template <class F, class T>
__global__ void unary_grad_kernel(F f, const T* g, const T* x, const T* y, T* gx) {
  gx[threadIdx.x] = f.grad(g[threadIdx.x], x[threadIdx.x], y[threadIdx.x]);
}
template <class F, class T, class Out>
__global__ void binary_kernel(F f, const T* a, const T* b, Out* y) {
  y[threadIdx.x] = f(a[threadIdx.x], b[threadIdx.x]);
}
template <class F, class T>
__global__ void ternary_kernel(F f, const T* a, const T* b, const T* c, T* y) {
  y[threadIdx.x] = f(a[threadIdx.x], b[threadIdx.x], c[threadIdx.x]);
}
template <bool of_a, class F, class T>
__global__ void binary_grad_kernel(F f, const T* g, const T* a, const T* b, const T* y, T* out) {
  const auto i = threadIdx.x;
  if constexpr (of_a)
    out[i] = f.grad_a(g[i], a[i], b[i], y[i]);
  else
    out[i] = f.grad_b(g[i], a[i], b[i], y[i]);
}
template <class F, class T>
__global__ void update_kernel(F f, T* p, const T* g, T* s, T* t, T* u) {
  f(p[threadIdx.x], g[threadIdx.x], s[threadIdx.x], t[threadIdx.x], u[threadIdx.x]);
}

template <class Call>
void for_float_types(DType dtype, Call call) {
  if (dtype == kFloat32)
    call(float());
  else
    call(double());
}

template <class F>
struct Launch {
  static const F& get(const void* functor) { return *static_cast<const F*>(functor); }

  static void unary(const void* f, const View& x, const View& y) {
    for_float_types(x.dtype, [&](auto t) {
      using T = decltype(t);
      unary_kernel<<<1, x.numel>>>(get(f), x.as<const T>(), y.as<T>());
    });
  }
  static void unary_grad(const void* f, const View& g, const View* x, const View* y, const View& gx) {
    for_float_types(g.dtype, [&](auto t) {
      using T = decltype(t);
      unary_grad_kernel<<<1, g.numel>>>(get(f), g.as<const T>(), x->as<const T>(), y->as<const T>(), gx.as<T>());
    });
  }
  template <bool compare>
  static void binary(const void* f, const View& a, const View& b, const View& y) {
    for_float_types(a.dtype, [&](auto t) {
      using T = decltype(t);
      using Out = std::conditional_t<compare, bool, T>;
      binary_kernel<<<1, a.numel>>>(get(f), a.as<const T>(), b.as<const T>(), y.as<Out>());
    });
  }
  static void ternary(const void* f, const View& a, const View& b, const View& c, const View& y) {
    for_float_types(a.dtype, [&](auto t) {
      using T = decltype(t);
      ternary_kernel<<<1, a.numel>>>(get(f), a.as<const T>(), b.as<const T>(), c.as<const T>(), y.as<T>());
    });
  }
  static void bits(const void* f, const View& a, const View& b, const View& y) {
    binary_kernel<<<1, a.numel>>>(get(f), a.as<const int64_t>(), b.as<const int64_t>(), y.as<int64_t>());
  }
  template <bool of_a>
  static void binary_grad(const void* f, const View& g, const View* a, const View* b, const View* y, const View& out) {
    for_float_types(g.dtype, [&](auto t) {
      using T = decltype(t);
      binary_grad_kernel<of_a>
          <<<1, g.numel>>>(get(f), g.as<const T>(), a->as<const T>(), b->as<const T>(), y->as<const T>(), out.as<T>());
    });
  }
  static void update(const void* f, const View& p, const View& g, const View* const* states, const View*) {
    for_float_types(p.dtype, [&](auto type) {
      using T = decltype(type);
      update_kernel<<<1, p.numel>>>(get(f), p.as<T>(), g.as<const T>(), states[0]->as<T>(), states[1]->as<T>(),
                                    states[2]->as<T>());
    });
  }
};

template <class... F>
void fill_unary(Backend& table, std::tuple<F...>*) {
  table.unary = {&Launch<F>::unary...};
  table.unary_grad = {&Launch<F>::unary_grad...};
}
template <class... F>
void fill_binary(Backend& table, std::tuple<F...>*) {
  table.binary = {&Launch<F>::template binary<false>...};
  table.grad_a = {&Launch<F>::template binary_grad<true>...};
  table.grad_b = {&Launch<F>::template binary_grad<false>...};
}
template <class... F>
void fill_ternary(Backend& table, std::tuple<F...>*) {
  table.ternary = {&Launch<F>::ternary...};
}
template <class... F>
void fill_bits(Backend& table, std::tuple<F...>*) {
  table.bits = {&Launch<F>::bits...};
}
template <class... F>
void fill_compare(Backend& table, std::tuple<F...>*) {
  table.compare = {&Launch<F>::template binary<true>...};
}
template <class... F>
void fill_update(Backend& table, std::tuple<F...>*) {
  table.update = {&Launch<F>::update...};
}

}  // namespace

Backend seam() {
  Backend table{};
  fill_unary(table, static_cast<scalar::UnaryList*>(nullptr));
  fill_binary(table, static_cast<scalar::BinaryList*>(nullptr));
  fill_ternary(table, static_cast<scalar::TernaryList*>(nullptr));
  fill_bits(table, static_cast<scalar::BitList*>(nullptr));
  fill_compare(table, static_cast<scalar::CompareList*>(nullptr));
  fill_update(table, static_cast<scalar::UpdateList*>(nullptr));
  static_assert(std::tuple_size_v<decltype(table.unary)> == std::tuple_size_v<scalar::UnaryList>);
  static_assert(std::tuple_size_v<decltype(table.binary)> == std::tuple_size_v<scalar::BinaryList>);
  static_assert(std::tuple_size_v<decltype(table.ternary)> == std::tuple_size_v<scalar::TernaryList>);
  static_assert(std::tuple_size_v<decltype(table.bits)> == std::tuple_size_v<scalar::BitList>);
  static_assert(std::tuple_size_v<decltype(table.compare)> == std::tuple_size_v<scalar::CompareList>);
  static_assert(std::tuple_size_v<decltype(table.update)> == std::tuple_size_v<scalar::UpdateList>);
  return table;
}

}  // namespace reel
