#include "reel/nn/check.h"

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

struct Block : nn::Layer<Block> {
  using Layer::Layer;
  nn::Linear lost{4, 8, {.bias = false}};  // not registered
  nn::Linear fc{*this, "fc", 8, 4};
  Tensor forward(const Tensor& x) const { return fc(lost(x)); }
};

struct Net : nn::Layer<Net> {
  Block block{*this, "block"};
  nn::Linear spare{*this, "spare", 4, 4};
  nn::Linear frozen{*this, "frozen", 4, 4};
  nn::Dropout dropout{*this, "dropout"};
  Tensor scale = ones({4}, {.requires_grad = true});
  Net() { frozen.requires_grad_(false); }
  Tensor forward(const Tensor& x) const { return dropout(block(x) * scale) * scale; }
};

}  // namespace

TEST_CASE("a layer that is used and not registered, and one that is registered and not used, are found") {
  Net net;
  const Tensor x = ones({2, 4}, {.requires_grad = true});
  const nn::Check check = nn::check(net, x);
  CHECK(check.unregistered ==
        std::vector<std::string>{"float32 [8, 4], used by linear in block (Block)", "float32 [4], used by mul in Net"});
  CHECK(check.unused == std::vector<std::string>{"spare.weight", "spare.bias"});
  CHECK_FALSE(check.good());
  CHECK(check.to_string() ==
        "used but not registered: float32 [8, 4], used by linear in block (Block)\n"
        "used but not registered: float32 [4], used by mul in Net\n"
        "registered but not used: spare.weight\n"
        "registered but not used: spare.bias\n");
  CHECK(net.is_training());
  CHECK_FALSE(x.grad().defined());
  CHECK(nn::summary(net, x).unregistered == check.unregistered);
  CHECK(nn::summary(net, x).to_string().ends_with("used by mul in Net\n"));
}

TEST_CASE("a model whose parameters are all used is good, also under checkpoint and without recording") {
  struct Good : nn::Module {
    nn::Sequential body{*this, "body", nn::Linear(3, 3), nn::BatchNorm1d(3), relu};
    nn::Parameter offset{*this, "offset", zeros({3})};
    std::vector<Tensor> forward(const Tensor& x) {
      return {checkpoint([&](const std::vector<Tensor>& in) { return std::vector{body(in[0])}; }, {x})[0], offset};
    }
  } good;
  nn::weight_norm(good.body[0].as_ref<nn::Linear>());
  NoGrad guard;
  const nn::Check check = nn::check(good, ones({2, 3}));
  CHECK(check.to_string() == "all parameters are used, and all that is used is registered\n");
  CHECK(check.good());
}
