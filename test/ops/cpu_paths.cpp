// This file tests paths of CPU kernels that are for sizes and layouts of their own, against float64 and formulas.
#include <cmath>
#include <limits>

#include "reel/autograd.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/pch.h"
#include "test/support/threads.h"

using namespace reel;

namespace {

constexpr DType kTypes[] = {kFloat16, kBFloat16, kFloat32, kFloat64};

/// Returns by how much results of a type may differ from exact ones, as a share of the largest.
double tolerance(DType dtype) {
  return dtype == kFloat16 ? 2e-3 : dtype == kBFloat16 ? 1.6e-2 : dtype == kFloat32 ? 1e-5 : 1e-12;
}
/// Returns the largest difference between a and b, as a share of the largest element.
double error_of(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0) return a.shape() == b.shape() ? 0 : 1;
  const Tensor wide = b.detach().to(kFloat64);
  return (a.detach().to(kFloat64) - wide).abs().max().item<double>() / std::max(wide.abs().max().item<double>(), 1e-9);
}

/// Checks f and its gradients, for operands of each type, against those in float64 of contiguous operands.
template <class F>
void check_types(const std::vector<Tensor>& operands, const F& f, std::span<const DType> types = kTypes) {
  for (const DType dtype : types) {
    INFO("dtype " << dtype);
    std::vector<Tensor> given, exact;
    for (const Tensor& x : operands) {
      const Tensor rounded = x.is_floating_point() ? x.to(dtype) : x;
      given.push_back(rounded.detach());
      exact.push_back((x.is_floating_point() ? rounded.to(kFloat64) : rounded).contiguous().clone().detach());
      if (!x.is_floating_point()) continue;
      given.back().requires_grad_(), exact.back().requires_grad_();
    }
    const Tensor y = f(given), wanted = f(exact);
    REQUIRE(y.shape() == wanted.shape());
    CHECK(error_of(y, wanted) < tolerance(dtype));
    const Tensor g = randn(y.shape()).to(dtype);
    y.backward(g), wanted.backward(g.to(kFloat64));
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].is_floating_point()) CHECK(error_of(given[i].grad(), exact[i].grad()) < 2 * tolerance(dtype));
    CHECK(error_of(no_grad([&] { return f(given); }), wanted) < tolerance(dtype));
  }
}

/// Returns x with dimension 1 last in memory.
Tensor with_channels_last(const Tensor& x) { return x.movedim(1, -1).contiguous().movedim(-1, 1); }

}  // namespace

TEST_CASE("dot products and rows of halves are added up in float32", "[ops][isa]") {
  manual_seed(1);
  for (const int64_t n : {255, 256, 1000, 140000}) {
    check_types({randn({n}), randn({n})}, [](const auto& x) { return dot(x[0], x[1]); });
  }
  for (const int64_t k : {63, 64, 65, 300}) {
    check_types({randn({5, k}), randn({k})}, [](const auto& x) { return mv(x[0], x[1]); });
    check_types({randn({1, k}), randn({7, k}), randn({7})}, [](const auto& x) { return linear(x[0], x[1], x[2]); });
    check_types({randn({k, 6}).t(), randn({2 * k}).slice(0, 0, {}, 2)}, [](const auto& x) { return mv(x[0], x[1]); });
  }
  const Tensor inf = full({300}, std::numeric_limits<double>::infinity(), {.dtype = kBFloat16});
  CHECK(std::isnan(dot(inf, zeros({300}, {.dtype = kBFloat16})).item<double>()));
}

TEST_CASE("a Kronecker product with a narrow matrix is that of each pair of elements", "[ops][isa]") {
  manual_seed(2);
  const auto both = [](const auto& x) { return kron(x[0], x[1]); };
  for (const int64_t columns : {1, 2, 3, 8, 9}) {
    check_types({randn({3, 17}), randn({2, columns})}, both);
    check_types({randn({17, 3}).t(), randn({columns, 2}).t()}, both);
    check_types({randn({40}), randn({columns})}, both);
    check_types({randn({2, 3, 9}), randn({columns})}, both);
  }
  const Tensor a = randn({2, 9}), b = randn({3, 2}), y = kron(a, b);
  REQUIRE(y.shape() == Shape{6, 18});
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 18; ++j)
      CHECK(y.select(0, i).select(0, j).item<float>() ==
            a.select(0, i / 3).select(0, j / 2).item<float>() * b.select(0, i % 3).select(0, j % 2).item<float>());
  CHECK(kron(zeros({0, 9}), zeros({2, 2})).shape() == Shape{0, 18});
  // The second derivatives are checked, too.
  const auto second = [](const auto& product) {
    manual_seed(9);
    Tensor u = randn({2, 9}).to(kFloat64).requires_grad_(), v = randn({3, 2}).to(kFloat64).requires_grad_();
    const Tensor z = square(product(u, v)).sum();
    const std::vector<Tensor> first = grad({&z, 1}, std::vector<Tensor>{u, v}, {}, {.create_graph = true});
    (square(first[0]).sum() + square(first[1]).sum()).backward();
    return cat({u.grad().flatten(), v.grad().flatten()});
  };
  const Tensor wanted = second([](const Tensor& u, const Tensor& v) {
    return (u.reshape({2, 1, 9, 1}) * v.reshape({1, 3, 1, 2})).reshape({6, 18});
  });
  CHECK(error_of(second([](const Tensor& u, const Tensor& v) { return kron(u, v); }), wanted) < 1e-12);
}

TEST_CASE("channels that are convolved by themselves in one dimension", "[ops][isa]") {
  manual_seed(3);
  struct Case {
    int64_t n, channels, size, taps, padding, dilation, stride;
  };
  for (const Case& c : {Case{2, 3, 37, 5, 2, 1, 1}, Case{1, 2, 5, 5, 4, 1, 1}, Case{2, 2, 2100, 4, 3, 7, 1},
                        Case{3, 1, 16, 1, 0, 1, 1}, Case{1, 4, 50, 7, 3, 1, 2}, Case{1, 2, 9, 3, 0, 1, 1},
                        Case{1, 2, 40, 33, 16, 1, 1}, Case{1, 2, 1300, 3, 0, 400, 1}}) {
    const ConvOptions<1> options{
        .stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.channels};
    const Tensor x = randn({c.n, c.channels, c.size}), weight = randn({c.channels, 1, c.taps}),
                 bias = randn({c.channels});
    check_types({x, weight, bias}, [&](const auto& t) { return conv1d(t[0], t[1], t[2], options); });
    check_types({x, weight}, [&](const auto& t) { return conv1d(t[0], t[1], {}, options); });
    // It is a sum of products of shifted elements.
    if (c.stride != 1) continue;
    const Tensor padded = pad(x.to(kFloat64), {c.padding, c.padding}), y = conv1d(x, weight, bias, options);
    Tensor wanted = bias.to(kFloat64).reshape({1, -1, 1});
    for (int64_t k = 0; k < c.taps; ++k)
      wanted = wanted +
               padded.narrow(2, k * c.dilation, y.size(2)) * weight.to(kFloat64).narrow(2, k, 1).reshape({1, -1, 1});
    CHECK(error_of(y, wanted) < 1e-5);
  }
}

TEST_CASE("norms of halves round once", "[ops][isa]") {
  manual_seed(4);
  for (const Shape& shape : {Shape{3, 20, 35}, Shape{40, 33}, Shape{2, 16, 4, 4}, Shape{1, 5, 3}}) {
    const int64_t channels = shape[1];
    const Tensor x = randn(shape) * 3 + 1, weight = rand({channels}) + 1, bias = randn({channels});
    for (const bool training : {true, false}) {
      const Tensor mean = randn({channels}), variance = rand({channels}) + 1;
      check_types({x, weight, bias}, [&](const auto& t) {
        return batch_norm(t[0], mean.clone(), variance.clone(), t[1], t[2], training, 0.1, 1e-5);
      });
    }
    if (shape.size() > 2)
      check_types({x, weight, bias}, [&](const auto& t) { return group_norm(t[0], channels % 2 ? 1 : 2, t[1], t[2]); });
    const int64_t last = shape.back();
    check_types({x, rand({last}) + 1, randn({last})},
                [&](const auto& t) { return layer_norm(t[0], {last}, t[1], t[2]); });
    // Parameters may be float32 beside halves.
    for (const DType dtype : {kFloat16, kBFloat16}) {
      const Tensor half = x.to(dtype);
      const Tensor y = batch_norm(half, {}, {}, weight, bias, true),
                   exact = batch_norm(half.to(kFloat32), {}, {}, weight, bias, true);
      CHECK(equal(y, exact.to(dtype)));
    }
  }
}

TEST_CASE("pools of channels that are the last in memory", "[ops][isa]") {
  manual_seed(5);
  for (const int64_t channels : {7, 8, 19}) {
    const Tensor x = randn({3, channels, 26}), image = randn({2, channels, 9, 7});
    for (const Tensor& line : {x, with_channels_last(x), x.narrow(2, 1, 23)}) {
      check_types({line}, [](const auto& t) { return max_pool1d(t[0], 3, {.stride = 2, .padding = 1}); });
      check_types({line}, [](const auto& t) { return avg_pool1d(t[0], 3, {.stride = 2, .padding = 1}); });
      check_types({line}, [](const auto& t) { return adaptive_avg_pool1d(t[0], 4); });
      check_types({line}, [](const auto& t) { return adaptive_max_pool1d(t[0], 4); });
      CHECK(equal(max_pool1d_with_indices(line, 2, {}).indices,
                  max_pool1d_with_indices(line.contiguous(), 2, {}).indices));
    }
    for (const Tensor& plane : {image, with_channels_last(image)}) {
      check_types({plane}, [](const auto& t) { return max_pool2d(t[0], 3, {.stride = 2, .padding = 1}); });
      check_types({plane}, [](const auto& t) { return avg_pool2d(t[0], {3, 2}, {.padding = {1, 0}}); });
      check_types({plane}, [](const auto& t) { return adaptive_avg_pool2d(t[0], {4, 3}); });
    }
  }
  // Planes of halves are copied some at a time.
  check_types({randn({70, 3, 9, 11})}, [](const auto& t) { return max_pool2d(t[0], 2, {}); });
  check_types({randn({3, 2, 150, 90})}, [](const auto& t) { return avg_pool2d(t[0], 2, {}); });
  const Tensor nan = with_channels_last(full({1, 9, 4}, std::nan("")));
  CHECK(all(isnan(max_pool1d(nan, 2, {}))).item<bool>());
}

TEST_CASE("windows at random places have their maxima", "[ops]") {
  manual_seed(10);
  const Tensor x = randn({2, 5, 13, 9}), volume = randn({2, 3, 6, 7, 5}), samples = rand({2, 5, 2});
  const FractionalPoolOptions<2> planes{.output_size = {6, 4}, .random_samples = samples};
  for (const Tensor& image : {x, with_channels_last(x)})
    check_types({image}, [&](const auto& t) { return fractional_max_pool2d(t[0], {3, 2}, planes); });
  const FractionalPoolOptions<3> volumes{.output_size = {3, 4, 2}, .random_samples = rand({2, 3, 3})};
  check_types({volume}, [&](const auto& t) { return fractional_max_pool3d(t[0], {2, 3, 1}, volumes); });

  const auto [values, indices] = fractional_max_pool2d_with_indices(x, {3, 2}, planes);
  CHECK(equal(gather(x.flatten(2), 2, indices.flatten(2)), values.flatten(2)));
  // Windows begin at ⌊(i + s) α⌋ - ⌊s α⌋, the last at the end; the first sample is that of columns.
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 5; ++c) {
      const auto start = [&](int64_t i, int64_t out, double in, double kernel, int64_t dim) {
        const double s = samples.select(0, n).select(0, c).select(0, dim).item<double>();
        const double alpha = (in - kernel) / double(out - 1);
        return i == out - 1 ? int64_t(in - kernel)
                            : int64_t(std::floor((double(i) + s) * alpha) - std::floor(s * alpha));
      };
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t j = 0; j < 4; ++j) {
          const Tensor window =
              x.select(0, n).select(0, c).narrow(0, start(i, 6, 13, 3, 1), 3).narrow(1, start(j, 4, 9, 2, 0), 2);
          CHECK(max(window).item<float>() == values.select(0, n).select(0, c).select(0, i).select(0, j).item<float>());
        }
    }
  const Tensor nan = tensor({1.f, std::nanf(""), 3.f, 4.f}).reshape({1, 1, 2, 2});
  CHECK(fractional_max_pool2d_with_indices(nan, 2, {.output_size = 1}).indices.item<int64_t>() == 1);
}

TEST_CASE("lines are interpolated side by side", "[ops][isa]") {
  manual_seed(6);
  for (const Shape& shape : {Shape{1, 1, 13}, Shape{1, 15, 7}, Shape{2, 8, 5}, Shape{3, 11, 33}})
    for (const int64_t size : {1, 4, 20, 66})
      for (const Interpolation mode : {kNearest, Interpolation::kLinear})
        check_types({randn(shape)}, [&](const auto& t) { return interpolate(t[0], {.size = {size}, .mode = mode}); });
  check_types({randn({2, 3, 6, 5})}, [](const auto& t) {
    return interpolate(t[0], {.size = {11, 13}, .mode = kBicubic});
  });
  check_types({randn({2, 3, 6, 5})}, [](const auto& t) { return interpolate(t[0], {.size = {12, 10}}); });
}

TEST_CASE("losses of many elements are added up in blocks", "[ops]") {
  manual_seed(7);
  const Tensor a = randn({210, 190}), b = randn({210, 190}), sign = where(randn({210, 190}) > 0, 1., -1.);
  const Tensor positive = rand({210, 190}) + 0.5;
  const auto check = [&](const auto& loss) {
    for (const Reduction reduction : {kMean, kSum})
      for (const DType dtype : kTypes)
        for (const bool transposed : {false, true}) {
          INFO("dtype " << dtype);
          const auto laid = [&](const Tensor& x) {
            const Tensor y = x.to(dtype);
            return transposed ? y.t().contiguous().t() : y;
          };
          const auto wide = [&](const Tensor& x) { return x.to(dtype).to(kFloat64); };
          const Tensor y = loss(laid(a), laid(b), laid(sign), laid(positive), reduction);
          const Tensor each = loss(wide(a), wide(b), wide(sign), wide(positive), kNoReduction);
          CHECK(y.dtype() == dtype);
          CHECK(y.dim() == 0);
          const Tensor wanted = reduction == kMean ? mean(each) : sum(each);
          if (dtype != kFloat16 || std::abs(wanted.item<double>()) < 60000)
            CHECK(error_of(y, wanted) < tolerance(dtype));
          // One operand lies in another order.
          const Tensor mixed = loss(laid(a), b.to(dtype), laid(sign), laid(positive), reduction);
          if (dtype != kFloat16 || std::abs(wanted.item<double>()) < 60000)
            CHECK(error_of(mixed, y) < tolerance(dtype));
        }
  };
  check([](const auto& x, const auto& t, const auto&, const auto&, Reduction r) { return l1_loss(x, t, r); });
  check([](const auto& x, const auto& t, const auto&, const auto&, Reduction r) { return mse_loss(x, t, r); });
  check([](const auto& x, const auto& t, const auto&, const auto&, Reduction r) {
    return huber_loss(x, t, {.reduction = r});
  });
  check([](const auto& x, const auto& t, const auto&, const auto&, Reduction r) {
    return smooth_l1_loss(x, t, {.reduction = r});
  });
  check([](const auto& x, const auto&, const auto&, const auto& t, Reduction r) {
    return poisson_nll_loss(x, t, {.full = true, .reduction = r});
  });
  check([](const auto& x, const auto& t, const auto&, const auto& v, Reduction r) {
    return gaussian_nll_loss(x, t, v, {.reduction = r});
  });
  check([](const auto& x, const auto&, const auto& t, const auto&, Reduction r) { return soft_margin_loss(x, t, r); });
  check([](const auto& x, const auto&, const auto& t, const auto&, Reduction r) {
    return hinge_embedding_loss(x, t, {.reduction = r});
  });
  check([](const auto& x, const auto& y, const auto& t, const auto&, Reduction r) {
    return margin_ranking_loss(x, y, t, {.margin = 0.5, .reduction = r});
  });
  check([](const auto& x, const auto&, const auto&, const auto& t, Reduction r) {
    return kl_div(x, t, {.reduction = r});
  });
  CHECK(difference([&] { return Tensors{mse_loss(a, b), margin_ranking_loss(a, b, sign)}; }) == "");
}

TEST_CASE("cross entropies of many rows of few classes", "[ops][isa]") {
  manual_seed(11);
  constexpr DType kWide[] = {kFloat32, kFloat64};
  for (const int64_t classes : {2, 16, 32, 33})
    for (const int64_t rows : {255, 256, 1001}) {
      const Tensor logits = randn({rows, classes}) * 3;
      Tensor target = randint(0, classes, {rows});
      for (const bool ignores : {false, true}) {
        if (ignores) target.slice(0, 0, {}, 7).fill_(-100);
        for (const double smoothing : {0., 0.2})
          for (const Reduction reduction : {kMean, kSum, kNoReduction}) {
            const CrossEntropyLossOptions options{.reduction = reduction, .label_smoothing = smoothing};
            check_types(
                {logits}, [&](const auto& x) { return cross_entropy(x[0], target, options); }, kWide);
            const Tensor log_probs = log_softmax(logits.to(kFloat64), 1), counts = (target >= 0).to(kFloat64);
            const Tensor picked = gather(log_probs, 1, where(target < 0, 0, target).unsqueeze(1)).squeeze(1);
            const Tensor losses = -counts * ((1 - smoothing) * picked + smoothing * mean(log_probs, 1));
            const Tensor wanted = reduction == kNoReduction ? losses
                                  : reduction == kSum       ? sum(losses)
                                                            : sum(losses) / sum(counts);
            CHECK(error_of(cross_entropy(logits, target, options), wanted) < 1e-5);
          }
      }
    }
}

TEST_CASE("margins of several labels are those of all pairs", "[ops]") {
  manual_seed(8);
  for (const int64_t classes : {1, 2, 7, 40}) {
    Tensor labels = randint(0, classes, {9, classes});
    labels.select(0, 0).fill_(-1);
    if (classes > 2) labels.narrow(0, 1, 4).narrow(1, classes / 2, 1).fill_(-1);
    for (const DType dtype : {kFloat32, kFloat64}) {
      // Few different scores, so that some margins are met exactly.
      Tensor x = (randn({9, classes}) * 4).round().to(dtype) / 4;
      x.requires_grad_();
      const Tensor y = multilabel_margin_loss(x, labels, kNoReduction), g = rand({9}).to(dtype);
      y.backward(g);
      const auto score = [&](int64_t i, int64_t c) { return x.detach().select(0, i).select(0, c).item<double>(); };
      for (int64_t i = 0; i < 9; ++i) {
        std::vector<int64_t> targets;
        for (int64_t c = 0; c < classes; ++c) {
          const auto label = labels.select(0, i).select(0, c).item<int64_t>();
          if (label < 0) break;
          targets.push_back(label);
        }
        double total = 0;
        std::vector<double> slopes(size_t(classes), 0.);
        for (const int64_t t : targets)
          for (int64_t c = 0; c < classes; ++c) {
            const double gap = 1 - score(i, t) + score(i, c);
            if (std::find(targets.begin(), targets.end(), c) != targets.end() || gap <= 0) continue;
            total += gap, slopes[size_t(t)] -= 1, slopes[size_t(c)] += 1;
          }
        CHECK(std::abs(y.detach().select(0, i).item<double>() - total / double(classes)) < 1e-5 * (1 + total));
        for (int64_t c = 0; c < classes; ++c)
          CHECK(std::abs(x.grad().select(0, i).select(0, c).item<double>() -
                         g.select(0, i).item<double>() * slopes[size_t(c)] / double(classes)) < 1e-5);
      }
    }
  }
  const Tensor x = tensor({0.f, std::nanf(""), 1.f});
  CHECK(std::isnan(multilabel_margin_loss(x, tensor(std::vector<int64_t>{0, -1, 5})).item<float>()));
  CHECK_THROWS_AS(multilabel_margin_loss(zeros({3}), tensor(std::vector<int64_t>{0, 3, -1})), Error);
  CHECK(multilabel_margin_loss(zeros({3}), tensor(std::vector<int64_t>{0, -1, 3})).item<float>() > 0);
}

TEST_CASE("elements that lie apart are copied and flipped", "[ops][isa]") {
  constexpr int64_t kLongest = 131;
  for (const DType dtype : {kBool, kUInt8, kFloat16, kBFloat16, kInt32, kFloat32, kInt64, kFloat64}) {
    const auto number = [&](int64_t i) { return dtype == kBool ? i % 3 % 2 : i * 7 % 199; };
    std::vector<int64_t> numbers(3 * kLongest);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(static_cast<int64_t>(i));
    const Tensor all = tensor(numbers).to(dtype);
    const auto values = [](const Tensor& x) { return x.to(kInt64).to_vector<int64_t>(); };
    for (const int64_t n : {1, 2, 15, 16, 17, 32, 33, 64, 65, 131})
      for (const int64_t from_step : {0, 1, 2, 3}) {
        INFO(dtype << ", " << n << " elements, step " << from_step);
        const Tensor x = from_step ? all.slice(0, 0, n * from_step, from_step) : all.narrow(0, 1, 1).expand({n});
        const auto expected = [&](int64_t i) { return number(from_step ? i * from_step : 1); };
        std::vector<int64_t> there, back;
        for (int64_t i = 0; i < n; ++i) there.push_back(expected(i)), back.push_back(expected(n - 1 - i));
        CHECK(values(x.clone()) == there);
        CHECK(values(flip(x, 0)) == back);
        for (const int64_t to_step : {1, 2, 3}) {
          INFO("to step " << to_step);
          Tensor y = full({n * to_step}, 1, {.dtype = dtype});
          y.slice(0, 0, n * to_step, to_step).copy_(x);
          std::vector<int64_t> whole(static_cast<size_t>(n * to_step), 1);
          for (int64_t i = 0; i < n; ++i) whole[static_cast<size_t>(i * to_step)] = expected(i);
          CHECK(values(y) == whole);
          std::vector<int64_t> rows;
          for (int64_t i = 0; i < n * to_step; ++i) rows.push_back(expected(i / to_step));
          CHECK(values(stack(std::vector<Tensor>(static_cast<size_t>(to_step), x), 1)) == rows);
        }
      }
  }
}

TEST_CASE("short rows are copied and converted by columns", "[ops][isa]") {
  manual_seed(1);
  for (const DType from : {kBool, kFloat16, kFloat32, kInt64})
    for (const DType to : {kBool, kBFloat16, kFloat32, kFloat64})
      for (const int64_t rows : {1, 15, 16, 300, 30000})
        for (const int64_t columns : {1, 2, 3, 7, 8}) {
          INFO(from << " to " << to << ", " << rows << " rows of " << columns);
          const Tensor base = randint(0, 5, {2, columns, rows}).to(from);
          const Tensor narrow = randint(0, 5, {2, rows, columns + 1}).to(from).narrow(2, 0, columns);
          for (const Tensor& x :
               {base.transpose(1, 2), narrow, narrow.select(1, 0).unsqueeze(1).expand({2, rows, columns})}) {
            const std::vector<int64_t> numbers = x.to(kInt64).reshape({x.numel()}).to_vector<int64_t>();
            std::vector<int64_t> wanted;
            for (int64_t i = 0; i < 2; ++i)
              for (int64_t j = 0; j < std::min<int64_t>(rows, 20); ++j)
                for (int64_t k = 0; k < columns; ++k) {
                  const int64_t number = x.select(0, i).select(0, j).select(0, k).item<int64_t>();
                  wanted.push_back(to == kBool ? number != 0 : number);
                  CHECK(numbers[static_cast<size_t>((i * rows + j) * columns + k)] == number);
                }
            const auto first = [&](const Tensor& y) {
              const Tensor rows_of = y.narrow(1, 0, std::min<int64_t>(rows, 20));
              return rows_of.to(kInt64).reshape({rows_of.numel()}).to_vector<int64_t>();
            };
            CHECK(first(x.to(to)) == wanted);
            Tensor y = zeros({2, rows, 2 * columns}, {.dtype = to});
            y.slice(2, 0, 2 * columns, 2).copy_(x);
            CHECK(first(y.slice(2, 0, 2 * columns, 2)) == wanted);
            CHECK(y.slice(2, 1, 2 * columns, 2).to(kInt64).sum().item<int64_t>() == 0);
          }
        }
}

TEST_CASE("transposed matrices are copied to elements that lie apart", "[ops][isa]") {
  for (const DType dtype : {kUInt8, kBFloat16, kFloat32, kFloat64})
    for (const int64_t rows : {8, 9, 64, 130})
      for (const int64_t columns : {8, 17, 65, 100})
        for (const int64_t step : {1, 2, 3}) {
          INFO(dtype << ", " << rows << " x " << columns << ", step " << step);
          std::vector<int64_t> numbers(static_cast<size_t>(2 * rows * columns));
          for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 7 % 199);
          const Tensor x = tensor(numbers).to(dtype).view({2, columns, rows}).transpose(1, 2);
          Tensor y = full({2, rows, columns, step}, 1, {.dtype = dtype});
          y.select(3, 0).copy_(x), y.narrow(3, step - 1, 1).copy_(x.unsqueeze(3));
          const std::vector<int64_t> result = y.to(kInt64).reshape({y.numel()}).to_vector<int64_t>();
          std::vector<int64_t> wanted;
          for (int64_t i = 0; i < 2; ++i)
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t c = 0; c < columns; ++c)
                for (int64_t k = 0; k < step; ++k)
                  wanted.push_back(k == 0 || k == step - 1 ? numbers[static_cast<size_t>((i * columns + c) * rows + r)]
                                                           : 1);
          CHECK(result == wanted);
        }
}

TEST_CASE("blocks on a diagonal may be empty and of different types", "[ops]") {
  const Tensor half = full({2, 1}, 3, {.dtype = kBFloat16}), row = ones({2});
  const Tensor y = block_diag({half, zeros({0, 2}), row, zeros({1, 0})});
  CHECK(y.dtype() == kFloat32);
  CHECK(y.shape() == Shape{4, 5});
  CHECK(y.reshape({20}).to_vector<double>() ==
        std::vector<double>{3, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0});
  const Tensor x = half.detach().requires_grad_(), z = ones({2}).requires_grad_();
  block_diag({x, arange(2), z}).sum().backward();
  CHECK(x.grad().dtype() == kBFloat16);
  CHECK(x.grad().to(kFloat64).sum().item<double>() == 2);
  CHECK(z.grad().to_vector<double>() == std::vector<double>{1, 1});
}

TEST_CASE("triangles of extreme diagonals are all or nothing", "[ops]") {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  for (const Tensor& x : {randn({3, 5}), randn({5, 3}), randn({2, 4, 4})}) {
    for (const int64_t diagonal : {kLowest, int64_t{-5}, int64_t{5}, kHighest}) {
      CHECK(equal(tril(x, diagonal), diagonal > 0 ? x : zeros_like(x)));
      CHECK(equal(triu(x, diagonal), diagonal > 0 ? zeros_like(x) : x));
    }
  }
  CHECK(tril(zeros({0, 3})).shape() == Shape{0, 3});
}

TEST_CASE("gradients of tensors that are repeated twice are added up", "[ops][isa]") {
  manual_seed(1);
  for (const int64_t columns : {1, 2, 33}) {
    const Tensor x = randn({3, 1, columns}), wide = randn({columns, 1, 3}).transpose(0, 2), number = randn({});
    check_types({x}, [&](const auto& x) { return x[0].expand({3, 2, columns}); });
    check_types({x}, [&](const auto& x) { return x[0].expand({2, 3, 1, columns}).transpose(0, 3); });
    check_types({wide}, [&](const auto& x) { return x[0].expand({2, 3, 2, columns}); });
    check_types({number}, [&](const auto& x) { return x[0].expand({2}); });
  }
  const Tensor none = zeros({0, 1}).requires_grad_();
  none.expand({0, 2}).sum().backward();
  CHECK(none.grad().shape() == Shape{0, 1});
}
