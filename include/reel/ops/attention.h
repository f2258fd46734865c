#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Attention.
namespace reel {

/// Of scaled_dot_product_attention.
struct AttentionOptions {
  /// Bool: true where a query attends to a key; or numbers that are added to the scores. Broadcast to [..., L, S].
  Tensor mask = {};
  double dropout = 0;             ///< Probability with which a weight is zeroed, whatever mode a module is in.
  bool is_causal = false;         ///< Query i attends to keys 0 … i only; not together with a mask.
  std::optional<double> scale{};  ///< Of the scores; 1 / √E by default.
  /// Grouped queries (Ainslie et al. 2023): the dimension before the last two, heads, may be larger in query by a whole
  /// factor; so many neighbouring heads share one key and value.
  bool enable_gqa = false;
};
/// softmax(scale · query · keyᵀ + mask) · value (Vaswani et al. 2017) for query [..., L, E], key [..., S, E] and value
/// [..., S, Ev] of one floating-point type, whose leading dimensions broadcast. Half types are computed in float32, but
/// scores may be kept in them: beyond float16's 65504 they give NaN. A query whose keys are all masked gets zeros.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace reel
#pragma GCC visibility pop
