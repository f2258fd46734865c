// DistributedDataParallel on ranks whose models run in batching::map.
#include <catch2/catch.hpp>
#include <map>

#include "reel/batching.h"
#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;

namespace {

constexpr int kFewSteps = 6;

/// Trains with other numbers of examples, and so other groups, on each rank. `fired`: how often each parameter's
/// gradient became final.
template <class Model>
Tensors train(int rank, bool batched, std::map<std::string, int>& fired) {
  manual_seed(1);
  Model model;
  DistributedDataParallel ddp(model);
  for (auto& [name, parameter] : model.named_parameters())
    if (name != "words.weight")  // sparse
      parameter.register_hook([&fired, name = name](const Tensor& g) { return ++fired[name], g; });
  optim::SGD optimizer(model.parameters(), {.lr = 0.0625});
  int next = 100 * rank;
  for (int step = 0; step < kFewSteps; ++step) {
    std::vector<int> examples;
    for (int i = 0; i < 2 + 3 * rank + step % 2; ++i) examples.push_back(next++);
    const auto loss = [&](int i) { return model.loss(i); };
    const Tensors losses = batching::map(examples, loss, {.window = batched ? 64 : 1});
    optimizer.zero_grad();
    reel::mean(stack(losses)).backward();
    optimizer.step();
  }
  return copies(model.parameters());
}

template <class Model>
void check_like_eager() {
  std::vector<std::map<std::string, int>> fired(2);
  const auto run = [&](bool batched) {
    return on_ranks(2, [&](int rank) { return train<Model>(rank, batched, fired[static_cast<size_t>(rank)]); });
  };
  const auto eager = run(false);
  fired.assign(2, {});
  const auto batched = run(true);
  for (const Tensors& weights : batched) {
    CHECK(same(weights, batched[0]));
    REQUIRE(weights.size() == eager[0].size());
    for (size_t i = 0; i < weights.size(); ++i) CHECK(allclose(weights[i], eager[0][i], 1e-5, 1e-5));
  }
  for (const auto& counts : fired) {
    CHECK(!counts.empty());
    for (const auto& [name, count] : counts) CHECK(count == kFewSteps);
  }
}

}  // namespace

TEST_CASE("ranks that batch their own examples train as ranks that do not", "[ddp][batching]") {
  check_like_eager<Mlp>();
  check_like_eager<Recurrent>();
  check_like_eager<Tree>();
}
