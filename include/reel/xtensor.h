#pragma once
// Zero-copy between reel and xtensor. Needs xtensor's headers (Debian: libxtensor-dev), which reel itself does not.
// Include this before any xtensor header: xtensor 0.24 treats dynamic shapes as fixed ones under -std=c++20 with g++
// (xtensor#1970); the specialization below works around it.
#include <xtensor/xexpression_traits.hpp>
#include <xtensor/xstorage.hpp>
#if __cplusplus > 201703L
namespace xt::detail {
template <template <class, std::size_t, class, bool> class S, class X, std::size_t N, class A, bool Init>
struct xtype_for_shape<S<X, N, A, Init>> {
  template <class T, layout_type L>
  using type = xarray<T, L>;
};
}  // namespace xt::detail
#endif
#include <array>
#include <type_traits>
#include <vector>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
namespace reel {

/// An xtensor adaptor over the elements of a CPU tensor, strided like it: reading and writing it reads and writes the
/// tensor. Throws if T is not the C++ type of its dtype. It does not keep the tensor's memory alive; writes through it
/// are not recorded and do not change version(). xtensor's immediate reductions (xt::evaluation_strategy::immediate)
/// treat any adaptor as row-major: give them a contiguous() tensor.
template <class T>
auto view(const Tensor& tensor) {
  REEL_CHECK(tensor.device() == kCPU, "view: a tensor on ", tensor.device(), "; copy it to the CPU first");
  std::vector<size_t> shape(tensor.shape().begin(), tensor.shape().end());
  std::vector<std::ptrdiff_t> strides(tensor.strides().begin(), tensor.strides().end());
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) strides[d] = 0;  // xtensor's convention
  // xtensor expects the number of elements here, whatever the strides.
  const size_t count = static_cast<size_t>(tensor.numel());
  return xt::adapt(tensor.data<T>(), count, xt::no_ownership(), std::move(shape), std::move(strides));
}

/// A tensor with the values of any xtensor expression: its dtype is that of the expression's value_type.
template <class E>
Tensor tensor(const xt::xexpression<E>& expression) {
  using T = std::decay_t<typename E::value_type>;
  const E& e = expression.derived_cast();
  Shape shape;
  for (const auto size : e.shape()) shape.push_back(static_cast<int64_t>(size));
  Tensor result = empty(shape, {.dtype = dtype_of<T>()});
  auto target = view<T>(result);
  target = e;
  return result;
}

/// A tensor over the memory of a row-major xtensor container, without copying; the container must outlive it.
template <class Container>
Tensor from_blob(Container& container) {
  static_assert(Container::static_layout == xt::layout_type::row_major, "from_blob: the container is not row-major");
  Shape shape;
  for (const auto size : container.shape()) shape.push_back(static_cast<int64_t>(size));
  return from_blob(container.data(), shape);
}

}  // namespace reel
#pragma GCC visibility pop
