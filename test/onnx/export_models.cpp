#include <cstdlib>
#include <fstream>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/models.h"
#include "reel/nn.h"
#include "reel/onnx.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

// Whole models, exported at one size and run at others.
using namespace reel;
using namespace std::string_literals;
using Tensors = std::vector<Tensor>;

namespace {

struct Perceptron : nn::Layer<Perceptron> {
  nn::Linear hidden{*this, "hidden", 20, 32};
  nn::Linear out{*this, "out", 32, 5};
  Tensor forward(const Tensor& x) const { return log_softmax(out(relu(hidden(x))), -1); }
};

/// Of images [n, h, w, 1].
struct LeNetLast : nn::Layer<LeNetLast> {
  nn::Conv2d conv1{*this, "conv1", 1, 6, 5, {.padding = 2, .channels_last = true}};
  nn::BatchNorm2d norm{*this, "norm", 6, {.channels_last = true}};
  nn::Conv2d conv2{*this, "conv2", 6, 16, 5, {.padding = 1, .channels_last = true}};
  nn::ConvTranspose2d up{*this, "up", 16, 4, 3, {.stride = 2, .channels_last = true}};
  nn::Linear out{*this, "out", 4, 10};
  Tensor forward(const Tensor& x) const {
    const Tensor a = max_pool2d(relu(norm(conv1(x))), 2, {.channels_last = true});
    const Tensor b = avg_pool2d(relu(conv2(a)), 3, {.stride = 2, .padding = 1, .channels_last = true});
    return out(adaptive_avg_pool2d(up(b), 1, {.channels_last = true}).flatten(1));
  }
};

struct LeNet : nn::Layer<LeNet> {
  nn::Conv2d conv1{*this, "conv1", 1, 6, 5, {.padding = 2}};
  nn::Conv2d conv2{*this, "conv2", 6, 16, 5};
  nn::Linear fc1{*this, "fc1", 400, 120};
  nn::Linear fc2{*this, "fc2", 120, 10};
  Tensor forward(const Tensor& x) const {
    const Tensor a = max_pool2d(relu(conv1(x)), 2), b = max_pool2d(relu(conv2(a)), 2);
    return fc2(relu(fc1(b.flatten(1))));
  }
};

/// Padded sentences of word ids [n, len] to scores of tags [n, len, tags].
struct Tagger : nn::Layer<Tagger> {
  nn::Embedding words{*this, "words", 50, 12};
  nn::LSTM lstm{*this, "lstm", 12, 10, {.num_layers = 2, .batch_first = true, .bidirectional = true}};
  nn::Linear out{*this, "out", 20, 7};
  Tensor forward(const Tensor& ids) const { return out(lstm(words(ids)).output); }
};

struct Gru : nn::Layer<Gru> {
  nn::GRU gru{*this, "gru", 6, 9};
  nn::Linear out{*this, "out", 9, 4};
  Tensor forward(const Tensor& x) const {
    const auto result = gru(x);
    return out(result.output) + result.h.sum();
  }
};

/// Kim 2014: windows of several widths, of each the largest.
struct TextCnn : nn::Layer<TextCnn> {
  nn::Embedding words{*this, "words", 50, 8};
  nn::Conv1d three{*this, "three", 8, 6, 3};
  nn::Conv1d four{*this, "four", 8, 6, 4};
  nn::Linear out{*this, "out", 12, 2};
  Tensor forward(const Tensor& ids) const {
    const Tensor x = words(ids).transpose(1, 2);
    const auto largest = [&](const nn::Conv1d& conv) { return amax(relu(conv(x)), -1); };
    return out(dropout(cat({largest(three), largest(four)}, 1), 0.5, is_training()));
  }
};

/// With positions, and a mask of what comes later.
struct Encoder : nn::Layer<Encoder> {
  nn::Embedding words{*this, "words", 50, 16};
  nn::Parameter positions{*this, "positions", randn({40, 16})};
  nn::TransformerEncoder layers{*this, "layers", 16, 4, 2, {.dim_feedforward = 32, .batch_first = true}};
  nn::Linear out{*this, "out", 16, 3};
  bool causal = false;
  Tensor forward(const Tensor& ids) const {
    const Tensor x = words(ids) + positions.narrow(0, 0, ids.size(1));
    return out(layers(x, {.is_causal = causal}));
  }
};

Tensor ids(const Shape& shape) { return randint(0, 50, shape); }

/// In-place ops, numbers and constants made of sizes, parts up to the end, and other shapes.
struct Sizes : nn::Layer<Sizes> {
  Tensor forward(const Tensor& x) const {
    const int64_t n = x.size(0), len = x.size(1);
    Tensor y = x.clone();
    y.add_(1).mul_(x).sub_(0.5).clamp_(-1, 1);
    Tensor total = zeros({n, len});
    total.copy_(y);
    total.add_(ones({len}));
    const Tensor mean = total / len, last = y.select(1, -1), back = flip(y, 1).narrow(1, 0, len - 1).cumsum(1);
    const Tensor steps = arange(2 * n).view({n, 2}).to(kFloat32) / n, joined = cat({mean, back, steps}, 1);
    const Tensor grid = joined.unsqueeze(2) * last.view({1, 1, n}), flat = grid.reshape({n * (2 * len + 1), n});
    return sum(flat.view({n, -1, n}), 2) + repeat(mean.narrow(1, 1, 1), {1, 2 * len + 1}) + tril(joined).sum(1, true);
  }
};

/// Writes the model, and inputs of other sizes with what the model gives for them.
template <class M>
void check_model(const std::filesystem::path& folder, const std::string& name, M& model, const Tensor& example,
                 const std::vector<Tensor>& others, const onnx::SaveOptions& options) {
  model.eval();
  const std::filesystem::path file = folder / (name + ".onnx");
  onnx::save(model, {example}, file, options);
  StateDict values;
  NoGrad guard;
  for (size_t i = 0; i < others.size(); ++i) {
    const Tensor y = model(others[i]);
    values.emplace_back("input_" + std::to_string(i), others[i]);
    values.emplace_back("output_" + std::to_string(i), y.contiguous());
    INFO(name << " " << others[i].shape());
    onnx::Model again = onnx::load(file);
    CHECK(allclose(again(others[i]), y, 1e-5, 1e-5));
    for (const auto& [path, parameter] : model.named_parameters()) {
      INFO(path);
      CHECK(again.state_dict().contains(path));
    }
  }
  io::save(values, folder / (name + ".safetensors"));
}

}  // namespace

TEST_CASE("exported models are right at sizes that were not traced", "[onnx][cpu]") {
  manual_seed(1);
  const Folder folder;
  const std::vector<onnx::DynamicDim> batch{{.input = 0, .dim = 0, .name = "batch"}},
      sentences{{.input = 0, .dim = 0, .name = "batch"}, {.input = 0, .dim = 1, .name = "len"}},
      steps_first{{.input = 0, .dim = 0, .name = "len"}, {.input = 0, .dim = 1, .name = "batch"}},
      images{{.input = 0, .dim = 0, .name = "batch"},
             {.input = 0, .dim = 2, .name = "height"},
             {.input = 0, .dim = -1, .name = "width"}},
      images_last{{.input = 0, .dim = 0, .name = "batch"},
                  {.input = 0, .dim = 1, .name = "height"},
                  {.input = 0, .dim = 2, .name = "width"}};
  const auto options = [](const std::vector<onnx::DynamicDim>& dynamic) {
    return onnx::SaveOptions{.inputs = {"x"}, .outputs = {"y"}, .dynamic = dynamic};
  };
  Perceptron perceptron;
  check_model(folder.path, "perceptron", perceptron, randn({2, 20}), {randn({1, 20}), randn({9, 20})}, options(batch));
  LeNet lenet;
  check_model(folder.path, "lenet", lenet, randn({2, 1, 28, 28}), {randn({1, 1, 28, 28}), randn({5, 1, 28, 28})},
              options(batch));
  models::ResNet resnet = models::resnet18({.num_classes = 10});
  check_model(folder.path, "resnet", resnet, randn({1, 3, 64, 64}), {randn({2, 3, 64, 64}), randn({1, 3, 96, 75})},
              options(images));
  LeNetLast lenet_last;
  check_model(folder.path, "lenet_last", lenet_last, randn({2, 28, 28, 1}),
              {randn({1, 28, 28, 1}), randn({3, 36, 25, 1})}, options(images_last));
  models::ResNet resnet_last = models::resnet18({.num_classes = 10, .channels_last = true});
  check_model(folder.path, "resnet_last", resnet_last, randn({1, 64, 64, 3}), {randn({2, 96, 75, 3})},
              options(images_last));
  Tagger tagger;
  check_model(folder.path, "tagger", tagger, ids({2, 5}), {ids({1, 1}), ids({4, 11})}, options(sentences));
  Gru gru;
  check_model(folder.path, "gru", gru, randn({5, 3, 6}), {randn({1, 1, 6}), randn({12, 4, 6})}, options(steps_first));
  TextCnn textcnn;
  check_model(folder.path, "textcnn", textcnn, ids({2, 7}), {ids({1, 4}), ids({5, 19})}, options(sentences));
  Encoder encoder;
  check_model(folder.path, "encoder", encoder, ids({2, 5}), {ids({1, 1}), ids({3, 17})}, options(sentences));
  encoder.causal = true;
  check_model(folder.path, "causal", encoder, ids({2, 5}), {ids({1, 1}), ids({3, 17})}, options(sentences));
  Sizes sizes;
  check_model(folder.path, "sizes", sizes, randn({3, 3}), {randn({1, 2}), randn({4, 9})}, options(sentences));

  const char* const python = std::getenv("PYTHON");
  const std::string command = (python ? "'"s + python : "'python3"s) + "' ";
  if (std::system((command + "-c 'import onnxruntime, safetensors' 2>/dev/null").c_str()) != 0) return;
  CHECK(std::system((command + "test/onnx/export_models.py '" + folder.path.string() + "'").c_str()) == 0);
}
