#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Running results along a dimension.
namespace reel {

Tensor cumsum(const Tensor& x, int64_t dim);  ///< The sum of all elements so far. Integers and bools give int64.
/// The product of all elements so far. Integers and bools give int64. The gradient is exact also where x has zeros.
Tensor cumprod(const Tensor& x, int64_t dim);
///@{
/// The largest (smallest) element so far and its last position, which gets the gradient; NaN from the first NaN on.
ValuesIndices cummax(const Tensor& x, int64_t dim);
ValuesIndices cummin(const Tensor& x, int64_t dim);
///@}
Tensor logcumsumexp(const Tensor& x, int64_t dim);  ///< log cumsum(exp(x)), without overflow.
/// The difference of neighbours along dim, n times, of prepend, x and append joined; for n = 0 a copy of x alone, as in
/// NumPy. Bools: whether they differ.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {}, const Tensor& append = {});

}  // namespace reel
#pragma GCC visibility pop
