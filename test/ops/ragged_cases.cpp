// What rows of the op table cannot say of ragged tensors: the type itself, what is empty, long sequences, wrong calls.
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/data.h"
#include "reel/nn.h"
#include "reel/ragged.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<int64_t>;

Ragged numbered(const Ids& lengths, const Shape& row = {}) {
  const std::shared_ptr<const Lengths> known = Lengths::of(lengths);
  Shape shape = row;
  shape.insert(0, known->total());
  return {arange(shape.numel(), {.dtype = kFloat32}).view(shape), known};
}
Ragged random(const Ids& lengths, const Shape& row, DType dtype = kFloat64) {
  const Ragged x = numbered(lengths, row);
  return {randn(x.values.shape(), {.dtype = dtype, .requires_grad = true}), x.lengths};
}
double distance(const Tensor& a, const Tensor& b) {
  REEL_CHECK(a.shape() == b.shape(), "shapes ", a.shape(), " and ", b.shape());
  return a.numel() ? amax(abs(a.detach() - b.detach())).item<double>() : 0;
}

}  // namespace

TEST_CASE("a Ragged gives back its sequences") {
  const Tensors list{ones({2, 3}), zeros({0, 3}), full({4, 3}, 2.f)};
  const Ragged x = Ragged::of(list);
  CHECK(x.size() == 3);
  CHECK(x.lengths->total() == 6);
  CHECK(x.lengths->longest() == 4);
  CHECK(x.lengths->to_vector() == Ids{2, 0, 4});
  const Tensors parts = x.unbind();
  REQUIRE(parts.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(equal(parts[i], list[i]));
    CHECK(equal(x[i], list[i]));
  }
  CHECK(equal(x[-1], list[2]));
  CHECK(equal(x.mask(), tensor({{true, true, false, false}, {false, false, false, false}, {true, true, true, true}})));
  const Tensor padded = x.pad(-1);
  CHECK(padded.shape() == Shape{3, 4, 3});
  CHECK(sum(padded).item<float>() == 6 + 24 - 6 * 3);
  CHECK(equal(x.pad(-1, false), padded.transpose(0, 1)));
  CHECK(equal(Ragged::unpad(padded, x.lengths).values, x.values));
  CHECK(equal(Ragged::unpad(x.pad(0, false), x.lengths, false).values, x.values));
  CHECK(x.to(kInt64).values.dtype() == kInt64);
  CHECK(x.to(kInt64).pad(9)[0][3][0].item<int64_t>() == 9);
}

TEST_CASE("sequences and gradients of a Ragged are those of its parts") {
  const Tensor a = randn({2, 3}, {.requires_grad = true}), b = randn({1, 3}, {.requires_grad = true});
  const Ragged x = Ragged::of({a, b});
  (sum(x[1]) * 2 + sum(x.pad() * 3) + sum(x.unbind()[0])).backward();
  CHECK(equal(a.grad(), full({2, 3}, 4.f)));
  CHECK(equal(b.grad(), full({1, 3}, 5.f)));
}

TEST_CASE("lengths that differ are named") {
  const Ragged a = numbered({2, 3, 1}), b = numbered({2, 1, 3}), c = numbered({2, 3}), d = numbered({2, 3, 1});
  CHECK_THROWS_WITH(a + b, "operator+: sequence 1 has length 3 in one and 1 in the other");
  CHECK_THROWS_WITH(a * c, "operator*: 3 and 2 sequences");
  CHECK_THROWS_WITH(map(a, b, [](const Tensor& x, const Tensor&) { return x; }), Contains("map: sequence 1"));
  CHECK_THROWS_WITH(cross_entropy(numbered({2, 3}, {4}), numbered({3, 2})), Contains("sequence 0 has length 2"));
  CHECK(equal((a + d).values, 2 * a.values));
  CHECK((a + d).lengths == a.lengths);
}

TEST_CASE("wrong calls with ragged tensors", "[errors]") {
  const Ragged x = numbered({2, 3}, {4});
  const std::shared_ptr<const Lengths> five = Lengths::of(Ids{5}), four = Lengths::of(Ids{1, 3});
  CHECK_THROWS_WITH(Lengths::of(Ids{1, -2}), "Lengths: sequence 1 has length -2");
  CHECK_THROWS_WITH(Lengths::of(Ids{INT64_MAX, 1}), Contains("no tensor has as many"));
  CHECK_THROWS_WITH(Lengths::of(tensor({1., 2.})), Contains("lengths, not int64"));
  CHECK_THROWS_WITH(Lengths::of(tensor({{1, 2}})), Contains("expected a vector of lengths"));
  CHECK_THROWS_WITH(Ragged::of(Tensors{}), Contains("Ragged::of: no sequences"));
  CHECK_THROWS_WITH(Ragged::of({ones({2, 3}), ones({2, 4})}),
                    "Ragged::of: sequence 0 has shape [2, 3], sequence 1 [2, 4]; they may differ in the first size "
                    "only");
  CHECK_THROWS_WITH(Ragged::of({ones({2}), ones({})}), "Ragged::of: sequence 1 is a 0-d tensor");
  CHECK_THROWS_WITH(Ragged::of({ones({2}), tensor({1})}), "Ragged::of: sequence 0 is float32, sequence 1 int64");
  CHECK_THROWS_WITH(sum(Ragged{ones({4, 2}), five}), "sum: values of shape [4, 2] with lengths that add up to 5");
  CHECK_THROWS_WITH(sum(Ragged{ones({4, 2}), nullptr}), "sum: a Ragged without lengths");
  CHECK_THROWS_WITH(sum(Ragged{{}, five}), "sum: undefined tensor");
  CHECK_THROWS_WITH(sum(Ragged{zeros({5}, {.dtype = kInt64}), five}), Contains("sum: a tensor of int64"));
  CHECK_THROWS_WITH(x[2], "Ragged: sequence 2 of 2");
  CHECK_THROWS_WITH(Ragged::unpad(ones({2, 2, 4}), x.lengths), Contains("a sequence of length 3 in a tensor of shape"));
  CHECK_THROWS_WITH(Ragged::unpad(ones({3, 3, 4}), x.lengths), Contains("2 lengths for a tensor of shape [3, 3, 4]"));
  CHECK_THROWS_WITH(map(x, [](const Tensor& rows) { return sum(rows, 0); }), Contains("5 rows have become values of"));
  CHECK_THROWS_WITH(x + ones({5, 4}), Contains("operator+: a tensor of shape [5, 4] beside sequences with values of"));
  CHECK_THROWS_WITH(x * ones({2, 4}), Contains("expand() repeats"));
  CHECK_THROWS_WITH(x - numbered({2, 3}), Contains("operator-: rows of values of shapes [5, 4] and [5]"));
  CHECK_THROWS_WITH(expand(ones({3, 4}), x), "expand: a tensor of shape [3, 4] for 2 sequences");
  CHECK_THROWS_WITH(scaled_dot_product_attention(x, x, x, {.mask = ones({5, 5})}), Contains("a mask"));
  CHECK_THROWS_WITH(scaled_dot_product_attention(x, Ragged{ones({5, 4}), five}, Ragged{ones({5, 4}), five}),
                    Contains("2 sequences of queries and 1 of keys"));
  CHECK_THROWS_WITH(scaled_dot_product_attention(x, x, Ragged{ones({4, 4}), four}),
                    Contains("sequence 0 has length 2"));
  CHECK_THROWS_WITH(scaled_dot_product_attention(numbered({2}, {4, 2}), numbered({2}, {2, 2}), numbered({2}, {2, 2})),
                    Contains("the query's heads are no multiple"));
  CHECK_THROWS_WITH(conv1d(x, ones({2, 3, 1})), Contains("conv1d: x of shape"));
  CHECK_THROWS_WITH(conv1d(x, ones({2, 4})), Contains("conv1d: expected a weight with 3 dimensions"));
  CHECK_THROWS_WITH(conv1d(x, ones({2, 4, 1}), {}, {.stride = 0}), Contains("conv1d: stride 0, of at least 1"));
  CHECK_THROWS_WITH(conv1d(x, ones({2, 4, 2}), {}, {.stride = 2, .padding = kSame}), Contains("needs stride 1"));
  nn::LSTM lstm(4, 3);
  CHECK_THROWS_WITH(lstm(numbered({2, 3})), Contains("lstm: values of shape [5], not [total, in]"));
  CHECK_THROWS_WITH(lstm(x, {zeros({1, 3, 3}), zeros({1, 3, 3})}), Contains("a state of shape [1, 3, 3] for 2"));
  nn::CRF crf(3);
  CHECK_THROWS_WITH(crf(numbered({2, 3}), numbered({2, 3})), Contains("emissions with values of shape [5]"));
}

TEST_CASE("empty sequences, and none at all, go through every ragged op") {
  for (const Ids& lengths : {Ids{}, Ids{0}, Ids{0, 0}}) {
    INFO(lengths.size() << " sequences");
    const int64_t n = static_cast<int64_t>(lengths.size());
    const Ragged x = random(lengths, {4}, kFloat32);
    const auto leads_back = [&](const Tensor& y) {
      CHECK(y.requires_grad());
      const Tensor g = grad({y}, {x.values}, {ones_like(y)}, {.allow_unused = true})[0];
      CHECK((!g.defined() || g.shape() == Shape{0, 4}));
    };
    CHECK(x.unbind().size() == lengths.size());
    CHECK(x.pad().shape() == Shape{n, 0, 4});
    CHECK(x.mask().shape() == Shape{n, 0});
    CHECK(equal(sum(x), zeros({n, 4})));
    CHECK(equal(mean(x), zeros({n, 4})));
    CHECK(max(x).shape() == Shape{n, 4});
    CHECK(softmax(x + x).values.shape() == Shape{0, 4});
    CHECK(expand(ones({n, 2}), x).values.shape() == Shape{0, 2});
    leads_back(sum(x));
    leads_back(x.pad());
    const Ragged y = scaled_dot_product_attention(x, x, x);
    CHECK(y.values.shape() == Shape{0, 4});
    leads_back(y.values);
    CHECK(scaled_dot_product_attention(x, x, x, {.dropout = 0.5}).values.shape() == Shape{0, 4});
    const Tensor w = ones({2, 4, 3}, {.requires_grad = true});
    const Ragged z = conv1d(x, w);
    CHECK(z.values.shape() == Shape{0, 2});
    leads_back(z.values);
    CHECK(conv1d(x, w, {}, {.padding = 2}).lengths->to_vector() == Ids(lengths.size(), 2));
    for (const bool bidirectional : {false, true}) {
      const nn::LSTM lstm(4, 3, {.num_layers = 2, .bidirectional = bidirectional});
      const int64_t slots = bidirectional ? 4 : 2;
      const CellState before{ones({slots, n, 3}), full({slots, n, 3}, 2.f)};
      const auto [out, state] = lstm(x, before);
      CHECK(out.values.shape() == Shape{0, bidirectional ? 6 : 3});
      CHECK(equal(state.h, before.h));
      CHECK(equal(state.c, before.c));
      CHECK(equal(lstm(x).state.c, zeros({slots, n, 3})));
      const Tensor g = grad({sum(out.values)}, {x.values}, {}, {.create_graph = true, .allow_unused = true})[0];
      CHECK((!g.defined() || g.shape() == Shape{0, 4}));
      leads_back(out.values);
    }
    const nn::GRU gru(4, 3);
    CHECK(gru(x).output.values.shape() == Shape{0, 3});
    const Ragged tags{zeros({0}, {.dtype = kInt64}), x.lengths};
    CHECK(equal(cross_entropy(x, tags), zeros({n})));
    CHECK(equal(cross_entropy(x, tags, kSum), zeros({n})));
    const nn::CRF crf(4, {.reduction = kNoReduction});
    CHECK(equal(crf(x, tags), zeros({n})));
    CHECK(crf.decode(x).tags.values.shape() == Shape{0});
    CHECK(crf.decode(x).scores.shape() == Shape{n});
    CHECK(crf.marginals(x).values.shape() == Shape{0, 4});
  }
  const Ragged x = numbered({2, 0, 3}, {1});
  CHECK(equal(max(x), tensor({{1.f}, {-INFINITY}, {4.f}})));
  CHECK(equal(min(x), tensor({{0.f}, {INFINITY}, {2.f}})));
}

TEST_CASE("attention over long sequences is that of each alone", "[ops]") {
  manual_seed(3);
  // Blocks of some rows, of all, of several heads; more columns than a warp has lanes.
  const Ids queries{700, 3, 0, 90}, keys{150, 40, 5, 800};
  for (const bool causal : {false, true})
    for (const int64_t share : {1, 2}) {
      INFO((causal ? "causal, " : "") << share << " heads a key");
      const Ragged q = random(queries, {2 * share, 8}), k = random(keys, {2, 8}), v = random(keys, {2, 150});
      const AttentionOptions options{.is_causal = causal, .enable_gqa = share > 1};
      const Ragged y = scaled_dot_product_attention(q, k, v, options);
      Tensors alone;
      for (int64_t i = 0; i < 4; ++i)
        alone.push_back(
            scaled_dot_product_attention(q[i].transpose(0, 1), k[i].transpose(0, 1), v[i].transpose(0, 1), options)
                .transpose(0, 1));
      const Tensor expected = cat(alone, 0), g = randn(y.values.shape(), {.dtype = kFloat64});
      CHECK(distance(y.values, expected) < 1e-12);
      const Tensors in{q.values, k.values, v.values};
      const Tensors got = grad({&y.values, 1}, in, {&g, 1}, {.retain_graph = true});
      const Tensors again = grad({&y.values, 1}, in, {&g, 1}, {.create_graph = true});
      const Tensors want = grad({&expected, 1}, in, {&g, 1});
      for (size_t i = 0; i < 3; ++i) {
        CHECK(distance(got[i], want[i]) < 1e-11);
        CHECK(distance(again[i], want[i]) < 1e-11);
      }
    }
}

TEST_CASE("attention drops weights of ragged sequences") {
  manual_seed(2);
  const Ragged q{zeros({3, 4}), Lengths::of(Ids{1, 2})}, k{zeros({2000, 4}), Lengths::of(Ids{800, 1200})};
  const Ragged y = scaled_dot_product_attention(q, k, Ragged{ones({2000, 1}), k.lengths}, {.dropout = 0.5});
  CHECK(mean(y.values).item<double>() == Approx(1).margin(0.1));
  CHECK(y.values[0].item<double>() != 1);
  CHECK(equal(scaled_dot_product_attention(q, k, k, {.dropout = 1}).values, zeros({3, 4})));
}

TEST_CASE("a recurrent net gives for a Ragged what it gives for the list") {
  manual_seed(5);
  const Ragged x = random({3, 1, 0, 6, 3}, {4}, kFloat32);
  nn::LSTM lstm(4, 3, {.num_layers = 2, .bidirectional = true});
  const CellState first{randn({4, 5, 3}), randn({4, 5, 3})};
  const auto [out, state] = lstm(x, first);
  const Tensor full = tensor({0, 1, 3, 4});
  const Tensors list{x[0], x[1], x[3], x[4]};
  const auto [outs, states] = lstm(list, {index_select(first.h, 1, full), index_select(first.c, 1, full)});
  CHECK(equal(out.values, cat(outs, 0)));
  CHECK(equal(index_select(state.h, 1, full), states.h));
  CHECK(equal(state.c.select(1, 2), first.c.select(1, 2)));
  CHECK(equal(grad({sum(out.values)}, {x.values})[0], grad({sum(cat(outs, 0))}, {x.values})[0]));
  int seen = 0;
  lstm.register_forward_hook([&](const nn::Module&, std::span<const Tensor> in, std::span<const Tensor> y) {
    seen = static_cast<int>(in.size() + y.size());
    return Tensors{};
  });
  lstm(x);
  CHECK(seen >= 4);  // the values, those of the outputs, and the states
}

TEST_CASE("a CRF refuses forbidden tags of a Ragged, and counts chains that are not empty") {
  const nn::CRF crf(3, {.allowed = crf_bio_constraints({"O", "B-X", "I-X"})});
  const Ragged x = random({2, 0, 3}, {3}, kFloat32);
  CHECK(std::isfinite(crf(x, Ragged{tensor({1, 2, 0, 1, 2}), x.lengths}).item<double>()));
  const auto forbidden = [&] {
    crf(x, Ragged{tensor({1, 2, 0, 2, 2}), x.lengths});
    if (default_device() != kCPU) cuda::synchronize();  // a GPU finds it when it comes to it
  };
  CHECK_THROWS_WITH(forbidden(), Contains("not allowed"));
  const Ragged best = crf.decode(x).tags;
  CHECK(equal(best[2], crf.decode(x[2]).tags));
}

TEST_CASE("the cross entropy of sequences without targets that count is 0") {
  const Ragged logits = random({2, 1, 0}, {3}, kFloat32);
  const Ragged target{tensor({0, 2, -100}), logits.lengths};
  const Tensor each = cross_entropy(logits, target);
  CHECK(each.shape() == Shape{3});
  CHECK(each[0].item<float>() == Approx(cross_entropy(logits[0], target[0]).item<float>()));
  CHECK(each[1].item<float>() == 0);
  CHECK(each[2].item<float>() == 0);
  sum(each).backward();
  CHECK(equal(logits.values.grad()[2], zeros({3})));
  CHECK(cross_entropy(logits, target, kNoReduction).shape() == Shape{3});
}

TEST_CASE("a loader collates sequences into a Ragged") {
  std::vector<std::tuple<Tensor, Tensor, int>> samples;
  for (int i = 0; i < 5; ++i) samples.emplace_back(full({i, 2}, static_cast<float>(i)), arange(i), i);
  data::DataLoader loader(samples, {.batch_size = 2, .workers = 1}, data::RaggedCollate());
  int64_t rows = 0, batches = 0;
  for (auto [words, tags, label] : loader) {
    CHECK(words.lengths->to_vector() == label.to_vector<int64_t>());
    CHECK(*words.lengths == *tags.lengths);
    CHECK(equal(expand(label.to(words.values.device()), words).values, words.values.select(1, 0)));
    rows += words.lengths->total(), ++batches;
  }
  CHECK(rows == 10);
  CHECK(batches == 3);
}

TEST_CASE("threads share lengths", "[threads]") {
  const std::shared_ptr<const Lengths> lengths = Lengths::of(Ids{3, 0, 5, 1});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const Ragged x{ones({9, 2}, {.requires_grad = true}), lengths};
      const Tensor y = sum(softmax(x)) + sum(x.pad());
      y.backward(ones_like(y));
      right += x.values.grad().shape() == Shape{9, 2};
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("ragged ops leave nothing behind", "[cpu]") {
  testing::LeakScope scope;
  const Ragged x = random({3, 0, 2}, {4}, kFloat32);
  sum(scaled_dot_product_attention(x, x, x).pad()).backward();
  const Tensor g =
      grad({sum(square(scaled_dot_product_attention(x, x, x).values))}, {x.values}, {}, {.create_graph = true})[0];
  sum(g * g).backward();
}

TEST_CASE("ragged ops do not wait for a GPU", "[cuda]") {
  if (!cuda::is_available()) return;
  const std::shared_ptr<const Lengths> lengths = Lengths::of(Ids{3, 0, 1, 5});
  const TensorOptions there{.device = kCUDA, .requires_grad = true};
  const Ragged x{randn({9, 4}, there), lengths}, tags{zeros({9}, {.dtype = kInt64, .device = kCUDA}), lengths};
  nn::LSTM lstm(4, 4);
  nn::CRF crf(4);
  lstm.to(kCUDA), crf.to(kCUDA);
  const Tensor w = randn({4, 4, 3}, there);
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
  for (const bool again : {false, true}) {
    const Ragged y = scaled_dot_product_attention(x, x, x, {.is_causal = again}), z = lstm(y).output;
    const Ragged image = conv1d(z, w, {}, {.padding = kSame});
    Tensor loss = sum(cross_entropy(softmax(image) * image + expand(mean(x), x), tags)) - crf(image, tags);
    loss = loss + sum(max(x)) + sum(x.pad()) + sum(sum(Ragged::unpad(x.pad(), lengths))) + sum(where(x.mask(), 1., 0.));
    loss = loss + sum(scaled_dot_product_attention(x, x, x, {.dropout = 0.5}).values);
    const Tensor g = grad({sum(square(y.values))}, {x.values}, {}, {.create_graph = true})[0];
    (loss + sum(g * g)).backward();
    crf.decode(image);
  }
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
  CHECK(x.values.grad().shape() == Shape{9, 4});
}

}  // namespace reel
