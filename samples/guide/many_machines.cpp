#include "samples/guide/guide.h"

#ifdef REEL_SAMPLES_DISTRIBUTED
#include <reel/distributed.h>

namespace guide_many_machines {
using namespace reel;

void run() {
  const data::TensorDataset examples(randn({64, 8}), randint(0, 3, {64}));

  // [ddp]
  nn::Sequential net(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 3));
  distributed::DistributedDataParallel ddp(net);  // all ranks have rank 0's parameters from here on
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  data::DataLoader loader(examples, distributed::DistributedSampler(examples.size()), {.batch_size = 16});
  Tensor loss;
  for (auto [x, y] : loader) {  // each rank has its share of the examples
    loss = cross_entropy(net(x), y);
    adam.zero_grad();
    loss.backward();  // gradients are the mean over the ranks
    adam.step();
  }
  Tensor mean_loss = distributed::mean(loss);  // the same on all ranks: what early stopping must decide by
  if (distributed::rank() == 0) {
    std::cout << "loss " << mean_loss.item<float>() << " with " << distributed::world_size() << " processes\n";
    io::save(net, "net.safetensors");
  }
  // [/ddp]
  {
    // [gpus]
    Device device = kCPU;  // or the GPU of this process: the first process of a machine has the first one
    if (cuda::is_available()) device = Device::from_string("cuda:" + std::to_string(distributed::local_rank()));
    nn::Linear model(8, 3);
    model.to(device);  // before DistributedDataParallel and the optimizer are made
    distributed::DistributedDataParallel parallel(model);
    optim::Adam model_adam(model.parameters(), {.lr = 1e-3});
    data::DataLoader batches(examples, distributed::DistributedSampler(examples.size()),
                             {.batch_size = 16, .workers = 1, .device = device});
    // [/gpus]
    for (auto [x, y] : batches) {
      cross_entropy(model(x), y).backward();
      model_adam.step();
    }
  }
  const Tensor all = distributed::all_gather(net.parameters()[0].detach());
  for (int64_t r = 0; r < all.size(0); ++r) REEL_CHECK(all[r].equal(all[0]), "ranks differ");
}

}  // namespace guide_many_machines

void many_machines() { guide_many_machines::run(); }
#else
void many_machines() {}
#endif
