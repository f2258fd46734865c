#include <fstream>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "lib/onnx/schema.h"
#include "reel/autograd.h"
#include "reel/batching.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/onnx.h"
#include "reel/profile.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

// What onnx::save writes, and what it refuses.
using namespace reel;
using Tensors = std::vector<Tensor>;
using protozero::pbf_reader;

namespace {

/// A part of a file.
struct Written {
  std::vector<std::string> nodes;  // their types
  std::set<std::string> initializers, inputs, outputs, dims;
  int64_t ir_version = 0, opset = 0;
  std::string producer, doc, graph_doc;

  explicit Written(const std::filesystem::path& file) : bytes(contents(file)) {
    for (pbf_reader model(bytes); model.next();) switch (model.tag()) {
        case onnx::model::kIrVersion: ir_version = model.get_int64(); break;
        case onnx::model::kProducerName: producer = model.get_string(); break;
        case onnx::model::kDocString: doc = model.get_string(); break;
        case onnx::model::kOpsetImport:
          opset = static_cast<int64_t>(number(model.get_message(), onnx::opset::kVersion));
          break;
        case onnx::model::kGraph: read(model.get_message()); break;
        default: model.skip();
      }
  }

 private:
  const std::string bytes;

  static std::string text(pbf_reader from, onnx::Field field) {
    std::string found;
    while (from.next())
      if (from.tag() == field)
        found = from.get_string();
      else
        from.skip();
    return found;
  }
  static uint64_t number(pbf_reader from, onnx::Field field) {
    uint64_t found = 0;
    while (from.next())
      if (from.tag() == field)
        found = from.get_uint64();
      else
        from.skip();
    return found;
  }
  void read(pbf_reader graph) {
    while (graph.next()) switch (graph.tag()) {
        case onnx::graph::kNode: nodes.push_back(text(graph.get_message(), onnx::node::kOpType)); break;
        case onnx::graph::kInitializer: initializers.insert(text(graph.get_message(), onnx::tensor::kName)); break;
        case onnx::graph::kInput: inputs.insert(port(graph.get_message())); break;
        case onnx::graph::kOutput: outputs.insert(port(graph.get_message())); break;
        case onnx::graph::kDocString: graph_doc = graph.get_string(); break;
        default: graph.skip();
      }
  }
  std::string port(pbf_reader from) {
    const std::string name = text(from, onnx::value_info::kName);
    while (from.next(onnx::value_info::kType))
      for (pbf_reader type = from.get_message(); type.next(onnx::type::kTensorType);)
        for (pbf_reader tensor = type.get_message(); tensor.next(onnx::tensor_type::kShape);)
          for (pbf_reader shape = tensor.get_message(); shape.next(onnx::shape::kDim);)
            dims.insert(text(shape.get_message(), onnx::dimension::kDimParam));
    return name;
  }
};

using Function = std::function<Tensor(const Tensors&)>;
std::string refusal(const Function& f, const Tensors& inputs, const onnx::SaveOptions& options = {}) {
  const Folder folder;
  try {
    onnx::save(f, inputs, folder / "refused.onnx", options);
  } catch (const Error& error) {
    CHECK(folder.count() == 0);
    return error.what();
  }
  return "";
}
bool has(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

struct Net : nn::Layer<Net> {
  nn::Linear first{*this, "first", 4, 8};
  nn::BatchNorm1d norm{*this, "norm", 8};
  nn::Linear second{*this, "second", 8, 2};
  Tensor forward(const Tensor& x) const { return second(dropout(relu(norm(first(x))), 0.5, is_training())); }
};

const onnx::SaveOptions kBatch{.dynamic = {{.input = 0, .dim = 0, .name = "batch"}}};

}  // namespace

TEST_CASE("an exported file has the model's nodes, and its weights under their paths", "[onnx][cpu]") {
  const Folder folder;
  Net net;
  const Tensor mean = net.state_dict()["norm.running_mean"].clone();
  onnx::save(net, {randn({3, 4})}, folder / "net.onnx",
             {.inputs = {"features"},
              .outputs = {"scores"},
              .dynamic = {{.input = 0, .dim = 0, .name = "batch"}},
              .doc = "two layers"});
  const Written file(folder / "net.onnx");
  CHECK(file.ir_version == 8);
  CHECK(file.opset == 17);
  CHECK(file.producer == "reel");
  CHECK(file.doc == "two layers");
  CHECK(file.graph_doc ==
        "Traced at batch = 3; batch = 4; batch = 5; batch = 10. Compared with the program at batch = 1; "
        "batch = 2; batch = 1031.");
  CHECK(file.nodes == std::vector<std::string>{"Gemm", "BatchNormalization", "Relu", "Gemm", "Identity"});
  for (const char* name : {"first.weight", "first.bias", "norm.weight", "norm.running_var", "second.weight"})
    CHECK(file.initializers.contains(name));
  CHECK(file.inputs == std::set<std::string>{"features"});
  CHECK(file.outputs == std::set<std::string>{"scores"});
  CHECK(file.dims == std::set<std::string>{"", "batch"});
  CHECK(net.is_training());
  CHECK(equal(net.state_dict()["norm.running_mean"], mean));
  CHECK(folder.count() == 1);
}

TEST_CASE("an exported file names the sizes that the program has read", "[onnx][cpu]") {
  const Folder folder;
  const std::vector<onnx::DynamicDim> dims{{.input = 0, .dim = 0, .name = "batch"},
                                           {.input = 0, .dim = 1, .name = "len"}};
  const auto reads = [&](const std::function<Tensor(const Tensor&)>& f) {
    onnx::save([&](const std::vector<Tensor>& in) { return f(in[0]); }, {randn({3, 6})}, folder / "f.onnx",
               {.dynamic = dims});
    const std::string doc = Written(folder / "f.onnx").graph_doc, intro = "decided something: ";
    const size_t at = doc.find(intro);
    return at == std::string::npos ? "" : doc.substr(at + intro.size());
  };
  CHECK(reads([](const Tensor& x) { return relu(x); }).empty());
  CHECK(reads([](const Tensor& x) { return x.size(1) > 5000 ? relu(x) : x + 1; }) == "len.");
  CHECK(reads([](const Tensor& x) {
          const Tensor y = x.slice(1, 1, {});
          return y.size(-1) > 5000 || x.size(0) > 5000 ? relu(y) : y + 1;
        }) == "batch, dimension 1 of slice.");
}

TEST_CASE("weights beyond the limit go to a file beside the model", "[onnx][cpu]") {
  const Folder folder;
  nn::Linear net(40, 30);
  onnx::save(net, {randn({1, 40})}, folder / "net.onnx", {.external_above = 4000});
  CHECK(folder.count() == 2);
  CHECK(std::filesystem::file_size(folder / "net.onnx.data") == 40 * 30 * 4);  // the bias stays with the graph
  const std::string data = contents(folder / "net.onnx.data");
  const Tensor weight = net.weight.detach().contiguous();
  CHECK(std::memcmp(data.data(), weight.data<float>(), data.size()) == 0);
}

TEST_CASE("what an exported graph would do otherwise than the program is refused", "[onnx][cpu]") {
  const Tensor x = randn({3, 4});
  SECTION("values that the host reads") {
    CHECK(has(refusal([](const Tensors& in) { return in[0] * sum(in[0]).item<double>(); }, {x}), "onnx::save: item: "));
    CHECK(has(refusal([](const Tensors& in) { return in[0] + in[0].to_vector<float>()[0]; }, {x}), "data: "));
    CHECK(refusal([](const Tensors& in) { return in[0] * ones({2}).sum().item<double>(); }, {x}).empty());
  }
  SECTION("ops that have no counterpart") {
    CHECK(has(refusal([](const Tensors& in) { return linalg::inv(matmul(in[0], in[0].t())); }, {x}),
              "linalg.inv: ONNX has no"));
    CHECK(has(refusal([](const Tensors& in) { return cummax(in[0], 1).values; }, {x}), "cummax: ONNX has no"));
    CHECK(has(refusal([](const Tensors& in) { return digamma(in[0]); }, {x}), "digamma: ONNX has no"));
    // Of constants their result is one, too.
    CHECK(refusal([](const Tensors& in) { return in[0] + cummax(ones({4}), 0).values; }, {x}).empty());
  }
  SECTION("writes through views, and views of what was written") {
    const auto part = [](const Tensors& in) {
      Tensor y = in[0].clone();
      y.select(0, 0).mul_(2);
      return y;
    };
    CHECK(has(refusal(part, {x}), "mul_: writes into a view"));
    const auto stale = [](const Tensors& in) {
      Tensor y = in[0].clone();
      const Tensor flat = y.view({12});
      y.add_(1);
      return relu(flat);
    };
    CHECK(has(refusal(stale, {x}), "relu: reads a view"));
  }
  SECTION("other ops in another run") {
    int runs = 0;
    CHECK(
        has(refusal([&](const Tensors& in) { return runs++ ? relu(in[0]) : tanh(in[0]); }, {x}), "is tanh, and relu"));
    const auto steps = [](const Tensors& in) {
      Tensor h = zeros({4});
      for (const Tensor& row : unbind(in[0])) h = tanh(h + row);
      return h;
    };
    CHECK(has(refusal(steps, {x}, kBatch), "differ between two runs"));
    CHECK(refusal(steps, {x}).empty());
  }
  SECTION("random numbers") {
    CHECK(has(refusal([](const Tensors& in) { return in[0] + rand({3, 4}); }, {x}), "random"));
    CHECK(has(refusal([](const Tensors& in) { return dropout(in[0], 0.5); }, {x}), "dropout"));
  }
  SECTION("sizes that are no formula of the inputs'") {
    const auto half = [](const Tensors& in) { return in[0].narrow(0, 0, in[0].size(0) / 2); };
    const std::string text = refusal(half, {x}, kBatch);
    CHECK(has(text, "slice: stop"));
    CHECK(has(text, "1 at batch = 3, 2 at batch = 4"));
    const auto windows = [](const Tensors& in) {
      return max_pool1d(in[0].t().contiguous(), 1, {.stride = in[0].size(0)});
    };
    CHECK(has(refusal(windows, {x}, kBatch), "max_pool: stride of dimension 0 is 3 at batch = 3, 4 at batch = 4"));
    const auto table = [](const Tensors& in) {
      std::vector<double> numbers;
      for (int64_t i = 0; i < in[0].size(0); ++i) numbers.push_back(static_cast<double>(i * i));
      return in[0] * tensor(numbers).unsqueeze(1).to(kFloat32);
    };
    CHECK(has(refusal(table, {x}, kBatch), "in dimension 0"));
    const auto picky = [](const Tensors& in) { return in[0].view({3, 4}); };
    CHECK(has(refusal(picky, {x}, kBatch), "at batch = 4: view: "));
  }
  SECTION("ops that read more than their inputs, or change what the caller holds") {
    const Tensor mean = zeros({4}), variance = ones({4}), scores = log_softmax(x, 1), target = tensor({0, 1, 2});
    CHECK(has(refusal([&](const Tensors& in) { return batch_norm(in[0], mean, variance, {}, {}, true); }, {x}),
              "training mode"));
    CHECK(allclose(mean, zeros({4})));
    CHECK(allclose(variance, ones({4})));
    CHECK(has(refusal([&](const Tensors& in) { return nll_loss(scores, target, {.weight = in[0][0]}); }, {x}),
              "nll_loss"));
  }
  SECTION("trees, packed lists, CRFs") {
    CHECK(has(refusal([](const Tensors& in) { return tree_lstm_cell(in[0], {}).h; }, {randn({2, 12})}),
              "tree_lstm_cell"));
    CHECK(has(refusal(
                  [](const Tensors& in) {
                    return pack_padded_sequence(in[0], {2, 1}).data;
                  },
                  {randn({3, 2, 4})}),
              "pad the sequences"));
    CHECK(has(refusal(
                  [](const Tensors& in) {
                    return crf_decode(in[0], zeros({4, 4})).tags;
                  },
                  {x}),
              "export the scores"));
  }
  // Nothing goes on after an Error.
  CHECK(refusal([](const Tensors& in) { return relu(in[0]); }, {x}).empty());
}

TEST_CASE("wrong options of an export are refused", "[onnx][cpu]") {
  const Tensor x = randn({3, 4});
  const auto f = [](const Tensors& in) { return relu(in[0]); };
  CHECK(has(refusal(f, {Tensor()}), "input 0 is undefined"));
  CHECK(has(refusal(f, {x}, {.inputs = {"a", "b"}}), "2 names for 1 input"));
  CHECK(has(refusal(f, {x}, {.outputs = {"a", "b"}}), "2 names for 1 output"));
  CHECK(has(refusal(f, {x}, {.inputs = {"a"}, .outputs = {"a"}}), "'a'"));
  CHECK(has(refusal(f, {x}, {.dynamic = {{.input = 1, .dim = 0, .name = "n"}}}), "input 1, of 1"));
  CHECK(has(refusal(f, {x}, {.dynamic = {{.input = 0, .dim = 2, .name = "n"}}}), "dimension 2 of input 0"));
  CHECK(has(refusal(f, {x}, {.dynamic = {{.input = 0, .dim = 0, .name = ""}}}), "no name"));
  CHECK(has(refusal(f, {x}, {.dynamic = {{.input = 0, .dim = 0, .name = "n"}, {.input = 0, .dim = 1, .name = "n"}}}),
            "n is 3 and 4"));
}

TEST_CASE("an export reports layers that are used but not registered", "[onnx][cpu]") {
  struct Forgetful : nn::Layer<Forgetful> {
    nn::Linear known{*this, "known", 4, 4};
    nn::Linear forgotten{4, 2};
    Tensor forward(const Tensor& x) const { return forgotten(known(x)); }
  } net;
  const Folder folder;
  CHECK_THROWS_WITH(onnx::save(net, {ones({1, 4})}, folder / "net.onnx"),
                    Catch::Contains("used but not registered: float32 [2, 4], used by linear"));
  onnx::save(net, {ones({1, 4})}, folder / "net.onnx", {.allow_unregistered = true});
  CHECK(Written(folder / "net.onnx").initializers.contains("known.weight"));
}

TEST_CASE("a model is exported while the profiler records", "[onnx][cpu]") {
  const Folder folder;
  Net net;
  profile::start();
  onnx::save(net, {randn({3, 4})}, folder / "net.onnx");
  ones({2}) + 1;
  CHECK(!profile::stop().events.empty());
}

TEST_CASE("a model is exported in an example as outside of a map, while another example waits", "[cpu]") {
  nn::Sequential net(nn::Linear(3, 3), nn::Tanh(), nn::Linear(3, 3));
  const Folder folder;
  const auto save = [&](const std::string& name) { onnx::save(net, {ones({1, 3})}, folder / name.c_str()); };
  const auto bytes = [&](const std::string& name) {
    std::ifstream file(folder / name.c_str(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  save("alone.onnx");
  batching::map(std::vector{0, 1, 2}, [&](int i) {
    if (i == 1) save("mapped.onnx");
    return net(ones({1, 3}));
  });
  CHECK(bytes("alone.onnx").size() > 100);
  CHECK(bytes("alone.onnx") == bytes("mapped.onnx"));
}
