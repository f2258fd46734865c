#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "test/support/figures.h"

using namespace reel;

TEST_CASE("Embedding keeps rows within a norm, and starts from a given table") {
  const Tensor table = tensor({{3., 4.}, {0.3, 0.4}, {6., 8.}});
  nn::Embedding layer = nn::Embedding::from_pretrained(table, false, {.max_norm = 1, .scale_grad_by_freq = true});
  CHECK(layer.weight.is_same(table));
  CHECK(layer.to_string() == "Embedding(3, 2, max_norm=1, scale_grad_by_freq=true)");
  const Tensor y = layer(tensor({0, 1, 0}).to(kInt32));
  CHECK(amax(abs(y - tensor({{0.6, 0.8}, {0.3, 0.4}, {0.6, 0.8}}))).item<double>() < 1e-6);
  CHECK(equal(table[2], tensor({6., 8.})));
  sum(y).backward();
  CHECK(equal(table.grad(), tensor({{1., 1.}, {1., 1.}, {0., 0.}})));
  CHECK_FALSE(nn::Embedding::from_pretrained(ones({2, 2})).weight.requires_grad());
  CHECK_THROWS_WITH(nn::Embedding::from_pretrained(ones({2})), "Embedding: expected a matrix, got [2]");

  nn::Embedding padded(4, 2, {.padding_idx = -1});
  CHECK(equal(padded.weight[3], zeros({2})));
  CHECK(padded.to_string() == "Embedding(4, 2, padding_idx=3)");
}

TEST_CASE("EmbeddingBag holds a weight and hands its options on") {
  nn::EmbeddingBag bag = nn::EmbeddingBag::from_pretrained(tensor({{1., 2.}, {3., 5.}, {0., 10.}}), false,
                                                           {.padding_idx = 0, .mode = Reduce::kMax});
  CHECK(equal(bag(tensor({{1, 2}, {0, 1}})), tensor({{3., 10.}, {3., 5.}})));
  CHECK(bag.to_string() == "EmbeddingBag(3, 2, padding_idx=0, mode=max)");
  nn::EmbeddingBag sums = nn::EmbeddingBag::from_pretrained(bag.weight.detach(), true, {.mode = Reduce::kSum});
  CHECK(equal(sums(tensor({0, 1, 2}), tensor({0, 1}), tensor({2., 1., -1.})), tensor({{2., 4.}, {3., -5.}})));
  const nn::EmbeddingBag plain(3, 2);
  CHECK(plain(tensor({{0}, {1}, {2}})).is_same(plain.weight) == false);
  CHECK(equal(plain(tensor({{0}, {1}, {2}})), plain.weight));
  CHECK_THROWS_WITH(nn::EmbeddingBag(3, 2, {.padding_idx = 3}),
                    "EmbeddingBag: padding_idx 3 is out of range for 3 embeddings");
}

TEST_CASE("embeddings give PyTorch's numbers for PyTorch's weights") {
  const auto check = [](const std::string& name, nn::EmbeddingBagOptions options) {
    INFO(name);
    const Figures figures(name);
    nn::EmbeddingBag bag(5, 3, options);
    figures.load(bag);
    StateDict outputs;
    outputs.emplace_back("output", bag(figures.in("ids"), figures.in("offsets"), figures.in("factors")));
    figures.check(bag, outputs);
  };
  check("bag_sum", {.padding_idx = 2, .mode = Reduce::kSum});
  check("bag_mean", {.padding_idx = 2, .scale_grad_by_freq = true, .mode = Reduce::kMean});
  check("bag_max", {.padding_idx = 2, .mode = Reduce::kMax});
  check("bag_weighted", {.mode = Reduce::kSum});

  const Figures figures("embedding");
  nn::Embedding table(5, 3, {.padding_idx = 2, .max_norm = 0.5, .norm_type = 1, .scale_grad_by_freq = true});
  figures.load(table);
  StateDict outputs;
  outputs.emplace_back("output", table(figures.in("ids")));
  figures.check(table, outputs);
}
