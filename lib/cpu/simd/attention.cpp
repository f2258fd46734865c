#include <algorithm>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/batch.h"
#include "lib/device/kernels/attention.h"
#include "lib/device/kernels/gemm.h"
#include "reel/threads.h"

// Attention within sequences: the scores of some queries of some heads of one sequence stay in the cache while they
// become weights and meet the values. They lie key by key, with the queries in the lanes of vectors, so that no softmax
// has to combine lanes. Backward computes the weights anew from the log sums that forward leaves, so that nothing is
// kept that grows with the square of a length.
namespace reel::cpu::REEL_ISA {
namespace {

constexpr int64_t kBlock = 32 << 10;    // scores at a time
constexpr int64_t kFewestRows = 16;     // of a block, however many keys there are
constexpr int64_t kPartWork = 1 << 20;  // multiplications; some ten microseconds
constexpr DType dtype_of_size(size_t size) { return size == 4 ? kFloat32 : kFloat64; }

/// `count` heads from `head` on, of queries and of keys, and the rows first … first + rows of the queries.
struct Block {
  int64_t queries, keys;  // where the sequence begins
  int64_t length, seen;   // of the keys; how many of them any query of the block attends to
  int64_t head, kv_head, count;
  int64_t first, rows;
  bool causal;
};

template <class T>
struct Attention {
  const RaggedAttention& a;
  int64_t share = a.heads / a.kv_heads;

  const T* query(const Block& b) const { return row_of(a.query, b.queries + b.first, b.head, a.heads, a.width); }
  const T* key(const Block& b) const { return row_of(a.key, b.keys, b.kv_head, a.kv_heads, a.width); }
  const T* value(const Block& b) const { return row_of(a.value, b.keys, b.kv_head, a.kv_heads, a.value_width); }
  template <class P>
  static auto* row_of(P* data, int64_t row, int64_t head, int64_t heads, int64_t width) {
    using Element = std::conditional_t<std::is_const_v<P>, const T, T>;
    return static_cast<Element*>(data) + (row * heads + head) * width;
  }

  /// Rows of heads lie `heads * width` apart.
  struct Matrix {
    const T* data;
    int64_t heads, width;
    bool transposed = false;
  };
  Matrix queries(const Block& b) const { return {query(b), a.heads, a.width}; }
  Matrix keys(const Block& b) const { return {key(b), a.kv_heads, a.width}; }
  Matrix values(const Block& b) const { return {value(b), a.kv_heads, a.value_width}; }
  Matrix grads(const Block& b) const {
    return {row_of(a.grad, b.queries + b.first, b.head, a.heads, a.value_width), a.heads, a.value_width};
  }

  void multiply(const Block& b, Gemm g) const {
    g.dtype = dtype_of_size(sizeof(T));
    g.batch = b.count;
    g.lda = std::max<int64_t>(g.lda, 1), g.ldb = std::max<int64_t>(g.ldb, 1), g.ldc = std::max<int64_t>(g.ldc, 1);
    cpu_kernels().gemm(g);
  }
  /// scores [count, seen, rows] = scale x yᵀ, for x of keys and y of queries.
  void products(const Block& b, const Matrix& x, const Matrix& y, double scale, T* scores) const {
    multiply(b, {.dtype = kFloat32,
                 .trans_b = true,
                 .m = b.seen,
                 .n = b.rows,
                 .k = x.width,
                 .a = x.data,
                 .lda = x.heads * x.width,
                 .b = y.data,
                 .ldb = y.heads * y.width,
                 .c = scores,
                 .ldc = b.rows,
                 .alpha = scale,
                 .stride_a = x.width,
                 .stride_b = y.width,
                 .stride_c = b.rows * b.seen});
  }
  /// Rows of `heads` heads: for each query the sum of x's rows, of keys, by its weights, or the other way round
  /// (added).
  void combine(const Block& b, const T* weights, bool for_queries, const Matrix& x, T* to, int64_t heads,
               bool add) const {
    multiply(b, {.dtype = kFloat32,
                 .trans_a = for_queries,
                 .m = for_queries ? b.rows : b.seen,
                 .n = x.width,
                 .k = for_queries ? b.seen : b.rows,
                 .a = weights,
                 .lda = b.rows,
                 .b = x.data,
                 .ldb = x.heads * x.width,
                 .c = to,
                 .ldc = heads * x.width,
                 .beta = add ? 1. : 0.,
                 .stride_a = b.rows * b.seen,
                 .stride_b = x.width,
                 .stride_c = x.width});
  }

  /// The queries of one vector: `row`, its first one's place in the block; `n` of the lanes are queries.
  struct Lanes {
    int64_t head, row, n;
    Batch<T> number;
    Lanes(int64_t head_, int64_t row_, int64_t rows) : head(head_), row(row_), n(std::min(kWidth<T>, rows - row_)) {
      alignas(Arch::alignment()) T numbers[kWidth<T>];
      for (int64_t i = 0; i < kWidth<T>; ++i) numbers[i] = T(i);
      number = Batch<T>::load_aligned(numbers);
    }
    /// x where the queries attend to key j, `beyond` elsewhere.
    Batch<T> seen(const Block& b, int64_t j, const Batch<T>& x, const Batch<T>& beyond) const {
      if (!b.causal) return x;
      return select(number >= Batch<T>(T(std::clamp<int64_t>(j - b.first - row, 0, kWidth<T>))), x, beyond);
    }
  };
  /// visit(lanes, first of their scores, which are b.rows apart)
  template <class Visit>
  static void for_each_lanes(const Block& b, T* scores, const Visit& visit) {
    for (int64_t h = 0; h < b.count; ++h)
      for (int64_t row = 0; row < b.rows; row += kWidth<T>)
        visit(Lanes(b.head + h, row, b.rows), scores + h * b.rows * b.seen + row);
  }
  T& log_sum(const Block& b, int64_t row, int64_t head) const {
    return static_cast<T*>(a.log_sums)[(b.queries + b.first + row) * a.heads + head];
  }

  void forward(const Block& b, T* scores) const {
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    T* const y = row_of(a.y, b.queries + b.first, b.head, a.heads, a.value_width);
    if (b.seen == 0) {
      for (int64_t row = 0; row < b.rows; ++row) {
        std::fill_n(y + row * a.heads * a.value_width, b.count * a.value_width, T(0));
        if (a.log_sums) std::fill_n(&log_sum(b, row, b.head), b.count, kLowest);
      }
      return;
    }
    products(b, keys(b), queries(b), a.scale, scores);
    for_each_lanes(b, scores, [&](const Lanes& lanes, T* x) {
      const int64_t n = lanes.n, step = b.rows;
      const Batch<T> lowest(kLowest);
      Batch<T> top = lowest, sum(T(0));
      for (int64_t j = 0; j < b.seen; ++j) {
        const Batch<T> v = lanes.seen(b, j, load_up_to(x + j * step, n), lowest);
        top = select((v > top) | (v != v), v, top);
      }
      for (int64_t j = 0; j < b.seen; ++j) {
        const Batch<T> e = exp(lanes.seen(b, j, load_up_to(x + j * step, n), lowest) - top);
        sum += e;
        store_up_to(x + j * step, e, n);
      }
      const Batch<T> scale = Batch<T>(T(1)) / sum;
      for (int64_t j = 0; j < b.seen; ++j) store_up_to(x + j * step, load_up_to(x + j * step, n) * scale, n);
      if (a.log_sums) store_strided(&log_sum(b, lanes.row, lanes.head), a.heads, top + log(sum), n);
    });
    combine(b, scores, true, values(b), y, a.heads, false);
  }

  /// grad · y of a query.
  T difference(const Block& b, int64_t row, int64_t head) const {
    const T* const g = row_of(a.grad, b.queries + b.first + row, head, a.heads, a.value_width);
    const T* const y = row_of(static_cast<const void*>(a.y), b.queries + b.first + row, head, a.heads, a.value_width);
    Batch<T> sum(T(0));
    for (int64_t i = 0; i < a.value_width; i += kWidth<T>)
      sum = fma(load_up_to(g + i, a.value_width - i), load_up_to(y + i, a.value_width - i), sum);
    return hadd(sum);
  }

  /// `add`: to what earlier blocks have written to the gradients of keys and values.
  void backward(const Block& b, T* weights, T* grad_weights, bool add) const {
    T* const grad_query = row_of(a.grad_query, b.queries + b.first, b.head, a.heads, a.width);
    if (b.seen == 0) {
      for (int64_t row = 0; row < b.rows; ++row)
        std::fill_n(grad_query + row * a.heads * a.width, b.count * a.width, T(0));
      return;
    }
    products(b, keys(b), queries(b), a.scale, weights);
    products(b, values(b), grads(b), 1, grad_weights);
    for_each_lanes(b, weights, [&](const Lanes& lanes, T* x) {
      const int64_t n = lanes.n, step = b.rows;
      T* const gx = grad_weights + (x - weights);
      alignas(Arch::alignment()) T differences[kWidth<T>] = {};
      for (int64_t i = 0; i < n; ++i) differences[i] = difference(b, lanes.row + i, lanes.head);
      const Batch<T> mean = Batch<T>::load_aligned(differences), scale(T(a.scale)), zero(T(0));
      const Batch<T> shift = load_strided(&log_sum(b, lanes.row, lanes.head), a.heads, n);
      for (int64_t j = 0; j < b.seen; ++j) {
        const Batch<T> p = lanes.seen(b, j, exp(load_up_to(x + j * step, n) - shift), zero);
        store_up_to(x + j * step, p, n);
        store_up_to(gx + j * step, lanes.seen(b, j, p * (load_up_to(gx + j * step, n) - mean) * scale, zero), n);
      }
    });
    combine(b, grad_weights, true, keys(b), grad_query, a.heads, false);
    combine(b, grad_weights, false, queries(b), row_of(a.grad_key, b.keys, b.kv_head, a.kv_heads, a.width), a.kv_heads,
            add);
    combine(b, weights, false, grads(b), row_of(a.grad_value, b.keys, b.kv_head, a.kv_heads, a.value_width), a.kv_heads,
            add);
  }

  int64_t rows_of_block(int64_t queries, int64_t keys) const {
    return std::min(queries, std::max(kFewestRows, kBlock / std::max<int64_t>(keys, 1)));
  }

  /// run(block, scratch, is the first of its keys) for all blocks, whose scores are at most `scratch` long.
  template <class Run, class Clear>
  void for_each_block(int buffers, const Run& run, const Clear& clear) const {
    double work = 0;
    for (int64_t s = 0; s < a.sequences; ++s)
      work += static_cast<double>(a.query_offsets[s + 1] - a.query_offsets[s]) *
              static_cast<double>(a.key_offsets[s + 1] - a.key_offsets[s]);
    work *= static_cast<double>(a.heads * (a.width + a.value_width) * buffers);
    const int64_t units = a.sequences * a.kv_heads;
    const int64_t parts = std::max<int64_t>(1, static_cast<int64_t>(std::min(work / kPartWork, 1e6)));
    parallel_for(units, std::max<int64_t>(1, (units + parts - 1) / parts), [&](int64_t begin, int64_t end) {
      int64_t room = 0;
      for (int64_t s = begin / a.kv_heads; s * a.kv_heads < end; ++s) {
        const int64_t l = a.query_offsets[s + 1] - a.query_offsets[s], n = a.key_offsets[s + 1] - a.key_offsets[s];
        room = std::max(room, std::max(rows_of_block(l, n) * n, std::min(l * n * a.kv_heads, kBlock)));
      }
      const Scratch scratch(static_cast<size_t>(buffers * room) * sizeof(T));
      T* const first = scratch.data<T>();
      for (int64_t unit = begin; unit < end;) {
        const int64_t s = unit / a.kv_heads, kv_head = unit % a.kv_heads;
        Block b{.queries = a.query_offsets[s],
                .keys = a.key_offsets[s],
                .length = a.key_offsets[s + 1] - a.key_offsets[s],
                .seen = 0,
                .head = kv_head * share,
                .kv_head = kv_head,
                .count = 1,
                .first = 0,
                .rows = 0,
                .causal = a.causal};
        const int64_t queries = a.query_offsets[s + 1] - b.queries;
        if (share == 1 && queries * b.length > 0)  // short sequences: all heads at once
          b.count = std::clamp(kBlock / (queries * b.length), int64_t{1}, std::min(end - unit, a.kv_heads - kv_head));
        unit += b.count;
        const int64_t step = rows_of_block(queries, b.length);
        const bool one = queries > 0 && share == 1 && step == queries && (!a.causal || queries >= b.length);
        if (!one) clear(b);
        for (int64_t h = 0; h < share; ++h, ++b.head)
          for (b.first = 0; b.first < queries; b.first += step) {
            b.rows = std::min(step, queries - b.first);
            b.seen = a.causal ? std::min(b.length, b.first + b.rows) : b.length;
            run(b, first, first + room, !one);
          }
      }
    });
  }

  void clear_keys(const Block& b) const {
    for (int64_t row = 0; row < b.length; ++row) {
      std::fill_n(row_of(a.grad_key, b.keys + row, b.kv_head, a.kv_heads, a.width), b.count * a.width, T(0));
      std::fill_n(row_of(a.grad_value, b.keys + row, b.kv_head, a.kv_heads, a.value_width), b.count * a.value_width,
                  T(0));
    }
  }
};

template <class T>
void forward(const RaggedAttention& a) {
  const Attention<T> attention{a};
  attention.for_each_block(
      1, [&](const Block& b, T* scores, T*, bool) { attention.forward(b, scores); }, [](const Block&) {});
}
template <class T>
void backward(const RaggedAttention& a) {
  const Attention<T> attention{a};
  attention.for_each_block(
      2, [&](const Block& b, T* weights, T* grads, bool add) { attention.backward(b, weights, grads, add); },
      [&](const Block& b) { attention.clear_keys(b); });
}

}  // namespace

void install_attention(KernelTable& table) {
  table.ragged_attention = [](const RaggedAttention& a) {
    if (a.batch) return *a.batch->computed = false, void();
    a.dtype == kFloat32 ? forward<float>(a) : forward<double>(a);
  };
  table.ragged_attention_grad = [](const RaggedAttention& a) {
    if (a.batch) return *a.batch->computed = false, void();
    a.dtype == kFloat32 ? backward<float>(a) : backward<double>(a);
  };
}

}  // namespace reel::cpu::REEL_ISA
