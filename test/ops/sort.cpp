#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <numeric>

#include "test/support/op_rows.h"

namespace reel {
namespace {

const Traits kCounts{.floats_give = Result::kInt64, .differentiable = false},
    kSorts{.integers = true, .bools = true, .differentiable = false};

Line middle(const Line& x) { return {ref::sorted(x)[(x.size() - 1) / 2]}; }
double quantile(const Line& x, double q) {
  const Line sorted = ref::sorted(x);
  const double rank = q * static_cast<double>(x.size() - 1), low = std::floor(rank);
  const double a = sorted[static_cast<size_t>(low)], b = sorted[static_cast<size_t>(std::ceil(rank))];
  return a + (rank - low) * (b - a);
}
std::map<double, int64_t> counted(const Line& x) {
  std::map<double, int64_t> counts;
  for (double v : x) ++counts[v];
  return counts;
}
double most_frequent(const Line& x) {
  double best = 0;
  int64_t most = 0;
  for (const auto& [value, count] : counted(x))
    if (count > most) best = value, most = count;
  return best;
}
Array list(const Line& values) { return {{static_cast<int64_t>(values.size())}, values}; }

/// The rows of a matrix, sorted if `order`, and equals only once if they are neighbours.
std::vector<Line> distinct_rows(const Array& x, bool order) {
  std::vector<Line> rows;
  for (int64_t i = 0; i < x.shape[0]; ++i)
    rows.emplace_back(x.data.begin() + i * x.shape[1], x.data.begin() + (i + 1) * x.shape[1]);
  if (order) std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}
Array matrix(const std::vector<Line>& rows, int64_t columns) {
  Array y{{static_cast<int64_t>(rows.size()), columns}, {}};
  for (const Line& row : rows)
    for (double v : row) y.data.push_back(v);
  return y;
}
double rank(const Line& sorted, double value, bool right) {
  return std::count_if(sorted.begin(), sorted.end(), [&](double v) { return right ? v <= value : v < value; });
}
Array counts_in(const Array& x, int64_t bins, double low, double high) {
  return build({bins}, [&](const Index& at) {
    const double width = (high - low) / static_cast<double>(bins), begin = low + width * static_cast<double>(at[0]);
    return std::count_if(x.data.begin(), x.data.end(), [&](double v) {
      return v >= begin && (v < begin + width || (at[0] == bins - 1 && v == high));
    });
  });
}

}  // namespace

// clang-format off
const std::vector<Row>& sort_rows() {
  static const std::vector<Row> rows{

// ---- order

{"sort", [](In x) { return sort(x[0]).values; },
 [](Ref x) { return along(x[0], 2, [](const Line& v) { return ref::sorted(v); }); }, {{kCube}}, kArithmetic},
{"sort(dim)", [](In x) { return sort(x[0], 0, true).values; },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return ref::sorted(v, true); }); }, {{{7, 3}}}, kArithmetic},
{"sort.indices", [](In x) { return sort(x[0]).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::order(v); }); },
 {{{2, 30}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"sort(descending).indices", [](In x) { return sort(x[0], 1, true).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::order(v, true); }); },
 {{{2, 30}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"topk", [](In x) { return topk(x[0], 3).values; },
 [](Ref x) { return along(x[0], 2, [](const Line& v) { return ref::first(ref::sorted(v, true), 3); }); }, {{kCube}},
 kArithmetic},
{"topk(smallest)", [](In x) { return topk(x[0], 2, 0, false).values; },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return ref::first(ref::sorted(v), 2); }); }, {{{7, 3}}},
 kArithmetic},
{"topk.indices", [](In x) { return topk(x[0], 3, 1).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::first(ref::order(v, true), 3); }); },
 {{{2, 9}, 0, 10}}, kFinds},
{"topk(of many)", [](In x) { return topk(x[0], 5).values; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::first(ref::sorted(v, true), 5); }); }, {{{2, 200}}},
 {.integers = true, .differentiable = false}},
{"topk(ties).indices", [](In x) { return topk(x[0], 7).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::first(ref::order(v, true), 7); }); },
 {{{2, 60}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"argsort", [](In x) { return argsort(x[0], 0, true); },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return ref::order(v, true); }); },
 {{{20, 3}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"kthvalue", [](In x) { return kthvalue(x[0], 2).values; },
 [](Ref x) { return fold(x[0], {2}, [](const Line& v) { return ref::sorted(v)[1]; }); }, {{kCube}}, kArithmetic},
{"kthvalue(dim).indices", [](In x) { return kthvalue(x[0], 5, 0, true).indices; },
 [](Ref x) { return fold(x[0], {0}, [](const Line& v) { return ref::order(v)[4]; }, true); },
 {{{9, 2, 3}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"median", [](In x) { return median(x[0]); },
 [](Ref x) { return fold(x[0], {}, [](const Line& v) { return middle(v)[0]; }); }, {{kCube}}, kArithmetic},
{"median(dim)", [](In x) { return median(x[0], 1, true).values; }, [](Ref x) { return along(x[0], 1, middle); },
 {{{2, 5, 3}}}, kArithmetic},
{"median(0-d)", [](In x) { return median(x[0], 0).values; }, [](Ref x) { return x[0]; }, {{kNumber}}, kArithmetic},
{"median.indices", [](In x) { return median(x[0], 0).indices; },
 [](Ref x) { return fold(x[0], {0}, [](const Line& v) { return ref::order(v)[(v.size() - 1) / 2]; }); },
 {{{8, 3}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"mode", [](In x) { return mode(x[0], 0).values; }, [](Ref x) { return fold(x[0], {0}, most_frequent); },
 {{{9, 3}, -2, 2, Input::kWholeNumbers}}, kSorts},
{"mode.indices", [](In x) { return mode(x[0], -1, true).indices; },
 [](Ref x) {
   return fold(x[0], {1}, [](const Line& v) {
     return double(v.rend() - std::find(v.rbegin(), v.rend(), most_frequent(v)) - 1);
   }, true);
 },
 {{{3, 9}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"quantile", [](In x) { return quantile(x[0], 0.3, 1); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return quantile(v, 0.3); }); }, {{{2, 6, 3}}}},
{"quantile(all)", [](In x) { return quantile(x[0], 0.7, {}, true); },
 [](Ref x) { return fold(x[0], {}, [](const Line& v) { return quantile(v, 0.7); }, true); }, {{kCube}}},
{"quantile(several)", [](In x) { return quantile(x[0], tensor({0.25, 0.5, 1.0}, {.dtype = kFloat64}), 0); },
 [](Ref x) {
   return build({3, 2}, [&](const Index& at) {
     Line column;
     for (int64_t i = 0; i < 5; ++i) column.push_back(x[0]({i, at[1]}));
     return quantile(column, at[0] == 0 ? 0.25 : at[0] == 1 ? 0.5 : 1);
   });
 },
 {{{5, 2}}}},

// ---- distinct values

{"unique", [](In x) { return unique(x[0]).values; },
 [](Ref x) { Line y; for (const auto& [v, n] : counted(x[0].data)) y.push_back(v); return list(y); },
 {{kCube, -2, 2, Input::kWholeNumbers}}, kSorts},
{"unique(counts)", [](In x) { return unique(x[0], {.counts = true}).counts; },
 [](Ref x) { Line y; for (const auto& [v, n] : counted(x[0].data)) y.push_back(double(n)); return list(y); },
 {{kCube, -2, 2, Input::kWholeNumbers}}, kFinds},
{"unique(inverse)",
 [](In x) { const Unique u = unique(x[0], {.inverse = true}); return index_select(u.values, 0, ravel(u.inverse)).view(x[0].shape()); },
 [](Ref x) { return x[0]; }, {{kCube, -2, 2, Input::kWholeNumbers}}, kSorts},
{"unique(dim)", [](In x) { return unique(x[0], {.dim = 0}).values; },
 [](Ref x) { return matrix(distinct_rows(x[0], true), 2); }, {{{12, 2}, -1, 1, Input::kWholeNumbers}}, kSorts},
{"unique(dim, inverse)",
 [](In x) { const Unique u = unique(x[0], {.dim = 1, .inverse = true}); return index_select(u.values, 1, u.inverse); },
 [](Ref x) { return x[0]; }, {{{2, 12}, -1, 1, Input::kWholeNumbers}}, kSorts},
{"unique_consecutive", [](In x) { return unique_consecutive(x[0]).values; },
 [](Ref x) { Line y = x[0].data; y.erase(std::unique(y.begin(), y.end()), y.end()); return list(y); },
 {{{40}, -1, 1, Input::kWholeNumbers}}, kSorts},
{"unique_consecutive(dim)", [](In x) { return unique_consecutive(x[0], {.dim = 0}).values; },
 [](Ref x) { return matrix(distinct_rows(x[0], false), 2); }, {{{20, 2}, 0, 1, Input::kWholeNumbers}}, kSorts},

// ---- counting and placing

{"bincount", [](In x) { return bincount(x[0], {}, 9); },
 [](Ref x) { return build({9}, [&](const Index& at) { return std::count(x[0].data.begin(), x[0].data.end(), at[0]); }); },
 {ids({20}, 7)}, kCounts},
{"bincount(weights)", [](In x) { return bincount(x[0], x[1], 9); },
 [](Ref x) {
   return build({9}, [&](const Index& at) {
     double sum = 0;
     for (size_t i = 0; i < 20; ++i) sum += double(x[0].data[i]) == double(at[0]) ? x[1].data[i] : 0;
     return sum;
   });
 },
 {ids({20}, 7), {{20}}}},
{"histc", [](In x) { return histc(x[0], 4, -1.03, 1.31); }, [](Ref x) { return counts_in(x[0], 4, -1.03, 1.31); },
 {{{5, 9}}}, {.differentiable = false}},
{"searchsorted", [](In x) { return searchsorted(sort(x[0]).values, x[1]); },
 [](Ref x) { return build({3, 4}, [&](const Index& at) { return rank(x[0].data, x[1](at), false); }); },
 {{{9}, -2, 2, Input::kWholeNumbers}, {{3, 4}, -3, 3, Input::kWholeNumbers}}, kFinds},
{"searchsorted(rows, right)", [](In x) { return searchsorted(sort(x[0]).values, x[1], true); },
 [](Ref x) {
   return build({2, 5}, [&](const Index& at) {
     const auto row = x[0].data.begin() + 7 * at[0];
     return rank(Line(row, row + 7), x[1](at), true);
   });
 },
 {{{2, 7}, -2, 2, Input::kWholeNumbers}, {{2, 5}, -3, 3, Input::kWholeNumbers}}, kFinds},
{"bucketize", [](In x) { return bucketize(x[0], sort(x[1]).values); },
 [](Ref x) { return build({}, [&](const Index& at) { return rank(x[1].data, x[0](at), false); }); },
 {{kNumber}, {{6}}}, kFinds},

};
  return rows;
}
// clang-format on

TEST_CASE("integers are sorted by digits as they are by comparisons", "[ops]") {
  manual_seed(5);
  const int64_t least = -(int64_t{1} << 52);
  for (const auto& [low, high] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3}, {-5000, 70000}, {0, 1}, {least, least + 900}, {least, -least}}) {
    INFO(low << " to " << high);
    const std::vector<int64_t> list = randint(low, high, {3000}).to_vector<int64_t>();
    for (const bool descending : {false, true}) {
      std::vector<int64_t> order(list.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return descending ? list[b] < list[a] : list[a] < list[b]; });
      const auto [values, indices] = sort(tensor(list), 0, descending);
      CHECK(indices.to_vector<int64_t>() == order);
      CHECK(equal(values, index_select(tensor(list), 0, indices)));
    }
  }
  CHECK(equal(sort(tensor(std::vector<int64_t>(500, 7))).indices, arange(500)));
}

}  // namespace reel
