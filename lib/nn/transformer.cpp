#include "reel/nn/transformer.h"

#include <limits>

#include "reel/nn/init.h"

namespace reel::nn {
namespace {

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return {.dropout = options.dropout, .bias = options.bias, .batch_first = options.batch_first};
}
LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return {.eps = options.layer_norm_eps, .bias = options.bias};
}

// One block of a layer: its sum with x, normalised before or behind.
template <class Block>
Tensor residual(const Tensor& x, const LayerNorm& norm, const Dropout& dropout, bool norm_first, const Block& block) {
  return norm_first ? x + dropout(block(norm(x))) : norm(x + dropout(block(x)));
}
template <class L>
Tensor feed_forward(const L& layer, const Tensor& x) {
  return layer.linear2(layer.dropout(layer.options.activation(layer.linear1(x))));
}

template <class Stack>
void fill(Stack& stack, int64_t d_model, int64_t nhead, int64_t num_layers, const TransformerLayerOptions& options) {
  for (int64_t i = 0; i < num_layers; ++i) stack.layers.emplace(d_model, nhead, options);
  stack.register_module("layers", stack.layers);
  if (options.final_norm) stack.norm.emplace(stack, "norm", Shape{d_model}, norm_options(options));
}

}  // namespace

// ---- encoder
// --------------------------------------------------------------------------------------------------------

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions given)
    : options(std::move(given)),
      self_attn(*this, "self_attn", d_model, nhead, attention_options(options)),
      linear1(*this, "linear1", d_model, options.dim_feedforward, {.bias = options.bias}),
      dropout(*this, "dropout", options.dropout),
      linear2(*this, "linear2", options.dim_feedforward, d_model, {.bias = options.bias}),
      norm1(*this, "norm1", Shape{d_model}, norm_options(options)),
      norm2(*this, "norm2", Shape{d_model}, norm_options(options)),
      dropout1(*this, "dropout1", options.dropout),
      dropout2(*this, "dropout2", options.dropout) {
  REEL_CHECK(options.activation, "TransformerEncoderLayer: the activation is empty");
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const EncodeOptions& given) const {
  const Tensor x = residual(src, norm1, dropout1, options.norm_first, [&](const Tensor& y) {
    return self_attn(y, y, y,
                     {.key_padding_mask = given.src_key_padding_mask,
                      .need_weights = false,
                      .attn_mask = given.mask,
                      .is_causal = given.is_causal})
        .output;
  });
  return residual(x, norm2, dropout2, options.norm_first, [&](const Tensor& y) { return feed_forward(*this, y); });
}

TransformerEncoder::TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers,
                                       TransformerLayerOptions options) {
  fill(*this, d_model, nhead, num_layers, options);
}

Tensor TransformerEncoder::forward(const Tensor& src, const EncodeOptions& options) const {
  Tensor x = src;
  for (const TransformerEncoderLayer& layer : layers) x = layer(x, options);
  return norm ? (*norm)(x) : x;
}

// ---- decoder
// --------------------------------------------------------------------------------------------------------

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions given)
    : options(std::move(given)),
      self_attn(*this, "self_attn", d_model, nhead, attention_options(options)),
      multihead_attn(*this, "multihead_attn", d_model, nhead, attention_options(options)),
      linear1(*this, "linear1", d_model, options.dim_feedforward, {.bias = options.bias}),
      dropout(*this, "dropout", options.dropout),
      linear2(*this, "linear2", options.dim_feedforward, d_model, {.bias = options.bias}),
      norm1(*this, "norm1", Shape{d_model}, norm_options(options)),
      norm2(*this, "norm2", Shape{d_model}, norm_options(options)),
      norm3(*this, "norm3", Shape{d_model}, norm_options(options)),
      dropout1(*this, "dropout1", options.dropout),
      dropout2(*this, "dropout2", options.dropout),
      dropout3(*this, "dropout3", options.dropout) {
  REEL_CHECK(options.activation, "TransformerDecoderLayer: the activation is empty");
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory, const DecodeOptions& given) const {
  Tensor x = residual(tgt, norm1, dropout1, options.norm_first, [&](const Tensor& y) {
    return self_attn(y, y, y,
                     {.key_padding_mask = given.tgt_key_padding_mask,
                      .need_weights = false,
                      .attn_mask = given.tgt_mask,
                      .is_causal = given.tgt_is_causal})
        .output;
  });
  x = residual(x, norm2, dropout2, options.norm_first, [&](const Tensor& y) {
    return multihead_attn(y, memory, memory,
                          {.key_padding_mask = given.memory_key_padding_mask,
                           .need_weights = false,
                           .attn_mask = given.memory_mask,
                           .is_causal = given.memory_is_causal})
        .output;
  });
  return residual(x, norm3, dropout3, options.norm_first, [&](const Tensor& y) { return feed_forward(*this, y); });
}

TransformerDecoder::TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers,
                                       TransformerLayerOptions options) {
  fill(*this, d_model, nhead, num_layers, options);
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const DecodeOptions& options) const {
  Tensor x = tgt;
  for (const TransformerDecoderLayer& layer : layers) x = layer(x, memory, options);
  return norm ? (*norm)(x) : x;
}

// ---- both
// -----------------------------------------------------------------------------------------------------------

namespace {
TransformerLayerOptions with_final_norm(TransformerLayerOptions options) {
  options.final_norm = true;
  return options;
}
}  // namespace

Transformer::Transformer(int64_t d_model, int64_t nhead, TransformerOptions options)
    : encoder(*this, "encoder", d_model, nhead, options.num_encoder_layers, with_final_norm(options.layer)),
      decoder(*this, "decoder", d_model, nhead, options.num_decoder_layers, with_final_norm(options.layer)) {
  reset_parameters();
}

void Transformer::reset_parameters() {
  for (const Tensor& parameter : parameters())
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerCallOptions& options) const {
  const Tensor memory = encoder(src, {.mask = options.src_mask,
                                      .src_key_padding_mask = options.src_key_padding_mask,
                                      .is_causal = options.src_is_causal});
  return decoder(tgt, memory,
                 {.tgt_mask = options.tgt_mask,
                  .memory_mask = options.memory_mask,
                  .tgt_key_padding_mask = options.tgt_key_padding_mask,
                  .memory_key_padding_mask = options.memory_key_padding_mask,
                  .tgt_is_causal = options.tgt_is_causal,
                  .memory_is_causal = options.memory_is_causal});
}

Tensor Transformer::generate_square_subsequent_mask(int64_t size, TensorOptions options) {
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), options), 1);
}

}  // namespace reel::nn
