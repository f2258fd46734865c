#include "reel/optim/lbfgs.h"

#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "reel/testing.h"
#include "test/support/load.h"

namespace reel {

using Catch::Contains;

static Tensor rosenbrock(const Tensor& x) {
  const Tensor left = x.narrow(0, 0, 3), right = x.narrow(0, 1, 3);
  return sum(100 * square(right - square(left)) + square(1 - left));
}

TEST_CASE("L-BFGS goes where PyTorch's goes with and without a line search", "[optim]") {
  const bool wolfe = GENERATE(false, true);
  const optim::LBFGSOptions options = wolfe ? optim::LBFGSOptions{.max_iter = 3, .strong_wolfe = true}
                                            : optim::LBFGSOptions{.lr = 0.3, .max_iter = 3, .history_size = 4};
  const StateDict figures = load_reference("optim.safetensors");
  const Tensor expected = *find(figures, wolfe ? "optimizer.lbfgs_wolfe" : "optimizer.lbfgs");
  // Two tensors, one of them not seen as the vector that it is a part of.
  Tensor a = tensor({{-1.2, 1.0}}, {.dtype = kFloat64}).requires_grad_(),
         b = tensor({-0.5, 0.8}, {.dtype = kFloat64}).requires_grad_();
  auto lbfgs = std::make_unique<optim::LBFGS>(std::vector{a, b}, options);
  for (int t = 0; t < 20; ++t) {
    lbfgs->step([&] {
      lbfgs->zero_grad();
      const Tensor loss = rosenbrock(cat({a.view({2}), b}));
      loss.backward();
      return loss;
    });
    INFO("step " << t);
    CHECK_NOTHROW(testing::assert_close(no_grad([&] { return cat({a.view({2}), b}); }), expected[t], {.rtol = 1e-6}));
    if (t == 7) {
      const StateDict dict = lbfgs->state_dict();
      lbfgs = std::make_unique<optim::LBFGS>(std::vector{a, b}, options);
      lbfgs->load_state_dict(dict);
    }
  }
}

TEST_CASE("L-BFGS says what it cannot do", "[optim]") {
  Tensor x = ones({2}, {.requires_grad = true});
  optim::LBFGS lbfgs({x});
  x.set_grad(ones({2}));
  CHECK_THROWS_WITH(static_cast<optim::Optimizer&>(lbfgs).step(),
                    "LBFGS: step() needs a closure that computes the loss and its gradients anew");
  StateDict dict = lbfgs.state_dict();
  dict.emplace_back("state.0.direction", ones({2}));
  CHECK_THROWS_WITH(lbfgs.load_state_dict(dict), "LBFGS::load_state_dict: missing: state.0.iterations");
}

}  // namespace reel
