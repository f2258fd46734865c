// Compares the members of Tensor and their in-place twins with the functions of their names: results, dtypes, shapes
// and, when this file is compiled, signatures. test/check/floors.sh checks that each member has a line here.
#include "reel/random.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (is_floating_point(a.dtype()) ? allclose(a, b, 0, 0, true) : equal(a, b));
}
bool same(bool a, bool b) { return a == b; }
bool same(const ValuesIndices& a, const ValuesIndices& b) {
  return same(a.values, b.values) && same(a.indices, b.indices);
}
bool same(const MinMax& a, const MinMax& b) { return same(a.min, b.min) && same(a.max, b.max); }
bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return same(x, y); });
}

// Counts which of the calls with the first 0, 1, … of the arguments A compile: each default value adds one.
template <class Call, class Arguments, size_t... i>
constexpr bool compiles(std::index_sequence<i...>) {
  return std::invocable<Call, Tensor&, std::tuple_element_t<i, Arguments>...>;
}
template <class Call, class... A, size_t... n>
constexpr int calls(std::index_sequence<n...>) {
  return (... + compiles<Call, std::tuple<A...>>(std::make_index_sequence<n>()));
}
template <class Member, class Function, class... A>
constexpr bool same_defaults() {
  constexpr std::make_index_sequence<sizeof...(A) + 1> counts;
  return calls<Member, A...>(counts) == calls<Function, A...>(counts);
}

// Checks that a member, or an in-place twin, has as many default values as the function, and does not compile where its
// result or the types of its parameters differ. Of overloaded members one is chosen by these types, R and A.
template <class R, class... A, class Member, class Function>
constexpr bool forwards(R (TensorMethods::*)(A...) const, R (*)(const Tensor&, A...), Member, Function) {
  return same_defaults<Member, Function, A...>();
}
template <class R, class... A, class Member, class Function>
constexpr bool forwards(R& (TensorMethods::*)(A...), R (*)(const Tensor&, A...), Member, Function) {
  return same_defaults<Member, Function, A...>();
}
#define UNWRAP(...) __VA_ARGS__
#define FORWARDS(member, function, types)                                                                         \
  static_assert(                                                                                                  \
      forwards<UNWRAP types>(                                                                                     \
          &TensorMethods::member, &reel::function,                                                                \
          [](auto& t, auto&&... a) requires requires { t.member(std::forward<decltype(a)>(a)...); } {},           \
          [](auto& t, auto&&... a) requires requires { reel::function(t, std::forward<decltype(a)>(a)...); } {}), \
      "the defaults of a member are not those of the function")

// METHOD compares x.name(…) with name(x, …), TWIN x.name_(…) with name(x, …) in x's dtype. OVERLOAD and TWIN_OVERLOAD
// do so for one of several members of a name, which (result, parameters…) chooses. OTHER is for members whose
// parameters differ.
#define OTHER(name, member, function) CHECK(same(member, function))
#define METHOD(name, x, ...) OVERLOAD(name, (), x __VA_OPT__(, ) __VA_ARGS__)
#define OVERLOAD(name, types, x, ...) \
  FORWARDS(name, name, types);        \
  CHECK(same((x).name(__VA_ARGS__), reel::name(x __VA_OPT__(, ) __VA_ARGS__)))
#define TWIN(name, x, ...) TWIN_OVERLOAD(name, (), x __VA_OPT__(, ) __VA_ARGS__)
#define TWIN_OVERLOAD(name, types, x, ...)                                          \
  do {                                                                              \
    FORWARDS(name##_, name, types);                                                 \
    Tensor changed = (x).clone();                                                   \
    CHECK(changed.name##_(__VA_ARGS__).is_same(changed));                           \
    CHECK(same(changed, reel::name(x __VA_OPT__(, ) __VA_ARGS__).to((x).dtype()))); \
  } while (false)

using Tensors = std::vector<Tensor>;
using Sizes = std::vector<int64_t>;
using Dim = std::optional<int64_t>;

struct Examples {  // made in each test, on its default device
  const Tensor x = tensor({{0.5, -1.5, 2.5}, {0.25, 3.5, -0.75}}), y = tensor({{2.0, 1.5, -0.5}, {0.25, 4.0, 1.25}}),
               unit = tensor({{0.125, 0.5, 0.75}, {0.25, 0.375, 0.875}}),
               square_matrix = tensor({{2.0, 1.0}, {0.5, 3.0}}), cube = arange(24.0).view({2, 3, 4}),
               vector = tensor({3.0, -1.0, 2.0}), bits = tensor({{6, 5}, {4, 3}}), ids = tensor({1, 0}),
               index = tensor({{1, 0, 1}}), source = tensor({{7.0, 8.0, 9.0}}), mask = x > 0.4;
};

}  // namespace

TEST_CASE_METHOD(Examples, "a member of Tensor is the function of its name: elementwise", "[ops]") {
  OVERLOAD(add, (Tensor, const Tensor&), x, y);
  OVERLOAD(add, (Tensor, const Tensor&, Scalar), x, y, 0.5);
  OVERLOAD(sub, (Tensor, const Tensor&), x, y);
  OVERLOAD(sub, (Tensor, const Tensor&, Scalar), x, y, 2);
  METHOD(mul, x, y);
  METHOD(div, x, y);
  METHOD(pow, x, 3);
  METHOD(maximum, x, y);
  METHOD(minimum, x, y);
  METHOD(fmod, x, y);
  METHOD(remainder, x, y);
  METHOD(floor_divide, x, y);
  METHOD(float_power, x, 2);
  METHOD(hypot, x, y);
  METHOD(atan2, x, y);
  METHOD(logaddexp, x, y);
  METHOD(xlogy, x, unit);
  METHOD(lerp, x, y, 0.25);
  METHOD(addcmul, x, y, unit);
  METHOD(addcmul, x, y, unit, 3);
  METHOD(addcdiv, x, y, unit, 0.5);
  METHOD(addcdiv, x, y, unit);
  OVERLOAD(clamp, (Tensor, const Bound&, const Bound&), x, 0);
  OVERLOAD(clamp, (Tensor, const Bound&, const Bound&), x, {}, y);
  OVERLOAD(clamp, (Tensor, const Bound&, const Bound&), x, -1, 1);
  METHOD(nan_to_num, log(x) / 0);
  METHOD(nan_to_num, log(x), 1, 2, 3);
  OTHER(where, x.where(mask, y), where(mask, x, y));
  METHOD(neg, x);
  METHOD(abs, x);
  METHOD(sign, x);
  METHOD(exp, x);
  METHOD(expm1, x);
  METHOD(log, unit);
  METHOD(log1p, unit);
  METHOD(sqrt, unit);
  METHOD(rsqrt, unit);
  METHOD(square, x);
  METHOD(reciprocal, x);
  METHOD(sin, x);
  METHOD(cos, x);
  METHOD(tan, x);
  METHOD(asin, unit);
  METHOD(acos, unit);
  METHOD(atan, x);
  METHOD(sinh, x);
  METHOD(cosh, x);
  METHOD(tanh, x);
  METHOD(asinh, x);
  METHOD(acosh, x + 3);
  METHOD(atanh, unit);
  METHOD(exp2, x);
  METHOD(log2, unit);
  METHOD(log10, unit);
  METHOD(logit, x);
  METHOD(logit, unit, 0.2);
  METHOD(sigmoid, x);
  METHOD(erf, x);
  METHOD(erfc, x);
  METHOD(lgamma, unit);
  METHOD(digamma, unit);
  OTHER(polygamma, unit.polygamma(2), polygamma(2, unit));
  METHOD(floor, x);
  METHOD(ceil, x);
  METHOD(round, x);
  METHOD(trunc, x);
  METHOD(frac, x);
  METHOD(relu, x);
  METHOD(prelu, x, tensor({0.5}));
  METHOD(hardshrink, x);
  METHOD(hardshrink, x, 1);
  METHOD(softmax, x, 1);
  METHOD(log_softmax, x, 0);
}

TEST_CASE_METHOD(Examples, "a member of Tensor is the function of its name: comparison and bits", "[ops]") {
  METHOD(eq, x, y);
  METHOD(ne, x, y);
  METHOD(lt, x, y);
  METHOD(le, x, y);
  METHOD(gt, x, y);
  METHOD(ge, x, 0);
  METHOD(logical_and, mask, x > 1);
  METHOD(logical_or, mask, x < -1);
  METHOD(logical_xor, mask, x > 1);
  METHOD(logical_not, mask);
  METHOD(isnan, log(x));
  METHOD(isinf, x / 0);
  METHOD(isfinite, log(x));
  METHOD(isclose, x, y, 1, 0.5);
  // These differ by a little less and a little more than the default tolerances allow.
  const Tensor exact = tensor({1.0, 1.0, 0.0, 0.0, std::nan("")});
  const Tensor close = tensor({1 + 9e-6, 1 + 11e-6, 9e-9, 11e-9, std::nan("")});
  METHOD(isclose, exact, close);
  for (int64_t i = 0; i < exact.numel(); ++i) {
    METHOD(allclose, exact[i], close[i]);
  }
  METHOD(allclose, x, x + 0);
  METHOD(allclose, x, y, 100.0);
  METHOD(equal, x, y);
  METHOD(bitwise_and, bits, 3);
  METHOD(bitwise_or, bits, 8);
  METHOD(bitwise_xor, bits, 5);
  METHOD(bitwise_not, bits);
  METHOD(bitwise_left_shift, bits, 2);
  METHOD(bitwise_right_shift, bits, 1);
}

TEST_CASE_METHOD(Examples, "a member of Tensor is the function of its name: reductions and products", "[ops]") {
  METHOD(sum, x);
  METHOD(sum, x, 1);
  METHOD(sum, cube, {0, 2}, true);
  METHOD(mean, x);
  METHOD(mean, x, 0, true);
  METHOD(nansum, log(x), 1);
  METHOD(nansum, log(x));
  METHOD(nanmean, log(x));
  METHOD(count_nonzero, floor(unit * 2), 1);
  METHOD(count_nonzero, floor(unit * 2));
  OVERLOAD(prod, (Tensor), x);
  OVERLOAD(prod, (Tensor, int64_t, bool), x, 1, true);
  OVERLOAD(prod, (Tensor, int64_t, bool), x, 1);
  OVERLOAD(max, (Tensor), x);
  OVERLOAD(min, (Tensor), x);
  OVERLOAD(max, (ValuesIndices, int64_t, bool), x, 1);
  OVERLOAD(min, (ValuesIndices, int64_t, bool), x, 0, true);
  OVERLOAD(min, (ValuesIndices, int64_t, bool), x, 0);
  METHOD(amax, x, 1);
  METHOD(amax, x);
  METHOD(amin, x);
  METHOD(aminmax, x, 0);
  METHOD(aminmax, x);
  METHOD(argmax, x);
  METHOD(argmax, x, 1);
  METHOD(argmin, x, 1, true);
  METHOD(argmin, x);
  OVERLOAD(var, (Tensor, const Dims&, double, bool), x);
  OVERLOAD(var, (Tensor, const Dims&, double, bool), x, 1, 0);
  OVERLOAD(std, (Tensor, const Dims&, double, bool), x, 1, 1, true);
  OVERLOAD(std, (Tensor, const Dims&, double, bool), x);
  METHOD(cov, x);
  METHOD(corrcoef, x);
  METHOD(norm, x);
  METHOD(norm, x, 1, 0, true);
  METHOD(renorm, x, 2, 0, 1.5);
  METHOD(logsumexp, x, 1);
  METHOD(logsumexp, x);
  METHOD(any, mask);
  METHOD(all, mask, 1);
  METHOD(all, mask);
  METHOD(trace, x);
  METHOD(cross, x, y);
  METHOD(cumsum, x, 1);
  METHOD(cumprod, x, 1);
  METHOD(cummax, x, 1);
  METHOD(cummin, x, 1);
  METHOD(logcumsumexp, x, 0);
  OTHER(diff, x.diff(), diff(x));
  OTHER(diff, x.diff(2, 1), diff(x, 2, 1));
  METHOD(matmul, x, y.t());
  METHOD(mm, x, y.t());
  METHOD(bmm, cube, cube.transpose(1, 2));
  METHOD(mv, x, vector);
  METHOD(dot, vector, vector);
  METHOD(outer, vector, vector);
  METHOD(inner, x, y);
  METHOD(kron, x, y);
  METHOD(addmm, square_matrix, x, y.t());
  METHOD(addmm, square_matrix, x, y.t(), 2, 0.5);
  METHOD(baddbmm, ones({2, 3, 3}), cube, cube.transpose(1, 2), 2);
  METHOD(baddbmm, ones({2, 3, 3}), cube, cube.transpose(1, 2));
}

TEST_CASE_METHOD(Examples, "a member of Tensor is the function of its name: parts and places", "[ops]") {
  OVERLOAD(split, (Tensors, int64_t, int64_t), cube, 2, 1);
  OVERLOAD(split, (Tensors, int64_t, int64_t), cube, 2);
  OVERLOAD(split, (Tensors, const Sizes&, int64_t), cube, Sizes{1, 3}, 2);
  OVERLOAD(split, (Tensors, const Sizes&, int64_t), cube, Sizes{1, 1});
  METHOD(chunk, cube, 2, 2);
  METHOD(chunk, cube, 2);
  OVERLOAD(tensor_split, (Tensors, int64_t, int64_t), cube, 2, 1);
  OVERLOAD(tensor_split, (Tensors, int64_t, int64_t), cube, 2);
  OVERLOAD(tensor_split, (Tensors, const Sizes&, int64_t), cube, Sizes{1}, 2);
  OVERLOAD(tensor_split, (Tensors, const Sizes&, int64_t), cube, Sizes{1});
  METHOD(unbind, cube, 1);
  METHOD(unbind, cube);
  METHOD(unflatten, cube, 2, {2, -1});
  METHOD(ravel, cube);
  METHOD(swapaxes, cube, 0, 2);
  METHOD(swapdims, cube, 0, 1);
  METHOD(movedim, cube, 0, 2);
  METHOD(broadcast_to, vector, {2, 3});
  METHOD(diagonal, cube, 1, 1, 2);
  METHOD(diagonal, cube);
  METHOD(flip, cube, {0, 2});
  METHOD(fliplr, x);
  METHOD(flipud, x);
  METHOD(rot90, x);
  METHOD(roll, x, 1, 1);
  METHOD(repeat, x, {2, 1});
  METHOD(tile, x, {1, 2});
  OVERLOAD(repeat_interleave, (Tensor, int64_t, Dim), x, 2);
  OVERLOAD(repeat_interleave, (Tensor, const Tensor&, Dim), x, ids, 0);
  OVERLOAD(repeat_interleave, (Tensor, const Tensor&, Dim), x, arange(6));
  METHOD(tril, x);
  METHOD(triu, x, 1);
  METHOD(triu, x);
  METHOD(diag, vector, 1);
  METHOD(diag, vector);
  METHOD(index_select, x, 0, ids);
  METHOD(index_add, x, 0, ids, y, 2);
  METHOD(index_add, x, 0, ids, y);
  METHOD(index_copy, x, 0, ids, y);
  METHOD(index_fill, x, 1, ids, 5);
  METHOD(index_put, x, {1}, vector);
  METHOD(index_put, x, {ids}, y, true);
  METHOD(gather, x, 0, index);
  METHOD(scatter, x, 0, index, source);
  METHOD(scatter_add, x, 0, index, source);
  METHOD(scatter_reduce, x, 0, index, source, Reduce::kSum);
  METHOD(take_along_dim, x, index, 0);
  METHOD(take, x, ids);
  METHOD(masked_select, x, mask);
  METHOD(masked_fill, x, mask, -1);
  METHOD(masked_scatter, x, mask, y);
  METHOD(nonzero, mask);
  METHOD(argwhere, mask);
  METHOD(select_scatter, x, vector, 0, 1);
  METHOD(slice_scatter, x, source, 0, 1);
  METHOD(slice_scatter, x, y, 0);
  METHOD(diagonal_scatter, x, tensor({5.0, 6.0}));
  METHOD(sort, x);
  METHOD(sort, x, 0, true);
  METHOD(argsort, x, 1);
  METHOD(argsort, x);
  METHOD(topk, x, 2);
  METHOD(kthvalue, x, 2);
  OVERLOAD(median, (Tensor), x);
  OVERLOAD(median, (ValuesIndices, int64_t, bool), x, 1, true);
  OVERLOAD(median, (ValuesIndices, int64_t, bool), x, 1);
  METHOD(mode, bits);
  OVERLOAD(quantile, (Tensor, double, Dim, bool), x, 0.25);
  OVERLOAD(quantile, (Tensor, const Tensor&, Dim, bool), x, tensor({0.25, 0.5}), 1);
  OVERLOAD(quantile, (Tensor, const Tensor&, Dim, bool), x, tensor({0.25, 0.5}));
  METHOD(histc, x, 4);
  METHOD(histc, x);
  CHECK(same(x.cpu().is_cuda(), false));
  if (cuda::is_available()) CHECK(x.cuda().is_cuda());
  CHECK(same(x.view_as(y.t()), x.view({3, 2})));
  CHECK(same(x.t().reshape_as(x), x.t().reshape({2, 3})));
  CHECK(same(vector.expand_as(x), vector.expand({2, 3})));
  CHECK(same(bits.type_as(x), bits.to(kFloat32)));
  manual_seed(3);
  const Tensor drawn = unit.bernoulli(), classes = unit.multinomial(3);
  manual_seed(3);
  OTHER(bernoulli, drawn, bernoulli(unit));
  OTHER(multinomial, classes, multinomial(unit, 3));
  FORWARDS(bernoulli, bernoulli, ());
  FORWARDS(multinomial, multinomial, ());
}

TEST_CASE_METHOD(Examples, "an in-place twin becomes what the function returns", "[inplace]") {
  TWIN_OVERLOAD(add, (Tensor, const Tensor&), x, y);
  TWIN_OVERLOAD(add, (Tensor, const Tensor&, Scalar), x, y, 0.5);
  TWIN_OVERLOAD(sub, (Tensor, const Tensor&), x, y);
  TWIN_OVERLOAD(sub, (Tensor, const Tensor&, Scalar), x, y, 2);
  TWIN(mul, x, y);
  TWIN(div, x, y);
  TWIN(pow, x, 3);
  TWIN(fmod, x, y);
  TWIN(remainder, x, y);
  TWIN(floor_divide, x, y);
  TWIN(lerp, x, y, 0.25);
  TWIN(addcmul, x, y, unit, 3);
  TWIN(addcmul, x, y, unit);
  TWIN(addcdiv, x, y, unit, 0.5);
  TWIN(addcdiv, x, y, unit);
  TWIN(neg, x);
  TWIN(abs, x);
  TWIN(sign, x);
  TWIN(exp, x);
  TWIN(expm1, x);
  TWIN(log, unit);
  TWIN(log1p, unit);
  TWIN(sqrt, unit);
  TWIN(rsqrt, unit);
  TWIN(square, x);
  TWIN(reciprocal, x);
  TWIN(sin, x);
  TWIN(cos, x);
  TWIN(tan, x);
  TWIN(asin, unit);
  TWIN(acos, unit);
  TWIN(atan, x);
  TWIN(exp2, x);
  TWIN(log2, unit);
  TWIN(log10, unit);
  TWIN(tanh, x);
  TWIN(sigmoid, x);
  TWIN(erf, x);
  TWIN(relu, x);
  TWIN(leaky_relu, x);
  TWIN(elu, x, 0.5);
  TWIN(elu, x);
  TWIN(silu, x);
  TWIN(floor, x);
  TWIN(ceil, x);
  TWIN(round, x);
  TWIN(trunc, x);
  TWIN(frac, x);
  TWIN_OVERLOAD(clamp, (Tensor, const Bound&, const Bound&), x, 0);
  TWIN_OVERLOAD(clamp, (Tensor, const Bound&, const Bound&), x, -1, y);
  TWIN(nan_to_num, log(x) / 0);
  TWIN(nan_to_num, log(x), 1);
  TWIN(masked_fill, x, mask, -1);
  TWIN(index_add, x, 0, ids, y, 2);
  TWIN(index_add, x, 0, ids, y);
  TWIN(index_copy, x, 0, ids, y);
  TWIN(index_fill, x, 1, ids, 5);
  TWIN(index_put, x, {ids}, y, true);
  TWIN(index_put, x, {ids}, y);
  TWIN(scatter, x, 0, index, source);
  TWIN(scatter_add, x, 0, index, source);
  TWIN(scatter_reduce, x, 0, index, source, Reduce::kSum);
  TWIN(masked_scatter, x, mask, y);
}

TEST_CASE_METHOD(Examples, "members cost a tensor no room, and are those of PyTorch's names", "[ops]") {
  STATIC_REQUIRE(sizeof(Tensor) == sizeof(void*));
  CHECK(x.sizes() == Shape{2, 3});
  CHECK(x.ndimension() == 2);
  CHECK(x.data_ptr<float>() == x.data<float>());
  const Tensor like = zeros({2}, bits.options());
  CHECK(like.dtype() == kInt64);
  CHECK(like.device() == bits.device());
  const auto [values, indices] = x.max(1);
  CHECK(values.to_vector<float>() == std::vector<float>{2.5, 3.5});
  CHECK(x.argmax(1).eq(indices).all().item<bool>());
}

TEST_CASE_METHOD(Examples, "members and in-place twins carry gradients", "[inplace]") {
  Tensor w = tensor({{1.0, 2.0, 3.0}}).requires_grad_();
  x.mul(w).relu().sum().backward();
  CHECK(same(w.grad(), sum(x * (x * w > 0).to(kFloat32), 0, true)));
  Tensor z = w.mul(2);
  z.add_(w, 3).clamp_(6);
  w.set_grad({});
  z.sum().backward();
  CHECK(w.grad().to_vector<float>() == std::vector<float>{0, 5, 5});
}

TEST_CASE("tensor() makes tensors of numbers, lists, vectors and spans", "[tensor]") {
  CHECK(same(tensor(1.5), full({}, 1.5)));
  CHECK(tensor(1.5).dtype() == kFloat32);
  CHECK(tensor(3).dtype() == kInt64);
  CHECK(tensor(true).dtype() == kBool);
  CHECK(tensor(2.5f, {.dtype = kFloat64}).dtype() == kFloat64);
  // Unlike a number, a 0-d tensor keeps its dtype among 0-d tensors.
  CHECK((tensor(1.5, {.dtype = kFloat64}) * tensor(2.0)).dtype() == kFloat64);
  CHECK(tensor({1, 2, 3}).dtype() == kInt64);
  CHECK(same(tensor({{1.0, 2.0}, {3.0, 4.0}}), (arange(4.0) + 1).view({2, 2})));
  CHECK(same(tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}), arange(1, 9).view({2, 2, 2})));
  CHECK(same(tensor({true, false}), tensor(std::vector<bool>{true, false})));
  const std::vector<float> values = {1, 2, 3, 4};
  CHECK(same(tensor(values, {2, 2}), tensor(std::span<const float>(values)).view({2, 2})));
  CHECK(same(tensor(values.data(), {4}), tensor(values)));
  CHECK_THROWS_WITH(tensor({{1, 2}, {3}}), "tensor: rows of different lengths, 2 and 1");
  CHECK_THROWS_WITH(tensor({{{1}, {2}}, {{3}}}), "tensor: rows of different lengths, 2 and 1");
  CHECK_THROWS_WITH(tensor({{{1, 2}}, {{3}}}), "tensor: rows of different lengths, 2 and 1");
  CHECK_THROWS_WITH(tensor(values, {3}), Catch::Contains("tensor: shape [3] needs 3 values, got 4"));
}

template <class T>
concept TakesBool = requires(const T& t) {
  sum(t, true);
}
|| requires(const T& t) { t.std(false); }
|| requires(const T& t) { t.var(0, true); };
TEST_CASE("a bool is neither a dimension nor a correction", "[ops]") { STATIC_REQUIRE(!TakesBool<Tensor>); }
