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

}  // namespace reel
