#include "test/support/op_rows.h"

namespace reel {

namespace {

/// x with keep x + alpha source, or for keep = 0 alpha source, in the slices at ids along dim.
Array put_slices(Array x, int dim, const Array& ids, const Array& source, double keep, double alpha) {
  build(source.shape, [&](const Index& from) {
    const Index to = with(from, dim, ids({from[dim]}));
    int64_t flat = 0;
    for (int d = 0; d < x.shape.size(); ++d) flat = flat * x.shape[d] + to[d];
    return x.data[flat] = keep * x.data[flat] + alpha * source(from);
  });
  return x;
}

/// x[0] with all of x[2] that x[1] sends to one place joined there.
Array scatter_reduce(Ref x, int dim, bool include_self, double (*join)(const Line&)) {
  return build(x[0].shape, [&](const Index& at) {
    Line meet;
    build(x[1].shape, [&](const Index& from) {
      if (with(from, dim, x[1](from)) == at) meet.push_back(x[2](from));
      return 0.;
    });
    if (meet.empty()) return x[0](at);
    if (include_self) meet.push_back(x[0](at));
    return join(meet);
  });
}

Array masked_scatter(const Array& x, const Array& mask, const Array& source) {
  size_t next = 0;
  return build(x.shape, [&](const Index& at) { return mask(at) ? source.data[next++] : x(at); });
}

}  // namespace

// clang-format off
const std::vector<Row>& index_rows() {
  static const std::vector<Row> rows{

// ---- indexing

{"index_select", [](In x) { return index_select(x[0], 0, x[1]); },
 [](Ref x) { return build({5, 3}, [&](const Index& at) { return x[0](with(at, 0, x[1]({at[0]}))); }); },
 {{{4, 3}}, ids({5}, 4)}, kMoves},
{"index_select(dim)", [](In x) { return index_select(x[0], -2, x[1]); },
 [](Ref x) { return build({2, 5, 4}, [&](const Index& at) { return x[0](with(at, 1, x[1]({at[1]}))); }); },
 {{kCube}, ids({5}, 3)}, kMoves},
{"gather", [](In x) { return gather(x[0], 1, x[1]); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[0](with(at, 1, x[1](at))); }); },
 {{kMatrix}, ids({3, 2}, 4)}, kMoves},
{"gather(dim)", [](In x) { return gather(x[0], 0, x[1]); },
 [](Ref x) { return build({5, 2}, [&](const Index& at) { return x[0](with(at, 0, x[1](at))); }); },
 {{kMatrix}, ids({5, 2}, 3)}, kMoves},
{"scatter", [](In x) { return scatter(x[0], 1, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 1, x[1], x[2], false); },
 {{kMatrix}, {{2, 3}, 0, 4, Input::kDistinctIds}, {{2, 3}}}, kMoves},
{"scatter_add", [](In x) { return scatter_add(x[0], 1, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 1, x[1], x[2], true); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_add(dim)", [](In x) { return scatter_add(x[0], 0, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 0, x[1], x[2], true); }, {{kMatrix}, ids({5, 2}, 3), {{5, 2}}}, kArithmetic},
{"masked_select", [](In x) { return masked_select(x[0], x[1]); }, [](Ref x) { return ref::where(x[1], x[0]); },
 {{kMatrix}, mask(kMatrix)}, kMoves},
{"masked_fill", [](In x) { return masked_fill(x[0], x[1], x[2]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1](at) ? x[2]({}) : x[0](at); }); },
 {{kMatrix}, mask(kMatrix), {kNumber}}, kMoves},
{"masked_fill(broadcast)", [](In x) { return masked_fill(x[0], x[1], 7); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1]({at[1]}) ? 7 : x[0](at); }); },
 {{kMatrix}, mask({4})}, kArithmetic},
{"embedding", [](In x) { return embedding(x[0], x[1]); },
 [](Ref x) { return build({2, 4, 3}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0], at[1]})), at[2]}); }); },
 {{{5, 3}}, ids({2, 4}, 5)}},
{"embedding(one)", [](In x) { return embedding(x[0], x[1]); },
 [](Ref x) { return build({3}, [&](const Index& at) { return x[0]({int64_t(x[1]({})), at[0]}); }); },
 {{{5, 3}}, ids({}, 5)}},
{"nonzero", [](In x) { return nonzero(x[0]); }, [](Ref x) { return ref::nonzero(x[0]); },
 {{kMatrix, -1, 1, Input::kWholeNumbers}}, kFinds},
{"nonzero(bools)", [](In x) { return nonzero(x[0]); }, [](Ref x) { return ref::nonzero(x[0]); }, {mask({3, 2, 2})},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"index_add", [](In x) { return index_add(x[0], 1, x[1], x[2]); },
 [](Ref x) { return put_slices(x[0], 1, x[1], x[2], 1, 1); }, {{kCube}, ids({5}, 3), {{2, 5, 4}}}, kArithmetic},
{"index_add(scaled)", [](In x) { return index_add(x[0], -2, x[1], x[2], 3); },
 [](Ref x) { return put_slices(x[0], 0, x[1], x[2], 1, 3); }, {{kMatrix}, ids({2}, 3), {{2, 4}}}, kArithmetic},
{"index_copy", [](In x) { return index_copy(x[0], 1, x[1], x[2]); },
 [](Ref x) { return put_slices(x[0], 1, x[1], x[2], 0, 1); },
 {{kCube}, {{2}, 0, 3, Input::kDistinctIds}, {{2, 2, 4}}}, kMoves},
{"index_fill", [](In x) { return index_fill(x[0], 0, x[1], x[2]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[0] < 2 ? x[2]({}) : x[0](at); }); },
 {{kMatrix}, {{2}, 0, 2, Input::kDistinctIds}, {kNumber}}, kMoves},
{"index_fill(number)", [](In x) { return index_fill(x[0], 1, tensor({3, 1, 3}, {.device = test_device()}), 1); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] % 2 ? 1 : x[0](at); }); }, {{kMatrix}}, kMoves},
{"index_put", [](In x) { return index_put(x[0], {Slice(), x[1]}, x[2]); },
 [](Ref x) { return put_slices(x[0], 1, x[1], x[2], 0, 1); },
 {{kMatrix}, {{2}, 0, 4, Input::kDistinctIds}, {{3, 2}}}, kMoves},
{"index_put(accumulate)", [](In x) { return index_put(x[0], {Slice(), x[1]}, x[2], true); },
 [](Ref x) { return put_slices(x[0], 1, x[1], x[2], 1, 1); }, {{kMatrix}, ids({6}, 4), {{3, 6}}}, kArithmetic},
{"index_put(accumulate, slices)", [](In x) { return index_put(x[0], {Slice(1, 3), 0}, x[1], true); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](at) + (at[1] || !at[0] ? 0 : x[1]({at[0] - 1})); }); },
 {{kMatrix}, {{2}}}, kArithmetic},
{"index_put(accumulate, mask)", [](In x) { return index_put(x[0], {x[1]}, x[2], true); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](at) + (x[1](at) ? x[2]({}) : 0); }); },
 {{kMatrix}, mask(kMatrix), {kNumber}}, kArithmetic},
{"index_add_", [](In x) { return x[0].clone().index_add_(0, x[1], x[2], 2); },
 [](Ref x) { return put_slices(x[0], 0, x[1], x[2], 1, 2); }, {{kMatrix}, ids({5}, 3), {{5, 4}}}, kArithmetic},
{"index_copy_", [](In x) { return x[0].clone().index_copy_(1, x[1], x[2]); },
 [](Ref x) { return put_slices(x[0], 1, x[1], x[2], 0, 1); },
 {{kMatrix}, {{2}, 0, 4, Input::kDistinctIds}, {{3, 2}}}, kMoves},
{"index_fill_", [](In x) { Tensor y = x[0].clone(); y.t().index_fill_(0, tensor({1, 2}, {.device = test_device()}), x[1]); return y; },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] % 3 ? x[1]({}) : x[0](at); }); },
 {{kMatrix}, {kNumber}}, kMoves},
{"scatter_", [](In x) { return x[0].clone().scatter_(1, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 1, x[1], x[2], false); },
 {{kMatrix}, {{2, 3}, 0, 4, Input::kDistinctIds}, {{2, 3}}}, kMoves},
{"scatter_add_", [](In x) { return x[0].clone().scatter_add_(0, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 0, x[1], x[2], true); }, {{kMatrix}, ids({5, 2}, 3), {{5, 2}}}, kArithmetic},
{"masked_scatter_", [](In x) { return x[0].clone().masked_scatter_(x[1], x[2]); },
 [](Ref x) { return masked_scatter(x[0], x[1], x[2]); }, {{kMatrix}, mask(kMatrix), {{3, 5}}}, kMoves},
{"scatter(number)", [](In x) { return scatter(x[0], 0, x[1], 1); },
 [](Ref x) { return ref::scatter(x[0], 0, x[1], build({5, 2}, [](const Index&) { return 1.; }), false); },
 {{kMatrix}, ids({5, 2}, 3)}, kMoves},
{"scatter_reduce", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kSum); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::total); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_reduce(sum of sources)", [](In x) { return scatter_reduce(x[0], 0, x[1], x[2], Reduce::kSum, false); },
 [](Ref x) { return scatter_reduce(x, 0, false, ref::total); }, {{{5, 4}}, ids({6, 3}, 5), {{6, 3}}}, kArithmetic},
{"scatter_reduce_", [](In x) { return x[0].clone().scatter_reduce_(1, x[1], x[2], Reduce::kSum); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::total); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_reduce_(max)", [](In x) { return x[0].clone().scatter_reduce_(1, x[1], x[2], Reduce::kMax); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::largest); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_reduce_(prod)", [](In x) { return x[0].clone().scatter_reduce_(1, x[1], x[2], Reduce::kProd); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::product); }, {{kMatrix, 0.5, 2}, ids({3, 6}, 4), {{3, 6}, -2, 2}},
 kArithmetic},
{"scatter_reduce_(min of itself)",
 [](In x) {
   Tensor y = x[0] * 1;
   return y.scatter_reduce_(1, x[1], y, Reduce::kMin, false);
 },
 [](Ref x) { return scatter_reduce({x[0], x[1], x[0]}, 1, false, ref::smallest); }, {{kMatrix}, ids({3, 4}, 4)},
 kArithmetic},
{"scatter_reduce(mean)", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kMean); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::average); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}},
{"scatter_reduce(mean of sources)", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kMean, false); },
 [](Ref x) { return scatter_reduce(x, 1, false, ref::average); }, {{kMatrix}, ids({3, 3}, 4), {{3, 3}}}},
{"scatter_reduce(mean of integers)",
 [](In x) { return scatter_reduce(x[0], 1, x[1], x[2].to(kInt64), Reduce::kMean); },
 [](Ref x) { return scatter_reduce(x, 1, true, [](const Line& v) { return std::floor(ref::average(v)); }); },
 {ids({3, 4}, 9, -9), ids({3, 6}, 4), ids({3, 6}, 9, -9)}, {.floats_give = Result::kInt64, .differentiable = false}},
{"scatter_reduce(prod)", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kProd); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::product); }, {{kMatrix, 0.5, 2}, ids({3, 6}, 4), {{3, 6}, -2, 2}},
 kArithmetic},
{"scatter_reduce(prod of sources)", [](In x) { return scatter_reduce(x[0], 0, x[1], x[2], Reduce::kProd, false); },
 [](Ref x) { return scatter_reduce(x, 0, false, ref::product); }, {{{5, 4}}, ids({6, 3}, 5), {{6, 3}, 0.5, 2}},
 kArithmetic},
{"scatter_reduce(max)", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kMax); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::largest); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_reduce(max of sources)", [](In x) { return scatter_reduce(x[0], 0, x[1], x[2], Reduce::kMax, false); },
 [](Ref x) { return scatter_reduce(x, 0, false, ref::largest); }, {{{5, 4}, 1, 3}, ids({6, 3}, 5), {{6, 3}}},
 kArithmetic},
{"scatter_reduce(min)", [](In x) { return scatter_reduce(x[0], -1, x[1], x[2], Reduce::kMin); },
 [](Ref x) { return scatter_reduce(x, 1, true, ref::smallest); }, {{kMatrix}, ids({2, 6}, 4), {{2, 6}}}, kArithmetic},
{"scatter_reduce(min of sources)", [](In x) { return scatter_reduce(x[0], 1, x[1], x[2], Reduce::kMin, false); },
 [](Ref x) { return scatter_reduce(x, 1, false, ref::smallest); }, {{kMatrix, -9, -8}, ids({2, 3}, 4), {{2, 3}}},
 {}},
{"take_along_dim", [](In x) { return take_along_dim(x[0], x[1], 1); },
 [](Ref x) { return build({2, 5, 4}, [&](const Index& at) { return x[0](with(at, 1, x[1]({0, at[1], at[2]}))); }); },
 {{kCube}, ids({1, 5, 4}, 3)}, kMoves},
{"take_along_dim(wide index)", [](In x) { return take_along_dim(x[0], x[1], 0); },
 [](Ref x) { return build({2, 4}, [&](const Index& at) { return x[0]({int64_t(x[1](at)), 0}); }); },
 {{{3, 1}}, ids({2, 4}, 3)}, kMoves},
{"put_along_dim", [](In x) { return put_along_dim(x[0], x[1], x[2], -1); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] < 2 ? x[2]({at[0], 0}) : x[0](at); }); },
 {{kMatrix}, {{1, 2}, 0, 2, Input::kDistinctIds}, {{3, 1}}}, kMoves},
{"take", [](In x) { return take(x[0], x[1]); },
 [](Ref x) { return build({2, 5}, [&](const Index& at) { return x[0].data[(int64_t(x[1](at)) + 12) % 12]; }); },
 {{kMatrix}, ids({2, 5}, 12, -12)}, kMoves},
{"masked_scatter", [](In x) { return masked_scatter(x[0], x[1], x[2]); },
 [](Ref x) { return masked_scatter(x[0], build(kMatrix, [&](const Index& at) { return x[1]({at[1]}); }), x[2]); },
 {{kMatrix}, mask({4}), {{14}}}, kMoves},
{"argwhere", [](In x) { return argwhere(x[0]); }, [](Ref x) { return ref::nonzero(x[0]); },
 {{kMatrix, -1, 1, Input::kWholeNumbers}}, kFinds},
{"select_scatter", [](In x) { return select_scatter(x[0], x[1], 1, -1); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return at[1] == 2 ? x[1]({at[0], at[2]}) : x[0](at); }); },
 {{kCube}, {{2, 4}}}, kMoves},
{"slice_scatter", [](In x) { return slice_scatter(x[0], x[1], 1, 1, {}, 2); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] % 2 ? x[1]({at[0], at[1] / 2}) : x[0](at); }); },
 {{kMatrix}, {{3, 2}}}, kMoves},
{"diagonal_scatter", [](In x) { return diagonal_scatter(x[0], x[1], 1); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] == at[0] + 1 ? x[1]({at[0]}) : x[0](at); }); },
 {{kMatrix}, {{3}}}, kMoves},
{"tril_indices", [](In) { return tril_indices(3, 4, -1); },
 [](Ref) { return Array{{2, 3}, {1, 2, 2, 0, 0, 1}}; }, {},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"triu_indices", [](In) { return triu_indices(2, 3, 1); },
 [](Ref) { return Array{{2, 3}, {0, 0, 1, 1, 2, 2}}; }, {},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"one_hot", [](In x) { return one_hot(x[0], 6); },
 [](Ref x) { return build({4, 6}, [&](const Index& at) { return double(x[0]({at[0]}) == at[1]); }); }, {ids({4}, 6)},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"one_hot(largest)", [](In x) { return one_hot(x[0]); },
 [](Ref x) {
   const int64_t classes = int64_t(ref::largest(x[0].data)) + 1;
   return build({2, 2, classes}, [&](const Index& at) { return double(x[0]({at[0], at[1]}) == at[2]); });
 },
 {ids({2, 2}, 6)}, {.floats_give = Result::kInt64, .differentiable = false}},

};
  return rows;
}
// clang-format on

}  // namespace reel
