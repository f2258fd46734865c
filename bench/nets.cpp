// Nets whose shape never changes: two perceptrons, LeNet-5 and the sentence classifier of Kim 2014.
#include "bench/nets.h"

#include "bench/lenet.h"
#include "bench/perceptron.h"

using namespace reel;

namespace {

/// Two products and no module, as a tutorial has it.
void mlp_seed(const bench::Report& report, double secs) {
  const Tensor x = filled({64, 1000}, 1, 1), y = filled({64, 10}, 2, 1);
  const Tensor w1 = filled({1000, 100}, 3, 0.05f).requires_grad_(), w2 = filled({100, 10}, 4, 0.1f).requires_grad_();
  optim::SGD sgd({w1, w2}, {.lr = 1e-6});
  const auto step = [&] {
    const Tensor loss = sum(square(mm(relu(mm(x, w1)), w2) - y));
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    return loss.item<double>();
  };
  const std::string more = bench::check_loss(step(), bench::kSeedLoss);
  report.time("mlp.seed", bench::measure(step, secs), 1e3, "ms", more);
}

void mlp_mnist(const bench::Report& report, double secs) {
  constexpr int kBatch = 100, kBatches = 10;
  const Tensor xs = filled({kBatches * kBatch, 784}, 1, 1), ys = classes(kBatches * kBatch, 10);
  const Perceptron net;
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  int next = 0;
  const auto step = [&] {
    const int at = next++ % kBatches * kBatch;
    const Tensor loss = cross_entropy(net.forward(xs.narrow(0, at, kBatch)), ys.narrow(0, at, kBatch));
    adam.zero_grad();
    loss.backward();
    adam.step();
    return loss.item<double>();
  };
  double first = 0;
  for (int i = 0; i < kBatches; ++i) first += step() / kBatches;
  report.time("mlp.mnist", bench::measure(step, secs), 1e3, "ms", bench::check_loss(first, bench::kMnistLoss));
}

/// Kim 2014, "Convolutional Neural Networks for Sentence Classification", without pretrained vectors.
struct Kim : nn::Module {
  nn::Embedding embedding{*this, "embedding", bench::kim::kWords, 300, {.sparse = true}};
  nn::Conv1d conv3{*this, "conv3", 300, 100, 3}, conv4{*this, "conv4", 300, 100, 4}, conv5{*this, "conv5", 300, 100, 5};
  nn::Dropout dropout{*this, "dropout", 0.5};
  nn::Linear out{*this, "out", 300, 5};
  Kim() {
    fill(embedding.weight, 1, 0.25f);
    fill(conv3.weight, 3, 0.02f), fill(conv4.weight, 4, 0.02f), fill(conv5.weight, 5, 0.02f),
        fill(out.weight, 9, 0.05f);
    zero({conv3.bias, conv4.bias, conv5.bias, out.bias});
  }
  Tensor forward(const Tensor& words) const {
    const Tensor x = embedding(words).transpose(1, 2);
    std::vector<Tensor> largest;
    for (const nn::Conv1d* conv : {&conv3, &conv4, &conv5}) largest.push_back(max(relu((*conv)(x)), 2).values);
    return out(dropout(cat(largest, 1)));
  }
};

/// A layer of a Transformer's encoder on 16 sequences of 64 vectors, parameters by their names.
void transformer(const bench::Report& report, double secs) {
  nn::TransformerEncoderLayer layer(256, 4, {.dim_feedforward = 1024, .dropout = 0, .batch_first = true});
  for (const auto& [name, parameter] : layer.named_parameters())
    fill(parameter, bench::seed_of(name), bench::kTransformerBound);
  optim::SGD sgd(layer.parameters(), {.lr = 1e-3});
  const Tensor x = filled({16, 64, 256}, 1, 1), y = filled({16, 64, 256}, 2, 1);
  const auto step = [&] {
    const Tensor loss = mse_loss(layer(x), y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    return loss.item<double>();
  };
  const std::string more = bench::check_loss(step(), bench::kTransformerLoss);
  report.time("transformer.train", bench::measure(step, secs), 1e3, "ms", more);
}

/// Trains and evaluates a net on one batch, repeatedly; `loss` is that before the first step.
template <class Net>
void train(const bench::Report& report, double secs, const std::string& name, Net& net, optim::Optimizer& optimizer,
           const Tensor& x, const Tensor& y, double expected_loss) {
  net.eval();
  const double first = no_grad([&] { return cross_entropy(net.forward(x), y).template item<double>(); });
  const std::string more = bench::check_loss(first, expected_loss);
  net.train();
  const auto step = [&] {
    const Tensor loss = cross_entropy(net.forward(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  };
  report.time(name, bench::measure(step, secs), 1e3, "ms", more);
}

template <class Net>
void infer(const bench::Report& report, double secs, const std::string& name, Net& net, const Tensor& x) {
  NoGrad guard;
  net.eval();
  report.time(name, bench::measure([&] { net.forward(x); }, secs), 1e3, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  const double secs = options.secs;

  report.run("mlp.seed", [&] { mlp_seed(report, secs); });
  report.run("mlp.mnist", [&] { mlp_mnist(report, secs); });

  const auto images = [] { return filled({64, 1, 28, 28}, 1, 1); };
  report.run("cnn.lenet.train", [&] {
    LeNet net;
    optim::SGD sgd(net.parameters(), {.lr = 0.01});
    train(report, secs, "cnn.lenet.train", net, sgd, images(), classes(64, 10), bench::kLenetLoss);
  });
  report.run("cnn.lenet.infer", [&] {
    LeNet net;
    infer(report, secs, "cnn.lenet.infer", net, images());
  });

  const auto words = [] { return tensor(bench::kim::words()).view({bench::kim::kBatch, bench::kim::kLength}); };
  report.run("cnn.kim.train", [&] {
    Kim net;
    optim::Adagrad adagrad(net.parameters(), {.lr = 0.01});
    train(report, secs, "cnn.kim.train", net, adagrad, words(), classes(bench::kim::kBatch, 5), bench::kKimLoss);
  });
  report.run("cnn.kim.infer", [&] {
    Kim net;
    infer(report, secs, "cnn.kim.infer", net, words());
  });
  report.run("transformer.train", [&] { transformer(report, secs); });
  return report.good() ? 0 : 1;
}
