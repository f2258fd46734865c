#include "test/support/op_rows.h"

namespace reel {
namespace {

// ---- references -----------------------------------------------------------------------------------------------------

template <class F>
Array pairs(const Array& a, const Array& b, F f) {
  Shape shape = a.shape.size() < b.shape.size() ? b.shape : a.shape;
  return build(shape, [&](const Index& at) { return f(ref::broadcast(a, at), ref::broadcast(b, at)); });
}
Array mean_of(const Array& x) { return fold(x, {}, ref::average); }
Array sum_of(const Array& x) { return fold(x, {}, ref::total); }
double positive(double x) { return std::max(x, 0.); }
double sign_of(double bit) { return bit ? 1 : -1; }
double huber(double d, double delta) { return d < delta ? d * d / 2 : delta * (d - delta / 2); }

/// Of logits [n, classes, d…]: for each row its loss, and how much it counts.
struct Weighed {
  Array losses, counts;
};
Weighed cross_entropies(const Array& x, const Array& target, const Line& weight, double ignored, double smoothing) {
  const Array log_probs = along(x, 1, ref::log_softmax);
  const auto loss = [&](const Index& row, bool count) {
    const double y = target(row);
    if (y == ignored) return 0.;
    if (count) return weight[size_t(y)];
    Index at = row;
    at.insert(1, int64_t(y));
    double sum = -(1 - smoothing) * weight[size_t(y)] * log_probs(at);
    for (size_t c = 0; c < weight.size(); ++c)
      sum -= smoothing / double(weight.size()) * weight[c] * log_probs(with(at, 1, double(c)));
    return sum;
  };
  return {build(target.shape, [&](const Index& at) { return loss(at, false); }),
          build(target.shape, [&](const Index& at) { return loss(at, true); })};
}
Array weighed_mean(const Weighed& rows) { return {{}, {ref::total(rows.losses.data) / ref::total(rows.counts.data)}}; }

double distance(const Array& a, const Array& b, int64_t i, int64_t j, double p, double eps) {
  Line gaps;
  for (int64_t k = 0; k < a.shape[1]; ++k) gaps.push_back(a({i, k}) - b({j, k}) + eps);
  return ref::norm(gaps, p);
}
double cosine(const Array& a, const Array& b, int64_t i) {
  double product = 0, aa = 0, bb = 0;
  for (int64_t k = 0; k < a.shape[1]; ++k) {
    const double x = a({i, k}), y = b({i, k});
    product += x * y, aa += x * x, bb += y * y;
  }
  return product / std::sqrt(aa * bb);
}

}  // namespace

// clang-format off
const std::vector<Row>& loss_rows() {
  static const std::vector<Row> rows{

{"nll_loss", [](In x) { return nll_loss(x[0], x[1]); },
 [](Ref x) { return fold(ref::negative_log_likelihood(x[0], x[1]), {}, ref::average); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(sum)", [](In x) { return nll_loss(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::negative_log_likelihood(x[0], x[1]), {}, ref::total); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(none)", [](In x) { return nll_loss(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::negative_log_likelihood(x[0], x[1]); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(one)", [](In x) { return nll_loss(x[0], x[1]); },
 [](Ref x) { return ref::negative_log_likelihood(x[0], x[1]); }, {{{4}}, ids({}, 4)}},
{"cross_entropy", [](In x) { return cross_entropy(x[0], x[1]); },
 [](Ref x) { return fold(ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]), {}, ref::average); },
 {{{5, 3}}, ids({5}, 3)}},
{"cross_entropy(sum)", [](In x) { return cross_entropy(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]), {}, ref::total); },
 {{{3, 19}}, ids({3}, 19)}},
{"cross_entropy(none)", [](In x) { return cross_entropy(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]); }, {{{5, 3}}, ids({5}, 3)}},
{"cross_entropy(one)", [](In x) { return cross_entropy(x[0], x[1]); },
 [](Ref x) { return ref::negative_log_likelihood(along(x[0], 0, ref::log_softmax), x[1]); }, {{{4}}, ids({}, 4)}},
{"mse_loss", [](In x) { return mse_loss(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::squared_error), {}, ref::average); }, {{kMatrix}, {kMatrix}}},
{"mse_loss(none)", [](In x) { return mse_loss(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::zip(x[0], x[1], ref::squared_error); }, {{kMatrix}, {kMatrix}}},
{"binary_cross_entropy", [](In x) { return binary_cross_entropy(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::cross_entropy), {}, ref::average); },
 {{kMatrix, 0.1, 0.9}, {kMatrix, 0, 1}}},
{"binary_cross_entropy(none)", [](In x) { return binary_cross_entropy(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::zip(x[0], x[1], ref::cross_entropy); }, {{kMatrix, 0.1, 0.9}, {kMatrix, 0, 1}}},
{"binary_cross_entropy_with_logits", [](In x) { return binary_cross_entropy_with_logits(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::cross_entropy_of_logit), {}, ref::total); },
 {{kMatrix, -4, 4}, {kMatrix, 0, 1}}},

// ---- classes with weights, targets that do not count, smoothing and further dimensions

{"nll_loss(weight)", [](In x) { return nll_loss(log_softmax(x[0], 1), x[1], {.weight = x[2], .ignore_index = 2}); },
 [](Ref x) { return weighed_mean(cross_entropies(x[0], x[1], x[2].data, 2, 0)); },
 {{{7, 4}}, ids({7}, 4), {{4}, 0.5, 2}}, kProduct},
{"nll_loss(spatial)",
 [](In x) { return nll_loss(log_softmax(x[0], 1), x[1], {.ignore_index = 0, .reduction = kNoReduction}); },
 [](Ref x) { return cross_entropies(x[0], x[1], Line(3, 1), 0, 0).losses; }, {{{2, 3, 4}}, ids({2, 4}, 3)}},
{"cross_entropy(weight)", [](In x) { return cross_entropy(x[0], x[1], {.weight = x[2]}); },
 [](Ref x) { return weighed_mean(cross_entropies(x[0], x[1], x[2].data, -1, 0)); },
 {{{7, 4}}, ids({7}, 4), {{4}, 0.5, 2}}, kProduct},
{"cross_entropy(ignore)", [](In x) { return cross_entropy(x[0], x[1], {.ignore_index = 1}); },
 [](Ref x) { return weighed_mean(cross_entropies(x[0], x[1], Line(4, 1), 1, 0)); }, {{{7, 4}}, ids({7}, 4)}},
{"cross_entropy(smooth)", [](In x) { return cross_entropy(x[0], x[1], {.ignore_index = 1, .label_smoothing = 0.2}); },
 [](Ref x) { return weighed_mean(cross_entropies(x[0], x[1], Line(19, 1), 1, 0.2)); }, {{{5, 19}}, ids({5}, 4)}},
{"cross_entropy(weight, smooth)",
 [](In x) {
   return cross_entropy(x[0], x[1], {.weight = x[2], .ignore_index = 1, .reduction = kSum, .label_smoothing = 0.1});
 },
 [](Ref x) { return sum_of(cross_entropies(x[0], x[1], x[2].data, 1, 0.1).losses); },
 {{{7, 4}}, ids({7}, 4), {{4}, 0.5, 2}}, kProduct},
{"cross_entropy(spatial)",
 [](In x) { return cross_entropy(x[0], x[1], {.ignore_index = 1, .reduction = kNoReduction, .label_smoothing = 0.1}); },
 [](Ref x) { return cross_entropies(x[0], x[1], Line(3, 1), 1, 0.1).losses; }, {{{2, 3, 2, 4}}, ids({2, 2, 4}, 3)}},
{"cross_entropy(probabilities)",
 [](In x) { return cross_entropy(x[0], x[1], {.weight = x[2], .label_smoothing = 0.1}); },
 [](Ref x) {
   const Array log_probs = along(x[0], 1, ref::log_softmax);
   return mean_of(build({2, 4}, [&](const Index& at) {
     double loss = 0;
     for (int64_t c = 0; c < 3; ++c)
       loss -= x[2]({c}) * (0.9 * x[1]({at[0], c, at[1]}) + 0.1 / 3) * log_probs({at[0], c, at[1]});
     return loss;
   }));
 },
 {{{2, 3, 4}}, {{2, 3, 4}, 0, 1}, {{3}, 0.5, 2}}},
{"cross_entropy(one row of probabilities)", [](In x) { return cross_entropy(x[0], x[1], kNoReduction); },
 [](Ref x) {
   double loss = 0;
   for (size_t c = 0; c < 4; ++c) loss -= x[1].data[c] * ref::log_softmax(x[0].data)[c];
   return Array{{}, {loss}};
 },
 {{{4}}, {{4}, 0, 1}}},
{"multi_margin_loss", [](In x) { return multi_margin_loss(x[0], x[1], {.p = 2, .margin = 1.5, .weight = x[2]}); },
 [](Ref x) {
   return mean_of(build({5}, [&](const Index& at) {
     const int64_t i = at[0], y = int64_t(x[1](at));
     double loss = 0;
     for (int64_t c = 0; c < 4; ++c)
       if (c != y) loss += x[2]({y}) * std::pow(positive(1.5 - x[0]({i, y}) + x[0]({i, c})), 2) / 4;
     return loss;
   }));
 },
 {{{5, 4}}, ids({5}, 4), {{4}, 0.5, 2}}, kProduct},
{"multi_margin_loss(one)", [](In x) { return multi_margin_loss(x[0], x[1], {.margin = 3}); },
 [](Ref x) {
   double loss = -3. / 4;
   for (double score : x[0].data) loss += positive(3 - x[0]({int64_t(x[1]({}))}) + score) / 4;
   return Array{{}, {loss}};
 },
 {{{4}}, ids({}, 4)}},
{"multilabel_margin_loss", [](In x) { return multilabel_margin_loss(x[0], x[1], kNoReduction); },
 [](Ref x) {
   return build({4}, [&](const Index& at) {
     const int64_t i = at[0], classes = 5;
     std::vector<int64_t> named;
     for (int64_t k = 0; k < classes && x[1]({i, k}) >= 0; ++k) named.push_back(int64_t(x[1]({i, k})));
     double loss = 0;
     for (const int64_t y : named)
       for (int64_t c = 0; c < classes; ++c)
         if (std::find(named.begin(), named.end(), c) == named.end())
           loss += positive(1 - x[0]({i, y}) + x[0]({i, c})) / double(classes);
     return loss;
   });
 },
 {{{4, 5}}, ids({4, 5}, 5, -1)}},
{"multilabel_soft_margin_loss", [](In x) { return multilabel_soft_margin_loss(x[0], x[1], {.weight = x[2]}); },
 [](Ref x) {
   return mean_of(build(kMatrix, [&](const Index& at) {
     return x[2]({at[1]}) * ref::cross_entropy_of_logit(x[0](at), x[1](at));
   }));
 },
 {{kMatrix}, {kMatrix, 0, 1}, {{4}, 0.5, 2}}},

// ---- differences

{"l1_loss", [](In x) { return l1_loss(x[0], x[1]); },
 [](Ref x) { return mean_of(pairs(x[0], x[1], [](double a, double b) { return std::abs(a - b); })); },
 {{kMatrix}, {kMatrix}}},
{"mse_loss(number)", [](In x) { return mse_loss(x[0], x[1], kSum); },
 [](Ref x) { return sum_of(pairs(x[0], x[1], ref::squared_error)); }, {{kMatrix}, {{}}}},
{"smooth_l1_loss", [](In x) { return smooth_l1_loss(x[0], x[1], {.beta = 0.7, .reduction = kNoReduction}); },
 [](Ref x) { return pairs(x[0], x[1], [](double a, double b) { return huber(std::abs(a - b), 0.7) / 0.7; }); },
 {{kMatrix}, {kMatrix}}},
{"huber_loss", [](In x) { return huber_loss(x[0], x[1], {.delta = 1.3}); },
 [](Ref x) { return mean_of(pairs(x[0], x[1], [](double a, double b) { return huber(std::abs(a - b), 1.3); })); },
 {{kMatrix}, {kMatrix, -4, 4}}},

// ---- probabilities

{"binary_cross_entropy(weight)", [](In x) { return binary_cross_entropy(x[0], x[1], {.weight = x[2]}); },
 [](Ref x) { return mean_of(pairs(x[2], pairs(x[0], x[1], ref::cross_entropy), std::multiplies<>())); },
 {{kMatrix, 0.1, 0.9}, {kMatrix, 0, 1}, {{4}, 0.5, 2}}},
{"binary_cross_entropy_with_logits(weight)",
 [](In x) {
   return binary_cross_entropy_with_logits(x[0], x[1], {.weight = x[2], .pos_weight = x[3], .reduction = kNoReduction});
 },
 [](Ref x) {
   return build(kMatrix, [&](const Index& at) {
     const double z = x[0](at), t = x[1](at);
     return x[2](at) * ((1 - t) * std::log1p(std::exp(z)) + x[3]({at[1]}) * t * std::log1p(std::exp(-z)));
   });
 },
 {{kMatrix, -4, 4}, {kMatrix, 0, 1}, {kMatrix, 0.5, 2}, {{4}, 0.5, 2}}},
{"kl_div", [](In x) { return kl_div(x[0], x[1], kBatchMean); },
 [](Ref x) {
   const auto term = [](double input, double t) { return t * (std::log(t) - input); };
   return Array{{}, {sum_of(pairs(x[0], x[1], term)).data[0] / 3}};
 },
 {{kMatrix}, {kMatrix, 0.1, 1}}},
{"kl_div(log_target)", [](In x) { return kl_div(x[0], x[1], {.log_target = true, .reduction = kSum}); },
 [](Ref x) { return sum_of(pairs(x[0], x[1], [](double a, double t) { return std::exp(t) * (t - a); })); },
 {{kMatrix}, {kMatrix, -2, 0}}},
{"poisson_nll_loss", [](In x) { return poisson_nll_loss(x[0], x[1], {.full = true}); },
 [](Ref x) {
   return mean_of(pairs(x[0], x[1], [](double a, double t) {
     const double stirling = t > 1 ? t * std::log(t) - t + std::log(2 * std::acos(-1.) * t) / 2 : 0;
     return std::exp(a) - t * a + stirling;
   }));
 },
 {{kMatrix}, {kMatrix, 0, 5}}},
{"poisson_nll_loss(rate)",
 [](In x) { return poisson_nll_loss(x[0], x[1], {.log_input = false, .eps = 0.01, .reduction = kNoReduction}); },
 [](Ref x) { return pairs(x[0], x[1], [](double a, double t) { return a - t * std::log(a + 0.01); }); },
 {{kMatrix, 0.5, 3}, {kMatrix, 0, 5}}},
{"gaussian_nll_loss", [](In x) { return gaussian_nll_loss(x[0], x[1], x[2], {.full = true, .reduction = kNoReduction}); },
 [](Ref x) {
   return build(kMatrix, [&](const Index& at) {
     const double v = x[2]({at[0]});
     return (std::log(2 * std::acos(-1.) * v) + ref::squared_error(x[0](at), x[1](at)) / v) / 2;
   });
 },
 {{kMatrix}, {kMatrix}, {{3}, 0.5, 2}}, kProduct},

// ---- margins

{"soft_margin_loss", [](In x) { return soft_margin_loss(x[0], where(x[1], 1, -1)); },
 [](Ref x) { return mean_of(pairs(x[0], x[1], [](double a, double t) { return std::log1p(std::exp(-sign_of(t) * a)); })); },
 {{kMatrix}, mask(kMatrix)}},
{"hinge_embedding_loss", [](In x) { return hinge_embedding_loss(x[0], where(x[1], 1, -1), {.margin = 0.6}); },
 [](Ref x) { return mean_of(pairs(x[0], x[1], [](double a, double t) { return t ? a : positive(0.6 - a); })); },
 {{kMatrix}, mask(kMatrix)}},
{"margin_ranking_loss",
 [](In x) { return margin_ranking_loss(x[0], x[1], where(x[2], 1, -1), {.margin = 0.4, .reduction = kNoReduction}); },
 [](Ref x) {
   return build(kMatrix, [&](const Index& at) { return positive(0.4 - sign_of(x[2](at)) * (x[0](at) - x[1](at))); });
 },
 {{kMatrix}, {kMatrix}, mask(kMatrix)}},
{"cosine_embedding_loss",
 [](In x) { return cosine_embedding_loss(x[0], x[1], where(x[2], 1, -1), {.margin = -0.7, .reduction = kSum}); },
 [](Ref x) {
   return sum_of(build({3}, [&](const Index& at) {
     const double similarity = cosine(x[0], x[1], at[0]);
     return x[2](at) ? 1 - similarity : positive(similarity + 0.7);
   }));
 },
 {{kMatrix}, {kMatrix}, mask({3})}, kProduct},
{"triplet_margin_loss",
 [](In x) {
   return triplet_margin_loss(x[0], x[1], x[2],
                              {.margin = 3, .p = 3, .eps = 0.01, .swap = true, .reduction = kNoReduction});
 },
 [](Ref x) {
   return build({3}, [&](const Index& at) {
     const auto gap = [&](int a, int b) { return distance(x[size_t(a)], x[size_t(b)], at[0], at[0], 3, 0.01); };
     return positive(3 + gap(0, 1) - std::min(gap(0, 2), gap(1, 2)));
   });
 },
 {{kMatrix}, {kMatrix}, {kMatrix, -3, 1}}, kProduct},
{"triplet_margin_with_distance_loss",
 [](In x) {
   const auto cosine = [](const Tensor& a, const Tensor& b) { return 1 - cosine_similarity(a, b); };
   return triplet_margin_with_distance_loss(x[0], x[1], x[2], {.distance = cosine, .margin = 2});
 },
 [](Ref x) {
   return mean_of(build({3}, [&](const Index& at) {
     return positive(2 - cosine(x[0], x[1], at[0]) + cosine(x[0], x[2], at[0]));
   }));
 },
 {{kMatrix}, {kMatrix}, {kMatrix, -3, 1}}, kProduct},

};
  return rows;
}
// clang-format on

}  // namespace reel
