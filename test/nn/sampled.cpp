#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/random.h"

namespace reel {

TEST_CASE("the adaptive softmax is a distribution over all classes", "[nn]") {
  manual_seed(2);
  nn::AdaptiveLogSoftmaxWithLoss softmax(16, 30, {5, 12});
  std::string names;
  for (const auto& [name, parameter] : softmax.named_parameters()) names += name + parameter.shape().to_string() + " ";
  CHECK(
      names ==
      "head.weight[7, 16] tail.0.0.weight[4, 16] tail.0.1.weight[7, 4] tail.1.0.weight[1, 16] tail.1.1.weight[18, 1] ");
  const Tensor x = randn({9, 16}), y = tensor({0, 29, 5, 11, 12, 4, 3, 3, 20}), all_classes = softmax.log_prob(x);
  CHECK(all(abs(sum(exp(all_classes), 1) - 1) < 1e-5).item<bool>());
  const auto [output, loss] = softmax(x, y);
  CHECK(all(abs(output - gather(all_classes, 1, y.unsqueeze(1)).squeeze(1)) < 1e-5).item<bool>());
  CHECK(loss.item<float>() == Approx(-mean(output).item<float>()));
  CHECK(equal(softmax.predict(x), argmax(all_classes, 1)));
  // Clusters that no target is in have no part in the loss.
  softmax(x, zeros_like(y)).loss.backward();
  CHECK(softmax.head.weight.grad().defined());
  CHECK(!softmax.tail[0].parameters()[0].grad().defined());
  CHECK_THROWS_WITH(softmax(x, y + 1), "AdaptiveLogSoftmaxWithLoss: a target is not between 0 and 29");
  CHECK_THROWS_WITH(nn::AdaptiveLogSoftmaxWithLoss(4, 10, {3, 3}),
                    "AdaptiveLogSoftmaxWithLoss: cutoff 3 is not between 3 and 10");
}

TEST_CASE("the hierarchical softmax learns a class from its input", "[nn]") {
  manual_seed(2);
  struct Net : nn::Module {
    nn::HierarchicalSoftmax out{*this, "out", 3, {7, 2, 9, 1}};
  } net;
  CHECK(net.out.to_string() == "HierarchicalSoftmax(in_features=3, classes=4)");
  const Tensor x = eye(3), y = tensor({3, 0, 1});
  for (int step = 0; step < 200; ++step) {
    net.zero_grad();
    net.out(x, y).backward();
    for (Tensor& p : net.parameters()) no_grad([&] { p.sub_(p.grad(), 2); });
  }
  CHECK(equal(argmax(net.out.log_prob(x), 1), y));
  CHECK(net.out(x, y).item<float>() == Approx(-mean(gather(net.out.log_prob(x), 1, y.unsqueeze(1))).item<float>()));
}

}  // namespace reel
