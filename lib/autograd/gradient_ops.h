// This header declares the linear ops that gradients consist of: sums, copies to another shape, parts of a tensor. The
// adjoint of each is another one of them, so all stay differentiable to any order. The engine needs them below the
// floor of the other ops. Conversions between dtypes and devices (Tensor::to, clone, contiguous: lib/tensor/copy.cpp)
// belong to them.
#pragma once
#include "lib/autograd/tape.h"

namespace reel {

/// Computes sum = a + b for views of one shape and dtype on one device. `sum` may be one of the others.
void add_views(Device device, const View& a, const View& b, const View& sum);
/// Computes sum += g for tensors of one shape and dtype, whether or not other handles share `sum`, and records nothing.
/// Throws Error if they are on different devices or `sum` is expanded.
void add_in_place(Tensor& sum, const Tensor& g);
/// Returns a + b for tensors of one shape, dtype and device, and records it.
Tensor accumulate(const Tensor& a, const Tensor& b);
/// Returns x summed to `shape`, which broadcasts to x's shape, and records it. Its adjoint is expand_to.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// Returns a view of x, repeated by stride 0 to `shape`, which x's shape broadcasts to, and records it. Its adjoint is
/// sum_to.
Tensor expand_to(const Tensor& x, const Shape& shape);

/// A StridedLayout says where the elements of a view lie in the memory of a tensor.
struct StridedLayout {
  int64_t offset = 0;  // in elements
  Shape shape;
  Strides strides;
};
/// Returns the strided part of a row-major x, and records it. Its adjoint is embed.
Tensor region(const Tensor& x, int64_t offset, const Shape& shape, const Strides& strides);
/// Returns zeros of `shape` but for the part that (offset, g's shape, strides) shows, which is g (summed where the part
/// shows an element more than once), and records it.
Tensor embed(const Tensor& g, const Shape& shape, int64_t offset, const Strides& strides);
/// AsStridedBackward is the rule of ops that show a region of their input, whose shape is `whole`.
struct AsStridedBackward {
  int64_t offset;
  Strides strides;
  Shape whole;
  void operator()(Backward& back) const;
};
/// A ViewOfBase says which elements of its base a view shows.
struct ViewOfBase {
  StridedLayout part;  // in memory, from the base's first element on
  Shape shape;         // of the base
  Strides strides;     // of the base
  bool row_major;      // the base is row-major, so that the part of its gradient has the same StridedLayout

  /// Throws Error if elements of the base share memory.
  explicit ViewOfBase(const TensorImpl* view);

  // These are recorded; x has the shape of the base.
  Tensor of(const Tensor& x) const;       ///< Returns the part of x.
  Tensor embed(const Tensor& g) const;    ///< Returns zeros but for the part, which is g: the adjoint of of().
  Tensor without(const Tensor& x) const;  ///< Returns x with zeros in the part. It is its own adjoint.

 private:
  Tensor as_in_memory(const Tensor& x) const;
  Tensor from_memory(const Tensor& flat) const;
  Shape memory() const;
};

}  // namespace reel
