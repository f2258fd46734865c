#include "reel/nn/conv.h"

#include <cmath>

#include "lib/nn/by_dims.h"
#include "lib/nn/repr.h"
#include "lib/ops/fused.h"
#include "reel/nn/init.h"
#include "reel/ops/rearrange.h"

namespace reel::nn {
namespace {

const char* name_of(PadMode mode) {
  constexpr const char* names[] = {"zeros", "reflect", "replicate", "circular"};
  return names[static_cast<int>(mode)];
}

/// What both kinds refuse; returns the shape of a weight for `rows` channels, with in_channels / groups or
/// out_channels / groups as `columns`.
template <int N>
Shape weight_shape(const char* op, int64_t in, int64_t out, int64_t groups, const PerDim<N>& kernel, bool transposed) {
  REEL_CHECK(groups >= 1, op, ": ", groups, " groups");
  REEL_CHECK(in >= 1 && in % groups == 0, op, ": ", in, " input channels do not divide into ", groups, " groups");
  REEL_CHECK(out >= 1 && out % groups == 0, op, ": ", out, " output channels do not divide into ", groups, " groups");
  Shape shape = transposed ? Shape{in, out / groups} : Shape{out, in / groups};
  for (const int64_t size : kernel.values) {
    REEL_CHECK(size >= 1, op, ": kernel_size ", kernel);
    shape.push_back(size);
  }
  return shape;
}

void reset(const Tensor& weight, const Tensor& bias) {
  const int64_t fan_in = weight.numel() / weight.size(0);
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

constexpr const char *kConvNames[] = {"Conv1d", "Conv2d", "Conv3d"},
                     *kTransposeNames[] = {"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"};

using internal::convolve;

}  // namespace

// ---- Conv -----------------------------------------------------------------------------------------------------------

template <int N>
Conv<N>::Conv(int64_t in, int64_t out, PerDim<N> kernel, ConvLayerOptions<N> given)
    : in_channels(in),
      out_channels(out),
      kernel_size(kernel),
      options(given),
      weight(*this, "weight", empty(weight_shape(kConvNames[N - 1], in, out, given.groups, kernel, false))),
      bias(*this, "bias", given.bias ? empty({out}) : Tensor()) {
  REEL_CHECK(given.padding.rule != kSame || given.stride == PerDim<N>(1), kConvNames[N - 1],
             ": padding kSame needs stride 1, got ", given.stride);
  reset_parameters();
}

template <int N>
void Conv<N>::reset_parameters() {
  reset(weight, bias);
}

template <int N>
Tensor Conv<N>::forward(const Tensor& x) const {
  ConvOptions<N> call{options.stride, options.padding, options.dilation, options.groups, options.channels_last};
  const auto run = [&](const Tensor& padded) {
    if (relu_follows_) [[unlikely]]
      return conv_before_relu(padded, weight, bias, call);
    return convolve<N>(padded, weight, bias, call);
  };
  if (options.padding_mode == kZeros) return run(x);
  std::vector<int64_t> amounts;  // from the last dimension on
  for (int d = N - 1; d >= 0; --d) {
    const int64_t reach = options.dilation[d] * (kernel_size[d] - 1), amount = options.padding.amount[d];
    const bool same = options.padding.rule == kSame;
    amounts.push_back(same ? reach / 2 : amount);
    amounts.push_back(same ? reach - reach / 2 : amount);
  }
  call.padding = 0;
  if (!options.channels_last) return run(pad(x, amounts, options.padding_mode));
  // pad takes the sizes last.
  REEL_CHECK(x.defined() && x.dim() > N, name(), ": expected x with ", N + 1, " or ", N + 2, " dimensions");
  const Tensor padded = pad(movedim(x, -1, -1 - N), amounts, options.padding_mode);
  return run(movedim(padded, -1 - N, -1));
}

template <int N>
std::string Conv<N>::name() const {
  return kConvNames[N - 1];
}

template <int N>
std::string Conv<N>::extra_repr() const {
  Repr repr(in_channels, out_channels);
  repr.add("kernel_size", kernel_size, "stride", options.stride);
  if (options.padding.rule == kSame)
    repr.add("padding", "same");
  else
    repr.add_unless(0, "padding", options.padding.amount);
  repr.add_unless(1, "dilation", options.dilation).add_unless(1, "groups", options.groups);
  repr.add_unless(true, "bias", bias.defined());
  if (options.padding_mode != kZeros) repr.add("padding_mode", name_of(options.padding_mode));
  return repr.add_unless(false, "channels_last", options.channels_last).text();
}

template struct Conv<1>;
template struct Conv<2>;
template struct Conv<3>;

// ---- ConvTranspose --------------------------------------------------------------------------------------------------

template <int N>
ConvTranspose<N>::ConvTranspose(int64_t in, int64_t out, PerDim<N> kernel, ConvTransposeLayerOptions<N> given)
    : in_channels(in),
      out_channels(out),
      kernel_size(kernel),
      options(given),
      weight(*this, "weight", empty(weight_shape(kTransposeNames[N - 1], in, out, given.groups, kernel, true))),
      bias(*this, "bias", given.bias ? empty({out}) : Tensor()) {
  reset_parameters();
}

template <int N>
void ConvTranspose<N>::reset_parameters() {
  reset(weight, bias);
}

template <int N>
Tensor ConvTranspose<N>::forward(const Tensor& x, std::optional<PerDim<N>> output_size) const {
  ConvTransposeOptions<N> call{options.stride, options.padding,  options.output_padding,
                               options.groups, options.dilation, options.channels_last};
  if (output_size) {
    REEL_CHECK(x.defined() && (x.dim() == N + 1 || x.dim() == N + 2), name(), ": expected x with ", N + 1, " or ",
               N + 2, " dimensions");
    for (int d = 0; d < N; ++d) {
      const int64_t least = (x.size(d - N - options.channels_last) - 1) * options.stride[d] - 2 * options.padding[d] +
                            options.dilation[d] * (kernel_size[d] - 1) + 1;
      call.output_padding.values[d] = (*output_size)[d] - least;
      REEL_CHECK((*output_size)[d] >= least && (*output_size)[d] < least + options.stride[d], name(), ": output_size ",
                 *output_size, " for x of shape ", x.shape(), "; dimension ", d, " can have ", least, " to ",
                 least + options.stride[d] - 1);
    }
  }
  return convolve<N>(x, weight, bias, call);
}

template <int N>
std::string ConvTranspose<N>::name() const {
  return kTransposeNames[N - 1];
}

template <int N>
std::string ConvTranspose<N>::extra_repr() const {
  return Repr(in_channels, out_channels)
      .add("kernel_size", kernel_size, "stride", options.stride)
      .add_unless(0, "padding", options.padding)
      .add_unless(1, "dilation", options.dilation)
      .add_unless(0, "output_padding", options.output_padding)
      .add_unless(1, "groups", options.groups)
      .add_unless(true, "bias", bias.defined())
      .add_unless(false, "channels_last", options.channels_last)
      .text();
}

template struct ConvTranspose<1>;
template struct ConvTranspose<2>;
template struct ConvTranspose<3>;

// ---- Unfold and Fold ------------------------------------------------------------------------------------------------

namespace {

std::string describe(const PerDim<2>& kernel_size, const UnfoldOptions& options) {
  return "kernel_size=" + number_or_tuple(kernel_size) + ", dilation=" + number_or_tuple(options.dilation) +
         ", padding=" + number_or_tuple(options.padding) + ", stride=" + number_or_tuple(options.stride);
}

}  // namespace

Tensor Unfold::forward(const Tensor& x) const { return unfold(x, kernel_size, options); }
std::string Unfold::extra_repr() const { return describe(kernel_size, options); }

Tensor Fold::forward(const Tensor& x) const { return fold(x, output_size, kernel_size, options); }
std::string Fold::extra_repr() const {
  return "output_size=" + number_or_tuple(output_size) + ", " + describe(kernel_size, options);
}

}  // namespace reel::nn
