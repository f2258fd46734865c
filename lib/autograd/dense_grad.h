// These functions write to the dense sum of gradients that a GradAccumulator and its buffers build.
#pragma once
#include "lib/autograd/grad_metadata.h"
#include "reel/tensor.h"

namespace reel {

/// Returns a dense gradient of zeros.
Tensor make_zeros(const GradMetadata& target);
/// Returns true if an op may write to the tensor: it is contiguous, and no other handle shares it.
inline bool is_writable(const Tensor& tensor) { return is_exclusive(tensor) && view_of(tensor).contiguous; }
/// Makes `dense` writable, and returns it: zeros if it was undefined, a copy if another handle shares it.
Tensor& make_writable(Tensor& dense, const GradMetadata& target);
/// Computes dense += g, in place if `dense` is writable. Both have the same shape, dtype and device.
void add_dense(Tensor& dense, const Tensor& g);

// ---- small gradients ------------------------------------------------------------------------------------------------

/// The maximum number of small tensors that a buffer keeps.
constexpr size_t kMaxSmallTensors = 32;
/// Returns true for a contiguous tensor on a GPU that is so small that a kernel for it alone would take little but the
/// time of its launch.
inline bool is_small_on_gpu(const Tensor& tensor) {
  constexpr int64_t kMaxNumel = 4096;
  const View& view = view_of(tensor);
  return !view.host && view.contiguous && view.numel > 0 && view.numel <= kMaxNumel;
}

// ---- packs ----------------------------------------------------------------------------------------------------------

/// The maximum size of a pack, a tensor that is filled row by row.
constexpr int64_t kMaxPackBytes = 8 << 20;
/// Returns `rows` rows of a pack, from row `first` on.
View rows_of(const View& pack, int64_t rows, int64_t first = 0);

}  // namespace reel
