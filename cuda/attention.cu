#include <cmath>

#include "cuda/kernels.h"
#include "cuda/online_softmax.h"
#include "lib/functors/number.h"
#include "lib/kernels/attention.h"

// Attention within sequences. A warp has a query (backward, for the gradients of keys and values: a key) of one head.
// It takes the others 32 at a time, a lane each for the scores, then the lanes turn to columns. Weights are computed
// anew for every kColumns * 32 columns, and in backward from the log sums.
namespace reel::cuda {
namespace {

constexpr int kColumns = 4;  // of a lane

template <class T>
struct Job : RaggedAttention {
  T* differences;  // backward: grad · y of each query and head

  __device__ const T* query_at(int64_t row, int64_t head) const {
    return static_cast<const T*>(query) + (row * heads + head) * width;
  }
  __device__ const T* key_at(int64_t row, int64_t head) const {
    return static_cast<const T*>(key) + (row * kv_heads + head) * width;
  }
  __device__ const T* value_at(int64_t row, int64_t head) const {
    return static_cast<const T*>(value) + (row * kv_heads + head) * value_width;
  }
  __device__ const T* grad_at(int64_t row, int64_t head) const {
    return static_cast<const T*>(grad) + (row * heads + head) * value_width;
  }
  __device__ T log_sum(int64_t row, int64_t head) const { return static_cast<const T*>(log_sums)[row * heads + head]; }
  __device__ T score(int64_t i, int64_t head, int64_t j, int64_t kv_head) const {
    return T(scale) * dot(query_at(i, head), key_at(j, kv_head), width);
  }
  static __device__ T dot(const T* a, const T* b, int64_t n) {
    T sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  }
};

/// The sequence that a row is of.
__device__ int64_t sequence_of(const int64_t* offsets, int64_t sequences, int64_t row) {
  int64_t low = 0, high = sequences;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (offsets[middle] <= row ? low : high) = middle;
  }
  return low;
}

/// A row of some 32 kColumns columns from `first` on, in the lanes of a warp.
template <class T>
struct Columns {
  T of[kColumns] = {};
  __device__ void scale(T factor) {
    for (T& x : of) x *= factor;
  }
  __device__ void add(T factor, const T* row, int64_t first, int64_t size, unsigned lane) {
    for (int c = 0; c < kColumns; ++c)
      if (const int64_t i = first + c * kWarp + lane; i < size) of[c] += factor * row[i];
  }
  __device__ void store(T* row, int64_t first, int64_t size, unsigned lane) const {
    for (int c = 0; c < kColumns; ++c)
      if (const int64_t i = first + c * kWarp + lane; i < size) row[i] = of[c];
  }
};

/// The row and head of a warp; row is `rows` where there is none.
struct Unit {
  int64_t row, head;
  unsigned lane = threadIdx.x % kWarp;
  __device__ explicit Unit(int64_t heads) : row(first_index() / kWarp / heads), head(first_index() / kWarp % heads) {}
};

/// The keys of query `row`'s sequence that it attends to.
struct Range {
  int64_t begin, end;
  __device__ Range(const RaggedAttention& a, int64_t row) {
    const int64_t s = sequence_of(a.query_offsets, a.sequences, row);
    begin = a.key_offsets[s], end = a.key_offsets[s + 1];
    if (const int64_t last = begin + row - a.query_offsets[s] + 1; a.causal && last < end) end = last;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(const Job<T> a) {
  const Unit unit(a.heads);
  if (unit.row >= a.queries) return;  // a whole warp
  const int64_t kv_head = unit.head / (a.heads / a.kv_heads);
  const Range keys(a, unit.row);
  T* const y = static_cast<T*>(a.y) + (unit.row * a.heads + unit.head) * a.value_width;
  OnlineSoftmax<T> all;
  for (int64_t first = 0; first == 0 || first < a.value_width; first += kColumns * kWarp) {
    all = {};
    Columns<T> sums;
    for (int64_t j = keys.begin; j < keys.end; j += kWarp) {
      const bool there = j + unit.lane < keys.end;
      const T score = there ? a.score(unit.row, unit.head, j + unit.lane, kv_head) : T(-INFINITY);
      const T max = Maximum()(all.max, warp_reduce(score, Maximum()));
      const T weight = there ? exp_difference(score, max) : T(0), before = exp_difference(all.max, max);
      all = {max, all.sum * before + warp_reduce(weight, Plus())};
      sums.scale(before);
      for (int k = 0; k < kWarp && j + k < keys.end; ++k)
        sums.add(shuffle_from(weight, k), a.value_at(j + k, kv_head), first, a.value_width, unit.lane);
    }
    sums.scale(keys.begin < keys.end ? T(1) / all.total() : T(0));
    sums.store(y, first, a.value_width, unit.lane);
  }
  if (a.log_sums && unit.lane == 0)
    static_cast<T*>(a.log_sums)[unit.row * a.heads + unit.head] =
        keys.begin < keys.end ? all.max + functors::log(all.total()) : T(-INFINITY);
}

/// Also writes the differences that key_grad_kernel reads.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) query_grad_kernel(const Job<T> a) {
  const Unit unit(a.heads);
  if (unit.row >= a.queries) return;
  const int64_t kv_head = unit.head / (a.heads / a.kv_heads);
  const Range keys(a, unit.row);
  const T* const g = a.grad_at(unit.row, unit.head);
  const T* const y = static_cast<const T*>(a.y) + (unit.row * a.heads + unit.head) * a.value_width;
  T difference = 0;
  for (int64_t i = unit.lane; i < a.value_width; i += kWarp) difference += g[i] * y[i];
  difference = warp_reduce(difference, Plus());
  if (unit.lane == 0) a.differences[unit.row * a.heads + unit.head] = difference;
  const T log_sum = a.log_sum(unit.row, unit.head);
  T* const grad = static_cast<T*>(a.grad_query) + (unit.row * a.heads + unit.head) * a.width;
  for (int64_t first = 0; first < a.width; first += kColumns * kWarp) {
    Columns<T> sums;
    for (int64_t j = keys.begin; j < keys.end; j += kWarp) {
      T of_score = 0;
      if (const int64_t mine = j + unit.lane; mine < keys.end) {
        const T weight = functors::exp(a.score(unit.row, unit.head, mine, kv_head) - log_sum);
        of_score = weight * (a.dot(g, a.value_at(mine, kv_head), a.value_width) - difference) * T(a.scale);
      }
      for (int k = 0; k < kWarp && j + k < keys.end; ++k)
        sums.add(shuffle_from(of_score, k), a.key_at(j + k, kv_head), first, a.width, unit.lane);
    }
    sums.store(grad, first, a.width, unit.lane);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2) key_grad_kernel(const Job<T> a) {
  const Unit unit(a.kv_heads);
  if (unit.row >= a.keys) return;
  const int64_t s = sequence_of(a.key_offsets, a.sequences, unit.row), share = a.heads / a.kv_heads;
  const int64_t end = a.query_offsets[s + 1];
  const int64_t begin = a.query_offsets[s] + (a.causal ? unit.row - a.key_offsets[s] : 0);
  const int64_t place = unit.row * a.kv_heads + unit.head, most = a.width > a.value_width ? a.width : a.value_width;
  for (int64_t first = 0; first < most; first += kColumns * kWarp) {
    Columns<T> of_key, of_value;
    for (int64_t head = unit.head * share; head < (unit.head + 1) * share; ++head)
      for (int64_t i = begin; i < end; i += kWarp) {
        T weight = 0, of_score = 0;
        if (const int64_t mine = i + unit.lane; mine < end) {
          weight = functors::exp(a.score(mine, head, unit.row, unit.head) - a.log_sum(mine, head));
          of_score = weight * T(a.scale) *
                     (a.dot(a.grad_at(mine, head), a.value_at(unit.row, unit.head), a.value_width) -
                      a.differences[mine * a.heads + head]);
        }
        for (int k = 0; k < kWarp && i + k < end; ++k) {
          of_key.add(shuffle_from(of_score, k), a.query_at(i + k, head), first, a.width, unit.lane);
          of_value.add(shuffle_from(weight, k), a.grad_at(i + k, head), first, a.value_width, unit.lane);
        }
      }
    of_key.store(static_cast<T*>(a.grad_key) + place * a.width, first, a.width, unit.lane);
    of_value.store(static_cast<T*>(a.grad_value) + place * a.value_width, first, a.value_width, unit.lane);
  }
}

unsigned blocks_of(int64_t rows, int64_t heads) {
  return static_cast<unsigned>(ceil_div(rows * heads * kWarp, kThreads));
}

void ragged_attention(const RaggedAttention& a) {
  with_float(a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(forward_kernel<T>, blocks_of(a.queries, a.heads), kThreads, 0, Job<T>{{a}, nullptr});
  });
}

void ragged_attention_grad(const RaggedAttention& a) {
  with_float(a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Scratch<T> differences(a.queries * a.heads);
    const Job<T> job{{a}, differences};
    launch(query_grad_kernel<T>, blocks_of(a.queries, a.heads), kThreads, 0, job);
    launch(key_grad_kernel<T>, blocks_of(a.keys, a.kv_heads), kThreads, 0, job);
  });
}

}  // namespace

void install_attention(KernelTable& table) {
  table.ragged_attention = ragged_attention;
  table.ragged_attention_grad = ragged_attention_grad;
}

}  // namespace reel::cuda
