#include "reel/nn/activation.h"

#include <fmt/format.h>

#include "reel/ops.h"

namespace reel::nn {

// As Python prints it: 0.01, 1.0.
static std::string number(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string LeakyReLU::extra_repr() const { return "negative_slope=" + number(negative_slope); }
std::string ELU::extra_repr() const { return "alpha=" + number(alpha); }
std::string CELU::extra_repr() const { return "alpha=" + number(alpha); }
GELU::GELU(std::string given) : approximate(std::move(given)) {
  REEL_CHECK(approximate == "none" || approximate == "tanh", "GELU: approximate must be none or tanh, got ",
             approximate);
}
std::string GELU::extra_repr() const { return "approximate='" + approximate + "'"; }
std::string Hardtanh::extra_repr() const { return "min_val=" + number(min_val) + ", max_val=" + number(max_val); }
std::string Hardshrink::extra_repr() const { return number(lambda); }
std::string Softshrink::extra_repr() const { return number(lambda); }
std::string Softplus::extra_repr() const { return "beta=" + number(beta) + ", threshold=" + number(threshold); }
std::string Threshold::extra_repr() const { return "threshold=" + number(threshold) + ", value=" + number(value); }
std::string RReLU::extra_repr() const { return "lower=" + number(lower) + ", upper=" + number(upper); }
PReLU::PReLU(int64_t num_parameters, double init) : weight(*this, "weight", full({num_parameters}, init)) {}
std::string PReLU::extra_repr() const { return fmt::format("num_parameters={}", weight.numel()); }
std::string GLU::extra_repr() const { return fmt::format("dim={}", dim); }

std::string Softmax::extra_repr() const { return fmt::format("dim={}", dim); }
std::string LogSoftmax::extra_repr() const { return fmt::format("dim={}", dim); }
std::string Softmin::extra_repr() const { return fmt::format("dim={}", dim); }

Tensor Softmax2d::forward(const Tensor& x) const {
  REEL_CHECK(x.defined() && (x.dim() == 3 || x.dim() == 4),
             "Softmax2d: expected x of shape [N, C, H, W] or [C, H, W], got ",
             x.defined() ? x.shape().to_string() : "an undefined tensor");
  return softmax(x, -3);
}

std::string Flatten::extra_repr() const { return fmt::format("start_dim={}, end_dim={}", start_dim, end_dim); }
std::string Unflatten::extra_repr() const {
  return fmt::format("dim={}, unflattened_size=({})", dim,
                     fmt::join(unflattened_size.begin(), unflattened_size.end(), ", "));
}
Tensor Unflatten::forward(const Tensor& x) const {
  REEL_CHECK(x.defined() && dim >= -x.dim() && dim < x.dim(), "Unflatten: dim ", dim, " is out of range for ",
             x.defined() ? x.shape().to_string() : "an undefined tensor");
  const int at = static_cast<int>(dim < 0 ? dim + x.dim() : dim);
  Shape shape = x.shape();
  shape.erase(at);
  for (int i = 0; i < unflattened_size.size(); ++i) shape.insert(at + i, unflattened_size[i]);
  return x.reshape(shape);
}

}  // namespace reel::nn
