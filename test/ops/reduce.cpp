#include "test/support/op_rows.h"

namespace reel {

namespace {

/// x with no constant rows.
Tensor sloped(const Tensor& x) {
  return x + tensor({{0, 2, 0, 1, 0}, {1, 0, 0, 0, 3}, {0, 0, 1, 2, 1}}, {.device = x.device()});
}
Array sloped(const Array& x) {
  const int slope[] = {0, 2, 0, 1, 0, 1, 0, 0, 0, 3, 0, 0, 1, 2, 1};
  return build(x.shape, [&](const Index& at) { return x(at) + slope[5 * at[0] + at[1]]; });
}

Array covariance(const Array& x, double correction) {
  const int64_t n = x.shape[1];
  const Array means = fold(x, {1}, ref::average);
  return build({x.shape[0], x.shape[0]}, [&](const Index& at) {
    double sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += (x({at[0], k}) - means({at[0]})) * (x({at[1], k}) - means({at[1]}));
    return sum / (static_cast<double>(n) - correction);
  });
}

// var(x, 0, true) is no call: true would be taken for a correction of 1.
template <class T>
concept IsCorrection = requires(const Tensor& x, T correction) {
  var(x, 0, correction);
}
|| requires(const Tensor& x, T correction) { reel::std(x, 0, correction); }
|| requires(const Tensor& x, T correction) { var_mean(x, {0, 1}, correction, true); }
|| requires(const Tensor& x, T correction) { std_mean(x, {}, correction); };
static_assert(IsCorrection<int> && IsCorrection<double> && !IsCorrection<bool>);

}  // namespace

// clang-format off
const std::vector<Row>& reduce_rows() {
  static const std::vector<Row> rows{

// ---- reductions

{"sum", [](In x) { return sum(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::total); }, {{kCube}}, kSums},
{"sum(0-d)", [](In x) { return sum(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::total); }, {{kNumber}}, kSums},
{"sum(none)", [](In x) { return sum(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::total); }, {{{3, 0, 2}}},
 kSums},
{"sum(first)", [](In x) { return sum(x[0], 0); }, [](Ref x) { return fold(x[0], {0}, ref::total); }, {{kCube}}, kSums},
{"sum(last)", [](In x) { return sum(x[0], -1); }, [](Ref x) { return fold(x[0], {2}, ref::total); }, {{kCube}}, kSums},
{"sum(middle)", [](In x) { return sum(x[0], 1, true); }, [](Ref x) { return fold(x[0], {1}, ref::total, true); },
 {{kCube}}, kSums},
{"sum(two)", [](In x) { return sum(x[0], {0, -1}); }, [](Ref x) { return fold(x[0], {0, 2}, ref::total); }, {{kCube}},
 kSums},
{"sum(long)", [](In x) { return sum(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::total); }, {{{2, 67}}}, kSums},
{"mean", [](In x) { return mean(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::average); }, {{kCube}}},
{"mean(dim)", [](In x) { return mean(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::average); }, {{kCube}}},
{"mean(dims)", [](In x) { return mean(x[0], {0, 2}, true); },
 [](Ref x) { return fold(x[0], {0, 2}, ref::average, true); }, {{kCube}}},
{"prod", [](In x) { return prod(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::product); }, {{kVector, 0.5, 2}},
 kSums},
{"prod(zeros)", [](In x) { return prod(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::product); },
 {{{6, 3}, -1, 1, Input::kWholeNumbers}}, kSums},
{"prod(dim)", [](In x) { return prod(x[0], 1, true); }, [](Ref x) { return fold(x[0], {1}, ref::product, true); },
 {{kCube, -2, 2}}, kSums},
{"max", [](In x) { return max(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::largest); }, {{kMatrix}}, kArithmetic},
{"min", [](In x) { return min(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::smallest); }, {{kMatrix}}, kArithmetic},
{"max(dim)", [](In x) { return max(x[0], 1).values; }, [](Ref x) { return fold(x[0], {1}, ref::largest); }, {{kCube}},
 kArithmetic},
{"max(dim).indices", [](In x) { return max(x[0], 1, true).indices; },
 [](Ref x) { return fold(x[0], {1}, ref::largest_at, true); }, {{kCube}}, kFinds},
{"min(dim)", [](In x) { return min(x[0], -1, true).values; },
 [](Ref x) { return fold(x[0], {2}, ref::smallest, true); }, {{kCube}}, kArithmetic},
{"min(dim).indices", [](In x) { return min(x[0], 0).indices; }, [](Ref x) { return fold(x[0], {0}, ref::smallest_at); },
 {{kCube}}, kFinds},
{"amax", [](In x) { return amax(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::largest); }, {{kMatrix}}, kArithmetic},
{"amax(dims)", [](In x) { return amax(x[0], {0, 2}); }, [](Ref x) { return fold(x[0], {0, 2}, ref::largest); },
 {{kCube}}, kArithmetic},
{"amin", [](In x) { return amin(x[0], 1, true); }, [](Ref x) { return fold(x[0], {1}, ref::smallest, true); },
 {{kCube}}, kArithmetic},
{"argmax", [](In x) { return argmax(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::largest_at); }, {{kCube}}, kFinds},
{"argmax(ties)", [](In x) { return argmax(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::largest_at); },
 {{{4, 70}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"argmin", [](In x) { return argmin(x[0], -1, true); }, [](Ref x) { return fold(x[0], {2}, ref::smallest_at, true); },
 {{kCube}}, kFinds},
{"var", [](In x) { return var(x[0]); },
 [](Ref x) { return fold(x[0], {}, [](const Line& v) { return ref::variance(v); }); }, {{kCube}}},
{"var(dim)", [](In x) { return var(x[0], 1, 0); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return ref::variance(v, 0); }); }, {{kCube}}},
{"std", [](In x) { return std(x[0]); },
 [](Ref x) { return fold(x[0], {}, [](const Line& v) { return std::sqrt(ref::variance(v)); }); }, {{kCube}}},
{"std(dims)", [](In x) { return std(x[0], {0, 2}, 1, true); },
 [](Ref x) { return fold(x[0], {0, 2}, [](const Line& v) { return std::sqrt(ref::variance(v)); }, true); }, {{kCube}}},
{"norm", [](In x) { return norm(x[0]); },
 [](Ref x) { return fold(x[0], {}, [](const Line& v) { return ref::norm(v, 2); }); }, {{kCube}}},
{"norm(0)", [](In x) { return norm(x[0], 0, 1); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return double(v.size() - std::count(v.begin(), v.end(), 0.)); }); },
 {{kCube}}, {.differentiable = false}},
{"norm(1)", [](In x) { return norm(x[0], 1, 1); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return ref::norm(v, 1); }); }, {{kCube}}},
{"norm(3)", [](In x) { return norm(x[0], 3, {0, 2}, true); },
 [](Ref x) { return fold(x[0], {0, 2}, [](const Line& v) { return ref::norm(v, 3); }, true); }, {{kCube}}},
{"norm(infinity)", [](In x) { return norm(x[0], ref::kInfinity, 2); },
 [](Ref x) { return fold(x[0], {2}, [](const Line& v) { return ref::norm(v, ref::kInfinity); }); }, {{kCube}}},
{"logsumexp", [](In x) { return logsumexp(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::logsumexp); },
 {{kCube}}},
{"logsumexp(dims)", [](In x) { return logsumexp(x[0], {0, 2}, true); },
 [](Ref x) { return fold(x[0], {0, 2}, ref::logsumexp, true); }, {{kCube}}},
{"any", [](In x) { return any(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::some); },
 {{{2, 2}, -1, 1, Input::kWholeNumbers}}, kCompares},
{"any(dim)", [](In x) { return any(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::some); },
 {{{5, 2}, -1, 1, Input::kWholeNumbers}}, kCompares},
{"all", [](In x) { return all(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::every); },
 {{{2, 2}, -1, 1, Input::kWholeNumbers}}, kCompares},
{"all(dim)", [](In x) { return all(x[0], 0, true); }, [](Ref x) { return fold(x[0], {0}, ref::every, true); },
 {{{2, 5}, -1, 1, Input::kWholeNumbers}}, kCompares},
{"nansum", [](In x) { return nansum(x[0], 1); }, [](Ref x) { return fold(x[0], {1}, ref::total); }, {{kCube}}, kSums},
{"nanmean", [](In x) { return nanmean(x[0], {0, 2}, true); },
 [](Ref x) { return fold(x[0], {0, 2}, ref::average, true); }, {{kCube}}},
{"count_nonzero", [](In x) { return count_nonzero(x[0], 1); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return double(v.size() - std::count(v.begin(), v.end(), 0)); }); },
 {{kCube, -1, 1, Input::kWholeNumbers}}, kFinds},
{"aminmax", [](In x) { return aminmax(x[0], 1).max; }, [](Ref x) { return fold(x[0], {1}, ref::largest); }, {{kCube}},
 kArithmetic},
{"aminmax(min)", [](In x) { return aminmax(x[0]).min; }, [](Ref x) { return fold(x[0], {}, ref::smallest); }, {{kCube}},
 kArithmetic},
{"var_mean", [](In x) { return var_mean(x[0], 1).spread; },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return ref::variance(v); }); }, {{kCube}}},
{"var_mean(mean)", [](In x) { return var_mean(x[0], 1, 0, true).mean; },
 [](Ref x) { return fold(x[0], {1}, ref::average, true); }, {{kCube}}},
{"std_mean", [](In x) { return std_mean(x[0], {0, 2}, 0).spread; },
 [](Ref x) { return fold(x[0], {0, 2}, [](const Line& v) { return std::sqrt(ref::variance(v, 0)); }); }, {{kCube}}},
{"cov", [](In x) { return cov(sloped(x[0])); }, [](Ref x) { return covariance(sloped(x[0]), 1); }, {{{3, 5}}}, kProduct},
{"cov(vector)", [](In x) { return cov(x[0], 0); }, [](Ref x) { return Array{{}, {ref::variance(x[0].data, 0)}}; },
 {{{5}}}, kProduct},
{"corrcoef", [](In x) { return corrcoef(sloped(x[0])); },
 [](Ref x) {
   const Array c = covariance(sloped(x[0]), 1);
   return build({3, 3}, [&](const Index& at) { return c(at) / std::sqrt(c({at[0], at[0]}) * c({at[1], at[1]})); });
 },
 {{{3, 5}}}, {.differentiable = false, .tolerance = 8}},
{"renorm", [](In x) { return renorm(x[0], 2, 1, 2.5); },
 [](Ref x) {
   const Array norms = fold(x[0], {0, 2}, [](const Line& v) { return ref::norm(v, 2); });
   return build(kCube, [&](const Index& at) {
     const double norm = norms({at[1]});
     return norm > 2.5 ? x[0](at) * 2.5 / (norm + 1e-7) : x[0](at);
   });
 },
 {{kCube}}},
{"trace", [](In x) { return trace(x[0]); },
 [](Ref x) { return Array{{}, {x[0]({0, 0}) + x[0]({1, 1}) + x[0]({2, 2})}}; }, {{{3, 4}}}, kSums},
{"cross", [](In x) { return cross(x[0], x[1]); },
 [](Ref x) {
   return build({4, 3}, [&](const Index& at) {
     const int64_t i = (at[1] + 1) % 3, j = (at[1] + 2) % 3;
     return x[0]({at[0], i}) * x[1]({j}) - x[0]({at[0], j}) * x[1]({i});
   });
 },
 {{{4, 3}}, {{3}}}, {.integers = true, .tolerance = 8}},
{"cross(dim)", [](In x) { return cross(x[0], x[1], 0); },
 [](Ref x) {
   return build({3, 2}, [&](const Index& at) {
     const int64_t i = (at[0] + 1) % 3, j = (at[0] + 2) % 3;
     return x[0]({i, at[1]}) * x[1]({j, at[1]}) - x[0]({j, at[1]}) * x[1]({i, at[1]});
   });
 },
 {{{3, 2}}, {{3, 2}}}, {.integers = true, .tolerance = 8}},
{"logsumexp(all)", [](In x) { return logsumexp(x[0]); }, [](Ref x) { return fold(x[0], {}, ref::logsumexp); },
 {{kCube}}},

};
  return rows;
}
// clang-format on

}  // namespace reel
