#pragma once
#include <array>
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Attention within each of `sequences` sequences of their own lengths: queries query_offsets[s] … query_offsets[s + 1]
/// attend to keys key_offsets[s] … key_offsets[s + 1] of the same s. All contiguous; head h of the queries goes with
/// head h / (heads / kv_heads) of keys and values.
///   y = Σ_j p_ij value_j, p_ij = exp(scale query_i · key_j - log_sum_i)
/// over all keys of the sequence or, if `causal`, those whose place in it is not beyond the query's. A query without
/// keys has y = 0 and log_sum = -infinity.
///
/// Or, with `batch`, of sequences of one length, in a half type, where the device has a kernel for it that never writes
/// down all p_ij (flash attention): value_width is width, offsets are not read, and log_sums are float32.
struct RaggedAttention {
  /// Distances in elements from one sequence, head and row to the next; a row is contiguous.
  using Steps = std::array<int64_t, 3>;
  struct Batch {
    Steps query, key, value, y, grad, grad_query, grad_key, grad_value;
    bool* computed;  // becomes whether there is such a kernel; nothing else is changed where there is none
    // [sequences], where the tensors are: how many rows count, at least one. What the others get is not said.
    const int32_t* query_lengths = nullptr;  // nullptr, as key_lengths: all
    const int32_t* key_lengths = nullptr;
  };
  DType dtype = kFloat32;  // or kFloat64
  int64_t sequences = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, width = 0, value_width = 0;
  double scale = 1;
  bool causal = false;
  const int64_t* query_offsets = nullptr;  // [sequences + 1], where the tensors are
  const int64_t* key_offsets = nullptr;    // the same
  const void* query = nullptr;             // [queries, heads, width]
  const void* key = nullptr;               // [keys, kv_heads, width]
  const void* value = nullptr;             // [keys, kv_heads, value_width]
  void* y = nullptr;                       // [queries, heads, value_width]
  void* log_sums = nullptr;                // [queries, heads]; forward: nullptr if nobody asks
  // Backward, which reads y and log_sums. All gradients are written, none is added to.
  const void* grad = nullptr;  // like y
  void* grad_query = nullptr;
  void* grad_key = nullptr;
  void* grad_value = nullptr;
  const Batch* batch = nullptr;
};

/// The minimum length of sequences of half types that use flash attention. Tests on a simulated GPU lower it.
inline constinit int64_t min_flash_length = 512;

}  // namespace reel
