#include "samples/guide/guide.h"

namespace guide_model {
using namespace reel;

// [net]
struct Net : nn::Layer<Net> {
  nn::Linear hidden{*this, "hidden", 8, 16};
  nn::Dropout dropout{*this, "dropout", 0.1};
  nn::Linear out{*this, "out", 16, 3};

  Tensor forward(const Tensor& x) const { return out(dropout(relu(hidden(x)))); }
};
// [/net]

// [parts]
struct Scaled : nn::Layer<Scaled> {
  explicit Scaled(int64_t size) : scale{*this, "scale", ones({size})} {}
  Scaled(nn::Module& parent, std::string name, int64_t size) : Scaled(size) {
    parent.register_module(std::move(name), *this);  // so that it can be a part: Scaled s{*this, "s", 16};
  }
  Tensor forward(const Tensor& x) const { return x * scale; }

  nn::Parameter scale;
};
// [/parts]

// [states]
struct Reader : nn::Layer<Reader> {
  nn::Embedding words{*this, "words", 100, 8};
  nn::LSTM lstm{*this, "lstm", 8, 16};
  nn::Linear out{*this, "out", 16, 100};

  std::pair<Tensor, CellState> forward(const Tensor& ids, const CellState& state = {}) const {  // ids [len, n]
    auto [y, next] = lstm(words(ids), state);  // y [len, n, 16]; next.h and next.c [1, n, 16]: [layers, n, hidden]
    return {out(y), next};
  }
};
// [/states]

struct Holder : nn::Layer<Holder> {
  Scaled s{*this, "s", 4};
  Tensor forward(const Tensor& x) const { return s(x); }
};

struct Lost : nn::Layer<Lost> {
  nn::Linear hidden{8, 8};
  nn::Linear out{*this, "out", 8, 3};
  Tensor forward(const Tensor& x) const { return out(hidden(x)); }
};

void run() {
  // [use]
  Net net;
  Tensor y = net(randn({5, 8}));  // calls forward, and the hooks
  net.eval();                     // no dropout from here on; net.train() ends that
  for (const auto& [name, p] : net.named_parameters()) std::cout << name << ' ' << p.shape() << '\n';
  // [/use]
  REEL_CHECK(y.shape() == (Shape{5, 3}), "use");
  REEL_CHECK(net.parameters().size() == 4 && Holder().named_parameters()[0].first == "s.scale", "names");

  // [check]
  REEL_CHECK(nn::check(net, randn({1, 8})).good(), nn::check(net, randn({1, 8})).to_string());
  // [/check]
  Lost lost;
  REEL_CHECK(!nn::check(lost, randn({1, 8})).good(), "a layer without *this was not found");

  // [sequential]
  nn::Sequential layers(nn::Linear(8, 16), relu, Scaled(16), nn::Linear(16, 3));
  Tensor z = layers(randn({5, 8}));
  // [/sequential]
  REEL_CHECK(z.shape() == (Shape{5, 3}) && layers.named_parameters()[2].first == "2.scale", "sequential");

  Reader reader;
  const Tensor ids = randint(0, 100, {5, 2}), more = randint(0, 100, {5, 2});
  // [read]
  auto [scores, state] = reader(ids);                // from a state of zeros
  auto [scores_of_more, end] = reader(more, state);  // goes on from there
  // [/read]
  REEL_CHECK(scores_of_more.shape() == (Shape{5, 2, 100}) && end.c.shape() == (Shape{1, 2, 16}), "states");

  // [init]
  {
    NoGrad guard;
    nn::init::xavier_uniform_(net.hidden.weight);
    net.hidden.bias.zero_();
  }
  nn::replace(net.out, nn::Linear(16, 10));  // as net.out = nn.Linear(16, 10) in Python
  net.hidden.requires_grad_(false);          // frozen; or by name:
  for (auto& [name, p] : net.named_parameters())
    if (name.ends_with(".bias")) p.requires_grad_(false);
  // [/init]
  REEL_CHECK(net(randn({5, 8})).shape() == (Shape{5, 10}), "replace");
}

}  // namespace guide_model

void model() { guide_model::run(); }
