// This file tests pointwise ops, reductions, scans and sorts of operands in any order in memory, at sizes beyond one
// tile.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

/// Returns x with its dimensions in another order in memory.
Tensor laid_out(const Tensor& x, const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i])] = int64_t(i);
  return x.permute(order).contiguous().permute(back);
}

std::vector<std::vector<int64_t>> orders_of(int rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int64_t>> all;
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return all;
}

const std::vector<Shape> kShapes = {{100, 130}, {64, 64}, {65, 8}, {9, 200}, {3, 70, 90}, {70, 3, 65}, {2, 66, 3, 17}};

}  // namespace

TEST_CASE("pointwise ops give the same bits whatever the orders of their operands", "[ops][isa]") {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Shape& shape : kShapes) {
      const Tensor a = randn(shape).to(dtype), b = randn(shape).to(dtype), c = randn(shape).to(dtype);
      const Tensor sum = a + b, tanh_of_a = tanh(a), weighted = lerp(a, b, c), row = a.narrow(0, 0, 1);
      const auto orders = orders_of(shape.size());
      for (size_t i = 0; i < orders.size(); ++i) {
        const auto& other = orders[(i * 5 + 1) % orders.size()];
        CAPTURE(dtype, shape, orders[i], other);
        const Tensor x = laid_out(a, orders[i]), y = laid_out(b, other), z = laid_out(c, orders[i]);
        CHECK(equal(x + y, sum));
        CHECK(equal(x + z, a + c));
        CHECK(equal(tanh(x), tanh_of_a));
        CHECK(equal(lerp(x, y, z), weighted));
        CHECK(equal(x * row.expand(shape), a * row));
        CHECK(equal(x * laid_out(row, orders[i]), a * row));
        Tensor in_place = x.clone(), part = laid_out(zeros(shape, {.dtype = dtype}), orders[i]);
        part.copy_(x);
        CHECK(equal(part.add_(y), sum));
        CHECK(equal(in_place.mul_(z), a * c));
        Tensor wide = laid_out(cat({a, a}, 0), orders[i]).narrow(0, 1, shape[0]);  // with gaps
        CHECK(equal(wide + y, cat({a, a}, 0).narrow(0, 1, shape[0]) + b));
      }
    }
}

TEST_CASE("integers, bools and comparisons give the same whatever the orders of their operands", "[ops][isa]") {
  for (const DType dtype : {kInt64, kInt32, kUInt8, kBool, kFloat32, kFloat16})
    for (const Shape& shape : kShapes) {
      const auto numbers = [&] { return randint(0, dtype == kBool ? 2 : 100, shape).to(dtype); };
      const Tensor a = numbers(), b = numbers(), divisors = (numbers() + 1).to(dtype), mask = rand(shape) < 0.5;
      const auto orders = orders_of(shape.size());
      for (size_t i = 0; i < orders.size(); ++i) {
        const auto& other = orders[(i * 5 + 1) % orders.size()];
        CAPTURE(dtype, shape, orders[i], other);
        const Tensor x = laid_out(a, orders[i]), y = laid_out(b, other);
        CHECK(equal(x < y, a < b));
        CHECK(equal(logical_xor(x, y), logical_xor(a, b)));
        CHECK(equal(logical_not(x), logical_not(a)));
        CHECK(equal(where(laid_out(mask, other), x, y), where(mask, a, b)));
        CHECK(equal(x.to(kFloat64), a.to(kFloat64)));
        const Tensor wide = b.to(kFloat64), apart = abs(a.to(kFloat64) - wide);
        CHECK(equal(isclose(x, y, 0.125, 2.3), apart <= 2.3 + 0.125 * abs(wide)));
        if (dtype == kBool) continue;
        const auto changed = [&](const Tensor& from, const auto& change) {
          Tensor result = from.clone(), to = laid_out(from, orders[i]);
          change(to), change(result);
          CHECK(equal(to, result));
        };
        CHECK(equal(x * y, a * b));
        CHECK(equal(clamp(x, 10, 50), maximum(minimum(a, 50), 10)));
        for (const Tensor& low : {y, b.narrow(0, 0, 1), tensor(20).to(dtype)})
          CHECK(equal(clamp(x, low, laid_out(divisors, orders[i])), minimum(maximum(a, low), divisors)));
        changed(a, [&](Tensor& t) { t.add_(y); });
        changed(a, [&](Tensor& t) { t.sub_(y, 3); });
        changed(a, [&](Tensor& t) { t.neg_().abs_().add_(3).mul_(2).relu_().sign_().clamp_(0, 5); });
        changed(a, [&](Tensor& t) { t.fmod_(laid_out(divisors, other)); });
        changed(a, [&](Tensor& t) { t.floor_divide_(laid_out(divisors, other)).remainder_(7); });
        if (!is_floating_point(dtype)) CHECK(equal(x & y, a & b));
      }
      if (dtype == kBool) continue;
      const Tensor pair = stack({a, b}, -1), x = pair.select(-1, 0), y = pair.select(-1, 1);  // every second element
      for (const Tensor& z : {y, b, b.narrow(-1, 0, 1)}) {
        CHECK(equal(x * z, a * z.contiguous()));
        CHECK(equal(z - x, z.contiguous() - a));
      }
      CHECK(equal(sign(x - y), sign(a - b)));
      CHECK(equal(sign(x), minimum(a, 1)));
      CHECK(equal(clamp(x, 10, 50), clamp(a, 10, 50)));
      if (!is_floating_point(dtype)) CHECK(equal(bitwise_right_shift(x, y), bitwise_right_shift(a, b)));
    }
}

TEST_CASE("gradients of pointwise ops are the same whatever the orders of the operands", "[ops][isa]") {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Shape& shape : kShapes) {
      const Tensor a = randn(shape).to(dtype), b = (rand(shape) + 1).to(dtype), slopes = randn(shape).to(dtype);
      const auto gradients = [&](const Tensor& x, const Tensor& y, const Tensor& g) {
        const Tensor u = x.detach().requires_grad_(), v = y.detach().requires_grad_();
        const std::vector<Tensor> results = {-u,      u * 0.3, relu(u),        exp(u),           u * v,         u / v,
                                             u.abs(), u - v,   add(u, v, 0.7), sub(u, v, 2),     lerp(u, v, 1), tanh(v),
                                             sqrt(v), 3 / v,   maximum(u, v),  clamp(u, -1, 0.5)};
        std::vector<Tensor> all;
        for (const Tensor& result : results)
          for (const Tensor& gradient : grad({result}, {u, v}, {g}, {.allow_unused = true})) all.push_back(gradient);
        return all;
      };
      const auto expected = gradients(a, b, slopes);
      const auto orders = orders_of(shape.size());
      for (size_t i = 0; i < orders.size(); ++i) {
        const auto &second = orders[(i * 5 + 1) % orders.size()], &third = orders[(i * 3 + 2) % orders.size()];
        CAPTURE(dtype, shape, orders[i], second, third);
        const auto got = gradients(laid_out(a, orders[i]), laid_out(b, second), laid_out(slopes, third));
        for (size_t k = 0; k < got.size(); ++k) {
          CAPTURE(k);
          CHECK(got[k].defined() == expected[k].defined());
          if (got[k].defined()) CHECK(equal(got[k], expected[k]));
        }
      }
    }
}

TEST_CASE("reductions add in the order of memory", "[ops][isa]") {
  for (const Shape& shape : kShapes)
    for (const DType dtype : {kFloat32, kFloat64, kInt64, kBFloat16}) {
      const Tensor a = (randn(shape) * 10).to(dtype);
      for (const auto& order : orders_of(shape.size())) {
        const Tensor x = laid_out(a, order);
        for (int64_t d = 0; d < shape.size(); ++d) {
          CAPTURE(dtype, shape, order, d);
          CHECK(allclose(sum(x, d), sum(a, d), dtype == kBFloat16 ? 1e-2 : 1e-5, 1e-4));
          CHECK(equal(amax(x, d), amax(a, d)));
          CHECK(equal(amin(x, d, true), amin(a, d, true)));
        }
        CHECK(equal(x.amax(), a.amax()));
        CHECK(allclose(sum(x).to(kFloat64), a.to(kFloat64).sum(), 1e-2, 1e-2));
      }
      const Tensor row = a.narrow(0, 0, 1).expand(shape);  // repeated along the first dimension
      CHECK(allclose(sum(row, 0), sum(row.contiguous(), 0), 1e-2, 1e-4));
    }
}

TEST_CASE("a row is reduced to the same bits alone and among others", "[ops][isa][cpu]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64})
    for (const int64_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1000, 2047, 5000}) {
      CAPTURE(dtype, size);
      const Tensor x = (randn({37, size}) * 100).to(dtype);
      const Tensor sums = sum(x, 1), products = prod((x.to(kFloat32) * 0.02).to(dtype), 1), largest = amax(x, 1);
      for (const int64_t row : {0, 5, 36}) {
        const Tensor alone = x.narrow(0, row, 1);
        CHECK(equal(sum(alone, 1)[0], sums[row]));
        CHECK(equal(prod((alone.to(kFloat32) * 0.02).to(dtype), 1)[0], products[row]));
        CHECK(equal(amax(alone, 1)[0], largest[row]));
      }
    }
  // Factors whose product stays in range only if the last ones are not multiplied in float32 first.
  Tensor factors = ones({6, 17});
  for (const int64_t at : {0, 16}) factors.select(1, at).fill_(1e30);
  for (const int64_t at : {1, 2}) factors.select(1, at).fill_(1e-30);
  CHECK(equal(prod(factors, 1), prod(factors.narrow(0, 0, 1), 1).expand({6})));
}

TEST_CASE("reductions and scans are the same in any layout, NaN and ties included", "[ops][isa]") {
  manual_seed(5);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8})
    for (const Shape& shape : {Shape{70, 130}, Shape{3, 1000}, Shape{1000, 3}, Shape{1, 5000}, Shape{300, 64},
                               Shape{5, 1}, Shape{4, 20, 70}}) {
      Tensor numbers = randint(0, 60, shape).to(kFloat32);
      if (is_floating_point(dtype))
        for (const double value : {kNaN, -0., -1.}) numbers = where(rand(shape) < 1e-3, value, numbers);
      const Tensor x = numbers.to(dtype);
      Shape wide = shape;
      wide[wide.size() - 1] *= 3;
      std::vector<Tensor> layouts;
      for (const auto& order : orders_of(shape.size())) layouts.push_back(laid_out(x, order));
      for (const int64_t step : {2, 3}) {
        Tensor every = zeros(wide, {.dtype = dtype}).slice(-1, 0, step * shape.back(), step);
        layouts.push_back(every.copy_(x));
      }
      for (size_t i = 0; i < layouts.size(); ++i)
        for (int64_t d = 0; d < shape.size(); ++d) {
          CAPTURE(dtype, shape, i, d);
          const Tensor& y = layouts[i];
          const auto same = [](const Tensor& a, const Tensor& b) {
            return all(isclose(a, b, 0, 0, true)).item<bool>();
          };
          CHECK(same(y, x));
          CHECK(same(y.to(kFloat32), numbers.to(dtype).to(kFloat32)));
          CHECK(all(isclose(sum(y, d), sum(x, d), 1e-2, 0, true)).item<bool>());
          CHECK(same(amax(y, d), amax(x, d)));
          // The first extreme is where no element before it, and none behind it, is better.
          const Tensor rows = numbers.to(dtype).transpose(d, -1).contiguous(), wide_rows = rows.to(kFloat64);
          const std::vector<double> all_numbers = wide_rows.to_vector<double>();
          const int64_t n = rows.size(-1);
          for (const bool largest : {true, false}) {
            std::vector<int64_t> expected;
            for (size_t begin = 0; begin < all_numbers.size(); begin += static_cast<size_t>(n)) {
              const auto first = all_numbers.begin() + static_cast<std::ptrdiff_t>(begin), last = first + n;
              auto at = std::find_if(first, last, [](double v) { return v != v; });
              if (at == last) at = largest ? std::max_element(first, last) : std::min_element(first, last);
              expected.push_back(at - first);
            }
            const auto found = largest ? max(y, d, true) : min(y, d, true);
            CHECK(found.indices.transpose(d, -1).contiguous().to_vector<int64_t>() == expected);
            CHECK(same(found.values, gather(x, d, found.indices)));
            CHECK(equal(largest ? argmax(y, d, true) : argmin(y, d, true), found.indices));
          }
          CHECK(same(cumsum(y, d), cumsum(x, d)));
          CHECK(same(cummax(y, d).values, cummax(rows, -1).values.transpose(d, -1)));
          CHECK(equal(cummin(y, d).indices, cummin(rows, -1).indices.transpose(d, -1)));
          const auto sorted = sort(y, d), sorted_rows = sort(rows, -1);
          CHECK(same(sorted.values, sorted_rows.values.transpose(d, -1)));
          CHECK(equal(sorted.indices, sorted_rows.indices.transpose(d, -1)));
        }
      for (int64_t d = 0; d < shape.size(); ++d) {  // elements that are repeated
        const Tensor y = x.narrow(d, 0, 1).expand(shape), copy = y.contiguous();
        CHECK(equal(sort(y, d).indices, sort(copy, d).indices));
        CHECK(equal(sort(y, 0, true).indices, sort(copy, 0, true).indices));
        CHECK(equal(topk(y, 1, d).values.isnan(), topk(copy, 1, d).values.isnan()));
        CHECK(equal(argmax(y, d), argmax(copy, d)));
        CHECK(equal(argmin(y, 0), argmin(copy, 0)));
        const auto close = [](const Tensor& a, const Tensor& b) {
          return a.dtype() == b.dtype() && all(isclose(a, b, 1e-2, 0, true)).item<bool>();
        };
        CHECK(close(sum(y, d), sum(copy, d)));
        CHECK(close(sum(y, d, true), sum(copy, d, true)));
        CHECK(close(amax(y, d), amax(copy, d)));
        CHECK(close(amin(y, d, true), amin(copy, d, true)));
        CHECK(close(sum(y), sum(copy)));
        if (is_floating_point(dtype)) CHECK(all(1 / sum(full({}, -0.).to(dtype).expand(shape), d) > 0).item<bool>());
      }
    }
}

TEST_CASE("sorts are stable sorts, for numbers of any size", "[ops]") {
  manual_seed(6);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8})
    for (const int64_t n : {1, 2, 50, 129, 600, 5000, 70000})
      for (const double range : {1., 100., 1e9}) {
        if (range > 100 && size_of(dtype) <= 2) continue;
        CAPTURE(dtype, n, range);
        Tensor numbers = rand({n}, {.dtype = kFloat64}) * range * (dtype == kUInt8 ? 1 : 2);
        if (dtype != kUInt8) numbers = numbers - range;
        if (is_floating_point(dtype))
          for (const double value : {std::nan(""), infinity, -infinity, 0., -0.})
            numbers = where(rand({n}) < 0.05, value, numbers);
        const Tensor x = numbers.to(dtype);
        const std::vector<double> values = x.to(kFloat64).to_vector<double>();
        for (const bool descending : {false, true}) {
          std::vector<int64_t> order(values.size());
          std::iota(order.begin(), order.end(), 0);
          const auto less = [](double a, double b) { return a < b || (b != b && a == a); };
          std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
            const double a = values[static_cast<size_t>(i)], b = values[static_cast<size_t>(j)];
            return descending ? less(b, a) : less(a, b);
          });
          const auto sorted = sort(x, 0, descending);
          CHECK(sorted.indices.to_vector<int64_t>() == order);
          CHECK(equal(sorted.values.isnan(), index_select(x, 0, sorted.indices).isnan()));
          CHECK(equal(sorted.values.nan_to_num(), index_select(x, 0, sorted.indices).nan_to_num()));
          const int64_t k = (n - 1) / 2;
          if (!descending) CHECK(kthvalue(x, k + 1).indices.item<int64_t>() == order[static_cast<size_t>(k)]);
          order.resize(static_cast<size_t>(std::min<int64_t>(n, 10)));
          CHECK(topk(x, std::min<int64_t>(n, 10), 0, descending).indices.to_vector<int64_t>() == order);
        }
      }
  const Tensor ends = tensor({std::numeric_limits<int64_t>::max(), int64_t{-1}, std::numeric_limits<int64_t>::min()});
  CHECK(sort(ends).indices.to_vector<int64_t>() == std::vector<int64_t>{2, 1, 0});
  CHECK(median(ends, 0).values.item<int64_t>() == -1);
}

TEST_CASE("a pointwise result lies in memory as operands of one order do", "[ops]") {
  for (const Shape& shape : {Shape{5, 7}, Shape{2, 3, 4}, Shape{1, 6, 5}, Shape{3, 1, 4, 2}})
    for (const auto& order : orders_of(shape.size())) {
      CAPTURE(shape, order);
      const Tensor a = randn(shape), b = rand(shape), x = laid_out(a, order), y = laid_out(b, order);
      const Tensor row = randn({shape[shape.size() - 1]});
      const auto check = [&](const Tensor& got, const Tensor& expected) {
        CHECK(equal(got, expected));
        CHECK(got.is_contiguous() == x.is_contiguous());
        CHECK(got.transpose(0, 1).contiguous().shape() == expected.transpose(0, 1).shape());
        for (int d = 0; d < shape.size() && !x.is_contiguous(); ++d)
          if (shape[d] != 1) CHECK(got.strides()[d] == x.strides()[d]);
      };
      check(tanh(x), tanh(a));
      check(x + y, a + b);
      check(x * 3, a * 3);
      check(2 - x, 2 - a);
      check(x * row, a * row);
      check(lerp(x, y, 0.25), lerp(a, b, 0.25));
      check(where(x > 0, x, y), where(a > 0, a, b));
      check(x < y, a < b);
      const Tensor half = a.to(kFloat16), integers = (a * 8).to(kInt32);
      check(laid_out(half, order) * 2, half * 2);
      for (const DType dtype : {kFloat64, kBFloat16, kInt64, kBool}) check(x.to(dtype), a.to(dtype));
      check(flip(x, {0, -1}), flip(a, {0, -1}));
      check(select_scatter(x, b.select(1, 0), 1, 0), select_scatter(a, b.select(1, 0), 1, 0));
      CHECK(x.clone().is_contiguous());
      check(laid_out(integers, order) & 3, integers & 3);
      CHECK((x + b).is_contiguous());
      // Gradients, first and second, of functions that save operands or results.
      const auto gradients = [&](Tensor u, Tensor v) {
        u = u.detach().requires_grad_(), v = v.detach().requires_grad_();
        const Tensor z = (sigmoid(u) * exp(v) + pow(v, u)).sum();
        const auto first = grad({z}, {u, v}, {}, {.create_graph = true});
        const auto second = grad({(first[0] * first[1]).sum()}, {u, v});
        return std::vector<Tensor>{first[0], first[1], second[0], second[1]};
      };
      const auto got = gradients(x, y), expected = gradients(a, b);
      for (size_t i = 0; i < got.size(); ++i) CHECK(allclose(got[i], expected[i], 1e-4, 1e-5));
    }
}

TEST_CASE("a permuted result is a tensor of its own", "[ops]") {
  const Tensor a = randn({4, 6}), x = a.t();
  Tensor w = ones({4, 6}).t().requires_grad_();
  for (const bool recorded : {false, true}) {
    Tensor y = [&] {
      if (recorded) return x * w;
      const NoGrad guard;
      return x * w;
    }();
    CHECK(!y.is_contiguous());
    y.mul_(w);  // in place, with a history
    CHECK(equal(y, a.t()));
    const Tensor g = grad({y.sum()}, {w})[0];
    CHECK(allclose(g, a.t() * (recorded ? 2 : 1)));
  }
  Tensor leaf = (x * 2).requires_grad_();
  leaf.square().sum().backward();
  CHECK(allclose(leaf.grad(), a.t() * 4));
  CHECK_THROWS_WITH((x + x).view({24}), Catch::Contains("use reshape"));
  CHECK(equal((x + x).reshape({24}), (a * 2).t().contiguous().view({24})));
}

TEST_CASE("elements are copied and converted with any steps between them", "[ops][isa]") {
  const std::vector<DType> dtypes = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8, kBool};
  for (const int64_t size : {1, 2, 7, 8, 15, 16, 17, 33, 300})
    for (const DType from : dtypes) {
      const Tensor all =
          (remainder(arange(6 * size * 5), 251) - (from == kUInt8 ? 0 : 125)).to(from).view({6 * size, 5});
      // The rows have neighbours, each second, third and last element, or one element.
      const Tensor parts[] = {
          all.slice(0, 0, size),        all.slice(0, 0, 2 * size, 2),          all.slice(0, 1, 2 * size, 2),
          all.slice(0, 0, 3 * size, 3), flip(all, 0).slice(0, 0, 2 * size, 2), all.narrow(0, 0, 1).expand({size, 5})};
      for (const Tensor& part : parts)
        for (const Tensor& x : {part.t(), part.select(1, 0), part.narrow(1, 1, 3)}) {
          std::vector<double> values;
          const Tensor flat = x.reshape({-1});
          for (int64_t i = 0; i < flat.numel(); ++i) values.push_back(flat[i].item<double>());
          for (const DType to : dtypes) {
            CAPTURE(size, from, to, x.shape(), x.strides());
            if (to == kUInt8 && from != kUInt8 && from != kBool) continue;  // no negative numbers
            const Tensor y = x.to(to);
            Tensor spaced = zeros({2 * x.numel()}, {.dtype = to}).slice(0, 0, {}, 2);
            spaced.copy_(flat);
            const Tensor expected = tensor(values).to(from).to(to).view(x.shape());
            CHECK(equal(y, expected));
            CHECK(equal(spaced.view(x.shape()), expected));
          }
        }
    }
}

TEST_CASE("large reductions of any order are divided without a change of the result", "[ops][isa]") {
  const Shape shape{70, 64, 33};
  for (const DType dtype : {kFloat32, kBFloat16, kInt64}) {
    // Whole numbers, whose sums and products every type holds.
    const Tensor x = remainder(arange(shape.numel()) * 37, 5).reshape(shape).to(dtype);
    const Tensor signs = where(x > 2, 1, -1).to(dtype);
    for (const auto& order : orders_of(3)) {
      const Tensor y = laid_out(x, order), factors = laid_out(signs, order);
      INFO(dtype << " " << order[0] << order[1] << order[2]);
      for (const Dims& dims : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{1, 2}, Dims{0, 2}, Dims{0, 1, 2}}) {
        CHECK(equal(sum(y, dims), sum(x, dims)));
        CHECK(equal(amax(y, dims), amax(x, dims)));
        CHECK(equal(count_nonzero(y, dims), count_nonzero(x, dims)));
      }
      for (const int64_t dim : {0, 1, 2}) CHECK(equal(prod(factors, dim), prod(signs, dim)));
    }
  }
}
