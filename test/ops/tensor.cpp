#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& tensor_rows() {
  static const std::vector<Row> rows{

// ---- views and copies

{"view", [](In x) { return x[0].clone().view({4, -1}); }, [](Ref x) { return Array{{4, 6}, x[0].data}; }, {{kCube}},
 kMoves},
{"reshape", [](In x) { return x[0].reshape({-1, 4, 2}); }, [](Ref x) { return Array{{3, 4, 2}, x[0].data}; }, {{kCube}},
 kMoves},
{"flatten", [](In x) { return x[0].flatten(1); }, [](Ref x) { return Array{{2, 12}, x[0].data}; }, {{kCube}}, kMoves},
{"transpose", [](In x) { return x[0].transpose(0, -1); },
 [](Ref x) { return build({4, 3, 2}, [&](const Index& at) { return x[0]({at[2], at[1], at[0]}); }); }, {{kCube}},
 kMoves},
{"permute", [](In x) { return x[0].permute({2, 0, 1}); },
 [](Ref x) { return build({4, 2, 3}, [&](const Index& at) { return x[0]({at[1], at[2], at[0]}); }); }, {{kCube}},
 kMoves},
{"t", [](In x) { return x[0].t(); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({at[1], at[0]}); }); }, {{kMatrix}}, kMoves},
{"squeeze", [](In x) { return x[0].squeeze(); }, [](Ref x) { return Array{{3, 4}, x[0].data}; }, {{{1, 3, 1, 4}}},
 kMoves},
{"squeeze(dim)", [](In x) { return x[0].squeeze(2); }, [](Ref x) { return Array{{1, 3, 4}, x[0].data}; },
 {{{1, 3, 1, 4}}}, kMoves},
{"unsqueeze", [](In x) { return x[0].unsqueeze(-1).unsqueeze(0); },
 [](Ref x) { return Array{{1, 3, 4, 1}, x[0].data}; }, {{kMatrix}}, kMoves},
{"expand", [](In x) { return x[0].expand({2, -1, 3}); },
 [](Ref x) { return build({2, 4, 3}, [&](const Index& at) { return x[0]({at[1], 0}); }); }, {{{4, 1}}}, kMoves},
{"narrow", [](In x) { return x[0].narrow(2, 1, 2); },
 [](Ref x) { return build({2, 3, 2}, [&](const Index& at) { return x[0](with(at, 2, at[2] + 1)); }); }, {{kCube}},
 kMoves},
{"slice", [](In x) { return x[0].slice(0, -6, {}, 2); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[0](with(at, 0, 1 + 2 * at[0])); }); }, {{{7, 2}}},
 kMoves},
{"select", [](In x) { return x[0].select(1, -1); },
 [](Ref x) { return build({2, 4}, [&](const Index& at) { return x[0]({at[0], 2, at[1]}); }); }, {{kCube}}, kMoves},
{"contiguous", [](In x) { return x[0].transpose(0, 1).contiguous(); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({at[1], at[0]}); }); }, {{kMatrix}}, kMoves},
{"clone", [](In x) { return x[0].clone(); }, [](Ref x) { return x[0]; }, {{kCube}}, kMoves},
{"index(slices)", [](In x) { return x[0].index({Slice(1, {}), kEllipsis, kNone, Slice({}, {}, 3)}); },
 [](Ref x) { return build({1, 3, 1, 2}, [&](const Index& at) { return x[0]({1, at[1], 3 * at[3]}); }); }, {{kCube}},
 kMoves},
{"index(mask)", [](In x) { return x[0].index({x[1]}); }, [](Ref x) { return ref::where(x[1], x[0]); },
 {{kMatrix}, mask(kMatrix)}, kMoves},
{"index(ids)", [](In x) { return x[0].index({Slice(), x[1]}); },
 [](Ref x) { return build({2, 5, 4}, [&](const Index& at) { return x[0](with(at, 1, x[1]({at[1]}))); }); },
 {{kCube}, ids({5}, 3)}, kMoves},
{"index(pairs)", [](In x) { return x[0].index({x[1], x[2]}); },
 [](Ref x) {
   return build({5, 4}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0]})), int64_t(x[2]({at[0]})), at[1]}); });
 },
 {{kCube}, ids({5}, 2), ids({5}, 3)}, kMoves},
{"index(apart)", [](In x) { return x[0].index({x[1], Slice(), x[2]}); },
 [](Ref x) {
   return build({5, 3}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0]})), at[1], int64_t(x[2]({at[0]}))}); });
 },
 {{kCube}, ids({5}, 2), ids({5}, 4)}, kMoves},

// ---- in place, on a copy

{"copy_", [](In x) { return x[0].clone().copy_(x[1]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1]({at[1]}); }); }, {{kMatrix}, {{4}}}, kMoves},
{"fill_", [](In x) { return x[0].clone().fill_(2); }, [](double) { return 2.; }, {range(-3, 3)}, kArithmetic},
{"zero_", [](In x) { return x[0].clone().zero_(); }, [](double) { return 0.; }, {range(-3, 3)}, kMoves},
{"add_", [](In x) { return x[0].clone().add_(x[1]); }, [](double a, double b) { return a + b; },
 {range(-2, 2), range(-2, 2)}, kArithmetic},
{"add_(scaled)", [](In x) { return x[0].clone().add_(x[1], 2); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](at) + 2 * x[1]({at[1]}); }); },
 {{kMatrix}, {{4}}}, kArithmetic},
{"sub_", [](In x) { return x[0].clone().sub_(x[1]); }, [](double a, double b) { return a - b; },
 {range(-2, 2), range(-2, 2)}, kArithmetic},
{"mul_", [](In x) { return x[0].clone().mul_(x[1]); }, [](double a, double b) { return a * b; },
 {range(-3, 3), range(-3, 3)}, kArithmetic},
{"div_", [](In x) { return x[0].clone().div_(x[1]); }, [](double a, double b) { return a / b; },
 {range(-2, 2), range(0.6, 3)}},
{"pow_", [](In x) { return x[0].clone().pow_(x[1]); }, [](double a, double b) { return std::pow(a, b); },
 {range(0.3, 2.5), range(-2, 2)}},
{"operator+=", [](In x) { Tensor y = x[0].clone(); return y += x[1]; }, [](double a, double b) { return a + b; },
 {range(-2, 2), range(-2, 2)}, kArithmetic},
{"neg_", [](In x) { return x[0].clone().neg_(); }, [](double x) { return -x; }, {range(-3, 3)}, kArithmetic},
{"abs_", [](In x) { return x[0].clone().abs_(); }, [](double x) { return std::abs(x); }, {range(-3, 3)}, kArithmetic},
{"exp_", [](In x) { return x[0].clone().exp_(); }, [](double x) { return std::exp(x); }, {range(-3, 3)}},
{"log_", [](In x) { return x[0].clone().log_(); }, [](double x) { return std::log(x); }, {range(0.2, 4)}},
{"sqrt_", [](In x) { return x[0].clone().sqrt_(); }, [](double x) { return std::sqrt(x); }, {range(0.2, 9)}},
{"square_", [](In x) { return x[0].clone().square_(); }, [](double x) { return x * x; }, {range(-3, 3)}, kArithmetic},
{"tanh_", [](In x) { return x[0].clone().tanh_(); }, [](double x) { return std::tanh(x); }, {range(-3, 3)}},
{"sigmoid_", [](In x) { return x[0].clone().sigmoid_(); }, ref::sigmoid, {range(-5, 5)}},
{"expm1_", [](In x) { return x[0].clone().expm1_(); }, [](double x) { return std::expm1(x); }, {range(-3, 3)}},
{"log1p_", [](In x) { return x[0].clone().log1p_(); }, [](double x) { return std::log1p(x); }, {range(-0.8, 4)}},
{"rsqrt_", [](In x) { return x[0].clone().rsqrt_(); }, [](double x) { return 1 / std::sqrt(x); }, {range(0.2, 9)}},
{"reciprocal_", [](In x) { return x[0].clone().reciprocal_(); }, [](double x) { return 1 / x; }, {range(0.3, 4)}},
{"sin_", [](In x) { return x[0].clone().sin_(); }, [](double x) { return std::sin(x); }, {range(-3, 3)}},
{"cos_", [](In x) { return x[0].clone().cos_(); }, [](double x) { return std::cos(x); }, {range(-3, 3)}},
{"erf_", [](In x) { return x[0].clone().erf_(); }, [](double x) { return std::erf(x); }, {range(-3, 3)}},
{"silu_", [](In x) { return x[0].clone().silu_(); }, [](double x) { return x / (1 + std::exp(-x)); }, {range(-3, 3)}},
{"leaky_relu_", [](In x) { return x[0].clone().leaky_relu_(0.1); }, [](double x) { return x > 0 ? x : 0.1 * x; },
 {range(0.1, 3)}},
{"elu_", [](In x) { return x[0].clone().elu_(); }, [](double x) { return x > 0 ? x : std::expm1(x); }, {range(-3, -0.1)}},
{"relu_", [](In x) { return x[0].clone().relu_(); }, [](double x) { return std::max(x, 0.); }, {range(-3, 3)},
 kArithmetic},
{"floor_", [](In x) { return x[0].clone().floor_(); }, [](double x) { return std::floor(x); }, {range(-3, 3)},
 kArithmetic},
{"ceil_", [](In x) { return x[0].clone().ceil_(); }, [](double x) { return std::ceil(x); }, {range(-3, 3)},
 kArithmetic},
{"round_", [](In x) { return x[0].clone().round_(); }, [](double x) { return std::nearbyint(x); }, {range(-3, 3)},
 kArithmetic},
{"clamp_", [](In x) { return x[0].clone().clamp_(1, 2); }, [](double x) { return std::clamp(x, 1., 2.); },
 {range(-3, 3)}, kArithmetic},
{"masked_fill_", [](In x) { return x[0].clone().masked_fill_(x[1], x[2]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1](at) ? x[2]({}) : x[0](at); }); },
 {{kMatrix}, mask(kMatrix), {kNumber}}, kMoves},
{"index_put_(slice)", [](In x) { return x[0].clone().index_put_({Slice(0, 2), -1}, x[1]); },
 [](Ref x) {
   return build(kMatrix, [&](const Index& at) { return at[0] < 2 && at[1] == 3 ? x[1]({at[0]}) : x[0](at); });
 },
 {{kMatrix}, {{2}}}, kMoves},
{"index_put_(mask)", [](In x) { return x[0].clone().index_put_({x[1]}, x[2]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1](at) ? x[2]({}) : x[0](at); }); },
 {{kMatrix}, mask(kMatrix), {kNumber}}, kMoves},
{"index_put_(ids)", [](In x) { return x[0].clone().index_put_({Slice(), x[1]}, x[2]); },
 [](Ref x) {
   const Array index = build({3, 2}, [&](const Index& at) { return x[1]({at[1]}); });
   return ref::scatter(x[0], 1, index, x[2], false);
 },
 {{kMatrix}, {{2}, 0, 4, Input::kDistinctIds}, {{3, 2}}}, kMoves},
{"mul_(view)", [](In x) { Tensor y = x[0].clone(); y.select(1, 2).mul_(x[1]); return y; },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](at) * (at[1] == 2 ? x[1]({at[0]}) : 1); }); },
 {{kMatrix}, {{3}}}, kArithmetic},
{"exp_(base)", [](In x) { Tensor y = x[0] * 1; const Tensor column = y.t()[1]; y.exp_(); return column; },
 [](Ref x) { return build({3}, [&](const Index& at) { return std::exp(x[0]({at[0], 1})); }); }, {{kMatrix}}},

};
  return rows;
}
// clang-format on

}  // namespace reel
