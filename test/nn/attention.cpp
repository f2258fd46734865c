#include <catch2/catch.hpp>
#include <string>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/random.h"
#include "test/support/figures.h"

using namespace reel;
using Catch::Matchers::Contains;

TEST_CASE("MultiheadAttention gives PyTorch's numbers for PyTorch's weights") {
  struct Case {
    std::string name;
    nn::MultiheadAttentionOptions options = {};
    bool average = true;
  };
  const Case cases[] = {{.name = "mha_self"},
                        {.name = "mha_masks", .options = {.batch_first = true}},
                        {.name = "mha_each", .average = false},
                        {.name = "mha_dims", .options = {.bias = false, .kdim = 3, .vdim = 5}},
                        {.name = "mha_extra", .options = {.add_bias_kv = true, .add_zero_attn = true}}};
  for (const Case& c : cases) {
    INFO(c.name);
    const Figures figures(c.name);
    nn::MultiheadAttention attention(4, 2, c.options);
    figures.load(attention);
    const Tensor q = figures.in("q"), k = figures.in("k");
    const auto [output, weights] = attention(q, k.defined() ? k : q, k.defined() ? figures.in("v") : q,
                                             {.key_padding_mask = figures.in("key_padding_mask"),
                                              .attn_mask = figures.in("attn_mask"),
                                              .average_attn_weights = c.average});
    StateDict outputs;
    outputs.emplace_back("output", output);
    outputs.emplace_back("weights", weights);
    figures.check(attention, outputs);
  }
}

TEST_CASE("MultiheadAttention takes sequences without a batch and masks of either kind") {
  manual_seed(1);
  nn::MultiheadAttention attention(6, 3, {.dropout = 0.5});
  attention.eval();
  const Tensor x = randn({4, 2, 6});
  const Tensor causal = triu(ones({4, 4}), 1) > 0;
  const auto both = attention(x, x, x, {.attn_mask = causal});
  CHECK(equal(attention(x, x, x, {.is_causal = true}).output, both.output));
  CHECK(both.weights.shape() == Shape{2, 4, 4});
  CHECK(equal(triu(both.weights, 1), zeros({2, 4, 4})));
  const Tensor one = x.select(1, 0);
  const auto alone = attention(one, one, one, {.attn_mask = causal});
  CHECK(alone.output.shape() == Shape{4, 6});
  CHECK(alone.weights.shape() == Shape{4, 4});
  CHECK(amax(abs(alone.output - both.output.select(1, 0))).item<double>() < 1e-6);
  CHECK_FALSE(attention(one, one, one, {.need_weights = false}).weights.defined());

  const Tensor padding = tensor({{0, 0, 1, 1}, {1, 1, 1, 1}}) > 0;
  const auto padded = attention(x, x, x, {.key_padding_mask = padding});
  CHECK(equal(padded.output.select(1, 1), attention.out_proj.bias.expand({4, 6})));  // that batch sees nothing
  CHECK(equal(padded.weights[1], zeros({4, 4})));

  attention.train();
  CHECK_FALSE(equal(attention(x, x, x).output, attention(x, x, x).output));

  nn::MultiheadAttention first(6, 3, {.batch_first = true});
  first.load_state_dict(attention.state_dict());
  const Tensor swapped = first(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), {.attn_mask = causal}).output;
  CHECK(amax(abs(swapped.transpose(0, 1) - both.output)).item<double>() < 1e-6);
}

TEST_CASE("MultiheadAttention refuses what does not fit") {
  CHECK_THROWS_WITH(nn::MultiheadAttention(5, 2), "MultiheadAttention: embed_dim 5 is no multiple of num_heads 2");
  nn::MultiheadAttention attention(4, 2);
  const Tensor x = ones({3, 2, 4});
  CHECK_THROWS_WITH(attention(x, ones({3, 2, 5}), x), Contains("with 4, 4 and 4 features, got shapes [3, 2, 4]"));
  CHECK_THROWS_WITH(attention(x, x, ones({4, 2, 4})), Contains("batches or lengths of query, key and value differ"));
  CHECK_THROWS_WITH(attention(x, x, x, {.attn_mask = ones({3, 4})}),
                    "MultiheadAttention: expected attn_mask of shape [3, 3] or [4, 3, 3], got [3, 4]");
  CHECK_THROWS_WITH(attention(x, x, x, {.key_padding_mask = ones({3, 2})}),
                    "MultiheadAttention: expected key_padding_mask of shape [2, 3], got [3, 2]");
  CHECK_THROWS_WITH(attention(x, x, x, {.attn_mask = ones({3, 3}), .is_causal = true}), Contains("is_causal"));
  CHECK_THROWS_WITH(attention(x, x, x, {.attn_mask = zeros({3, 3}, {.dtype = kInt64})}),
                    "MultiheadAttention: attn_mask is bool or floating-point, got int64");
}

TEST_CASE("hooks see what MultiheadAttention gets and gives") {
  nn::MultiheadAttention attention(4, 2);
  size_t in = 0, out = 0;
  attention.register_forward_hook([&](nn::Module&, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    in = inputs.size(), out = outputs.size();
  });
  const Tensor x = ones({3, 2, 4});
  attention(x, x, x);
  CHECK(in == 3);
  CHECK(out == 2);
}
