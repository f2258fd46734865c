// Tensors: making, looking at, viewing, converting, and their memory.
#include "reel/xtensor.h"

#include <cmath>
#include <limits>
#include <random>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

TEST_CASE("factories make what they say", "[tensor]") {
  CHECK(zeros({2, 3}).to_vector<float>() == Floats(6, 0));
  CHECK(ones({2}, {.dtype = kInt32}).dtype() == kInt32);
  CHECK(full({2}, 7).dtype() == kInt64);
  CHECK(full({2}, 0.5).dtype() == kFloat32);
  CHECK(arange(5).to_vector<int64_t>() == Longs{0, 1, 2, 3, 4});
  CHECK(arange(5, 0, -2).to_vector<int64_t>() == Longs{5, 3, 1});
  CHECK(arange(0, 1, 0.25).to_vector<float>() == Floats{0, 0.25, 0.5, 0.75});
  CHECK(arange(3, 3).numel() == 0);
  CHECK(arange(3, {.dtype = kFloat64}).dtype() == kFloat64);
  CHECK(ones_like(arange(3), {.dtype = kFloat32}).dtype() == kFloat32);
  CHECK(linspace(0, 1, 5).to_vector<float>() == Floats{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(2, 9, 1).to_vector<float>() == Floats{2});
  CHECK(eye(2, 3).to_vector<float>() == Floats{1, 0, 0, 0, 1, 0});
  CHECK(zeros_like(arange(3)).dtype() == kInt64);
  CHECK(ones({3}, {.requires_grad = true}).requires_grad());
  CHECK(zeros({0, 4}).numel() == 0);
  CHECK(zeros({0, int64_t{1} << 40, int64_t{1} << 40}).numel() == 0);
  CHECK_THROWS_WITH(arange(0, INT64_MAX, 2), Catch::Contains("too many bytes"));
  CHECK_THROWS_WITH(arange(INT64_MIN, INT64_MAX), Catch::Contains("more elements than 63 bits count"));
}

TEST_CASE("tensor takes literals, vectors, spans, pointers and foreign memory", "[tensor]") {
  CHECK(tensor({1, 2}).dtype() == kInt64);
  CHECK(tensor({1.5, 2.0}).dtype() == kFloat32);
  CHECK(tensor({true, false}).dtype() == kBool);
  CHECK(tensor(std::vector<bool>{true, false}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(tensor({{1, 2, 3}, {4, 5, 6}}).shape() == Shape{2, 3});
  CHECK(tensor({{{1.0}, {2.0}}, {{3.0}, {4.0}}}).shape() == Shape{2, 2, 1});
  CHECK(tensor({{true, false}, {false, true}}).to_vector<bool>() == std::vector<bool>{true, false, false, true});
  CHECK_THROWS_WITH(tensor({{1, 2}, {3}}), "tensor: rows of different lengths, 2 and 1");
  const std::vector<double> doubles{1, 2, 3, 4};
  CHECK(tensor(doubles).dtype() == kFloat64);
  CHECK(tensor(doubles, {2, 2}).shape() == Shape{2, 2});
  CHECK_THROWS_WITH(tensor(doubles, {3}), "tensor: shape [3] needs 3 values, got 4");
  CHECK(tensor(std::span(doubles).first(2)).numel() == 2);
  CHECK(tensor(doubles.data(), {4}, {.dtype = kFloat32}).dtype() == kFloat32);
  std::vector<float> mine{1, 2, 3};
  bool released = false;
  {
    Tensor view = from_blob(mine.data(), {3}, [&] { released = true; });
    const Tensor part = view.narrow(0, 1, 2);
    view.mul_(2);
    view.reset();
    CHECK(!released);
    CHECK(part.to_vector<float>() == Floats{4, 6});
  }
  CHECK(released);
  CHECK(mine == Floats{2, 4, 6});
}

TEST_CASE("metadata", "[tensor][cpu]") {
  const Tensor x = zeros({2, 3, 4});
  CHECK(x.dim() == 3);
  CHECK(x.size(-1) == 4);
  CHECK(x.numel() == 24);
  CHECK(x.strides() == Strides{12, 4, 1});
  CHECK(x.is_contiguous());
  CHECK(!x.transpose(0, 1).is_contiguous());
  CHECK(x.device() == kCPU);
  CHECK(Tensor(3.5).item<double>() == 3.5);
  CHECK(tensor({2.75}).item<int>() == 2);
  CHECK_FALSE(Tensor().defined());
}

TEST_CASE("a number becomes an integer exactly, without its fraction, or is an Error", "[tensor][cpu]") {
  const auto check = [](auto number, auto type) {
    using T = decltype(type);
    const Scalar scalar(number);
    const Tensor as_is = tensor(&number, {1});
    const auto whole = std::trunc(static_cast<long double>(number));
    const bool fits = whole >= static_cast<long double>(std::numeric_limits<T>::min()) &&
                      whole <= static_cast<long double>(std::numeric_limits<T>::max());
    INFO(number << " as " << (std::is_signed_v<T> ? "int" : "uint") << 8 * sizeof(T));
    CHECK(scalar.fits<T>() == fits);
    if (fits) {
      CHECK(scalar.to<T>() == static_cast<T>(number));
      CHECK(as_is.item<T>() == static_cast<T>(number));
    } else {
      CHECK_THROWS_WITH(scalar.to<T>(), Catch::Contains("Scalar::to: ") && Catch::Contains(" does not fit into "));
      CHECK_THROWS_WITH(as_is.item<T>(), Catch::Contains("item: ") && Catch::Contains(" does not fit into "));
    }
    if constexpr (std::is_same_v<T, uint8_t> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
      const DType dtype = dtype_of<T>();
      if (fits) {
        CHECK(as_is.to_vector<T>() == std::vector<T>{static_cast<T>(number)});
        CHECK(full({}, number, {.dtype = dtype}).template item<T>() == static_cast<T>(number));
        CHECK(tensor({number}, {.dtype = dtype}).template item<T>() == static_cast<T>(number));
      } else {
        CHECK_THROWS_WITH(as_is.to_vector<T>(),
                          Catch::Contains("to_vector: ") && Catch::Contains(" does not fit into "));
        if (std::is_integral_v<decltype(number)> && dtype == kUInt8 && whole < 0 && whole > -256)
          CHECK(full({}, number, {.dtype = dtype}).template item<T>() == static_cast<T>(number));  // as in PyTorch
        else
          CHECK_THROWS_WITH(full({}, number, {.dtype = dtype}), Catch::Contains(" does not fit into "));
        CHECK_THROWS_WITH(tensor({number}, {.dtype = dtype}), Catch::Contains(" does not fit into "));
      }
    }
  };
  const auto check_all = [&](auto number) {
    check(number, int8_t()), check(number, uint8_t()), check(number, int16_t()), check(number, uint16_t());
    check(number, int32_t()), check(number, uint32_t()), check(number, int64_t()), check(number, uint64_t());
  };
  std::mt19937_64 random(5);
  for (int bits = 0; bits < 64; ++bits)
    for (int64_t near = -2; near <= 2; ++near) {  // around every power of 2
      const auto power = static_cast<int64_t>(uint64_t{1} << bits);
      const int64_t whole = std::clamp<int64_t>(power, INT64_MIN + 3, INT64_MAX - 2) + near;
      check_all(whole), check_all(-whole);
      check_all(static_cast<int32_t>(whole)), check_all(static_cast<uint8_t>(whole));
      const double real = std::ldexp(1.0, bits) + 0.25 * static_cast<double>(near);
      check_all(real), check_all(-real), check_all(static_cast<float>(real)), check_all(-static_cast<float>(real));
      check_all(std::ldexp(static_cast<double>(random() % 4096), bits - 6));
    }
  for (const double odd :
       {std::nan(""), double{INFINITY}, -double{INFINITY}, 1e300, -1e300, 0x1p63, -0x1p63, 0x1p64, -0.9, -1.0})
    check_all(odd);
  CHECK(tensor({2.7}).item<int>() == 2);
  CHECK(tensor({-2.7}).item<int>() == -2);
  CHECK(tensor({0.5}).item<bool>());
  CHECK(std::isinf(tensor({1e300}, {.dtype = kFloat64}).item<float>()));
  CHECK_THROWS_WITH(Scalar(uint64_t{1} << 63), Catch::Contains("9223372036854775808 does not fit into int64"));
  CHECK_THROWS_WITH(tensor({int64_t{1} << 40}).item<int>(), "item: 1099511627776 does not fit into int32");
  CHECK_THROWS_WITH(tensor({3e9}).to_vector<int>(), "to_vector: 3e+09 does not fit into int32");
}

TEST_CASE("conversions between all types", "[tensor]") {
  const DType types[] = {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
  for (DType a : types)
    for (DType b : types) {
      const Tensor x = tensor({0, 1, 1, 0}).to(a).to(b);
      CHECK(x.dtype() == b);
      CHECK(x.to_vector<int64_t>() == Longs{0, 1, 1, 0});
    }
  CHECK(tensor({-1.75, 2.75}).to(kInt64).to_vector<int64_t>() == Longs{-1, 2});
  CHECK(tensor({0.5, -3.0}).to(kBool).to_vector<bool>() == std::vector<bool>{true, true});
  // Round to nearest even, overflow to infinity, NaN stays NaN.
  CHECK(tensor({1.0009765625 / 2, 65504.0, 1e6, 6e-8}).to(kFloat16).to_vector<float>() ==
        Floats{0.50048828125, 65504, std::numeric_limits<float>::infinity(), 5.9604645e-8f});
  CHECK(tensor({1.00390625, 3.3895e38, 1.01171875}).to(kBFloat16).to_vector<float>() ==
        Floats{1.0, 3.3895314e38f, 1.015625});
  CHECK(std::isnan(tensor({std::nan("")}).to(kBFloat16).item<float>()));
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  sum(x.to(kBFloat16).to(kFloat64) * 3).backward();
  CHECK(x.grad().dtype() == kFloat32);
  CHECK(x.grad().to_vector<float>() == Floats{3, 3});
}

TEST_CASE("views share storage", "[tensor]") {
  Tensor x = arange(24).view({2, 3, 4});
  CHECK(x.select(0, 1).select(0, -1).to_vector<int64_t>() == Longs{20, 21, 22, 23});
  CHECK(x.narrow(2, 1, 2).shape() == Shape{2, 3, 2});
  CHECK(x.slice(1, -2, {}, 1).shape() == Shape{2, 2, 4});
  CHECK(x.slice(2, 0, 100, 3).to_vector<int64_t>() == Longs{0, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23});
  CHECK(x.permute({2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(x.permute({2, 0, 1}).reshape({4, 6}).select(0, 1).to_vector<int64_t>() == Longs{1, 5, 9, 13, 17, 21});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(x.unsqueeze(1).squeeze().shape() == Shape{2, 3, 4});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(ones({3, 1}).expand({2, 3, 4}).strides() == Strides{0, 1, 0});
  CHECK(x.view({-1, 6}).shape() == Shape{4, 6});
  CHECK(x.transpose(0, 1).transpose(0, 1).view({24}).numel() == 24);
  CHECK_THROWS_WITH(x.transpose(0, 1).view({24}), Catch::Contains("without a copy") && Catch::Contains("reshape"));
  CHECK_THROWS_WITH(x.view({5, -1}), "view: shape [2, 3, 4] has 24 elements, which do not fit [5, -1]");
  x[0].fill_(-1);
  CHECK(sum(x).item<int64_t>() == 12 * -1 + (12 + 23) * 6);
  CHECK(zeros({0, 3}).view({3, 0}).shape() == Shape{3, 0});
  CHECK(ones({2, 3}).t().shape() == Shape{3, 2});
}

TEST_CASE("gradients through views", "[tensor]") {
  CHECK_NOTHROW(testing::gradcheck(
      [](const std::vector<Tensor>& in) {
        const Tensor x = in[0];
        return sum(x.select(0, 1) * x.narrow(0, 0, 1).squeeze(0)) + sum(square(x.slice(1, 0, {}, 2).t())) +
               sum(x.permute({1, 0}).reshape({2, -1}) * x.flatten().view({2, -1})) +
               sum(x.unsqueeze(0).expand({3, -1, -1}) * 2) + sum(x.t().slice(0, 1).select(1, 0));
      },
      {randn({3, 4}, {.dtype = kFloat64})}));
}

TEST_CASE("xtensor sees the same memory", "[tensor][cpu]") {
  Tensor x = arange(6.0).view({2, 3});
  auto xs = reel::view<float>(x.t());
  CHECK(xs.shape()[0] == 3);
  CHECK(xs(2, 1) == 5);
  xs(0, 1) = 100;
  CHECK(x.to_vector<float>() == Floats{0, 1, 2, 100, 4, 5});
  CHECK(tensor(xt::eval(reel::view<float>(x) * 2.0f)).to_vector<float>() == Floats{0, 2, 4, 200, 8, 10});
  CHECK(tensor(xt::sin(xt::xarray<double>{0.0})).dtype() == kFloat64);
  xt::xarray<double> container = xt::ones<double>({2, 2});
  from_blob(container).mul_(3);
  CHECK(container(1, 1) == 3);
  const auto sliced = x.slice(1, 0, {}, 2);
  const auto sliced_view = reel::view<float>(sliced);
  CHECK(xt::sum(sliced_view)() == 0 + 2 + 100 + 5);
  CHECK_THROWS_WITH(reel::view<double>(x), "data: asked for float64 elements of a tensor of float32");
}

TEST_CASE("a TensorList takes what holds tensors one after the other, and nothing else", "[tensor][cpu]") {
  const auto size = [](TensorList list) { return list.size(); };
  const Tensor a = ones({2});
  std::vector<Tensor> list{a, a, a};
  const std::array<Tensor, 2> pair{a, a};
  CHECK(size({}) == 0);
  CHECK(size({a, a}) == 2);
  CHECK(size(list) == 3);
  CHECK(size({list}) == 3);
  CHECK(size(pair) == 2);
  CHECK(size(std::span(list).first(1)) == 1);
  CHECK(size({&a, 1}) == 1);
  STATIC_REQUIRE(std::is_trivially_copyable_v<TensorList>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Tensor, TensorList>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<std::vector<nn::Parameter>, TensorList>);  // of another size
}

TEST_CASE("the allocator reuses, counts and gives back", "[tensor][cpu]") {
  const int64_t before = memory_stats().in_use;
  reset_peak_memory_stats();
  void* first;
  {
    const Tensor x = empty({1 << 20});
    CHECK(reinterpret_cast<uintptr_t>(x.data<float>()) % 64 == 0);
    CHECK(memory_stats().in_use - before >= 4 << 20);
    first = x.data<float>();
  }
  CHECK(memory_stats().in_use == before);
  CHECK(memory_stats().peak_in_use - before >= 4 << 20);
  CHECK(empty({1 << 20}).data<float>() == first);
  const int64_t cached = memory_stats().cached;
  empty_cache();
  CHECK(cached - memory_stats().cached >= 4 << 20);
}

TEST_CASE("memory that is not there is named, with its largest holders", "[tensor][cpu]") {
  const Tensor big = zeros({300, 10000});
  try {
    zeros({int64_t{1} << 46});
    FAIL("256 TiB were found");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::StartsWith("out of memory: ") && Catch::Contains("256.0 TiB") &&
                                 Catch::Contains("the largest holders: ") && Catch::Contains("(float32 [300, 10000])"));
  }
  CHECK(zeros({2}).numel() == 2);
}
