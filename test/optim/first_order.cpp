#include "reel/optim/first_order.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "reel/testing.h"
#include "test/support/load.h"

// PyTorch's figures: test/reference/optim.py.
namespace reel {

static Tensor figure(const std::string& name) {
  static const StateDict figures = load_reference("optim.safetensors");
  const Tensor* found = find(figures, name);
  REQUIRE(found);
  return *found;
}

TEST_CASE("every optimizer goes step by step where PyTorch's goes", "[optim]") {
  using Tensors = std::vector<Tensor>;
  const struct {
    const char* name;
    std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)> make;
  } table[] = {
      {"sgd",
       [](const Tensors& p) {
         return std::make_unique<optim::SGD>(
             p, optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
       }},
      {"adagrad",
       [](const Tensors& p) {
         return std::make_unique<optim::Adagrad>(
             p, optim::AdagradOptions{.lr = 0.1, .lr_decay = 0.02, .weight_decay = 0.01});
       }},
      {"adam",
       [](const Tensors& p) {
         return std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = 0.02, .weight_decay = 0.1});
       }},
      {"adam_amsgrad",
       [](const Tensors& p) {
         return std::make_unique<optim::Adam>(
             p, optim::AdamOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.9, .amsgrad = true});
       }},
      {"adamw", [](const Tensors& p) { return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{.lr = 0.02}); }},
      {"adamw_amsgrad",
       [](const Tensors& p) {
         return std::make_unique<optim::AdamW>(
             p, optim::AdamWOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true});
       }},
      {"adamax",
       [](const Tensors& p) {
         return std::make_unique<optim::Adamax>(p, optim::AdamaxOptions{.lr = 0.02, .weight_decay = 0.1});
       }},
      {"nadam",
       [](const Tensors& p) {
         return std::make_unique<optim::NAdam>(p, optim::NAdamOptions{.lr = 0.02, .weight_decay = 0.1});
       }},
      {"nadam_decoupled",
       [](const Tensors& p) {
         return std::make_unique<optim::NAdam>(
             p, optim::NAdamOptions{.weight_decay = 0.1, .momentum_decay = 0.1, .decoupled_weight_decay = true});
       }},
      {"radam",
       [](const Tensors& p) {
         return std::make_unique<optim::RAdam>(p, optim::RAdamOptions{.lr = 0.02, .weight_decay = 0.1});
       }},
      {"radam_decoupled",
       [](const Tensors& p) {
         return std::make_unique<optim::RAdam>(
             p, optim::RAdamOptions{.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1, .decoupled_weight_decay = true});
       }},
      {"rmsprop",
       [](const Tensors& p) {
         return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.weight_decay = 0.1});
       }},
      {"rmsprop_centered",
       [](const Tensors& p) {
         return std::make_unique<optim::RMSprop>(
             p, optim::RMSpropOptions{.alpha = 0.9, .momentum = 0.8, .centered = true});
       }},
      {"adadelta",
       [](const Tensors& p) {
         return std::make_unique<optim::Adadelta>(p, optim::AdadeltaOptions{.weight_decay = 0.1});
       }},
  };
  const Tensor i = arange(5, {.dtype = kFloat64});
  for (const auto& row : table) DYNAMIC_SECTION(row.name) {
      const Tensor expected = figure(std::string("optimizer.") + row.name);
      for (const DType dtype : {kFloat64, kFloat32}) {
        Tensor p = sin(1 + i).to(dtype).requires_grad_();
        auto optimizer = row.make({p});
        for (int t = 0; t < 20; ++t) {
          p.set_grad((cos(p.detach().to(kFloat64) * (i + 1)) + 0.3 * sin(7 * t + i)).to(dtype));
          optimizer->step();
          INFO(dtype << " step " << t);
          CHECK_NOTHROW(testing::assert_close(p.detach().to(kFloat64), expected[t],
                                              {.rtol = 1e-6, .atol = dtype == kFloat64 ? 1e-12 : 1e-5}));
          if (t == 9) {  // the rest by another optimizer, from the first one's state
            const StateDict dict = optimizer->state_dict();
            optimizer = row.make({p});
            optimizer->set_lr(77);
            optimizer->load_state_dict(dict);
          }
        }
      }
    }
}

TEST_CASE("SparseAdam goes where PyTorch's goes and refuses dense gradients", "[optim]") {
  Tensor weight = sin(arange(8, {.dtype = kFloat64})).view({4, 2}).requires_grad_();
  optim::SparseAdam adam({weight}, {.lr = 0.05});
  const Tensor expected = figure("optimizer.sparse_adam");
  for (int t = 0; t < 20; ++t) {
    adam.zero_grad();
    sum(sin(embedding(weight, tensor({t % 4, t % 3}), true) * (t + 1))).backward();
    adam.step();
    CHECK_NOTHROW(testing::assert_close(weight.detach(), expected[t], {.rtol = 1e-9}));
  }
  adam.zero_grad();
  sum(weight).backward();
  const Tensor before = weight.detach().clone();
  CHECK_THROWS_WITH(adam.step(),
                    "SparseAdam: the parameter of shape [4, 2] has a dense gradient, and this optimizer takes "
                    "row-sparse ones only");
  CHECK(equal(weight, before));
}

TEST_CASE("a step allocates no memory that stays, and momentum can be set", "[optim]") {
  Tensor p = ones({100}, {.requires_grad = true});
  optim::RMSprop rmsprop({p}, {.momentum = 0.5, .centered = true});
  p.set_grad(ones({100}));
  rmsprop.step();
  {
    testing::LeakScope scope;
    rmsprop.step();
  }
  rmsprop.set_momentum(0, 0.25);
  CHECK(rmsprop.options().momentum == 0.25);
  optim::Adam adam({p});
  adam.set_momentum(0, 0.5);
  CHECK(adam.momentum() == 0.5);
  CHECK(adam.options().beta1 == 0.5);
  CHECK_THROWS_WITH(optim::Adagrad({p}).momentum(), "Optimizer: no momentum");
}

}  // namespace reel
