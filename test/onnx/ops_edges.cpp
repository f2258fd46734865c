// Where ops of ONNX differ from those of NumPy and PyTorch, and what no file may ask for.
#include <climits>

#include "reel/autograd.h"
#include "reel/onnx.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/onnx/file.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using onnx_file::Attributes, onnx_file::File, onnx_file::message, onnx_file::Names, onnx_file::pbf_writer;
namespace schema = onnx_file::schema;

namespace {

using Tensors = std::vector<Tensor>;
Tensor ints(const std::vector<int64_t>& values) { return reel::tensor(values); }
Tensor floats(const std::vector<float>& values) { return reel::tensor(values); }

/// What a model of one op gives. The first input is the model's, the others are weights; undefined ones are left out.
Tensors run(const std::string& op, int64_t opset, const Tensors& inputs, const Attributes& attributes = {},
            size_t outputs = 1) {
  const Folder folder;
  File file{.opset = opset};
  Names in, out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(inputs[i].defined() ? "in." + std::to_string(i) : "");
    if (i == 0)
      file.input(in[i], inputs[i].dtype());
    else if (inputs[i].defined())
      file.weight(in[i], inputs[i]);
  }
  for (size_t i = 0; i < outputs; ++i) file.output(out.emplace_back("out." + std::to_string(i)));
  file.node(op, in, out, attributes);
  return onnx::load(write(folder / "op.onnx", file.bytes()))(Tensors{inputs[0]});
}

/// The positions that ONNX's Slice takes of an axis, by its specification.
std::vector<int64_t> sliced(int64_t size, int64_t start, int64_t end, int64_t step) {
  const auto bring = [&](int64_t i, int64_t low, int64_t high) { return std::clamp(i < 0 ? i + size : i, low, high); };
  std::vector<int64_t> at;
  if (step > 0)
    for (int64_t i = bring(start, 0, size), e = bring(end, 0, size); i < e; i += step) at.push_back(i);
  else if (size > 0)
    for (int64_t i = bring(start, 0, size - 1), e = bring(end, -1, size - 1); i > e; i += step) at.push_back(i);
  return at;
}

}  // namespace

TEST_CASE("ONNX's Slice clamps its start and end as its specification says", "[onnx][cpu]") {
  std::vector<int64_t> bounds{INT64_MIN, INT64_MIN + 1, INT32_MIN, INT32_MAX, INT64_MAX};
  for (int64_t i = -9; i <= 9; ++i) bounds.push_back(i);
  for (const int64_t size : {0, 1, 6}) {
    File file{.opset = 17};
    file.input("x").input("s", kInt64).input("e", kInt64).input("a", kInt64).input("t", kInt64).output("y");
    const Folder folder;
    const onnx::Model model =
        onnx::load(write(folder / "slice.onnx", file.node("Slice", {"x", "s", "e", "a", "t"}, {"y"}).bytes()));
    for (const int64_t start : bounds)
      for (const int64_t end : bounds)
        for (const int64_t step : {-3, -1, 1, 2}) {
          const std::vector<int64_t> at = sliced(size, start, end, step);
          const Tensor y = model({arange(size).to(kFloat32), ints({start}), ints({end}), ints({0}), ints({step})})[0];
          INFO(size << ": " << start << " to " << end << " by " << step);
          REQUIRE(y.to(kInt64).to_vector<int64_t>() == at);
        }
  }
}

TEST_CASE("ONNX's Resize computes sizes and positions in float32", "[onnx][cpu]") {
  const auto resized = [](const std::vector<int64_t>& size, const std::vector<float>& scales, const char* coordinates,
                          const char* mode = "nearest", const char* nearest = "floor") {
    return run("Resize", 13, {arange(Shape(size).numel()).to(kFloat32).reshape(Shape(size)), {}, floats(scales)},
               {{"coordinate_transformation_mode", std::string(coordinates)},
                {"mode", std::string(mode)},
                {"nearest_mode", std::string(nearest)}})[0];
  };
  // 3 times 2.33333325 is 6.9999998 in double precision. TensorFlow, PyTorch and ONNX Runtime make 7 of it.
  CHECK(resized({1, 1, 3, 6}, {1, 1, 7.F / 3, 7.F / 3}, "asymmetric").shape() == Shape{1, 1, 7, 14});
  for (const char* mode : {"nearest", "linear", "cubic"})
    CHECK(resized({1, 2, 6, 7}, {1, 1, 7.F / 6, 11.F / 7}, "half_pixel", mode).shape() == Shape{1, 2, 7, 11});
  // A scale that a quotient was rounded to gives that size back.
  const Folder folder;
  File file{.opset = 13};
  file.input("x").input("scale").output("y").node("Resize", {"x", "", "scale"}, {"y"});
  const onnx::Model model = onnx::load(write(folder / "resize.onnx", file.bytes()));
  for (int64_t size = 1; size <= 40; size += 3)
    for (int64_t out = 1; out <= 60; ++out) {
      const float scale = static_cast<float>(out) / static_cast<float>(size);
      if (static_cast<int64_t>(scale * static_cast<float>(size)) != out) continue;  // e.g. 41 of 55
      INFO(size << " to " << out);
      REQUIRE(model({ones({size}), floats({scale})})[0].numel() == out);
    }
  // Element 11 is 11 / 3.66666675, which is 3 in float32, and less in double precision.
  CHECK(resized({3}, {11.F / 3}, "asymmetric").to(kInt64).to_vector<int64_t>() ==
        std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2});
  // tf.image.resize(x, (5, 13), method="nearest") of [8, 8]: (i + 0.5) / scale.
  const Tensor y = resized({8, 8}, {5.F / 8, 13.F / 8}, "tf_half_pixel_for_nn");
  CHECK(y.select(1, 0).to(kInt64).to_vector<int64_t>() == std::vector<int64_t>{0, 16, 32, 40, 56});
  CHECK(y.select(0, 0).to(kInt64).to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7});
  // Before opset 11 ONNX Runtime rounds down where the result is larger, and otherwise up.
  CHECK(run("Resize", 10, {arange(5).to(kFloat32), floats({2.F / 5})})[0].to(kInt64).to_vector<int64_t>() ==
        std::vector<int64_t>{0, 3});
  CHECK(run("Resize", 10, {arange(2).to(kFloat32), floats({5.F / 2})})[0].to(kInt64).to_vector<int64_t>() ==
        std::vector<int64_t>{0, 0, 0, 1, 1});
  CHECK_THROWS_WITH(run("Resize", 13, {ones({2}), {}, floats({1e6F * 999})}), Contains("a scale of"));
  CHECK_THROWS_WITH(run("Resize", 13, {ones({2}), {}, {}, ints({INT64_MAX})}), Contains("not between 0 and 2^28"));
  CHECK_THROWS_WITH(run("Resize", 13, {ones({4000}), {}, {}, ints({1 << 20})}, {{"mode", std::string("linear")}}),
                    Contains("not between 0 and 2^28"));
}

TEST_CASE("an ONNX Pad of any numbers is done or refused", "[onnx][cpu]") {
  const Tensor x = arange(5).to(kFloat32);
  const std::vector<int64_t> amounts{
      INT64_MIN, INT64_MIN + 1,    -(int64_t{1} << 62), -(int64_t{1} << 40), -6,       -5, -4, -1, 0, 1,
      4,         int64_t{1} << 40, int64_t{1} << 62,    INT64_MAX - 5,       INT64_MAX};
  const Folder folder;
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    File file{.opset = 19};
    file.input("x").input("pads", kInt64).output("y");
    file.node("Pad", {"x", "pads"}, {"y"}, {{"mode", std::string(mode)}});
    const onnx::Model model = onnx::load(write(folder / "pad.onnx", file.bytes()));
    for (const int64_t before : amounts)
      for (const int64_t after : amounts) {
        INFO(mode << " " << before << " " << after);
        const bool is_small = std::max(before, after) < 5 && std::min(before, after) > -7;
        try {
          const int64_t size = model({x, ints({before, after})})[0].numel();
          REQUIRE(is_small);
          CHECK(size == 5 + before + after);
        } catch (const Error&) {
          CHECK((!is_small || std::min(before, after) < -4 || before + after < -4));
        }
      }
  }
  CHECK_THROWS_WITH(run("Pad", 18, {x, ints({1, 1, 1, 1}), {}, ints({0, -1})}), Contains("axis 0 is named twice"));
}

TEST_CASE("an axis that is named twice is refused in ONNX models", "[onnx][cpu]") {
  const Tensor x = ones({1, 1, 3});
  CHECK_THROWS_WITH(run("Unsqueeze", 13, {x, ints({0, 0})}), Contains("axis 0 is named twice"));
  CHECK_THROWS_WITH(run("Unsqueeze", 13, {x, ints({0, -5})}), Contains("axis 0 is named twice"));
  CHECK_THROWS_WITH(run("Unsqueeze", 11, {x}, {{"axes", std::vector<int64_t>{1, 1}}}), Contains("named twice"));
  CHECK_THROWS_WITH(run("Squeeze", 13, {x, ints({0, 0})}), Contains("named twice"));
  CHECK_THROWS_WITH(run("Slice", 13, {x, ints({0, 0}), ints({1, 1}), ints({2, 2})}), Contains("named twice"));
  CHECK_THROWS_WITH(run("ReduceProd", 18, {x, ints({2, 2})}), Contains("named twice"));
  CHECK_THROWS_AS(run("ReduceSum", 18, {x, ints({2, 2})}), Error);
  CHECK_THROWS_AS(run("Transpose", 13, {x}, {{"perm", std::vector<int64_t>{0, 0, 2}}}), Error);
  CHECK_THROWS_WITH(run("Resize", 18, {x, {}, {}, ints({2, 2})}, {{"axes", std::vector<int64_t>{1, 1}}}),
                    Contains("named twice"));
}

TEST_CASE("an ONNX Split without sizes makes as many parts as it has outputs", "[onnx][cpu]") {
  const auto sizes = [](int64_t size, size_t outputs, int64_t opset, const Attributes& attributes = {}) {
    std::vector<int64_t> all;
    for (const Tensor& part : run("Split", opset, {arange(size).to(kFloat32)}, attributes, outputs))
      all.push_back(part.numel());
    return all;
  };
  using List = std::vector<int64_t>;
  CHECK(sizes(6, 3, 13) == List{2, 2, 2});
  CHECK(sizes(5, 2, 18, {{"num_outputs", int64_t{2}}}) == List{3, 2});
  CHECK(sizes(5, 3, 18, {{"num_outputs", int64_t{3}}}) == List{2, 2, 1});
  CHECK_THROWS_WITH(sizes(5, 2, 13), Contains("a size of 5 in 2 parts"));  // as in ONNX Runtime
  CHECK_THROWS_WITH(sizes(5, 4, 18, {{"num_outputs", int64_t{4}}}), Contains("a size of 5 in 4 parts"));
  CHECK_THROWS_WITH(sizes(6, 2, 18, {{"num_outputs", int64_t{3}}}), Contains("num_outputs is 3 with 2 outputs"));
  CHECK_THROWS_WITH(run("Split", 18, {ones({6}), ints({3, 3})}, {{"num_outputs", int64_t{2}}}, 2),
                    Contains("num_outputs beside the sizes"));
}

TEST_CASE("shapes and flags of an ONNX file that contradict each other are refused", "[onnx][cpu]") {
  const Tensor x = ones({4, 2}), rows = reel::tensor(std::vector<int64_t>{0, 2}).reshape({2, 1});
  CHECK_THROWS_WITH(run("ScatterND", 16, {x, rows, ones({4})}), Contains("updates of shape [4], not [2, 2]"));
  CHECK_THROWS_WITH(run("ScatterElements", 16, {x, rows, ones({2, 2})}), Contains("updates of shape [2, 2]"));
  for (const char* op : {"Conv", "ConvTranspose"})
    CHECK_THROWS_WITH(
        run(op, 17, {ones({1, 1, 7, 7}), ones({1, 1, 3, 3})}, {{"kernel_shape", std::vector<int64_t>{5, 5}}}),
        Contains("kernel_shape is [5, 5]"));
  CHECK_THROWS_WITH(run("Mod", 13, {ints({5}), ints({3})}, {{"fmod", int64_t{2}}}), Contains("'fmod' is 2"));
}

TEST_CASE("recurrent ONNX nets take a part of the state, and sequences without steps", "[onnx][cpu]") {
  manual_seed(3);
  const Tensor x = randn({5, 2, 3}), w = randn({2, 16, 3}), r = randn({2, 16, 4}), b = randn({2, 32});
  const Tensor h = randn({2, 2, 4}), c = randn({2, 2, 4}), none = zeros({2, 2, 4});
  const Attributes both{{"hidden_size", int64_t{4}}, {"direction", std::string("bidirectional")}};
  const auto close = [](const Tensors& a, const Tensors& b) {
    for (size_t i = 0; i < a.size(); ++i) testing::assert_close(a[i], b[i]);
  };
  const auto lstm_of = [&](const Tensors& more) {
    Tensors inputs{x, w, r, b};
    inputs.insert(inputs.end(), more.begin(), more.end());
    return run("LSTM", 17, inputs, both, 3);
  };
  close(lstm_of({{}, h}), lstm_of({{}, h, none}));
  close(lstm_of({{}, {}, c}), lstm_of({{}, none, c}));
  // ONNX Runtime's: outputs and states of a sequence without steps are 0, whatever the first state is.
  for (const auto& lengths : std::vector<std::vector<int64_t>>{{0, 3}, {2, 0}, {0, 0}, {5, 0}}) {
    const Tensors y = lstm_of({ints(lengths).to(kInt32), h, c});
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t len = lengths[static_cast<size_t>(i)];
      INFO(lengths[0] << ", " << lengths[1] << ": sequence " << i);
      CHECK(y[0].shape() == Shape{5, 2, 2, 4});
      CHECK(equal(y[0].select(2, i).narrow(0, len, 5 - len), zeros({5 - len, 2, 4})));
      if (len == 0) {
        CHECK(equal(y[1].select(1, i), zeros({2, 4})));
        CHECK(equal(y[2].select(1, i), zeros({2, 4})));
        continue;
      }
      const Tensors alone =
          run("LSTM", 17, {x.narrow(0, 0, len).narrow(1, i, 1), w, r, b, {}, h.narrow(1, i, 1), c.narrow(1, i, 1)},
              both, 3);
      testing::assert_close(y[0].narrow(0, 0, len).narrow(2, i, 1), alone[0]);
      testing::assert_close(y[1].narrow(1, i, 1), alone[1]);
      testing::assert_close(y[2].narrow(1, i, 1), alone[2]);
    }
  }
  for (const char* op : {"GRU", "RNN"}) {
    const int64_t rows = op[0] == 'G' ? 12 : 4;
    Attributes attributes{{"hidden_size", int64_t{4}}};
    if (op[0] == 'G') attributes.push_back({"linear_before_reset", int64_t{1}});
    const Tensors y =
        run(op, 17, {x, randn({1, rows, 3}), randn({1, rows, 4}), {}, ints({0, 3}).to(kInt32), h.narrow(0, 0, 1)},
            attributes, 2);
    CHECK(equal(y[0].select(2, 0), zeros({5, 1, 4})));
    CHECK(equal(y[1].select(1, 0), zeros({1, 4})));
    CHECK(!equal(y[1].select(1, 1), zeros({1, 4})));
  }
  CHECK_THROWS_AS(lstm_of({ints({6, 1}).to(kInt32)}), Error);
  CHECK_THROWS_AS(lstm_of({ints({-1, 1}).to(kInt32)}), Error);
  CHECK_THROWS_WITH(run("LSTM", 17, {x, w, r}, {{"hidden_size", int64_t{5}}, both[1]}, 3), Contains("hidden_size 5"));
}

TEST_CASE("what reel has no tensors of is refused only where an ONNX model needs it", "[onnx][cpu]") {
  const auto tensor_of = [](int type, const std::string& name) {
    return message([&](pbf_writer& w) {
      w.add_int64(schema::tensor::kDims, 1);
      w.add_int32(schema::tensor::kDataType, type);
      w.add_string(schema::tensor::kName, name);
      if (type == schema::data_type::kString)
        w.add_bytes(schema::tensor::kStringData, "text", 4);
      else
        w.add_bytes(schema::tensor::kRawData, "\1\2\3\4", 4);
    });
  };
  const auto constant = [&](int type) {
    return message([&](pbf_writer& w) {
      w.add_string(schema::node::kOutput, "c");
      w.add_string(schema::node::kOpType, "Constant");
      w.add_message(schema::node::kAttribute, message([&](pbf_writer& a) {
                      a.add_string(schema::attribute::kName, "value");
                      a.add_int32(schema::attribute::kType, schema::attribute::kTensorType);
                      a.add_message(schema::attribute::kT, tensor_of(type, ""));
                    }));
    });
  };
  const Folder folder;
  namespace types = schema::data_type;
  for (const int type :
       {types::kInt8, types::kUint16, types::kInt16, types::kUint32, types::kUint64, types::kString, types::kComplex64})
    for (const bool is_node : {false, true})
      for (const bool is_needed : {false, true}) {
        File file;
        file.input("x").output("y");
        if (is_node)
          file.add(schema::graph::kNode, constant(type));
        else
          file.add(schema::graph::kInitializer, tensor_of(type, "c"));
        file.node("Add", {"x", is_needed ? "c" : "x"}, {"y"});
        const auto path = write(folder / "types.onnx", file.bytes());
        INFO(onnx_file::schema::data_type::kNames[type]);
        if (is_needed)
          CHECK_THROWS_WITH(onnx::load(path),
                            Contains(types::kNames[type]) && Contains("which reel has no tensors of"));
        else
          CHECK(equal(onnx::load(path)(ones({2})), full({2}, 2.)));
      }
}
