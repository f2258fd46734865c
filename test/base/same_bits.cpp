// Large operands and a training run, which give the same bits for any number of threads; run under the thread
// sanitizer, too.
#include "test/support/pch.h"
#include "test/support/threads.h"

namespace reel {

TEST_CASE("large operands give the same bits for 1, 2, 3 and 8 threads", "[threads][cpu]") {
  manual_seed(7);
  const Tensor x = randn({700, 401}), column = randn({700, 1}), row = randn({401}), cube = randn({6, 5, 90, 120});
  const Tensor ids = randint(0, 50, {4000}), table = randn({50, 33}), classes = randint(0, 401, {700});
  const Tensor line = rand({300000});
  const struct {
    const char* name;
    std::function<Tensor(const Tensors&)> f;
    Tensors inputs;
  } cases[] = {
      {"add", [](const Tensors& in) { return in[0] + in[1]; }, {x, column}},
      {"mul", [](const Tensors& in) { return in[0] * in[1]; }, {x, row}},
      {"exp", [](const Tensors& in) { return exp(in[0]); }, {x}},
      {"exp of halves", [](const Tensors& in) { return exp(in[0]); }, {x.to(kFloat16)}},
      {"a transposed copy", [](const Tensors& in) { return in[0].t().contiguous(); }, {x}},
      {"a cast", [](const Tensors& in) { return in[0].t().to(kFloat64); }, {x}},
      {"where", [](const Tensors& in) { return where(in[0] > 0, in[0], in[1]); }, {x, row}},
      {"cat",
       [](const Tensors& in) {
         return cat({in[0], in[0]}, 1) + cat({in[1], in[1]}, 1);
       },
       {x, x}},
      {"sum", [](const Tensors& in) { return sum(in[0]); }, {x}},
      {"sum of a line", [](const Tensors& in) { return sum(in[0]); }, {line}},
      {"sum(0)", [](const Tensors& in) { return sum(in[0], 0); }, {x}},
      {"sum(1)", [](const Tensors& in) { return sum(in[0], 1); }, {x}},
      {"sum(0) of few rows",
       [](const Tensors& in) {
         return sum(in[0].view({3, 100000}), 0);
       },
       {line}},
      {"mean(0, 2, 3)",
       [](const Tensors& in) {
         return mean(in[0], {0, 2, 3});
       },
       {cube}},
      {"prod", [](const Tensors& in) { return prod(1 + in[0] * 1e-4, 0); }, {x}},
      {"amax", [](const Tensors& in) { return amax(in[0], 0); }, {x}},
      {"var", [](const Tensors& in) { return var(in[0], 0); }, {x}},
      {"logsumexp", [](const Tensors& in) { return logsumexp(in[0], 1); }, {x}},
      {"norm", [](const Tensors& in) { return norm(in[0]); }, {x}},
      {"argmax", [](const Tensors& in) { return argmax(in[0], 1); }, {x}},
      {"sum of integers", [](const Tensors& in) { return sum((in[0] * 100).to(kInt64), 0); }, {x}},
      {"softmax", [](const Tensors& in) { return softmax(in[0], 1); }, {x}},
      {"log_softmax", [](const Tensors& in) { return log_softmax(in[0], 1); }, {x}},
      {"cross_entropy", [&](const Tensors& in) { return cross_entropy(in[0], classes); }, {x}},
      {"layer_norm", [](const Tensors& in) { return layer_norm(in[0], {401}, in[1], in[2]); }, {x, row, row}},
      {"rms_norm", [](const Tensors& in) { return rms_norm(in[0], {401}, in[1]); }, {x, row}},
      {"group_norm", [](const Tensors& in) { return group_norm(in[0], 5, in[1], in[1]); }, {cube, randn({5})}},
      {"group_norm of one",
       [](const Tensors& in) { return group_norm(in[0], 5, in[1], in[1]); },
       {cube.reshape({1, 30, 90, 120}), randn({30})}},
      {"embedding", [&](const Tensors& in) { return embedding(in[0], ids); }, {table}},
      {"index_select", [](const Tensors& in) { return index_select(in[0], 1, arange(0, 401, 2)); }, {x}},
      {"index_add", [&](const Tensors& in) { return index_add(in[0], 0, ids, in[1]); }, {table, randn({4000, 33})}},
      {"gather",
       [&](const Tensors& in) {
         return gather(in[0], 1, classes.unsqueeze(1).expand({700, 200}));
       },
       {x}},
      {"cumsum(0)", [](const Tensors& in) { return cumsum(in[0], 0); }, {x}},
      {"cumsum(1)", [](const Tensors& in) { return cumsum(in[0], 1); }, {x}},
      {"sort", [](const Tensors& in) { return sort(in[0], 1).values; }, {x}},
      {"sort of a line", [](const Tensors& in) { return sort(round(in[0] * 64)).indices; }, {line}},
      {"sort of [2, 3000, 50]",
       [](const Tensors& in) {
         return sort(in[0].view({2, 3000, 50}), 2).indices;
       },
       {line}},
      {"a transposed copy of [8, 100, 300]",
       [](const Tensors& in) {
         return in[0].narrow(0, 0, 240000).view({8, 300, 100}).transpose(1, 2).contiguous();
       },
       {line}},
      {"topk", [](const Tensors& in) { return topk(in[0], 3).values; }, {x}},
      {"randn", [](const Tensors& in) { return in[0] + randn(in[0].shape()) + rand(in[0].shape()); }, {x}},
      {"dropout", [](const Tensors& in) { return dropout(in[0], 0.3); }, {x}},
      {"max_pool2d", [](const Tensors& in) { return max_pool2d(in[0], 3); }, {cube}},
      {"avg_pool2d", [](const Tensors& in) { return avg_pool2d(in[0], 2); }, {cube}},
      {"attention within sequences",
       [](const Tensors& in) {
         const Ragged x{in[0].narrow(0, 0, 192000).view({1000, 4, 48}),
                        Lengths::of(std::vector<int64_t>{300, 0, 500, 200})};
         return scaled_dot_product_attention(x, x, x).values;
       },
       {line}},
      {"interpolate",
       [](const Tensors& in) { return interpolate(in[0], {.scale_factor = {2}, .mode = kBilinear}); },
       {cube}},
  };
  for (const auto& [name, f, inputs] : cases) {
    INFO(name);
    for (const DType dtype : {kFloat32, kFloat64}) {  // doubles show the order of sums in double precision
      Tensors operands;
      for (const Tensor& input : inputs) operands.push_back(input.dtype() == kFloat32 ? input.to(dtype) : input);
      const auto run = [&f = f, &operands] { return with_gradients(f, operands); };
      CHECK(difference(run) == "");
      CHECK(error_of_division(run) == "");
    }
  }
}

TEST_CASE("training gives the same bits for 1, 2, 3 and 8 threads", "[threads][cpu]") {
  struct Net : nn::Module {
    nn::Embedding words{*this, "words", 500, 64};
    nn::LayerNorm norm{*this, "norm", 128};
    nn::Linear hidden{*this, "hidden", 128, 300}, out{*this, "out", 300, 200};
    Tensor forward(const Tensor& x) const {
      return out(dropout(relu(hidden(norm(words(x).flatten(1)))), 0.1, is_training()));
    }
  };
  CHECK(difference([] {
          Net net;
          optim::Adam adam(net.parameters(), {.lr = 1e-3});
          const Tensor x = randint(0, 500, {1200, 2}), y = randint(0, 200, {1200});
          Tensors losses;
          for (int step = 0; step < 3; ++step) {
            const Tensor loss = nn::cross_entropy(net.forward(x), y);
            adam.zero_grad();
            loss.backward();
            optim::clip_grad_norm(net.parameters(), 1);
            adam.step();
            losses.push_back(loss.detach());
          }
          for (const Tensor& weight : net.parameters()) losses.push_back(weight.detach());
          return losses;
        }) == "");
}

}  // namespace reel
