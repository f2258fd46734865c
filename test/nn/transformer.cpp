#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/random.h"
#include "test/support/figures.h"

using namespace reel;

namespace {

StateDict output(const Tensor& tensor) {
  StateDict outputs;
  outputs.emplace_back("output", tensor);
  return outputs;
}

}  // namespace

TEST_CASE("TransformerEncoder gives PyTorch's numbers for PyTorch's weights") {
  const bool norm_first = GENERATE(false, true);
  const Figures figures(norm_first ? "encoder_norm_first" : "encoder");
  nn::TransformerLayerOptions options{.dim_feedforward = 6, .norm_first = norm_first, .final_norm = norm_first};
  if (norm_first) options.activation = [](const Tensor& x) { return gelu(x); };
  nn::TransformerEncoder encoder(4, 2, 2, options);
  figures.load(encoder).eval();
  figures.check(encoder,
                output(encoder(figures.in("src"), {.src_key_padding_mask = figures.in("src_key_padding_mask")})));
}

TEST_CASE("Transformer gives PyTorch's numbers for PyTorch's weights") {
  const Figures figures("transformer");
  nn::Transformer model(
      4, 2, {.num_encoder_layers = 1, .num_decoder_layers = 1, .layer = {.dim_feedforward = 6, .batch_first = true}});
  figures.load(model).eval();
  const Tensor mask = nn::Transformer::generate_square_subsequent_mask(2, {.dtype = kFloat64});
  CHECK(equal(mask, figures.in("tgt_mask")));
  const Tensor src = figures.in("src"), tgt = figures.in("tgt"), short_memory = figures.in("memory_key_padding_mask");
  figures.check(model, output(model(src, tgt, {.tgt_mask = mask, .memory_key_padding_mask = short_memory})));
  CHECK(equal(model(src, tgt, {.tgt_is_causal = true}), model(src, tgt, {.tgt_mask = mask})));

  const auto path = std::filesystem::temp_directory_path() / "reel_transformer_test.safetensors";
  io::save(model, path);
  nn::Transformer other(
      4, 2, {.num_encoder_layers = 1, .num_decoder_layers = 1, .layer = {.dim_feedforward = 6, .batch_first = true}});
  other.to(kFloat64);
  other.eval();
  CHECK_FALSE(equal(other(src, tgt), model(src, tgt)));
  io::load(other, path);
  CHECK(equal(other(src, tgt), model(src, tgt)));
  std::filesystem::remove(path);
}

TEST_CASE("a Transformer trains") {
  manual_seed(1);
  nn::Transformer model(8, 2, {.num_encoder_layers = 2, .num_decoder_layers = 2, .layer = {.dim_feedforward = 16}});
  const Tensor src = randn({5, 3, 8}), tgt = randn({4, 3, 8});
  CHECK_FALSE(equal(model(src, tgt), model(src, tgt)));  // dropout
  mean(square(model(src, tgt))).backward();
  for (const auto& [path, parameter] : model.named_parameters()) {
    INFO(path);
    CHECK(parameter.grad().defined());
  }
  CHECK(live_nodes() == 0);
  CHECK(model.get_parameter("decoder.layers.1.multihead_attn.out_proj.weight").shape() == Shape{8, 8});
  CHECK_THROWS_WITH(model(src, ones({4, 3, 7})),
                    Catch::Matchers::Contains("in decoder.layers.0.self_attn (MultiheadAttention)"));
  const nn::TransformerEncoder moved = nn::TransformerEncoder(8, 2, 2, {.final_norm = true});
  CHECK(moved(src).shape() == src.shape());
}
