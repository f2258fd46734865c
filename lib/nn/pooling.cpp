#include "reel/nn/pooling.h"

#include "lib/nn/by_dims.h"
#include "lib/nn/repr.h"

namespace reel::nn {
namespace {

using internal::pick;

template <int N>
PerDim<N> stride_of(PerDim<N> stride, PerDim<N> kernel_size) {
  for (int i = 0; i < N; ++i)
    if (stride.values[i] == 0) stride.values[i] = kernel_size[i];
  return stride;
}

/// "kernel_size=3, stride=2, padding=0"
template <int N, class Options>
std::string windows(PerDim<N> kernel_size, const Options& options) {
  const PerDim<N> stride = stride_of(options.stride, kernel_size);
  return Repr()
      .add("kernel_size", number_or_tuple(kernel_size), "stride", number_or_tuple(stride))
      .add("padding", number_or_tuple(options.padding))
      .add_unless(false, "channels_last", options.channels_last)
      .text();
}

/// Output sizes; -1 is None.
template <int N>
std::string output(PerDim<N> size, const AdaptivePoolOptions& options) {
  const auto one = [](int64_t s) { return s == -1 ? "None" : std::to_string(s); };
  std::string all = one(size[0]);
  if (size != PerDim<N>(size[0])) {
    for (int i = 1; i < N; ++i) all += ", " + one(size[i]);
    all = "(" + all + ")";
  }
  return Repr().add("output_size", all).add_unless(false, "channels_last", options.channels_last).text();
}

}  // namespace

// ---- maxima ---------------------------------------------------------------------------------------------------------

template <int N>
Tensor MaxPool<N>::forward(const Tensor& x) const {
  return pick<N>(max_pool1d, max_pool2d, max_pool3d)(x, kernel_size, options);
}
template <int N>
ValuesIndices MaxPool<N>::forward_with_indices(const Tensor& x) const {
  return pick<N>(max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices)(x, kernel_size, options);
}
template <int N>
std::string MaxPool<N>::name() const {
  return "MaxPool" + std::to_string(N) + "d";
}
template <int N>
std::string MaxPool<N>::extra_repr() const {
  return Repr(windows(kernel_size, options))
      .add("dilation", number_or_tuple(options.dilation))
      .add("ceil_mode", options.ceil_mode)
      .text();
}

template struct MaxPool<1>;
template struct MaxPool<2>;
template struct MaxPool<3>;

template <int N>
Tensor MaxUnpool<N>::forward(const Tensor& x, const Tensor& indices) const {
  return forward(x, indices, options.output_size);
}
template <int N>
Tensor MaxUnpool<N>::forward(const Tensor& x, const Tensor& indices, PerDim<N> output_size) const {
  return pick<N>(max_unpool1d, max_unpool2d, max_unpool3d)(
      x, indices, kernel_size,
      MaxUnpoolOptions<N>{options.stride, options.padding, output_size, options.channels_last});
}
template <int N>
std::string MaxUnpool<N>::name() const {
  return "MaxUnpool" + std::to_string(N) + "d";
}
template <int N>
std::string MaxUnpool<N>::extra_repr() const {
  return windows(kernel_size, options);
}

template struct MaxUnpool<1>;
template struct MaxUnpool<2>;
template struct MaxUnpool<3>;

template <int N>
Tensor AdaptiveMaxPool<N>::forward(const Tensor& x) const {
  return pick<N>(adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d)(x, output_size, options);
}
template <int N>
ValuesIndices AdaptiveMaxPool<N>::forward_with_indices(const Tensor& x) const {
  return pick<N>(adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices)(
      x, output_size, options);
}
template <int N>
std::string AdaptiveMaxPool<N>::name() const {
  return "AdaptiveMaxPool" + std::to_string(N) + "d";
}
template <int N>
std::string AdaptiveMaxPool<N>::extra_repr() const {
  return output(output_size, options);
}

template struct AdaptiveMaxPool<1>;
template struct AdaptiveMaxPool<2>;
template struct AdaptiveMaxPool<3>;

template <int N>
Tensor FractionalMaxPool<N>::forward(const Tensor& x) const {
  return forward_with_indices(x).values;
}
template <int N>
ValuesIndices FractionalMaxPool<N>::forward_with_indices(const Tensor& x) const {
  return pick<N>(nullptr, fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices)(x, kernel_size,
                                                                                                  options);
}
template <int N>
std::string FractionalMaxPool<N>::name() const {
  return "FractionalMaxPool" + std::to_string(N) + "d";
}
template <int N>
std::string FractionalMaxPool<N>::extra_repr() const {
  return {};
}

template struct FractionalMaxPool<2>;
template struct FractionalMaxPool<3>;

// ---- averages -------------------------------------------------------------------------------------------------------

template <int N>
Tensor AvgPool<N>::forward(const Tensor& x) const {
  return pick<N>(avg_pool1d, avg_pool2d, avg_pool3d)(x, kernel_size, options);
}
template <int N>
std::string AvgPool<N>::name() const {
  return "AvgPool" + std::to_string(N) + "d";
}
template <int N>
std::string AvgPool<N>::extra_repr() const {
  return windows(kernel_size, options);
}

template struct AvgPool<1>;
template struct AvgPool<2>;
template struct AvgPool<3>;

template <int N>
Tensor AdaptiveAvgPool<N>::forward(const Tensor& x) const {
  return pick<N>(adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)(x, output_size, options);
}
template <int N>
std::string AdaptiveAvgPool<N>::name() const {
  return "AdaptiveAvgPool" + std::to_string(N) + "d";
}
template <int N>
std::string AdaptiveAvgPool<N>::extra_repr() const {
  return output(output_size, options);
}

template struct AdaptiveAvgPool<1>;
template struct AdaptiveAvgPool<2>;
template struct AdaptiveAvgPool<3>;

template <int N>
Tensor LPPool<N>::forward(const Tensor& x) const {
  return pick<N>(lp_pool1d, lp_pool2d, lp_pool3d)(x, norm_type, kernel_size, options);
}
template <int N>
std::string LPPool<N>::name() const {
  return "LPPool" + std::to_string(N) + "d";
}
template <int N>
std::string LPPool<N>::extra_repr() const {
  return Repr()
      .add("norm_type", norm_type, "kernel_size", number_or_tuple(kernel_size))
      .add("stride", options.stride == PerDim<N>(0) ? "None" : number_or_tuple(options.stride))
      .add("ceil_mode", options.ceil_mode)
      .add_unless(false, "channels_last", options.channels_last)
      .text();
}

template struct LPPool<1>;
template struct LPPool<2>;
template struct LPPool<3>;

}  // namespace reel::nn
