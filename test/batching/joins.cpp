// This file tests calls of cat and cross_entropy by several examples, which become one on a GPU.
#include <functional>
#include <string>
#include <vector>

#include "reel/batching.h"
#include "reel/cuda.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

std::vector<int> numbers(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

bool on_gpu() { return zeros({}).is_cuda(); }

/// Returns the groups of an op, and how many calls found no others.
std::pair<int64_t, int64_t> groups_and_alone(const batching::Report& report, const std::string& name) {
  for (const batching::Report::Row& row : report.rows)
    if (row.name == name) return {row.groups, row.alone};
  return {};
}

void check_close(const Tensor& expected, const Tensor& got) {
  REQUIRE(expected.defined() == got.defined());
  if (!got.defined()) return;
  REQUIRE(expected.dtype() == got.dtype());
  REQUIRE(expected.shape() == got.shape());
  CHECK(expected.requires_grad() == got.requires_grad());
  const double tolerance = got.dtype() == kBFloat16 ? 0.02 : 1e-5;
  CHECK(allclose(got.to(kFloat64), expected.to(kFloat64), tolerance, tolerance, true));
}

using Example = std::function<Tensor(int)>;

/// Returns the results of the examples, alone or in a map, and the first and second derivatives of their sums with
/// other weights for each element. Results for which `used` is false have no part in these.
std::vector<Tensor> with_gradients(const std::vector<Tensor>& results, const std::vector<Tensor>& leaves,
                                   const std::function<bool(int)>& used, bool second) {
  std::vector<Tensor> all = results, terms;
  for (size_t i = 0; i < results.size(); ++i)
    if (const Tensor& x = results[i]; x.requires_grad() && used(static_cast<int>(i)))
      terms.push_back(sum(x * sin(arange(x.numel()).to(x.dtype()) + static_cast<double>(i + 1)).reshape(x.shape())));
  if (terms.empty()) return all;
  for (Tensor x : leaves) x.set_grad({});
  const Tensor total = sum(stack(terms));
  if (second) {
    std::vector<Tensor> squares;
    const std::vector<Tensor> first = grad({total}, leaves, {}, {.create_graph = true, .allow_unused = true});
    for (const Tensor& g : first)
      if (all.push_back(g); g.defined()) squares.push_back(sum(g * g));
    if (const Tensor loss = sum(stack(squares)); loss.requires_grad()) loss.backward();
  } else {
    total.backward();
  }
  for (const Tensor& x : leaves) all.push_back(x.grad());
  return all;
}

/// Compares the examples, alone and in a map, with their derivatives.
void check_like_alone(
    int n, const std::vector<Tensor>& leaves, const Example& one,
    const std::function<bool(int)>& used = [](int) { return true; }) {
  for (const bool second : {false, true}) {
    CAPTURE(second);
    std::vector<Tensor> alone;
    for (const int i : numbers(n)) alone.push_back(one(i));
    const auto expected = with_gradients(alone, leaves, used, second);
    const auto got = with_gradients(batching::map(numbers(n), one), leaves, used, second);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      check_close(expected[i], got[i]);
    }
  }
}

constexpr int64_t kClasses = 5;
/// Returns a target for each of so many rows, some of them 2 or ignored.
Tensor targets(int64_t i, int64_t rows) {
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < rows; ++k) ids.push_back(i == 5 || (i + k) % 4 == 3 ? -100 : (i + 2 * k) % kClasses);
  return tensor(ids).to(kInt64);
}

}  // namespace

TEST_CASE("losses of several examples are those of single calls") {
  constexpr int kExamples = 9;
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) {
    Tensor w = randn({kClasses, 3}).to(dtype).requires_grad_();
    std::vector<Tensor> xs, leaves{w};
    for (int i = 0; i < kExamples; ++i)  // of 0 to 3 rows
      leaves.push_back(xs.emplace_back(randn({i % 4, 3}).to(dtype).requires_grad_()));
    for (const Reduction reduction : {kSum, kMean, kNoReduction})
      for (const double smoothing : {0.0, 0.1})
        for (const int64_t ignored : {-100, 2}) {
          CAPTURE(dtype, static_cast<int>(reduction), smoothing, ignored);
          const CrossEntropyLossOptions options{
              .ignore_index = ignored, .reduction = reduction, .label_smoothing = smoothing};
          const auto loss = [&](int i) {
            const Tensor ids = targets(i, i % 4);
            return cross_entropy(linear(xs[static_cast<size_t>(i)], w), ignored == 2 ? where(ids < 0, 2, ids) : ids,
                                 options);
          };
          check_like_alone(kExamples, leaves, loss);
          check_like_alone(kExamples, leaves, loss, [](int i) { return i % 3 == 1; });
          check_like_alone(kExamples, leaves, [&](int i) { return no_grad([&] { return loss(i); }); });
          if (!on_gpu()) continue;
          batching::Report report;
          batching::map(numbers(kExamples), loss, {.report = &report});
          CHECK(groups_and_alone(report, "cross_entropy") == std::pair<int64_t, int64_t>(1, 0));
        }
  }
}

TEST_CASE("a loss that is left out gives no gradient to what no other example uses") {
  std::vector<Tensor> weights;
  for (int i = 0; i < 6; ++i) weights.push_back(randn({kClasses, 3}).requires_grad_());
  const auto losses = batching::map(numbers(6), [&](int i) {
    return cross_entropy(matmul(ones({2, 3}), weights[static_cast<size_t>(i)].t()), targets(0, 2), kSum);
  });
  (losses[1] + losses[4]).backward();
  for (int i = 0; i < 6; ++i) CHECK(weights[static_cast<size_t>(i)].grad().defined() == (i == 1 || i == 4));
  losses[0].backward();  // what it needs has been kept
  CHECK(weights[0].grad().defined());
}

TEST_CASE("losses of images, of several types of targets and with other options are not mixed up") {
  const Tensor w = randn({kClasses, 3}).requires_grad_(), images = randn({12, kClasses, 2, 3}).requires_grad_();
  for (const Reduction reduction : {kSum, kMean, kNoReduction}) {
    check_like_alone(8, {images}, [&](int i) {
      const Tensor ids = targets(i, 6 * (1 + i % 2)).reshape({1 + i % 2, 2, 3});
      return cross_entropy(images.narrow(0, i, 1 + i % 2), ids, reduction);
    });
    const Tensor class_weights = arange(1, kClasses + 1).to(kFloat32);
    check_like_alone(24, {w}, [&](int i) {
      const Tensor logits = linear(full({2, 3}, 0.1 * i), w), ids = tensor({i % 5, 1}).to(kInt64);
      switch (i % 8) {
        case 0: return cross_entropy(logits, ids, reduction);
        case 1: return cross_entropy(logits, ids.to(kInt32), reduction);
        case 2: return cross_entropy(logits[0], ids[0], reduction);
        case 3: return cross_entropy(logits.narrow(0, 0, 1), ids[0], reduction);
        case 4: return cross_entropy(logits, ids, {.weight = class_weights, .reduction = reduction});
        case 5: return cross_entropy(logits, ids, {.reduction = reduction, .label_smoothing = 0.1 * (i / 8)});
        case 6: return cross_entropy(logits, softmax(logits.detach(), 1), {.reduction = reduction});
        default: return cross_entropy(logits.detach(), ids, {.ignore_index = i / 16, .reduction = reduction});
      }
    });
  }
}

TEST_CASE("losses under autocast are float32") {
  const Tensor w = randn({kClasses, 3}).requires_grad_();
  const auto losses = batching::map(numbers(6), [&](int i) {
    const amp::Autocast autocast(kBFloat16, i % 2 == 1);
    const Tensor logits = linear(full({2, 3}, 0.1 * i), w);
    CHECK(logits.dtype() == (i % 2 ? kBFloat16 : kFloat32));
    return cross_entropy(logits, targets(i, 2), kSum);
  });
  for (int i = 0; i < 6; ++i) {
    CHECK(losses[static_cast<size_t>(i)].dtype() == kFloat32);
    const Tensor exact = cross_entropy(linear(full({2, 3}, 0.1 * i), w), targets(i, 2), kSum);
    CHECK(allclose(losses[static_cast<size_t>(i)].detach(), exact.detach(), 0.05, 0.05));
  }
}

TEST_CASE("a target out of range, or targets that do not fit, are an Error of the example") {
  const auto loss = [](int64_t i, int64_t bad) {
    return cross_entropy(ones({2, kClasses}), tensor({i, i == 2 ? bad : int64_t{0}}).to(kInt64), kSum);
  };
  const auto all = [&] {
    batching::map(numbers(4), [&](int i) { return loss(i, 7); });
    if (on_gpu()) cuda::synchronize();
  };
  CHECK_THROWS_WITH(all(), Contains("cross_entropy: ") && Contains("7 is out of range"));
  const auto failed = batching::map(numbers(5), [&](int i) {
    try {
      cross_entropy(ones({2, kClasses}), zeros({i == 3 ? 3 : 2}, {.dtype = kInt64}));
      return 0;
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("cross_entropy: scores of shape [2, 5] but a target of shape [3]"));
      return 1;
    }
  });
  CHECK(failed == std::vector{0, 0, 0, 1, 0});
}

TEST_CASE("cats of several examples are those of single calls") {
  const Tensor w = randn({4, 3}).requires_grad_(), constant = randn({2, 4});
  std::vector<Tensor> leaves{w};
  for (int i = 0; i < 6; ++i) leaves.push_back(randn({i, 4}).requires_grad_());
  const auto part = [&](int i) { return linear(full({i % 3, 3}, 0.1 * i), w); };
  const auto parts = [&](int i) -> std::vector<Tensor> {
    const Tensor& leaf = leaves[static_cast<size_t>(1 + i)];
    switch (i) {
      case 0: return {leaf};
      case 1: return {part(1), leaf, leaf};
      case 2: return {constant, part(2), constant};
      case 3: return {leaf.narrow(0, 1, 1), part(0), leaf.slice(0, 0, 3, 2)};  // with a step
      case 4: return {part(4).t().t(), leaf.detach(), leaf};
      default: {
        std::vector<Tensor> many;
        for (int k = 0; k < 100; ++k) many.push_back(part(k));
        return many;
      }
    }
  };
  const auto joined = [&](int i) { return cat(parts(i)); };
  check_like_alone(6, leaves, joined);
  check_like_alone(6, leaves, joined, [](int i) { return i % 2 == 0; });
  check_like_alone(6, leaves, [&](int i) { return no_grad([&] { return joined(i); }); });
  check_like_alone(6, leaves, [&](int i) { return linear(joined(i), w.t()); });
  if (!on_gpu()) return;
  std::vector<std::vector<Tensor>> all;
  for (const int i : numbers(6)) all.push_back(parts(i));
  batching::Report report;
  no_grad([&] { batching::map(all, [](const std::vector<Tensor>& some) { return cat(some); }, {.report = &report}); });
  CHECK(groups_and_alone(report, "cat") == std::pair<int64_t, int64_t>(1, 0));
}

TEST_CASE("cats of other types, shapes and dimensions are not mixed up") {
  const Tensor w = randn({4, 3}).requires_grad_();
  const auto some = [&](int i) { return linear(full({2, 3}, 0.1 * i), w); };
  check_like_alone(40, {w}, [&](int i) {
    switch (i % 10) {
      case 0: return cat({some(i), some(i + 1)});
      case 1: return cat({some(i), some(i + 1)}, 1);
      case 2: return cat({some(i), some(i + 1)}, -2);
      case 3: return cat({some(i), some(i).to(kFloat64)});
      case 4: return cat({some(i).to(kFloat64), some(i).to(kFloat64)});
      case 5: return cat({some(i).narrow(1, 0, 3), some(i).narrow(1, 1, 3)});
      case 6: return cat({some(i)[0], some(i)[1], zeros({0})});
      case 7: return cat({zeros({0}), some(i)});
      case 8: return cat({some(i).detach(), some(i).detach()});
      default: return cat({arange(i), arange(3)});
    }
  });
  const auto failed = batching::map(numbers(6), [&](int i) {
    try {
      cat({ones({1, 3}), ones({1, i == 4 ? 2 : 3})});
      return 0;
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("cat: shapes [1, 3] and [1, 2] differ"));
      return 1;
    }
  });
  CHECK(failed == std::vector{0, 0, 0, 0, 1, 0});
  CHECK_THROWS_WITH(batching::map(numbers(3), [](int) { return cat({ones({1, 3})}, 2); }), Contains("cat"));
}

TEST_CASE("what a map has joined does not share memory with its parts") {
  std::vector<Tensor> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(full({1, 2}, i));
  const auto joined = batching::map(numbers(4), [&](int i) { return cat({parts[static_cast<size_t>(i)]}); });
  for (Tensor& part : parts) part.add_(10);
  if (on_gpu()) CHECK_THROWS_WITH(Tensor(joined[0]).add_(1), Contains("a row of a batched result"));
  for (int i = 0; i < 4; ++i) CHECK(joined[static_cast<size_t>(i)].to_vector<double>() == std::vector<double>(2, i));
}
