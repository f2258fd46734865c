// Benchmarks for GPUs: iterations captured as graphs, a large net, layers of a Transformer and an LSTM, a product
// beside the tensor cores' best, what moves memory beside a copy, and what it costs the host to queue an op.
#include "bench/gpu.h"

#include <limits>

#include "bench/nets.h"
#include "bench/perceptron.h"

namespace reel::cuda {
[[gnu::weak]] extern int64_t cudnn_min_hidden;  // cuda/rnn_layer.cu
}

using namespace reel;

namespace {

// ---- graphs ---------------------------------------------------------------------------------------------------------

/// bench/nets.cpp's, but for item(), which a graph cannot hold.
void seed_graph(const bench::Report& report, double secs) {
  const Tensor x = filled({64, 1000}, 1, 1), y = filled({64, 10}, 2, 1);
  const Tensor w1 = filled({1000, 100}, 3, 0.05f).requires_grad_(), w2 = filled({100, 10}, 4, 0.1f).requires_grad_();
  optim::SGD sgd({w1, w2}, {.lr = 1e-6});
  Tensor loss;
  const auto step = [&] {
    sgd.zero_grad();
    loss = sum(square(mm(relu(mm(x, w1)), w2) - y));
    loss.backward();
    sgd.step();
  };
  step();
  const std::string more = bench::check_loss(loss.item<double>(), bench::kSeedLoss);
  cuda::Graph graph;
  graph.capture(step);
  const auto replay = [&] {
    graph.replay();
    return loss.item<double>();
  };
  report.time("gpu.mlp.seed.graph", bench::measure(replay, secs), 1e3, "ms", more);
}

/// Every replay gets a batch of its own. Of the ten whose loss is checked, the graph does all but the first two.
void mnist_graph(const bench::Report& report, double secs) {
  constexpr int kBatch = 100, kBatches = 10, kEager = 2;
  const Tensor xs = filled({kBatches * kBatch, 784}, 1, 1), ys = classes(kBatches * kBatch, 10);
  Tensor x = empty({kBatch, 784}), y = empty({kBatch}, {.dtype = kInt64}), loss;
  const Perceptron net;
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  const auto step = [&] {
    adam.zero_grad();
    loss = cross_entropy(net.forward(x), y);
    loss.backward();
    adam.step();
  };
  int next = 0;
  const auto load = [&] {
    const int at = next++ % kBatches * kBatch;
    x.copy_(xs.narrow(0, at, kBatch));
    y.copy_(ys.narrow(0, at, kBatch));
  };
  double first = 0;
  for (int i = 0; i < kEager; ++i) {
    load(), step();
    first += loss.item<double>() / kBatches;
  }
  cuda::Graph graph;
  graph.capture(step);
  const auto replay = [&] {
    load(), graph.replay();
    return loss.item<double>();
  };
  for (int i = kEager; i < kBatches; ++i) first += replay() / kBatches;
  const std::string more = bench::check_loss(first, bench::kMnistLoss);
  report.time("gpu.mlp.mnist.graph", bench::measure(replay, secs), 1e3, "ms", more);
}

// ---- models ---------------------------------------------------------------------------------------------------------

/// He et al. 2016, as torchvision has it.
struct Block : nn::Module {
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::optional<nn::Conv2d> shorter;
  std::optional<nn::BatchNorm2d> shorter_bn;

  Block(int in, int out, int stride, bool last)
      : conv1(*this, "conv1", in, out, 3, {.stride = stride, .padding = 1, .bias = false, .channels_last = last}),
        bn1(*this, "bn1", out, {.channels_last = last}),
        conv2(*this, "conv2", out, out, 3, {.padding = 1, .bias = false, .channels_last = last}),
        bn2(*this, "bn2", out, {.channels_last = last}) {
    if (stride == 1) return;
    shorter.emplace(*this, "shorter", in, out, 1,
                    nn::ConvLayerOptions<2>{.stride = stride, .bias = false, .channels_last = last});
    shorter_bn.emplace(*this, "shorter_bn", out, nn::BatchNormOptions{.channels_last = last});
  }
  Tensor forward(const Tensor& x) const {
    const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (shorter ? (*shorter_bn)((*shorter)(x)) : x));
  }
};

/// Of images [n, 3, h, w] or, channels_last, [n, h, w, 3].
struct Resnet18 : nn::Module {
  bool channels_last;
  nn::Conv2d conv1{*this, "conv1", 3,
                   64,    7,       {.stride = 2, .padding = 3, .bias = false, .channels_last = channels_last}};
  nn::BatchNorm2d bn1{*this, "bn1", 64, {.channels_last = channels_last}};
  nn::ModuleList<Block> blocks{*this, "blocks"};
  nn::Linear fc;

  Resnet18(int classes, bool last) : channels_last(last), fc(*this, "fc", 512, classes) {
    for (int width : {64, 128, 256, 512}) {
      blocks.emplace(width == 64 ? 64 : width / 2, width, width == 64 ? 1 : 2, last);
      blocks.emplace(width, width, 1, last);
    }
    uint64_t seed = 1;
    for (const auto& [name, parameter] : named_parameters())
      if (parameter.dim() == 4) fill(parameter, seed++, std::sqrt(6.0f / static_cast<float>(parameter[0].numel())));
    fill(fc.weight, seed, 0.05f), zero({fc.bias});
  }
  Tensor forward(const Tensor& images) const {
    Tensor x = max_pool2d(relu(bn1(conv1(images))), 3, {.stride = 2, .padding = 1, .channels_last = channels_last});
    for (const Block& block : blocks) x = block.forward(x);
    return fc(mean(x, channels_last ? Dims{1, 2} : Dims{2, 3}));
  }
};

/// The loss before the first step, checked where its size is the usual one.
std::string check(const bench::Options& options, double loss, double expected) {
  return options.small ? bench::field("first_pass_loss", loss) : bench::check_loss(loss, expected);
}

/// The name says how: "…bf16" under autocast, whose loss is not checked, "….nhwc" with channels last.
void resnet(const bench::Report& report, const bench::Options& options, const std::string& name) {
  const bool last = name.ends_with(".nhwc"), half = name.find(".bf16") != std::string::npos;
  const bench::gpu::Images& images = options.small ? bench::gpu::kSmallImages : bench::gpu::kImages;
  const Tensor front = filled({images.batch, 3, images.size, images.size}, 100, 1);
  const Tensor x = last ? front.permute({0, 2, 3, 1}).contiguous() : front;
  const Tensor y = classes(images.batch, images.classes);
  const Resnet18 net(images.classes, last);
  optim::SGD sgd(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  Tensor loss;
  const auto step = [&] {
    sgd.zero_grad();
    {
      const amp::Autocast cast(kBFloat16, half);
      loss = cross_entropy(net.forward(x), y);
    }
    loss.backward();
    sgd.step();
  };
  step();
  const double first = loss.item<double>();
  const std::string more =
      half ? bench::field("first_pass_loss", first) : check(options, first, bench::gpu::kResnetLoss);
  report.time(name, bench::measure(step, options.secs), 1e3, "ms", more);
}

/// Forward and backward of one layer in bfloat16, with the norm first: with the norm last the output is normalised,
/// which checks little.
void encoder(const bench::Report& report, const bench::Options& options, const std::string& name,
             const bench::gpu::Encoder& size, double loss) {
  nn::TransformerEncoderLayer layer(
      size.dim, size.heads, {.dim_feedforward = size.hidden, .dropout = 0, .batch_first = true, .norm_first = true});
  uint64_t seed = 1;
  for (const char* part :
       {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}) {
    const Tensor weight = layer.get_parameter(part);
    fill(weight, seed++, std::sqrt(3.0f / static_cast<float>(weight.shape()[1])));
  }
  zero({layer.get_parameter("self_attn.in_proj_bias"), layer.get_parameter("self_attn.out_proj.bias"),
        layer.linear1.bias, layer.linear2.bias});
  layer.to(kBFloat16);
  const Shape shape = {size.batch, size.length, size.dim};
  Tensor x = filled(shape, seed, 1).to(kBFloat16).requires_grad_();
  const Tensor grad = filled(shape, seed + 1, 1).to(kBFloat16);
  const double first = no_grad([&] { return mean(square(layer(x).to(kFloat32))).item<double>(); });
  const std::string more = check(options, first, loss);
  const auto step = [&] {
    layer.zero_grad();
    x.set_grad({});
    layer(x).backward(grad);
  };
  report.time(name, bench::measure(step, options.secs), 1e3, "ms", more);
}

/// Forward and backward of an LSTM's layer, by cuDNN or, with `own`, by a product and a pointwise kernel for each step.
void lstm(const bench::Report& report, const bench::Options& options, const std::string& name, DType dtype, bool own) {
  if (!&cuda::cudnn_min_hidden) return report.skip(name, "only the static library says who computes it");
  cuda::cudnn_min_hidden = own ? std::numeric_limits<int64_t>::max() : 1;
  const bench::gpu::Lstm& size = options.small ? bench::gpu::kSmallLstm : bench::gpu::kLstm;
  nn::LSTM lstm(size.in, size.hidden);
  uint64_t seed = 1;
  for (const char* part : {"weight_ih_l0", "weight_hh_l0"})
    fill(lstm.get_parameter(part), seed++, std::sqrt(3.0f / static_cast<float>(size.hidden)));
  zero({lstm.get_parameter("bias_ih_l0"), lstm.get_parameter("bias_hh_l0")});
  lstm.to(dtype);
  const Shape shape = {size.length, size.batch, size.in};
  Tensor x = filled(shape, seed, 1).to(dtype).requires_grad_();
  const Tensor grad = filled({size.length, size.batch, size.hidden}, seed + 1, 1).to(dtype);
  const double first = no_grad([&] { return mean(square(lstm(x).output.to(kFloat32))).item<double>(); });
  const std::string more = check(options, first, bench::gpu::kLstmLoss);
  const auto step = [&] {
    lstm.zero_grad();
    x.set_grad({});
    lstm(x).output.backward(grad);
  };
  report.time(name, bench::measure(step, options.secs), 1e3, "ms", more);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

void gemm(const bench::Report& report, const bench::Options& options) {
  constexpr int kRepeats = 5;
  const int n = options.small ? bench::gpu::kSmallGemm : bench::gpu::kGemm;
  const Tensor a = rand({n, n}).to(kBFloat16), b = rand({n, n}).to(kBFloat16);
  const auto repeat = [&] {
    for (int i = 0; i < kRepeats; ++i) mm(a, b);
  };
  report.rate("gpu.gemm8192.bf16", bench::measure(repeat, options.secs), 2e-12 * kRepeats * n * n * n, "TFLOP/s");
}

/// Kernels that read and write `moved` times the bytes of a matrix, beside what a copy of it moves.
void streams(ReelReport& report, const bench::Options& options, bench::gpu::Size size) {
  if (options.small) size.rows = bench::gpu::kSmallRows;
  const auto stream = [&](const std::string& kernel, double moved, const auto& f) {
    const std::string name = "gpu.stream." + kernel + "." + size.name;
    report.run(name, [&] {
      const Tensor x = rand({size.rows, size.columns}), y = rand({size.rows, size.columns});
      const Tensor weight = rand({size.columns}), bias = rand({size.columns});
      const auto time = [&](double secs, const auto& kernel) {
        return bench::measure(
            [&] {
              for (int i = 0; i < size.repeats; ++i) kernel();
            },
            secs);
      };
      const bench::Samples copies = time(std::min(options.secs, 0.2), [&] { x.clone(); });
      const double gigabytes = size.gigabytes() * size.repeats;
      report.rate(name, time(options.secs, [&] { f(x, y, weight, bias); }), moved * gigabytes, "GB/s",
                  bench::field("limit", 2 * gigabytes / copies.wall()));
    });
  };
  using T = const Tensor&;
  stream("copy", 2, [](T x, T, T, T) { x.clone(); });
  stream("add", 3, [](T x, T y, T, T) { return x + y; });
  stream("softmax", 2, [](T x, T, T, T) { return softmax(x, 1); });
  stream("layernorm", 2, [&](T x, T, T weight, T bias) { return layer_norm(x, {size.columns}, weight, bias); });
}

/// What the host spends on an op: the queue takes a thousand without waiting for the first.
void queue(const bench::Report& report, const bench::Options& options) {
  constexpr int kOps = 1000, kWarmUp = 3, kLeast = 7;
  const Tensor x = rand({256}), y = rand({256});
  bench::Samples samples;
  const double end = bench::now().wall + options.secs;
  for (int i = 0; i < kWarmUp + kLeast || bench::now().wall < end; ++i) {
    const bench::Time from = bench::finished();
    for (int k = 0; k < kOps; ++k) const Tensor sum = x + y;
    if (i >= kWarmUp) samples.add(from, bench::now());
  }
  report.time("gpu.queue.add1KiB", samples, 1e6 / kOps, "µs");
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  if (!report.on_gpu()) {
    report.skip("gpu", "run it with --device cuda");
    return 0;
  }
  report.run("gpu.mlp.seed.graph", [&] { seed_graph(report, options.secs); });
  report.run("gpu.mlp.mnist.graph", [&] { mnist_graph(report, options.secs); });
  for (const std::string how : {"f32", "tf32", "tf32.nhwc", "bf16", "bf16.nhwc"})
    report.run("gpu.resnet18." + how, [&] {
      if (how != "f32") set_matmul_precision(MatmulPrecision::kHigh);
      resnet(report, options, "gpu.resnet18." + how);
    });
  {
    using namespace bench::gpu;
    const auto layer = [&](const std::string& name, const Encoder& size, double loss) {
      report.run(name, [&] { encoder(report, options, name, size, loss); });
    };
    layer("gpu.encoder.bf16", options.small ? kSmallEncoder : kEncoder, kEncoderLoss);
    cuda::set_cudnn_deterministic(false);  // without which training has no flash attention; PyTorch's is the same
    layer("gpu.encoder.long.bf16", options.small ? kSmallLongEncoder : kLongEncoder, kLongEncoderLoss);
    cuda::set_cudnn_deterministic(true);
  }
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const bool own : {false, true}) {
      const std::string name =
          std::string("gpu.lstm1024.") + (dtype == kFloat32 ? "f32" : "bf16") + (own ? ".own" : "");
      report.run(name, [&] { lstm(report, options, name, dtype, own); });
    }
  {
    NoGrad guard;
    report.run("gpu.gemm8192.bf16", [&] { gemm(report, options); });
    for (const bench::gpu::Size& size : bench::gpu::kSizes) streams(report, options, size);
    report.run("gpu.queue.add1KiB", [&] { queue(report, options); });
  }
  return report.good() ? 0 : 1;
}
