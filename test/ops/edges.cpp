#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "reel/nn.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/ops/edges.h"

// Edges, as PyTorch has them: integer types at their ends, numbers that a type does not hold, tensors of no dimension
// or no element. Figures that are not obvious are PyTorch 2.15's.
namespace reel {

using Catch::Contains;

// ---- integers -------------------------------------------------------------------------------------------------------

TEST_CASE("addcmul of narrow integers and a wide one does not overflow", "[ops]") {
  const Tensor x = tensor(std::vector<int64_t>{1, 2}), a = tensor(std::vector<int32_t>{2147483646, -3});
  CHECK(addcmul(x, a, a).to_vector<int64_t>() == std::vector<int64_t>{4611686009837453317, 11});
  CHECK(x.clone().addcmul_(a, a, 2).to_vector<int64_t>() == std::vector<int64_t>{9223372019674906633, 20});
  CHECK(addcmul(a, a, x, 2).to_vector<int64_t>() == std::vector<int64_t>{6442450938, -15});
}

TEST_CASE("integer division is right for every special divisor of every type", "[ops]") {
  const auto specials = [](DType dtype) {
    Integers all;
    if (dtype == kUInt8) {
      for (int64_t i = 0; i < 256; ++i) all.push_back(i);
      return all;
    }
    const int64_t least = dtype == kInt32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
    for (const int64_t end :
         {least, int64_t{-256}, int64_t{-2}, int64_t{0}, int64_t{1}, int64_t{126}, int64_t{255}, ~least})
      for (int64_t step = -2; step <= 2; ++step)
        if (!(end == least && step < 0) && !(end == ~least && step > 0)) all.push_back(end + step);
    return all;
  };
  __extension__ using Wide = __int128;
  for (const DType dtype : {kUInt8, kInt32, kInt64}) {
    INFO(dtype);
    Integers left, right, modulo, python, floors;
    for (const int64_t a : specials(dtype))
      for (const int64_t b : specials(dtype)) {
        if (b == 0) continue;
        left.push_back(a), right.push_back(b);
        const Wide rest = Wide(a) % b;
        const bool below = rest != 0 && (rest < 0) != (b < 0);
        modulo.push_back(static_cast<int64_t>(rest));
        python.push_back(static_cast<int64_t>(below ? rest + b : rest));
        const uint64_t quotient = static_cast<uint64_t>(Wide(a) / b - below);  // of the least by -1: wraps
        floors.push_back(dtype == kInt32 ? static_cast<int32_t>(quotient) : static_cast<int64_t>(quotient));
      }
    const Tensor a = tensor(left).to(dtype), b = tensor(right).to(dtype);
    CHECK(integers(fmod(a, b)) == modulo);
    CHECK(integers(remainder(a, b)) == python);
    CHECK(integers(floor_divide(a, b)) == floors);
  }
  CHECK(integers(remainder(bytes({254, 255, 3}), 255)) == Integers{254, 0, 3});
}

TEST_CASE("alpha multiplies in the type of the sum", "[ops]") {
  const Tensor zero = zeros({1}, wide()), tenth = doubles({0.1});
  CHECK(zero.clone().add_(bytes({1}), -2).item<double>() == -2);
  CHECK(zero.clone().add_(ones({1}), 0.1).item<double>() == 0.1);
  CHECK(zero.clone().sub_(ones({1}), 0.1).item<double>() == -0.1);
  CHECK(equal(add(zero, ones({1}), 0.1), tenth));
  CHECK(equal(sub(zero, ones({1}), -0.1), tenth));
  CHECK(equal(add(zero, 1.f, 0.1), tenth));
  const Tensor large = tensor({int64_t{2000000000}}).to(kInt32);
  CHECK(zeros({1}, {.dtype = kInt64}).add_(large, 2).item<int64_t>() == 4000000000);
  CHECK(add(zeros({1}, {.dtype = kInt64}), large, 2).item<int64_t>() == 4000000000);
  CHECK(integers(add(bytes({5}), bytes({1}), -2)) == Integers{3});
  CHECK(add(bytes({5}), bytes({1}), -2).dtype() == kUInt8);
  CHECK_THROWS_WITH(add(bytes({5}), bytes({1}), 1.5),
                    "add: a factor alpha of 1.5 for tensors of uint8 and uint8; it must be an integer");
  CHECK_THROWS_WITH(tensor({5}).sub_(tensor({1}), 0.5), Contains("sub_: a factor alpha of 0.5"));
  const Tensor yes = tensor({true, false});
  CHECK(integers(yes.clone().add_(yes, -1)) == Integers{1, 0});
  CHECK(add(yes, yes, -1).dtype() == kBool);
  CHECK_THROWS_WITH(yes.clone().add_(-1), Contains("does not fit into a tensor of bool"));
  // Of half types the sum is rounded once: 2048 + 1.5 · 1.3 is 2049.95.
  const Tensor half = full({1}, 2048., {.dtype = kFloat16}), other = full({1}, 1.3, {.dtype = kFloat16});
  CHECK(add(half, other, 1.5).item<double>() == 2050);
  CHECK(add(half, other, 1.5).dtype() == kFloat16);

  const Tensor x = doubles({1, 2}).requires_grad_(), y = tensor({3.f, 4.f}).requires_grad_();
  Tensor sum_of = x * 1;
  sum(sum_of.add_(y, 0.25)).backward();
  CHECK(numbers(x.grad()) == Numbers{1, 1});
  CHECK(numbers(y.grad()) == Numbers{0.25, 0.25});
}

TEST_CASE("bounds that an integer type does not hold", "[ops]") {
  const Tensor x = bytes({54, 200});
  for (const Tensor& y : {clamp(x, -1), clamp(x, {}, 300), clamp(x, -1, 300), x.clone().clamp_(-1)}) {
    CHECK(y.dtype() == kUInt8);
    CHECK(integers(y) == Integers{54, 200});
    CHECK(!y.is_same(x));
  }
  CHECK(integers(clamp(x, 60, 1000)) == Integers{60, 200});
  CHECK(numbers(clamp(x, {}, -0.5)) == Numbers{-0.5, -0.5});
  CHECK(numbers(clamp(x, 1000.5, 300)) == Numbers{300, 300});
  CHECK(integers(clamp(x, tensor({1000, 0}), 300)) == Integers{300, 200});
  CHECK(integers(clamp(tensor({5}).to(kInt32), {}, int64_t{1} << 40)) == Integers{5});
  CHECK(integers(clamp(tensor({true, false}), 0, 5)) == Integers{1, 0});
  // All three decide the dtype together: the float64 without dimensions gives way to the vector of float32.
  CHECK(clamp(tensor({5, 6}).to(kInt32), tensor({1.f, 2.f}), tensor(9.).to(kFloat64)).dtype() == kFloat32);
  CHECK_THROWS_WITH(clamp(x, 300), "clamp: the minimum 300 is out of the range of uint8");
  CHECK_THROWS_WITH(clamp(x, {}, -1), "clamp: the maximum -1 is out of the range of uint8");
  CHECK_THROWS_WITH(clamp(tensor({5}).to(kInt32), int64_t{1} << 40), Contains("out of the range of int32"));
  CHECK(std::isnan(clamp(doubles({1}), kNan)[0].item<double>()));
  CHECK(std::isnan(clamp(doubles({1}), 0, kNan)[0].item<double>()));
  CHECK(std::isnan(clamp(doubles({kNan}), 0, 1)[0].item<double>()));
}

TEST_CASE("activations of integers are integers", "[ops]") {
  const Tensor x = tensor({-3, 5, 9});
  CHECK(integers(hardtanh(x)) == Integers{-1, 1, 1});
  CHECK(integers(hardtanh(x, -1.5, 2.5)) == Integers{-1, 2, 2});
  CHECK(integers(hardtanh(x, -kInf, 6)) == Integers{-3, 5, 6});
  CHECK(integers(hardtanh(bytes({3, 5}))) == Integers{1, 1});
  CHECK(integers(relu6(x)) == Integers{0, 5, 6});
  CHECK(relu6(x).dtype() == kInt64);
  CHECK(integers(threshold(x, 4.5, 0.5)) == Integers{0, 5, 9});
  CHECK(threshold(x, 4.5, 0.5).dtype() == kInt64);
  CHECK_THROWS_WITH(threshold(bytes({3}), 4, 300), "threshold: 300 does not fit into uint8");
  CHECK(sign(tensor({true, false})).dtype() == kBool);
  CHECK(square(tensor({true, false})).dtype() == kInt64);
}

TEST_CASE("powers of integers", "[ops]") {
  const Tensor x = tensor({1, -1, 2, 0, -3});
  CHECK(integers(pow(x, tensor({-1, -3, -1, -1, 3}))) == Integers{1, -1, 0, 0, -27});
  CHECK(integers(pow(2, tensor({-1, 3}))) == Integers{0, 8});
  CHECK_THROWS_WITH(pow(x, -1), "pow: integers to the power of -1; make one of them floating");
  CHECK_THROWS_WITH(pow(bytes({2}), -1), Contains("to the power of -1"));
  CHECK_THROWS_WITH(pow(bytes({2}), 256), "pow: 256 does not fit into uint8");
  CHECK_THROWS_WITH(x.clone().pow_(-1), Contains("to the power of -1"));
  CHECK(numbers(pow(x, -2.)) == Numbers{1, 1, 0.25, kInf, static_cast<double>(1.f / 9)});
}

TEST_CASE("einsum of small integers", "[ops]") {
  for (const DType dtype : {kUInt8, kInt32}) {
    INFO(dtype);
    const Tensor x = tensor({{1, 2}, {3, 4}}).to(dtype);
    const struct {
      const char* equation;
      std::vector<Tensor> operands;
      Integers values;
      DType dtype;
    } cases[] = {{"ij,jk->ik", {x, x}, {7, 10, 15, 22}, dtype},
                 {"ij->i", {x}, {3, 7}, kInt64},
                 {"ij,ij->ij", {x, x}, {1, 4, 9, 16}, dtype},
                 {"ij,k->ij", {x, x[0]}, {3, 6, 9, 12}, kInt64},
                 {"ii", {x}, {5}, kInt64},
                 {"ij,kl->il", {x, x}, {12, 18, 28, 42}, kInt64},
                 {"ij,jk->ik", {x, tensor({{1}, {1}})}, {3, 7}, kInt64}};
    for (const auto& c : cases) {
      INFO(c.equation);
      const Tensor y = einsum(c.equation, c.operands);
      CHECK(y.dtype() == c.dtype);
      CHECK(integers(y) == c.values);
    }
  }
}

TEST_CASE("floats beyond an integer type become its ends, NaN 0", "[ops]") {
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const int64_t most32 = std::numeric_limits<int32_t>::max(), least32 = std::numeric_limits<int32_t>::min();
  const Tensor x = doubles({1e30, -1e30, kInf, -kInf, kNan, 2.9, -2.9, 0x1p63, -0x1p63, 3e9, -3e9});
  for (const DType from : {kFloat32, kFloat64}) {
    INFO(from);
    const Tensor y = repeat(x.to(from), {3});  // long enough for vectors
    CHECK(integers(y.to(kInt64)).size() == 33);
    CHECK(integers(y.to(kInt64).narrow(0, 11, 11)) ==
          Integers{most, least, most, least, 0, 2, -2, most, least, 3000000000, -3000000000});
    CHECK(integers(y.to(kInt32).narrow(0, 11, 11)) ==
          Integers{most32, least32, most32, least32, 0, 2, -2, most32, least32, most32, least32});
    CHECK(integers(y.narrow(0, 4, 3).to(kUInt8)) == Integers{0, 2, 254});
    CHECK(integers(doubles({300.7, -1, kInf, -kInf}).to(from).to(kUInt8)) == Integers{44, 255, 255, 0});
  }
  CHECK(integers(tensor({kInf, -kInf, kNan}).to(kFloat16).to(kInt32)) == Integers{most32, least32, 0});
}

TEST_CASE("what is written to integers is rounded towards 0, or an error", "[ops]") {
  const Tensor mask = tensor({true, false, true}), ids = tensor({0});
  const auto whole = [] { return zeros({3}, {.dtype = kInt64}); };
  CHECK(integers(whole().masked_fill_(mask, 2.5)) == Integers{2, 0, 2});
  CHECK(integers(whole().index_fill_(0, ids, -2.5)) == Integers{-2, 0, 0});
  CHECK(integers(whole().scatter_(0, ids, 2.5)) == Integers{2, 0, 0});
  CHECK(integers(whole().index_put_({ids}, 2.5)) == Integers{2, 0, 0});
  CHECK(integers(whole().index_put_({mask}, 2.5)) == Integers{2, 0, 2});
  for (const double bad : {1e30, kInf, -kInf, kNan}) {
    INFO(bad);
    CHECK_THROWS_WITH(whole().index_put_({ids}, bad), Contains("does not fit into int64"));
    CHECK_THROWS_WITH(whole().index_put_({ids}, bad, true), Contains("does not fit into int64"));
    CHECK_THROWS_WITH(whole().masked_fill_(mask, bad), Contains("does not fit into int64"));
  }
  const char* const wrong = "index_put_: a float32 value for a tensor of int64; to(int64) converts it";
  CHECK_THROWS_WITH(whole().index_put_({ids}, tensor({2.5})), wrong);
  CHECK_THROWS_WITH(whole().index_put_({mask}, tensor(2.5f)), wrong);
  CHECK_THROWS_WITH(whole().index_put_({ids}, tensor({2.5}), true), wrong);
  CHECK_THROWS_WITH(bytes({1}).fill_(-2.5), "fill_: -2.5 does not fit into uint8");
  CHECK(integers(bytes({1}).fill_(-1)) == Integers{255});
  // Without ids, too, adding is no copy_.
  CHECK_THROWS_WITH(whole().index_put_({0}, tensor(2.5f), true), wrong);
  CHECK_THROWS_WITH(whole().index_put_({Slice(0, 2)}, tensor({2.5}), true), wrong);
  CHECK(integers(whole().index_put_({0}, 2.5, true)) == Integers{2, 0, 0});
  CHECK(integers(whole().index_put_({0}, tensor(2.5f))) == Integers{2, 0, 0});
  // A tensor of one number is checked as a number is.
  const Tensor first = tensor({true}), mark = tensor(-1.1, {.device = kCPU});
  CHECK_THROWS_WITH(bytes({1}).masked_fill_(first, -1.1), "masked_fill: -1.1 does not fit into uint8");
  CHECK_THROWS_WITH(bytes({1}).masked_fill_(first, mark), "masked_fill: -1.1 does not fit into uint8");
  CHECK_THROWS_WITH(bytes({1}).masked_fill_(first, 300), "masked_fill: 300 does not fit into uint8");
  CHECK(integers(bytes({1}).masked_fill_(first, -1)) == Integers{255});
  CHECK_THROWS_WITH(pad(bytes({1}), {1, 1}, kConstant, -1.1), "pad: -1.1 does not fit into uint8");
  CHECK_THROWS_WITH(pad(bytes({1}), {1, 1}, kConstant, kNan), "pad: nan does not fit into uint8");
  CHECK(integers(pad(bytes({1}), {1, 1}, kConstant, -1)) == Integers{255, 1, 255});
}

TEST_CASE("arange of an integer type rounds start and step", "[ops]") {
  CHECK(integers(arange(2.5, -2.5, -1., {.dtype = kInt64})) == Integers{2, 1, 0, -1, -2});
  CHECK(integers(arange(-0.5, -5, -1., {.dtype = kInt64})) == Integers{0, -1, -2, -3, -4});
  CHECK(integers(arange(0.5, 5, 1., {.dtype = kInt32})) == Integers{0, 1, 2, 3, 4});
}

// ---- losses ---------------------------------------------------------------------------------------------------------

TEST_CASE("no elementwise loss broadcasts its target in silence", "[ops]") {
  const Tensor column = rand({4, 1}), row = rand({4});
  const std::pair<const char*, std::function<Tensor(const Tensor&, const Tensor&)>> losses[] = {
      {"l1_loss", [](auto& x, auto& t) { return l1_loss(x, t, kNoReduction); }},
      {"mse_loss", [](auto& x, auto& t) { return mse_loss(x, t, kNoReduction); }},
      {"smooth_l1_loss", [](auto& x, auto& t) { return smooth_l1_loss(x, t, {.reduction = kNoReduction}); }},
      {"huber_loss", [](auto& x, auto& t) { return huber_loss(x, t, {.reduction = kNoReduction}); }},
      {"kl_div", [](auto& x, auto& t) { return kl_div(x, t, {.reduction = kNoReduction}); }},
      {"poisson_nll_loss", [](auto& x, auto& t) { return poisson_nll_loss(x, t, {.reduction = kNoReduction}); }},
      {"gaussian_nll_loss",
       [](auto& x, auto& t) { return gaussian_nll_loss(x, t, ones_like(x), {.reduction = kNoReduction}); }},
      {"soft_margin_loss", [](auto& x, auto& t) { return soft_margin_loss(x, t, kNoReduction); }},
      {"hinge_embedding_loss",
       [](auto& x, auto& t) { return hinge_embedding_loss(x, t, {.reduction = kNoReduction}); }},
      {"margin_ranking_loss",
       [](auto& x, auto& t) { return margin_ranking_loss(x, x * 2, t, {.reduction = kNoReduction}); }},
      {"margin_ranking_loss",
       [](auto& x, auto& t) { return margin_ranking_loss(x, t, ones_like(x), {.reduction = kNoReduction}); }}};
  for (const auto& [name, loss] : losses) {
    INFO(name);
    CHECK_THROWS_WITH(loss(column, row), std::string(name) + ": input of shape [4, 1] and target of shape [4]");
    CHECK_THROWS_WITH(loss(row, column), Contains("input of shape [4] and target of shape [4, 1]"));
    CHECK_THROWS_WITH(loss(row, rand({1})), Contains("target of shape [1]"));
    CHECK(loss(row, 1).shape() == Shape{4});
    CHECK(loss(row, tensor(0.5f)).shape() == Shape{4});
    CHECK(loss(column, column).shape() == Shape{4, 1});
  }
  CHECK_THROWS_WITH(binary_cross_entropy(row, row, {.weight = column}),
                    "binary_cross_entropy: a weight of shape [4, 1] for shape [4]");
  CHECK_THROWS_WITH(binary_cross_entropy_with_logits(row, row, {.pos_weight = column}), Contains("a weight of shape"));
  CHECK_THROWS_WITH(cosine_embedding_loss(rand({4, 3}), rand({1, 3}), ones({4})), Contains("vectors of shape"));
  CHECK_THROWS_WITH(cosine_embedding_loss(rand({4, 3}), rand({4, 3}), ones({1})), Contains("vectors of shape"));
}

// ---- numbers beside float64 -----------------------------------------------------------------------------------------

TEST_CASE("numbers beside float64 tensors are float64 numbers in gradients, too", "[ops]") {
  const Tensor a = doubles({1, 2}), b = doubles({3, 4});
  CHECK(numbers(gradient([&](const Tensor& x) { return lerp(x, b, 0.1); }, a)) == Numbers{0.9, 1.8});
  CHECK(numbers(gradient([&](const Tensor& x) { return lerp(a, x, 0.1); }, b)) == Numbers{0.1, 0.2});
  CHECK(numbers(gradient([&](const Tensor& x) { return lerp(0.1, 0.3, x); }, a)) ==
        Numbers{0.3 - 0.1, 2 * (0.3 - 0.1)});
  Tensor x = a.clone().requires_grad_(), y = x * 1;
  sum(y.lerp_(b, 0.1)).backward();
  CHECK(numbers(x.grad()) == Numbers{0.9, 0.9});
  for (const double v : numbers(kl_div(a, 0.1, {.reduction = kNoReduction}) + 0.1 * a))
    CHECK(v == Approx(0.1 * std::log(0.1)).epsilon(1e-14));
}

// ---- digits ---------------------------------------------------------------------------------------------------------

TEST_CASE("variances keep their digits beside a mean a million times as large", "[ops][isa]") {
  manual_seed(5);
  const Tensor x = (randn({40, 250}, wide()) + 1e6).to(kFloat32), exact = x.to(kFloat64);
  const auto check = [](const Tensor& got, const Tensor& wanted) {
    CHECK(got.dtype() == kFloat32);
    CHECK(max(abs(got.to(kFloat64) / wanted - 1)).item<double>() < 1e-6);
  };
  check(var(x), var(exact));
  check(var(x, 0), var(exact, 0));
  check(var(x, 1), var(exact, 1));
  check(reel::std(x, 1), reel::std(exact, 1));
  check(diagonal(cov(x)), diagonal(cov(exact)));
  const auto of = [](const Tensor& z) { return var(z, 1); };
  const Tensor slope = gradient(of, x), wanted = gradient(of, exact);
  CHECK(max(abs(slope.to(kFloat64) - wanted)).item<double>() < 1e-5 * max(abs(wanted)).item<double>());
  CHECK(reel::std(full({1000}, 0.1f)).item<double>() < 1e-8);
}

TEST_CASE("deviations and norms of numbers whose squares float32 does not hold", "[ops][isa][cpu]") {
  const auto column = [](std::vector<float> x) { return tensor(x).unsqueeze(1); };
  const auto close = [](const Tensor& x, const Numbers& to) { return allclose(x.flatten().to(kFloat64), doubles(to)); };
  const double root = std::sqrt(2.);
  const Tensor x = column({2, 1e30f, 3}), wide = repeat(x, {1, 20});  // a channel, and more than fit into a vector
  CHECK(close(batch_norm(x, {}, {}, {}, {}, true), {-1 / root, root, -1 / root}));
  CHECK(allclose(batch_norm(wide, {}, {}, {}, {}, true), batch_norm(x, {}, {}, {}, {}, true).expand({3, 20})));
  CHECK(close(instance_norm(x.t().unsqueeze(0)), {-1 / root, root, -1 / root}));
  CHECK(close(layer_norm(x.t(), {3}), {-1 / root, root, -1 / root}));
  CHECK(close(rms_norm(x.t(), {3}), {0, std::sqrt(3.), 0}));
  const Numbers slope = numbers(gradient([](const Tensor& z) { return batch_norm(z, {}, {}, {}, {}, true); }, x));
  CHECK((slope[0] == Approx(-2.1213203e-30) && slope[2] == Approx(2.1213203e-30)));
  CHECK(std(x).item<float>() == Approx(1e30 / std::sqrt(3.)));
  CHECK(std(x * 1e-15f * 1e-15f * 1e-15f * 1e-15f).item<float>() == Approx(1e-30 / std::sqrt(3.)));
  CHECK(std::isinf(var(x).item<float>()));
}

TEST_CASE("a histogram over a huge range", "[ops]") {
  const double far = 1.5e308;
  CHECK(numbers(histc(doubles({1e308, -1e308, 0, 1.4e308}), 4, -far, far)) == Numbers{1, 0, 1, 2});
  CHECK(numbers(histc(doubles({1e308, 0, 5e307}), 100, 0, 1e308).narrow(0, 50, 1)) == Numbers{1});
  CHECK(numbers(histc(tensor({1e38f, -1e38f, 0.f, 2.9e38f}), 4, -3e38, 3e38)) == Numbers{0, 1, 2, 1});
  CHECK(numbers(histc(tensor({3e38f, -3e38f, 0.f}), 4)) == Numbers{1, 0, 1, 1});
  CHECK(numbers(histc(tensor({1.f, 2.f}), 2, -1e300, 1e300)) == Numbers{0, 2});
}

// ---- 0-d and empty --------------------------------------------------------------------------------------------------

TEST_CASE("a 0-d tensor is its only slice", "[ops][index]") {
  const Tensor x = full({}, 5., wide()), ids = tensor({0}), seven = full({}, 7., wide());
  const auto is = [](const Tensor& y, double value) { CHECK((y.dim() == 0 && y.item<double>() == value)); };
  is(index_select(x, 0, ids), 5);
  is(index_fill(x, 0, ids, 7), 7);
  is(index_fill(x, -1, tensor(0), 7), 7);
  is(index_copy(x, 0, ids, seven), 7);
  is(index_add(x, 0, ids, seven), 12);
  is(index_add(x, 0, ids, seven, 2), 19);
  is(x.clone().index_fill_(0, ids, 7), 7);
  is(x.clone().index_copy_(0, ids, seven), 7);
  is(x.clone().index_add_(0, ids, seven, -1), -2);
  CHECK(numbers(index_copy(zeros({3}, wide()), 0, tensor({1}), seven)) == Numbers{0, 7, 0});
  CHECK_THROWS_WITH(index_select(x, 0, tensor({0, 0})), "index_select: 2 slices of a 0-d tensor");
  CHECK_THROWS_WITH(index_fill(x, 1, ids, 7), Contains("dimension 1 is out of range"));
  const Tensor leaf = x.clone().requires_grad_(), added = seven.clone().requires_grad_();
  Tensor y = leaf * 1;
  y.index_add_(0, ids, added, 3);
  (y * y).backward();  // (5 + 21)²
  CHECK(leaf.grad().item<double>() == 52);
  CHECK(added.grad().item<double>() == 156);
  is(topk(x, 0).values, 5);
  CHECK(topk(zeros({2, 3}), 0).indices.shape() == Shape{2, 0});
}

TEST_CASE("norms of matrices without elements", "[ops]") {
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0, 0}, Shape{2, 0, 3}, Shape{2, 3, 0}, Shape{0, 3, 3}}) {
    INFO(shape.to_string());
    const Tensor a = zeros(shape), zero = shape.size() == 3 ? zeros({shape[0]}) : zeros({});
    for (const double ord : {1., 2., kInf}) CHECK(equal(linalg::matrix_norm(a, ord), zero));
    CHECK(equal(linalg::matrix_norm(a), zero));
    CHECK(equal(linalg::matrix_norm(a, linalg::kNuclear), zero));
    CHECK(linalg::matrix_norm(a, 1, true).dim() == a.dim());
    const auto [q, r] = linalg::qr(a);
    const int64_t k = std::min(a.size(-2), a.size(-1));
    CHECK((q.size(-1) == k && r.size(-2) == k && q.size(-2) == a.size(-2) && r.size(-1) == a.size(-1)));
    const auto [whole, rest] = linalg::qr(a, linalg::kComplete);
    CHECK((whole.size(-1) == a.size(-2) && rest.size(-2) == a.size(-2)));
    if (shape == Shape{3, 0}) CHECK(equal(whole, eye(3)));
  }
  CHECK_THROWS_WITH(linalg::matrix_norm(zeros({3, 0}), -1), Contains("nothing to take it of"));
}

TEST_CASE("normalisation of nothing", "[ops]") {
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{2, 0, 4}, Shape{2, 3, 0}, Shape{0, 3, 4, 4}, Shape{2, 3, 0, 4}}) {
    INFO(shape.to_string());
    const Tensor x = zeros(shape).requires_grad_();
    const Tensor mean = zeros({shape[1]}), variance = ones({shape[1]}), weight = ones({shape[1]}).requires_grad_();
    for (const Tensor& y : {local_response_norm(x, 2), instance_norm(x, mean, variance, weight),
                            batch_norm(x, mean, variance, weight, {}, true)}) {
      CHECK(y.shape() == shape);
      sum(y).backward();
      CHECK(x.grad().shape() == shape);
    }
    CHECK(equal(mean, zeros({shape[1]})));
    CHECK(equal(variance, ones({shape[1]})));
    CHECK(equal(weight.grad(), zeros({shape[1]})));
  }
  CHECK_THROWS_WITH(instance_norm(zeros({1, 3, 1})), Contains("more than one value"));
}

TEST_CASE("gradients without elements are added up", "[ops][tape]") {
  const Tensor x = zeros({0, 3}).requires_grad_();
  for (int pass = 0; pass < 3; ++pass) sum(x).backward();
  CHECK(x.grad().shape() == Shape{0, 3});
  CHECK(zeros({1, 0}).expand({4, 0}).add_(1).numel() == 0);
}

TEST_CASE("transposed convolution, resizing and pooling of no examples", "[ops]") {
  const Tensor x = zeros({0, 3, 4, 4}).requires_grad_(), weight = ones({3, 2, 2, 2}).requires_grad_(),
               bias = ones({2}).requires_grad_();
  const Tensor y = conv_transpose2d(x, weight, bias, {.stride = 2, .output_padding = 1});
  CHECK(y.shape() == Shape{0, 2, 9, 9});
  sum(y).backward();
  CHECK(equal(weight.grad(), zeros({3, 2, 2, 2})));
  CHECK(equal(bias.grad(), zeros({2})));
  for (const Interpolation mode : {kNearest, kBilinear, kBicubic, kArea})
    CHECK(interpolate(x, {.size = {6, 6}, .mode = mode}).shape() == Shape{0, 3, 6, 6});
  CHECK(interpolate(zeros({2, 0, 4, 4}), {.size = {6, 6}, .mode = kArea}).shape() == Shape{2, 0, 6, 6});
  CHECK(fractional_max_pool2d(x, 2, {.output_size = 3}).shape() == Shape{0, 3, 3, 3});
  const auto [values, indices] = fractional_max_pool3d_with_indices(zeros({0, 3, 6, 6, 6}), 2, {.output_size = 3});
  CHECK(values.shape() == Shape{0, 3, 3, 3, 3});
  CHECK(indices.shape() == Shape{0, 3, 3, 3, 3});
}

TEST_CASE("a linear map to one number", "[ops]") {
  const Tensor x = doubles({1, 2, 3, 4, 5, 6}).view({2, 3}), weight = doubles({1, 10, 100}).requires_grad_();
  CHECK(numbers(linear(x, weight)) == Numbers{321, 654});
  CHECK(numbers(linear(x[0], weight, full({}, 1., wide()))) == Numbers{322});
  CHECK(linear(x[0], weight).dim() == 0);
  CHECK(numbers(linear_relu(-x, weight)) == Numbers{0, 0});
  sum(linear(x.view({1, 2, 3}), weight)).backward();
  CHECK(numbers(weight.grad()) == Numbers{5, 7, 9});
  CHECK_THROWS_WITH(linear(x, weight, ones({1}, wide())), "linear: the bias has shape [1], the weight [3]");
}

TEST_CASE("running statistics that are one number for all channels cannot be moved", "[ops]") {
  const Tensor x = arange(12.).view({4, 3, 1}).expand({4, 3, 2}).contiguous();
  const Tensor shared = zeros({1}).expand({3}), variance = ones({3});
  const char* const why = ": the tensor is expanded, several of its elements are one; clone() it first";
  CHECK_THROWS_WITH(batch_norm(x, shared, variance, {}, {}, true), std::string("batch_norm: running_mean") + why);
  CHECK_THROWS_WITH(instance_norm(x, zeros({3}), shared), std::string("instance_norm: running_var") + why);
  CHECK(batch_norm(x, shared, variance).shape() == x.shape());
  CHECK(equal(variance, ones({3})));
}

TEST_CASE("shapes of single variables and copies where nothing changes", "[ops]") {
  const Tensor x = tensor({{1., 2., 4.}});
  CHECK(cov(x).dim() == 0);
  CHECK(cov(x).item<double>() == Approx(7. / 3));
  CHECK(corrcoef(x).dim() == 0);
  CHECK(corrcoef(x).item<double>() == 1);
  const Tensor row = tensor({1., 2.});
  const Tensor same = diff(row, 0, -1, tensor({0.}));
  CHECK(equal(same, row));
  CHECK(same.data<float>() != row.data<float>());
  const Tensor image = rand({1, 4, 2, 2});
  for (const int64_t groups : {1, 4}) {
    const Tensor shuffled = channel_shuffle(image, groups);
    CHECK(equal(shuffled, image));
    CHECK(shuffled.data<float>() != image.data<float>());
    CHECK(shuffled.is_contiguous());
  }
  CHECK(numbers(sign(doubles({kNan, -0., 0., kInf, -kInf}))) == Numbers{0, 0, 0, 1, -1});
}

TEST_CASE("interpolate to the size that x has gives a tensor of its own", "[ops]") {
  const Tensor x = ones({1, 1, 3});
  Tensor y = interpolate(x, {.scale_factor = {1.0}, .mode = kNearest});
  y.mul_(2);
  CHECK(sum(x).item<float>() == 3);
  CHECK(sum(y).item<float>() == 6);
}

TEST_CASE("bounds of clamp are not rounded to the dtype of x", "[ops]") {
  const Tensor x = tensor({-3.f, 5.f}).to(kBFloat16), low = tensor(-0.577f), high = tensor({2.7f});
  CHECK(numbers(clamp(x, low, high)) == Numbers{static_cast<double>(-0.577f), static_cast<double>(2.7f)});
}

TEST_CASE("arguments that mean nothing are refused", "[ops][cpu]") {
  CHECK_THROWS_WITH(binary_cross_entropy(tensor({0.5f}), tensor({1.5f})),
                    "binary_cross_entropy: the target is not a probability, some element is outside [0, 1]");
  CHECK_THROWS_WITH(binary_cross_entropy(doubles({0.5}), doubles({kNan})), Contains("the target is not"));
  CHECK_THROWS_WITH(group_norm(ones({1, 4}), 4),
                    "group_norm: more than one value for each group is needed, got x [1, 4] in 4 groups");
  CHECK(group_norm(ones({2, 4}), 4).shape() == Shape{2, 4});
  const Tensor whole = tensor({1, 2}), ids = tensor({0}), one = tensor({1});
  CHECK_THROWS_WITH(index_add(whole, 0, ids, one, 0.5),
                    "index_add: a factor alpha of 0.5 for tensors of int64; it must be an integer");
  CHECK_THROWS_WITH(whole.clone().index_add_(0, ids, one, 2.0), Contains("index_add_: a factor alpha of 2"));
  CHECK(integers(index_add(whole, 0, ids, one, -2)) == Integers{-1, 2});
  CHECK_THROWS_WITH(linalg::vector_norm(zeros({0, 3}), -1, 0), Contains("norm: nothing to take it of, shape [0, 3]"));
  CHECK(linalg::vector_norm(zeros({0, 3}), -1, 1).shape() == Shape{0});
}

TEST_CASE("logsumexp of integers is a float32", "[ops]") {
  CHECK(logsumexp(tensor({1, 2})).item<float>() == Approx(2.3132617));
  CHECK(logsumexp(tensor({true, false}), 0).dtype() == kFloat32);
}

TEST_CASE("an empty dimension is split into one part of size 0", "[ops]") {
  CHECK(split(zeros({2, 0}), 0, 1).size() == 1);
  CHECK_THROWS_WITH(split(zeros({2, 3}), 0, 1), Contains("must be positive"));
}

TEST_CASE("what has the wanted shape is not made a view of itself", "[ops]") {
  const Tensor x = ones({2, 3}).requires_grad_();
  CHECK(x.flatten(1).is_same(x));
  CHECK(broadcast_tensors({x, ones({3})})[0].is_same(x));
  CHECK(!broadcast_tensors({x, ones({4, 1, 1})})[0].is_same(x));
}

TEST_CASE("views that show all of a tensor have no history under NoGrad", "[ops]") {
  const Tensor leaf = ones({2, 3}).requires_grad_(), x = exp(leaf), row = exp(leaf.select(0, 0));
  const auto views = [](const Tensor& of, const Tensor& line) {
    return std::vector<Tensor>{of.transpose(1, -1), of.squeeze(0), line.t(), of.index({kEllipsis}), of.view({2, 3})};
  };
  for (const Tensor& v : views(x, row)) CHECK(v.requires_grad());
  const NoGrad guard;
  for (const Tensor& v : views(x, row)) {
    CHECK(!v.requires_grad());
    CHECK((v.data<float>() == x.data<float>() || v.data<float>() == row.data<float>()));
  }
}

TEST_CASE("adaptive pooling to size 0 leaves nothing, with a gradient of zeros", "[ops]") {
  const Tensor x = ones({1, 2, 4, 4}).requires_grad_();
  for (const auto& f :
       std::vector<std::function<Tensor(const Tensor&)>>{[](const Tensor& z) {
                                                           return adaptive_avg_pool2d(z, {0, 2});
                                                         },
                                                         [](const Tensor& z) {
                                                           return adaptive_max_pool2d(z, {0, 2});
                                                         },
                                                         [](const Tensor& z) {
                                                           return interpolate(z, {.size = {0, 2}, .mode = kArea});
                                                         }}) {
    const Tensor y = f(x);
    CHECK(y.shape() == Shape{1, 2, 0, 2});
    CHECK(equal(grad({y}, {x}, {ones_like(y)})[0], zeros({1, 2, 4, 4})));
  }
  CHECK(interpolate(x, {.scale_factor = {0.1}, .mode = kArea}).shape() == Shape{1, 2, 0, 0});
  CHECK(adaptive_avg_pool1d(ones({2, 4}), 0).shape() == Shape{2, 0});
  CHECK_THROWS_WITH(interpolate(x, {.size = {0, 2}}), Contains("from size 4 to size 0"));
}

}  // namespace reel
