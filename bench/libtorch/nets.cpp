// The nets of bench/nets.cpp in libtorch.
#include "bench/nets.h"

#include "bench/libtorch/torch.h"

using torch::Tensor;
namespace F = torch::nn::functional;

namespace {

Tensor classes(int64_t n, int64_t count) { return torch::arange(n, torch::kLong).remainder(count); }

void mlp_seed(const bench::Report& report, double secs) {
  const Tensor x = filled({64, 1000}, 1, 1).detach(), y = filled({64, 10}, 2, 1).detach();
  const Tensor w1 = filled({1000, 100}, 3, 0.05f), w2 = filled({100, 10}, 4, 0.1f);
  torch::optim::SGD sgd({w1, w2}, torch::optim::SGDOptions(1e-6));
  const auto step = [&] {
    sgd.zero_grad();
    const Tensor loss = (x.mm(w1).relu().mm(w2) - y).square().sum();
    loss.backward();
    sgd.step();
    return loss.item<double>();
  };
  const std::string more = bench::check_loss(step(), bench::kSeedLoss);
  report.time("mlp.seed", bench::measure(step, secs), 1e3, "ms", more);
}

void mlp_mnist(const bench::Report& report, double secs) {
  constexpr int kBatch = 100, kBatches = 10;
  const Tensor xs = filled({kBatches * kBatch, 784}, 1, 1).detach(), ys = classes(kBatches * kBatch, 10);
  const Tensor w1 = filled({256, 784}, 3, 0.05f), w2 = filled({10, 256}, 4, 0.1f), b1 = zeros(256), b2 = zeros(10);
  torch::optim::Adam adam({w1, b1, w2, b2}, torch::optim::AdamOptions(1e-3));
  int next = 0;
  const auto step = [&] {
    const int at = next++ % kBatches * kBatch;
    adam.zero_grad();
    const Tensor logits = F::linear(F::linear(xs.narrow(0, at, kBatch), w1, b1).relu(), w2, b2);
    const Tensor loss = F::cross_entropy(logits, ys.narrow(0, at, kBatch));
    loss.backward();
    adam.step();
    return loss.item<double>();
  };
  double first = 0;
  for (int i = 0; i < kBatches; ++i) first += step() / kBatches;
  report.time("mlp.mnist", bench::measure(step, secs), 1e3, "ms", bench::check_loss(first, bench::kMnistLoss));
}

struct LeNet {
  Tensor conv1 = filled({6, 1, 5, 5}, 2, 0.2f), conv2 = filled({16, 6, 5, 5}, 3, 0.1f);
  Tensor hidden1 = filled({120, 400}, 4, 0.05f), hidden2 = filled({84, 120}, 5, 0.1f), out = filled({10, 84}, 6, 0.1f);
  Tensor conv1_bias = zeros(6), conv2_bias = zeros(16), bias1 = zeros(120), bias2 = zeros(84), out_bias = zeros(10);

  std::vector<Tensor> parameters() const {
    return {conv1, conv2, hidden1, hidden2, out, conv1_bias, conv2_bias, bias1, bias2, out_bias};
  }
  Tensor forward(const Tensor& image, bool) const {
    Tensor x = torch::max_pool2d(torch::conv2d(image, conv1, conv1_bias, 1, 2).relu(), 2);
    x = torch::max_pool2d(torch::conv2d(x, conv2, conv2_bias).relu(), 2);
    x = F::linear(F::linear(x.flatten(1), hidden1, bias1).relu(), hidden2, bias2).relu();
    return F::linear(x, out, out_bias);
  }
};

struct Kim {
  Tensor embedding = filled({bench::kim::kWords, 300}, 1, 0.25f);
  Tensor conv3 = filled({100, 300, 3}, 3, 0.02f), conv4 = filled({100, 300, 4}, 4, 0.02f),
         conv5 = filled({100, 300, 5}, 5, 0.02f);
  Tensor bias3 = zeros(100), bias4 = zeros(100), bias5 = zeros(100);
  Tensor out = filled({5, 300}, 9, 0.05f), out_bias = zeros(5);

  std::vector<Tensor> parameters() const {
    return {conv3, conv4, conv5, bias3, bias4, bias5, out, out_bias, embedding};
  }
  Tensor forward(const Tensor& words, bool train) const {
    const Tensor x = torch::embedding(embedding, words, -1, false, /*sparse=*/true).transpose(1, 2);
    const auto largest = [&](const Tensor& weight, const Tensor& bias) {
      return std::get<0>(torch::conv1d(x, weight, bias).relu().max(2));
    };
    const Tensor features = torch::cat({largest(conv3, bias3), largest(conv4, bias4), largest(conv5, bias5)}, 1);
    return F::linear(torch::dropout(features, 0.5, train), out, out_bias);
  }
};

void transformer(const bench::Report& report, double secs) {
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(256, 4).dim_feedforward(1024).dropout(0));
  for (auto& parameter : layer->named_parameters()) {
    torch::NoGradGuard guard;
    parameter.value().copy_(
        filled(parameter.value().sizes(), bench::seed_of(parameter.key()), bench::kTransformerBound));
  }
  torch::optim::SGD sgd(layer->parameters(), torch::optim::SGDOptions(1e-3));
  // This layer takes sequences first; a transposed view costs it nothing.
  const Tensor x = filled({16, 64, 256}, 1, 1).detach().transpose(0, 1).contiguous();
  const Tensor y = filled({16, 64, 256}, 2, 1).detach().transpose(0, 1).contiguous();
  const auto step = [&] {
    const Tensor loss = F::mse_loss(layer(x), y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    return loss.item<double>();
  };
  const std::string more = bench::check_loss(step(), bench::kTransformerLoss);
  report.time("transformer.train", bench::measure(step, secs), 1e3, "ms", more);
}

template <class Net>
void train(const bench::Report& report, double secs, const std::string& name, const Net& net,
           torch::optim::Optimizer& optimizer, const Tensor& x, const Tensor& y, double expected_loss) {
  const double first = [&] {
    torch::NoGradGuard guard;
    return F::cross_entropy(net.forward(x, false), y).template item<double>();
  }();
  const std::string more = bench::check_loss(first, expected_loss);
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor loss = F::cross_entropy(net.forward(x, true), y);
    loss.backward();
    optimizer.step();
  };
  report.time(name, bench::measure(step, secs), 1e3, "ms", more);
}

template <class Net>
void infer(const bench::Report& report, double secs, const std::string& name, const Net& net, const Tensor& x) {
  torch::InferenceMode guard;
  report.time(name, bench::measure([&] { net.forward(x, false); }, secs), 1e3, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  TorchReport report(options);
  const double secs = options.secs;
  report.run("mlp.seed", [&] { mlp_seed(report, secs); });
  report.run("mlp.mnist", [&] { mlp_mnist(report, secs); });

  const auto images = [] { return filled({64, 1, 28, 28}, 1, 1).detach(); };
  report.run("cnn.lenet.train", [&] {
    const LeNet net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.01));
    train(report, secs, "cnn.lenet.train", net, sgd, images(), classes(64, 10), bench::kLenetLoss);
  });
  report.run("cnn.lenet.infer", [&] { infer(report, secs, "cnn.lenet.infer", LeNet(), images()); });

  const auto words = [] {
    return torch::tensor(bench::kim::words(), torch::kLong).view({bench::kim::kBatch, bench::kim::kLength});
  };
  report.run("cnn.kim.train", [&] {
    const Kim net;
    torch::optim::Adagrad adagrad(net.parameters(), torch::optim::AdagradOptions(0.01));
    train(report, secs, "cnn.kim.train", net, adagrad, words(), classes(bench::kim::kBatch, 5), bench::kKimLoss);
  });
  report.run("cnn.kim.infer", [&] { infer(report, secs, "cnn.kim.infer", Kim(), words()); });
  report.run("transformer.train", [&] { transformer(report, secs); });
  return report.good() ? 0 : 1;
}
