#include "cuda/index.h"

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/reduction.h"
#include "lib/device/kernels/embedding_bag.h"
#include "lib/device/kernels/enums.h"

// Index kernels: bounds checks, gather-like reads, scatter-like writes and embedding bags.
//
// Ids are in GPU memory, so an op cannot check them without synchronizing. A kernel checks them instead,
// asynchronously, and reports an id out of range in memory that the host reads at the next synchronization; the kernels
// that use the ids read zeros or write nothing for such an id. Those that read can check them, too.
namespace reel::cuda {

Lookup look_up_slices(const View& indexed, int dim, const View& ids, const View& direct) {
  Lookup job;
  job.ids = ids.as<const int64_t>();
  const int64_t step = ids.shape.empty() ? 0 : ids.strides[0];
  if (indexed.shape.empty()) {  // a line of one element
    job.shape = {ids.numel};
    job.index = {step}, job.indexed = {0}, job.direct = {0};
    return job;
  }
  job.shape = direct.shape, job.dim = dim;
  job.index = job.indexed = indexed.strides, job.direct = direct.strides;
  for (int64_t& stride : job.index) stride = 0;
  job.index[dim] = step, job.indexed[dim] = 0;
  job.size = indexed.shape[dim], job.stride = indexed.strides[dim];
  return job;
}

Lookup look_up_elements(const View& indexed, int dim, const View& index, const View& direct) {
  Lookup job;
  job.ids = index.as<const int64_t>();
  if (index.shape.empty()) {
    job.shape = {1};
    job.index = {0}, job.indexed = {0}, job.direct = {0};
    return job;
  }
  job.shape = index.shape, job.dim = dim;
  job.index = index.strides, job.indexed = indexed.strides, job.direct = direct.strides;
  job.indexed[dim] = 0;
  job.size = indexed.shape[dim], job.stride = indexed.strides[dim];
  return job;
}

namespace {

// ---- checks ---------------------------------------------------------------------------------------------------------

constexpr int kCheckThreads = 512, kCheckEach = 32;

/// Each block reports its first id out of range.
__global__ void check_kernel(Strided<1> s, const int64_t* ids, IndexError bounds, IndexError* error) {
  const int64_t n = s.rows * s.length, none = INT64_MAX;
  const int64_t start = int64_t(blockIdx.x) * kCheckThreads * kCheckEach;
  int64_t first = none, value = 0;
  for (int j = kCheckEach - 1; j >= 0; --j) {
    const int64_t i = start + j * kCheckThreads + threadIdx.x;
    if (i >= n) continue;
    const int64_t id = ids[locate(s, i)];
    if (id < bounds.low || id >= bounds.high) first = i, value = id;
  }
  const int64_t least = block_reduce(first, Minimum());
  if (first != none && first == least) report(bounds, value, error);
}

bool check_bounds(const char* op, const View& ids, int64_t low, int64_t high, int64_t*) {
  if (ids.numel == 0) return false;
  const unsigned blocks = static_cast<unsigned>(ceil_div(ids.numel, kCheckThreads * kCheckEach));
  const unsigned threads =
      ids.numel < kCheckThreads ? kWarp * static_cast<unsigned>(ceil_div(ids.numel, kWarp)) : kCheckThreads;
  launch(check_kernel, blocks, threads, 0, merge_dims(ids), ids.as<const int64_t>(), IndexError{0, op, 0, low, high},
         index_error());
  return false;
}

/// Counts the targets that are not ignored, and finds the first that is out of range: a Job of reduction.h.
struct ReadTargets {
  using Element = int64_t;
  struct Acc {
    int64_t kept, first;  // INT64_MAX: there is none
  };
  struct NoContext {};
  const int64_t* ids;
  int64_t ignored;
  int64_t* marked;
  void* kept;
  bool wide;  // kept is float64
  IndexError bounds;
  IndexError* error;
  __device__ Acc identity() const { return {0, INT64_MAX}; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const { return read(at, ids[at]); }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {
    const AlignedVector<int64_t> all = load_vector(ids + at);
    return combine(read(at, all.items[0]), read(at + 1, all.items[1]));
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    return {a.kept + b.kept, a.first < b.first ? a.first : b.first};
  }
  __device__ void finish(int64_t, int64_t, const Acc& all) const {
    if (wide)
      *static_cast<double*>(kept) = static_cast<double>(all.kept);
    else
      *static_cast<float*>(kept) = static_cast<float>(all.kept);
    if (all.first != INT64_MAX) report(bounds, ids[all.first], error);
  }

 private:
  __device__ Acc read(int64_t at, int64_t id) const {
    const bool counts = id != ignored;
    if (marked) marked[at] = counts ? id : -1;
    return {counts, counts && (id < bounds.low || id >= bounds.high) ? at : INT64_MAX};
  }
};

bool read_targets(const char* op, const View& ids, int64_t classes, int64_t ignored, const View& kept,
                  const View* marked, int64_t*) {
  LoopNest all;
  all.add(ids.numel, 1, 0);
  const int64_t* const data = ids.as<const int64_t>();
  run(ReadTargets{data, ignored, marked ? marked->as<int64_t>() : nullptr, kept.data, kept.dtype == kFloat64,
                  IndexError{0, op, 0, 0, classes}, index_error()},
      Reduction(LoopNest(), all, sizeof(int64_t), is_aligned(data) ? AlignedVector<int64_t>::kSize : 0));
  return false;
}

// ---- reads and writes -----------------------------------------------------------------------------------------------

/// The views of a Lookup in the order of the kernels' strides. kTable: a table with one entry for each element of
/// `indexed`.
enum { kIndex, kIndexed, kDirect, kPlace, kTable };

/// Moves adjacent elements as one word where both tensors are contiguous along the last dimension and ids are not along
/// it. Returns the number of elements of a word, up to 16 bytes; the strides are changed to words.
template <int N>
int64_t widen_words(Strided<N>& s, int64_t bytes, int64_t& stride, const void* indexed, const void* direct) {
  const int last = s.rank - 1;
  for (int v = 0; v < N; ++v)
    if (s.strides[last][v] != (v == kIndexed || v == kDirect)) return 1;
  int64_t all = s.length | stride;
  for (int d = 0; d < last; ++d) all |= s.strides[d][kIndexed] | s.strides[d][kDirect];
  const uintptr_t address = reinterpret_cast<uintptr_t>(indexed) | reinterpret_cast<uintptr_t>(direct);
  int64_t n = 16 / bytes;
  while (n > 1 && (all % n || address % (n * bytes))) n /= 2;
  s.length /= n, s.sizes[last] /= n, stride /= n;
  for (int d = 0; d < last; ++d) s.strides[d][kIndexed] /= n, s.strides[d][kDirect] /= n;
  return n;
}

/// f(Type<an unsigned integer of so many bytes>).
template <class F>
void with_bytes(int64_t bytes, const F& f) {
  switch (bytes) {
    case 1: return f(Type<uint8_t>());
    case 2: return f(Type<uint16_t>());
    case 4: return f(Type<uint32_t>());
    case 8: return f(Type<uint64_t>());
    default: return f(Type<uint4>());
  }
}

template <class T>
__global__ void take_kernel(Strided<3> s, Line line, const int64_t* ids, IdBounds bounds, const T* x, T* y) {
  for_each_element(s, [&](const int64_t(&at)[3]) {
    const int64_t given = ids[at[kIndex]], id = wrap(given, line.size);
    y[at[kDirect]] = within(id, line.size) ? x[at[kIndexed] + id * line.stride] : T{};
    bounds.test(given);
  });
}

/// y[p] = x[…, id, …]; zero for ids out of range.
void take(const Lookup& job, const View& x, const View& ids, const View& y, const IdCheck* check) {
  int64_t bad;
  if (y.numel == 0 && check) check_bounds(check->op, ids, 0, job.size, &bad);
  if (y.numel == 0) return;
  const Strides strides[] = {job.index, job.indexed, job.direct};
  Strided<3> s = merge_dims(job.shape, strides);
  if (s.numel() == 0) return;
  Line line(job);
  const int64_t bytes = size_of(x.dtype), n = widen_words(s, bytes, line.stride, x.data, y.data);
  const Grid grid = grid_for(s);
  with_bytes(n * bytes, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(take_kernel<T>, grid.blocks, grid.threads, 0, s, line, job.ids, IdBounds(check, job.size), x.as<const T>(),
           y.as<T>());
  });
}

// Of several equal ids the last one wins, as on the CPU, although threads run in any order. Few ids are compared with
// all later ones; for many, an atomic maximum over the ids' positions leaves the last one in a table.
constexpr int64_t kFewPlaces = 64;

__global__ void mark_last_kernel(Strided<3> s, int64_t size, int64_t stride, const int64_t* ids, unsigned* last) {
  enum { kIds, kMarks, kNumber };
  for_each_element(s, [&](const int64_t(&at)[3]) {
    const int64_t id = wrap(ids[at[kIds]], size);
    if (within(id, size)) atomicMax(&last[at[kMarks] + id * stride], unsigned(at[kNumber] + 1));
  });
}

template <class T>
__global__ void put_kernel(Strided<5> s, Line line, const int64_t* ids, const T* from, T* y, const unsigned* last,
                           int64_t last_stride) {
  for_each_element(s, [&](const int64_t(&at)[5]) {
    const int64_t id = wrap(ids[at[kIndex]], line.size);
    if (!within(id, line.size)) return;
    if (last) {
      if (last[at[kTable] + id * last_stride] != unsigned(at[kPlace] + 1)) return;
    } else {
      for (int64_t j = 1; j < line.count - at[kPlace]; ++j)
        if (wrap(ids[at[kIndex] + j * line.step], line.size) == id) return;
    }
    y[at[kIndexed] + id * line.stride] = from[at[kDirect]];
  });
}

/// y[…, id, …] = from[p]. The table of last positions has an entry for each element of y or, for slices, for each
/// slice.
void put(const Lookup& job, bool slices, const View& y, const View& from) {
  if (y.numel == 0) return;
  const int dim = job.dim;
  const Shape lines = slices ? Shape{job.size} : job.table();
  Strides marks = slices ? job.indexed : dense_strides(lines);
  const int64_t mark_stride = slices ? 1 : marks[dim];
  if (slices)
    for (int64_t& stride : marks) stride = 0;
  else
    marks[dim] = 0;
  const Strides strides[] = {job.index, job.indexed, job.direct, job.place(), marks};
  Strided<5> s = merge_dims(job.shape, strides);
  if (s.numel() == 0) return;
  const bool few = job.count() <= kFewPlaces;
  const Scratch<unsigned> last(few ? 1 : lines.numel());
  if (!few) {
    CUDA_CHECK(cudaMemsetAsync(last, 0, lines.numel() * sizeof(unsigned), stream()));
    const Strides of_all[] = {job.index, marks, job.place()};
    const Strides of_one[] = {{job.index[dim]}, {0}, {1}};
    const Strided<3> m = slices ? merge_dims({job.count()}, of_one) : merge_dims(job.shape, of_all);
    const Grid grid = grid_for(m);
    launch(mark_last_kernel, grid.blocks, grid.threads, 0, m, job.size, mark_stride, job.ids, last.data());
  }
  Line line(job);
  const int64_t bytes = size_of(y.dtype), n = widen_words(s, bytes, line.stride, y.data, from.data);
  const Grid grid = grid_for(s);
  with_bytes(n * bytes, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(put_kernel<T>, grid.blocks, grid.threads, 0, s, line, job.ids, from.as<const T>(), y.as<T>(),
           few ? nullptr : last.data(), mark_stride);
  });
}

// ---- entries of the table -------------------------------------------------------------------------------------------

/// f(job, from) for pieces of a job whose positions fit the table's 32-bit entries, one after the other.
template <class F>
void in_pieces(const Lookup& job, const View& from, const F& f) {
  const int64_t most = int64_t{1} << 31, count = job.count();
  if (count <= most) return f(job, from);
  for (int64_t start = 0; start < count; start += most) {
    Lookup piece = job;
    View part = from;
    piece.shape[job.dim] = count - start < most ? count - start : most;
    piece.ids += start * job.index[job.dim];
    part.data = from.as<char>() + start * job.direct[job.dim] * size_of(from.dtype);
    f(piece, part);
  }
}

bool index_select(const View& x, int dim, const View& ids, const View& y, IdCheck* check) {
  take(look_up_slices(x, dim, ids, y), x, ids, y, check);
  return false;
}
bool gather(const View& x, int dim, const View& index, const View& y, IdCheck* check) {
  take(look_up_elements(x, dim, index, y), x, index, y, check);
  return false;
}

void index_copy(const View& y, int dim, const View& ids, const View& from) {
  in_pieces(look_up_slices(y, dim, ids, from), from,
            [&](const Lookup& job, const View& part) { put(job, true, y, part); });
}
void index_add(const View& y, int dim, const View& ids, const View& from) {
  if (y.numel == 0 || from.numel == 0) return;
  in_pieces(look_up_slices(y, dim, ids, from), from,
            [&](const Lookup& job, const View& part) { scatter_reduce(ScatterOp::kAdd, job, true, y, part); });
}
void scatter(ScatterOp op, const View& y, int dim, const View& index, const View& from) {
  if (y.numel == 0 || index.numel == 0) return;
  in_pieces(look_up_elements(y, dim, index, from), from, [&](const Lookup& job, const View& part) {
    op == ScatterOp::kReplace ? put(job, false, y, part) : scatter_reduce(op, job, false, y, part);
  });
}

// ---- bags -----------------------------------------------------------------------------------------------------------

/// Threads lie along the columns (x) and the bags (y). A bag's ids are summed in their order by one thread for each
/// column, so the result is the same in each run.
template <class T>
__global__ void bag_kernel(EmbeddingBag job) {
  const T* const weight = static_cast<const T*>(job.weight);
  const T* const factors = static_cast<const T*>(job.factors);
  for (int64_t b = first_row(); b < job.bags; b += row_step()) {
    const int64_t begin = job.bounds[b], end = job.bounds[b + 1];
    if (job.bag && blockIdx.y == 0)
      for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) job.bag[i] = b;
    for (int64_t j = first_column(); j < job.width || j == 0; j += column_step()) {
      const bool inside = j < job.width;
      int64_t count = 0, from = 0;
      Wide<T> total = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t id = job.ids[i];
        if (id == job.padding) continue;
        ++count;
        if (!inside || !within(id, job.rows)) continue;
        const Wide<T> x = widen(weight[id * job.stride + j]);
        if (job.max) {
          if (count == 1 || x > total || (x != x && total == total)) total = x, from = id;
        } else if (factors) {
          total += widen(factors[i]) * x;
        } else {
          total += x;
        }
      }
      if (j == 0) job.count[b] = count;
      if (!inside) break;
      if (job.max)
        static_cast<int64_t*>(job.out)[b * job.width + j] = from;
      else
        static_cast<T*>(job.out)[b * job.width + j] =
            narrow<T>(job.mean && count > 1 ? total / static_cast<Wide<T>>(count) : total);
    }
  }
}

void embedding_bag(const EmbeddingBag& job) {
  if (job.bags == 0) return;
  const Grid grid(job.bags, job.width ? job.width : 1);
  with_floating(job.dtype, [&](auto type) {
    launch(bag_kernel<typename decltype(type)::type>, grid.blocks, grid.threads, 0, job);
  });
}

}  // namespace

void install_index(KernelTable& table) {
  table.check_bounds = check_bounds;
  table.read_targets = read_targets;
  table.index_select = index_select;
  table.index_copy = index_copy;
  table.index_add = index_add;
  table.gather = gather;
  table.scatter = scatter;
  table.embedding_bag = embedding_bag;
}

}  // namespace reel::cuda
