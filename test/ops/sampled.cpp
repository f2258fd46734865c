#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/memory.h"
#include "reel/optim.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

double score(const Array& hidden, const Array& weight, int64_t row, double id) {
  double sum = 0;
  for (int64_t k = 0; k < hidden.shape[1]; ++k) sum += hidden({row, k}) * weight({int64_t(id), k});
  return sum;
}
double cost(double x) { return std::log1p(std::exp(x)); }

const std::vector<int64_t> kCounts{5, 1, 0, 9, 2};
const HuffmanTree& tree() {
  static const HuffmanTree made(kCounts);
  return made;
}
/// Of kCounts, by hand: 2 and 1 make node 0 (of 1), with 4 node 1 (of 3), with 0 node 2 (of 8), with 3 the root.
struct Turn {
  int64_t node;
  bool bit;
};
const std::vector<Turn> kPaths[] = {
    {{3, false}, {2, true}},
    {{3, false}, {2, false}, {1, false}, {0, true}},
    {{3, false}, {2, false}, {1, false}, {0, false}},
    {{3, true}},
    {{3, false}, {2, false}, {1, true}},
};
double tree_loss(const Array& hidden, const Array& weight, const Array& bias, int64_t row, int64_t target) {
  double loss = 0;
  for (const auto& [node, bit] : kPaths[target]) {
    const double s = score(hidden, weight, row, double(node)) + bias({node});
    loss += cost(bit ? -s : s);
  }
  return loss;
}

}  // namespace

// clang-format off
const std::vector<Row>& sampled_rows() {
  static const std::vector<Row> rows{

{"negative_sampling_loss", [](In x) { return negative_sampling_loss(x[0], x[1], x[2], x[3]); },
 [](Ref x) {
   return fold(build({3}, [&](const Index& at) {
     const int64_t i = at[0];
     double loss = cost(-score(x[0], x[1], i, x[2](at)));
     for (int64_t k = 0; k < 2; ++k) loss += cost(score(x[0], x[1], i, x[3]({i, k})));
     return loss;
   }), {}, ref::average);
 },
 {{kMatrix}, {{6, 4}}, ids({3}, 6), ids({3, 2}, 6)}, kProduct},
{"negative_sampling_loss(shared)", [](In x) { return negative_sampling_loss(x[0], x[1], x[2], x[3], kNoReduction); },
 [](Ref x) {
   return build({3}, [&](const Index& at) {
     double loss = cost(-score(x[0], x[1], at[0], x[2](at)));
     for (const double id : x[3].data) loss += cost(score(x[0], x[1], at[0], id));
     return loss;
   });
 },
 {{kMatrix}, {{6, 4}}, ids({3}, 6), ids({5}, 6)}, kProduct},
{"nce_loss", [](In x) { return nce_loss(x[0], x[1], x[2], x[3], {x[4], x[5], x[6]}, kSum); },
 [](Ref x) {
   double loss = 0;
   for (int64_t i = 0; i < 3; ++i) {
     const double y = x[3]({i});
     loss += cost(-(score(x[0], x[1], i, y) + x[2]({int64_t(y)}) - x[6]({i})));
     for (int64_t k = 0; k < 5; ++k) {
       const double id = x[4]({k});
       loss += cost(score(x[0], x[1], i, id) + x[2]({int64_t(id)}) - x[5]({k}));
     }
   }
   return Array{{}, {loss}};
 },
 {{kMatrix}, {{6, 4}}, {{6}}, ids({3}, 6), ids({5}, 6), {{5}, -3, 0}, {{3}, -3, 0}}, kProduct},
{"nce_loss(each)",
 [](In x) {
   const TensorOptions like{.dtype = x[0].dtype(), .device = x[0].device()};
   return nce_loss(x[0], x[1], x[2], x[3], {x[4], full({3, 2}, -1.5, like), full({3}, -2, like)}, kNoReduction);
 },
 [](Ref x) {
   return build({3}, [&](const Index& at) {
     const auto logit = [&](double id, double log_expected) {
       return score(x[0], x[1], at[0], id) + x[2]({int64_t(id)}) - log_expected;
     };
     return cost(-logit(x[3](at), -2)) + cost(logit(x[4]({at[0], 0}), -1.5)) + cost(logit(x[4]({at[0], 1}), -1.5));
   });
 },
 {{kMatrix}, {{6, 4}}, {{6}}, ids({3}, 6), ids({3, 2}, 6)}, kProduct},
{"nce_loss(counts)", [](In x) { return nce_loss(x[0], x[1], {}, x[2], {x[3], x[4], x[5]}); },
 [](Ref x) {
   return fold(build({3}, [&](const Index& at) {
     double loss = cost(-(score(x[0], x[1], at[0], x[2](at)) - x[5](at)));
     for (int64_t k = 0; k < 2; ++k)
       loss += cost(score(x[0], x[1], at[0], x[3]({at[0], k})) - x[4]({at[0], k}));
     return loss;
   }), {}, ref::average);
 },
 {{kMatrix}, {{6, 4}}, ids({3}, 6), ids({3, 2}, 6), {{3, 2}, -3, 0}, {{3}, -3, 0}}, kProduct},
{"sampled_softmax_loss", [](In x) { return sampled_softmax_loss(x[0], x[1], x[2], x[3], {x[4], x[5], x[6]}); },
 [](Ref x) {
   double loss = 0;
   for (int64_t i = 0; i < 3; ++i) {
     const double y = x[3]({i});
     Line logits{score(x[0], x[1], i, y) + x[2]({int64_t(y)}) - x[6]({i})};
     for (int64_t k = 0; k < 5; ++k) {
       const double id = x[4]({k});
       if (id != y) logits.push_back(score(x[0], x[1], i, id) + x[2]({int64_t(id)}) - x[5]({k}));
     }
     loss -= ref::log_softmax(logits)[0] / 3;
   }
   return Array{{}, {loss}};
 },
 {{kMatrix}, {{6, 4}}, {{6}}, ids({3}, 6), ids({5}, 6), {{5}, -3, 0}, {{3}, -3, 0}}, kProduct},
{"hierarchical_softmax_loss", [](In x) { return hierarchical_softmax_loss(x[0], x[1], x[2], tree(), x[3]); },
 [](Ref x) {
   return fold(build({3}, [&](const Index& at) {
     return tree_loss(x[0], x[1], x[2], at[0], int64_t(x[3](at)));
   }), {}, ref::average);
 },
 {{kMatrix}, {{4, 4}}, {{4}}, ids({3}, 5)}, kProduct},
{"hierarchical_log_softmax", [](In x) { return hierarchical_log_softmax(x[0], x[1], x[2], tree()); },
 [](Ref x) {
   return build({3, 5}, [&](const Index& at) { return -tree_loss(x[0], x[1], x[2], at[0], at[1]); });
 },
 {{kMatrix}, {{4, 4}}, {{4}}}, kProduct},

};
  return rows;
}
// clang-format on

TEST_CASE("an alias table draws by its weights", "[ops]") {
  manual_seed(7);
  const std::vector<double> weights{1, 0, 5, 2, 0.5, 0, 1.5};
  const AliasTable table(weights);
  constexpr int64_t kDraws = 200000;
  const Tensor ids = table.sample({kDraws / 2, 2});
  CHECK(ids.shape() == Shape{kDraws / 2, 2});
  const std::vector<double> found = mean(one_hot(ids.flatten(), 7).to(kFloat64), 0).to_vector<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    CHECK(table.probabilities()[int64_t(i)].item<double>() == Approx(weights[i] / 10));
    CHECK(found[i] == Approx(weights[i] / 10).margin(0.004));
    if (weights[i] == 0) CHECK(found[i] == 0);
  }
  manual_seed(7);
  CHECK(equal(table.sample({kDraws / 2, 2}), ids));
  CHECK(AliasTable({3}).sample({4}).to_vector<int64_t>() == std::vector<int64_t>(4, 0));
  const AliasTable zipf = AliasTable::log_uniform(1000);
  CHECK(zipf.probabilities()[0].item<double>() == Approx(std::log(2) / std::log(1001)));
  CHECK(AliasTable::unigram({16, 1, 0}).probabilities()[0].item<double>() == Approx(8. / 9));
  const SampledClasses drawn = zipf.sample_for(tensor({0, 999}), 50);
  CHECK(drawn.ids.shape() == Shape{50});
  CHECK(drawn.target_log_expected[0].item<double>() == Approx(std::log(50 * std::log(2) / std::log(1001))));
  const SampledClasses different = AliasTable({1, 0, 4, 5}).sample_for(tensor({0}), 3, true);
  CHECK(equal(sort(different.ids).values, tensor({0, 2, 3})));
  CHECK(all(different.log_expected <= 0).item<bool>());
  CHECK_THROWS_WITH(AliasTable({1, 0}).sample_for(tensor({0}), 2, true), "AliasTable: 2 distinct samples of 1 classes");
  CHECK_THROWS_WITH(AliasTable({1, -1}), "AliasTable: weight 1 is -1");
  CHECK_THROWS_WITH(AliasTable({0, 0}), "AliasTable: the weights of 2 classes add up to 0");
  CHECK_THROWS_WITH(AliasTable(std::vector<double>{}), "AliasTable: the weights of 0 classes add up to 0");
}

TEST_CASE("sampled losses give row-sparse gradients", "[ops]") {
  Tensor weight = randn({50, 4}, {.requires_grad = true}), bias = randn({50}, {.requires_grad = true});
  const Tensor in = randn({50, 4}, {.requires_grad = true});
  const auto rows = [](const Tensor& x) {
    REQUIRE(x.sparse_grad());
    return x.sparse_grad()->ids.to_vector<int64_t>();
  };
  negative_sampling_loss(embedding(in, tensor({3, 8}), true), weight, tensor({1, 2}), tensor({{4, 5}, {5, 1}}))
      .backward();
  CHECK(rows(weight) == std::vector<int64_t>{1, 2, 4, 5});
  CHECK(rows(in) == std::vector<int64_t>{3, 8});
  weight.set_grad({});
  const AliasTable noise = AliasTable::log_uniform(50);
  const Tensor targets = tensor({7, 9});
  nce_loss(randn({2, 4}), weight, bias, targets, noise.sample_for(targets, 3)).backward();
  CHECK(rows(bias).size() <= 5);
  CHECK(rows(weight) == rows(bias));
}

TEST_CASE("sampled losses add up gradients of rows over uses, passes and types of gradient", "[ops]") {
  manual_seed(3);
  const Tensor hidden = randn({40, 19}), first = randn({30, 19}), targets = randint(30, {40}),
               drawn = randint(30, {40, 4});
  const auto loss = [&](const Tensor& h, const Tensor& weight) {
    return sum(negative_sampling_loss(h, weight, targets, drawn, kNoReduction) * arange(40).to(kFloat32));
  };
  const Tensor ids = cat({targets.unsqueeze(1), drawn}, 1);
  const auto composed = [&](const Tensor& h, const Tensor& weight) {
    const Tensor scores = sum(embedding(weight, ids) * h.unsqueeze(1), 2), signs = where(arange(5) == 0, -1.0, 1.0);
    return sum(sum(softplus(scores * signs), 1) * arange(40).to(kFloat32));
  };
  Tensor h = hidden.clone().requires_grad_(), weight = first.clone().requires_grad_();
  Tensor expected_h = hidden.clone().requires_grad_(), expected = first.clone().requires_grad_();
  for (int pass = 0; pass < 2; ++pass) {
    (loss(h, weight) + 2 * loss(h, weight)).backward();
    (composed(expected_h, expected) * 3).backward();
  }
  REQUIRE(weight.sparse_grad());
  CHECK(allclose(weight.grad(), expected.grad(), 1e-4, 1e-3));
  CHECK(allclose(h.grad(), expected_h.grad(), 1e-4, 1e-3));
  // Of a weight that is computed, and of rows that are strided.
  Tensor scale = ones({19}, {.requires_grad = true}), same = ones({19}, {.requires_grad = true});
  loss(hidden, first * scale).backward(), composed(hidden, first * same).backward();
  CHECK(allclose(scale.grad(), same.grad(), 1e-4, 1e-3));
  CHECK(allclose(loss(hidden.t().contiguous().t(), first.t().contiguous().t()), composed(hidden, first), 1e-5, 1e-4));
}

TEST_CASE("sampled losses make no rows", "[ops][cpu]") {
  constexpr int64_t kRows = 1000, kEach = 20, kWidth = 64, kGathered = kRows * (kEach + 1) * kWidth * 4;
  Tensor hidden = randn({kRows, kWidth}, {.requires_grad = true}),
         weight = randn({50, kWidth}, {.requires_grad = true});
  const Tensor targets = randint(50, {kRows}), drawn = randint(50, {kRows, kEach});
  reset_peak_memory_stats();
  const int64_t before = memory_stats().peak_in_use;
  negative_sampling_loss(hidden, weight, targets, drawn).backward();
  CHECK(weight.sparse_grad());
  CHECK(memory_stats().peak_in_use - before < kGathered / 2);
}

TEST_CASE("an alias table draws classes for each row", "[ops]") {
  const AliasTable noise({2, 0, 6});
  const SampledClasses drawn = noise.sample_for_each(tensor({2, 0, 2}), 4);
  CHECK(drawn.ids.shape() == Shape{3, 4});
  CHECK(allclose(exp(drawn.log_expected), where(drawn.ids == 0, 1.0, 3.0).to(drawn.log_expected.dtype())));
  CHECK(drawn.target_log_expected[1].item<double>() == Approx(0).margin(1e-12));
  CHECK_THROWS_WITH(noise.sample_for_each(tensor({1}), 4), "AliasTable: a target has weight 0, so it is never drawn");
  CHECK_THROWS_WITH(noise.sample_for_each(tensor({{1}}), 4),
                    "AliasTable: 4 samples for each of targets of shape [1, 1]");
}

TEST_CASE("sampled softmax learns what the full softmax learns", "[ops][cpu]") {
  // A softmax without input: biases become the logarithms of frequencies.
  manual_seed(11);
  const std::vector<double> frequencies{0.5, 0.2, 0.15, 0.1, 0.05};
  const AliasTable data(frequencies), noise = AliasTable::log_uniform(5);
  const struct {
    const char* name;
    bool contrastive, distinct;
  } ways[] = {{"distinct samples", false, true}, {"repeated samples", false, false}, {"contrast", true, false}};
  for (const auto& way : ways) {
    INFO(way.name);
    Tensor bias = zeros({5}, {.requires_grad = true});
    const Tensor hidden = zeros({500, 1}), weight = zeros({5, 1});
    for (int step = 0; step < 1000; ++step) {
      bias.set_grad({});
      const Tensor targets = data.sample({500});
      const SampledClasses samples = noise.sample_for(targets, 3, way.distinct);
      const Tensor loss = way.contrastive ? nce_loss(hidden, weight, bias, targets, samples)
                                          : sampled_softmax_loss(hidden, weight, bias, targets, samples,
                                                                 {.remove_accidental_hits = way.distinct});
      loss.backward();
      no_grad([&] { bias.sub_(bias.grad(), 2 / (1 + step / 30.)); });
    }
    const std::vector<double> learnt = (way.contrastive ? exp(bias) : softmax(bias, 0)).to_vector<double>();
    for (size_t i = 0; i < learnt.size(); ++i) CHECK(learnt[i] == Approx(frequencies[i]).epsilon(0.2));
  }
}

TEST_CASE("Huffman's tree", "[ops]") {
  std::vector<std::pair<int64_t, bool>> path;
  for (int64_t c = 0; c < 5; ++c) {
    const int64_t begin = tree().offsets[c].item<int64_t>(), end = tree().offsets[c + 1].item<int64_t>();
    REQUIRE(end - begin == int64_t(kPaths[c].size()));
    for (int64_t i = begin; i < end; ++i) {
      CHECK(tree().nodes[i].item<int64_t>() == kPaths[c][size_t(i - begin)].node);
      CHECK(tree().bits[i].item<bool>() == kPaths[c][size_t(i - begin)].bit);
      CHECK(tree().owners[i].item<int64_t>() == c);
    }
  }
  const Tensor p = exp(hierarchical_log_softmax(randn({2, 3}), randn({4, 3}), {}, tree()));
  CHECK(all(abs(sum(p, 1) - 1) < 1e-5).item<bool>());
  CHECK_THROWS_WITH(HuffmanTree({3}), "HuffmanTree: 1 classes, not at least 2");
}

TEST_CASE("weights that are too large or too unlike are an error", "[ops]") {
  CHECK_THROWS_WITH(AliasTable({1e308, 1e308}), "AliasTable: the weights of 2 classes add up to inf");
  CHECK_THROWS_WITH(AliasTable({1, 1e-12}).sample_for(tensor({0}), 2, true),
                    "AliasTable: 1002000 draws gave only 1 distinct ones of 2; the weights are too unlike");
  CHECK_THROWS_WITH(AliasTable({1, 0}).sample_for(tensor({1}), 2),
                    "AliasTable: a target has weight 0, so it is never drawn");
  constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
  CHECK(HuffmanTree({kInt64Max, kInt64Max, kInt64Max}).classes == 3);
}

TEST_CASE("sampled losses say what is wrong", "[ops]") {
  static constexpr WrongCall calls[] = {
      {[](World& w) { negative_sampling_loss(w.matrix, w.doubles, w.ids, w.ids); },
       "negative_sampling_loss: vectors of shape [3, 4] and a weight of shape [4, 3]"},
      {[](World& w) { negative_sampling_loss(w.matrix, w.matrix, tensor({1}), w.ids); },
       "negative_sampling_loss: 3 vectors but targets of shape [1]"},
      {[](World& w) {
         negative_sampling_loss(w.matrix, w.matrix, w.ids, zeros({2, 2}, {.dtype = kInt64}));
       },
       "negative_sampling_loss: samples of shape [2, 2] for 3 vectors"},
      {[](World& w) {
         negative_sampling_loss(w.matrix, w.matrix, w.ids, full({3, 2}, 3, {.dtype = kInt64}));
       },
       "negative_sampling_loss: index 3 is out of range for dimension 0 of size 3"},
      {[](World& w) {
         nce_loss(w.matrix, w.matrix, w.number, w.ids, {w.ids, w.vector, w.vector});
       },
       "nce_loss: a bias of shape [] with a weight of shape [3, 4]"},
      {[](World& w) {
         nce_loss(w.matrix, w.matrix, {}, w.ids, {w.ids, w.number, w.vector});
       },
       "nce_loss: log expected counts of shape [] for samples of shape [3], and of shape [3] for targets of shape [3]"},
      {[](World& w) { hierarchical_softmax_loss(w.matrix, w.matrix, {}, tree(), w.ids); },
       "hierarchical_softmax_loss: a weight of shape [3, 4] for 4 inner nodes"},
      {[](World& w) {
         hierarchical_softmax_loss(w.matrix, ones({4, 4}), {}, tree(), w.whole);
       },
       "hierarchical_softmax_loss: target -2 is out of range for 5 classes"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
