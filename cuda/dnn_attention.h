#pragma once
#include "cuda/dnn_plan.h"
#include "lib/device/kernels/attention.h"

// Attention as a graph of cuDNN's backend API: its engines recognize these graphs and run them as one kernel each,
// which keeps the scores on the chip (flash attention, Dao et al. 2022).
namespace reel::cuda {

/// The unique ids of the tensors in the graphs that lie in memory. kKeyTurned and kValueTurned are the same memory as
/// kKey and kValue.
enum AttentionPart : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kKeyTurned,
  kValueTurned,
  kOutput,
  kLogSums,
  kGrad,
  kGradQuery,
  kGradKey,
  kGradValue,
  kSum,           // backward, scratch: float32 like the log sums
  kSumGradQuery,  // the same: float32 like the query, zero before
  kAllGradKey,    // the same, where heads share keys: of the type of the keys, for each head of the queries
  kAllGradValue,
  kQueryLengths,
  kKeyLengths,
  // Numbers of the host's.
  kScale,
  kOne,
  kHidden,
};

/// The graph of a batch's attention, or of its gradients if `backward`; nothing where cuDNN refuses the problem.
std::optional<Descriptor> attention_graph(const DnnTarget& target, const RaggedAttention& attention, bool backward);

}  // namespace reel::cuda
