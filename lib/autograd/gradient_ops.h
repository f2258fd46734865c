#pragma once
#include "lib/autograd/tape.h"

// The linear ops that gradients themselves are made of: sums, copies to another shape, parts of a tensor. The adjoint
// of each is another one of them, so all stay differentiable to any order. The engine needs them below the floor of the
// other ops. Conversions between dtypes and devices (Tensor::to, clone, contiguous: lib/core/copy.cpp) belong to them.
namespace reel {

/// sum = a + b for views of one shape and dtype on one device. `sum` may be one of the others.
void add_views(Device device, const View& a, const View& b, const View& sum);
/// sum += g for tensors of one shape and dtype, whether or not other handles share `sum`. Not recorded. An Error if
/// they are on different devices or `sum` is expanded.
void add_in_place(Tensor& sum, const Tensor& g);
/// a + b for tensors of one shape, dtype and device. Recorded.
Tensor accumulate(const Tensor& a, const Tensor& b);
/// x summed to `shape`, which broadcasts to x's shape. Recorded; its adjoint is expand_to.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// A view of x repeated by stride 0 to `shape`, which x's shape broadcasts to. Recorded; its adjoint is sum_to.
Tensor expand_to(const Tensor& x, const Shape& shape);

/// Where a view's elements lie among those of a tensor with given strides.
struct StridedLayout {
  int64_t offset = 0;  // in elements
  Shape shape;
  Strides strides;
};
/// The strided part of a row-major x. Recorded; its adjoint is embed.
Tensor region(const Tensor& x, int64_t offset, const Shape& shape, const Strides& strides);
/// Zeros of `shape` but for the part that (offset, g's shape, strides) shows, which is g (summed where the part shows
/// an element more than once). Recorded.
Tensor embed(const Tensor& g, const Shape& shape, int64_t offset, const Strides& strides);
/// The rule of ops that show a region of their input, whose shape is `whole`.
struct AsStridedBackward {
  int64_t offset;
  Strides strides;
  Shape whole;
  void operator()(Backward& back) const;
};
/// The elements of a view among those of its base.
struct ViewOfBase {
  StridedLayout part;  // in memory, from the base's first element on
  Shape shape;         // the base's
  Strides strides;
  bool row_major;  // the base is, so that the part of a gradient of it has the same StridedLayout

  /// An Error if elements of the base share memory.
  explicit ViewOfBase(const TensorImpl* view);

  // For a tensor of the base's shape. Recorded.
  Tensor of(const Tensor& x) const;       ///< The part of x.
  Tensor embed(const Tensor& g) const;    ///< The adjoint: zeros but for the part, which is g.
  Tensor without(const Tensor& x) const;  ///< x with zeros in the part; its own adjoint.

 private:
  Tensor as_in_memory(const Tensor& x) const;
  Tensor from_memory(const Tensor& flat) const;
  Shape memory() const;
};

}  // namespace reel
