// How many kernels an iteration launches, which is what small models on a GPU cost. Only test/simt counts them.
#include <catch2/catch.hpp>

#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

namespace simt {
[[gnu::weak]] extern unsigned long long launches();
}

using namespace reel;

namespace {

/// The kernels that work() launches when it is called for the second time.
template <class F>
unsigned long long launched(const F& work) {
  work();
  const auto before = simt::launches();
  work();
  return simt::launches() - before;
}

}  // namespace

TEST_CASE("gradients of few parameters are clipped by three kernels", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  std::vector<Tensor> parameters;
  for (int i = 0; i < 60; ++i) {
    parameters.push_back(zeros({i, 100}, {.device = kCUDA}).requires_grad_());
    parameters.back().set_grad(ones({i, 100}, {.device = kCUDA}));
  }
  CHECK(launched([&] { optim::clip_grad_norm(parameters, 1); }) == 3);
}
