#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "reel/nn.h"
#include "reel/ops.h"

using namespace reel;

namespace {

struct Counting : nn::Layer<Counting> {
  Counting() = default;
  using Layer::Layer;
  nn::Buffer steps{*this, "steps", zeros({}, {.dtype = kInt64})};
  Tensor forward(const Tensor& x) {
    CHECK_FALSE(is_training());
    steps.add_(1);
    return x;
  }
};

struct Net : nn::Module {
  nn::Embedding table{*this, "table", 10, 4};
  nn::Sequential body{*this, "body", nn::Linear(4, 3), relu, nn::Linear(3, 4)};
  Counting counting{*this, "counting"};
  nn::LSTMCell cell{*this, "cell", 4, 2};
  nn::Linear unused{*this, "unused", 4, 10, {.bias = false}};
  Net() { unused.weight = table.weight; }
  CellState forward(const Tensor& ids) { return cell(counting(body(body(table(ids))))); }
};

}  // namespace

TEST_CASE("a summary lists modules with their outputs and parameters") {
  Net net;
  net.body[0].eval();
  net.body[2].requires_grad_(false);
  const nn::Summary summary = nn::summary(net, tensor({1, 2, 3}));
  CHECK(summary.to_string() ==
        "module                output          parameters\n"
        "Net                   [3, 2], [3, 2]  -\n"
        "  table: Embedding    [3, 4]          40\n"
        "  body: Sequential    [3, 4] x2       -\n"
        "    0: Linear         [3, 3] x2       15\n"
        "    2: Linear         [3, 4] x2       16 (frozen)\n"
        "  counting: Counting  [3, 4]          -\n"
        "  cell: LSTMCell      [3, 2], [3, 2]  64\n"
        "  unused: Linear      -               -\n"
        "parameters: 135 (119 trainable), 540 B\n"
        "buffers: 8 B, outputs: 312 B\n");
  CHECK(summary.rows[3].path == "body.0");
  CHECK(summary.rows[3].calls == 2);
  CHECK(net.is_training());
  CHECK_FALSE(net.body[0].is_training());
  CHECK(net.body[2].is_training());
  CHECK(net.counting.steps.item<int>() == 0);
}

TEST_CASE("a summary counts the outputs of parametrized layers") {
  nn::Sequential net{nn::Linear(2, 3), relu, nn::Linear(3, 4)};
  const int64_t plain = nn::summary(net, ones({5, 2})).output_bytes;
  CHECK(plain == 4 * 5 * (3 + 4));
  nn::weight_norm(net[0].as_ref<nn::Linear>());
  nn::spectral_norm(net[2].as_ref<nn::Linear>());
  CHECK(nn::summary(net, ones({5, 2})).output_bytes == plain);
}

TEST_CASE("a summary leaves no hooks behind when the model fails") {
  nn::Sequential net{nn::Linear(1000, 2000), nn::Linear(3, 1)};
  CHECK_THROWS_AS(nn::summary(net, ones({1, 1000})), Error);
  CHECK(net.is_training());
  CHECK(nn::summary(net[0].as_ref<nn::Linear>(), ones({1, 1000})).to_string() ==
        "module  output     parameters\n"
        "Linear  [1, 2000]  2,002,000\n"
        "parameters: 2,002,000 (2,002,000 trainable), 8.01 MB\n"
        "buffers: 0 B, outputs: 8 kB\n");
}
