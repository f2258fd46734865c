#pragma once
#include "cuda/strided.h"
#include "lib/kernels/scatter.h"

// What gathers, scatters and their likes over slices have in common.
namespace reel::cuda {

/// An id counted from 0; those that are out of range stay so, and whoever looks one up checks it.
__device__ inline int64_t wrap(int64_t id, int64_t size) { return id < 0 ? id + size : id; }
__device__ inline bool within(int64_t id, int64_t size) { return uint64_t(id) < uint64_t(size); }

/// For every place of `shape`, an id there says which element of a line of `looked`, a tensor that is looked up along
/// one dimension, belongs to that of `plain`. Slices are elements whose ids are the same all along other dimensions.
struct Lookup {
  Shape shape;
  int dim = 0;
  Strides index, looked, plain;  // looked: 0 along dim
  const int64_t* ids = nullptr;
  int64_t size = 1, stride = 0;  // of looked along dim

  int64_t count() const { return shape[dim]; }
  /// 1 along dim, 0 elsewhere: which of a line's places one is.
  Strides place() const {
    Strides strides = shape;
    for (int64_t& stride : strides) stride = 0;
    strides[dim] = 1;
    return strides;
  }
  /// The shape of the lines that are looked up.
  Shape table() const {
    Shape result = shape;
    result[dim] = size;
    return result;
  }
};

/// looked[…, ids[i], …] and plain[…, i, …].
Lookup look_up_slices(const View& looked, int dim, const View& ids, const View& plain);
/// looked[…, index, …] and plain[…], whose shape is the index's.
Lookup look_up_elements(const View& looked, int dim, const View& index, const View& plain);

/// A line on the GPU. Other ids of a place's line are `step` apart.
struct Line {
  int64_t count, step, size, stride;
  explicit Line(const Lookup& job) : count(job.count()), step(job.index[job.dim]), size(job.size), stride(job.stride) {}
};

/// y[…, ids, …] = y[…, ids, …] op from, one after the other in the order of the places along dim. y is `looked`.
void join(ScatterOp op, const Lookup& job, bool slices, const View& y, const View& from);

}  // namespace reel::cuda
