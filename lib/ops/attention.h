#pragma once
#include "reel/ops/attention.h"

namespace reel {

struct Attended {
  Tensor output, weights;  // weights: [..., L, S], after dropout; undefined if nobody asks for them
};
/// scaled_dot_product_attention, and its weights.
Attended attend(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options, bool with_weights);

}  // namespace reel
