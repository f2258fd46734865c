#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>

#include "lib/scalar.h"
#include "lib/step.h"
#include "reel/types.h"

// The seam between the ops and the machines that carry them out: kernels see Views, never Tensors, and a device is one
// table of function pointers. An op has checked everything before it calls a kernel: shapes agree (operands of a
// pointwise kernel are expanded to the result's shape by stride 0), dtypes agree, indices are in range. Kernels
// neither throw nor keep what they are given.
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

/// C = alpha op(A) op(B) + beta C (+ bias, for each row), row-major, `batch` times at the given distances in elements.
struct Gemm {
  DType dtype;  // kFloat32 or kFloat64
  bool trans_a = false, trans_b = false;
  int64_t m, n, k;
  const void* a;
  int64_t lda;
  const void* b;
  int64_t ldb;
  void* c;
  int64_t ldc;
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  // [n]; only with beta = 0
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  // What only CUDA knows to do along with the product:
  bool relu = false;       // c = max(c, 0) in the end
  void* a_sums = nullptr;  // [m]: the sums of op(a)'s rows; without batches, bias and relu
};

/// The pointwise part of an LSTM or Tree-LSTM cell over `rows` × `hidden`, everything contiguous. The columns input,
/// forget, output, update say where in a row of gates each gate's block begins (child k's forget gate at forget + k
/// hidden).
struct Cell {
  DType dtype;  // kFloat32 or kFloat64
  int64_t rows, hidden;
  int children;
  int64_t input, forget, output, update;
  const void* gates;           // [rows, (3 + children) hidden], pre-activations; unused in backward
  const void* const* child_c;  // children × [rows, hidden]
  void* h;                     // [rows, hidden]
  void* c;                     // [rows, hidden]
  void* activated;             // σ or tanh of each gate, laid out like gates
  void* tanh_c;                // [rows, hidden]
  // Backward: gradients in (nullptr is zero) and out (nullptr is not wanted).
  const void* grad_h;
  const void* grad_c;
  void* grad_gates;
  void* const* grad_child_c;
};

/// One layer of a recurrent net in one direction, but for the product with its input. It takes `steps` steps over rows
/// that lie one step after the other, `total` in all: sizes[t] at step t (`rows` at each where there are no sizes),
/// never more than at step t - 1; a row's state stays as it is while the row takes no part. `reverse` takes the last
/// step first. G = 4 blocks of `hidden` columns for an LSTM (i f g o), 3 for a GRU (r z n), 1 for the others; h has
/// `width` columns, as many as `hidden` unless w_hr projects it. Everything is contiguous, but for rows of y and
/// grad_y.
struct Recurrence {
  enum Kind : uint8_t { kLstm, kGru, kTanh, kRelu } kind;
  DType dtype;  // kFloat32 or kFloat64
  bool reverse;
  int64_t steps, rows, total, hidden, width;
  const int64_t* sizes = nullptr;
  const void* w_hh = nullptr;  // [G hidden, width], or its transpose
  bool w_hh_transposed = false;
  const void* b_hh = nullptr;  // [G hidden] or nullptr
  const void* w_hr = nullptr;  // [width, hidden]
  void* gates = nullptr;       // [total, G hidden]: in what the input gives, out the activated gates
  void* h = nullptr;           // [rows, width]: in the first state, out the last
  void* c = nullptr;           // [rows, hidden], the same, LSTM only
  bool zero_h = false;         // the first h is zero
  void* y = nullptr;           // [total, width], every h; or nullptr
  int64_t y_stride = 0;
  // What backward needs. They are nullptr where nobody will ask, but for `inner` of GRUs and projections.
  void* h_before = nullptr;  // [total, width], h before each step
  void* c_before = nullptr;  // [total, hidden]
  void* inner = nullptr;     // [total, hidden]: a GRU's w_hn h + b_hn; o tanh(c) before it is projected
  void* scratch = nullptr;   // [rows, G hidden]
  // Backward, beside the above. gates and the states before each step are read.
  const void* grad_y = nullptr;    // like y
  void* grad_h = nullptr;          // [rows, width]: in the last state's gradient, out the first's
  void* grad_c = nullptr;          // [rows, hidden], the same
  bool first_wanted = true;        // else grad_h need not become the first state's gradient
  void* grad_gates = nullptr;      // [total, G hidden]: of gates as they came in
  void* grad_hidden = nullptr;     // [total, G hidden]: of w_hh h + b_hh; only for a GRU, where it is another
  void* grad_projected = nullptr;  // [total, width]: of each h, where it is projected
};

/// A convolution over 1 to 3 spatial dimensions. x is [n, in, x_size…], weight [out, in / groups, kernel…] and
/// y [n, out, y_size…], contiguous and not empty:
///   y[b, o, p] = bias[o] + Σ weight[o, c, k] x[b, c, stride p + dilation k - before]
/// over all k and the channels c of o's group, with zeros beyond x's edges, which may be met at the end, too: y_size
/// alone says how far the windows go. The sizes fill the arrays from the end; dimensions in front of them have size,
/// stride and dilation 1, before 0.
enum ConvPart { kConvX, kConvWeight, kConvY };
struct Convolution {
  DType dtype;  // kFloat32 or kFloat64
  int dims;     // spatial ones
  int64_t n, in, out, groups;
  std::array<int64_t, 3> x_size, kernel, y_size, stride, dilation, before;
  std::array<void*, 3> data = {};  // by ConvPart
  const void* bias = nullptr;      // [out]; only where y is computed
};

/// Linear-chain CRFs: `chains` chains of up to `steps` steps over `tags` states, everything contiguous. Step t of chain
/// s is row (offsets ? offsets[s] : s) + t stride of emissions, observed, alpha, norm, from and path. Potentials may be
/// -infinity.
struct Crf {
  DType dtype = kFloat32;  // or kFloat64
  int64_t chains = 0, steps = 0, tags = 0, stride = 0;
  const int64_t* offsets = nullptr;
  const int64_t* lengths = nullptr;  // [chains], at least 1; nullptr: all have `steps`
  const void* emissions = nullptr;   // [rows, tags]
  const void* transitions = nullptr;
  const void* start = nullptr;        // [tags]; nullptr is zero
  const void* end = nullptr;          // the same
  const int64_t* observed = nullptr;  // [rows]
  void* result = nullptr;             // [chains]
  // The forward recursion, kept for backward: log sums over all ways to a state, less the row's largest, and the same
  // without the state's own emission (as they came: before subtraction).
  void* alpha = nullptr;  // [rows, tags]
  void* norm = nullptr;   // [rows, tags]
  // Backward: gradients in and out; all are written, none is added to. start and end may be nullptr.
  const void* grad = nullptr;  // [chains]
  void* grad_emissions = nullptr;
  void* grad_transitions = nullptr;
  void* grad_start = nullptr;
  void* grad_end = nullptr;
  void* scratch = nullptr;  // [2, tags]: backward and decoding
  // Decoding.
  int32_t* from = nullptr;  // [rows, tags]
  int64_t* path = nullptr;  // [rows]; -1 beyond the end of a chain
};

inline constexpr int64_t kCtcMargin = 24;
/// Connectionist temporal classification of `batch` sequences, everything contiguous.
struct Ctc {
  DType dtype = kFloat32;  // or kFloat64
  int64_t batch = 0, steps = 0, classes = 0, blank = 0;
  bool zero_infinity = false;              // gradients of infinite losses are 0, not NaN
  const void* log_probs = nullptr;         // [steps, batch, classes]
  const int64_t* labels = nullptr;         // [batch, most_labels]
  const int64_t* input_lengths = nullptr;  // [batch]
  const int64_t* label_lengths = nullptr;  // [batch]
  int64_t most_labels = 0;
  void* loss = nullptr;  // [batch]
  // As in Crf, for the 2 most_labels + 1 states blank, label, blank, …: [batch, steps, states].
  void* alpha = nullptr;
  void* norm = nullptr;
  void* scratch = nullptr;         // [4, states + kCtcMargin]
  const void* grad = nullptr;      // [batch]
  void* grad_log_probs = nullptr;  // is written
};

/// y = (x - mean) rstd weight + bias with rstd = 1 / √(variance + eps), for x [outer, groups, channels, inner];
/// everything contiguous. Mean and variance belong to a row (outer, group) in row_norm, to a group in channel_norm,
/// where channels is 1.
struct Norm {
  DType dtype;  // kFloat32 or kFloat64
  int64_t outer, groups, channels, inner;
  double eps;
  bool center = true;  // false: the mean is 0 (rows only)
  bool given = false;  // mean and variance are constants, not those of x (channels only)
  const void* x;
  const void* weight;  // [groups, channels], or nullptr: 1
  const void* bias;    // likewise, 0
  void* y;
  double* mean;
  double* variance;  // over n, not n - 1
  // Backward: the gradient in, and out (nullptr is not wanted). Those of weight and bias are float64 zeros, added to;
  // CUDA writes them, in grads_dtype.
  const void* grad_y;
  void* grad_x;
  void* grad_weight;
  void* grad_bias;
  DType grads_dtype = kFloat64;
  bool wide_parameters = false;  // weight and bias are float32 where dtype is a half type
};

/// Windows over x [planes, in…] that make y [planes, out…]. Window o of a dimension has its taps at o stride - padding,
/// dilation apart; those outside are left out. If adaptive, it is [⌊o in / out⌋, ⌈(o + 1) in / out⌉). The caller sees
/// to it that every window of a maximum has an element.
struct Pool {
  int64_t planes;
  std::array<int64_t, 3> in, out, kernel, stride, padding, dilation;
  bool adaptive = false;
  // Of averages, whose dilation is 1: what to divide by.
  bool count_include_pad = true;
  int64_t divisor = 0;  // 0: by the number of elements
};

/// Bags of rows of a matrix, without making the rows: ids[bounds[b]] … ids[bounds[b + 1] - 1] make up bag b.
struct EmbeddingBag {
  DType dtype;     // kFloat32 or kFloat64
  bool max, mean;  // neither: sums
  int64_t bags, width;
  const void* weight;  // `rows` of `width` adjacent elements, `stride` apart
  int64_t rows, stride;
  const int64_t* ids;
  const int64_t* bounds;
  const void* factors;  // for each id, or nullptr
  int64_t padding;      // an id that does not count, or -1
  void* out;            // [bags, width], zeros for empty bags; max: the int64 row of the largest element, 0 for those
  int64_t* bag;         // of each id
  int64_t* count;       // of the ids in each bag that count
};

/// A parameter that an optimizer steps, with everything contiguous.
struct Updated {
  DType dtype;  // of p and g
  void* p;
  const void* g;
  std::array<void*, scalar::kMostStates> states;  // nullptr where the functor has none
  int64_t numel;
};

enum class ReduceOp { kSum, kProd, kMax, kMin, kAny, kAll, kMean };
enum class ScanOp { kSum, kProd, kLogSumExp };
enum class ScatterOp { kReplace, kAdd, kMul, kMax, kMin };
enum class SegmentOp { kSum, kMean, kMax, kMin };
enum class RandomKind {
  kUniform,      // [a, b)
  kNormal,       // mean a, std b
  kInteger,      // integers in [a, b)
  kLogNormal,    // exp of a normal number
  kExponential,  // rate a
  kCauchy,       // median a, half width at half maximum b
  kGeometric     // trials up to the first success of probability a
};

/// Rows of bytes that go from one place to another.
struct BlockCopy {
  const void* from;
  void* to;
  int64_t rows, bytes;         // of a row
  int64_t from_step, to_step;  // bytes from row to row
};

/// Where float32 and float64 are named, CUDA takes half types, too, but in segments, logcumsumexp_grad, linalg, crf,
/// ctc and poisson: it computes in float32 and rounds what it writes.
struct Backend {
  // Memory of a device that is not the CPU, for storage; reel::Error when there is none. cuda::release_block gives the
  // block back.
  void* (*allocate)(size_t bytes, void** block);

  // Any dtype to any dtype, any strides (also negative ones) to any strides; between a device and the host, too.
  void (*copy)(const View& from, const View& to);
  // copy() from another device of the same kind, whose number is `source`.
  void (*copy_from)(int source, const View& from, const View& to);
  // Copies on one device, none of which reads or writes what another one writes: together they cost what one does.
  void (*copy_blocks)(std::span<const BlockCopy> blocks);
  void (*fill)(const View& to, Scalar value);

  // Pointwise, one row a functor of scalar.h. All operands have one dtype: float32, float64 or, where the functor is
  // kIntegers, uint8, int32 and int64. Gradient kernels get nullptr for what the functor's `save` does not name.
  using Unary = void (*)(const void* functor, const View& x, const View& y);
  using UnaryGrad = void (*)(const void* functor, const View& g, const View* x, const View* y, const View& gx);
  using Binary = void (*)(const void* functor, const View& a, const View& b, const View& y);
  using BinaryGrad = void (*)(const void* functor, const View& g, const View* a, const View* b, const View* y,
                              const View& out);
  std::array<Unary, std::tuple_size_v<scalar::UnaryList>> unary;
  std::array<UnaryGrad, std::tuple_size_v<scalar::UnaryList>> unary_grad;
  std::array<Binary, std::tuple_size_v<scalar::BinaryList>> binary;
  std::array<BinaryGrad, std::tuple_size_v<scalar::BinaryList>> grad_a, grad_b;
  // No integers; and nothing but integers.
  using Ternary = void (*)(const void* functor, const View& a, const View& b, const View& c, const View& y);
  std::array<Ternary, std::tuple_size_v<scalar::TernaryList>> ternary;
  std::array<Binary, std::tuple_size_v<scalar::BitList>> bits;
  std::array<Binary, std::tuple_size_v<scalar::CompareList>> compare;  // y is bool; bool operands come as uint8
  void (*where)(const View& condition, const View& a, const View& b, const View& y);  // any dtype

  // Reductions. y has x's rank, with size 1 where x is reduced. kSum, kProd: y is float32, float64 or int64 and x has
  // the same dtype; kMax, kMin: any one dtype; kAny, kAll: bools. CUDA takes half types, too, which it rounds once, and
  // kMean of floats.
  void (*reduce)(ReduceOp op, const View& x, const View& y);
  // The largest (smallest) element along dim and its first position; NaN wins. y: int64 with size 1 at dim.
  void (*arg_reduce)(bool largest, const View& x, int dim, const View& y);
  void (*scan)(ScanOp op, const View& x, int dim, const View& y);  // kLogSumExp: not for integers
  // gx[i] = sum over k >= i of g[k] exp(x[i] - y[k]) for y = scan(kLogSumExp, x); float32 or float64.
  void (*logcumsumexp_grad)(const View& g, const View& x, const View& y, int dim, const View& gx);
  // The largest (smallest) element so far and its last position; NaN wins.
  void (*scan_extreme)(bool largest, const View& x, int dim, const View& values, const View& indices);

  // Ragged rows: x is [n, m], y is [s, m], all contiguous, float32 or float64; segment i is the rows offsets[i] to
  // offsets[i + 1] of x; offsets: int64 [s + 1]. NaN wins; an empty segment gives 0, -infinity, infinity.
  void (*segment_reduce)(SegmentOp op, const View& x, const View& offsets, const View& y);
  // x = the segment's row of y, divided by the segment's length if `mean`.
  void (*segment_spread)(bool mean, const View& y, const View& offsets, const View& x);
  // gx = the segment's row of g where x is its row of y, shared evenly between equals; 0 elsewhere.
  void (*segment_extreme_grad)(const View& g, const View& x, const View& y, const View& offsets, const View& gx);
  void (*segment_softmax)(const View& x, const View& offsets, const View& y);
  void (*segment_softmax_grad)(const View& g, const View& y, const View& offsets, const View& gx);

  // Rows: contiguous [rows, n], float32 or float64.
  void (*softmax)(bool log, const View& x, const View& y);
  void (*softmax_grad)(bool log, const View& g, const View& y, const View& gx);
  // loss[i] = -Σ t log softmax(logits[i]) for t = (1 - smoothing) one_hot(target[i]) + smoothing / n, and probs is the
  // softmax; both are 0 where the target is negative. Losses are divided by the divisor, if any: one number of the
  // losses' type. Half logits, which CUDA takes, have float32 losses and probabilities.
  void (*cross_entropy)(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                        const View& probs);
  // gx[i] = g[i] (probs[i] - t), 0 where the target is negative, divided likewise; g may have any stride.
  void (*cross_entropy_grad)(double smoothing, const View& g, const View& probs, const View& target,
                             const View* divisor, const View& gx);

  // Normalisation.
  void (*row_norm)(const Norm& norm);
  void (*row_norm_grad)(const Norm& norm);
  void (*channel_norm)(const Norm& norm);
  void (*channel_norm_grad)(const Norm& norm);

  // Pooling; contiguous, float32 or float64.
  // indices, if wanted: int64, where in its plane of x the (first) maximum is. NaN wins.
  void (*max_pool)(const Pool& pool, const View& x, const View& y, const View* indices);
  void (*avg_pool)(const Pool& pool, const View& x, const View& y);
  void (*avg_pool_grad)(const Pool& pool, const View& g, const View& gx);  // adds to gx

  // y[…, j, …] = Σ_k weights[j, k] x[…, ids[j, k], …], and its adjoint, which adds to x; contiguous, float32 or
  // float64.
  void (*resample)(const View& x, int dim, const View& ids, const View& weights, const View& y);
  void (*resample_grad)(const View& x, int dim, const View& ids, const View& weights, const View& y);

  void (*gemm)(const Gemm& gemm);
  void (*cell)(const Cell& cell);
  void (*cell_grad)(const Cell& cell);
  void (*recurrence)(const Recurrence& recurrence);
  void (*recurrence_grad)(const Recurrence& recurrence);

  // Computes one part from the other two: y, or the gradient of x from weight and y's gradient, or that of weight from
  // x and y's gradient.
  void (*convolve)(ConvPart wanted, const Convolution& conv);
  // y [n, in * kernel, y_size] is each window of x as a column, and back: x is the sum of what the columns say of it.
  // out, groups and weight are not used.
  void (*unfold)(const Convolution& conv);
  void (*fold)(const Convolution& conv);

  void (*crf)(const Crf& crf);         // result: the log likelihood of what is observed, -log Z if nothing is
  void (*crf_grad)(const Crf& crf);    // of the same
  void (*crf_decode)(const Crf& crf);  // path, and its score as the result
  void (*ctc)(const Ctc& ctc);
  // exp(log_probs) - posterior, PyTorch's gradient: that of log_softmax's input, and passed on by log_softmax
  // unchanged.
  void (*ctc_grad)(const Ctc& ctc);

  // Indexing; ids and index are int64.
  // The first element outside [low, high), through *bad; false when there is none. A GPU says false at once: it reports
  // an Error in op's name when the host next waits for it. So indices may be wrong, and a kernel touches nothing then.
  bool (*find_out_of_range)(const char* op, const View& ids, int64_t low, int64_t high, int64_t* bad);
  void (*index_select)(const View& x, int dim, const View& ids, const View& y);  // ids 1-d; negative ids count back
  void (*index_copy)(const View& y, int dim, const View& ids, const View& from);  // y[…, ids[i], …] = from[…, i, …]
  void (*index_add)(const View& y, int dim, const View& ids, const View& from);
  void (*gather)(const View& x, int dim, const View& index, const View& y);
  // from has index's shape; for kMax and kMin NaN wins
  void (*scatter)(ScatterOp op, const View& y, int dim, const View& index, const View& from);
  void (*embedding_bag)(const EmbeddingBag& job);
  int64_t (*count_nonzero)(const View& x);
  void (*nonzero)(const View& x, const View& positions);  // int64 [count, rank]
  // Stable, along the last dimension; NaN is the largest. x may be strided, results are contiguous and may have a
  // smaller last dimension: the first elements of the order.
  void (*sort)(bool descending, const View& x, const View& values, const View& indices);
  // Where the element number k of the stable order along the last dimension is; with `nan_wins` the first NaN, if any.
  void (*kth)(int64_t k, bool nan_wins, const View& x, const View& indices);
  // The stable order of x's rows, compared from their first element on; x [n, m] is contiguous, order is int64 [n].
  void (*order_rows)(const View& x, const View& order);
  // How many elements of the ascending `sorted` come before each value (with `right`: or are equal to it). Contiguous,
  // of one dtype; sorted is [n] for any values, or [r, n] for [r, m]. NaN is the largest.
  void (*search)(bool right, const View& sorted, const View& values, const View& positions);

  // Of batches of contiguous matrices [b, m, n], float32 or float64. Where there is a return value it is the first
  // matrix for which there is no result, -1 if there is none.
  struct Linalg {
    int64_t (*solve)(const View& a, const View& b, const View& x);  // a x = b; fails where a is singular
    void (*slogdet)(const View& a, const View& sign, const View& logabsdet);
    int64_t (*cholesky)(const View& a, const View& l);
    void (*qr)(const View& a, const View& q, const View& r);  // q: [b, m, min(m, n)] or [b, m, m]
    int64_t (*svd)(const View& a, const View& u, const View& s, const View& vh);
    int64_t (*eigh)(const View& a, const View& values, const View& vectors);        // of the lower triangle
    void (*solve_triangular)(bool upper, bool unit, const View& a, const View& x);  // x: b before, x with a x = b after
  } linalg;

  // Random numbers number offset, offset + 1, … of the stream `seed` (Philox4x32-10), one an element.
  void (*random)(RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y);
  void (*poisson)(uint64_t seed, uint64_t offset, const View& rate, const View& y);  // contiguous, one float type
  // y[r, j] (int64): position i with probability (sums[r, i] - sums[r, i - 1]) / sums[r, -1]. Contiguous, sums float64.
  void (*multinomial)(uint64_t seed, uint64_t offset, const View& sums, const View& y);
  // y = x / (1 - p) where keep, 0 elsewhere; contiguous, keep is bool, P(keep) = 1 - p.
  void (*dropout)(double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep);

  // Optimizer steps, contiguous; float32 or float64. CUDA takes half types, too, whose states are float32. With `ids`
  // (int64 [n]) g is [n, …] and only those rows of p and its states are changed. Of the scalar::kMostStates states
  // those are nullptr that the functor does not have.
  using Update = void (*)(const void* functor, const View& p, const View& g, const View* const* states,
                          const View* ids);
  std::array<Update, std::tuple_size_v<scalar::UpdateList>> update;
  // One step of many parameters at once, of one dtype, which do not overlap.
  using UpdateMany = void (*)(const void* functor, std::span<const Updated> parameters);
  std::array<UpdateMany, std::tuple_size_v<scalar::UpdateList>> update_many;
  // Many gradients (p of each, of one dtype), in place, times factor or, where `norm` (of one element, float32 or
  // float64) is given, times scalar::clip_factor(factor, norm). *found, unless it is nullptr, becomes true if one of
  // their elements was NaN or infinite, and else stays as it is. Both are on the gradients' device.
  void (*rescale)(double factor, const View* norm, std::span<const Updated> gradients, bool* found);
  // The p-norm (p > 0, or infinite) of all elements of many tensors (p of each, of one dtype); y is float32 or float64.
  void (*norm)(double p, std::span<const Updated> tensors, const View& y);
  // Of GPUs, which are not asked whether any target is ignored: that would take a wait. Contiguous targets of a loss in
  // [0, classes), or `ignored`; another one is reported as find_out_of_range does. `kept`, float32 or float64, becomes
  // the number of those that are not ignored, *marked, if wanted, the targets with -1 for those that are.
  void (*read_targets)(const char* op, const View& ids, int64_t classes, int64_t ignored, const View& kept,
                       const View* marked);
  // gx = g / (1 - p) where keep, 0 elsewhere: the same operands as dropout's.
  void (*dropout_grad)(double p, const View& g, const View& keep, const View& gx);
};

/// The CPU table for the best instruction set that this machine has, or the one that the environment variable REEL_CPU
/// (baseline, avx2 or avx512) asks for.
const Backend& cpu_backend();
/// The table of a device that is not the CPU, made the calling thread's current one: what the table's functions work
/// on. Throws one clear Error for one that this build or machine does not have.
const Backend& other_backend(Device device);

namespace cuda {
/// Gives back what Backend::allocate has given. The calling thread's current device stays what it is.
void release_block(void* block);
// Memory of the host that a GPU copies from without anybody waiting (cuda/pinned.cu).
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
bool is_pinned(const void* data);
/// Keeps a block from being used again before the stream has done what it has been given by then.
void record_stream(void* block, const class Stream& stream);
/// Is the calling thread capturing a cuda::Graph?
bool capturing();
/// What has to be called again before the graph that is being captured is replayed: it calls the same kernels with the
/// same tensors in the same order, with new numbers among their arguments; their launches do nothing.
void before_replay(std::function<void()> again);
}  // namespace cuda

/// What takes the place of the CPU's table while lib/core/profile.cpp records.
extern constinit std::atomic<const Backend*> stand_in_for_cpu;

/// The table of a device.
inline const Backend& backend(Device device) {
  static const Backend& cpu = cpu_backend();
  if (device.type != DeviceType::kCPU) [[unlikely]]
    return other_backend(device);
  const Backend* stand_in = stand_in_for_cpu.load(std::memory_order_relaxed);
  return stand_in ? *stand_in : cpu;
}

}  // namespace reel
