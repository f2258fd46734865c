#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/device/view.h"
#include "reel/types.h"

// The seam between the ops and the devices that carry them out: kernels see Views, never Tensors, and a device is one
// table of function pointers. An op has checked everything before it calls a kernel: shapes agree (operands of a
// pointwise kernel are expanded to the result's shape by stride 0), dtypes agree, indices are in range. Kernels
// neither throw nor keep what they are given.
//
// The table declares the argument structs and enums only. Each is defined in its family's header,
// lib/device/kernels/*.h, which the op and the kernels of that family include: a change to one of them rebuilds that
// family alone. For the same reason the pointwise rows are pointers: their number is that of the functors in
// lib/functors' lists.
namespace reel {

struct BlockCopy;        // lib/device/kernels/copy.h
struct Cell;             // lib/device/kernels/cell.h
struct Convolution;      // lib/device/kernels/convolution.h
struct Crf;              // lib/device/kernels/crf.h
struct Ctc;              // lib/device/kernels/ctc.h
struct EmbeddingBag;     // lib/device/kernels/embedding_bag.h
struct Gemm;             // lib/device/kernels/gemm.h
struct GridSample;       // lib/device/kernels/grid_sample.h
struct IdCheck;          // lib/device/kernels/id_check.h
struct Norm;             // lib/device/kernels/norm.h
struct Pooling;          // lib/device/kernels/pool.h
struct RaggedAttention;  // lib/device/kernels/attention.h
struct Recurrence;       // lib/device/kernels/recurrence.h
struct RnnLayer;
struct SampledLogits;  // lib/device/kernels/sampled.h
struct SampledLogitsGrad;
struct Updated;  // lib/device/kernels/update.h
enum ConvPart : int;
enum class RandomKind;  // lib/device/kernels/enums.h
enum class ReduceOp;    // lib/device/kernels/enums.h
enum class ScanOp;      // lib/device/kernels/enums.h
enum class ScatterOp;   // lib/device/kernels/enums.h
enum class SegmentOp;   // lib/device/kernels/enums.h

/// Where float32 and float64 are named, kernels take half types, too, but in segments, ragged attention,
/// logcumsumexp_grad, linalg, crf, ctc, sampled_logits and poisson: they compute in float32 and round each element of a
/// result once. A number of the host that comes beside halves is a float32.
struct KernelTable {
  // Any dtype to any dtype, any strides (also negative ones) to any strides; between a device and the host, too.
  void (*copy)(const View& from, const View& to);
  // copy() from another device of the same kind, whose number is `source`; there is one CPU.
  void (*copy_from)(int source, const View& from, const View& to);
  // Copies on one device, none of which reads or writes what another one writes: together they cost what one does.
  void (*copy_blocks)(std::span<const BlockCopy> blocks);
  void (*fill)(const View& to, Scalar value);

  // Pointwise, one row a functor of lib/functors/pointwise.h: an array as long as the list that is named. All operands
  // have one dtype: float32, float64 or, where the functor is kIntegers, uint8, int32 and int64. Gradient kernels get
  // nullptr for what the functor's `save` does not name.
  using Unary = void (*)(const void* functor, const View& x, const View& y);
  using UnaryGrad = void (*)(const void* functor, const View& g, const View* x, const View* y, const View& gx);
  using Binary = void (*)(const void* functor, const View& a, const View& b, const View& y);
  using BinaryGrad = void (*)(const void* functor, const View& g, const View* a, const View* b, const View* y,
                              const View& out);
  const Unary* unary;           // UnaryList
  const UnaryGrad* unary_grad;  // UnaryList
  const Binary* binary;         // BinaryList
  const BinaryGrad* grad_a;     // BinaryList
  const BinaryGrad* grad_b;     // BinaryList
  using Ternary = void (*)(const void* functor, const View& a, const View& b, const View& c, const View& y);
  const Ternary* ternary;  // TernaryList; no integers
  const Binary* bits;      // BitList; nothing but integers
  const Binary* compare;   // CompareList; y is bool, bool operands may come as uint8
  void (*where)(const View& condition, const View& a, const View& b, const View& y);  // any dtype

  // Reductions. y has x's rank, with size 1 where x is reduced. kSum, kProd: one floating-point dtype, or int64; kMean,
  // kSumOf…, kSumWithoutNaN: one floating-point dtype; kMax, kMin: any one dtype; kAny, kAll: bools; kCountNonzero: x
  // has any dtype, y is int64.
  void (*reduce)(ReduceOp op, const View& x, const View& y);
  // The largest (smallest) element along dim and its first position; NaN wins. y: int64 with size 1 at dim.
  void (*arg_reduce)(bool largest, const View& x, int dim, const View& y);
  void (*scan)(ScanOp op, const View& x, int dim, const View& y);  // kLogSumExp: not for integers
  // gx[i] = sum over k >= i of g[k] exp(x[i] - y[k]) for y = scan(kLogSumExp, x); float32 or float64.
  void (*logcumsumexp_grad)(const View& g, const View& x, const View& y, int dim, const View& gx);
  // The largest (smallest) element so far and its last position; NaN wins.
  void (*cum_extreme)(bool largest, const View& x, int dim, const View& values, const View& indices);

  // Ragged rows: x is [n, m], y is [s, m], all contiguous, float32 or float64; segment i is the rows offsets[i] to
  // offsets[i + 1] of x; offsets: int64 [s + 1]. NaN wins; an empty segment gives 0, -infinity, infinity.
  void (*segment_reduce)(SegmentOp op, const View& x, const View& offsets, const View& y);
  // x = the segment's row of y, divided by the segment's length if `mean`.
  void (*segment_broadcast)(bool mean, const View& y, const View& offsets, const View& x);
  // gx = the segment's row of g where x is its row of y, shared evenly between equals; 0 elsewhere.
  void (*segment_extreme_grad)(const View& g, const View& x, const View& y, const View& offsets, const View& gx);
  void (*segment_softmax)(const View& x, const View& offsets, const View& y);
  void (*segment_softmax_grad)(const View& g, const View& y, const View& offsets, const View& gx);

  // Along dimension dim of contiguous tensors, float32 or float64.
  void (*softmax)(bool log, const View& x, int dim, const View& y);
  void (*softmax_grad)(bool log, const View& g, const View& y, int dim, const View& gx);
  // Logits are contiguous, [n, classes, d…]; row i is those along dimension 1 at place i of [n, d…].
  // loss[i] = -Σ t log softmax(logits[i]) for t = (1 - smoothing) one_hot(target[i]) + smoothing / classes; 0 where
  // the target is negative. Losses are divided by the divisor, if any: one number of the losses' type. Half logits have
  // float32 losses. norms [rows, 2] of the losses' type, if wanted, are what makes the softmax again: the logits'
  // maximum m, and 1 / Σ exp(logits - m). With `check`: true, where the device can say so, if a target is out of range.
  bool (*cross_entropy)(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                        const View* norms, IdCheck* check);
  // gx[i] = g[i] (softmax(logits[i]) - t), 0 where the target is negative, divided likewise; g may have any stride.
  void (*cross_entropy_grad)(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                             const View* divisor, const View& gx);

  // Normalisation.
  void (*row_norm)(const Norm& norm);
  void (*row_norm_grad)(const Norm& norm);
  void (*channel_norm)(const Norm& norm);
  void (*channel_norm_grad)(const Norm& norm);
  // Each running statistic becomes running + momentum (now - running), where now is the mean, or the variance times
  // `unbiased`: float64 [n]; the others are of any floating dtype and stride.
  void (*move_running)(const View& mean, const View& variance, double unbiased, double momentum,
                       const View& running_mean, const View& running_var);

  // Pooling; contiguous, float32 or float64.
  // indices, if wanted: int64, where in its plane of x (of in… alone) the (first) maximum is. NaN wins.
  void (*max_pool)(const Pooling& pool, const View& x, const View& y, const View* indices);
  void (*max_pool_grad)(const Pooling& pool, const View& g, const View& indices, const View& gx);
  void (*avg_pool)(const Pooling& pool, const View& x, const View& y);
  void (*avg_pool_grad)(const Pooling& pool, const View& g, const View& gx);  // adds to gx

  // y[…, j, …] = Σ_k weights[j, k] x[…, ids[j, k], …], and its adjoint, which adds to x; contiguous, float32 or
  // float64.
  void (*interpolate)(const View& x, int dim, const View& ids, const View& weights, const View& y);
  void (*interpolate_grad)(const View& x, int dim, const View& ids, const View& weights, const View& y);
  // Returns false, with nothing written, where the device has no kernel for it.
  bool (*grid_sample)(const GridSample& job);
  // Adds to gx and writes grid_grad, where they are wanted. It is called where grid_sample() has returned true.
  void (*grid_sample_grad)(const GridSample& job);

  void (*gemm)(const Gemm& gemm);
  // C = op(A) op(B) of int64, int32 or uint8, which wrap; alpha is 1, beta 0, and there is no bias and no ReLU.
  void (*integer_gemm)(const Gemm& gemm);

  // y[b, i, j] is the p-norm (p >= 0, or infinite) of x1[b, i] - x2[b, j] for x1 [b, m, d] and x2 [b, n, d];
  // contiguous, float32 or float64. A one-dimensional y, for a batch of one in which x2 is x1, has the pairs with i < j
  // alone. Returns false, with nothing written, where the device has no kernel for it.
  bool (*cdist)(double p, const View& x1, const View& x2, const View& y);
  // gx is the gradient of x1 for the gradient g of y, of a one-dimensional y that of both. It is called where cdist()
  // has returned true.
  void (*cdist_grad)(double p, const View& g, const View& x1, const View& x2, const View& y, const View& gx);

  void (*cell)(const Cell& cell);
  void (*cell_grad)(const Cell& cell);
  // Computes all steps of a recurrent layer in one direction, but for the product with its input; and their gradients.
  void (*recurrence)(const Recurrence& recurrence);
  void (*recurrence_grad)(const Recurrence& recurrence);
  // A device may have a library that computes a whole recurrent layer faster than `recurrence` does. Returns the number
  // of bytes of the layer's reserve_space, or -1 where the library does not support the layer; the arguments need
  // neither outputs nor gradients. rnn_layer and rnn_layer_grad are called for supported layers only.
  int64_t (*rnn_layer_workspace)(const RnnLayer& layer);
  // Writes y, h, c and reserve_space. Returns false, with nothing written, if the library refuses the layer after all.
  bool (*rnn_layer)(const RnnLayer& layer);
  // Writes the gradients of a layer that rnn_layer has computed. Returns false likewise.
  bool (*rnn_layer_grad)(const RnnLayer& layer);
  void (*ragged_attention)(const RaggedAttention& attention);
  void (*ragged_attention_grad)(const RaggedAttention& attention);

  // Computes one part from the other two: y, or the gradient of x from weight and y's gradient, or that of weight from
  // x and y's gradient. False, with the part undefined, where the device has no kernel for a part that is
  // channels_last.
  bool (*convolve)(ConvPart wanted, const Convolution& conv);
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

  void (*sampled_logits)(const SampledLogits& job);
  void (*sampled_logits_grad)(const SampledLogitsGrad& job);

  // Indexing; ids and index are int64.
  // The first element outside [low, high), through *bad; false when there is none. A GPU says false at once: it reports
  // an Error in op's name at the next synchronization. So indices may be wrong, and a kernel then touches no memory.
  bool (*check_bounds)(const char* op, const View& ids, int64_t low, int64_t high, int64_t* bad);
  // ids 1-d; negative ids count back. With `check` (otherwise nullptr) true if one is out of range: a GPU says false.
  bool (*index_select)(const View& x, int dim, const View& ids, const View& y, IdCheck* check);
  void (*index_copy)(const View& y, int dim, const View& ids, const View& from);  // y[…, ids[i], …] = from[…, i, …]
  void (*index_add)(const View& y, int dim, const View& ids, const View& from);  // the sum of bools is their or
  bool (*gather)(const View& x, int dim, const View& index, const View& y, IdCheck* check);  // the same
  // from has index's shape; for kMax and kMin NaN wins; the sum of bools is their or
  void (*scatter)(ScatterOp op, const View& y, int dim, const View& index, const View& from);
  void (*embedding_bag)(const EmbeddingBag& job);
  int64_t (*count_nonzero)(const View& x);
  void (*nonzero)(const View& x, const View& positions);  // int64 [count, rank]
  // Stable, along the last dimension; NaN is the largest. x may be strided, results are contiguous and may have a
  // smaller last dimension: the first elements of the order.
  void (*sort)(bool descending, const View& x, const View& values, const View& indices);
  // Where the element number k of the stable order along the last dimension is; with `nan_wins` the first NaN, if any.
  void (*kthvalue)(int64_t k, bool nan_wins, const View& x, const View& indices);
  // The stable order of x's rows, compared from their first element on; x [n, m] is contiguous, order is int64 [n].
  void (*lexsort)(const View& x, const View& order);
  // How many elements of the ascending `sorted` come before each value (with `right`: or are equal to it). Contiguous,
  // of one dtype; sorted is [n] for any values, or [r, n] for [r, m]. NaN is the largest.
  void (*searchsorted)(bool right, const View& sorted, const View& values, const View& positions);

  // Of batches of contiguous matrices [b, m, n], float32 or float64. Where there is a return value it is the first
  // matrix for which there is no result, -1 if there is none.
  struct Linalg {
    int64_t (*solve)(const View& a, const View& b, const View& x);  // a x = b; fails where a is singular
    void (*slogdet)(const View& a, const View& sign, const View& logabsdet);
    int64_t (*cholesky)(const View& a, const View& l);
    void (*qr)(const View& a, const View& q, const View& r);  // q: [b, m, min(m, n)] or [b, m, m]
    // Without u and vh, or vectors, the values alone. eigh reads the lower triangle.
    int64_t (*svd)(const View& a, const View* u, const View& s, const View* vh);
    int64_t (*eigh)(const View& a, const View& values, const View* vectors);
    void (*solve_triangular)(bool upper, bool unit, const View& a, const View& x);  // x: b before, x with a x = b after
  } linalg;

  // Random numbers number offset, offset + 1, … of the stream `seed` (Philox4x32-10), one an element.
  void (*random)(RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y);
  void (*poisson)(uint64_t seed, uint64_t offset, const View& rate, const View& y);  // contiguous, one float type
  // y[r, j] (int64): position i with probability (sums[r, i] - sums[r, i - 1]) / sums[r, -1]. Contiguous, sums float64.
  void (*multinomial)(uint64_t seed, uint64_t offset, const View& sums, const View& y);
  // y = x / (1 - p) where keep, 0 elsewhere; contiguous, keep is bool, P(keep) = 1 - p.
  void (*dropout)(double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep);

  // Optimizer steps, contiguous; float32 or float64; the states of half parameters are float32. With `ids` (int64
  // [n]) g is [n, …] and only those rows of p and its states are changed. Of the functors::kMaxStates states
  // those are nullptr that the functor does not have.
  using Update = void (*)(const void* functor, const View& p, const View& g, const View* const* states,
                          const View* ids);
  const Update* update;  // UpdateList of lib/functors/update.h
  // One step of many parameters at once, of one dtype, which do not overlap.
  using MultiTensorUpdate = void (*)(const void* functor, std::span<const Updated> parameters);
  const MultiTensorUpdate* multi_tensor_update;  // UpdateList
  // Many gradients (p of each, of one dtype), in place, times factor or, where `norm` (of one element, float32 or
  // float64) is given, times functors::clip_factor(factor, norm). *found, unless it is nullptr, becomes true if one of
  // their elements was NaN or infinite, and else stays as it is. Both are on the gradients' device.
  void (*multi_tensor_scale)(double factor, const View* norm, std::span<const Updated> gradients, bool* found);
  // The p-norm (p > 0, or infinite) of all elements of many tensors (p of each, of one dtype); y is float32 or float64.
  void (*multi_tensor_norm)(double p, std::span<const Updated> tensors, const View& y);
  // Contiguous targets of a loss in [0, classes), or `ignored`; another one is reported as check_bounds does. `kept`,
  // float32 or float64, becomes the number of those that are not ignored, *marked, if wanted, the targets with -1 for
  // those that are.
  bool (*read_targets)(const char* op, const View& ids, int64_t classes, int64_t ignored, const View& kept,
                       const View* marked, int64_t* bad);
  // gx = g / (1 - p) where keep, 0 elsewhere: the same operands as dropout's.
  void (*dropout_grad)(double p, const View& g, const View& keep, const View& gx);
};

/// Calls visit(name, get) for each kernel, where get(table) is a reference to its slot and the type of get is that
/// slot's alone, or visit(name, get, static_cast<std::tuple<Functor...>*>(nullptr)) where the slot points to a row of
/// kernels, one a functor. Lists is functors::Lists of lib/functors/lists.h: this header does not include the
/// functors.
template <class Lists, class Visit>
void for_each_kernel(const Visit& visit) {
  // clang-format off
#define KERNEL(slot) [&] { visit(#slot, [](auto& table) -> auto& { return table.slot; }); }
#define KERNELS(slot, List) \
  [&] { visit(#slot, [](auto& table) -> auto& { return table.slot; }, static_cast<typename Lists::List*>(nullptr)); }
  const auto each = [](const auto&... kernel) {
    static_assert(sizeof...(kernel) * sizeof(void (*)()) == sizeof(KernelTable),
                  "each slot of KernelTable has a line in for_each_kernel");
    (kernel(), ...);
  };
  each(
      KERNEL(copy), KERNEL(copy_from), KERNEL(copy_blocks), KERNEL(fill),
      KERNELS(unary, Unary), KERNELS(unary_grad, Unary), KERNELS(binary, Binary), KERNELS(grad_a, Binary),
      KERNELS(grad_b, Binary), KERNELS(ternary, Ternary), KERNELS(bits, Bit), KERNELS(compare, Compare), KERNEL(where),
      KERNEL(reduce), KERNEL(arg_reduce), KERNEL(scan), KERNEL(logcumsumexp_grad), KERNEL(cum_extreme),
      KERNEL(segment_reduce), KERNEL(segment_broadcast), KERNEL(segment_extreme_grad), KERNEL(segment_softmax),
      KERNEL(segment_softmax_grad),
      KERNEL(softmax), KERNEL(softmax_grad), KERNEL(cross_entropy), KERNEL(cross_entropy_grad),
      KERNEL(row_norm), KERNEL(row_norm_grad), KERNEL(channel_norm), KERNEL(channel_norm_grad),
      KERNEL(move_running), KERNEL(max_pool), KERNEL(max_pool_grad), KERNEL(avg_pool), KERNEL(avg_pool_grad),
      KERNEL(interpolate), KERNEL(interpolate_grad), KERNEL(grid_sample), KERNEL(grid_sample_grad),
      KERNEL(gemm), KERNEL(integer_gemm), KERNEL(cdist), KERNEL(cdist_grad),
      KERNEL(cell), KERNEL(cell_grad), KERNEL(recurrence), KERNEL(recurrence_grad),
      KERNEL(rnn_layer_workspace), KERNEL(rnn_layer), KERNEL(rnn_layer_grad),
      KERNEL(ragged_attention), KERNEL(ragged_attention_grad),
      KERNEL(convolve), KERNEL(unfold), KERNEL(fold),
      KERNEL(crf), KERNEL(crf_grad), KERNEL(crf_decode), KERNEL(ctc), KERNEL(ctc_grad),
      KERNEL(sampled_logits), KERNEL(sampled_logits_grad),
      KERNEL(check_bounds), KERNEL(index_select), KERNEL(index_copy), KERNEL(index_add), KERNEL(gather),
      KERNEL(scatter), KERNEL(embedding_bag), KERNEL(count_nonzero), KERNEL(nonzero),
      KERNEL(sort), KERNEL(kthvalue), KERNEL(lexsort), KERNEL(searchsorted),
      KERNEL(linalg.solve), KERNEL(linalg.slogdet), KERNEL(linalg.cholesky), KERNEL(linalg.qr), KERNEL(linalg.svd),
      KERNEL(linalg.eigh), KERNEL(linalg.solve_triangular),
      KERNEL(random), KERNEL(poisson), KERNEL(multinomial), KERNEL(dropout), KERNEL(dropout_grad),
      KERNELS(update, Update), KERNELS(multi_tensor_update, Update), KERNEL(multi_tensor_scale),
      KERNEL(multi_tensor_norm), KERNEL(read_targets));
  // clang-format on
#undef KERNEL
#undef KERNELS
}

/// The CPU table for the best instruction set that this machine has, or the one that the environment variable REEL_CPU
/// (baseline, avx2 or avx512) selects.
const KernelTable& cpu_kernels();
/// The table of a device that is not the CPU, made the calling thread's current one: what the table's functions work
/// on. Throws one clear Error for one that this build or machine does not have.
const KernelTable& device_kernels(Device device);

/// The table that ops on the CPU use: nullptr before the first op, cpu_kernels(), or what takes its place while
/// lib/tensor/profile.cpp records.
extern constinit std::atomic<const KernelTable*> current_cpu_kernels;

/// The table of a device.
inline const KernelTable& kernels_on(Device device) {
  if (device.type != DeviceType::kCPU) [[unlikely]]
    return device_kernels(device);
  const KernelTable* const current = current_cpu_kernels.load(std::memory_order_acquire);
  return current ? *current : cpu_kernels();
}

}  // namespace reel
