// A stranger's program that trains in several processes.
#include <reel/distributed.h>
#include <reel/reel.h>

#include <cstdio>

using namespace reel;

int main() try {
  nn::Linear net(3, 2);
  distributed::DistributedDataParallel ddp(net);
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    manual_seed(static_cast<uint64_t>(10 * step + distributed::rank()));
    sgd.zero_grad();
    net(randn({4, 3})).square().sum().backward();
    sgd.step();
  }
  const Tensor all = distributed::all_gather(net.weight.detach());
  const bool same = all[0].equal(all[-1]);
  std::printf("rank %d of %d: %s\n", distributed::rank(), distributed::world_size(), same ? "ok" : "weights differ");
  return same ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
