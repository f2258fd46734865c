#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "cuda/attention_key.h"
#include "cuda/device.h"
#include "cuda/dnn.h"
#include "cuda/kernels.h"
#include "cuda/online_softmax.h"
#include "lib/device/kernels/attention.h"
#include "lib/functors/number.h"
#include "reel/precision.h"

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

// ---- batches of sequences of one length -----------------------------------------------------------------------------

/// Whether cuDNN's attention, whose graphs say what is computed in many operations, has turned out to compute that.
enum class Trust { kUnknown, kRight, kWrong };

std::vector<float> download(DType dtype, const void* from, const Shape& shape, const Shape& strides) {
  std::vector<float> to(static_cast<size_t>(shape.numel()));
  View there, here;
  there.data = const_cast<void*>(from), there.dtype = dtype, there.strides = strides, there.contiguous = false;
  here.data = to.data(), here.dtype = kFloat32, here.contiguous = here.host = true;
  here.strides = shape.size() == 1 ? Shape{1} : Shape{shape[1], 1};
  for (View* view : {&there, &here}) view->shape = shape, view->numel = shape.numel();
  table().copy(there, here);
  return to;
}

/// One sequence of a batch, and how many of its queries and keys count.
struct Sequence {
  int64_t place, queries, keys;
};
/// The one with the fewest keys: there it shows whether lengths are heeded.
Sequence shortest(const RaggedAttention& a) {
  Sequence result{a.sequences - 1, a.queries / a.sequences, a.keys / a.sequences};
  if (!a.batch->key_lengths) return result;
  const std::vector<float> queries = download(kInt32, a.batch->query_lengths, {a.sequences}, {1}),
                           keys = download(kInt32, a.batch->key_lengths, {a.sequences}, {1});
  const auto least = std::min_element(keys.begin(), keys.end());
  result.place = least - keys.begin();
  result.keys = static_cast<int64_t>(*least);
  result.queries = static_cast<int64_t>(queries[static_cast<size_t>(result.place)]);
  return result;
}

/// One head of a sequence's queries, as far as it counts, in the host's memory, as float32.
class Head {
 public:
  Head(const RaggedAttention& a, const Sequence& sequence, int64_t head)
      : a_(a), sequence_(sequence.place), head_(head), queries_(sequence.queries), keys_(sequence.keys) {
    const auto& b = *a.batch;
    const int64_t first = (sequence_ * a.heads + head) * (a.queries / a.sequences);  // in the log sums
    q_ = of_queries(a.query, b.query), y_ = of_queries(a.y, b.y);
    k_ = of_keys(a.key, b.key), v_ = of_keys(a.value, b.value);
    if (a.log_sums) log_sums_ = download(kFloat32, static_cast<const float*>(a.log_sums) + first, {queries_}, {1});
    if (a.grad) g_ = of_queries(a.grad, b.grad);
  }

  /// Compares some rows of the results with what the formulas at RaggedAttention say.
  Trust judge_forward() {
    for (const int64_t i : {int64_t{0}, queries_ / 2, queries_ - 1}) {
      double log_sum = 0;
      const std::vector<double> p = weights(i, &log_sum);
      Row y(a_.width);
      for (int64_t j = 0; j < keys_; ++j) y.add(p[static_cast<size_t>(j)], v_, j);
      compare(y, y_, i);
      if (a_.log_sums) compare(log_sum, log_sums_[static_cast<size_t>(i)], 0.01 * (1 + std::abs(log_sum)));
    }
    return verdict_;
  }
  /// Of all heads that share keys, which are complete in `sharers`, with this one.
  Trust judge_backward(const std::deque<Head>& sharers) {
    const auto& b = *a_.batch;
    const std::vector<float> gq = of_queries(a_.grad_query, b.grad_query), gk = of_keys(a_.grad_key, b.grad_key),
                             gv = of_keys(a_.grad_value, b.grad_value);
    for (const int64_t i : {int64_t{0}, queries_ / 2, queries_ - 1}) {
      Row sum(a_.width);
      for (int64_t j = 0; j < keys_; ++j) sum.add(of_score(i, j), k_, j);
      compare(sum, gq, i);
    }
    for (const int64_t j : {int64_t{0}, keys_ / 2, keys_ - 1}) {
      Row of_key(a_.width), of_value(a_.width);
      for (const Head& h : sharers)
        for (int64_t i = 0; i < queries_; ++i)
          of_key.add(h.of_score(i, j), h.q_, i), of_value.add(h.weight(i, j), h.g_, i);
      compare(of_key, gk, j), compare(of_value, gv, j);
    }
    return verdict_;
  }

 private:
  std::vector<float> rows(const void* from, const RaggedAttention::Steps& steps, int64_t head, int64_t length) const {
    const int64_t offset = sequence_ * steps[0] + head * steps[1];
    return download(a_.dtype, static_cast<const char*>(from) + offset * size_of(a_.dtype), {length, a_.width},
                    {steps[2], 1});
  }
  std::vector<float> of_queries(const void* from, const RaggedAttention::Steps& steps) const {
    return rows(from, steps, head_, queries_);
  }
  std::vector<float> of_keys(const void* from, const RaggedAttention::Steps& steps) const {
    return rows(from, steps, head_ / (a_.heads / a_.kv_heads), keys_);
  }
  double dot(const std::vector<float>& x, int64_t i, const std::vector<float>& y, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < a_.width; ++c)
      sum += double(x[static_cast<size_t>(i * a_.width + c)]) * y[static_cast<size_t>(j * a_.width + c)];
    return sum;
  }
  /// A sum of rows, and of the squares of what was added.
  struct Row {
    std::vector<double> of, squares;
    explicit Row(int64_t width) : of(static_cast<size_t>(width)), squares(of) {}
    void add(double factor, const std::vector<float>& x, int64_t row) {
      for (size_t c = 0; c < of.size(); ++c) {
        const double term = factor * x[static_cast<size_t>(row) * of.size() + c];
        of[c] += term, squares[c] += term * term;
      }
    }
  };
  bool sees(int64_t i, int64_t j) const { return !a_.causal || j <= i; }
  std::vector<double> weights(int64_t i, double* log_sum) const {
    std::vector<double> p(static_cast<size_t>(keys_));
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys_; ++j) {
      p[static_cast<size_t>(j)] = sees(i, j) ? a_.scale * dot(q_, i, k_, j) : -INFINITY;
      most = std::fmax(most, p[static_cast<size_t>(j)]);
    }
    for (double& x : p) sum += x = std::exp(x - most);
    for (double& x : p) x /= sum;
    *log_sum = most + std::log(sum);
    return p;
  }
  double weight(int64_t i, int64_t j) const {
    return sees(i, j) ? std::exp(a_.scale * dot(q_, i, k_, j) - log_sums_[static_cast<size_t>(i)]) : 0;
  }
  double of_score(int64_t i, int64_t j) const {
    return sees(i, j) ? weight(i, j) * a_.scale * (dot(g_, i, v_, j) - dot(g_, i, y_, i)) : 0;
  }

  void compare(double wanted, double found, double tolerance) {
    if (!std::isfinite(wanted) || !(tolerance > 0)) return;  // says nothing
    const bool right = std::abs(wanted - found) <= tolerance;
    verdict_ = right && verdict_ != Trust::kWrong ? Trust::kRight : Trust::kWrong;
  }
  /// The terms of a sum are rounded to the half type, one by one: where they cancel, that is what is left.
  void compare(const Row& wanted, const std::vector<float>& found, int64_t row) {
    double most = 0;
    for (const double x : wanted.of) most = std::fmax(most, std::abs(x));
    for (size_t c = 0; c < wanted.of.size(); ++c)
      compare(wanted.of[c], found[static_cast<size_t>(row) * wanted.of.size() + c],
              0.05 * most + 0.03 * std::sqrt(wanted.squares[c]));
  }

  const RaggedAttention& a_;
  int64_t sequence_, head_, queries_, keys_;
  std::vector<float> q_, k_, v_, y_, log_sums_, g_;
  Trust verdict_ = Trust::kUnknown;
};

/// What cuDNN's attention was found to be, problem by problem.
struct Trusted {
  struct Entry {
    Trust trust = Trust::kUnknown;
  };
  Plans<std::tuple_size_v<AttentionKey>, Entry> entries{256};
};

bool suits(const RaggedAttention& a, bool backward) {
  const RaggedAttention::Batch& b = *a.batch;
  constexpr int64_t kWidest = 256;  // for gradients; cuda_plans asks cuDNN
  if (a.width % 8 || a.width > kWidest || a.value_width != a.width) return false;
  // The gradients of queries are sums in an accidental order. Without them the forward pass is of no use either.
  if (a.log_sums && cudnn_deterministic()) return false;
  const auto aligned = [](const void* data, const RaggedAttention::Steps& steps) {
    return alignment_of(data) >= 16 && (steps[0] | steps[1] | steps[2]) % 8 == 0;
  };
  return aligned(a.query, b.query) && aligned(a.key, b.key) && aligned(a.value, b.value) && aligned(a.y, b.y) &&
         (!backward || (aligned(a.grad, b.grad) && aligned(a.grad_query, b.grad_query) &&
                        aligned(a.grad_key, b.grad_key) && aligned(a.grad_value, b.grad_value)));
}

/// By cuDNN, whose first results for a problem are checked, which waits for the GPU.
bool attend_batch(const RaggedAttention& a, bool backward) {
  if (!suits(a, backward)) return false;
  Trust& trust = of_this_thread<Trusted>().entries.get(key_of(a, backward)).trust;
  if (trust == Trust::kWrong) return false;
  if (trust == Trust::kUnknown && (capturing() || current.synchronization_forbidden)) return false;
  {
    const RelaxedCaptureGuard guard(capturing());  // a first run may load kernels
    if (!cudnn_sdpa(a, backward)) return false;
  }
  if (trust == Trust::kUnknown) {
    const Sequence sequence = shortest(a);
    std::deque<Head> heads;
    for (int64_t head = backward ? a.heads - a.heads / a.kv_heads : a.heads - 1; head < a.heads; ++head)
      heads.emplace_back(a, sequence, head);
    const Trust found = backward ? heads.back().judge_backward(heads) : heads.back().judge_forward();
    // Where all sequences are whole, nothing is known yet of the next ones.
    const bool for_good = found == Trust::kWrong || !a.batch->key_lengths || sequence.keys < a.keys / a.sequences;
    if (for_good) trust = found;
    if (found == Trust::kWrong) note_fallback("cuDNN's attention is not what the formula says");
    return found == Trust::kRight;
  }
  return trust == Trust::kRight;
}

// ---- entries of the table -------------------------------------------------------------------------------------------

void ragged_attention(const RaggedAttention& a) {
  if (a.batch) return *a.batch->computed = attend_batch(a, false), void();
  with_float(a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(forward_kernel<T>, blocks_of(a.queries, a.heads), kThreads, 0, Job<T>{{a}, nullptr});
  });
}

void ragged_attention_grad(const RaggedAttention& a) {
  if (a.batch) return *a.batch->computed = attend_batch(a, true), void();
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
