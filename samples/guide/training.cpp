#include <reel/tensorboard.h>

#include "samples/guide/guide.h"

namespace guide_training {
using namespace reel;
using guide::Net;

void run() {
  const Tensor x = randn({300, 4}), y = argmax(matmul(x, randn({4, 3})), 1);
  const data::TensorDataset examples(x.narrow(0, 0, 200), y.narrow(0, 0, 200));
  const Tensor dev_x = x.narrow(0, 200, 100), dev_y = y.narrow(0, 200, 100);

  // [loop]
  manual_seed(1);
  Net net;
  optim::Adam adam(net.parameters(), {.lr = 1e-2});
  optim::CosineAnnealingLR schedule(adam, {.T_max = 5});
  data::DataLoader loader(examples, {.batch_size = 20, .shuffle = true});
  std::vector<double> train_losses, dev_losses;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    net.train();
    double total = 0;
    Progress batches(loader, {.title = "epoch " + std::to_string(epoch), .unit = "batches"});
    for (auto [inputs, targets] : batches) {
      Tensor loss = cross_entropy(net(inputs), targets);
      adam.zero_grad();
      loss.backward();
      optim::clip_grad_norm(net.parameters(), 5.0);
      adam.step();
      total += loss.item<double>();
      batches.postfix("loss", [&] { return loss.item<double>(); });
    }
    schedule.step();
    net.eval();
    NoGrad guard;  // nothing is recorded until the end of this block
    train_losses.push_back(total / static_cast<double>(loader.size()));
    dev_losses.push_back(cross_entropy(net(dev_x), dev_y).item<double>());
  }
  // [/loop]
  REEL_CHECK(dev_losses.back() < dev_losses.front(), "the model has not learned");

  // [log]
  plot({{"train", train_losses}, {"dev", dev_losses}}, "loss.svg", {.x_label = "epoch", .y_label = "loss"});

  tensorboard::SummaryWriter log("runs/a");  // #include <reel/tensorboard.h>; then: tensorboard --logdir runs
  for (size_t i = 0; i < dev_losses.size(); ++i) log.add_scalar("dev/loss", dev_losses[i], static_cast<int64_t>(i));
  // [/log]
  REEL_CHECK(std::filesystem::file_size("loss.svg") > 1000, "plot");

  // [checkpoint]
  io::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", adam).add("schedule", schedule).add("data", loader);
  checkpoint.load_newest("run.safetensors");  // does nothing if there is no such file yet
  while (loader.epoch() < 8) {
    for (auto [inputs, targets] : loader) {
      Tensor loss = cross_entropy(net(inputs), targets);
      adam.zero_grad();
      loss.backward();
      adam.step();
      if (loader.position() % 5 == 0) checkpoint.save("run.safetensors", {}, {.keep = 2});
    }
  }
  // [/checkpoint]
  Net other;
  optim::Adam other_adam(other.parameters(), {.lr = 1e-2});
  optim::CosineAnnealingLR other_schedule(other_adam, {.T_max = 5});
  data::DataLoader other_loader(examples, {.batch_size = 20, .shuffle = true});
  io::Checkpoint again;
  again.add("model", other).add("optimizer", other_adam).add("schedule", other_schedule).add("data", other_loader);
  REEL_CHECK(again.load_newest("run.safetensors") && other.out.weight.equal(net.out.weight), "resume");
}

}  // namespace guide_training

void training() { guide_training::run(); }
