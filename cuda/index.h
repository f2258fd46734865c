#pragma once
#include "cuda/strided.h"

// What gathers, scatters and their likes over slices have in common.
namespace reel::cuda {

/// An id counted from 0; those that are out of range stay so, and whoever looks one up checks it.
__device__ inline int64_t wrap(int64_t id, int64_t size) { return id < 0 ? id + size : id; }
__device__ inline bool within(int64_t id, int64_t size) { return uint64_t(id) < uint64_t(size); }

/// For every place of `shape`, an id there says which element of a line of `indexed`, a tensor that is indexed up along
/// one dimension, belongs to that of `direct`. Slices are elements whose ids are the same all along other dimensions.
struct Lookup {
  Shape shape;
  int dim = 0;
  Strides index, indexed, direct;  // indexed: 0 along dim
  const int64_t* ids = nullptr;
  int64_t size = 1, stride = 0;  // of indexed along dim

  int64_t count() const { return shape[dim]; }
  /// 1 along dim, 0 elsewhere: which of a line's places one is.
  Strides place() const {
    Strides strides = shape;
    for (int64_t& stride : strides) stride = 0;
    strides[dim] = 1;
    return strides;
  }
  /// The shape of the lines that are indexed up.
  Shape table() const {
    Shape result = shape;
    result[dim] = size;
    return result;
  }
};

/// indexed[…, ids[i], …] and direct[…, i, …].
Lookup look_up_slices(const View& indexed, int dim, const View& ids, const View& direct);
/// indexed[…, index, …] and direct[…], whose shape is the index's.
Lookup look_up_elements(const View& indexed, int dim, const View& index, const View& direct);

/// A line on the GPU. Other ids of a place's line are `step` apart.
struct Line {
  int64_t count, step, size, stride;
  explicit Line(const Lookup& job) : count(job.count()), step(job.index[job.dim]), size(job.size), stride(job.stride) {}
};

/// y[…, ids, …] = y[…, ids, …] op from, one after the other in the order of the places along dim. y is `indexed`.
void scatter_reduce(ScatterOp op, const Lookup& job, bool slices, const View& y, const View& from);

}  // namespace reel::cuda
