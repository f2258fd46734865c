#pragma once
#include "reel/ops/attention.h"

namespace reel {

struct Attended {
  Tensor output, weights;  // weights: [..., L, S], after dropout; undefined if nobody asks for them
};
/// scaled_dot_product_attention, and its weights.
Attended attend(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options, bool with_weights);

/// scaled_dot_product_attention of [n, heads, L, E] padded sequences, whose lengths are int32 [n] and at least 1, or
/// undefined where all are L, in flash form; undefined where the device has no kernel for it. Rows beyond a sequence's
/// length hold anything.
Tensor attend_padded(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options,
                     const Tensor& query_lengths, const Tensor& key_lengths);

}  // namespace reel
