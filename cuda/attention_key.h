#pragma once
#include <algorithm>

#include "cuda/plans.h"
#include "lib/device/kernels/attention.h"

namespace reel::cuda {

/// What identifies the attention of a batch, but for its data and the scale.
using AttentionKey = PlanKey<31>;
inline AttentionKey key_of(const RaggedAttention& a, bool backward) {
  AttentionKey key{static_cast<int64_t>(a.dtype) | backward << 8 | a.causal << 9 | (a.log_sums != nullptr) << 10 |
                       (a.batch->key_lengths != nullptr) << 11,
                   a.sequences,
                   a.queries,
                   a.keys,
                   a.heads,
                   a.kv_heads,
                   a.width};
  auto to = key.begin() + 7;
  const RaggedAttention::Batch& b = *a.batch;
  for (const auto* steps : {&b.query, &b.key, &b.value, &b.y}) to = std::copy(steps->begin(), steps->end(), to);
  if (backward)
    for (const auto* steps : {&b.grad, &b.grad_query, &b.grad_key, &b.grad_value})
      to = std::copy(steps->begin(), steps->end(), to);
  return key;
}

}  // namespace reel::cuda
