// Many tensors as the rows of one, and back.
#include "lib/ops/rows.h"

#include <limits>

#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Contains;
using detail::gather_rows, detail::scatter_rows;
using Tensors = std::vector<Tensor>;
using Floats = std::vector<float>;
using Counts = std::vector<int64_t>;

namespace {

/// Parts with 0 to 3 rows.
Tensors some_parts(int count, const Shape& row, DType dtype = kFloat64) {
  Tensors parts;
  for (int i = 0; i < count; ++i) {
    Shape shape = row;
    shape.insert(0, (i * 7 + 2) % 4);
    parts.push_back(randn(shape).to(dtype));
  }
  return parts;
}
Counts counts_of(const Tensors& parts) {
  Counts counts;
  for (const Tensor& part : parts) counts.push_back(part.size(0));
  return counts;
}
bool same_memory(const Tensor& a, const Tensor& b) { return view_of(a).data == view_of(b).data; }

}  // namespace

TEST_CASE("gathered rows are those of cat, scattered ones those of split, and so are the gradients", "[rows]") {
  manual_seed(3);
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16})
    for (const Shape& row : {Shape{3}, Shape{}, Shape{2, 2}, Shape{0}}) {
      Tensors parts = some_parts(70, row, dtype), copies;
      for (Tensor& part : parts) copies.push_back(part.detach().requires_grad_()), part.requires_grad_();
      const Tensor all = gather_rows(parts), expected = cat(copies), g = randn(all.shape()).to(dtype);
      CHECK(equal(all, expected));
      all.backward(g), expected.backward(g);
      for (size_t i = 0; i < parts.size(); ++i) CHECK(equal(parts[i].grad(), copies[i].grad()));

      const Tensor whole = expected.detach().requires_grad_(), twin = expected.detach().requires_grad_();
      const Tensors rows = scatter_rows(whole, counts_of(parts)), others = split(twin, counts_of(parts));
      Tensor loss = zeros({}), other = zeros({});
      for (size_t i = 0; i < rows.size(); ++i) {
        CHECK(equal(rows[i], parts[i]));
        CHECK(equal(others[i], parts[i]));
        if (i % 3 == 1) continue;  // has no gradient
        loss = loss + sum(square(rows[i].to(kFloat64)));
        other = other + sum(square(narrow(twin, 0, 0, 0).to(kFloat64))) + sum(square(others[i].to(kFloat64)));
      }
      loss.backward(), other.backward();
      CHECK(equal(whole.grad(), twin.grad()));
    }
}

TEST_CASE("derivatives of gathered and scattered rows", "[rows]") {
  manual_seed(4);
  const Tensors inputs{randn({2, 3}).to(kFloat64), randn({1, 3}).to(kFloat64), zeros({0, 3}).to(kFloat64),
                       randn({3, 2}).to(kFloat64).t()};
  const auto f = [](const Tensors& in) {
    const Tensors rows = scatter_rows(tanh(gather_rows(in)), Counts{1, 0, 3, 1});
    return gather_rows(Tensors{rows[2], square(rows[0]), rows[1], rows[2]});  // rows[3] is not used
  };
  testing::gradcheck(f, inputs);
  testing::gradgradcheck(f, inputs);
  const auto every_row = [](const Tensors& in) {
    const Tensors rows = unbind(in[0]), pairs = split(in[0], 2);
    return stack({rows[1] * rows[0], sum(pairs[1], 0), rows[4]});
  };
  testing::gradcheck(every_row, {randn({5, 2}).to(kFloat64)});
  testing::gradgradcheck(every_row, {randn({5, 2}).to(kFloat64)});
}

TEST_CASE("adjacent rows are gathered as a view, others as a copy", "[rows]") {
  const Tensor x = arange(12).to(kFloat32).reshape({6, 2}).requires_grad_(), whole = x * 1;
  const Tensors rows = scatter_rows(whole, Counts{1, 2, 0, 3});
  CHECK(same_memory(gather_rows(rows), whole));
  CHECK(equal(gather_rows(rows), whole));
  const Tensor some = gather_rows(Tensors{rows[1], rows[2]});
  CHECK(same_memory(some, rows[1]));
  CHECK(equal(some, whole.narrow(0, 1, 2)));
  CHECK(same_memory(gather_rows(Tensors{rows[3]}), rows[3]));
  CHECK_FALSE(same_memory(gather_rows(Tensors{rows[1], rows[0]}), rows[1]));
  CHECK(equal(gather_rows(Tensors{rows[1], rows[0]}), cat({rows[1], rows[0]})));
  CHECK(equal(gather_rows(Tensors{rows[0], rows[0]}), cat({rows[0], rows[0]})));
  const Tensors bare = no_grad([&] { return scatter_rows(whole, Counts{4, 2}); });
  CHECK(same_memory(no_grad([&] { return gather_rows(bare); }), whole));
  const Tensors columns = scatter_rows(arange(6).reshape({2, 3}).t(), Counts{2, 1});  // rows with gaps
  CHECK(equal(gather_rows(columns), arange(6).reshape({2, 3}).t()));
  CHECK(equal(columns[1], tensor({{2, 5}})));
}

TEST_CASE("what a custom op makes of adjacent rows is not taken for a view of what it has read", "[rows]") {
  const Tensor x = ones({2, 2}).requires_grad_();
  Tensor whole = x * 1;
  Tensors parts;
  for (const Tensor& row : split(whole, 1))
    parts.push_back(custom_op("twice", row, {row}, [](const Tensor& g) { return Tensors{g * 2}; }));
  CHECK(same_memory(parts[0], whole));
  const Tensor y = gather_rows(parts);
  whole.mul_(3);
  CHECK(y.to_vector<float>() == Floats{1, 1, 1, 1});
  sum(y).backward();
  CHECK(x.grad().to_vector<float>() == Floats{2, 2, 2, 2});
}

TEST_CASE("between gather_rows and scatter_rows a gradient is not copied", "[rows]") {
  const Tensor x = ones({5, 3}).requires_grad_();
  Tensor whole = x * 1, last = whole, seed = randn({5, 3}), seen;
  whole.register_hook([&](const Tensor& g) { return seen = g, Tensor(); });
  for (int i = 0; i < 3; ++i) last = gather_rows(scatter_rows(last, Counts{2, 0, 1, 2}));
  last.backward(seed);
  CHECK(same_memory(seen, seed));
  CHECK(equal(x.grad(), seed));
  CHECK_FALSE(same_memory(x.grad(), seed));
}

TEST_CASE("a row of a batched result is not changed in place", "[rows]") {
  const auto refused = Contains("add_: a row of a batched result");
  const Tensor x = ones({3, 2}).requires_grad_();
  Tensors rows = scatter_rows(x * 2, Counts{1, 2});
  CHECK_THROWS_WITH(rows[1].add_(1), refused);
  CHECK_THROWS_WITH(rows[1][0].add_(1), refused);
  CHECK_THROWS_WITH(rows[1].view({4}).add_(ones({4})), refused);
  CHECK_THROWS_WITH(no_grad([&] { rows[0].add_(1); }), refused);
  CHECK_THROWS_WITH(scatter_rows(zeros({2, 2}), Counts{1, 1})[0].add_(1), refused);
  Tensor both = gather_rows(rows), copy = rows[0].clone(), result = rows[0] * 1;
  CHECK_THROWS_WITH(both.add_(1), refused);
  copy.add_(1), result.add_(1);
  CHECK(rows[0].to_vector<float>() == Floats{2, 2});
  (sum(copy) + sum(both)).backward();
  CHECK(x.grad().to_vector<float>() == Floats{4, 4, 2, 2, 2, 2});

  Tensors bare = no_grad([&] { return scatter_rows(x * 2, Counts{1, 2}); });
  no_grad([&] { bare[0].add_(1); });
  CHECK(bare[0].to_vector<float>() == Floats{3, 3});
  CHECK(bare[1].to_vector<float>() == Floats{2, 2, 2, 2});
  Tensor alone = scatter_rows(x * 2, Counts{3})[0];  // shares memory with nothing
  CHECK(alone.add_(1).to_vector<float>() == Floats(6, 3));
}

TEST_CASE("a whole that is changed in place takes its rows along", "[rows]") {
  const Tensor x = ones({2, 2}).requires_grad_();
  Tensor whole = x * 1;
  const Tensors rows = scatter_rows(whole, Counts{1, 1});
  const Tensor both = gather_rows(rows);
  whole.mul_(3);
  CHECK(both.to_vector<float>() == Floats{3, 3, 3, 3});
  (sum(rows[0]) + sum(both)).backward();
  CHECK(x.grad().to_vector<float>() == Floats{6, 6, 3, 3});
}

TEST_CASE("parts of split, chunk and unbind may be changed in place", "[rows][inplace]") {
  const Tensor x = ones({4, 2}).requires_grad_(), y = tensor({2., 3.}).requires_grad_();
  Tensor base = x * 1;
  Tensors rows = unbind(base), halves = chunk(base, 2);
  rows[1].mul_(y);
  halves[1].fill_(5);
  CHECK(base.to_vector<float>() == Floats{1, 1, 2, 3, 5, 5, 5, 5});
  CHECK(halves[0].to_vector<float>() == Floats{1, 1, 2, 3});
  (sum(halves[0] * tensor({{1., 2.}, {3., 4.}})) + sum(rows[3])).backward();
  CHECK(x.grad().to_vector<float>() == Floats{1, 2, 6, 12, 0, 0, 0, 0});
  CHECK(y.grad().to_vector<float>() == Floats{3, 4});
}

TEST_CASE("more rows than a node has outputs", "[rows]") {
  constexpr int64_t n = 140'000;
  const Tensor x = arange(2 * n).to(kFloat32).reshape({n, 2}).requires_grad_();
  const Tensor factor = arange(n).to(kFloat32).unsqueeze(1);
  for (const bool create_graph : {false, true}) {
    const Tensors rows = unbind(x);
    REQUIRE(rows.size() == n);
    Tensor y = stack(rows) * factor;
    Tensor(x).set_grad({});
    y.backward(ones_like(y), {.create_graph = create_graph});
    CHECK(equal(x.grad().detach(), factor.expand({n, 2})));
    const Tensors parts = scatter_rows(x, Counts(n, 1));
    Tensor(x).set_grad({});
    (sum(parts[3]) + sum(parts[65'535] * 2) + sum(parts[n - 1] * 3)).backward({}, {.create_graph = create_graph});
    Tensor expected = zeros({n, 2});
    expected[3].fill_(1), expected[65'535].fill_(2), expected[n - 1].fill_(3);
    CHECK(equal(x.grad().detach(), expected));
  }
  Tensor(x).set_grad({});
  CHECK(live_nodes() == 0);
}

TEST_CASE("rows have hooks, keep their gradients and are targets of grad", "[rows]") {
  constexpr int n = 3000;  // a loop over hooks for every row would take minutes
  const Tensor x = ones({n, 2}).requires_grad_();
  Tensors rows = unbind(x * 1);
  int64_t called = 0;
  for (Tensor& row : rows) row.register_hook([&](const Tensor& g) { return ++called, g * 2; });
  for (Tensor& row : rows) row.retain_grad();
  const Tensor y = stack(rows);
  const Tensors found = grad(Tensors{y}, rows, Tensors{ones({n, 2}) * 3}, {.retain_graph = true});
  CHECK(called == n);
  CHECK_FALSE(x.grad().defined());
  y.backward(ones({n, 2}), {.retain_graph = true});
  for (int i = 0; i < n; i += 499) {
    CHECK(found[static_cast<size_t>(i)].to_vector<float>() == Floats{6, 6});
    CHECK(rows[static_cast<size_t>(i)].grad().to_vector<float>() == Floats{2, 2});
  }
  y.backward(ones({n, 2}));
  CHECK(x.grad().to_vector<float>() == Floats(2 * n, 4));
  CHECK(called == 3 * n);
}

TEST_CASE("gradients of rows are tensors of their own", "[rows]") {
  const Tensors leaves{ones({1, 2}, {.requires_grad = true}), ones({2, 2}, {.requires_grad = true})};
  const Tensor seed = tensor({{1., 2.}, {3., 4.}, {5., 6.}});
  gather_rows(leaves).backward(seed);
  leaves[0].grad().zero_();
  CHECK(leaves[1].grad().to_vector<float>() == Floats{3, 4, 5, 6});
  CHECK(seed.to_vector<float>() == Floats{1, 2, 3, 4, 5, 6});
}

TEST_CASE("rows know of changes in place and of NaN", "[rows]") {
  const Tensor x = ones({2, 2}).requires_grad_();
  Tensor whole = x * 1;
  const Tensor y = square(gather_rows(scatter_rows(whole, Counts{1, 1})));  // saves a view of `whole`
  no_grad([&] { whole.mul_(2); });
  CHECK_THROWS_WITH(y.backward(ones({2, 2})), Contains("changed in place"));
  DetectAnomaly guard;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor z = gather_rows(scatter_rows(x, Counts{1, 1}));
  CHECK_THROWS_WITH(z.backward(full({2, 2}, nan)), Contains("'gather_rows'") && Contains("  at "));
}

TEST_CASE("rows of what has no gradient", "[rows]") {
  const Tensor ids = arange(5);
  const Tensors rows = scatter_rows(ids, Counts{2, 3});
  CHECK(equal(gather_rows(rows), ids));
  CHECK_FALSE(rows[0].requires_grad());
  const Tensor x = ones({1}).requires_grad_();
  const Tensor y = gather_rows(Tensors{x * 2, tensor({1.}), x});  // a constant among the parts
  y.backward(tensor({1., 2., 3.}));
  CHECK(x.grad().to_vector<float>() == Floats{5});
  CHECK(unbind(ones({0, 2}, {.requires_grad = true})).empty());
  CHECK(split(ones({0, 2}, {.requires_grad = true}), 3).size() == 1);
  CHECK(scatter_rows(ones({0, 2}), Counts{}).empty());
}

TEST_CASE("what gather_rows and scatter_rows refuse", "[rows]") {
  CHECK_THROWS_WITH(gather_rows({}), Contains("gather_rows: no parts"));
  CHECK_THROWS_WITH(gather_rows(Tensors{ones({1}), Tensor()}), Contains("gather_rows: undefined tensor"));
  CHECK_THROWS_WITH(gather_rows(Tensors{ones({})}), Contains("gather_rows: a 0-d tensor"));
  CHECK_THROWS_WITH(gather_rows(Tensors{ones({1, 2}), ones({1, 3})}), Contains("[1, 2]") && Contains("[1, 3]"));
  CHECK_THROWS_WITH(gather_rows(Tensors{ones({1}), ones({1}).to(kFloat64)}), Contains("float64"));
  CHECK_THROWS_WITH(scatter_rows(ones({}), Counts{1}), Contains("scatter_rows: a 0-d tensor"));
  CHECK_THROWS_WITH(scatter_rows(ones({3, 1}), Counts{2, 2}), Contains("2 rows") && Contains("1 of 3"));
  CHECK_THROWS_WITH(scatter_rows(ones({3, 1}), Counts{2, -1}), Contains("-1"));
  CHECK_THROWS_WITH(scatter_rows(ones({3, 1}), Counts{2}), Contains("1 of 3"));
}

TEST_CASE("rows and what they share are freed", "[rows][cpu]") {
  const Tensor x = ones({8, 4}).requires_grad_();
  const int64_t before = memory_stats().in_use;
  {
    const testing::LeakScope scope;
    Tensors rows = scatter_rows(x * 2, Counts{3, 1, 0, 4}), more = unbind(x * 3);
    const Tensor y = gather_rows(rows), z = stack(more);
    rows.clear();
    more.resize(2);
    (sum(y) + sum(z)).backward();
    Tensor(x).set_grad({});
  }
  CHECK(live_nodes() == 0);
  CHECK(memory_stats().in_use == before);
}
