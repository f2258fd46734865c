// Names and forms that programs written for libtorch use, beside reel's own.
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
namespace F = reel::nn::functional;

TEST_CASE("factories take a dtype alone for options") {
  CHECK(equal(zeros({2}, kInt64), tensor({0, 0})));
  CHECK(ones({}, kBool).dtype() == kBool);
  CHECK(empty({2, 3}, kUInt8).dtype() == kUInt8);
  CHECK(equal(full({1}, 2.5, kFloat64), tensor(std::vector<double>{2.5})));
  CHECK(rand({3}, kFloat64).dtype() == kFloat64);
  CHECK(randn({3}, kBFloat16).dtype() == kBFloat16);
  CHECK(zeros({2}, {}).dtype() == kFloat32);
}

TEST_CASE("a Slice may end at kNone") {
  const Tensor x = arange(6);
  CHECK(equal(x.index({Slice(kNone, 2)}), x.index({Slice({}, 2)})));
  CHECK(equal(x.index({Slice(1, kNone, 2)}), tensor({1, 3, 5})));
  const std::optional<int64_t> stop = 3;
  CHECK(x.index({Slice(0, stop)}).numel() == 3);
}

TEST_CASE("ops are found in nn::functional, schedules in optim::lr_scheduler") {
  const Tensor x = tensor({-1.0, 2.0});
  CHECK(equal(F::relu(x), relu(x)));
  CHECK(F::mse_loss(x, x).item<float>() == 0);
  const NoGradGuard guard;
  CHECK_FALSE(grad_enabled());
  nn::Linear fc(2, 1);
  optim::SGD sgd(fc.parameters(), 0.1);
  const optim::lr_scheduler::StepLR schedule(sgd, 30, 0.5);
  CHECK(sgd.lr() == 0.1);
}

TEST_CASE("the dtypes have the names of C++ types, too") {
  const DType names[] = {kByte, kInt, kLong, kHalf, kFloat, kDouble};
  const DType expected[] = {kUInt8, kInt32, kInt64, kFloat16, kFloat32, kFloat64};
  CHECK(std::equal(std::begin(names), std::end(names), std::begin(expected), std::end(expected)));
}

TEST_CASE("optimizers take a learning rate, options or groups") {
  nn::Linear body(2, 3), head(3, 1);
  CHECK(optim::Adam(body.parameters(), 1e-2).lr() == 1e-2);
  CHECK(optim::SGD(body.parameters(), 1).lr() == 1);
  CHECK(optim::SGD(body.parameters(), {}).lr() == 1e-3);  // not 0
  optim::Adam adam({{body.parameters(), {.lr = 1e-5}}, {head.parameters(), {.lr = 1e-3, .weight_decay = 0.1}}});
  REQUIRE(adam.num_groups() == 2);
  CHECK(adam.lr(0) == 1e-5);
  CHECK(adam.options(1).weight_decay == 0.1);
  CHECK(adam.parameters(1)[0].is_same(head.weight));
  CHECK_THROWS_AS(optim::Adam({{body.parameters(), {}}, {body.parameters(), {}}}), Error);
  CHECK_THROWS_AS(optim::Adam(body.parameters(), -1), Error);
}

TEST_CASE("gradients of parameters that are named one by one are clipped") {
  const Tensor w = ones({2}, {.requires_grad = true});
  sum(w * tensor({3.0, 4.0})).backward();
  CHECK(optim::clip_grad_norm({w}, 1).item<float>() == 5);
  CHECK(w.grad().to_vector<float>()[0] == Approx(0.6).margin(1e-5));
  CHECK(nn::utils::clip_grad_norm_({w}, 1).item<float>() == Approx(1));
  nn::utils::clip_grad_value_({w}, 0.5);
  CHECK(max(w.grad()).item<float>() == 0.5f);
}

TEST_CASE("a module that may be of another type is asked for its own") {
  nn::Sequential net;
  net.push_back(nn::Linear(2, 2)).push_back(relu).push_back("last", nn::Linear(2, 1));
  CHECK(net.size() == 3);
  int linear = 0;
  net.apply([&](nn::Module& module) {
    if (auto* const fc = module.as<nn::Linear>()) no_grad([&] { fc->weight.fill_(1); }), ++linear;
  });
  CHECK(linear == 2);
  CHECK(net["last"].as_ref<nn::Linear>().weight.sum().item<float>() == 2);
}
