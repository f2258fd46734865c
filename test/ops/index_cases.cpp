// What rows of the op table cannot say of indexing, joining, sorting, scanning, segments and reductions: PyTorch's
// answers where meanings are intricate (reference/index.py), extremes, gradients at ties, in-place twins, wrong calls.
#include <catch2/catch.hpp>
#include <cmath>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/load.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

using Numbers = std::vector<double>;
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }

/// Equal shapes and values up to rounding, NaN being equal to itself.
bool same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  const Numbers u = numbers(a), v = numbers(b);
  for (size_t i = 0; i < u.size(); ++i)
    if (!(u[i] == v[i] || (std::isnan(u[i]) && std::isnan(v[i])) || std::abs(u[i] - v[i]) <= 1e-12 * std::abs(v[i]))) {
      UNSCOPED_INFO("element " << i << " of " << a.shape() << ": " << u[i] << ", not " << v[i]);
      return false;
    }
  return true;
}

/// The answers in test/reference/index.safetensors.
Tensor pin(const std::string& name, int i = 0) {
  static const StateDict all = load_reference("index.safetensors");
  const Tensor* tensor = find(all, name + "." + std::to_string(i));
  REEL_CHECK(tensor, "no answer ", name, ".", i);
  return *tensor;
}

Tensor leaf(const Tensor& x) { return x.detach().clone().requires_grad_(); }

}  // namespace

TEST_CASE("scatter_reduce and its gradients are PyTorch's", "[index]") {
  const std::pair<const char*, Reduce> all[] = {{"sum", Reduce::kSum},
                                                {"prod", Reduce::kProd},
                                                {"mean", Reduce::kMean},
                                                {"amax", Reduce::kMax},
                                                {"amin", Reduce::kMin}};
  for (const auto& [name, reduce] : all)
    for (const bool include_self : {false, true})
      for (const bool create_graph : {false, true}) {
        const std::string key = std::string("scatter_reduce.").append(name).append(include_self ? ".1" : ".0");
        INFO(key << (create_graph ? " with create_graph" : ""));
        const Tensor x = leaf(pin("scatter", 0)), source = leaf(pin("scatter", 2));
        const Tensor y = scatter_reduce(x, 1, pin("scatter", 1), source, reduce, include_self);
        CHECK(same(y, pin(key, 0)));
        const Tensors g = grad({y}, {x, source}, {pin("scatter", 3)}, {.create_graph = create_graph});
        CHECK(same(g[0], pin(key, 1)));
        // PyTorch lets an element that is not included take part of an equal source's gradient, and drops that part.
        const bool extreme = reduce == Reduce::kMax || reduce == Reduce::kMin;
        if (include_self || !extreme)
          CHECK(same(g[1], pin(key, 2)));
        else
          CHECK(sum(g[0]).item<double>() + sum(g[1]).item<double>() == Approx(sum(pin("scatter", 3)).item<double>()));
      }
}

TEST_CASE("unique and unique_consecutive are PyTorch's", "[index]") {
  const Tensor x = pin("unique.x");
  const auto check = [](const char* name, const Unique& got) {
    INFO(name);
    CHECK(same(got.values, pin(name, 0)));
    CHECK(same(got.inverse, pin(name, 1)));
    CHECK(same(got.counts, pin(name, 2)));
  };
  check("unique.flat", unique(x, {.inverse = true, .counts = true}));
  check("unique.rows", unique(x, {.dim = 0, .inverse = true, .counts = true}));
  check("unique.columns", unique(x, {.dim = -1, .inverse = true, .counts = true}));
  check("unique.consecutive", unique_consecutive(x, {.inverse = true, .counts = true}));
  check("unique.neighbours",
        unique_consecutive(index_select(x, 0, tensor({0, 0, 1, 3, 3})), {.dim = 0, .inverse = true, .counts = true}));
  CHECK(!unique(x).inverse.defined());
  CHECK(unique(zeros({0})).values.shape() == Shape{0});
  CHECK(unique(zeros({0}), {.counts = true}).counts.numel() == 0);
  CHECK(unique(tensor({kNaN, 1., kNaN})).values.numel() == 3);
  CHECK(numbers(unique(tensor({true, false, true})).values) == Numbers{0, 1});
}

TEST_CASE("searchsorted, histc, quantile and median are PyTorch's at their edges", "[index]") {
  const Tensor edges = pin("search", 0), values = pin("search", 1);
  CHECK(same(searchsorted(edges, values), pin("search", 2)));
  CHECK(same(searchsorted(edges, values, true), pin("search", 3)));
  CHECK(same(bucketize(values, edges, true), pin("search", 3)));
  CHECK(max(searchsorted(zeros({0}), values)).item<int>() == 0);
  CHECK(numbers(searchsorted(tensor({1., 2., kNaN}), tensor({1.5, kNaN}))) == Numbers{1, 2});

  const Tensor h = pin("histc", 0);
  CHECK(same(histc(h, 4, 0, 1), pin("histc", 1)));
  CHECK(same(histc(h, 5), pin("histc", 2)));
  CHECK(same(histc(full({3}, 2.f), 3), pin("histc", 3)));
  CHECK(same(histc(h, 10, 0, 0.3), pin("histc", 4)));
  CHECK(numbers(histc(tensor({1., kNaN, 2., 3.}), 3, 0, 3)) == Numbers{0, 1, 2});
  CHECK(numbers(histc(zeros({0}), 2)) == Numbers{0, 0});

  const Tensor x = pin("quantile", 0), q = pin("quantile", 1), rest = x.narrow(0, 1, 2);
  CHECK(same(quantile(x.narrow(0, 0, 2), q, 1), pin("quantile", 2)));
  CHECK(same(quantile(x.narrow(0, 1, 1), q, 1, true), pin("quantile", 3)));
  // Where PyTorch's formula makes inf - inf of the last, there is an answer.
  CHECK(numbers(quantile(rest, 0.5, 0)) == Numbers{5.5, 2.5, 4.5, kInf});
  CHECK(quantile(x, q).shape() == Shape{4});
  CHECK(quantile(x, q, {}, true).shape() == Shape{4, 1, 1});
  CHECK(quantile(Tensor(2.5), 0.3).item<double>() == 2.5);

  CHECK(same(median(x, 1).values, pin("median", 0)));
  CHECK(same(median(x, 1).indices, pin("median", 1)));
  CHECK(std::isnan(median(x).item<double>()));
}

TEST_CASE("a quantile keeps the reduced dimension in its place", "[index]") {
  const Tensor x = arange(0, 24, 1, {.dtype = kFloat64}).view({2, 3, 4}),
               q = tensor({0.25, 0.5, 1.}, {.dtype = kFloat64});
  for (const int64_t dim : {0, 1, -1}) {
    INFO("dimension " << dim);
    const Tensor kept = quantile(x, q, dim, true), gone = quantile(x, q, dim);
    Shape shape = x.shape();
    shape[dim < 0 ? 2 : static_cast<int>(dim)] = 1;
    CHECK(quantile(x, 0.25, dim, true).shape() == shape);
    for (int64_t i = 0; i < 3; ++i) {
      const double one = q[i].item<double>();
      CHECK(same(kept[i], quantile(x, one, dim, true)));
      CHECK(same(gone[i], quantile(x, one, dim)));
      CHECK(same(kept[i].squeeze(dim), gone[i]));
    }
  }
}

TEST_CASE("NaN in scans and reductions", "[index]") {
  const Tensor x = pin("quantile", 0);
  CHECK(same(nansum(x, 1), pin("nan", 0)));
  CHECK(same(nanmean(x, 0), pin("nan", 1)));
  CHECK(same(cummax(x, 1).values, pin("nan", 2)));
  CHECK(same(cummax(x, 1).indices, pin("nan", 3)));
  CHECK(same(aminmax(x, 1).min, pin("nan", 4)));
  CHECK(same(aminmax(x, 1).max, pin("nan", 5)));
  CHECK(std::isnan(nanmean(full({2}, kNaN)).item<double>()));
  const Tensor z = leaf(tensor({1., kNaN}));
  sum(nansum(z)).backward();
  CHECK(numbers(z.grad()) == Numbers{1, 0});
  CHECK(numbers(kthvalue(tensor({kNaN, 3., 1.}), 2).values) == Numbers{3});
  for (const auto& pick : {+[](const Tensor& x) { return max(x); }, +[](const Tensor& x) { return amin(x, 0); }}) {
    const Tensor x = leaf(tensor({1., kNaN, 3., kNaN}));
    pick(x).backward();
    CHECK(numbers(x.grad()) == Numbers{0, 0.5, 0, 0.5});
  }
  const Tensor rows = leaf(tensor({{1., kNaN}, {2., 2.}}));
  sum(amax(rows, 1)).backward();
  CHECK(numbers(rows.grad()) == Numbers{0, 1, 0.5, 0.5});
  const Tensor most = scatter_reduce(zeros({2}), 0, tensor({0, 1, 0}), tensor({1., kNaN, 2.}), Reduce::kMax);
  CHECK((most[0].item<double>() == 2 && std::isnan(most[1].item<double>())));
}

TEST_CASE("segment_reduce is PyTorch's with ties and NaN and empty segments", "[index]") {
  const std::pair<const char*, Reduce> all[] = {{"sum", Reduce::kSum}, {"max", Reduce::kMax}, {"min", Reduce::kMin}};
  for (const auto& [name, reduce] : all)
    for (const int64_t column : {-1, 0, 1}) {  // all at once, or a vector
      INFO(name << " of column " << column);
      const auto part = [&](const Tensor& t) { return column < 0 ? t : t.select(1, column); };
      const std::string key = std::string("segment.").append(name);
      const Tensor x = leaf(part(pin("segment", 0))), y = segment_reduce(x, tensor({0, 2, 2, 5}), reduce);
      CHECK(same(y, part(pin(key, 0))));
      // PyTorch gives each of the equals the whole gradient.
      const Tensor ties = tensor({{2., 1.}, {2., 1.}, {1., 2.}, {1., 2.}, {1., 1.}}, {.dtype = kFloat64});
      const Tensor expected = reduce == Reduce::kMax ? pin(key, 1) / ties
                              : reduce == Reduce::kMin
                                  ? pin(key, 1) / tensor({{2., 1.}, {2., 1.}, {1., 1.}, {1., 1.}, {1., 1.}})
                                  : pin(key, 1);
      for (const bool create_graph : {false, true})
        CHECK(same(grad({y}, {x}, {part(pin("segment", 1))}, {.retain_graph = true, .create_graph = create_graph})[0],
                   part(expected)));
    }
  const Tensor nothing = zeros({0, 3}, {.requires_grad = true});
  const Tensor y = segment_reduce(nothing, tensor({0, 0, 0}), Reduce::kMean);
  CHECK(equal(y, zeros({2, 3})));
  CHECK(grad({y}, {nothing}, {ones({2, 3})})[0].shape() == Shape{0, 3});
  CHECK(segment_reduce(zeros({0, 3}), tensor({0})).shape() == Shape{0, 3});
  CHECK(segment_reduce(zeros({4, 0}), tensor({0, 1, 4}), Reduce::kMax).shape() == Shape{2, 0});
  CHECK(segment_softmax(zeros({0, 3}), tensor({0, 0})).shape() == Shape{0, 3});
  CHECK(numbers(segment_softmax(tensor({800., 800., -kInf}), tensor({0, 3}))) == Numbers{0.5, 0.5, 0});
  CHECK(equal(segment_offsets(tensor(std::vector<int>{2, 0, 3})), tensor({0, 2, 2, 5})));
  const Tensor long_line = arange(0, 1000, 1, {.dtype = kFloat64});
  CHECK(numbers(segment_reduce(long_line, tensor({0, 1, 1000}), Reduce::kMean)) == Numbers{0, 500});
}

TEST_CASE("cumprod and logcumsumexp have the right gradients at zeros and infinities", "[index]") {
  const Tensor x = leaf(pin("cumprod", 0)), y = cumprod(x, 1);
  CHECK(same(y, pin("cumprod", 2)));
  for (const bool create_graph : {false, true})
    CHECK(same(grad({y}, {x}, {pin("cumprod", 1)}, {.retain_graph = true, .create_graph = create_graph})[0],
               pin("cumprod", 3)));
  // Of what is -infinity so far PyTorch's gradient is NaN, ours 0.
  const Tensor z = leaf(pin("logcumsumexp", 0)), sums = logcumsumexp(z, 1), expected = pin("logcumsumexp", 3);
  CHECK(same(sums, pin("logcumsumexp", 2)));
  for (const bool create_graph : {false, true})
    CHECK(same(grad({sums}, {z}, {pin("logcumsumexp", 1)}, {.retain_graph = true, .create_graph = create_graph})[0],
               where(expected != expected, 0., expected)));
}

TEST_CASE("an infinite gradient of logcumsumexp leaves later elements alone", "[index]") {
  const Tensor x = leaf(tensor({0., 0., -1.}, {.dtype = kFloat64})), y = log2(logcumsumexp(x, 0));
  for (const bool create_graph : {false, true}) {
    const std::vector<double> g =
        grad({y}, {x}, {ones({3}, {.dtype = kFloat64})}, {.retain_graph = true, .create_graph = create_graph})[0]
            .to_vector<double>();
    CHECK(g[0] == kInf);  // of log2(0)
    CHECK(std::isfinite(g[1]));
    CHECK(std::isfinite(g[2]));
  }
}

TEST_CASE("an infinity makes no NaN of the gradient of logcumsumexp before it", "[index]") {
  const Tensor x = leaf(tensor({0., 1., kInf, 1.}, {.dtype = kFloat64})), y = logcumsumexp(x, 0);
  const double share = 1 / (1 + std::exp(1));
  for (const bool create_graph : {false, true}) {
    const Tensor g = grad({y}, {x}, {ones_like(y)}, {.retain_graph = true, .create_graph = create_graph})[0];
    CHECK(same(g.detach(), tensor({1 + share, 1 - share, kNaN, 0.}, {.dtype = kFloat64})));
  }
}

TEST_CASE("an empty vector can be joined to anything", "[index]") {
  const Tensor blank = leaf(zeros({0})), x = leaf(ones({2, 3}));
  const Tensor y = cat({blank, x, blank, x}, -1);
  CHECK(equal(y, ones({2, 6})));
  y.backward(ones_like(y));
  CHECK(blank.grad().shape() == Shape{0});
  CHECK(equal(x.grad(), full({2, 3}, 2.f)));
  CHECK(cat({blank, blank}).shape() == Shape{0});
  CHECK(cat({x, zeros({0}, {.dtype = kFloat64})}).dtype() == kFloat64);
}

TEST_CASE("there are as many chunks of nothing as were asked for", "[index]") {
  const Tensors parts = chunk(zeros({2, 0}), 3, 1);
  REQUIRE(parts.size() == 3);
  for (const Tensor& part : parts) CHECK(part.shape() == Shape{2, 0});
}

TEST_CASE("what is made of nothing keeps its graph", "[index]") {
  const Tensor none = leaf(zeros({2, 0})), y = logsumexp(none, 1);
  CHECK(numbers(y) == Numbers{-kInf, -kInf});
  CHECK(grad({y}, {none}, {ones({2})})[0].shape() == Shape{2, 0});
  const Tensor vector = leaf(zeros({0}));
  for (const int64_t at : {0, 2, -2}) {
    const Tensor matrix = diag(vector, at);
    CHECK(equal(matrix, zeros({std::abs(at), std::abs(at)})));
    CHECK(grad({matrix}, {vector}, {ones_like(matrix)})[0].shape() == Shape{0});
  }
  const Tensor table = leaf(zeros({0, 3}));
  const Tensor bags =
      embedding_bag(table, zeros({0}, {.dtype = kInt64}), {.offsets = tensor({0, 0}), .mode = Reduce::kMax});
  CHECK(equal(bags, zeros({2, 3})));
  CHECK(grad({bags}, {table}, {ones({2, 3})})[0].shape() == Shape{0, 3});
}

TEST_CASE("the mean of large integers is exact", "[index]") {
  const int64_t large = (int64_t{1} << 60) + 3;
  const Tensor y = scatter_reduce(zeros({2}, {.dtype = kInt64}), 0, tensor({0, 1, 1}),
                                  tensor({large, int64_t{-3}, int64_t{-4}}), Reduce::kMean, false);
  CHECK(y[0].item<int64_t>() == large);
  CHECK(y[1].item<int64_t>() == -4);
}

TEST_CASE("in-place twins of index ops touch only what they name, and carry gradients", "[index]") {
  const Tensor ids = tensor({2, 0}), rows = tensor({{1., 2.}, {3., 4.}});
  Tensor table = zeros({3, 2});
  const void* before = table.data<float>();
  table.index_add_(0, ids, rows, 2).scatter_add_(1, tensor({{0}, {1}, {0}}), ones({3, 1}));
  table.index_copy_(0, tensor({1}), full({1, 2}, 9.f)).index_fill_(1, tensor({0}), -1).scatter_(1, tensor({{1}}), 5.);
  CHECK(numbers(table) == Numbers{-1, 5, -1, 9, -1, 4});
  CHECK(table.data<float>() == before);
  CHECK(table.version() == 5);
  Tensor own = tensor({1., 2., 3.});
  own.index_copy_(0, tensor({0, 1, 2}), own.slice(0, 0, 3));
  own.index_add_(0, tensor({1, 2}), own.narrow(0, 0, 2));
  CHECK(numbers(own) == Numbers{1, 3, 5});
  Tensor matrix = zeros({2, 3});
  matrix.t().index_add_(0, tensor({2, 2}), ones({2, 2}));
  matrix.masked_scatter_(tensor({true, false, false}), tensor({7., 8., 9.}));
  CHECK(numbers(matrix) == Numbers{7, 0, 2, 8, 0, 2});

  const Tensor source = leaf(rows), start = leaf(zeros({3, 2}));
  Tensor y = start * 1;
  y.index_add_(0, ids, source).index_put_({0}, tensor({5., 5.}));
  sum(y * y).backward();
  CHECK(numbers(source.grad()) == Numbers{2, 4, 0, 0});
  CHECK(numbers(start.grad()) == Numbers{0, 0, 0, 0, 2, 4});
  Tensor counts = zeros({3}, {.dtype = kInt64});
  counts.index_put_({tensor({0, 2, 0, 0})}, 1, true);
  CHECK(numbers(counts) == Numbers{3, 0, 1});
}

TEST_CASE("bools that are added stay 0 and 1", "[index]") {
  const Tensor ids = tensor({0, 0, 2}), source = tensor({true, true, true}), x = tensor({true, false, false});
  const auto bytes = [](const Tensor& y) {
    const Tensor host = y.to(kCPU).contiguous();
    CHECK(host.dtype() == kBool);
    const auto* begin = reinterpret_cast<const uint8_t*>(host.data<bool>());
    return std::vector<int>(begin, begin + host.numel());
  };
  using Bytes = std::vector<int>;
  CHECK(bytes(index_add(x, 0, ids, source)) == Bytes{1, 0, 1});
  CHECK(bytes(x.clone().index_add_(0, ids, source)) == Bytes{1, 0, 1});
  CHECK(bytes(index_add(x.expand({3, 3}).t(), 0, ids, source.expand({3, 3}).t())) == Bytes{1, 1, 1, 0, 0, 0, 1, 1, 1});
  CHECK(bytes(scatter_add(x, 0, ids, source)) == Bytes{1, 0, 1});
  CHECK(bytes(x.clone().scatter_add_(0, ids, source)) == Bytes{1, 0, 1});
  CHECK(bytes(x.clone().index_put_({ids}, source, true)) == Bytes{1, 0, 1});
  CHECK(bytes(x.clone().index_put_({ids}, Tensor(true), true)) == Bytes{1, 0, 1});
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMax}) {
    CHECK(bytes(scatter_reduce(x, 0, ids, source, reduce)) == Bytes{1, 0, 1});
    CHECK(bytes(scatter_reduce(x, 0, ids, reel::logical_not(source), reduce, false)) == Bytes{0, 0, 0});
  }
  for (const Reduce reduce : {Reduce::kProd, Reduce::kMin})
    CHECK(bytes(scatter_reduce(x, 0, ids, source, reduce)) == Bytes{1, 0, 0});
  CHECK_THROWS_WITH(scatter_reduce(x, 0, ids, source, Reduce::kMean), Catch::Contains("bools have no mean"));
  // Not even after 256 of them, which are 0 in a byte.
  CHECK(bytes(scatter_add(zeros({1}, {.dtype = kBool}), 0, zeros({256}, {.dtype = kInt64}),
                          ones({256}, {.dtype = kBool}))) == Bytes{1});
}

TEST_CASE("the gradient of what index_fill writes counts each slice once", "[index]") {
  const Tensor ids = tensor({1, 1, 0, 1, 1}), x = leaf(zeros({3, 2})), value = leaf(tensor(2.));
  const Tensor w = tensor({{1., 2.}, {3., 4.}, {5., 6.}});
  sum(index_fill(x, 0, ids, value) * w).backward();
  CHECK(value.grad().item<float>() == 1 + 2 + 3 + 4);
  CHECK(numbers(x.grad()) == Numbers{0, 0, 0, 0, 5, 6});
  Tensor y = x * 1;
  y.index_fill_(0, ids, value);
  sum(y * w).backward();
  CHECK(value.grad().item<float>() == 20);
}

TEST_CASE("int32 and uint8 ids are taken for int64 ones", "[index]") {
  const Tensor x = arange(12).reshape({3, 4});
  for (const DType dtype : {kInt32, kUInt8}) {
    const Tensor ids = tensor({2, 0}).to(dtype), grid = tensor({{1, 0}}).to(dtype);
    CHECK(numbers(index_select(x, 0, ids).select(1, 0)) == Numbers{8, 0});
    CHECK(numbers(gather(x, 1, grid)) == Numbers{1, 0});
    CHECK(numbers(scatter(zeros({2}), 0, ids.narrow(0, 1, 1), 3.)) == Numbers{3, 0});
    CHECK(embedding(ones({3, 2}), grid).shape() == Shape{1, 2, 2});
    CHECK(one_hot(ids).shape() == Shape{2, 3});
    CHECK(numbers(bincount(ids)) == Numbers{1, 0, 1});
    CHECK(numbers(take(x, ids)) == Numbers{2, 0});
  }
  CHECK(numbers(x.index({Slice(), tensor({-1}).to(kInt32)})) == Numbers{3, 7, 11});
}

TEST_CASE("unbind, diagonal and their like are views", "[index]") {
  const Tensor x = zeros({3, 4});
  unbind(x, 1)[2].fill_(1);
  diagonal(x, 1).fill_(2);
  tensor_split(x, 2)[1].select(1, 0).fill_(3);
  movedim(x, 0, 1).select(0, 1).fill_(4);
  broadcast_tensors({x, ones({1})})[0].select(1, 0).fill_(5);
  unflatten(x, 1, {2, 2}).select(1, 1).select(1, 1).fill_(6);
  CHECK(numbers(x) == Numbers{5, 4, 1, 6, 5, 4, 2, 6, 5, 4, 1, 6});
  Tensor y = ones({2, 2}, {.requires_grad = true}) * 3;
  diagonal(y).mul_(2);
  CHECK(numbers(y) == Numbers{6, 3, 3, 6});
}

TEST_CASE("sorting a part keeps the order of equals", "[index]") {
  const Tensor x = tensor({2, 1, 2, 1, 3, 1});
  CHECK(numbers(topk(x, 3, 0, false).indices) == Numbers{1, 3, 5});
  CHECK(numbers(topk(x, 3).indices) == Numbers{4, 0, 2});
  CHECK(numbers(kthvalue(x, 3, 0).indices) == Numbers{5});
  CHECK(topk(x, 0).values.numel() == 0);
  manual_seed(3);
  const Tensor many = randint(0, 50, {5000});
  for (const int64_t k : {1, 40, 700, 5000}) {  // few of many are found in another way
    CHECK(equal(topk(many, k, 0, false).indices, argsort(many).narrow(0, 0, k)));
    CHECK(equal(topk(many, k).indices, argsort(many, 0, true).narrow(0, 0, k)));
  }
  CHECK(numbers(diff(tensor({true, true, false}))) == Numbers{0, 1});
  CHECK(diff(tensor({1, 2}), 5).numel() == 0);
}

// clang-format off
static const WrongCall kWrongCalls[] = {
{[](World& w) { index_add(w.matrix, 0, w.ids, w.vector); }, "index_add: a source of shape [3], not [3, 4]"},
{[](World& w) { index_copy(w.matrix, 1, w.ids, w.doubles.t()); }, "index_copy: a float64 source for a tensor of float32"},
{[](World& w) { index_fill(w.matrix, 1, w.ids, w.vector); },
 "index_fill: the value must be a number or a 0-d tensor, got shape [3]"},
{[](World& w) { index_add(w.number, 0, w.ids, w.vector); },
 "index_add: index 2 is out of range for dimension 0 of size 1"},
{[](World& w) { w.matrix.index_add_(1, tensor({0, 4}), ones({3, 2})); },
 "index_add_: index 4 is out of range for dimension 1 of size 4"},
{[](World& w) { w.leaf.index_fill_(0, tensor({0}), 1); },
 "index_fill_: a leaf that requires grad can be changed in place only under no_grad"},
{[](World& w) { w.vector.scatter_(0, w.ids, ones({2})); },
 "scatter_: the source's shape [2] is smaller than the index's, [3]"},
{[](World& w) { scatter_reduce(w.vector, 0, w.mask, w.vector, Reduce::kSum); },
 "scatter_reduce: indices must be int64 (or int32 or uint8), got bool; to(kInt64) converts"},
{[](World& w) { take(w.vector, tensor({-4})); }, "take: index -4 is out of range for 3 elements"},
{[](World& w) { take_along_dim(w.matrix, w.ids, 0); },
 "take_along_dim: an index of shape [3] for a tensor of shape [3, 4]"},
{[](World& w) { masked_fill(w.ids, w.mask, kNaN); }, "masked_fill: nan does not fit into int64"},
{[](World& w) { masked_fill(w.vector.to(kUInt8), w.mask, 300); }, "masked_fill: 300 does not fit into uint8"},
{[](World& w) { index_fill(w.vector.to(kUInt8), 0, w.ids, 256); }, "index_fill: 256 does not fit into uint8"},
{[](World& w) { w.whole.index_fill_(0, w.ids, 1e30); }, "index_fill_: 1e+30 does not fit into int64"},
{[](World& w) { w.whole.scatter_(0, w.ids, kInf); }, "scatter_: inf does not fit into int64"},
{[](World& w) { masked_scatter(w.vector, w.mask, ones({1})); },
 "masked_scatter: the mask has 2 places, the source only 1 elements"},
{[](World& w) { masked_scatter(w.vector, ones({2, 3}, {.dtype = kBool}), w.matrix); },
 "masked_scatter: a mask of shape [2, 3] for a tensor of shape [3]"},
{[](World&) { one_hot(tensor({std::numeric_limits<int64_t>::max()})); },
 "one_hot: index 9223372036854775807 leaves no number of classes"},
{[](World&) { one_hot(tensor({0, 1, 2}), std::numeric_limits<int64_t>::max()); }, "…"},
{[](World& w) { diag(w.vector, std::numeric_limits<int64_t>::max()); },
 "diag: the matrix of 3 elements on diagonal 9223372036854775807 is too large"},
{[](World& w) { diag(w.vector, std::numeric_limits<int64_t>::min()); },
 "diag: the matrix of 3 elements on diagonal -9223372036854775808 is too large"},
{[](World& w) { diag(w.vector, int64_t{1} << 40); }, "…"},
{[](World& w) { diagonal(w.matrix, 0, 1, -1); }, "diagonal: dimensions 1 and -1 of shape [3, 4] are the same"},
{[](World&) { tril_indices(-1, 2); }, "tril_indices: a matrix of -1 x 2"},
{[](World& w) { split(w.matrix, {0, 0, 0, 0, 0, 0, 0, 0, 0, 7}, 1); },
 "split: sizes [0, 0, 0, 0, 0, 0, 0, 0, … 10 in all] do not add up to 4, the size of dimension 1"},
{[](World& w) { tensor_split(w.matrix, 0); }, "tensor_split: the number of sections must be positive, got 0"},
{[](World& w) { unbind(w.number); }, "unbind: a 0-d tensor has no parts"},
{[](World&) { vstack({}); }, "vstack: no tensors"},
{[](World& w) { block_diag({w.cube}); }, "block_diag: expected matrices, got shape [2, 3, 4]"},
{[](World& w) { unflatten(w.matrix, 1, {3, -1}); }, "unflatten: sizes [3, -1] for dimension 1 of size 4"},
{[](World& w) { movedim(w.matrix, {0, 0}, {0, 1}); }, "movedim: dimension 0 is named twice in [0, 0]"},
{[](World& w) { movedim(w.matrix, {0, 1}, {1, 1}); }, "movedim: place 1 is named twice in [1, 1]"},
{[](World& w) { movedim(w.matrix, 0, {0, 1}); }, "movedim: dimensions [0] to places [0, 1]"},
{[](World& w) { broadcast_tensors({w.matrix, w.vector}); },
 "broadcast_tensors: shapes [3, 4] and [3] do not broadcast"},
{[](World& w) { rot90(w.matrix, 1, {0, -2}); }, "rot90: dimension 0 is named twice in [0, -2]"},
{[](World& w) { repeat_interleave(w.matrix, -1); }, "repeat_interleave: -1 repeats"},
{[](World& w) { repeat_interleave(w.matrix, tensor({1, 2}), 0); },
 "repeat_interleave: repeats of shape [2] for dimension 0 of size 3"},
{[](World& w) { repeat_interleave(w.vector, w.whole); }, "repeat_interleave: -2 repeats"},
{[](World& w) { repeat_interleave(w.vector, tensor({kInt64Max - 1, kInt64Max - 1, int64_t{4}})); },
 "repeat_interleave: too many elements"},
{[](World& w) { meshgrid({w.matrix}); }, "meshgrid: expected vectors, got shape [3, 4]"},
{[](World& w) { kthvalue(w.matrix, 0); }, "kthvalue: k = 0 of dimension 1 of size 4"},
{[](World& w) { median(w.none); }, "median: nothing to take it of, shape [0, 4]"},
{[](World& w) { mode(w.none, 0); }, "mode: nothing to take it of, shape [0, 4]"},
{[](World& w) { quantile(w.vector, 1.5); }, "quantile: q must be in [0, 1], got …"},
{[](World& w) { quantile(w.whole, 0.5); },
 "quantile: int64 tensors have no quantile; convert to a floating point type first"},
{[](World& w) { bincount(w.whole); }, "bincount: cannot count -2"},
{[](World& w) { bincount(w.ids, ones({2})); }, "bincount: weights of shape [2] for 3 numbers"},
{[](World& w) { histc(w.vector, 0); }, "histc: 0 bins"},
{[](World&) { histc(tensor({1., kInf})); }, "histc: the range from 1 to inf is not finite"},
{[](World& w) { histc(w.vector, 2, 0, kInf); }, "histc: the range from 0 to inf is not finite"},
{[](World& w) { searchsorted(w.matrix, w.cube); },
 "searchsorted: values of shape [2, 3, 4] in a sorted tensor of shape [3, 4]"},
{[](World& w) { bucketize(w.vector, w.matrix); }, "bucketize: expected a vector of boundaries, got shape [3, 4]"},
{[](World& w) { cumprod(w.matrix, 2); }, "cumprod: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { logcumsumexp(w.whole, 0); },
 "logcumsumexp: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { diff(w.number); }, "diff: a 0-d tensor has no neighbours"},
{[](World& w) { segment_reduce(w.matrix, tensor({0, 2})); },
 "segment_reduce: the last offset is 2, the number of rows 3"},
{[](World& w) { segment_reduce(w.matrix, tensor({1, 3})); }, "segment_reduce: the first offset is 1, not 0"},
{[](World& w) { segment_reduce(w.matrix, tensor({0, 2, 1, 3})); }, "segment_reduce: the offsets fall after 2"},
{[](World& w) { segment_reduce(w.matrix, tensor({int64_t{0}, kInt64Max / 2, -kInt64Max, -kInt64Max / 2, int64_t{3}})); },
 "segment_reduce: the offsets fall after 4611686018427387903"},
{[](World& w) { segment_reduce(w.matrix, tensor({{0, 3}})); },
 "segment_reduce: expected a vector of offsets, got shape [1, 2]"},
{[](World& w) { segment_reduce(w.matrix, tensor({0, 3}), Reduce::kProd); },
 "segment_reduce: there is no kProd of segments"},
{[](World& w) { segment_softmax(w.whole, tensor({0, 3})); },
 "segment_softmax: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { segment_expand(w.matrix, tensor({0, 3})); }, "segment_expand: 1 segments for 3 rows"},
{[](World& w) { segment_offsets(w.whole); }, "segment_offsets: a length of -2"},
{[](World& w) { trace(w.cube); }, "trace: expected a matrix, got shape [2, 3, 4]"},
{[](World& w) { cross(w.matrix, w.matrix); }, "cross: dimension -1 of shape [3, 4] does not have size 3"},
{[](World& w) { cov(w.cube); }, "cov: expected variables by observations, got shape [2, 3, 4]"},
{[](World& w) { renorm(w.vector, 2, 0, 1); }, "renorm: expected at least two dimensions, got shape [3]"},
};
// clang-format on

TEST_CASE("wrong calls of index, join, sort, scan, segment and reduce ops say what is wrong", "[index][errors][cpu]") {
  check_wrong_calls(kWrongCalls);
}

}  // namespace reel
