#include <reel/tensorboard.h>

#include <csignal>

#include "samples/guide/guide.h"

namespace guide_training {
using namespace reel;
using guide::Net;

struct Letters : nn::Layer<Letters> {
  nn::Embedding letters{*this, "letters", 5, 8};
  nn::LSTM lstm{*this, "lstm", 8, 16};
  nn::Linear out{*this, "out", 16, 5};
  std::pair<Tensor, CellState> forward(const Tensor& ids, const CellState& state) const {
    auto [y, next] = lstm(letters(ids), state);
    return {out(y), next};
  }
};

/// Returns the weights after so many updates.
Tensor read_text(const Tensor& text, int64_t updates) {
  manual_seed(1);
  Letters net;
  optim::Adam adam(net.parameters(), {.lr = 1e-2});
  // [bptt]
  data::BpttDataset pieces(text, {.batch_size = 8, .steps = 16});  // 8 parts of the text side by side
  CellState state;
  int64_t update = 0;
  io::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", adam).add("state", state).add("update", update);
  checkpoint.load_newest("letters.safetensors");

  static volatile std::sig_atomic_t stop = 0;
  std::signal(SIGINT, [](int) { stop = 1; });  // Ctrl-C ends the loop after the update; <csignal>
  ProgressBar bar({.title = "reading", .total = updates, .unit = "updates", .initial = update});
  while (update < updates && !stop) {
    const int64_t piece = update % pieces.size();
    if (piece == 0) state = {};               // the text begins again: from zeros
    auto [ids, targets] = pieces.get(piece);  // [16, 8]; the last piece may have fewer steps
    auto [scores, next] = net(ids, state);
    Tensor loss = cross_entropy(scores.flatten(0, 1), targets.flatten());
    adam.zero_grad();
    loss.backward();
    adam.step();
    state = next.detach();  // the values go on; gradients end here
    bar.postfix("loss", [&] { return loss.item<double>(); }).postfix("lr", adam.lr()).update(++update);
    if (update % 20 == 0) {
      bar.write("update " + std::to_string(update) + ": loss " + std::to_string(loss.item<double>()));
      checkpoint.save("letters.safetensors");
    }
  }
  bar.close();
  checkpoint.save("letters.safetensors");
  // [/bptt]
  std::signal(SIGINT, SIG_DFL);
  return net.out.weight;
}

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

  const Tensor text = remainder(cumsum(randint(0, 2, {1500}), 0), 5);
  read_text(text, 15);
  const Tensor resumed = read_text(text, 40);
  std::filesystem::remove("letters.safetensors");
  REEL_CHECK(resumed.equal(read_text(text, 40)), "resume within a text");
}

}  // namespace guide_training

void training() { guide_training::run(); }
