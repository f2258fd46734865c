#include <cmath>

#include "samples/guide/guide.h"

namespace guide_gpu {
using namespace reel;

void run() {
  const data::TensorDataset examples(randn({64, 8}), randint(0, 3, {64}));

  // [device]
  Device device = cuda::is_available() ? kCUDA : kCPU;
  nn::Sequential net(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 3));
  net.to(device);  // before an optimizer is made
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  data::DataLoader loader(examples, {.batch_size = 16, .workers = 1, .device = device});  // copies one batch ahead
  Tensor total = zeros({}, {.device = device});
  for (auto [x, y] : loader) {
    Tensor loss = amp::autocast(kBFloat16, [&, x = x, y = y] {  // clang does not capture x and y by [&] in C++20
      return cross_entropy(net(x), y);
    });
    adam.zero_grad();
    loss.backward();
    adam.step();
    total += loss.detach();  // stays on the device: item() would wait for it
  }
  std::cout << "loss " << total.item<float>() / static_cast<float>(loader.size()) << '\n';
  // [/device]
  REEL_CHECK(std::isfinite(total.item<float>()), "loss");

  {
    // [mixed]
    amp::GradScaler scaler;  // for kFloat16; kBFloat16 needs none
    for (auto [x, y] : loader) {
      Tensor loss = amp::autocast(kFloat16, [&, x = x, y = y] { return cross_entropy(net(x), y); });
      adam.zero_grad();
      scaler.scale(loss).backward();
      scaler.step(adam);  // skipped if a gradient is not finite
      scaler.update();
    }
    // [/mixed]
  }

  if (!cuda::is_available()) return;
  Tensor x = randn({16, 8}, {.device = kCUDA}), y = randint(0, 3, {16}, {.device = kCUDA}), loss;
  // [graph]
  cuda::Graph graph;
  graph.capture([&] {  // one iteration, whose tensors keep their places
    adam.zero_grad();
    loss = cross_entropy(net(x), y);
    loss.backward();
    adam.step();
  });
  for (int i = 0; i < 100; ++i) {
    x.copy_(randn({16, 8}));  // the next batch goes into the same tensor
    graph.replay();
  }
  // [/graph]

  const auto step = [&] {
    adam.zero_grad();
    loss = cross_entropy(net(x), y);
    loss.backward();
    adam.step();
  };
  // [profile]
  using Kind = profile::GpuEvent::Kind;
  profile::start();
  for (int i = 0; i < 10; ++i) step();
  const profile::Report report = profile::stop();
  std::cout << report.table();
  for (const profile::Launch& one : report.launches()) {
    const double mean = one.seconds / static_cast<double>(one.count);
    const bool small = one.kind == Kind::kKernel && mean < 4e-6;  // takes less than its launch
    if (one.kind == Kind::kWait || one.kind == Kind::kCopy || small)
      std::cout << one.count << " x " << one.name << " by " << one.op << ", " << mean * 1e6 << " us each\n";
  }
  // [/profile]
}

}  // namespace guide_gpu

void gpu() { guide_gpu::run(); }
