#include <limits>

#include "cuda/block.h"
#include "cuda/index.h"
#include "cuda/primitives.h"
#include "lib/device/kernels/enums.h"

// index_add, and scatter with sum, product, maximum and minimum. Values for one element are combined in the order of
// their coordinates, as on the CPU, so the result is the same in each run: atomic additions of floats would be in
// another order, and so rounded differently, each time. How the values for one element are found depends on the sizes:
//
//   sums of integers         atomic additions, whose order does not matter
//   index_add, few slices    a block for each slice compares its id with all others
//   scatter, short lines     a thread for each value compares its id with all others of its line
//   scatter, longer lines    linked lists of the values for each element, built by atomic exchanges
//   anything longer          a radix sort by the element's offset
namespace reel::cuda {
namespace {

template <class T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();
template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();

/// Combines two values, in the type that a GPU computes in. NaN propagates through maxima and minima.
struct Combine {
  ScatterOp op;

  template <class T>
  __device__ T operator()(T a, T b) const {
    switch (op) {
      case ScatterOp::kMul:
        if constexpr (std::is_integral_v<T>)
          return static_cast<T>(uint64_t(a) * uint64_t(b));
        else
          return a * b;
      case ScatterOp::kMax: return a != a || a > b ? a : b;
      case ScatterOp::kMin: return a != a || a < b ? a : b;
      default:
        if constexpr (std::is_integral_v<T>)
          return static_cast<T>(uint64_t(a) + uint64_t(b));
        else
          return a + b;
    }
  }
  /// The neutral element. That of sums is -0.0: adding 0.0 would turn a sum of -0.0 into 0.0.
  template <class T>
  __device__ T identity() const {
    switch (op) {
      case ScatterOp::kMul: return T(1);
      case ScatterOp::kMax: return kLowest<T>;
      case ScatterOp::kMin: return kHighest<T>;
      default: return T(-0.0);
    }
  }
};

// ---- integers -------------------------------------------------------------------------------------------------------

enum { kIndex, kIndexed, kDirect, kPlace, kHead, kNumber };

template <class T>
__global__ void add_integers_kernel(Strided<3> s, Line line, const int64_t* ids, const T* from, T* y) {
  for_each_element(s, [&](const int64_t(&at)[3]) {
    const int64_t id = wrap(ids[at[kIndex]], line.size);
    if (within(id, line.size)) atomicAdd(&y[at[kIndexed] + id * line.stride], from[at[kDirect]]);
  });
}

/// T: the unsigned type of the size of y's elements, which atomicAdd takes; sums wrap.
template <class T>
void add_integers(const Lookup& job, const View& y, const View& from) {
  const Strides strides[] = {job.index, job.indexed, job.direct};
  const Strided<3> s = merge_dims(job.shape, strides);
  const Grid grid = grid_for(s);
  launch(add_integers_kernel<T>, grid.blocks, grid.threads, 0, s, Line(job), job.ids, from.as<const T>(), y.as<T>());
}

// ---- few slices -----------------------------------------------------------------------------------------------------

constexpr int kFewSlices = 1024;

/// Block x takes slice x and all later ones with the same id; it returns if an earlier slice has that id, whose block
/// takes this one, too. `same` has a bit for each slice.
template <class T>
__global__ void reduce_few_kernel(Combine combine, Strided<2> columns, Line line, int64_t from_step, const int64_t* ids,
                                  const T* from, T* y) {
  __shared__ unsigned same[kFewSlices / kWarp];
  const int i = static_cast<int>(blockIdx.x), n = static_cast<int>(line.count), words = (n + kWarp - 1) / kWarp;
  const unsigned lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  const int64_t id = wrap(ids[i * line.step], line.size);
  if (!within(id, line.size)) return;
  for (int w = threadIdx.x / kWarp; w < words; w += warps) {
    const int j = w * kWarp + lane;
    const unsigned bits = __ballot_sync(~0u, j < n && wrap(ids[j * line.step], line.size) == id);
    if (lane == 0) same[w] = bits;
  }
  __syncthreads();
  for (int w = 0; w < i / kWarp; ++w)
    if (same[w]) return;
  if (same[i / kWarp] & ((1u << i % kWarp) - 1)) return;

  const int64_t count = columns.rows * columns.length;
  for (int64_t c = first_column(); c < count; c += column_step()) {
    int64_t at[2];
    columns.locate(c, at);
    T* const to = y + at[0] + id * line.stride;
    Wide<T> total = widen(*to);
    for (int w = i / kWarp; w < words; ++w)
      for (unsigned bits = same[w]; bits; bits &= bits - 1)
        total = combine(total, widen(from[at[1] + (w * kWarp + __ffs(bits) - 1) * from_step]));
    *to = narrow<T>(total);
  }
}

/// y and from without dimension dim: the elements of a slice.
Strided<2> columns_of(const Lookup& job) {
  Shape shape = job.shape;
  shape[job.dim] = 1;
  const Strides strides[] = {job.indexed, job.direct};
  return merge_dims(shape, strides);
}

template <class T>
void reduce_few(Combine op, const Lookup& job, const View& y, const View& from) {
  const Strided<2> columns = columns_of(job);
  const int64_t warps = ceil_div(columns.numel(), kWarp), most = 512 / kWarp;
  const unsigned threads = kWarp * static_cast<unsigned>(warps < most ? warps : most);
  const int64_t tiles = ceil_div(columns.numel(), threads);
  launch(reduce_few_kernel<T>, dim3(job.count(), tiles < 65535 ? tiles : 65535), threads, 0, op, columns, Line(job),
         job.direct[job.dim], job.ids, from.as<const T>(), y.as<T>());
}

// ---- lines ----------------------------------------------------------------------------------------------------------

constexpr int64_t kFewPlaces = 32, kShortLine = 256, kLongestLine = 32768;

/// Builds, for each element of y, the linked list of the values for it: head and next are coordinates along dim plus 1,
/// and 0 ends a list. The order of a list is that of the atomic exchanges, so readers must sort it.
__global__ void link_kernel(Strided<6> s, Line line, const int64_t* ids, unsigned* head, int64_t head_stride,
                            unsigned* next) {
  for_each_element(s, [&](const int64_t(&at)[6]) {
    const int64_t id = wrap(ids[at[kIndex]], line.size);
    if (within(id, line.size))
      next[at[kNumber]] = atomicExch(&head[at[kHead] + id * head_stride], unsigned(at[kPlace] + 1));
  });
}

struct Lists {
  const unsigned* head = nullptr;
  int64_t head_stride = 0;
  const unsigned* next = nullptr;
  int64_t next_stride = 0;
};

/// f(coordinate along dim) for all values of a line that go to the same element as this one, in order, if this thread
/// is the one that combines them: the first of them or, with lists, the head of the list. Returns false in other
/// threads. A short list is traversed in ascending order by repeated searches for the least coordinate that is left,
/// which takes no memory; where that would take longer, the ids of the whole line are compared.
template <class F>
__device__ bool for_each_duplicate(const int64_t (&at)[6], const Line& line, const int64_t* ids, int64_t id,
                                   const Lists& lists, const F& f) {
  const int64_t* const all = ids + at[kIndex] - at[kPlace] * line.step;
  const auto goes_there = [&](int64_t j) { return wrap(all[j * line.step], line.size) == id; };
  int64_t first = at[kPlace];
  if (!lists.head) {
    for (int64_t j = 0; j < first; ++j)
      if (goes_there(j)) return false;
  } else {
    const unsigned begin = lists.head[at[kHead] + id * lists.head_stride];
    if (begin != unsigned(first + 1)) return false;
    const unsigned* const next = lists.next + at[kNumber] - first * lists.next_stride;
    int64_t length = 0;
    for (unsigned j = begin; j && length * length <= line.count; j = next[(j - 1) * lists.next_stride]) ++length;
    if (length * length <= line.count) {  // from the least to the largest
      for (unsigned done = 0; length > 0; --length) {
        unsigned least = ~0u;
        for (unsigned j = begin; j; j = next[(j - 1) * lists.next_stride])
          if (j > done && j < least) least = j;
        f(int64_t(least) - 1);
        done = least;
      }
      return true;
    }
    first = 0;
  }
  for (int64_t j = first; j < line.count; ++j)
    if (goes_there(j)) f(j);
  return true;
}

template <class T>
__global__ void reduce_lines_kernel(Combine combine, Strided<6> s, Line line, int64_t from_step, const int64_t* ids,
                                    const T* from, T* y, Lists lists) {
  for_each_element(s, [&](const int64_t(&at)[6]) {
    const int64_t id = wrap(ids[at[kIndex]], line.size);
    if (!within(id, line.size)) return;
    T* const to = y + at[kIndexed] + id * line.stride;
    const T* const first = from + at[kDirect] - at[kPlace] * from_step;
    Wide<T> total = widen(*to);
    if (for_each_duplicate(at, line, ids, id, lists,
                           [&](int64_t place) { total = combine(total, widen(first[place * from_step])); }))
      *to = narrow<T>(total);
  });
}

template <class T>
void reduce_lines(Combine op, const Lookup& job, const View& y, const View& from) {
  const int dim = job.dim;
  const Shape lines = job.table();
  const Strides dense = dense_strides(lines), numbers = dense_strides(job.shape);
  Strides heads = dense;
  heads[dim] = 0;
  const Strides strides[] = {job.index, job.indexed, job.direct, job.place(), heads, numbers};
  const Strided<6> s = merge_dims(job.shape, strides);
  const Grid grid = grid_for(s);
  const bool few = job.count() <= kFewPlaces;
  const Scratch<unsigned> head(few ? 1 : lines.numel()), next(few ? 1 : s.numel());
  Lists lists;
  if (!few) {
    lists = {head, dense[dim], next, numbers[dim]};
    CUDA_CHECK(cudaMemsetAsync(head, 0, lines.numel() * sizeof(unsigned), stream()));
    launch(link_kernel, grid.blocks, grid.threads, 0, s, Line(job), job.ids, head.data(), dense[dim], next.data());
  }
  launch(reduce_lines_kernel<T>, grid.blocks, grid.threads, 0, op, s, Line(job), job.direct[dim], job.ids,
         from.as<const T>(), y.as<T>(), lists);
}

// ---- sorted ---------------------------------------------------------------------------------------------------------

// A run of equal keys (the values for one element) is combined in pieces of this length, and the pieces then: one
// thread for a whole run would leave the GPU idle where there are few runs.
constexpr int64_t kPiece = 1024;

/// The sort's keys and values: the number of the element or slice of y that each id refers to, and the id's own number,
/// or -1 if it is out of range.
__global__ void number_kernel(Strided<3> s, int64_t size, int64_t stride, const int64_t* ids, uint64_t* keys,
                              int64_t* values) {
  enum { kIds, kTargets, kNumbers };
  for_each_element(s, [&](const int64_t(&at)[3]) {
    const int64_t id = wrap(ids[at[kIds]], size);
    const bool good = within(id, size);
    keys[at[kNumbers]] = good ? at[kTargets] + id * stride : 0;
    values[at[kNumbers]] = good ? at[kNumbers] : -1;
  });
}

struct Runs {
  int64_t count;
  const uint64_t* keys;
  const int64_t* values;
  Strided<1> target, source;  // the offsets in y of a key, and in `from` of a value

  __host__ __device__ int64_t pieces() const { return (count + kPiece - 1) / kPiece; }
  __device__ bool has(int64_t q, uint64_t key) const { return q < count && keys[q] == key; }
  /// The beginning of the run that position q is in.
  __device__ int64_t begin(int64_t q) const {
    int64_t low = 0, high = q;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < keys[q])
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  __device__ bool begins_run(int64_t q) const { return q == 0 || keys[q - 1] != keys[q]; }
  __device__ bool begins_piece(int64_t q) const {
    return begins_run(q) || (q >= kPiece && keys[q - kPiece] == keys[q] && (q - begin(q)) % kPiece == 0);
  }
};

/// Combines each piece. The result of a piece that is a whole run goes to y, others to partial [2, ⌈count / kPiece⌉,
/// columns], at the number of the kPiece-aligned range that the piece begins in: the first pieces of runs, which start
/// from y's element, in one half and later pieces in the other. No two pieces of a half begin in one range, since a run
/// of several pieces is longer than a range.
template <class T>
__global__ void reduce_pieces_kernel(Combine combine, Runs runs, Strided<2> columns, const T* from, T* y,
                                     Wide<T>* partial) {
  const int64_t width = columns.rows * columns.length;
  for (int64_t q = first_row(); q < runs.count; q += row_step()) {
    if (!runs.begins_piece(q)) continue;
    const bool first = runs.begins_run(q);
    const uint64_t key = runs.keys[q];
    const bool whole = first && !runs.has(q + kPiece, key);
    const int64_t to = locate(runs.target, key);
    const int64_t end = q + kPiece < runs.count ? q + kPiece : runs.count;
    for (int64_t c = first_column(); c < width; c += column_step()) {
      int64_t at[2];
      columns.locate(c, at);
      const auto value = [&](int64_t p) {
        const int64_t number = runs.values[p];
        return number < 0 ? combine.identity<Wide<T>>() : widen(from[at[1] + locate(runs.source, number)]);
      };
      Wide<T> total = first ? widen(y[to + at[0]]) : combine.identity<Wide<T>>();
      int64_t p = q;
      for (; p + 3 < end && runs.keys[p + 3] == key; p += 4) {  // four loads in flight at a time
        const Wide<T> a = value(p), b = value(p + 1), c = value(p + 2), d = value(p + 3);
        total = combine(combine(combine(combine(total, a), b), c), d);
      }
      for (; p < end && runs.keys[p] == key; ++p) total = combine(total, value(p));
      if (whole)
        y[to + at[0]] = narrow<T>(total);
      else
        partial[((first ? 0 : runs.pieces()) + q / kPiece) * width + c] = total;
    }
  }
}

/// Combines the pieces of each run of several. Every range of kPiece positions is looked at by the threads of one row:
/// if the second piece of a run begins in it, they combine that run; each such run has exactly one.
template <class T>
__global__ void reduce_partial_kernel(Combine combine, Runs runs, Strided<2> columns, T* y, const Wide<T>* partial) {
  const int64_t width = columns.rows * columns.length;
  for (int64_t s = first_row() + 1; s * kPiece < runs.count; s += row_step()) {
    const uint64_t key = runs.keys[s * kPiece];
    const int64_t second = runs.begin(s * kPiece) + kPiece;
    if (second / kPiece != s || !runs.has(second, key)) continue;
    const int64_t to = locate(runs.target, key);
    for (int64_t c = first_column(); c < width; c += column_step()) {
      int64_t at[2];
      columns.locate(c, at);
      Wide<T> total = partial[(second / kPiece - 1) * width + c];
      for (int64_t q = second; runs.has(q, key); q += kPiece)
        total = combine(total, partial[(runs.pieces() + q / kPiece) * width + c]);
      y[to + at[0]] = narrow<T>(total);
    }
  }
}

template <class T>
void reduce_sorted(Combine op, const Lookup& job, bool slices, const View& y, const View& from) {
  const int dim = job.dim;
  const Shape shape = slices ? Shape{job.count()} : job.shape, lines = slices ? Shape{job.size} : job.table();
  const Strides dense = dense_strides(lines);
  Strides targets = dense;
  targets[slices ? 0 : dim] = 0;
  const Strides ids[] = {slices ? Strides{job.index[dim]} : job.index, targets, dense_strides(shape)};
  const Strided<3> s = merge_dims(shape, ids);
  const int64_t n = s.numel();
  Pairs<uint64_t> pairs(n);
  Grid grid = grid_for(s);
  launch(number_kernel, grid.blocks, grid.threads, 0, s, job.size, dense[slices ? 0 : dim], job.ids, pairs.keys(),
         pairs.values());
  pairs.sort(bits_below(lines.numel()));

  Strides line = slices ? Strides{job.stride} : job.indexed;
  line[slices ? 0 : dim] = job.stride;
  const Strides target[] = {line}, source[] = {slices ? Strides{job.direct[dim]} : job.direct};
  const Strides none[] = {{0}, {0}};
  const Strided<2> columns = slices ? columns_of(job) : merge_dims({1}, none);
  const Runs runs{n, pairs.keys(), pairs.values(), merge_dims(lines, target), merge_dims(shape, source)};
  const int64_t pieces = runs.pieces(), width = columns.numel();
  const Scratch<Wide<T>> partial(pieces > 1 ? 2 * pieces * width : 1);
  grid = Grid(n, width);
  launch(reduce_pieces_kernel<T>, grid.blocks, grid.threads, 0, op, runs, columns, from.as<const T>(), y.as<T>(),
         partial.data());
  if (pieces == 1) return;
  grid = Grid(pieces - 1, width);
  launch(reduce_partial_kernel<T>, grid.blocks, grid.threads, 0, op, runs, columns, y.as<T>(), partial.data());
}

}  // namespace

void scatter_reduce(ScatterOp op, const Lookup& job, bool slices, const View& y, const View& from) {
  const int64_t n = job.count();
  if (n == 0) return;
  if (op == ScatterOp::kAdd && y.dtype == kBool) op = ScatterOp::kMax;  // of bytes 0 and 1
  if (op == ScatterOp::kAdd && y.dtype == kInt32) return add_integers<unsigned>(job, y, from);
  if (op == ScatterOp::kAdd && y.dtype == kInt64) return add_integers<unsigned long long>(job, y, from);
  const bool lists = n <= kShortLine || (n <= kLongestLine && n <= 8 * job.size);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (slices)
      n <= kFewSlices ? reduce_few<T>({op}, job, y, from) : reduce_sorted<T>({op}, job, true, y, from);
    else
      lists ? reduce_lines<T>({op}, job, y, from) : reduce_sorted<T>({op}, job, false, y, from);
  });
}

}  // namespace reel::cuda
