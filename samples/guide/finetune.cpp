#include <reel/onnx.h>

#include "samples/guide/guide.h"

namespace guide_finetune {
using namespace reel;

// [net]
struct Block : nn::Layer<Block> {
  Block(int64_t in, int64_t out)
      : conv{*this, "conv", in, out, 3, {.padding = 1, .bias = false}}, norm{*this, "norm", out} {}
  Tensor forward(const Tensor& x) const { return relu(norm(conv(x))); }

  nn::Conv2d conv;
  nn::BatchNorm2d norm;
};

struct Net : nn::Layer<Net> {  // with the names of the model in Python: "body.0.conv.weight", …, "fc.bias"
  explicit Net(int64_t classes) : fc{*this, "fc", 16, classes} {}
  Tensor features(const Tensor& x) const { return mean(body(x), {2, 3}); }
  Tensor forward(const Tensor& x) const { return fc(features(x)); }

  nn::Sequential body{*this, "body", Block(1, 8), nn::MaxPool2d(2), Block(8, 16)};
  nn::Linear fc;
};
// [/net]

// [onnx_net]
struct Tuned : nn::Layer<Tuned> {
  explicit Tuned(const std::string& file) : body{*this, "body", file, {.outputs = {"features"}}} {}
  Tensor forward(const Tensor& x) const { return head(body(x)); }

  onnx::Model body;  // #include <reel/onnx.h>
  nn::Linear head{*this, "head", 16, 3};
};
// [/onnx_net]

/// Noisy pictures [n, 1, 12, 12], and the number of the shape that each shows, from 0 on.
std::pair<Tensor, Tensor> drawn(int64_t n, int64_t first_shape, int64_t shapes) {
  Tensor x = rand({n, 1, 12, 12}) * 0.5, y = randint(0, shapes, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t shape = first_shape + y[i].item<int64_t>(), at = randint(3, 9, {1}).item<int64_t>();
    if (shape & 1) x.index({i, 0, Slice(2, 10), at}).fill_(1);
    if (shape & 2) x.index({i, 0, at, Slice(2, 10)}).fill_(1);
    if (shape & 4) x[i][0].diagonal().fill_(1);
  }
  return {x, y};
}

double accuracy(const Tensor& scores, const Tensor& y) {
  return mean((argmax(scores, 1) == y).to(kFloat32)).item<double>();
}

/// What another program would have left: weights of a net of four classes.
void pretrain() {
  auto [x, y] = drawn(512, 0, 4);
  Net net(4);
  optim::Adam adam(net.parameters(), {.lr = 1e-2});
  data::DataLoader loader(data::TensorDataset(x, y), {.batch_size = 32, .shuffle = true});
  for (int epoch = 0; epoch < 6; ++epoch)
    for (auto [inputs, targets] : loader) {
      adam.zero_grad();
      cross_entropy(net(inputs), targets).backward();
      adam.step();
    }
  io::save(net, "pretrained.safetensors");
  struct WithFeatures : nn::Layer<WithFeatures> {
    std::pair<Tensor, Tensor> forward(const Tensor& image) const {
      Tensor features = net.features(image);
      return {net.fc(features), features};
    }
    Net net{4};
  } both;
  both.register_module("net", both.net);
  both.net.load_state_dict(net.state_dict());
  onnx::save(
      both, {x.narrow(0, 0, 2)}, "pretrained.onnx",
      {.inputs = {"image"}, .outputs = {"logits", "features"}, .dynamic = {{.input = 0, .dim = 0, .name = "batch"}}});
}

void run() {
  pretrain();
  auto [x, y] = drawn(256, 3, 3);
  auto [dev_x, dev_y] = drawn(128, 3, 3);

  {
    // [whole]
    Net net(4);
    io::load(net, "pretrained.safetensors");  // or "net.pt", which torch.save has written
    // [/whole]
  }
  {
    // [load]
    Net net(3);  // the file has four classes
    nn::LoadResult result = io::load(net, "pretrained.safetensors", {.ignore_mismatched_sizes = true});
    std::cout << result << '\n';  // mismatched: fc.weight, fc.bias
    // [/load]
    REEL_CHECK(result.mismatched.size() == 2 && result.missing.empty(), "load");
  }

  // [head]
  Net net(4);
  io::load(net, "pretrained.safetensors");
  nn::replace(net.fc, nn::Linear(16, 3));  // before an optimizer is made, which holds the parameters

  for (auto& [name, p] : net.named_parameters())
    if (!name.starts_with("fc.")) p.requires_grad_(false);
  // [/head]

  // [transforms]
  using namespace data::transforms;
  data::DataLoader loader(
      data::transform(data::TensorDataset(x, y), Compose(RandomHorizontalFlip(), RandomCrop(12, {.padding = 1}))),
      {.batch_size = 32, .shuffle = true});
  // [/transforms]

  const Tensor frozen = net.get_parameter("body.0.conv.weight").clone(),
               moving = net.get_buffer("body.0.norm.running_mean").clone();
  // [frozen]
  optim::Adam adam(net.fc.parameters(), {.lr = 1e-2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    net.train();
    net.body.eval();  // after train(), in each epoch
    for (auto [inputs, targets] : loader) {
      adam.zero_grad();
      cross_entropy(net(inputs), targets, {.label_smoothing = 0.1}).backward();
      adam.step();
    }
  }
  // [/frozen]
  REEL_CHECK(
      frozen.equal(net.get_parameter("body.0.conv.weight")) && moving.equal(net.get_buffer("body.0.norm.running_mean")),
      "the frozen body has changed");

  // [all]
  net.requires_grad_(true);
  optim::AdamW adamw({{net.body.parameters(), {.lr = 1e-3}}, {net.fc.parameters(), {.lr = 1e-2}}});
  const int64_t epochs = 5, updates = epochs * loader.size(), warm = std::max<int64_t>(1, updates / 10);
  optim::LinearLR warmup(adamw, {.start_factor = 0.1, .total_iters = warm});
  optim::CosineAnnealingLR cosine(adamw, {.T_max = updates - warm});
  optim::SequentialLR schedule(adamw, {warmup, cosine}, {warm});  // of the two, which it does not own
  double best = -1;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    net.train();
    for (auto [inputs, targets] : loader) {
      adamw.zero_grad();
      cross_entropy(net(inputs), targets, {.label_smoothing = 0.1}).backward();
      adamw.step();
      schedule.step();  // after each update
    }
    net.eval();
    NoGrad guard;
    double right = mean((argmax(net(dev_x), 1) == dev_y).to(kFloat32)).item<double>();
    if (right > best) best = right, io::save(net, "best.safetensors");
  }
  io::load(net, "best.safetensors");
  // [/all]
  REEL_CHECK(best > 0.8 && accuracy(net(dev_x), dev_y) == best, "fine-tuned: ", best);
  REEL_CHECK(adamw.options(0).lr < 1e-8 && !frozen.equal(net.get_parameter("body.0.conv.weight")), "schedule");

  // [onnx]
  Tuned tuned("pretrained.onnx");
  tuned.body.requires_grad_(false);
  optim::Adam head_adam(tuned.head.parameters(), {.lr = 1e-2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    tuned.train();
    tuned.body.eval();
    for (auto [inputs, targets] : loader) {
      head_adam.zero_grad();
      cross_entropy(tuned(inputs), targets).backward();
      head_adam.step();
    }
  }
  io::save(tuned, "tuned.safetensors");
  // [/onnx]
  Tuned again("pretrained.onnx");
  io::load(again, "tuned.safetensors");
  again.eval(), tuned.eval();
  NoGrad guard;
  REEL_CHECK(again(dev_x).equal(tuned(dev_x)) && accuracy(again(dev_x), dev_y) > 0.5, "onnx");
  std::cout << "fine-tuned: " << best << ", its head alone: " << accuracy(again(dev_x), dev_y) << '\n';
}

}  // namespace guide_finetune

void finetune() { guide_finetune::run(); }
