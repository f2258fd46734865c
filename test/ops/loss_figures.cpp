#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "reel/autograd.h"
#include "reel/nn/sampled.h"
#include "reel/ops.h"
#include "reel/random.h"

// Losses against PyTorch's figures: reference/loss.py made reference/loss.txt, and says what its lines are.
namespace reel {
namespace {

Tensor made(const Shape& shape, const std::function<double(double i)>& f) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(f(static_cast<double>(i)));
  return tensor(values, shape);
}
Tensor wave(double phase, const Shape& shape, double scale = 2, double middle = 0) {
  return made(shape, [=](double i) { return middle + scale * std::sin(1.7 * i + phase); });
}
double checksum(const Tensor& x) {
  return x.defined() ? sum(x.flatten() * made({x.numel()}, [](double i) { return std::cos(i); })).item<double>() : 0;
}

struct Case {
  std::function<Tensor(const Tensor& x)> f;
  Tensor x;
};

std::map<std::string, Case> cases() {
  std::map<std::string, Case> all;
  const auto add = [&](const std::string& name, std::function<Tensor(const Tensor&)> f, const Tensor& x) {
    all[name] = {std::move(f), x};
  };
  const Tensor x = wave(0.1, {5, 4}), y = wave(0.7, {5, 4}), z = wave(1.1, {5, 4}), v = wave(0.4, {5, 4}, 0.9, 1);
  const Tensor p = wave(0.2, {5, 4}, 0.4, 0.5), q = wave(0.9, {5, 4}, 0.5, 0.5), w = wave(0.5, {4}, 0.5, 1);
  const Tensor t = tensor({2, 0, 3, 1, 2}), signs = tensor({1, -1, -1, 1, 1}), grid = sign(wave(0.3, {5, 4}));
  const Tensor labels = tensor({{1, 3, -1, 0}, {0, -1, 2, 2}, {3, 2, 1, 0}, {-1, 0, 0, 0}, {2, 2, -1, 1}});
  const Tensor deep = wave(0.6, {2, 4, 3, 2}), deep_t = tensor({{{0, 1}, {2, 3}, {3, 1}}, {{2, 2}, {0, 3}, {1, 1}}});
  const Tensor steps = log_softmax(wave(0.8, {6, 4, 5}), -1);
  const Tensor padded = tensor({{1, 1, 2}, {3, 4, 0}, {0, 0, 0}, {2, 2, 2}}), joined = tensor({1, 1, 2, 3, 4, 2, 2, 2});
  const Tensor ins = tensor({6, 5, 4, 3}), outs = tensor({3, 2, 0, 3});
  const auto manhattan = [](const Tensor& a, const Tensor& b) { return sum(abs(a - b), -1); };

  for (const auto& [how, r] :
       {std::pair<std::string, Reduction>{" mean", kMean}, {" sum", kSum}, {" none", kNoReduction}}) {
    add(
        "l1" + how, [=, r = r](auto& a) { return l1_loss(a, y, r); }, x);
    add(
        "mse" + how, [=, r = r](auto& a) { return mse_loss(a, y, r); }, x);
    add(
        "smooth_l1" + how,
        [=, r = r](auto& a) {
          return smooth_l1_loss(a, y, {1.5, r});
        },
        x);
    add(
        "huber" + how,
        [=, r = r](auto& a) {
          return huber_loss(a, y, {1.5, r});
        },
        x);
    add(
        "soft_margin" + how, [=, r = r](auto& a) { return soft_margin_loss(a, grid, r); }, x);
    for (const int k : {1, 2}) {
      const std::string power = "p=" + std::to_string(k) + how;
      add(
          "multi_margin " + power,
          [=, r = r](auto& a) {
            return multi_margin_loss(a, t, {k, 0.8, {}, r});
          },
          x);
      add(
          "multi_margin weight " + power,
          [=, r = r](auto& a) {
            return multi_margin_loss(a, t, {k, 1, w, r});
          },
          x);
    }
    add(
        "multilabel_margin" + how, [=, r = r](auto& a) { return multilabel_margin_loss(a, labels, r); }, x);
    add(
        "multilabel_soft_margin" + how,
        [=, r = r](auto& a) {
          return multilabel_soft_margin_loss(a, q, {w, r});
        },
        x);
    add(
        "hinge_embedding" + how,
        [=, r = r](auto& a) {
          return hinge_embedding_loss(a, grid, {0.6, r});
        },
        x);
    add(
        "margin_ranking" + how,
        [=, r = r](auto& a) {
          return margin_ranking_loss(a, y, grid, {0.3, r});
        },
        x);
    add(
        "cosine_embedding" + how,
        [=, r = r](auto& a) {
          return cosine_embedding_loss(a, y, signs, {-0.5, r});
        },
        x);
    for (const bool swap : {false, true}) {
      const std::string swapped = swap ? "swap=1" + how : "swap=0" + how;
      add(
          "triplet " + swapped,
          [=, r = r](auto& a) {
            return triplet_margin_loss(a, y, z, {2, 3, 0.01, swap, r});
          },
          x);
      add(
          "triplet distance " + swapped,
          [=, r = r](auto& a) {
            return triplet_margin_with_distance_loss(a, y, z, {manhattan, 1, swap, r});
          },
          x);
    }
    add(
        "bce" + how,
        [=, r = r](auto& a) {
          return binary_cross_entropy(a, q, {w, r});
        },
        p);
    add(
        "bce_with_logits" + how, [=, r = r](auto& a) { return binary_cross_entropy_with_logits(a, q, r); }, x);
    add(
        "bce_with_logits weight" + how,
        [=, r = r](auto& a) {
          return binary_cross_entropy_with_logits(a, q, {v, w, r});
        },
        x);
    for (const bool weighted : {false, true})
      for (const bool ignoring : {false, true}) {
        const Tensor weight = weighted ? w : Tensor();
        const int64_t ignore = ignoring ? 2 : -100;
        const std::string kind = std::string(weighted ? " weight" : "") + (ignoring ? " ignore" : "");
        add(
            "nll" + kind + how,
            [=, r = r](auto& a) {
              return nll_loss(a, t, {weight, ignore, r});
            },
            x);
        add(
            "nll deep" + kind + how,
            [=, r = r](auto& a) {
              return nll_loss(a, deep_t, {weight, ignore, r});
            },
            deep);
        for (const double s : {0., 0.2}) {
          const std::string rest = kind + (s == 0 ? " smoothing=0.0" : " smoothing=0.2") + how;
          add(
              "cross_entropy" + rest,
              [=, r = r](auto& a) {
                return cross_entropy(a, t, {weight, ignore, r, s});
              },
              x);
          add(
              "cross_entropy deep" + rest,
              [=, r = r](auto& a) {
                return cross_entropy(a, deep_t.to(kInt32), {weight, ignore, r, s});
              },
              deep);
        }
      }
    add(
        "cross_entropy probabilities" + how,
        [=, r = r](auto& a) {
          return cross_entropy(a, q, {w, -100, r, 0.2});
        },
        x);
    add(
        "cross_entropy one" + how,
        [=, r = r](auto& a) {
          return cross_entropy(a, t[0], {w, -100, r, 0.2});
        },
        x[0]);
    add(
        "nll one" + how,
        [=, r = r](auto& a) {
          return nll_loss(a, t[0], {w, -100, r});
        },
        x[0]);
    add(
        "multi_margin one" + how,
        [=, r = r](auto& a) {
          return multi_margin_loss(a, t[0], {1, 1, {}, r});
        },
        x[0]);
    add(
        "multilabel_margin one" + how, [=, r = r](auto& a) { return multilabel_margin_loss(a, labels[0], r); }, x[0]);
    add(
        "kl_div log" + how,
        [=, r = r](auto& a) {
          return kl_div(a, y, {true, r});
        },
        x);
    add(
        "kl_div" + how,
        [=, r = r](auto& a) {
          return kl_div(a, relu(y), {false, r});
        },
        x);
    add(
        "poisson" + how,
        [=, r = r](auto& a) {
          return poisson_nll_loss(a, v * 2, {true, true, 1e-8, r});
        },
        x);
    add(
        "poisson rate" + how,
        [=, r = r](auto& a) {
          return poisson_nll_loss(a, v, {false, false, 1e-3, r});
        },
        p);
    add(
        "gaussian" + how,
        [=, r = r](auto& a) {
          return gaussian_nll_loss(a, y, v, {true, 1e-6, r});
        },
        x);
    add(
        "ctc" + how,
        [=, r = r](auto& a) {
          const auto three = [](const Tensor& t) { return t.narrow(0, 0, 3); };
          return ctc_loss(a.narrow(1, 0, 3), three(padded), three(ins), three(outs), {0, r});
        },
        steps);
    add(
        "ctc zero_infinity" + how,
        [=, r = r](auto& a) {
          return ctc_loss(a, joined, ins, outs, {0, r, true});
        },
        steps);
    add(
        "ctc one blank=4" + how,
        [=, r = r](auto& a) {
          return ctc_loss(a, padded[0], ins[0], outs[0], {4, r});
        },
        steps.select(1, 0));
    add(
        "gaussian rows" + how,
        [=, r = r](auto& a) {
          return gaussian_nll_loss(a, y, v.select(1, 0), {false, 0.5, r});
        },
        x);
    add(
        "gaussian var" + how,
        [=, r = r](auto& a) {
          return gaussian_nll_loss(x, y, a, {false, 0.5, r});
        },
        v);
  }
  add(
      "kl_div batchmean",
      [=](auto& a) {
        return kl_div(a, relu(y), {false, kBatchMean});
      },
      x);
  add(
      "cosine_similarity", [=](auto& a) { return cosine_similarity(a, y, 0); }, x);
  add(
      "cosine_similarity broadcast", [=](auto& a) { return cosine_similarity(a.unsqueeze(1), y.unsqueeze(0), -1, 2); },
      x);
  add(
      "cosine_similarity rank", [=](auto& a) { return cosine_similarity(a, y[0], 0); }, x);
  add(
      "pairwise_distance",
      [=](auto& a) {
        return pairwise_distance(a, y, {3, 0.1, true});
      },
      x);
  for (const auto& [name, k] :
       {std::pair<const char*, double>{"0.5", 0.5}, {"1", 1}, {"2", 2}, {"3", 3}, {"inf", INFINITY}})
    add(
        std::string("cdist p=") + name, [=, k = k](auto& a) { return cdist(a, y.narrow(0, 0, 3), k); }, x);

  const auto adaptive = std::make_shared<nn::AdaptiveLogSoftmaxWithLoss>(
      8, 20, std::vector<int64_t>{4, 10}, nn::AdaptiveLogSoftmaxWithLossOptions{.div_value = 2, .head_bias = true});
  adaptive->to(kFloat64);
  double phase = 0;
  for (auto& [path, parameter] : adaptive->named_parameters()) {
    no_grad([&, &parameter = parameter] { parameter.copy_(wave(phase, parameter.shape(), 0.5)); });
    phase += 0.1;
  }
  const Tensor many = wave(0.2, {6, 8}), rare = tensor({3, 12, 0, 19, 4, 9});
  add(
      "adaptive output", [=](auto& a) { return (*adaptive)(a, rare).output; }, many);
  add(
      "adaptive loss", [=](auto& a) { return (*adaptive)(a, rare).loss; }, many);
  add(
      "adaptive log_prob", [=](auto& a) { return adaptive->log_prob(a); }, many);
  add(
      "adaptive predict", [=](auto& a) { return adaptive->predict(a) + 0 * a.select(1, 0); }, many);
  return all;
}

}  // namespace

TEST_CASE("losses and distances have PyTorch's values and gradients", "[ops]") {
  std::ifstream file("test/reference/loss.txt");
  std::map<std::string, Case> all = cases();
  double value, slope;
  std::string name;
  while (file >> value >> slope && std::getline(file >> std::ws, name)) {
    INFO(name);
    const auto found = all.find(name);
    REQUIRE(found != all.end());
    const Tensor x = found->second.x.detach().clone().requires_grad_(), y = found->second.f(x);
    y.backward(made(y.shape(), [](double i) { return std::sin(i + 1); }));
    CHECK(checksum(y) == Approx(value).margin(1e-12));
    CHECK(checksum(x.grad()) == Approx(slope).margin(1e-9));
    all.erase(found);
  }
  for (const auto& [left, c] : all) FAIL_CHECK(left << " is not in test/reference/loss.txt");
}

TEST_CASE("losses at the edges of their targets", "[ops]") {
  const Tensor x = tensor({{1., 2.}, {3., 5.}}), none = tensor({-100, -100});
  CHECK(std::isnan(cross_entropy(x, none).item<double>()));
  CHECK(cross_entropy(x, none, kSum).item<double>() == 0);
  CHECK(std::isnan(nll_loss(x, none).item<double>()));
  // What is ignored may be infinite.
  const Tensor wild = tensor({{1., 2.}, {-double(INFINITY), double(NAN)}}).requires_grad_();
  const Tensor loss = cross_entropy(wild, tensor({0, -100}), {.label_smoothing = 0.1});
  CHECK(loss.item<double>() == Approx(cross_entropy(x[0], 0, {.label_smoothing = 0.1}).item<double>()));
  loss.backward();
  CHECK(wild.grad()[1].to_vector<double>() == std::vector<double>{0, 0});
  // A weight of 0 for every target that occurs leaves nothing to divide by.
  CHECK(std::isnan(cross_entropy(x, tensor({1, 1}), {.weight = tensor({1., 0.})}).item<double>()));
  // A class that cannot be has an infinite loss, also where labels are smoothed.
  const Tensor impossible = tensor({2., -HUGE_VAL, -1.});
  for (const double smoothing : {0., 0.1})
    for (const int64_t target : {1, 0})
      CHECK((cross_entropy(impossible, tensor(target), {.label_smoothing = smoothing}).item<double>() == HUGE_VAL) ==
            (target == 1 || smoothing > 0));
  // Large logits of either sign neither overflow nor lose the loss.
  const Tensor large = tensor({1000., -1000.});
  CHECK(binary_cross_entropy_with_logits(large, tensor({0., 1.}),
                                         {.pos_weight = tensor({2., 2.}), .reduction = kNoReduction})
            .to_vector<double>() == std::vector<double>{1000, 2000});
  CHECK(soft_margin_loss(large, tensor({-1., 1.})).item<double>() == 1000);
}

TEST_CASE("the logistic loss of a confident right answer is not rounded away", "[ops]") {
  const auto loss = [](double x, double t, const BCEWithLogitsLossOptions& options = {}) {
    return binary_cross_entropy_with_logits(tensor({x}), tensor({t}), options).item<double>();
  };
  for (const double x : {12., 16., 30.}) {
    CHECK(loss(x, 1) == Approx(std::log1p(std::exp(-x))).epsilon(1e-5));
    CHECK(loss(-x, 0) == Approx(std::log1p(std::exp(-x))).epsilon(1e-5));
    CHECK(loss(x, 1, {.pos_weight = tensor({3.})}) == Approx(3 * std::log1p(std::exp(-x))).epsilon(1e-5));
  }
  const Tensor zero = zeros({1}, {.requires_grad = true});
  binary_cross_entropy_with_logits(zero, tensor({1.})).backward();
  CHECK(zero.grad().item<double>() == -0.5);
}

TEST_CASE("label smoothing does not see what all logits have in common", "[ops]") {
  CHECK(cross_entropy(full({1, 4}, 1e38), tensor({2}), {.label_smoothing = 0.1}).item<double>() ==
        Approx(std::log(4.)));
  const Tensor x = randn({1, 1000});
  CHECK(cross_entropy(round(x) + 65536, tensor({2}), {.label_smoothing = 0.1}).item<double>() ==
        Approx(cross_entropy(round(x), tensor({2}), {.label_smoothing = 0.1}).item<double>()).epsilon(1e-6));
}

TEST_CASE("Huber's loss is curved where input and target are equal", "[ops]") {
  const auto curvature = [](auto loss) {
    const Tensor x = zeros({1}, {.requires_grad = true});
    const Tensor slope = grad({loss(x, zeros({1}))}, {x}, {}, {.create_graph = true})[0];
    return grad({slope}, {x})[0].template item<double>();
  };
  CHECK(curvature([](const Tensor& x, const Tensor& t) { return huber_loss(x, t); }) == 1);
  CHECK(curvature([](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t, {.beta = 0.5}); }) == 2);
}

TEST_CASE("cross entropy of the pixels of images is that of rows", "[ops]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const double smoothing : {0., 0.1})
      for (const int64_t classes : {1, 3, 70}) {
        INFO(dtype << ", smoothing " << smoothing << ", " << classes << " classes");
        const Tensor images = randn({2, 9, 13, classes}).to(dtype).requires_grad_();  // the classes are moved in front
        const Tensor t = floor(rand({2, 9, 13}) * (classes + 1)).to(kInt64) - 1;      // -1 is ignored
        const Tensor g = rand({2, 9, 13}).to(dtype);
        const CrossEntropyLossOptions options{
            .ignore_index = -1, .reduction = kNoReduction, .label_smoothing = smoothing};
        const Tensor x = images.permute({0, 3, 1, 2}), rows = images.flatten(0, 2);
        const Tensor losses = cross_entropy(x, t, options), expected = cross_entropy(rows, t.flatten(), options);
        const double tolerance = dtype == kBFloat16 ? 2e-2 : 1e-5;
        CHECK(allclose(losses.flatten(), expected, tolerance, tolerance));
        const Tensor gx = grad({losses}, {images}, {g}, {.retain_graph = true})[0],
                     gr = grad({expected}, {images}, {g.flatten()}, {.retain_graph = true})[0];
        CHECK(allclose(gx, gr, tolerance, tolerance));
        const CrossEntropyLossOptions mean{.ignore_index = -1, .label_smoothing = smoothing};
        CHECK(allclose(grad({cross_entropy(x, t, mean)}, {images})[0],
                       grad({cross_entropy(rows, t.flatten(), mean)}, {images})[0], tolerance, tolerance));
      }
}

TEST_CASE("softmax along any dimension is that of rows", "[ops]") {
  Tensor x = randn({3, 70, 5, 21}, {.dtype = kFloat64});
  x[0].select(1, 0).fill_(-INFINITY), x[1][3].fill_(INFINITY), x[2][4][1].fill_(NAN);
  for (const DType dtype : {kFloat32, kFloat64, kFloat16})
    for (int64_t dim = 0; dim < 4; ++dim) {
      INFO(dtype << ", dimension " << dim);
      const Tensor in = x.to(dtype).clone().requires_grad_(), g = randn(x.shape()).to(dtype);
      const double tolerance = dtype == kFloat16 ? 2e-3 : 1e-5;
      const auto same = [&](const Tensor& a, const Tensor& b) { return allclose(a, b, tolerance, tolerance, true); };
      for (const auto f : {softmax, log_softmax}) {
        const Tensor y = f(in, dim), expected = movedim(f(movedim(in, dim, -1), -1), -1, dim);
        CHECK(same(y, expected));
        CHECK(same(grad({y}, {in}, {g})[0], grad({expected}, {in}, {g})[0]));
      }
    }
}

}  // namespace reel
