// The models of the breadth benchmark. bench/torch/breadth_models.py has them for PyTorch, line by line the same.
#include <cmath>
#include <map>
#include <memory>

#include "bench/breadth.h"

namespace bench {

using namespace reel;

namespace {

using Arguments = std::vector<std::string>;

int64_t number(const Arguments& a, size_t i) { return std::stoll(a.at(i)); }

/// A Mode tells how a model is run; it is the last argument.
struct Mode {
  explicit Mode(const std::string& word) : train(word.starts_with("train")), half(word.ends_with("16")) {}
  bool train, half;
};

/// Gives parameters values that depend on their shapes alone, so that their order does not matter.
void fill_parameters(const std::vector<Tensor>& parameters) {
  const NoGrad guard;
  for (Tensor p : parameters) {
    const double bound = std::sqrt(static_cast<double>(p.size(0)) / static_cast<double>(p.numel()));
    p.copy_(p.dim() > 1 ? uniform(-bound, bound, p.shape()) : uniform(0.5, 1, p.shape()));
  }
}

template <class F>
Tensor maybe_in_half(bool half, const F& f) {
  if (!half) return f();
  const amp::Autocast guard;
  return f();
}

/// Returns a step of inference, where f() is an output, or of training, where it is a loss.
template <class Optimizer, class F>
Step infer_or_train(Mode mode, std::shared_ptr<Optimizer> optimizer, const F& f) {
  if (!mode.train)
    return [=] {
      const NoGrad guard;
      return Tensors{maybe_in_half(mode.half, f)};
    };
  return [=] {
    optimizer->zero_grad();
    const Tensor loss = maybe_in_half(mode.half, f);
    loss.backward();
    optimizer->step();
    return Tensors{loss};
  };
}

/// Returns a step of a net from x. Its loss is the mean square of its output.
template <class Net>
Step step_of(std::shared_ptr<Net> net, const Tensor& x, Mode mode) {
  fill_parameters(net->parameters());
  net->train(mode.train);
  auto optimizer = std::make_shared<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 1e-4});
  return infer_or_train(mode, optimizer, [=] {
    const Tensor y = (*net)(x);
    return mode.train ? square(y.to(kFloat32)).mean() : y;
  });
}

Tensor input(const Shape& shape) { return uniform(-1, 1, shape, 1); }

// ---- recurrent nets and Transformers --------------------------------------------------------------------------------

template <class Net>
struct Outputs : nn::Layer<Outputs<Net>> {
  explicit Outputs(std::shared_ptr<Net> all) : net(std::move(all)) { this->register_module("net", *net); }
  Tensor forward(const Tensor& x) const { return (*net)(x).output; }
  std::shared_ptr<Net> net;
};

template <class Net, class Options>
Step rnn_step(const Arguments& a) {
  const int64_t hidden = number(a, 3);
  const Options options{.num_layers = number(a, 1), .bidirectional = number(a, 2) == 2};
  auto net = std::make_shared<Outputs<Net>>(std::make_shared<Net>(hidden, hidden, options));
  return step_of(net, input({50, number(a, 4), hidden}), Mode(a.at(5)));
}

Step rnn(const Arguments& a) {
  return a.at(0) == "lstm" ? rnn_step<nn::LSTM, nn::LSTMOptions>(a) : rnn_step<nn::GRU, nn::GRUOptions>(a);
}

Step encoder(const Arguments& a) {
  const int64_t size = number(a, 0);
  const Mode mode(a.at(3));
  const nn::TransformerLayerOptions options{.dim_feedforward = 4 * size, .batch_first = true};
  const Step step = step_of(std::make_shared<nn::TransformerEncoderLayer>(size, 8, options),
                            input({number(a, 2), number(a, 1), size}), mode);
  if (!mode.train) return step;
  return [step] { return step(), Tensors(); };  // its dropout is random
}

struct Block : nn::Layer<Block> {
  Block(int64_t d, int64_t h)
      : size(d),
        heads(h),
        norm1(*this, "norm1", d),
        norm2(*this, "norm2", d),
        qkv(*this, "qkv", d, 3 * d),
        out(*this, "out", d, d),
        hidden(*this, "hidden", d, 4 * d),
        last(*this, "last", 4 * d, d) {}
  /// A Cache holds the keys and values of all tokens so far.
  struct Cache {
    Tensor key, value;
  };
  Tensor forward(const Tensor& x, Cache& cache) const {
    const int64_t batch = x.size(0), length = x.size(1);
    const std::vector<Tensor> parts = chunk(qkv(norm1(x)), 3, 2);
    const auto split_heads = [&](const Tensor& t) {
      return t.view({batch, length, heads, size / heads}).transpose(1, 2);
    };
    const auto append = [&](Tensor& kept, const Tensor& more) {
      kept = kept.defined() ? cat({kept, split_heads(more)}, 2) : split_heads(more);
    };
    append(cache.key, parts[1]);
    append(cache.value, parts[2]);
    const Tensor y =
        scaled_dot_product_attention(split_heads(parts[0]), cache.key, cache.value, {.is_causal = length > 1});
    const Tensor z = x + out(y.transpose(1, 2).reshape({batch, length, size}));
    return z + last(gelu(hidden(norm2(z))));
  }
  int64_t size, heads;
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, hidden, last;
};

constexpr int64_t kTokens = 8000;

struct Gpt : nn::Layer<Gpt> {
  Gpt(int64_t size, int64_t layers)
      : tokens(*this, "tokens", kTokens, size),
        positions(*this, "positions", 1024, size),
        norm(*this, "norm", size),
        head(*this, "head", size, kTokens) {
    for (int64_t i = 0; i < layers; ++i) blocks.push_back(Block(size, size / 64));
  }
  Tensor forward(const Tensor& ids, std::vector<Block::Cache>& caches, int64_t at, bool only_last) {
    Tensor x = tokens(ids) + positions(arange(at, at + ids.size(1)));
    caches.resize(blocks.size());
    size_t i = 0;
    for (Block& block : blocks) x = block.forward(x, caches[i++]);
    return head(norm(only_last ? x.narrow(1, x.size(1) - 1, 1) : x));
  }
  nn::Embedding tokens, positions;
  nn::ModuleList<Block> blocks{*this, "blocks"};
  nn::LayerNorm norm;
  nn::Linear head;
};

Step decode(const Arguments& a) {
  auto net = std::make_shared<Gpt>(number(a, 0), number(a, 1));
  fill_parameters(net->parameters());
  const int64_t count = number(a, 2), batch = number(a, 3);
  const Tensor prompt = ids(kTokens, {batch, 16});
  return [=] {
    const NoGrad guard;
    std::vector<Block::Cache> caches;
    Tensor ids = prompt, first;
    for (int64_t i = 0, at = 0; i < count; ++i) {
      const Tensor y = net->forward(ids, caches, at, true);
      if (!i) first = y;
      at += ids.size(1);
      ids = argmax(y.view({batch, -1}), 1).view({batch, 1});
    }
    return Tensors{first};
  };
}

Step gpt(const Arguments& a) {
  auto net = std::make_shared<Gpt>(number(a, 0), number(a, 1));
  fill_parameters(net->parameters());
  const int64_t length = number(a, 2), batch = number(a, 3);
  const Tensor x = ids(kTokens, {batch, length}), y = ids(kTokens, {batch * length}, 1);
  return infer_or_train(Mode(a.at(4)), std::make_shared<optim::AdamW>(net->parameters(), optim::AdamWOptions{}), [=] {
    std::vector<Block::Cache> caches;
    return cross_entropy(net->forward(x, caches, 0, false).view({batch * length, kTokens}), y);
  });
}

Step bert(const Arguments& a) {
  auto net = std::make_shared<nn::Bert>();
  net->eval();
  std::vector<int64_t> lengths{128, 17, 45, 96, 64, 23, 110, 38};
  if (a.at(0) == "full") lengths.assign(8, 128);
  std::vector<Tensor> sequences;
  for (const int64_t length : lengths) sequences.push_back(ids(30000, {length}));
  const Ragged x = Ragged::of(sequences);
  const bool half = Mode(a.at(1)).half;
  return [=] {  // PyTorch's result is padded, so nothing is compared
    const NoGrad guard;
    maybe_in_half(half, [&] { return (*net)(x), Tensor(); });
    return Tensors();
  };
}

// ---- nets of images -------------------------------------------------------------------------------------------------

Step resnet18(const Arguments& a) {
  const bool last = a.at(0) == "nhwc";
  const int64_t batch = number(a, 1);
  return step_of(std::make_shared<models::ResNet>(models::resnet18({.channels_last = last})),
                 last ? input({batch, 3, 224, 224}).permute({0, 2, 3, 1}).contiguous() : input({batch, 3, 224, 224}),
                 Mode(a.at(2)));
}

Step mobilenet(const Arguments& a) {
  auto net = std::make_shared<nn::Sequential>();
  const auto add = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
    net->push_back(
        nn::Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .groups = groups, .bias = false}));
    net->push_back(nn::BatchNorm2d(out));
    net->push_back([](const Tensor& x) { return relu6(x); });
  };
  add(3, 32, 3, 2, 1);
  int64_t in = 32;
  const std::pair<int64_t, int64_t> layers[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2},  {256, 1}, {512, 2},
                                                {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  for (const auto& [out, stride] : layers) {
    add(in, in, 3, stride, in);
    add(in, out, 1, 1, 1);
    in = out;
  }
  net->push_back([](const Tensor& x) { return mean(x, {2, 3}); });
  net->push_back(nn::Linear(1024, 1000));
  return step_of(net, input({number(a, 0), 3, 224, 224}), Mode(a.at(1)));
}

struct TwoConvs : nn::Layer<TwoConvs> {
  TwoConvs(nn::Module& parent, const std::string& name, int64_t in, int64_t out)
      : conv1(*this, "conv1", in, out, 3, {.padding = 1}),
        conv2(*this, "conv2", out, out, 3, {.padding = 1}),
        norm1(*this, "norm1", out),
        norm2(*this, "norm2", out) {
    parent.register_module(name, *this);
  }
  Tensor forward(const Tensor& x) const { return relu(norm2(conv2(relu(norm1(conv1(x)))))); }
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
};

struct UNet : nn::Layer<UNet> {
  TwoConvs down1{*this, "down1", 1, 16}, down2{*this, "down2", 16, 32}, down3{*this, "down3", 32, 64};
  nn::ConvTranspose2d widen2{*this, "widen2", 64, 32, 2, {.stride = 2}},
      widen1{*this, "widen1", 32, 16, 2, {.stride = 2}};
  TwoConvs up2{*this, "up2", 64, 32}, up1{*this, "up1", 32, 16};
  nn::Conv2d out{*this, "out", 16, 2, 1};
  Tensor forward(const Tensor& x) const {
    const Tensor a = down1(x), b = down2(max_pool2d(a, 2)), c = down3(max_pool2d(b, 2));
    return out(up1(cat({widen1(up2(cat({widen2(c), b}, 1))), a}, 1)));
  }
};

Step unet(const Arguments& a) {
  return step_of(std::make_shared<UNet>(), input({number(a, 0), 1, 128, 128}), Mode(a.at(1)));
}

Step autoencoder(const Arguments& a) {
  auto net = std::make_shared<nn::Sequential>();
  const auto activation = [](const Tensor& x) { return relu(x); };
  for (const auto& [in, out] : {std::pair{3, 32}, {32, 64}, {64, 128}}) {
    net->push_back(nn::Conv2d(in, out, 3, {.stride = 2, .padding = 1}));
    net->push_back(activation);
  }
  for (const auto& [in, out] : {std::pair{128, 64}, {64, 32}, {32, 3}}) {
    net->push_back(nn::ConvTranspose2d(in, out, 4, {.stride = 2, .padding = 1}));
    if (out != 3) net->push_back(activation);
  }
  return step_of(net, input({number(a, 0), 3, 64, 64}), Mode(a.at(1)));
}

// ---- others ---------------------------------------------------------------------------------------------------------

Step mlp(const Arguments& a) {
  const int64_t in = number(a, 0), hidden = number(a, 1), layers = number(a, 2);
  auto net = std::make_shared<nn::Sequential>();
  for (int64_t i = 0; i <= layers; ++i) {
    net->push_back(nn::Linear(i ? hidden : in, i < layers ? hidden : in));
    if (i < layers) net->push_back([](const Tensor& x) { return gelu(x); });
  }
  return step_of(net, input({number(a, 3), in}), Mode(a.at(4)));
}

struct Recommender : nn::Layer<Recommender> {
  explicit Recommender(bool sparse)
      : bag(*this, "bag", 1000000, 64, {.sparse = sparse, .mode = Reduce::kSum}),
        hidden(*this, "hidden", 77, 256),
        out(*this, "out", 256, 1) {}
  Tensor forward(const Tensor& ids, const Tensor& x) const { return out(relu(hidden(cat({bag(ids), x}, 1)))); }
  nn::EmbeddingBag bag;
  nn::Linear hidden, out;
};

Step recommender(const Arguments& a) {
  auto net = std::make_shared<Recommender>(a.at(0) == "sparse");
  fill_parameters(net->parameters());
  const Tensor items = ids(1000000, {512, 20}), x = input({512, 13}), y = uniform(0, 1, {512, 1});
  const Mode mode(a.at(1));
  return infer_or_train(mode, std::make_shared<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 0.01}), [=] {
    const Tensor logits = net->forward(items, x);
    return mode.train ? binary_cross_entropy_with_logits(logits, y) : logits;
  });
}

struct Graph : nn::Layer<Graph> {
  explicit Graph(int64_t size) : layers{{*this, "0", size, size}, {*this, "1", size, size}, {*this, "2", size, size}} {}
  Tensor forward(Tensor x, const Tensor& from, const Tensor& to) const {
    for (const nn::Linear& layer : layers) x = relu(index_add(zeros_like(x), 0, to, index_select(layer(x), 0, from)));
    return x;
  }
  nn::Linear layers[3];
};

Step graph(const Arguments& a) {
  const int64_t nodes = number(a, 0), edges = number(a, 1), size = number(a, 2);
  auto net = std::make_shared<Graph>(size);
  fill_parameters(net->parameters());
  const Tensor x = input({nodes, size}), from = ids(nodes, {edges}), to = ids(nodes, {edges}, 1);
  const Mode mode(a.at(3));
  return infer_or_train(mode, std::make_shared<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 1e-6}), [=] {
    const Tensor y = net->forward(x, from, to);
    return mode.train ? y.mean() : y;
  });
}

constexpr int64_t kWords = 33000;

struct Words : nn::Layer<Words> {
  explicit Words(bool adaptive) {
    if (adaptive) {
      tails = std::make_unique<nn::AdaptiveLogSoftmaxWithLoss>(256, kWords, std::vector<int64_t>{2000, 10000});
      register_module("tails", *tails);
    } else {
      out = std::make_unique<nn::Linear>(256, kWords);
      register_module("out", *out);
    }
  }
  Tensor forward(const Tensor& x, const Tensor& y) const {
    const Tensor h = lstm(embedding(x)).output.reshape({-1, 256});
    return tails ? (*tails)(h, y).loss : cross_entropy((*out)(h), y);
  }
  nn::Embedding embedding{*this, "embedding", kWords, 256};
  nn::LSTM lstm{*this, "lstm", 256, 256};
  std::unique_ptr<nn::Linear> out;
  std::unique_ptr<nn::AdaptiveLogSoftmaxWithLoss> tails;
};

Step words(const Arguments& a) {
  auto net = std::make_shared<Words>(a.at(0) == "adaptive");
  fill_parameters(net->parameters());
  const Tensor x = ids(kWords, {35, 20}), y = ids(kWords, {700}, 1);
  return infer_or_train(Mode(a.at(1)), std::make_shared<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 0.1}),
                        [=] { return net->forward(x, y); });
}

Step crf(const Arguments& a) {
  const int64_t steps = number(a, 0), batch = number(a, 1), tags = number(a, 2);
  const Tensor first = input({tags}), last = input({tags}), y = ids(tags, {steps, batch});
  Tensor emissions = input({steps, batch, tags}), transitions = input({tags, tags});
  if (a.at(3) == "decode")
    return [=] {
      const NoGrad guard;
      crf_decode(emissions, transitions, first, last);
      return Tensors();
    };
  if (a.at(3) == "infer")
    return [=] {
      const NoGrad guard;
      return Tensors{crf_log_likelihood(emissions, y, transitions, first, last)};
    };
  emissions.requires_grad_(), transitions.requires_grad_();
  return [=]() mutable {
    crf_log_likelihood(emissions, y, transitions, first, last).sum().backward();
    const Tensors gradients{emissions.grad(), transitions.grad()};
    emissions.set_grad({}), transitions.set_grad({});
    return gradients;
  };
}

template <class Optimizer, class Options>
Step update(const std::vector<Tensor>& parameters, const Options& options) {
  auto optimizer = std::make_shared<Optimizer>(parameters, options);
  return [=] {
    optimizer->step();
    return Tensors{parameters[0]};
  };
}

Step optimizer(const Arguments& a) {
  const std::string& name = a.at(0);
  const size_t x = a.at(1).find('x');
  std::vector<Tensor> p;
  for (int64_t i = 0; i < std::stoll(a[1]); ++i) {
    p.push_back(input({std::stoll(a[1].substr(x + 1))}).requires_grad_());
    p.back().set_grad(uniform(-1, 1, p.back().shape(), 2));
  }
  using namespace optim;
  if (name == "sgd") return update<SGD>(p, SGDOptions{.lr = 1e-3});
  if (name == "sgdm") return update<SGD>(p, SGDOptions{.lr = 1e-3, .momentum = 0.9});
  if (name == "adam") return update<Adam>(p, AdamOptions{});
  if (name == "adamw") return update<AdamW>(p, AdamWOptions{});
  if (name == "adagrad") return update<Adagrad>(p, AdagradOptions{});
  if (name == "rmsprop") return update<RMSprop>(p, RMSpropOptions{});
  if (name == "adadelta") return update<Adadelta>(p, AdadeltaOptions{});
  if (name == "nadam") return update<NAdam>(p, NAdamOptions{});
  if (name == "radam") return update<RAdam>(p, RAdamOptions{});
  if (name == "adamax") return update<Adamax>(p, AdamaxOptions{});
  REEL_CHECK(name == "clip", "breadth: there is no optimizer '", name, "'");
  return [=] {
    clip_grad_norm(p, 1e9);
    return Tensors{p[0].grad()};
  };
}

}  // namespace

Step model_step(const std::string& name, const std::vector<std::string>& arguments) {
  static const std::map<std::string, Step (*)(const Arguments&)> all{{"rnn", rnn},
                                                                     {"encoder", encoder},
                                                                     {"decode", decode},
                                                                     {"gpt", gpt},
                                                                     {"bert", bert},
                                                                     {"resnet18", resnet18},
                                                                     {"mobilenet", mobilenet},
                                                                     {"unet", unet},
                                                                     {"mlp", mlp},
                                                                     {"autoencoder", autoencoder},
                                                                     {"recommender", recommender},
                                                                     {"graph", graph},
                                                                     {"words", words},
                                                                     {"crf", crf},
                                                                     {"optimizer", optimizer}};
  const auto found = all.find(name);
  REEL_CHECK(found != all.end(), "breadth: there is no model '", name, "'");
  return found->second(arguments);
}

}  // namespace bench
