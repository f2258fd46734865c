#include "reel/nn/norm.h"

#include <algorithm>
#include "lib/nn/repr.h"
#include "reel/autograd.h"
#include "reel/nn/init.h"
#include "reel/ops/norm.h"

namespace reel::nn {
namespace {

void set_ones_and_zeros(const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

void check_dims(const char* layer, int n, const Tensor& x, int64_t least, int64_t most) {
  REEL_CHECK(x.defined() && x.dim() >= least && x.dim() <= most, layer, n, "d: expected x with ", least, " to ", most,
             " dimensions, got ", x.defined() ? x.shape().to_string() : "an undefined tensor");
}

}  // namespace

// ---- BatchNorm and InstanceNorm -------------------------------------------------------------------------------------

template <class Derived>
RunningNorm<Derived>::RunningNorm(int64_t features, BatchNormOptions given)
    : num_features(features),
      options(given),
      weight(*this, "weight", given.affine ? empty({features}) : Tensor()),
      bias(*this, "bias", given.affine ? empty({features}) : Tensor()),
      running_mean(*this, "running_mean"),
      running_var(*this, "running_var"),
      num_batches_tracked(*this, "num_batches_tracked") {
  if (options.track_running_stats) {
    running_mean = empty({features});
    running_var = empty({features});
    num_batches_tracked = empty({}, {.dtype = kInt64});
  }
  reset_parameters();
}

template <class Derived>
void RunningNorm<Derived>::reset_running_stats() {
  if (!options.track_running_stats || this->is_folded()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}
template <class Derived>
void RunningNorm<Derived>::reset_parameters() {
  reset_running_stats();
  set_ones_and_zeros(weight, bias);
}

template <class Derived>
std::string RunningNorm<Derived>::extra_repr() const {
  return Repr(num_features)
      .add("eps", options.eps, "momentum", options.momentum, "affine", options.affine)
      .add("track_running_stats", options.track_running_stats)
      .add_unless(false, "channels_last", options.channels_last)
      .add_unless(false, "folded", this->is_folded())
      .text();
}

template <int N>
Tensor BatchNorm<N>::forward(const Tensor& x) const {
  if (this->is_folded()) [[unlikely]]
    return this->check_folded(x), x;
  check_dims("BatchNorm", N, x, N == 1 ? 2 : N + 2, N + 2);
  const Tensor &mean = this->running_mean, &variance = this->running_var;
  const BatchNormOptions& options = this->options;
  const bool tracks = this->is_training() && mean.defined();
  Tensor count = this->num_batches_tracked;
  double momentum = options.momentum.value_or(0);
  if (tracks && !options.momentum) momentum = 1 / (count.item<double>() + 1);
  Tensor y = batch_norm(x, mean, variance, this->weight, this->bias, this->is_training() || !mean.defined(), momentum,
                        options.eps, options.channels_last);
  if (tracks) count.add_(1);  // a call that failed does not count
  return y;
}
template <int N>
std::string BatchNorm<N>::name() const {
  return "BatchNorm" + std::to_string(N) + "d";
}

template <int N>
Tensor InstanceNorm<N>::forward(const Tensor& x) const {
  check_dims("InstanceNorm", N, x, N + 1, N + 2);
  if (x.dim() == N + 1) return forward(x.unsqueeze(0)).squeeze(0);
  const Tensor& mean = this->running_mean;
  return instance_norm(x, mean, this->running_var, this->weight, this->bias, this->is_training() || !mean.defined(),
                       *this->options.momentum, this->options.eps);
}
template <int N>
std::string InstanceNorm<N>::name() const {
  return "InstanceNorm" + std::to_string(N) + "d";
}

template struct RunningNorm<BatchNorm<1>>;
template struct RunningNorm<BatchNorm<2>>;
template struct RunningNorm<BatchNorm<3>>;
template struct RunningNorm<InstanceNorm<1>>;
template struct RunningNorm<InstanceNorm<2>>;
template struct RunningNorm<InstanceNorm<3>>;
template struct BatchNorm<1>;
template struct BatchNorm<2>;
template struct BatchNorm<3>;
template struct InstanceNorm<1>;
template struct InstanceNorm<2>;
template struct InstanceNorm<3>;

// ---- LayerNorm, RMSNorm, GroupNorm ----------------------------------------------------------------------------------

LayerNorm::LayerNorm(const Shape& shape, LayerNormOptions given)
    : normalized_shape(shape),
      options(given),
      weight(*this, "weight", given.elementwise_affine ? empty(shape) : Tensor()),
      bias(*this, "bias", given.elementwise_affine && given.bias ? empty(shape) : Tensor()) {
  reset_parameters();
}

void LayerNorm::reset_parameters() { set_ones_and_zeros(weight, bias); }
Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, normalized_shape, weight, bias, options.eps); }
std::string LayerNorm::extra_repr() const {
  return Repr(tuple(normalized_shape))
      .add("eps", options.eps, "elementwise_affine", options.elementwise_affine, "bias", bias.defined())
      .text();
}

RMSNorm::RMSNorm(const Shape& shape, RMSNormOptions given)
    : normalized_shape(shape),
      options(given),
      weight(*this, "weight", given.elementwise_affine ? empty(shape) : Tensor()) {
  reset_parameters();
}

void RMSNorm::reset_parameters() { set_ones_and_zeros(weight, {}); }
Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, normalized_shape, weight, options.eps); }
std::string RMSNorm::extra_repr() const {
  return Repr(tuple(normalized_shape)).add("eps", options.eps, "elementwise_affine", options.elementwise_affine).text();
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, GroupNormOptions given)
    : num_groups(groups),
      num_channels(channels),
      options(given),
      weight(*this, "weight", given.affine ? empty({channels}) : Tensor()),
      bias(*this, "bias", given.affine ? empty({channels}) : Tensor()) {
  REEL_CHECK(groups > 0 && channels % groups == 0, "GroupNorm: ", channels, " channels cannot be divided into ", groups,
             " groups");
  reset_parameters();
}
void GroupNorm::reset_parameters() { set_ones_and_zeros(weight, bias); }
Tensor GroupNorm::forward(const Tensor& x) const { return group_norm(x, num_groups, weight, bias, options.eps); }
std::string GroupNorm::extra_repr() const {
  return Repr(num_groups, num_channels).add("eps", options.eps, "affine", options.affine).text();
}

// ---- LocalResponseNorm ----------------------------------------------------------------------------------------------

Tensor LocalResponseNorm::forward(const Tensor& x) const {
  return local_response_norm(x, size, options.alpha, options.beta, options.k);
}
std::string LocalResponseNorm::extra_repr() const {
  return Repr(size).add("alpha", options.alpha, "beta", options.beta, "k", options.k).text();
}

Tensor CrossMapLRN2d::forward(const Tensor& x) const {
  const int64_t window = size % 2 ? size : size - 1;
  const double alpha = options.alpha * static_cast<double>(window) / static_cast<double>(size);
  return local_response_norm(x, window, alpha, options.beta, options.k);
}
std::string CrossMapLRN2d::extra_repr() const {
  return Repr(size).add("alpha", options.alpha, "beta", options.beta, "k", options.k).text();
}

}  // namespace reel::nn
