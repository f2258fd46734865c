#pragma once
#include <optional>

#include "reel/nn/linear.h"
#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Multi-head attention.
namespace reel::nn {

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  double dropout = 0;                ///< Of the attention weights, in training.
  bool bias = true;                  ///< Whether there is one.
  bool add_bias_kv = false;          ///< Appends a learnt key and value, bias_k and bias_v, to every sequence.
  bool add_zero_attn = false;        ///< Appends a key and value of zeros, so that a query can attend to nothing.
  std::optional<int64_t> kdim = {};  ///< Features of keys, embed_dim by default.
  std::optional<int64_t> vdim = {};  ///< Features of values, embed_dim by default.
  bool batch_first = false;          ///< [N, L, E] instead of [L, N, E].
};

/// What one call of MultiheadAttention is given besides query, key and value.
struct MultiheadAttentionCallOptions {
  /// [N, S] (or [S]): true for keys that are padding, or numbers that are added to their scores.
  Tensor key_padding_mask = {};
  bool need_weights = true;  ///< Return them, too.
  /// [L, S] or [N heads, L, S]: true where a query may NOT attend to a key (the opposite of
  /// scaled_dot_product_attention's mask), or numbers that are added to the scores.
  Tensor attn_mask = {};
  bool average_attn_weights = true;  ///< Over the heads.
  bool is_causal = false;            ///< Query i attends to keys 0 … i only; needs no attn_mask.
};
/// What MultiheadAttention returns.
struct MultiheadAttentionOutput {
  Tensor output;   ///< Of query's shape.
  Tensor weights;  ///< [N, L, S], or [N, heads, L, S] when not averaged; undefined unless need_weights.
};

/// Attention in several subspaces of the features (Vaswani et al. 2017):
///
///   head_i = scaled_dot_product_attention(query Wq_i, key Wk_i, value Wv_i),  output = [head_1 … head_h] · out_projᵀ
///
/// for query [L, N, embed_dim], key [S, N, kdim] and value [S, N, vdim], N first with batch_first, or without N. A
/// query whose keys are all masked gets out_proj(0), the bias. Parameters as in PyTorch: in_proj_weight [3 embed_dim,
/// embed_dim] in the order q, k, v (or, where kdim or vdim differ, q_proj_weight, k_proj_weight and v_proj_weight) and
/// in_proj_bias, initially Glorot uniform and zero; out_proj.weight and out_proj.bias; bias_k and bias_v.
struct MultiheadAttention : Layer<MultiheadAttention> {
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options = {});
  MultiheadAttention(Module& parent, std::string name, int64_t embed_dim, int64_t num_heads,
                     MultiheadAttentionOptions options = {})
      : MultiheadAttention(embed_dim, num_heads, options) {
    parent.register_module(std::move(name), *this);
  }
  MultiheadAttentionOutput forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadAttentionCallOptions& options = {}) const;
  MultiheadAttentionOutput operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const MultiheadAttentionCallOptions& options = {}) const {
    return Layer::operator()(query, key, value, options);
  }
  void reset_parameters();

  const int64_t embed_dim, num_heads;
  const MultiheadAttentionOptions options;
  Parameter in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj;

 private:
  struct Heads {
    Tensor q, k, v;  // [N, heads, L or S, head_dim]
  };
  Heads project(const Tensor& query, const Tensor& key, const Tensor& value) const;
};

}  // namespace reel::nn
#pragma GCC visibility pop
