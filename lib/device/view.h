#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Strided elements in memory: element (i, j, …) of `dtype` is at data + (i strides[0] + j strides[1] + …) elements.
struct View {
  void* data = nullptr;
  int64_t numel = 0;
  DType dtype = kFloat32;
  bool contiguous = true;  // row-major without gaps
  bool host = false;       // the host can read it; a CUDA kernel takes one element of the host's for all
  Shape shape;
  Strides strides;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Returns true if the elements of a view that is not row-major are a permutation of row-major ones: memory has neither
/// gaps between them nor elements that several positions share.
inline bool is_permuted(const View& view) {
  if (view.contiguous || view.numel == 0) return false;
  const int rank = view.shape.size();
  int64_t step = 1;
  while (step < view.numel) {
    int d = 0;
    while (d < rank && (view.shape[d] == 1 || view.strides[d] != step)) ++d;
    if (d == rank) return false;
    step *= view.shape[d];
  }
  return true;
}

}  // namespace reel
