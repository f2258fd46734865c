#pragma once
#include <span>
#include <vector>

#include "reel/ops/common.h"

/// Joining, splitting and rearranging.
namespace reel {

Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
inline Tensor cat(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return cat(std::span(list.begin(), list.size()), dim);
}
inline Tensor stack(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return stack(std::span(list.begin(), list.size()), dim);
}
/// Views of `size` along dim each, the last perhaps smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
Tensor flip(const Tensor& x, const Dims& dims);
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);
Tensor repeat(const Tensor& x, const Shape& repeats);  ///< numpy.tile.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor diag(const Tensor& x, int64_t diagonal = 0);  ///< Of a matrix its diagonal, of a vector the matrix.

}  // namespace reel
