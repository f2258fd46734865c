// This file tests half types on the CPU in all layouts and sizes: conversions of all numbers, pieces of pointwise
// kernels, products and convolutions in bfloat16.
#include <cmath>
#include <limits>

#include "lib/base/half.h"
#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/op_table.h"
#include "test/support/pch.h"
#include "test/support/threads.h"

using namespace reel;

namespace {

constexpr DType kHalves[] = {kFloat16, kBFloat16};

Tensor random_half(const Shape& shape, DType dtype) { return randn(shape).to(dtype); }

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && equal(a.to(kFloat32), b.to(kFloat32));
}

/// Returns the largest difference between a and b, as a share of the largest element.
double error_of(const Tensor& a, const Tensor& b) {
  const Tensor wide = b.to(kFloat64);
  return (a.to(kFloat64) - wide).abs().max().item<double>() / std::max(wide.abs().max().item<double>(), 1e-9);
}

/// Returns x with its last dimension first in memory.
Tensor with_last_first(const Tensor& x) { return x.movedim(-1, 0).contiguous().movedim(0, -1); }

}  // namespace

TEST_CASE("every number of a half type is converted exactly, wherever it lies", "[ops][isa]") {
  for (const DType dtype : kHalves) {
    std::vector<float> numbers(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits)
      numbers[bits] = dtype == kFloat16 ? float16_to_float(uint16_t(bits)) : bfloat16_to_float(uint16_t(bits));
    // Each of several starts makes other elements the last ones, which no vector holds.
    for (const int64_t begin : {0, 1, 7, 30}) {
      const Tensor wide = tensor(numbers).narrow(0, begin, 65536 - begin), half = wide.to(dtype);
      const std::vector<float> back = half.to(kFloat32).to_vector<float>();
      int64_t wrong = 0;
      for (size_t i = 0; i < back.size(); ++i) {
        const float number = numbers[i + size_t(begin)];
        wrong += std::isnan(number) ? !std::isnan(back[i])
                                    : std::bit_cast<uint32_t>(number) != std::bit_cast<uint32_t>(back[i]);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a float32 is rounded to the nearest number of a half type", "[ops][isa]") {
  std::vector<float> numbers;
  for (uint32_t high = 0; high < 65536; ++high)
    for (const uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      if (const float x = std::bit_cast<float>(high << 16 | low); !std::isnan(x)) numbers.push_back(x);
  for (const DType dtype : kHalves) {
    const Tensor half = tensor(numbers).to(dtype);
    const std::vector<float> got = half.to(kFloat32).to_vector<float>();
    int64_t wrong = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float expected = dtype == kFloat16 ? float16_to_float(float_to_float16(numbers[i]))
                                               : bfloat16_to_float(float_to_bfloat16(numbers[i]));
      wrong += std::bit_cast<uint32_t>(expected) != std::bit_cast<uint32_t>(got[i]);
    }
    CHECK(wrong == 0);
  }
  CHECK(std::isnan(full({40}, std::nan("")).to(kFloat16).to(kFloat32).sum().item<double>()));
  CHECK(std::isnan(full({40}, std::nan("")).to(kBFloat16).to(kFloat32).sum().item<double>()));
}

TEST_CASE("pointwise ops of half types are those of float32, rounded, in every layout", "[ops][isa]") {
  const std::vector<Shape> shapes = {{},       {1},        {1023},       {1024},         {1025},      {5000},
                                     {3, 700}, {700, 3},   {2, 3, 1500}, {2, 2000, 3},   {40, 1, 50}, {3, 1, 2, 600},
                                     {2, 0},   {90000, 2}, {70, 33, 40}, {1, 1, 3, 1100}};
  for (const DType dtype : kHalves)
    for (const Shape& shape : shapes) {
      CAPTURE(dtype, shape);
      const Tensor a = random_half(shape, dtype), b = random_half(shape, dtype), c = random_half(shape, dtype);
      std::vector<std::array<Tensor, 3>> operands = {{a, b, c}};
      if (shape.size() >= 2) {
        operands.push_back({with_last_first(a), b, c});
        operands.push_back({with_last_first(a), with_last_first(b), with_last_first(c)});
        operands.push_back({a, b.narrow(0, 0, std::min<int64_t>(b.size(0), 1)).expand(shape), c});
        operands.push_back({a.narrow(-1, 0, std::min<int64_t>(a.size(-1), 1)).expand(shape), b, c});
        operands.push_back({a, random_half({}, dtype).expand(shape), with_last_first(c)});
        operands.push_back({cat({a, a}, -1).narrow(-1, a.size(-1) / 2, a.size(-1)), b, c});
      }
      for (const auto& [x, y, z] : operands) {
        const Tensor u = x.to(kFloat32), v = y.to(kFloat32), w = z.to(kFloat32);
        CHECK(same_bits(x + y, (u + v).to(dtype)));
        CHECK(same_bits(exp(x), exp(u).to(dtype)));
        CHECK(same_bits(lerp(x, y, z), lerp(u, v, w).to(dtype)));
        CHECK(equal(x < y, u < v));
        if (test_device() == kCPU)
          CHECK(same_bits(softmax(x, -1), softmax(u, -1).to(dtype)));
        else  // a thread of a GPU adds as many elements as it loads at once, which are more of a half type
          CHECK(allclose(softmax(x, -1).to(kFloat32), softmax(u, -1), dtype == kBFloat16 ? 0x1p-8 : 0x1p-10, 1e-7));
        Tensor in_place = with_last_first(x.clone());
        in_place.mul_(y);
        CHECK(same_bits(in_place, (u * v).to(dtype)));
        CHECK(same_bits(x / y, (u / v).to(dtype)));
        CHECK(same_bits(x * 0.3, (u * 0.3).to(dtype)));
        CHECK(same_bits(3 - x, (3 - u).to(dtype)));
        CHECK(same_bits(pow(x, 3), pow(u, 3).to(dtype)));
        CHECK(same_bits(pow(abs(x), -0.5), pow(abs(u), -0.5).to(dtype)));
        CHECK(same_bits(add(x, y, 0.7), add(u, v, 0.7).to(dtype)));
        CHECK(same_bits(sub(x, y, 3), sub(u, v, 3).to(dtype)));
        CHECK(same_bits(lerp(x, y, 0.3), lerp(u, v, 0.3).to(dtype)));
        CHECK(same_bits(addcmul(x, y, z, 0.7), addcmul(u, v, w, 0.7).to(dtype)));
        CHECK(same_bits(addcdiv(x, y, z, 0.7), addcdiv(u, v, w, 0.7).to(dtype)));
        CHECK(same_bits(floor(sqrt(abs(x))), floor(sqrt(abs(u)).to(dtype).to(kFloat32)).to(dtype)));
        // In place, where the elements lie in another order and with gaps.
        const auto check_changed = [&, x = x, y = y, z = z, u = u, v = v, w = w](const auto& change) {
          Tensor wide = u.clone();
          change(wide, v, w);
          const Tensor expected = wide.to(dtype);
          std::vector<Tensor> targets = {x.clone(), with_last_first(x.clone())};
          if (!x.shape().empty()) targets.push_back(stack({x, x}, -1).select(-1, 1));
          for (Tensor& target : targets) {
            change(target, y, z);
            CHECK(same_bits(target, expected));
          }
        };
        check_changed([](Tensor& t, const Tensor& p, const Tensor&) { t.add_(p, 0.7); });
        check_changed([](Tensor& t, const Tensor& p, const Tensor&) { t.sub_(p); });
        check_changed([](Tensor& t, const Tensor& p, const Tensor& q) { t.addcmul_(p, q, 0.3); });
        check_changed([](Tensor& t, const Tensor& p, const Tensor& q) { t.addcdiv_(p, q); });
        check_changed([](Tensor& t, const Tensor& p, const Tensor&) { t.lerp_(p, 0.3); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.mul_(0.3); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.div_(3); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.add_(1e-3); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.clamp_(-0.3, 0.7); });
        check_changed([](Tensor& t, const Tensor& p, const Tensor&) { t.fmod_(p); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.floor_(); });
        check_changed([](Tensor& t, const Tensor&, const Tensor&) { t.frac_(); });
        if (shape.numel() == 0) continue;
        for (const bool keep : {false, true}) {
          CHECK(same_bits(sum(x, -1, keep), sum(u, -1, keep).to(dtype)));
          CHECK(same_bits(amax(x, 0, keep), amax(u, 0, keep).to(dtype)));
          CHECK(same_bits(mean(x, 0, keep), mean(u, 0, keep).to(dtype)));
        }
        CHECK(same_bits(sum(x), sum(u).to(dtype)));
      }
    }
}

TEST_CASE("half types give the same bits with any number of threads", "[ops]") {
  const Tensor x = random_half({300, 1000}, kBFloat16), y = random_half({300, 1000}, kBFloat16);
  const Tensor image = random_half({8, 16, 40, 40}, kBFloat16), kernel = random_half({32, 16, 3, 3}, kBFloat16);
  const auto all = [&] {
    const Tensor w = kernel.detach().requires_grad_();
    conv2d(image, w, {}, {.padding = 1}).to(kFloat32).sum().backward();
    return std::vector{x + y, softmax(x, 1), sum(x), mm(x, y.t()), mm(x.t(), y), w.grad()};
  };
  const std::vector<Tensor> alone = [&] {
    const Threads one(1);
    return all();
  }();
  const Threads three(3);
  const std::vector<Tensor> together = all();
  for (size_t i = 0; i < alone.size(); ++i) CHECK(same_bits(alone[i], together[i]));
}

TEST_CASE("products of bfloat16 are those of float32, rounded", "[ops][isa]") {
  // A rounded result is within 2⁻⁸ of the sum, and the order of its terms matters less. cuBLAS may round a product
  // before it adds a bias.
  const double bound = test_device() == kCPU ? 0x1p-8 : 0x1p-7;
  struct Size {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : std::vector<Size>{{1, 1, 1},
                                                 {1, 64, 100},
                                                 {64, 1, 100},
                                                 {1, 1, 5000},
                                                 {3, 5, 7},
                                                 {17, 33, 65},
                                                 {64, 64, 64},
                                                 {5, 300, 1},
                                                 {129, 200, 300},
                                                 {400, 700, 100}}) {
    CAPTURE(m, n, k);
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Tensor a = transpose_a ? random_half({k, m}, kBFloat16).t() : random_half({m, k}, kBFloat16);
        const Tensor b = transpose_b ? random_half({n, k}, kBFloat16).t() : random_half({k, n}, kBFloat16);
        const Tensor bias = random_half({n}, kBFloat16);
        const auto wide = [](const Tensor& x) { return x.to(kFloat64); };
        CHECK(error_of(mm(a, b), mm(wide(a), wide(b))) <= bound);
        CHECK(error_of(linear(a, b.t(), bias), mm(wide(a), wide(b)) + wide(bias)) <= bound);
        CHECK(error_of(relu(linear(a, b.t(), bias)), relu(mm(wide(a), wide(b)) + wide(bias))) <= 2 * bound);
        const Tensor batch = random_half({3, m, k}, kBFloat16);
        CHECK(error_of(matmul(batch, b), matmul(wide(batch), wide(b))) <= bound);
        const Tensor others =
            transpose_b ? random_half({3, n, k}, kBFloat16).transpose(1, 2) : random_half({3, k, n}, kBFloat16);
        CHECK(error_of(bmm(batch, others), bmm(wide(batch), wide(others))) <= bound);
        CHECK(error_of(bmm(batch, b.expand({3, k, n})), matmul(wide(batch), wide(b))) <= bound);
      }
  }
  // The second gradient of a weight is added to the first.
  const Tensor weight = random_half({70, 80}, kBFloat16).requires_grad_(),
               wide = weight.to(kFloat64).detach().requires_grad_();
  const Tensor x = random_half({600, 80}, kBFloat16), y = random_half({600, 80}, kBFloat16);
  (linear(x, weight).to(kFloat64).sum() + linear(y, weight).to(kFloat64).sum()).backward();
  (linear(x.to(kFloat64), wide).sum() + linear(y.to(kFloat64), wide).sum()).backward();
  CHECK(error_of(weight.grad(), wide.grad()) <= 2 * bound);

  const Tensor part = random_half({40, 90}, kBFloat16).narrow(1, 13, 50);  // rows with gaps
  CHECK(error_of(mm(part, part.t()), mm(part.to(kFloat64), part.to(kFloat64).t())) <= bound);
  CHECK(mm(random_half({3, 0}, kBFloat16), random_half({0, 4}, kBFloat16)).abs().sum().item<double>() == 0);
}

TEST_CASE("convolutions in bfloat16 are those of float32, rounded", "[ops][isa]") {
  // A gradient is rounded once more than the product of which it is made.
  constexpr double kBound = 0x1p-7;
  struct Kind {
    int64_t n, in, out, size, kernel, groups;
    bool channels_last;
  };
  for (const Kind& kind : std::vector<Kind>{{2, 3, 8, 12, 3, 1, false},
                                            {2, 16, 32, 9, 3, 1, false},
                                            {2, 16, 32, 9, 3, 1, true},
                                            {3, 32, 16, 7, 1, 1, false},
                                            {3, 32, 16, 7, 1, 1, true},
                                            {2, 12, 12, 10, 3, 12, false},
                                            {2, 20, 30, 10, 5, 10, false},
                                            {16, 16, 16, 32, 3, 1, false},  // divided among threads
                                            {1, 1, 1, 5, 5, 1, false}}) {
    CAPTURE(kind.n, kind.in, kind.out, kind.size, kind.kernel, kind.groups, kind.channels_last);
    const int64_t s = kind.size, k = kind.kernel;
    const Tensor x =
        random_half(kind.channels_last ? Shape{kind.n, s, s, kind.in} : Shape{kind.n, kind.in, s, s}, kBFloat16);
    const Tensor weight = random_half({kind.out, kind.in / kind.groups, k, k}, kBFloat16);
    const Tensor bias = random_half({kind.out}, kBFloat16);
    const auto results = [&](DType dtype) {
      std::vector<Tensor> inputs;
      for (const Tensor& input : {x, weight, bias}) inputs.push_back(input.to(dtype).detach().requires_grad_());
      const Tensor y = conv2d(inputs[0], inputs[1], inputs[2],
                              {.padding = 1, .groups = kind.groups, .channels_last = kind.channels_last});
      std::vector<Tensor> all =
          grad({(y * cos(arange(y.numel(), {.dtype = kFloat32}).view(y.shape())).to(kBFloat16).to(dtype))
                    .to(kFloat64)
                    .sum()},
               inputs);
      all.push_back(y);
      return all;
    };
    const std::vector<Tensor> half = results(kBFloat16), wide = results(kFloat64);
    for (size_t i = 0; i < half.size(); ++i) {
      CAPTURE(i);
      CHECK(error_of(half[i], wide[i]) <= kBound);
    }
  }
}
