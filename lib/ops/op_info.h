// This file has the table of ops, which says what modes have to know of each.
#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include "lib/autograd/autocast.h"
#include "lib/base/op_modes.h"

namespace reel {

/// The dtype in which an op with inputs of a half type is computed.
enum class Compute : uint8_t {
  kInput,   ///< The op's kernels take half types, and round once.
  kFloat32  ///< Half inputs are cast to float32 and results back: for ops that are made of several, which would round
            ///< each result, or whose derivatives are.
};

/// A Trace tells what is written down of an op while a model is traced.
enum class Trace : uint8_t {
  kNode,    ///< The op, as one node.
  kParts,   ///< The ops that it is made of.
  kRefused  ///< An Error with the reason: for ops that read more than their inputs, or change what the caller holds.
};

/// A BatchPolicy tells which calls of an op may be one in batching::map.
enum class BatchPolicy : uint8_t {
  kNo,
  kRows,            ///< Calls are one whose inputs that have no rows are the same tensors.
  kRowsByWeight,    ///< As kRows, if the first input is a matrix and the last a vector or matrix that requires grad.
  kRowsBeforeRank,  ///< As kRows, if the first input has more dimensions than the first attribute, a list, has sizes.
  kRowsOnGpu        ///< As kRows, if the first input is on a GPU, where a launch takes longer than the op.
};

/// An OpInfo says of an op what is not its mathematics: how the modes of a thread treat it.
struct OpInfo {
  const char* name;  ///< The name in errors, traces and profiles; a part in parentheses tells forms of an op apart.
  CastPolicy autocast = CastPolicy::kNone;
  Compute compute = Compute::kInput;
  Trace trace = Trace::kNode;
  /// Why onnx::save does not export it; nullptr if it does, or its parts are.
  const char* not_exported = nullptr;
  BatchPolicy batch = BatchPolicy::kNo;
  uint32_t rows = 0;  ///< The inputs, as bits, along whose dimension 0 the rows of batched calls are joined.

  constexpr bool has_rows(size_t input) const { return rows >> std::min<size_t>(input, 31) & 1; }
  /// Returns the modes that concern the op, as bits.
  constexpr uint8_t modes() const {
    return static_cast<uint8_t>((autocast != CastPolicy::kNone ? OpModes::kAutocast : 0) |
                                (batch != BatchPolicy::kNo ? OpModes::kBatching : 0) |
                                (trace != Trace::kParts ? OpModes::kReporting : 0) |
                                (trace != Trace::kParts ? OpModes::kTracing : 0));
  }
};

namespace detail {
inline constexpr auto kToHalf = CastPolicy::kHalf, kToFloat32 = CastPolicy::kFloat32, kToWidest = CastPolicy::kWidest;
inline constexpr auto kInFloat32 = Compute::kFloat32;
inline constexpr auto kParts = Trace::kParts, kRefused = Trace::kRefused;
inline constexpr auto* kNoDecompositions = "ONNX has no decompositions of matrices";
inline constexpr auto* kNoGamma = "ONNX has no gamma function";
inline constexpr auto* kNoExtremes = "ONNX has no cumulative extremes";
inline constexpr auto* kNoBits = "opset 17 has no bitwise ops; of bools they are logical ones, which are exported";
inline constexpr auto* kNoShape = "the shape depends on values";
inline constexpr auto* kNoSearch = "ONNX has no binary search";
inline constexpr auto* kNoCrf = "ONNX has no CRF; export the scores, which are its emissions, and decode them outside";
inline constexpr auto* kNoLengths = "segments of different lengths have no counterpart";
inline constexpr auto* kNoPacking = "packed lists have no counterpart; pad the sequences";
inline constexpr auto* kNoTraining = "it is in training mode, in which it changes its running statistics";
inline constexpr auto* kNoLoss = "a loss with a kernel of its own";
}  // namespace detail

/// The table of the ops that `call` runs, by families. Ops that are made of others, and need nothing of the above, have
/// no line.
inline constexpr auto kOps = [] {
  using namespace detail;
  return std::to_array<OpInfo>({
      // pointwise.cpp
      {.name = "neg"},
      {.name = "abs"},
      {.name = "sign"},
      {.name = "exp", .autocast = kToFloat32},
      {.name = "expm1", .autocast = kToFloat32},
      {.name = "log", .autocast = kToFloat32},
      {.name = "log1p", .autocast = kToFloat32},
      {.name = "log2", .autocast = kToFloat32},
      {.name = "log10", .autocast = kToFloat32},
      {.name = "exp2"},
      {.name = "sqrt"},
      {.name = "rsqrt", .autocast = kToFloat32},
      {.name = "square"},
      {.name = "reciprocal", .autocast = kToFloat32},
      {.name = "sin"},
      {.name = "cos"},
      {.name = "tan", .autocast = kToFloat32},
      {.name = "asin", .autocast = kToFloat32},
      {.name = "acos", .autocast = kToFloat32},
      {.name = "atan"},
      {.name = "sinh", .autocast = kToFloat32},
      {.name = "cosh", .autocast = kToFloat32},
      {.name = "tanh", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "asinh"},
      {.name = "acosh"},
      {.name = "atanh"},
      {.name = "sigmoid", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "erf"},
      {.name = "erfc"},
      {.name = "lgamma", .not_exported = kNoGamma},
      {.name = "digamma", .not_exported = kNoGamma},
      {.name = "polygamma", .not_exported = kNoGamma},
      {.name = "logit", .trace = kParts},
      {.name = "floor"},
      {.name = "ceil"},
      {.name = "round"},
      {.name = "trunc"},
      {.name = "frac"},
      {.name = "nan_to_num"},
      {.name = "clamp"},
      {.name = "add"},
      {.name = "sub"},
      {.name = "mul"},
      {.name = "div"},
      {.name = "maximum"},
      {.name = "minimum"},
      {.name = "fmod"},
      {.name = "remainder"},
      {.name = "floor_divide"},
      {.name = "hypot"},
      {.name = "atan2"},
      {.name = "logaddexp"},
      {.name = "xlogy"},
      {.name = "pow", .autocast = kToFloat32},
      {.name = "pow(promoted)", .autocast = kToFloat32, .trace = kParts},
      {.name = "lerp"},
      {.name = "addcmul"},
      {.name = "addcdiv"},
      {.name = "eq"},
      {.name = "ne"},
      {.name = "lt"},
      {.name = "le"},
      {.name = "logical_and"},
      {.name = "logical_or"},
      {.name = "logical_xor"},
      {.name = "bitwise_and", .not_exported = kNoBits},
      {.name = "bitwise_or", .not_exported = kNoBits},
      {.name = "bitwise_xor", .not_exported = kNoBits},
      {.name = "bitwise_not", .not_exported = kNoBits},
      {.name = "bitwise_left_shift", .not_exported = kNoBits},
      {.name = "bitwise_right_shift", .not_exported = kNoBits},
      {.name = "where"},
      // matmul.cpp
      {.name = "mm", .autocast = kToHalf, .batch = BatchPolicy::kRowsByWeight, .rows = 0b01},
      {.name = "matmul", .autocast = kToHalf, .batch = BatchPolicy::kRowsByWeight, .rows = 0b01},
      {.name = "linear", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "linear_relu", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "bmm", .autocast = kToHalf},
      {.name = "dot", .autocast = kToHalf, .trace = kParts},
      {.name = "addmm", .autocast = kToHalf, .trace = kParts},
      {.name = "baddbmm", .autocast = kToHalf, .trace = kParts},
      // conv.cpp
      {.name = "conv1d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "conv2d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "conv3d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "conv_transpose1d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "conv_transpose2d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "conv_transpose3d", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b001},
      {.name = "unfold"},
      {.name = "fold"},
      // pool.cpp
      {.name = "max_pool"},
      {.name = "avg_pool"},
      {.name = "lp_pool", .compute = kInFloat32, .trace = kParts},
      // norm.cpp
      {.name = "batch_norm"},
      {.name = "batch_norm(training)", .trace = kRefused, .not_exported = kNoTraining},
      {.name = "instance_norm"},
      {.name = "instance_norm(training)", .trace = kRefused, .not_exported = kNoTraining},
      {.name = "group_norm", .autocast = kToFloat32},
      {.name = "layer_norm", .autocast = kToFloat32, .batch = BatchPolicy::kRowsBeforeRank, .rows = 0b001},
      {.name = "rms_norm", .autocast = kToFloat32, .batch = BatchPolicy::kRowsBeforeRank, .rows = 0b01},
      {.name = "local_response_norm", .compute = kInFloat32, .trace = kParts},
      {.name = "normalize", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      // softmax.cpp
      {.name = "softmax", .autocast = kToFloat32},
      {.name = "log_softmax", .autocast = kToFloat32},
      {.name = "gumbel_softmax", .autocast = kToFloat32, .trace = kParts},
      // attention.cpp
      {.name = "scaled_dot_product_attention", .autocast = kToHalf, .trace = kParts},
      // rnn.cpp
      {.name = "lstm", .autocast = kToHalf},
      {.name = "gru", .autocast = kToHalf},
      {.name = "rnn_tanh", .autocast = kToHalf},
      {.name = "rnn_relu", .autocast = kToHalf},
      {.name = "lstm(lengths)", .autocast = kToHalf, .trace = kRefused, .not_exported = kNoPacking},
      {.name = "gru(lengths)", .autocast = kToHalf, .trace = kRefused, .not_exported = kNoPacking},
      {.name = "rnn_tanh(lengths)", .autocast = kToHalf, .trace = kRefused, .not_exported = kNoPacking},
      {.name = "rnn_relu(lengths)", .autocast = kToHalf, .trace = kRefused, .not_exported = kNoPacking},
      {.name = "lstm_cell", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b111},
      {.name = "gru_cell", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b111},
      {.name = "rnn_tanh_cell", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b111},
      {.name = "rnn_relu_cell", .autocast = kToHalf, .batch = BatchPolicy::kRows, .rows = 0b111},
      // cell.cpp
      {.name = "lstm_cell(gates)", .autocast = kToWidest, .batch = BatchPolicy::kRows, .rows = 0b11},
      {.name = "tree_lstm_cell",
       .autocast = kToWidest,
       .trace = kRefused,
       .not_exported = "a tree has another graph for each input",
       .batch = BatchPolicy::kRows,
       .rows = ~0u},
      // nn/tree_lstm.cpp
      {.name = "NaryTreeLSTM", .trace = kParts, .batch = BatchPolicy::kRows, .rows = ~0b11110u},
      {.name = "ChildSumTreeLSTM", .trace = kParts, .batch = BatchPolicy::kRows, .rows = ~0b11110u},
      // embedding.cpp
      {.name = "embedding", .batch = BatchPolicy::kRows, .rows = 0b10},
      {.name = "embedding(one call)"},
      {.name = "embedding_bag"},
      // index.cpp
      {.name = "index_select"},
      {.name = "index_copy"},
      {.name = "index_add"},
      {.name = "gather"},
      {.name = "scatter"},
      {.name = "scatter_add", .autocast = kToWidest},
      {.name = "scatter_add(promoted)", .autocast = kToWidest, .trace = kParts},
      {.name = "scatter_mul"},
      {.name = "scatter_max"},
      {.name = "scatter_min"},
      {.name = "scatter_reduce", .compute = kInFloat32, .trace = kParts},
      {.name = "nonzero", .not_exported = kNoShape},
      {.name = "one_hot"},
      {.name = "select_scatter"},
      {.name = "slice_scatter"},
      {.name = "diagonal_scatter", .not_exported = "ONNX has no op that writes a diagonal"},
      // view.cpp, join.cpp, rows.cpp, pad.cpp, rearrange.cpp, range.cpp
      {.name = "reshape"},
      {.name = "permute"},
      {.name = "slice"},
      {.name = "select"},
      {.name = "cat"},
      {.name = "stack"},
      {.name = "split"},
      {.name = "unbind"},
      {.name = "pad"},
      {.name = "flip"},
      {.name = "roll"},
      {.name = "diagonal"},
      {.name = "arange"},
      // reduce.cpp
      {.name = "sum", .autocast = kToFloat32},
      {.name = "mean"},
      {.name = "prod", .autocast = kToFloat32, .compute = kInFloat32},
      {.name = "nansum", .autocast = kToFloat32, .trace = kParts},
      {.name = "count_nonzero", .trace = kParts},
      {.name = "sum_of_squares", .trace = kParts},
      {.name = "sum_of_magnitudes", .trace = kParts},
      {.name = "amax"},
      {.name = "amin"},
      {.name = "any"},
      {.name = "all"},
      {.name = "argmax"},
      {.name = "argmin"},
      {.name = "nanmean", .compute = kInFloat32, .trace = kParts},
      {.name = "deviation", .compute = kInFloat32, .trace = kParts},
      {.name = "cov", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "corrcoef", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "norm", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "renorm", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "logsumexp", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "cross", .compute = kInFloat32, .trace = kParts},
      // scan.cpp
      {.name = "cumsum", .autocast = kToFloat32},
      {.name = "cumprod",
       .autocast = kToFloat32,
       .compute = kInFloat32,
       .not_exported = "ONNX has no cumulative product"},
      {.name = "logcumsumexp", .compute = kInFloat32, .not_exported = "ONNX has no counterpart that does not overflow"},
      {.name = "cummax", .not_exported = kNoExtremes},
      {.name = "cummin", .not_exported = kNoExtremes},
      // sort.cpp
      {.name = "sort"},
      {.name = "argsort"},
      {.name = "topk"},
      {.name = "quantile", .compute = kInFloat32, .trace = kParts},
      // loss.cpp
      {.name = "nll_loss", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoLoss},
      {.name = "cross_entropy", .trace = kRefused, .not_exported = kNoLoss},
      {.name = "cross_entropy(composed)",
       .autocast = kToFloat32,
       .compute = kInFloat32,
       .trace = kRefused,
       .not_exported = kNoLoss},
      {.name = "cross_entropy(probabilities)", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "multi_margin_loss", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "multilabel_margin_loss", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoShape},
      {.name = "l1_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "mse_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "smooth_l1_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "huber_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "binary_cross_entropy", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "binary_cross_entropy_with_logits", .autocast = kToFloat32, .trace = kParts},
      {.name = "multilabel_soft_margin_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "kl_div", .autocast = kToFloat32, .trace = kParts},
      {.name = "poisson_nll_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "gaussian_nll_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "soft_margin_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "hinge_embedding_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "margin_ranking_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "cosine_embedding_loss", .autocast = kToFloat32, .trace = kParts},
      {.name = "triplet_margin_loss", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      // ctc.cpp
      {.name = "ctc_loss", .autocast = kToFloat32, .compute = kInFloat32, .trace = kRefused, .not_exported = kNoLoss},
      // crf.cpp
      {.name = "crf_log_likelihood", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoCrf},
      {.name = "crf_marginals", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoCrf},
      {.name = "crf_decode", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoCrf},
      // sampled.cpp
      {.name = "negative_sampling_loss", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoLoss},
      {.name = "negative_sampling_loss(shared)", .autocast = kToFloat32, .trace = kParts},
      {.name = "nce_loss", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoLoss},
      {.name = "nce_loss(shared)", .autocast = kToFloat32, .trace = kParts},
      {.name = "sampled_softmax_loss", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoLoss},
      {.name = "hierarchical_softmax_loss", .autocast = kToFloat32, .trace = kRefused, .not_exported = kNoLoss},
      {.name = "hierarchical_log_softmax", .autocast = kToFloat32, .trace = kParts},
      // linalg.cpp
      {.name = "linalg.inv", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.slogdet", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.det", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.cholesky", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.qr", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.svd", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.eigh", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.solve", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.solve_triangular",
       .autocast = kToFloat32,
       .compute = kInFloat32,
       .not_exported = kNoDecompositions},
      {.name = "linalg.pinv", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.lstsq", .autocast = kToFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.matrix_rank", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoDecompositions},
      {.name = "linalg.vector_norm", .autocast = kToFloat32, .trace = kParts},
      {.name = "linalg.matrix_norm", .autocast = kToFloat32, .trace = kParts},
      {.name = "linalg.matrix_power", .autocast = kToFloat32, .trace = kParts},
      // segment.cpp
      {.name = "segment_reduce", .compute = kInFloat32, .not_exported = kNoLengths},
      {.name = "segment_expand", .compute = kInFloat32, .not_exported = kNoLengths},
      {.name = "segment_softmax", .autocast = kToFloat32, .compute = kInFloat32, .not_exported = kNoLengths},
      // distance.cpp
      {.name = "cosine_similarity", .autocast = kToFloat32, .trace = kParts},
      {.name = "pairwise_distance", .autocast = kToFloat32, .trace = kParts},
      {.name = "cdist", .autocast = kToFloat32, .trace = kParts},
      {.name = "pdist", .autocast = kToFloat32, .trace = kParts},
      // einsum.cpp
      {.name = "einsum", .autocast = kToHalf, .trace = kParts},
      {.name = "bilinear", .autocast = kToHalf, .trace = kParts, .batch = BatchPolicy::kRows, .rows = 0b011},
      {.name = "bilinear(broadcast)", .autocast = kToHalf, .trace = kParts},
      // activation.cpp
      {.name = "relu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "hardtanh", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "relu6", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "leaky_relu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "prelu"},
      {.name = "prelu(weight)", .autocast = kToHalf, .trace = kParts},
      {.name = "elu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "selu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "celu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "gelu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "gelu_tanh", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "silu", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "mish", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "logsigmoid", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "hardsigmoid", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "hardswish", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "softsign", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "tanhshrink", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "hardshrink", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "softshrink", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "threshold", .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      {.name = "softplus", .autocast = kToFloat32, .batch = BatchPolicy::kRowsOnGpu, .rows = 0b1},
      // packed.cpp
      {.name = "permute_rows", .not_exported = kNoPacking},
      {.name = "pack_sequence", .trace = kRefused, .not_exported = kNoPacking},
      {.name = "pack_padded_sequence", .trace = kRefused, .not_exported = kNoPacking},
      // ragged.cpp
      {.name = "pad(ragged)", .not_exported = kNoLengths},
      {.name = "unpad", .not_exported = kNoLengths},
      {.name = "sum(ragged)", .autocast = kToFloat32, .trace = kParts},
      {.name = "cross_entropy(ragged)", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      // ragged_attention.cpp
      {.name = "scaled_dot_product_attention(ragged)", .autocast = kToHalf, .not_exported = kNoLengths},
      // resize.cpp
      {.name = "interpolate"},
      {.name = "interpolate(all)", .autocast = kToFloat32, .compute = kInFloat32, .trace = kParts},
      {.name = "grid_sample", .autocast = kToWidest, .compute = kInFloat32, .trace = kParts},
      {.name = "affine_grid", .autocast = kToWidest, .compute = kInFloat32, .trace = kParts},
  });
}();

namespace detail {
consteval const OpInfo& find_op(std::string_view name) {
  const auto found = std::find_if(kOps.begin(), kOps.end(), [&](const OpInfo& op) { return op.name == name; });
  if (found == kOps.end()) throw "lib/ops/op_info.h has no line for an op of this name";
  return *found;
}
}  // namespace detail

/// An op of the table. It is made of its name, for which the compiler looks.
class Op {
 public:
  consteval Op(const char* name) : Op(detail::find_op(name)) {}  // NOLINT(google-explicit-constructor)
  constexpr const OpInfo& info() const { return *info_; }
  constexpr const char* name() const { return info_->name; }
  constexpr operator const char*() const { return info_->name; }  // NOLINT(google-explicit-constructor)
  /// Returns true if a mode is active that concerns the op.
  bool concerns(const OpModes& modes) const { return modes.active & modes_; }

 private:
  consteval explicit Op(const OpInfo& info) : info_(&info), modes_(info.modes()) {}
  const OpInfo* info_;
  uint8_t modes_;
};

/// An argument of an op that is no tensor: a number or a list of integers. It refers to the list.
struct Attribute {
  enum class Kind : uint8_t { kInteger, kReal, kList };

  template <std::integral T>
  Attribute(const char* name_, T number) : name(name_), kind(Kind::kInteger), integer(static_cast<int64_t>(number)) {}
  Attribute(const char* name_, double number) : name(name_), kind(Kind::kReal), real(number) {}
  Attribute(const char* name_, std::span<const int64_t> numbers)
      : name(name_), kind(Kind::kList), size(static_cast<uint32_t>(numbers.size())), data(numbers.data()) {}
  Attribute(const char* name_, const Shape& numbers)
      : Attribute(name_, std::span(numbers.begin(), static_cast<size_t>(numbers.size()))) {}

  std::span<const int64_t> list() const { return {data, size}; }
  bool operator==(const Attribute& other) const {
    if (std::string_view(name) != other.name || kind != other.kind) return false;
    if (kind == Kind::kList) return std::ranges::equal(list(), other.list());
    return kind == Kind::kInteger ? integer == other.integer : real == other.real;
  }

  const char* name;
  Kind kind;
  uint32_t size = 0;
  union {
    int64_t integer;
    double real;
    const int64_t* data;
  };
};

}  // namespace reel
