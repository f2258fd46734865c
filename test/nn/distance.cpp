#include <catch2/catch.hpp>

#include "reel/nn.h"

namespace reel {

TEST_CASE("distances are modules", "[nn]") {
  const Tensor a = tensor({{1., 2.}, {3., 4.}}), b = tensor({{0., 1.}, {-2., 4.}});
  struct Net : nn::Module {
    nn::CosineSimilarity cosine{*this, "cosine", {.dim = 0}};
    nn::PairwiseDistance distance{*this, "distance", {.p = 1, .keepdim = true}};
  } net;
  CHECK(equal(net.cosine(a, b), cosine_similarity(a, b, 0)));
  CHECK(equal(net.distance(a, b), pairwise_distance(a, b, {.p = 1, .keepdim = true})));
  CHECK(net.to_string() == "Net(\n  (cosine): CosineSimilarity()\n  (distance): PairwiseDistance()\n)");
  CHECK(equal(nn::CosineSimilarity()(a, b), cosine_similarity(a, b)));
}

}  // namespace reel
