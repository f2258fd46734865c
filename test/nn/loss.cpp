#include <catch2/catch.hpp>

#include "reel/nn.h"

namespace reel {

TEST_CASE("every loss is a module with its op's options", "[nn]") {
  const Tensor x = tensor({{1., -2., 0.5}, {0.3, 4., -1.}}), y = tensor({{0.2, 0.7, 0.1}, {0.9, 0.3, 0.6}}),
               p = sigmoid(x);
  const Tensor ids = tensor({2, 0}), signs = tensor({1, -1}), w = tensor({1., 2., 0.5});
  CHECK(equal(nn::L1Loss()(x, y), l1_loss(x, y)));
  CHECK(equal(nn::MSELoss{{.reduction = kSum}}(x, y), mse_loss(x, y, kSum)));
  CHECK(equal(nn::SmoothL1Loss({.beta = 2})(x, y), smooth_l1_loss(x, y, {.beta = 2})));
  CHECK(equal(nn::HuberLoss({.delta = 2})(x, y), huber_loss(x, y, {.delta = 2})));
  CHECK(equal(nn::NLLLoss({.weight = w})(x, ids), nll_loss(x, ids, {.weight = w})));
  CHECK(equal(nn::CrossEntropyLoss{{.label_smoothing = 0.1}}(x, ids), cross_entropy(x, ids, {.label_smoothing = 0.1})));
  CHECK(equal(nn::MultiMarginLoss({.p = 2})(x, ids), multi_margin_loss(x, ids, {.p = 2})));
  CHECK(equal(nn::MultiLabelMarginLoss()(x, tensor({{0, -1, 1}, {2, 1, 0}})),
              multilabel_margin_loss(x, tensor({{0, -1, 1}, {2, 1, 0}}))));
  CHECK(equal(nn::MultiLabelSoftMarginLoss({.weight = w})(x, y), multilabel_soft_margin_loss(x, y, {.weight = w})));
  CHECK(equal(nn::BCELoss()(p, y), binary_cross_entropy(p, y)));
  CHECK(
      equal(nn::BCEWithLogitsLoss({.pos_weight = w})(x, y), binary_cross_entropy_with_logits(x, y, {.pos_weight = w})));
  CHECK(equal(nn::KLDivLoss({.reduction = kBatchMean})(x, y), kl_div(x, y, {.reduction = kBatchMean})));
  CHECK(equal(nn::PoissonNLLLoss({.full = true})(x, y), poisson_nll_loss(x, y, {.full = true})));
  CHECK(equal(nn::GaussianNLLLoss({.full = true})(x, y, p), gaussian_nll_loss(x, y, p, {.full = true})));
  CHECK(equal(nn::SoftMarginLoss()(x, sign(x)), soft_margin_loss(x, sign(x))));
  CHECK(equal(nn::HingeEmbeddingLoss({.margin = 2})(x, sign(x)), hinge_embedding_loss(x, sign(x), {.margin = 2})));
  CHECK(equal(nn::MarginRankingLoss({.margin = 2})(x, y, 1), margin_ranking_loss(x, y, 1, {.margin = 2})));
  CHECK(equal(nn::CosineEmbeddingLoss()(x, y, signs), cosine_embedding_loss(x, y, signs)));
  CHECK(equal(nn::TripletMarginLoss({.swap = true})(x, y, p), triplet_margin_loss(x, y, p, {.swap = true})));
  const Tensor steps = log_softmax(tensor({{{1., 2., 0.}}, {{0.5, 0., 1.}}, {{2., 1., 0.}}}), 2);
  CHECK(equal(nn::CTCLoss({.blank = 2})(steps, tensor({{0, 1}}), tensor({3}), tensor({2})),
              ctc_loss(steps, tensor({{0, 1}}), tensor({3}), tensor({2}), {.blank = 2})));
  const auto far = [](const Tensor& a, const Tensor& b) { return sum(abs(a - b), 1); };
  CHECK(equal(nn::TripletMarginWithDistanceLoss({.distance = far})(x, y, p),
              triplet_margin_with_distance_loss(x, y, p, {.distance = far})));
}

TEST_CASE("class weights are buffers of a loss", "[nn]") {
  struct Net : nn::Module {
    nn::CrossEntropyLoss classes{*this, "classes", {.weight = tensor({1., 2.})}};
    nn::BCEWithLogitsLoss bits{*this, "bits", {.pos_weight = tensor({3.})}};
    nn::CrossEntropyLoss plain{*this, "plain"};
  } net;
  std::string names;
  for (const auto& [name, tensor] : net.named_buffers()) names += name + " ";
  CHECK(names == "classes.weight bits.pos_weight ");
  net.to(kFloat64);
  CHECK(net.classes.options.weight.dtype() == kFloat64);
  CHECK(net.parameters().empty());
  CHECK(net.classes.to_string() == "CrossEntropyLoss()");
}

}  // namespace reel
