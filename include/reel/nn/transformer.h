#pragma once
#include <functional>
#include <optional>

#include "reel/nn/attention.h"
#include "reel/nn/container.h"
#include "reel/nn/dropout.h"
#include "reel/nn/linear.h"
#include "reel/nn/norm.h"
#include "reel/ops.h"

#pragma GCC visibility push(default)
/// Transformers (Vaswani et al. 2017), with PyTorch's names for everything. Sequences are [L, N, d_model], N first with
/// batch_first, or without N; masks are those of MultiheadAttention: true at positions that must not be attended to.
namespace reel::nn {

/// Options of encoder and decoder layers and of stacks of them.
struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;  ///< The width between linear1 and linear2.
  double dropout = 0.1;            ///< Its probability, in training.
  /// Between linear1 and linear2.
  std::function<Tensor(const Tensor&)> activation = [](const Tensor& x) { return relu(x); };
  double layer_norm_eps = 1e-5;  ///< Of all norms.
  bool batch_first = false;      ///< [n, len, …] instead of [len, n, …].
  bool norm_first = false;       ///< Normalise before each block (Xiong et al. 2020)
                                 ///< instead of after the residual sum.
  bool bias = true;              ///< Of all layers.
  bool final_norm = false;       ///< For stacks: a final LayerNorm, "norm".
};

/// Masks of a call of an encoder.
struct EncodeOptions {
  Tensor mask = {};                  ///< As attn_mask.
  Tensor src_key_padding_mask = {};  ///< As key_padding_mask.
  bool is_causal = false;            ///< Instead of a mask.
};

/// x + self_attn(x), then x + linear2(activation(linear1(x))), each with dropout and normalised by norm1 and norm2.
struct TransformerEncoderLayer : Layer<TransformerEncoderLayer> {
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  TransformerEncoderLayer(Module& parent, std::string name, int64_t d_model, int64_t nhead,
                          TransformerLayerOptions options = {})
      : TransformerEncoderLayer(d_model, nhead, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& src, const EncodeOptions& options = {}) const;
  Tensor operator()(const Tensor& src, const EncodeOptions& options = {}) const {
    return Layer::operator()(src, options);
  }

  const TransformerLayerOptions options;
  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
};

/// A stack of num_layers TransformerEncoderLayers: "layers.0", "layers.1", ….
struct TransformerEncoder : Layer<TransformerEncoder> {
  TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerLayerOptions options = {});
  TransformerEncoder(Module& parent, std::string name, int64_t d_model, int64_t nhead, int64_t num_layers,
                     TransformerLayerOptions options = {})
      : TransformerEncoder(d_model, nhead, num_layers, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& src, const EncodeOptions& options = {}) const;
  Tensor operator()(const Tensor& src, const EncodeOptions& options = {}) const {
    return Layer::operator()(src, options);
  }

  ModuleList<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
};

/// Masks of a call of a decoder.
struct DecodeOptions {
  Tensor tgt_mask = {};                 ///< As attn_mask, of the target.
  Tensor memory_mask = {};              ///< As attn_mask, of the encoder's output.
  Tensor tgt_key_padding_mask = {};     ///< As key_padding_mask.
  Tensor memory_key_padding_mask = {};  ///< As key_padding_mask.
  bool tgt_is_causal = false;           ///< Instead of tgt_mask.
  bool memory_is_causal = false;        ///< Instead of memory_mask.
};

/// x + self_attn(x), then x + multihead_attn(x, memory, memory), then x + linear2(activation(linear1(x))).
struct TransformerDecoderLayer : Layer<TransformerDecoderLayer> {
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  TransformerDecoderLayer(Module& parent, std::string name, int64_t d_model, int64_t nhead,
                          TransformerLayerOptions options = {})
      : TransformerDecoderLayer(d_model, nhead, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecodeOptions& options = {}) const;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecodeOptions& options = {}) const {
    return Layer::operator()(tgt, memory, options);
  }

  const TransformerLayerOptions options;
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};

/// A stack of num_layers TransformerDecoderLayers.
struct TransformerDecoder : Layer<TransformerDecoder> {
  TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerLayerOptions options = {});
  TransformerDecoder(Module& parent, std::string name, int64_t d_model, int64_t nhead, int64_t num_layers,
                     TransformerLayerOptions options = {})
      : TransformerDecoder(d_model, nhead, num_layers, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecodeOptions& options = {}) const;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecodeOptions& options = {}) const {
    return Layer::operator()(tgt, memory, options);
  }

  ModuleList<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
};

/// Options of Transformer.
struct TransformerOptions {
  int64_t num_encoder_layers = 6;      ///< Of the encoder.
  int64_t num_decoder_layers = 6;      ///< Of the decoder.
  TransformerLayerOptions layer = {};  ///< Of all layers; final_norm is taken to be true.
};
/// Masks of a call of Transformer; see EncodeOptions and DecodeOptions.
struct TransformerCallOptions {
  ///@{
  /// Of the source, the target and the encoder's output.
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;
  ///@}
};

/// decoder(tgt, encoder(src)); all weight matrices start Glorot uniform.
struct Transformer : Layer<Transformer> {
  explicit Transformer(int64_t d_model = 512, int64_t nhead = 8, TransformerOptions options = {});
  Transformer(Module& parent, std::string name, int64_t d_model = 512, int64_t nhead = 8,
              TransformerOptions options = {})
      : Transformer(d_model, nhead, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerCallOptions& options = {}) const;
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerCallOptions& options = {}) const {
    return Layer::operator()(src, tgt, options);
  }
  void reset_parameters();
  /// [size, size]: 0 on and below the diagonal, minus infinity above it.
  static Tensor generate_square_subsequent_mask(int64_t size, TensorOptions options = {});

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace reel::nn
#pragma GCC visibility pop
