#include "reel/nn/init.h"

#include <algorithm>
#include <cmath>

#include "reel/autograd.h"
#include "reel/ops/linalg.h"
#include "reel/random.h"
#include "reel/xtensor.h"

namespace reel::nn::init {
namespace {

struct Fans {
  double in, out;
};
Fans fans(const char* op, const Tensor& tensor) {
  REEL_CHECK(tensor.dim() >= 2, op, ": fan-in and fan-out need at least 2 dimensions, got shape ", tensor.shape());
  double receptive_field = 1;
  for (int64_t d = 2; d < tensor.dim(); ++d) receptive_field *= static_cast<double>(tensor.size(d));
  return {tensor.size(1) * receptive_field, tensor.size(0) * receptive_field};
}

double xavier_std(const char* op, const Tensor& tensor, double gain) {
  const auto [in, out] = fans(op, tensor);
  return gain * std::sqrt(2 / (in + out));
}

double kaiming_std(const char* op, const Tensor& tensor, const KaimingOptions& options) {
  const auto [in, out] = fans(op, tensor);
  return calculate_gain(options.nonlinearity, options.a) / std::sqrt(options.mode == kFanIn ? in : out);
}

// A uniform variable on ±b has the standard deviation b / √3.
Tensor uniform_with_std(Tensor tensor, double std) {
  if (tensor.numel() == 0) return tensor;
  return uniform_(tensor, -std::sqrt(3) * std, std::sqrt(3) * std);
}
Tensor normal_with_std(Tensor tensor, double std) { return tensor.numel() == 0 ? tensor : normal_(tensor, 0, std); }

}  // namespace

double calculate_gain(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case kTanh: return 5.0 / 3;
    case kRelu: return std::sqrt(2);
    case kLeakyRelu: return std::sqrt(2 / (1 + negative_slope * negative_slope));
    case kSelu: return 0.75;
    default: return 1;
  }
}

Tensor uniform_(Tensor tensor, double low, double high) {
  NoGrad guard;
  return tensor.uniform_(low, high);
}
Tensor normal_(Tensor tensor, double mean, double std) {
  NoGrad guard;
  return tensor.normal_(mean, std);
}
Tensor constant_(Tensor tensor, double value) {
  NoGrad guard;
  return tensor.fill_(value);
}
Tensor zeros_(Tensor tensor) { return constant_(tensor, 0); }
Tensor ones_(Tensor tensor) { return constant_(tensor, 1); }

Tensor eye_(Tensor matrix) {
  REEL_CHECK(matrix.dim() == 2, "eye_: expected a matrix, got shape ", matrix.shape());
  NoGrad guard;
  return matrix.copy_(eye(matrix.size(0), matrix.size(1), {.dtype = matrix.dtype(), .device = matrix.device()}));
}

Tensor dirac_(Tensor weight, int64_t groups) {
  REEL_CHECK(weight.dim() >= 3 && weight.dim() <= 5, "dirac_: expected the weight of a convolution, got shape ",
             weight.shape());
  REEL_CHECK(groups > 0 && weight.size(0) % groups == 0, "dirac_: ", weight.size(0), " channels do not make ", groups,
             " groups");
  NoGrad guard;
  weight.zero_();
  const int64_t out = weight.size(0) / groups;
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t channel = 0; channel < std::min(out, weight.size(1)); ++channel) {
      Tensor kernel = weight.select(0, group * out + channel).select(0, channel);
      while (kernel.dim()) kernel = kernel.select(0, kernel.size(0) / 2);
      kernel.fill_(1);
    }
  return weight;
}

Tensor sparse_(Tensor matrix, double sparsity, double std) {
  REEL_CHECK(matrix.dim() == 2, "sparse_: expected a matrix, got shape ", matrix.shape());
  REEL_CHECK(sparsity >= 0 && sparsity <= 1, "sparse_: sparsity ", sparsity, " is not in [0, 1]");
  NoGrad guard;
  matrix.normal_(0, std);
  const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(matrix.size(0))));
  for (int64_t column = 0; column < matrix.size(1); ++column)
    matrix.index_put_({randperm(matrix.size(0)).narrow(0, 0, zeros), column}, 0);
  return matrix;
}

Tensor xavier_uniform_(Tensor tensor, double gain) {
  return uniform_with_std(tensor, xavier_std("xavier_uniform_", tensor, gain));
}
Tensor xavier_normal_(Tensor tensor, double gain) {
  return normal_with_std(tensor, xavier_std("xavier_normal_", tensor, gain));
}
Tensor kaiming_uniform_(Tensor tensor, KaimingOptions options) {
  return uniform_with_std(tensor, kaiming_std("kaiming_uniform_", tensor, options));
}
Tensor kaiming_normal_(Tensor tensor, KaimingOptions options) {
  return normal_with_std(tensor, kaiming_std("kaiming_normal_", tensor, options));
}

Tensor orthogonal_(Tensor tensor, double gain) {
  REEL_CHECK(tensor.dim() >= 2, "orthogonal_: expected at least 2 dimensions, got shape ", tensor.shape());
  if (tensor.numel() == 0) return tensor;
  NoGrad guard;
  const int64_t rows = tensor.size(0), cols = tensor.numel() / rows;
  const int64_t tall = std::max(rows, cols), wide = std::min(rows, cols);
  const Tensor normal = randn({tall, wide}, {.dtype = kFloat64});
  const auto [q, r] = linalg::qr(normal);
  auto matrix = view<double>(normal);
  const auto qs = view<double>(q), rs = view<double>(r);
  // With the signs of R's diagonal, Q is distributed uniformly over the orthogonal matrices (Mezzadri 2007).
  for (int64_t i = 0; i < tall; ++i)
    for (int64_t j = 0; j < wide; ++j) matrix(i, j) = gain * (rs(j, j) < 0 ? -qs(i, j) : qs(i, j));
  const Tensor result = rows < cols ? normal.t() : normal;
  return tensor.copy_(result.reshape(tensor.shape()).to(tensor.device()));
}

}  // namespace reel::nn::init
