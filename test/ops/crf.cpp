#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// ---- reference: every chain of tags, one after another --------------------------------------------------------------

using Path = std::vector<int64_t>;

struct Potentials {
  const Array &transitions, &start, &end;
};

double score_of(const Array& e, const Potentials& p, const Path& y) {
  double score = p.start({y.front()}) + p.end({y.back()});
  for (size_t t = 0; t < y.size(); ++t) {
    score += e({int64_t(t), y[t]});
    if (t > 0) score += p.transitions({y[t - 1], y[t]});
  }
  return score;
}

std::vector<Path> all_paths(int64_t len, int64_t tags) {
  std::vector<Path> paths{{}};
  for (int64_t t = 0; t < len; ++t) {
    std::vector<Path> longer;
    for (const Path& path : paths)
      for (int64_t tag = 0; tag < tags; ++tag) longer.push_back(path), longer.back().push_back(tag);
    paths = longer;
  }
  return paths;
}

double log_z(const Array& e, const Potentials& p) {
  Line scores;
  for (const Path& path : all_paths(e.shape[0], e.shape[1])) scores.push_back(score_of(e, p, path));
  return ref::logsumexp(scores);
}

double likelihood(const Array& e, const Array& tags, const Potentials& p) {
  return score_of(e, p, Path(tags.data.begin(), tags.data.end())) - log_z(e, p);
}

Array marginals(const Array& e, const Potentials& p) {
  const double total = log_z(e, p);
  Array y = build(e.shape, [](const Index&) { return 0.; });
  for (const Path& path : all_paths(e.shape[0], e.shape[1]))
    for (size_t t = 0; t < path.size(); ++t)
      y.data[t * size_t(e.shape[1]) + size_t(path[t])] += std::exp(score_of(e, p, path) - total);
  return y;
}

Path best_path(const Array& e, const Potentials& p) {
  Path best;
  for (const Path& path : all_paths(e.shape[0], e.shape[1]))
    if (best.empty() || score_of(e, p, path) > score_of(e, p, best)) best = path;
  return best;
}

/// The first `len` steps of column s.
Array column(const Array& x, int64_t s, int64_t len) {
  Shape shape = x.shape;
  shape.erase(1), shape[0] = len;
  return build(shape, [&](Index at) {
    at.insert(1, s);
    return x(at);
  });
}

const int64_t kLengths[] = {2, 3, 1};
Tensor lengths() { return tensor(kLengths, {3}, {.device = test_device()}); }
Array zero(int64_t n) { return {{n}, Line(size_t(n), 0)}; }

}  // namespace

// clang-format off
const std::vector<Row>& crf_rows() {
  static const std::vector<Row> rows{

{"crf_log_likelihood", [](In x) { return crf_log_likelihood(x[0], x[1], x[2], x[3], x[4]); },
 [](Ref x) { return Array{{}, {likelihood(x[0], x[1], {x[2], x[3], x[4]})}}; },
 {{{4, 3}}, ids({4}, 3), {{3, 3}}, {{3}}, {{3}}}, kProduct},
{"crf_log_likelihood(wide)", [](In x) { return crf_log_likelihood(x[0], x[1], x[2]); },
 [](Ref x) { return Array{{}, {likelihood(x[0], x[1], {x[2], zero(19), zero(19)})}}; },
 {{{2, 19}}, ids({2}, 19), {{19, 19}}}, kProduct},
{"crf_log_likelihood(one step)", [](In x) { return crf_log_likelihood(x[0], x[1], x[2], x[3]); },
 [](Ref x) { return Array{{}, {likelihood(x[0], x[1], {x[2], x[3], zero(5)})}}; },
 {{{1, 5}}, ids({1}, 5), {{5, 5}}, {{5}}}, kProduct},
{"crf_log_likelihood(lengths)", [](In x) { return crf_log_likelihood(x[0], x[1], x[2], x[3], x[4], lengths()); },
 [](Ref x) {
   return build({3}, [&](const Index& at) {
     const int64_t s = at[0], len = kLengths[s];
     return likelihood(column(x[0], s, len), column(x[1], s, len), {x[2], x[3], x[4]});
   });
 },
 {{{3, 3, 4}}, ids({3, 3}, 4), {{4, 4}}, {{4}}, {{4}}}, kProduct},
{"crf_log_likelihood(list)",
 [](In x) {
   const TensorOptions there{.device = x[0].device()};
   return crf_log_likelihood(Tensors{x[0], x[1]}, Tensors{tensor({2, 0, 1}, there), tensor({1, 1}, there)}, x[2], x[3], x[4]);
 },
 [](Ref x) {
   const Potentials p{x[2], x[3], x[4]};
   return Array{{2}, {likelihood(x[0], {{3}, {2, 0, 1}}, p), likelihood(x[1], {{2}, {1, 1}}, p)}};
 },
 {{{3, 3}}, {{2, 3}}, {{3, 3}}, {{3}}, {{3}}}, kProduct},
{"crf_marginals", [](In x) { return crf_marginals(x[0], x[1], x[2], x[3]); },
 [](Ref x) { return marginals(x[0], {x[1], x[2], x[3]}); }, {{{4, 3}}, {{3, 3}}, {{3}}, {{3}}}, kProduct},
{"crf_marginals(lengths)", [](In x) { return crf_marginals(x[0], x[1], {}, x[2], lengths()); },
 [](Ref x) {
   return build({3, 3, 4}, [&](const Index& at) {
     const int64_t s = at[1], len = kLengths[s];
     return at[0] < len ? marginals(column(x[0], s, len), {x[1], zero(4), x[2]})({at[0], at[2]}) : 0;
   });
 },
 {{{3, 3, 4}}, {{4, 4}}, {{4}}}, kProduct},
{"crf_decode", [](In x) { return crf_decode(x[0], x[1], x[2], x[3]).scores; },
 [](Ref x) {
   const Potentials p{x[1], x[2], x[3]};
   return Array{{}, {score_of(x[0], p, best_path(x[0], p))}};
 },
 {{{4, 3}}, {{3, 3}}, {{3}}, {{3}}}, {.differentiable = false}},
{"crf_decode(lengths)", [](In x) { return crf_decode(x[0], x[1], {}, x[2], lengths()).scores; },
 [](Ref x) {
   const Array none = zero(4);
   const Potentials p{x[1], none, x[2]};
   return build({3}, [&](const Index& at) {
     const Array e = column(x[0], at[0], kLengths[at[0]]);
     return score_of(e, p, best_path(e, p));
   });
 },
 {{{3, 3, 4}}, {{4, 4}}, {{4}}}, {.differentiable = false}},
{"crf_bio_constraints", [](In) { return crf_bio_constraints({"O", "B-A", "I-A", "I-B"}).transitions; },
 [](Ref) { return Array{{4, 4}, {1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1}}; }, {},
 {.floats_give = Result::kBool, .differentiable = false}},

};
  return rows;
}
// clang-format on

TEST_CASE("the best chain is the best of all chains", "[ops]") {
  manual_seed(3);
  const auto array = [](const Tensor& x) { return Array{x.shape(), x.to_vector<double>()}; };
  for (int round = 0; round < 20; ++round) {
    const int64_t len = 1 + round % 4, tags = 2 + round % 3;
    const Tensor e = randn({len, tags}), t = randn({tags, tags}), s = randn({tags}), z = randn({tags});
    const Array ta = array(t), sa = array(s), za = array(z);
    const CrfPaths paths = crf_decode(e, t, s, z);
    CHECK(paths.tags.to_vector<int64_t>() == best_path(array(e), {ta, sa, za}));
    CHECK(paths.scores.dim() == 0);
    // In a batch, among others.
    const Tensor batch = stack({e, randn({len, tags}), e}, 1);
    CHECK(equal(crf_decode(batch, t, s, z).tags.select(1, 2), paths.tags));
  }
  const CrfPaths some = crf_decode(randn({3, 2, 4}), randn({4, 4}), {}, {}, tensor({1, 3}));
  CHECK(some.tags.index({Slice(1, {}), 0}).to_vector<int64_t>() == std::vector<int64_t>{-1, -1});
}

TEST_CASE("constraints of BIO and BIOES tags are kept by decoding", "[ops]") {
  const std::vector<std::string> bioes{"O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B"};
  const CrfConstraints allowed = crf_bio_constraints(bioes);
  CHECK(allowed.start.to_vector<bool>() == std::vector<bool>{1, 1, 0, 0, 1, 1, 0, 0, 1});
  CHECK(allowed.end.to_vector<bool>() == std::vector<bool>{1, 0, 0, 1, 1, 0, 0, 1, 1});
  CHECK(allowed.transitions[1].to_vector<bool>() == std::vector<bool>{0, 0, 1, 1, 0, 0, 0, 0, 0});
  CHECK(allowed.transitions[3].to_vector<bool>() == std::vector<bool>{1, 1, 0, 0, 1, 1, 0, 0, 1});
  manual_seed(1);
  for (int round = 0; round < 20; ++round) {
    const Tensor e = randn({6, 9}) * 5;
    const std::vector<int64_t> y = crf_decode(e, zeros({9, 9}), {}, {}, {}, allowed).tags.to_vector<int64_t>();
    CHECK(allowed.start[y.front()].item<bool>());
    CHECK(allowed.end[y.back()].item<bool>());
    for (size_t t = 1; t < y.size(); ++t) CHECK(allowed.transitions[y[t - 1]][y[t]].item<bool>());
  }
  // A single B cannot end.
  const Tensor one = crf_decode(zeros({1, 1}), zeros({1, 1}), {}, {}, {}, {.end = tensor({false})}).scores;
  CHECK(one.item<double>() == -ref::kInfinity);
  CHECK_THROWS_WITH(crf_bio_constraints({"O", "PER"}),
                    "crf_bio_constraints: the tag 'PER' is neither O nor one of B-, I-, E-, S-, L-, U- and a type");
}

TEST_CASE("forbidden transitions leave a CRF's gradients finite", "[ops]") {
  const double never = -ref::kInfinity;
  const Tensor e = tensor({{1., 2., 0.}, {0.5, 0., 1.}, {0., 3., 1.}}).requires_grad_();
  const Tensor t = tensor({{0., 1., never}, {never, never, 0.5}, {0., 0.3, 0.}}).requires_grad_();
  const Tensor y = tensor({0, 1, 2});
  const Tensor loss = -crf_log_likelihood(e, y, t);
  loss.backward();
  // The same, with a potential that is only very low.
  const Tensor e2 = e.detach().clone().requires_grad_(), t2 = where(t == never, -1e4, t).detach().requires_grad_();
  const Tensor loss2 = -crf_log_likelihood(e2, y, t2);
  loss2.backward();
  CHECK(loss.item<double>() == Approx(loss2.item<double>()));
  CHECK(all(abs(e.grad() - e2.grad()) < 1e-6).item<bool>());
  CHECK(all(abs(t.grad() - t2.grad()) < 1e-6).item<bool>());
  CHECK(t.grad()[0][2].item<double>() == 0);
  // Recorded anew for a second derivative, too.
  const Tensor g = grad({-crf_log_likelihood(e, y, t)}, {e}, {}, {.create_graph = true})[0];
  CHECK(all(abs(g - e2.grad()) < 1e-6).item<bool>());
}

TEST_CASE("long chains and potentials far apart keep their digits in float32", "[ops]") {
  manual_seed(5);
  for (const double scale : {1., 300., 1e4}) {
    const Tensor wide = randn({2000, 5}, {.dtype = kFloat64}) * scale, e = wide.to(kFloat32);
    const Tensor t = (randn({5, 5}) * scale).to(kFloat32), y = randint(5, {2000});
    const Tensor a = e.detach().requires_grad_(), b = e.to(kFloat64).requires_grad_();
    const Tensor short_y = crf_log_likelihood(a, y, t), long_y = crf_log_likelihood(b, y, t.to(kFloat64));
    CHECK(short_y.item<double>() == Approx(long_y.item<double>()).epsilon(1e-6));
    short_y.backward(), long_y.backward();
    CHECK(all(abs(a.grad() - b.grad()) < 2e-3).item<bool>());
  }
}

TEST_CASE("CRFs say what is wrong", "[ops][cpu]") {
  static constexpr WrongCall calls[] = {
      {[](World& w) { crf_log_likelihood(w.vector, w.ids, w.matrix); },
       "crf_log_likelihood: emissions of shape [3], not [len, tags] or [len, n, tags]"},
      {[](World& w) { crf_log_likelihood(w.matrix, w.ids, w.matrix); },
       "crf_log_likelihood: transitions of shape [3, 4] for 4 tags"},
      {[](World& w) {
         crf_log_likelihood(w.doubles, w.ids, ones({3, 3}));
       },
       "crf_log_likelihood: float64 emissions but transitions of float32"},
      {[](World& w) {
         crf_log_likelihood(w.matrix, w.whole, ones({4, 4}));
       },
       "crf_log_likelihood: tag -2 is out of range for 4 tags"},
      {[](World& w) {
         crf_log_likelihood(w.matrix, tensor({0, 1}), ones({4, 4}));
       },
       "crf_log_likelihood: emissions of shape [3, 4] but tags of shape [2]"},
      {[](World& w) {
         crf_decode(w.none, ones({4, 4}));
       },
       "crf_decode: emissions of shape [0, 4], nothing to sum over"},
      {[](World& w) {
         crf_decode(w.cube, ones({4, 4}), {}, {}, w.ids);
       },
       "crf_decode: length 0 of emissions of shape [2, 3, 4]"},
      {[](World& w) {
         crf_decode(w.cube, ones({4, 4}), ones({3}));
       },
       "crf_decode: start of shape [3] for 4 tags"},
      {[](World& w) {
         crf_marginals(w.whole.unsqueeze(0), ones({3, 3}));
       },
       "crf_marginals: int64 emissions"},
      {[](World& w) {
         crf_log_likelihood(Tensors{w.matrix}, Tensors{}, ones({4, 4}));
       },
       "crf_log_likelihood: 1 chains with 0 lists of tags"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
