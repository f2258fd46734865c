// Names that the standard library has, too, in a program that opens both namespaces, and in one that opens only reel's
// and calls them with a type of the standard library's, which lets it take part in the overload resolution.
#include <algorithm>
#include <any>
#include <cmath>
#include <complex>
#include <iterator>
#include <map>
#include <numeric>
#include <stack>
#include <valarray>
#include <vector>

#include "reel/reel.h"
#include "test/support/pch.h"

static_assert(!std::is_convertible_v<bool, reel::Tensor>, "std::empty's result would pass for a tensor");
static_assert(std::is_constructible_v<reel::Tensor, bool>);
static_assert(std::is_convertible_v<int, reel::Tensor> && std::is_convertible_v<double, reel::Tensor>);

namespace only_reel {
using namespace reel;

TEST_CASE("empty takes its shape from a vector or a list", "[tensor]") {
  const std::vector sizes{3, 4};
  CHECK(empty(sizes).shape() == Shape{3, 4});
  CHECK(empty(std::vector<int64_t>{3, 4}).shape() == Shape{3, 4});
  CHECK(empty(sizes, {.dtype = kInt64}).dtype() == kInt64);
  CHECK(empty({3, 4}).shape() == Shape{3, 4});
  CHECK(empty({}).shape() == Shape{});
  CHECK(zeros(std::vector{2, 3}).shape() == Shape{2, 3});
  CHECK(ones({6}).view(std::vector<unsigned>{2, 3}).shape() == Shape{2, 3});
  CHECK(Tensor(true).dtype() == kBool);
  CHECK(ones({2}).std().item<float>() == 0);  // std(x) alone would name the namespace
  CHECK(reel::std(ones({2})).item<float>() == 0);
}

}  // namespace only_reel

namespace both {
using namespace std;
using namespace reel;

TEST_CASE("names that the standard library has, too, can be used with both namespaces open", "[tensor]") {
  const Tensor x = tensor({{0.25, 0.5}, {0.75, 0.125}}), y = x + 1, low = zeros({2, 2}), high = full({2, 2}, 0.5);
  const int64_t n = 4;
  CHECK(empty({3, 4}).shape() == Shape{3, 4});
  CHECK(empty({3, n}).shape() == Shape{3, 4});
  CHECK(empty({n}).shape() == Shape{4});
  CHECK(empty({}).shape() == Shape{});
  CHECK(empty(vector{3, 4}).shape() == Shape{3, 4});
  CHECK(empty({3, 4}, {.dtype = kInt64}).dtype() == kInt64);
  CHECK(empty(x.shape()).shape() == x.shape());

  CHECK(max(x).item<float>() == 0.75f);
  CHECK(min(x).item<float>() == 0.125f);
  CHECK(max(x, 1).indices.to_vector<int>() == vector{1, 0});
  CHECK(min(x, -1, true).values.shape() == Shape{2, 1});
  CHECK(max(2, 3) == 3);
  CHECK(equal(clamp(x, low, high), minimum(x, high)));
  CHECK(equal(clamp(x, 0, 0.5), minimum(x, high)));
  CHECK(equal(clamp(x, 0, high), minimum(x, high)));
  CHECK(equal(clamp(x, {}, 0.5), minimum(x, high)));
  CHECK(equal(clamp(x, 0.5), maximum(x, high)));
  CHECK(clamp(7, 0, 3) == 3);

  CHECK(size(vector{1, 2}) == 2);
  const vector<float> values{1, 2};
  CHECK(*std::data(values) == 1);  // data alone is ambiguous, as reel::data is a namespace
  CHECK(tensor(values.data(), {2}).numel() == 2);
  CHECK(x.std().item<float>() == reel::std(x).item<float>());
  data::TensorDataset set{x, y};
  CHECK(set.size() == 2);

  const Tensor results[] = {abs(x),     acos(x),      asin(x),         atan(x),          ceil(x),     cos(x),
                            cosh(x),    erf(x),       erfc(x),         exp(x),           exp2(x),     expm1(x),
                            floor(x),   lgamma(x),    log(x),          log10(x),         log1p(x),    log2(x),
                            round(x),   sin(x),       sinh(x),         sqrt(x),          tan(x),      tanh(x),
                            trunc(x),   asinh(x),     atanh(x),        acosh(y),         atan2(x, y), hypot(x, y),
                            fmod(x, y), fmod(x, 2),   remainder(x, y), remainder(x, 2),  pow(x, y),   pow(x, 2),
                            pow(2., x), hypot(x, 1.), lerp(x, y, 0.5), lerp(x, y, x),    div(x, y),   div(x, 2),
                            norm(x),    mean(x),      sort(x).values,  sort(x, 0).values};
  for (const Tensor& result : results) CHECK(result.is_floating_point());
  CHECK(unique(tensor({1, 1, 2})).values.numel() == 2);
  CHECK(!isnan(x).any().item<bool>());
  CHECK(!isinf(x).any().item<bool>());
  CHECK(isfinite(x).all().item<bool>());
  CHECK(equal(x, x));
  CHECK(abs(-2) == 2);
  CHECK(pow(2, 3) == 8);
  Tensor a = x, b = y;
  swap(a, b);
  CHECK(a.is_same(y));
  // The standard library has classes of these names; the members, or reel:: in front, are meant for this case.
  CHECK(equal((x > 0).logical_and(x < 1), reel::logical_and(x > 0, x < 1)));
  CHECK(equal((x > 0).any(), reel::any(x > 0)));
  CHECK(reel::stack({x, y}).dim() == 3);
  const std::map<int, std::stack<int>> of_std;
  CHECK(of_std.empty());
  const Ragged sequences = Ragged::of(vector{x, y});
  CHECK(reel::map(sequences, [](const Tensor& rows) { return rows * 2; }).values.size(0) == 4);
}

// What only the standard library could take is no tensor, but an error of the compiler.
template <class T>
concept HasMaximum = requires(const T& a, const T& b) {
  reel::max(a, b);
};
static_assert(!HasMaximum<Tensor>);

}  // namespace both
