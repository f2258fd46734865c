#pragma once
#include "cuda/strided.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/id_check.h"

// Indexing along one dimension: index_select, gather and take (reads), index_copy, index_add and scatter (writes). All
// become one description, a Lookup.
namespace reel::cuda {

/// A negative id counts from the end. Ids out of range stay out of range: they were reported by another kernel,
/// asynchronously, so kernels that use one must test within() and skip it.
__device__ inline int64_t wrap(int64_t id, int64_t size) { return id < 0 ? id + size : id; }
__device__ inline bool within(int64_t id, int64_t size) { return uint64_t(id) < uint64_t(size); }

/// Reports an id out of range, unless one was reported before. The flag goes 0 → 1 → 2, with a system-wide fence before
/// the 2: the host reads the rest only when it finds a 2.
__device__ inline void report(const IndexError& bounds, int64_t id, IndexError* error) {
  if (atomicCAS(&error->flag, 0u, 1u) != 0) return;
  error->op = bounds.op, error->value = id, error->low = bounds.low, error->high = bounds.high;
  __threadfence_system();
  *static_cast<volatile unsigned*>(&error->flag) = 2;
}

/// An IdCheck in a kernel. Of several ids out of range it reports any.
struct IdBounds {
  IndexError bounds;
  int64_t ignored = -1;
  IndexError* error = nullptr;  // nullptr: they have been checked
  IdBounds() = default;
  IdBounds(const IdCheck* check, int64_t size) {
    if (check) bounds = {0, check->op, 0, 0, size}, ignored = check->ignored, error = index_error();
  }
  __device__ void test(int64_t id) const {
    if (error && (id < bounds.low || id >= bounds.high)) report(bounds, id, error);
  }
};

/// A correspondence of elements: for each point p of `shape`, element p of the tensor `direct` belongs to the element
/// of the tensor `indexed` whose coordinate along `dim` is the id at p and whose other coordinates are p's. Slices
/// (index_select) are the case where ids depend on p's coordinate along dim alone: their other strides are 0.
struct Lookup {
  Shape shape;
  int dim = 0;
  Strides index, indexed, direct;  // of ids and both tensors; indexed: 0 along dim
  const int64_t* ids = nullptr;
  int64_t size = 1, stride = 0;  // of `indexed` along dim

  int64_t count() const { return shape[dim]; }
  /// Strides that give a point's coordinate along dim: 1 along dim, 0 elsewhere.
  Strides place() const {
    Strides strides = shape;
    for (int64_t& stride : strides) stride = 0;
    strides[dim] = 1;
    return strides;
  }
  /// `shape` with `indexed`'s own size along dim.
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

/// What kernels need of a Lookup along dim: `count` ids at distance `step`, which index `size` elements at distance
/// `stride`.
struct Line {
  int64_t count, step, size, stride;
  explicit Line(const Lookup& job) : count(job.count()), step(job.index[job.dim]), size(job.size), stride(job.stride) {}
};

/// y[…, ids, …] = y[…, ids, …] op from, where y is `indexed`. Several values for one element are combined in the order
/// of their coordinates along dim, as on the CPU, so the result is the same in each run.
void scatter_reduce(ScatterOp op, const Lookup& job, bool slices, const View& y, const View& from);

}  // namespace reel::cuda
