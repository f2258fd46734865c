#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/testing.h"
#include "test/support/folder.h"
#include "test/support/load.h"

// Weights go from Python to reel and back: test/reference/models.py is the other side.
using namespace reel;

namespace {

/// He et al. 2016, figure 2.
struct Block : nn::Module {
  Block(Module& parent, std::string name, int64_t in, int64_t channels, int64_t stride)
      : Module(parent, std::move(name)),
        conv1{*this, "conv1", in, channels, 3, {.stride = stride, .padding = 1, .bias = false}},
        bn1{*this, "bn1", channels},
        conv2{*this, "conv2", channels, channels, 3, {.padding = 1, .bias = false}},
        bn2{*this, "bn2", channels},
        shortcut{*this, "shortcut", nn::Conv2d(in, channels, 1, {.stride = stride, .bias = false}),
                 nn::BatchNorm2d(channels)} {}
  Tensor forward(const Tensor& x) const {
    const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + shortcut(x));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential shortcut;
};

struct Zoo : nn::Module {
  nn::Sequential mlp{*this, "mlp", nn::Linear(5, 8), nn::Tanh(), nn::Linear(8, 3)};
  nn::Sequential lenet{
      *this,      "lenet",          nn::Conv2d(1, 2, 5), nn::ReLU(),       nn::MaxPool2d(2), nn::Conv2d(2, 3, 3),
      nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),       nn::Linear(12, 4)};
  Block block{*this, "block", 2, 3, 2};
  nn::LSTM bilstm{*this, "bilstm", 4, 3, {.num_layers = 2, .bidirectional = true}};
  nn::GRU gru{*this, "gru", 4, 3, {.num_layers = 2}};
  nn::TransformerEncoder encoder{*this, "encoder", 4, 2, 2, {.dim_feedforward = 6}};
  nn::MultiheadAttention attention{*this, "attention", 4, 2};
  nn::BatchNorm1d norm{*this, "norm", 4};

  StateDict outputs(const StateDict& inputs) const {
    const Tensor rows = inputs["rows"], images = inputs["images"], sequences = inputs["sequences"];
    return {{"y.mlp", mlp(rows.narrow(1, 0, 5))},
            {"y.lenet", lenet(images.narrow(1, 0, 1))},
            {"y.block", block.forward(images)},
            {"y.bilstm", bilstm(sequences).output},
            {"y.gru", gru(sequences).output},
            {"y.encoder", encoder(sequences)},
            {"y.attention", attention(sequences, sequences, sequences).output},
            {"y.norm", norm(rows.narrow(1, 0, 4))}};
  }
};

}  // namespace

TEST_CASE("models that Python saved compute in reel what they computed there") {
  Zoo zoo;
  zoo.eval();
  io::load(zoo, "test/reference/models.safetensors");
  const StateDict figures = load_reference("models_figures.safetensors");
  const NoGrad guard;
  const StateDict outputs = zoo.outputs(figures);
  CHECK(outputs.size() + 3 == figures.size());
  for (const auto& [name, y] : outputs) {
    INFO(name);
    testing::assert_close(y, figures[name], {.rtol = 1e-5, .atol = 1e-6});
  }
}

// models.txt is what Python says of models_reel.safetensors.
TEST_CASE("what reel saves is, byte for byte, the file that Python has read") {
  const Folder folder;
  Zoo zoo;
  io::load(zoo, "test/reference/models.safetensors");
  io::save(zoo, folder / "models.safetensors");
  CHECK(contents(folder / "models.safetensors") == contents("test/reference/models_reel.safetensors"));
}

TEST_CASE("write models", "[.][write models]") {
  Zoo zoo;
  io::load(zoo, "test/reference/models.safetensors");
  io::save(zoo, "test/reference/models_reel.safetensors");
}
