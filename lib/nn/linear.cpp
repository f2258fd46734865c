#include "reel/nn/linear.h"

#include <cmath>

#include "lib/nn/repr.h"
#include "lib/ops/fused.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {

// ---- Linear ---------------------------------------------------------------------------------------------------------

Linear::Linear(int64_t in, int64_t out, LinearOptions options)
    : in_features(in),
      out_features(out),
      weight(*this, "weight", empty({out, in})),
      bias(*this, "bias", options.bias ? empty({out}) : Tensor()) {
  reset_parameters();
}

void Linear::reset_parameters() {
  const double bound = in_features > 0 ? 1 / std::sqrt(in_features) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) const {
  return relu_follows_ ? linear_before_relu(x, weight, bias) : linear(x, weight, bias);
}

std::string Linear::extra_repr() const {
  return Repr().add("in_features", in_features, "out_features", out_features, "bias", bias.defined()).text();
}

// ---- Bilinear -------------------------------------------------------------------------------------------------------

Bilinear::Bilinear(int64_t in1, int64_t in2, int64_t out, BilinearOptions options)
    : in1_features(in1),
      in2_features(in2),
      out_features(out),
      weight(*this, "weight", empty({out, in1, in2})),
      bias(*this, "bias", options.bias ? empty({out}) : Tensor()) {
  reset_parameters();
}

void Bilinear::reset_parameters() {
  const double bound = in1_features > 0 ? 1 / std::sqrt(in1_features) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Bilinear::forward(const Tensor& x1, const Tensor& x2) const { return bilinear(x1, x2, weight, bias); }

std::string Bilinear::extra_repr() const {
  return Repr()
      .add("in1_features", in1_features, "in2_features", in2_features)
      .add("out_features", out_features, "bias", bias.defined())
      .text();
}

}  // namespace reel::nn
