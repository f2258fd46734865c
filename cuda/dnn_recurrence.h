// A recurrent layer as cuDNN's descriptors. They need no GPU: test/cuda/plans.cpp makes them on any machine.
#pragma once
#include <cudnn.h>

#include <vector>

#include "lib/device/kernels/recurrence.h"
#include "reel/error.h"

namespace reel::cuda {

/// An owned descriptor of cuDNN's legacy functions, which are not graphs.
template <class D, cudnnStatus_t (*create)(D*), cudnnStatus_t (*destroy)(D)>
class OwnedDescriptor {
 public:
  OwnedDescriptor() {
    const cudnnStatus_t status = create(&raw_);
    REEL_CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", cudnnGetErrorString(status), " for a new descriptor");
  }
  ~OwnedDescriptor() { destroy(raw_); }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  operator D() const { return raw_; }

 private:
  D raw_ = nullptr;
};
using TensorDescriptor =
    OwnedDescriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;

/// The descriptors of a layer. Setters return cuDNN's status.
class RnnDescriptors {
 public:
  using Sequences =
      OwnedDescriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor>;

  OwnedDescriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor> cell;
  Sequences x, y;
  TensorDescriptor state;  // both h and c

  cudnnStatus_t set_cell(const RnnLayer& layer, bool tf32);
  /// Stores the sequences' lengths. Returns true if they have changed since the last call.
  bool set_lengths(const RnnLayer& layer);
  void clear_lengths() { lengths_.clear(); }
  cudnnStatus_t set_sequences(const RnnLayer& layer);

 private:
  std::vector<int> lengths_, next_;  // of each sequence, descending
};

}  // namespace reel::cuda
