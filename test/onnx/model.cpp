#include "reel/onnx/model.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/onnx/save.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/onnx/file.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using onnx_file::File, onnx_file::Names, onnx_file::message, onnx_file::pbf_writer;
namespace schema = onnx_file::schema;
namespace fs = std::filesystem;

namespace {

// The tensors prefix.0, prefix.1, … of a file.
std::vector<Tensor> numbered(const StateDict& dict, const std::string& prefix) {
  std::vector<Tensor> tensors;
  while (const Tensor* tensor = find(dict, prefix + "." + std::to_string(tensors.size()))) tensors.push_back(*tensor);
  return tensors;
}

struct Figures {
  int same = 0;
  double worst = 0;
  std::map<std::string, std::string> wrong;  // what is wrong, by model
};

// Runs all models of a folder on the inputs beside them, and compares their outputs.
Figures run_all(const fs::path& folder, double rtol, double atol) {
  Figures figures;
  for (const auto& entry : fs::directory_iterator(folder)) {
    fs::path path = entry.path();
    if (path.extension() != ".onnx") continue;
    const std::string name = path.stem().string();
    try {
      onnx::Model model = onnx::load(path);
      if (name.find("_train") != std::string::npos) model.train();
      const StateDict dict = io::load(path.replace_extension(".safetensors"));
      const NoGrad no_grad;
      const std::vector<Tensor> outputs = model(numbered(dict, "in")), expected = numbered(dict, "out");
      std::string wrong = outputs.size() == expected.size() ? "" : "another number of outputs";
      for (size_t i = 0; wrong.empty() && i < outputs.size(); ++i) {
        const Tensor &y = outputs[i], &e = expected[i];
        if (y.shape() != e.shape() || y.dtype() != e.dtype())
          wrong = "output " + std::to_string(i) + " is " + name_of(y.dtype()) + y.shape().to_string() + ", not " +
                  name_of(e.dtype()) + e.shape().to_string();
        else if (!allclose(y.to(kFloat64), e.to(kFloat64), rtol, atol, true))
          wrong = "output " + std::to_string(i) + " differs";
        else if (e.is_floating_point() && e.numel() > 0)
          figures.worst =
              std::max(figures.worst, nan_to_num(abs(y.to(kFloat64) - e.to(kFloat64)), 0, 0., 0.).max().item<double>());
      }
      if (wrong.empty())
        ++figures.same;
      else
        figures.wrong[name] = wrong;
    } catch (const Error& error) {
      figures.wrong[name] = error.what();
    }
  }
  return figures;
}

// Makes a folder of models by a script, if there is a Python with these modules; or there is one of an earlier run,
// which an environment variable names.
std::optional<fs::path> models_of(const char* script, const char* modules, const char* variable, const Folder& folder) {
  if (const char* const made = std::getenv(variable)) return made;
  const char* const python = std::getenv("PYTHON");
  const std::string command = "'" + std::string(python ? python : "python3") + "' ";
  if (std::system((command + "-c 'import " + modules + "' 2>/dev/null").c_str()) != 0) return {};
  const std::string log = (folder / "log").string();
  INFO(log);
  REQUIRE(std::system(
              (command + "test/onnx/" + script + " '" + folder.path.string() + "' >'" + log + "' 2>&1").c_str()) == 0);
  return folder.path;
}

}  // namespace

TEST_CASE("models of both of PyTorch's exporters give PyTorch's outputs", "[onnx][cpu]") {
  const Folder folder;
  const auto models = models_of("models.py", "torch, torchvision, onnx, safetensors", "REEL_ONNX_MODELS", folder);
  if (!models) return;
  const Figures figures = run_all(*models, 1e-5, 1e-5);
  for (const auto& [name, wrong] : figures.wrong) UNSCOPED_INFO(name << ": " << wrong);
  CAPTURE(figures.same, figures.worst);
  if (std::getenv("REEL_ONNX_MODELS")) WARN(figures.same << " same, worst " << figures.worst);
  CHECK(figures.wrong.empty());
  CHECK(figures.same >= 32);  // those of the older exporter; the other one needs onnxscript
}

TEST_CASE("ONNX's own one-op models give the outputs that come with them", "[onnx][cpu]") {
  const Folder folder;
  const auto models = models_of("nodes.py", "onnx, safetensors", "REEL_ONNX_NODES", folder);
  if (!models) return;
  Figures figures = run_all(*models, 1e-3, 1e-5);
  // What is refused by name is no wrong result.
  const int refused = static_cast<int>(std::erase_if(figures.wrong, [](const auto& wrong) {
    const std::string& why = wrong.second;
    return why.find("not supported") != std::string::npos || why.find("is not a tensor") != std::string::npos;
  }));
  const std::map<std::string, std::string> known = {
      {"test_attention_4d_causal_fp16_expanded", "float16 is rounded elsewhere"},
      {"test_batchnorm_epsilon_training_mode", "the running variance is over n - 1, as PyTorch's"},
      {"test_batchnorm_example_training_mode", "the same"},
      {"test_maxpool_2d_uint8", "pools are of floating point"},
      {"test_reduce_max_empty_set", "an Error"},
      {"test_reduce_min_empty_set", "an Error"},
      {"test_resize_downsample_scales_cubic_align_corners", "the new size is whole, as in PyTorch"},
      {"test_resize_downsample_scales_linear_align_corners", "the same"},
      {"test_training_dropout", "other random numbers"},
      {"test_training_dropout_default", "other random numbers"},
      {"test_training_dropout_default_mask", "other random numbers"},
      {"test_training_dropout_mask", "other random numbers"}};
  std::erase_if(figures.wrong, [&](const auto& wrong) { return known.count(wrong.first); });
  for (const auto& [name, wrong] : figures.wrong) UNSCOPED_INFO(name << ": " << wrong);
  if (std::getenv("REEL_ONNX_NODES")) WARN(figures.same << " same, " << refused << " refused");
  CHECK(figures.wrong.empty());
  CHECK(figures.same >= 1100);
}

// ---- a model as a layer ---------------------------------------------------------------------------------------------

namespace {

// fc2(relu(fc1(x)) / scale), with a norm and dropout in between.
File small_net() {
  manual_seed(3);
  File file;
  file.input("x", {-1, 4}).output("y");
  file.weight("body.fc1.weight", randn({8, 4})).weight("body.fc1.bias", randn({8}));
  file.weight("norm.weight", rand({8})).weight("norm.bias", randn({8}));
  file.weight("norm.running_mean", randn({8})).weight("norm.running_var", rand({8}) + 0.5);
  file.weight("scale", tensor(2.)).weight("fc2.weight", randn({3, 8}));
  file.node("Gemm", {"x", "body.fc1.weight", "body.fc1.bias"}, {"h1"}, {{"transB", int64_t{1}}});
  file.node("BatchNormalization", {"h1", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}, {"h2"});
  file.node("Relu", {"h2"}, {"h3"}).node("Dropout", {"h3"}, {"h4"}).node("Div", {"h4", "scale"}, {"features"});
  return file.node("Gemm", {"features", "fc2.weight"}, {"y"}, {{"transB", int64_t{1}}});
}

std::string error_of(const File& file) {
  const Folder folder;
  try {
    onnx::load(write(folder / "bad.onnx", file.bytes()));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("an ONNX model is a layer with parameters, buffers and paths", "[onnx][cpu]") {
  const Folder folder;
  const fs::path path = write(folder / "net.onnx", small_net().bytes());
  onnx::Model net = onnx::load(path);
  CHECK(!net.is_training());
  CHECK(net.input_names() == Names{"x"});
  CHECK(net.output_names() == Names{"y"});
  Names names;
  for (const auto& [name, parameter] : net.named_parameters()) names.push_back(name);
  CHECK(names == Names{"body.fc1.weight", "body.fc1.bias", "norm.weight", "norm.bias", "fc2.weight"});
  names.clear();
  for (const auto& [name, buffer] : net.named_buffers()) names.push_back(name);
  CHECK(names == Names{"norm.running_mean", "norm.running_var", "scale"});

  const StateDict w = net.state_dict();
  const Tensor x = randn({5, 4});
  const auto reference = [&](const StateDict& w) {
    const Tensor h = linear(x, w["body.fc1.weight"], w["body.fc1.bias"]);
    const Tensor n = batch_norm(h, w["norm.running_mean"], w["norm.running_var"], w["norm.weight"], w["norm.bias"]);
    return linear(relu(n) / 2, w["fc2.weight"]);
  };
  CHECK(allclose(net(x), reference(w), 1e-5, 1e-6));
  CHECK(allclose(net({x})[0], net(x)));
  CHECK(net(zeros({0, 4})).shape() == Shape{0, 3});
  CHECK_THAT(net.to_string(), Contains("net.onnx, opset=17, nodes=6, input=x, output=y"));

  // It moves, and it is a part of other modules.
  struct Net : nn::Layer<Net> {
    explicit Net(const fs::path& path)
        : body{*this, "body", path, {.outputs = {"features"}}}, head{*this, "head", 8, 2} {}
    onnx::Model body;
    nn::Linear head;
    Tensor forward(const Tensor& x) const { return head(body(x)); }
  } whole(path);
  CHECK(whole(x).shape() == Shape{5, 2});
  CHECK(!whole.state_dict().contains("body.fc2.weight"));  // what the features do not need
  CHECK(whole.state_dict().contains("body.norm.running_var"));
  onnx::Model moved = std::move(net);
  CHECK(allclose(moved(x), reference(w), 1e-5, 1e-6));
  moved.get_parameter("fc2.weight") = zeros({3, 8});
  CHECK(equal(moved(x), zeros({5, 3})));
  moved.to(kFloat64);
  CHECK(moved(x.to(kFloat64)).dtype() == kFloat64);

  File other = small_net();
  other.node("Neg", {"features"}, {"minus"});
  nn::replace(whole.body, onnx::Model(write(folder / "other.onnx", other.bytes()), {.outputs = {"minus"}}));
  CHECK(whole.body.output_names() == Names{"minus"});
  CHECK(whole(x).shape() == Shape{5, 2});
}

TEST_CASE("an ONNX model is fine-tuned", "[onnx][cpu]") {
  const Folder folder;
  onnx::Model net = onnx::load(write(folder / "net.onnx", small_net().bytes()));
  net.train();
  const Tensor x = randn({32, 4}), target = randn({32, 3});
  const Tensor mean_before = net.get_buffer("norm.running_mean").clone();
  optim::Adam adam(net.parameters(), {.lr = 0.02});
  const auto loss_of = [&] { return mse_loss(net(x), target); };
  CHECK(!allclose(net(x), net(x)));  // dropout
  CHECK(!allclose(net.get_buffer("norm.running_mean"), mean_before));
  net.eval();
  const double before = loss_of().item<double>();
  for (int step = 0; step < 50; ++step) {
    adam.zero_grad();
    loss_of().backward();
    adam.step();
  }
  CHECK(loss_of().item<double>() < 0.7 * before);
  CHECK(net.get_buffer("scale").item<double>() == 2);
  testing::gradcheck([&](const std::vector<Tensor>& in) { return net(in[0].to(kFloat32)).to(kFloat64); },
                     {randn({2, 4}, {}).to(kFloat64)}, {.eps = 1e-2, .atol = 1e-2, .rtol = 1e-2});
}

TEST_CASE("names that are no paths are made some, and constants are not trained", "[onnx][cpu]") {
  const Folder folder;
  File file;
  file.input("x").output("y");
  Names sum{"x"};
  for (const char* name : {"a", "a.b", "a..c", ".d", "onnx::MatMul_5", "a_b"})
    file.weight(name, ones({2})), sum.push_back(name);
  file.node("Constant", {}, {"k"}, {{"value", ones({2})}});
  sum.push_back("k");
  onnx::Model net = onnx::load(write(folder / "net.onnx", file.node("Sum", sum, {"y"}).bytes()));
  Names names;
  for (const auto& [name, parameter] : net.named_parameters()) names.push_back(name);
  CHECK(names == Names{"a", "a_b", "a__c", "_d", "onnx::MatMul_5", "a_b_2"});
  CHECK(net.buffers().size() == 1);
  CHECK(net.state_dict().size() == 6);
  CHECK(equal(net(zeros({2})), full({2}, 7.)));

  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  File other;
  other.input("x").output("y").weight(deep, ones({2})).node("Add", {"x", deep}, {"y"});
  CHECK(onnx::load(write(folder / "deep.onnx", other.bytes())).children().empty());
}

TEST_CASE("wrong inputs of an ONNX model are errors", "[onnx][cpu]") {
  const Folder folder;
  const onnx::Model net = onnx::load(write(folder / "net.onnx", small_net().bytes()));
  CHECK_THROWS_WITH(net(zeros({2, 5})), Contains("input 'x' has the shape [2, 5], the model takes [?, 4]"));
  CHECK_THROWS_WITH(net(zeros({4})), Contains("input 'x' has the shape [4]"));
  CHECK_THROWS_WITH(net(zeros({2, 4}, {.dtype = kInt64})), Contains("input 'x' is float32, got int64"));
  CHECK_THROWS_WITH(net({zeros({2, 4}), zeros({2, 4})}), Contains("it has 1 inputs, got 2"));
  File file;
  const onnx::Model add = onnx::load(
      write(folder / "add.onnx", file.input("a").input("b").output("c").node("Add", {"a", "b"}, {"c"}).bytes()));
  CHECK_THROWS_WITH(add(zeros({2})), Contains("add.onnx has 2 inputs and 1 outputs: call it with a list"));
  CHECK_THROWS_WITH(add({zeros({2}), zeros({3})}), Contains("add.onnx: Add 'Add_1': ") && Contains("[2]"));
}

// ---- files ----------------------------------------------------------------------------------------------------------

TEST_CASE("malformed and unknown ONNX files are refused by name", "[onnx][cpu]") {
  const auto file = [] { return File().input("x").output("y"); };
  CHECK_THAT(
      error_of(
          file().node("Loop", {"x"}, {"z"}).node("Gelu", {"z"}, {"t"}, {}, "com.microsoft").node("FFT", {"t"}, {"y"})),
      Contains("ops that are not supported: FFT, Loop, com.microsoft:Gelu"));
  CHECK_THAT(error_of(file().node("Relu", {"z"}, {"y"})), Contains("Relu 'Relu_1' reads 'z', which nothing computes"));
  CHECK_THAT(error_of(file().node("Add", {"x", "y"}, {"z"}).node("Relu", {"z"}, {"y"})),
             Contains("reads 'y', which is computed later: the nodes are not in order, or in a cycle"));
  CHECK_THAT(error_of(file().node("Relu", {"x"}, {"y"}).node("Neg", {"x"}, {"y"})),
             Contains("value 'y' is defined twice"));
  CHECK_THAT(error_of(file().weight("w", ones({1})).weight("w", ones({1}))),
             Contains("initializer 'w' is defined twice"));
  CHECK_THAT(error_of(file()), Contains("output 'y' is computed by nothing"));
  CHECK_THAT(error_of(File()), Contains("the graph has no outputs"));
  CHECK_THAT(error_of(file().node("Softmax", {"x"}, {"y"}, {{"axis", 1.}})),
             Contains("Softmax 'Softmax_1': its attribute 'axis' is of type 1, not 2"));
  CHECK_THAT(error_of(file().node("Relu", {"x"}, {"y"}, {{"alpha", 1.}})),
             Contains("Relu 'Relu_1': the attribute 'alpha' is not supported"));
  CHECK_THAT(error_of(file().node("Add", {"x"}, {"y"})), Contains("Add 'Add_1' has 1 inputs"));
  CHECK_THAT(error_of(file().node("Add", {"x", ""}, {"y"})), Contains("Add 'Add_1' lacks its input 1"));
  CHECK_THAT(error_of(file().node("", {"x"}, {"y"})), Contains("byte ") && Contains("a node without an op"));
  CHECK_THAT(error_of(file().node("Cast", {"x"}, {"y"}, {{"to", int64_t{17}}})),
             Contains("Cast 'Cast_1': what it casts to is of type float8e4m3fn, which reel has no tensors of"));
  for (const int64_t opset : {0, 8, 21}) {
    File other = file().node("Relu", {"x"}, {"y"});
    other.opset = opset;
    CHECK_THAT(error_of(other),
               Contains(opset ? "it needs opset " + std::to_string(opset) : "does not say which opset"));
  }

  const Folder folder;
  const auto error_of_bytes = [&](const std::string& bytes) {
    try {
      onnx::load(write(folder / "bad.onnx", bytes));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(error_of_bytes(""), Contains("bad.onnx: not an ONNX model"));
  CHECK_THAT(error_of_bytes("PK\3\4 something else"), Contains("bad.onnx: "));
  std::string cut = small_net().bytes();
  cut.resize(cut.size() - 5);
  CHECK_THAT(error_of_bytes(cut), Contains("bad.onnx: byte ") && Contains("not a protocol buffer: end of buffer"));
  CHECK_THROWS_WITH(onnx::load(folder / "missing.onnx"), Contains("missing.onnx"));
  const fs::path good = write(folder / "good.onnx", small_net().bytes());
  CHECK_THROWS_WITH(onnx::load(good, {.outputs = {"nowhere"}}), Contains("there is no value 'nowhere'"));
}

namespace {

// A model that gives the tensor w, whose fields are `fill`'s.
template <class Fill>
std::string file_of_tensor(const Fill& fill) {
  File file;
  file.output("y").add(schema::graph::kInitializer, message([&](pbf_writer& w) {
                         w.add_string(schema::tensor::kName, "w");
                         fill(w);
                       }));
  return file.node("Identity", {"w"}, {"y"}).bytes();
}
void dims_and_type(pbf_writer& w, const std::vector<int64_t>& dims, int type) {
  for (const int64_t size : dims) w.add_int64(schema::tensor::kDims, size);
  w.add_int32(schema::tensor::kDataType, type);
}
void external(pbf_writer& w, const std::vector<std::pair<std::string, std::string>>& entries) {
  w.add_int32(schema::tensor::kDataLocation, schema::tensor::kExternal);
  for (const auto& one : entries)
    w.add_message(schema::tensor::kExternalData, message([&](pbf_writer& entry) {
                    entry.add_string(schema::string_entry::kKey, one.first);
                    entry.add_string(schema::string_entry::kValue, one.second);
                  }));
}

}  // namespace

TEST_CASE("tensors of ONNX files are read in every form, and refused where they lie", "[onnx][cpu]") {
  namespace types = schema::data_type;
  const Folder folder;
  const auto load = [&](const auto& fill) {
    const onnx::Model model = onnx::load(write(folder / "tensor.onnx", file_of_tensor(fill)));
    return model(std::vector<Tensor>{})[0].detach();
  };
  const auto refused = [&](const auto& fill) {
    try {
      load(fill);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto packed = [](pbf_writer& w, uint32_t field, auto values) {
    if constexpr (std::is_same_v<typename decltype(values)::value_type, float>)
      w.add_packed_float(field, values.begin(), values.end());
    else if constexpr (std::is_same_v<typename decltype(values)::value_type, double>)
      w.add_packed_double(field, values.begin(), values.end());
    else
      w.add_packed_int64(field, values.begin(), values.end());
  };
  using Ints = std::vector<int64_t>;
  // Typed fields, packed or one by one.
  CHECK(
      equal(load([&](pbf_writer& w) {
              dims_and_type(w, {2}, types::kFloat), packed(w, schema::tensor::kFloatData, std::vector<float>{1.5f, -2});
            }),
            tensor({1.5, -2.})));
  CHECK(equal(
      load([&](pbf_writer& w) { dims_and_type(w, {1}, types::kFloat), w.add_float(schema::tensor::kFloatData, 3); }),
      tensor({3.})));
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {}, types::kDouble), packed(w, schema::tensor::kDoubleData, std::vector<double>{0.1});
        }).item<double>() == 0.1);
  CHECK(equal(load([&](pbf_writer& w) {
                dims_and_type(w, {2}, types::kInt64), packed(w, schema::tensor::kInt64Data, Ints{INT64_MIN, 5});
              }),
              tensor({INT64_MIN, int64_t{5}})));
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {1}, types::kInt32), packed(w, schema::tensor::kInt32Data, Ints{-7});
        }).dtype() == kInt32);
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {1}, types::kBool), packed(w, schema::tensor::kInt32Data, Ints{1});
        }).dtype() == kBool);
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {1}, types::kUint8), packed(w, schema::tensor::kInt32Data, Ints{255});
        }).item<int>() == 255);
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {1}, types::kFloat16), packed(w, schema::tensor::kInt32Data, Ints{0x3e00});
        }).item<float>() == 1.5f);
  CHECK(load([&](pbf_writer& w) {
          dims_and_type(w, {1}, types::kBfloat16), w.add_bytes(schema::tensor::kRawData, "\xc0\x3f");
        }).item<float>() == 1.5f);
  CHECK(load([&](pbf_writer& w) { dims_and_type(w, {0, 3}, types::kFloat); }).shape() == Shape{0, 3});

  CHECK_THAT(refused([&](pbf_writer& w) {
               dims_and_type(w, {3}, types::kFloat), w.add_bytes(schema::tensor::kRawData, "abcd");
             }),
             Contains("byte ") && Contains("tensor 'w' of shape [3] and type float has 4 bytes of raw data, not 12"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {3}, types::kFloat); }),
             Contains("tensor 'w' of shape [3] has 0 elements of float"));
  CHECK_THAT(refused([&](pbf_writer& w) {
               dims_and_type(w, {int64_t{1} << 40, int64_t{1} << 40}, types::kFloat);
             }),
             Contains("is too large"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {int64_t{1} << 40}, types::kFloat); }),
             Contains("has 0 elements"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {-1}, types::kFloat); }), Contains("has the shape [-1]"));
  CHECK_THAT(refused([&](pbf_writer& w) {
               dims_and_type(w, {1, 1, 1, 1, 1, 1, 1, 1, 1}, types::kFloat);
             }),
             Contains("9 dimensions"));
  CHECK_THAT(refused([&](pbf_writer& w) {
               dims_and_type(w, {1}, types::kBool), packed(w, schema::tensor::kInt32Data, Ints{2});
             }),
             Contains("of bool has the element 2"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {1}, 17); }),
             Contains("tensor 'w' is of type float8e4m3fn, which reel has no tensors of"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {1}, types::kInt8); }), Contains("is of type int8"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {1}, types::kString); }), Contains("is of type string"));
  CHECK_THAT(refused([&](pbf_writer& w) { dims_and_type(w, {1}, 99); }), Contains("is of type number 99"));

  // Data in another file.
  write(folder / "data", std::string("....") + std::string("\0\0\x80\x3f", 4));
  const auto external_of = [&](std::vector<std::pair<std::string, std::string>> entries) {
    return [=](pbf_writer& w) { dims_and_type(w, {1}, types::kFloat), external(w, entries); };
  };
  CHECK(load(external_of({{"location", "data"}, {"offset", "4"}, {"length", "4"}})).item<float>() == 1);
  CHECK_THAT(refused(external_of({{"location", "data"}, {"offset", "5"}})), Contains("of the 8 in"));
  CHECK_THAT(refused(external_of({{"location", "data"}, {"length", "8"}})),
             Contains("has 4 bytes, but is bytes 0 to 8"));
  CHECK_THAT(refused(external_of({{"location", "data"}, {"offset", "-4"}})),
             Contains("the offset of tensor 'w' in another file is '-4'"));
  CHECK_THAT(refused(external_of({{"location", "none"}})), Contains("tensor 'w' is in 'none': No such file"));
  CHECK_THAT(refused(external_of({})), Contains("in another file that is not named"));
  const Folder elsewhere;
  write(elsewhere / "secret", "12345678");
  fs::create_symlink(elsewhere / "secret", folder / "link");
  const std::string outside = "outside of the model's folder";
  CHECK_THAT(refused(external_of({{"location", "link"}})), Contains(outside));
  CHECK_THAT(refused(external_of({{"location", (elsewhere / "secret").string()}})), Contains(outside));
  CHECK_THAT(refused(external_of({{"location", "../" + elsewhere.path.filename().string() + "/secret"}})),
             Contains(outside));
  CHECK_THAT(refused(external_of({{"location", (folder / "data").string()}})), Contains(outside));
}

TEST_CASE("attributes of graphs are not followed, however deep they are", "[onnx][cpu]") {
  std::string deep;
  for (int i = 0; i < 2000; ++i)
    deep = message([&](pbf_writer& w) {
      w.add_message(schema::graph::kNode, message([&](pbf_writer& node) {
                      node.add_string(schema::node::kOpType, "If");
                      node.add_message(schema::node::kAttribute, message([&](pbf_writer& attribute) {
                                         attribute.add_message(schema::attribute::kG, deep);
                                       }));
                    }));
    });
  File file;
  file.input("x").output("y").node("Relu", {"x"}, {"y"});
  file.add(schema::graph::kNode, message([&](pbf_writer& node) {
             node.add_string(schema::node::kOutput, "z");
             node.add_string(schema::node::kOpType, "If");
             node.add_message(schema::node::kAttribute,
                              message([&](pbf_writer& a) { a.add_message(schema::attribute::kG, deep); }));
           }));
  CHECK(error_of(file) == "no error");  // nothing needs z
}

TEST_CASE("a model that is fused when it is loaded computes what it did", "[onnx][fuse][cpu]") {
  manual_seed(14);
  const Folder folder;
  nn::Sequential net{nn::Conv2d(3, 16, 3, {.stride = 2, .bias = false}),
                     nn::BatchNorm2d(16),
                     relu,
                     nn::Conv2d(16, 32, 3, {.groups = 2}),
                     relu,
                     nn::ConvTranspose2d(32, 16, 2, {.groups = 4}),
                     nn::BatchNorm2d(16),
                     nn::Flatten(),
                     nn::Linear(16 * 25, 64),
                     relu};
  const Tensor x = randn({4, 3, 13, 13});
  net(x), net(x);  // moves the statistics
  net.eval();
  const Tensor y = net(x).detach();
  onnx::save(net, {x}, folder / "net.onnx");
  onnx::Model plain = onnx::load(folder / "net.onnx");
  onnx::Model fused = onnx::load(folder / "net.onnx", {.fuse_for_inference = true});
  CHECK(plain.parameters().size() == 11);
  CHECK(fused.parameters().size() == 8);
  CHECK_NOTHROW(fused.get_parameter("0.bias"));
  CHECK_FALSE(fused.get_parameter("0.weight").requires_grad());
  testing::assert_close(plain(x).detach(), y, {.rtol = 1e-4, .atol = 1e-5});
  for (int i = 0; i < 2; ++i) testing::assert_close(fused(x), y, {.rtol = 1e-4, .atol = 1e-5});
  CHECK_THROWS_WITH(fused.train(), Contains("was fused for inference"));
  CHECK_NOTHROW(plain.train());
  // A model that was fused before is written with the folded weights.
  CHECK(nn::fuse_for_inference(net, x).fused.size() == 4);
  onnx::save(net, {x}, folder / "fused.onnx");
  onnx::Model written = onnx::load(folder / "fused.onnx");
  CHECK(written.buffers().empty());
  testing::assert_close(written(x).detach(), y, {.rtol = 1e-4, .atol = 1e-5});
}

TEST_CASE("a graph is fused only where no other node reads what is folded", "[onnx][fuse][cpu]") {
  manual_seed(15);
  const Folder folder;
  struct Branches : nn::Layer<Branches> {
    nn::Conv1d a{*this, "a", 2, 4, 1}, b{*this, "b", 2, 4, 1};
    nn::BatchNorm1d na{*this, "na", 4}, nb{*this, "nb", 4};
    Tensor forward(const Tensor& x) const {
      const Tensor y = a(x), z = nb(b(x));
      return relu(na(y)) + y + relu(z) * z;
    }
  } net;
  const Tensor x = randn({3, 2, 5});
  net(x);
  net.eval();
  const Tensor y = net(x).detach();
  onnx::save(net, {x}, folder / "net.onnx");
  onnx::Model fused = onnx::load(folder / "net.onnx", {.fuse_for_inference = true});
  CHECK(fused.buffers().size() == 2);  // the statistics of `na`
  testing::assert_close(fused(x), y, {.rtol = 1e-4, .atol = 1e-5});
}
