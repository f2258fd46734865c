#pragma once
#include "reel/ops/attention.h"

namespace reel {

struct Attended {
  Tensor output, weights;  // weights: [..., L, S], after dropout
};
/// scaled_dot_product_attention with its weights.
Attended attend(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options);

}  // namespace reel
