#pragma once
#include <array>
#include <span>
#include <vector>

#include "lib/autograd/autocast.h"

// For ops that autocast computes in the half type with weights: what has to be cast for a call is cast by one kernel,
// and so are the gradients of the parameters among it. Otherwise a small layer's casts take longer than the layer.
namespace reel {

namespace detail {
/// cast_to_half of each, into as many results.
void cast_together(std::span<const Tensor* const> given, DType type, Tensor* results);
}  // namespace detail

struct CastTogether : CastToHalf {
  template <class... T>
  std::array<Tensor, sizeof...(T)> all(const T&... given) const {
    const Tensor* const pointers[] = {&given...};
    std::array<Tensor, sizeof...(T)> results;
    detail::cast_together(pointers, was_, results.data());
    return results;
  }
  std::vector<Tensor> all(std::span<const Tensor> given) const {
    std::vector<const Tensor*> pointers;
    for (const Tensor& x : given) pointers.push_back(&x);
    std::vector<Tensor> results(given.size());
    detail::cast_together(pointers, was_, results.data());
    return results;
  }
};

}  // namespace reel
