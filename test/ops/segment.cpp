#include "test/support/op_rows.h"

namespace reel {
namespace {

const std::vector<int64_t> kOffsets{0, 3, 3, 4, 9};
Tensor offsets() { return tensor(kOffsets, {.device = test_device()}); }

/// Every segment of every column, joined.
Array reduce(const Array& x, double (*join)(const Line&)) {
  Shape shape = x.shape;
  shape[0] = 4;
  return build(shape, [&](const Index& at) {
    Line segment;
    for (int64_t i = kOffsets[at[0]]; i < kOffsets[at[0] + 1]; ++i) segment.push_back(x(with(at, 0, i)));
    return join(segment);
  });
}
double mean(const Line& x) { return x.empty() ? 0 : ref::average(x); }
double highest(const Line& x) { return x.empty() ? -ref::kInfinity : ref::largest(x); }
double lowest(const Line& x) { return x.empty() ? ref::kInfinity : ref::smallest(x); }

Array softmax(const Array& x) {
  return build(x.shape, [&](const Index& at) {
    int64_t s = 0;
    while (at[0] >= kOffsets[s + 1]) ++s;
    double sum = 0;
    for (int64_t i = kOffsets[s]; i < kOffsets[s + 1]; ++i) sum += std::exp(x(with(at, 0, i)) - x(at));
    return 1 / sum;
  });
}
Tensor without_empty(const Tensor& x) { return index_select(x, 0, tensor({0, 2, 3}, {.device = test_device()})); }
Array without_empty(const Array& x) {
  Shape shape = x.shape;
  shape[0] = 3;
  return build(shape, [&](const Index& at) { return x(with(at, 0, at[0] ? at[0] + 1 : 0)); });
}

}  // namespace

// clang-format off
const std::vector<Row>& segment_rows() {
  static const std::vector<Row> rows{

{"segment_reduce", [](In x) { return segment_reduce(x[0], offsets()); }, [](Ref x) { return reduce(x[0], ref::total); },
 {{{9, 3}}}},
{"segment_reduce(numbers)", [](In x) { return segment_reduce(x[0], offsets()); },
 [](Ref x) { return reduce(x[0], ref::total); }, {{{9}}}},
{"segment_reduce(wide)", [](In x) { return segment_reduce(x[0], offsets()); },
 [](Ref x) { return reduce(x[0], ref::total); }, {{{9, 7, 11}}}, {.differentiable = false}},
{"segment_reduce(mean)", [](In x) { return segment_reduce(x[0], offsets(), Reduce::kMean); },
 [](Ref x) { return reduce(x[0], mean); }, {{{9, 2, 3}}}},
{"segment_reduce(mean of numbers)", [](In x) { return segment_reduce(x[0], offsets(), Reduce::kMean); },
 [](Ref x) { return reduce(x[0], mean); }, {{{9}}}},
{"segment_reduce(max)", [](In x) { return without_empty(segment_reduce(x[0], offsets(), Reduce::kMax)); },
 [](Ref x) { return without_empty(reduce(x[0], highest)); }, {{{9, 3}}}},
{"segment_reduce(max of numbers)", [](In x) { return without_empty(segment_reduce(x[0], offsets(), Reduce::kMax)); },
 [](Ref x) { return without_empty(reduce(x[0], highest)); }, {{{9}}}},
{"segment_reduce(max, empty)", [](In x) { return segment_reduce(x[0], offsets(), Reduce::kMax); },
 [](Ref x) { return reduce(x[0], highest); }, {{{9, 70}}}, {.differentiable = false}},
{"segment_reduce(min)", [](In x) { return without_empty(segment_reduce(x[0], offsets(), Reduce::kMin)); },
 [](Ref x) { return without_empty(reduce(x[0], lowest)); }, {{{9, 5}}}},
{"segment_reduce(min, empty)", [](In x) { return segment_reduce(x[0], offsets(), Reduce::kMin); },
 [](Ref x) { return reduce(x[0], lowest); }, {{{9}}}, {.differentiable = false}},
{"segment_reduce(long)", [](In x) { return segment_reduce(x[0], tensor({0, 50, 131}, {.device = test_device()}), Reduce::kMax); },
 [](Ref x) {
   return build({2}, [&](const Index& at) {
     return ref::largest(Line(x[0].data.begin() + (at[0] ? 50 : 0), x[0].data.begin() + (at[0] ? 131 : 50)));
   });
 },
 {{{131}}}, {.differentiable = false}},
{"segment_softmax", [](In x) { return segment_softmax(x[0], offsets()); }, [](Ref x) { return softmax(x[0]); },
 {{{9, 3}}}},
{"segment_softmax(numbers)", [](In x) { return segment_softmax(x[0], offsets()); },
 [](Ref x) { return softmax(x[0]); }, {{{9}}}},
{"segment_expand", [](In x) { return segment_expand(x[0], offsets()); },
 [](Ref x) {
   return build({9, 3}, [&](const Index& at) { return x[0](with(at, 0, at[0] < 3 ? 0 : at[0] < 4 ? 2 : 3)); });
 },
 {{{4, 3}}}},
{"segment_offsets", [](In x) { return segment_offsets(x[0]); },
 [](Ref x) {
   return build({6}, [&](const Index& at) { return ref::total(Line(x[0].data.begin(), x[0].data.begin() + at[0])); });
 },
 {ids({5}, 4)}, {.floats_give = Result::kInt64, .differentiable = false}},

};
  return rows;
}
// clang-format on

}  // namespace reel
