#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

/// By every way to label the steps: -log of the probability of those that give `target` when repetitions and then
/// blanks are taken away.
double ctc(const Array& log_probs, int64_t n, int64_t steps, const Line& target, double blank) {
  const int64_t classes = log_probs.shape.back();
  Line found;
  Line path(static_cast<size_t>(steps), 0);
  while (true) {
    Line collapsed;
    double score = 0;
    for (size_t t = 0; t < path.size(); ++t) {
      score += log_probs({int64_t(t), n, int64_t(path[t])});
      if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) collapsed.push_back(path[t]);
    }
    if (collapsed == target) found.push_back(score);
    size_t t = 0;
    for (; t < path.size() && ++path[t] == double(classes);) path[t++] = 0;
    if (t == path.size()) return -ref::logsumexp(found);
  }
}

Array log_softmaxes(const Array& x) { return along(x, x.shape.size() - 1, ref::log_softmax); }
const Line kFirst{1, 1}, kSecond{2}, kThird{2, 0};

}  // namespace

// clang-format off
const std::vector<Row>& ctc_rows() {
  static const std::vector<Row> rows{

{"ctc_loss",
 [](In x) {
   return ctc_loss(log_softmax(x[0], 2), tensor({{1, 1}, {2, 7}}), tensor({4, 3}), tensor({2, 1}), {.reduction = kNoReduction});
 },
 [](Ref x) {
   const Array p = log_softmaxes(x[0]);
   return Array{{2}, {ctc(p, 0, 4, kFirst, 0), ctc(p, 1, 3, kSecond, 0)}};
 },
 {{{4, 2, 3}}}, kProduct},
{"ctc_loss(mean)",
 [](In x) { return ctc_loss(log_softmax(x[0], 2), tensor({2, 2, 0}), tensor({3, 4}), tensor({1, 2}), {.blank = 1}); },
 [](Ref x) {
   const Array p = log_softmaxes(x[0]);
   return Array{{}, {(ctc(p, 0, 3, kSecond, 1) + ctc(p, 1, 4, kThird, 1) / 2) / 2}};
 },
 {{{4, 2, 3}}}, kProduct},
{"ctc_loss(nothing)",
 [](In x) {
   const Tensor none = zeros({2, 0}, {.dtype = kInt64});
   return ctc_loss(log_softmax(x[0], 2), none, tensor({4, 0}), tensor({0, 0}), {.reduction = kSum});
 },
 [](Ref x) { return Array{{}, {ctc(log_softmaxes(x[0]), 0, 4, {}, 0)}}; }, {{{4, 2, 19}}}, kProduct},

};
  return rows;
}
// clang-format on

TEST_CASE("a target that is too long for its input costs infinity or nothing", "[ops]") {
  const Tensor x = log_softmax(tensor({{0.1, 0.5, 0.2}, {0.3, 0.1, 0.4}}), 1).detach().requires_grad_();
  const Tensor target = tensor({1, 1}), steps = Tensor(2), labels = Tensor(2);  // needs a blank in between
  CHECK(ctc_loss(x, target, steps, labels).item<double>() == ref::kInfinity);
  const CTCLossOptions options{.zero_infinity = true};
  const Tensor loss = ctc_loss(x, target, steps, labels, options);
  CHECK(loss.item<double>() == 0);
  loss.backward();
  CHECK(equal(x.grad(), zeros_like(x)));
  CHECK(equal(grad({ctc_loss(x, target, steps, labels, options)}, {x}, {}, {.create_graph = true})[0], zeros_like(x)));
  CHECK(ctc_loss(x, target, Tensor(0), labels).item<double>() == ref::kInfinity);
}

TEST_CASE("CTC of many steps and states keeps its digits in float32", "[ops]") {
  manual_seed(2);
  const Tensor x = log_softmax(randn({500, 2, 40}, {.dtype = kFloat64}) * 4, 2).detach();
  const Tensor target = randint(1, 40, {2, 90}), steps = tensor({500, 470}), labels = tensor({90, 71});
  const Tensor a = x.to(kFloat32).requires_grad_(), b = a.detach().to(kFloat64).requires_grad_();
  const Tensor short_y = ctc_loss(a, target, steps, labels), long_y = ctc_loss(b, target, steps, labels);
  CHECK(short_y.item<double>() == Approx(long_y.item<double>()).epsilon(1e-6));
  short_y.backward(), long_y.backward();
  CHECK(all(abs(a.grad() - b.grad()) < 1e-5).item<bool>());
}

TEST_CASE("CTC says what is wrong", "[ops][cpu]") {
  static constexpr WrongCall calls[] = {
      {[](World& w) { ctc_loss(w.vector, w.ids, 3, 3); },
       "ctc_loss: log probabilities of shape [3], not [steps, n, classes] or [steps, classes]"},
      {[](World& w) { ctc_loss(w.cube, w.vector, w.ids, w.ids); }, "ctc_loss: the targets are float32, not int64"},
      {[](World& w) { ctc_loss(w.matrix, w.ids, 4, 1); }, "ctc_loss: input length 4 is not between 0 and 3"},
      {[](World& w) { ctc_loss(w.matrix, w.ids, 3, 4); }, "ctc_loss: target length 4 is not between 0 and 3"},
      {[](World& w) { ctc_loss(w.matrix, w.whole, 3, 3); }, "ctc_loss: target -2 is out of range for 4 classes"},
      {[](World& w) { ctc_loss(w.matrix, w.ids, 3, 3, {.blank = 4}); },
       "ctc_loss: the blank, 4, is out of range for 4 classes"},
      {[](World& w) {
         ctc_loss(w.cube, w.ids, tensor({1, 1, 1}), tensor({1, 1, 0}));
       },
       "ctc_loss: the target lengths add up to 2, but there are 3 targets"},
      {[](World& w) { ctc_loss(w.cube, w.ids, w.ids, w.mask); },
       "ctc_loss: bool target lengths of shape [3] for 3 sequences"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
