#include "reel/nn/padding.h"

#include <vector>

#include "lib/nn/repr.h"

namespace reel::nn {
namespace {

template <int N>
Tensor padded(const Tensor& x, const PerDim<N>& amounts, PadMode mode, double value) {
  return pad(x, std::vector<int64_t>(std::begin(amounts.values), std::end(amounts.values)), mode, value);
}

}  // namespace

template <int N, PadMode kMode>
Tensor Padding<N, kMode>::forward(const Tensor& x) const {
  return padded(x, padding, kMode, 0);
}

template <int N, PadMode kMode>
std::string Padding<N, kMode>::name() const {
  constexpr const char* kinds[] = {"ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"};
  return kinds[static_cast<int>(kMode)] + std::to_string(N) + "d";
}

template <int N, PadMode kMode>
std::string Padding<N, kMode>::extra_repr() const {
  return tuple(padding.values);
}

template <int N>
Tensor ConstantPad<N>::forward(const Tensor& x) const {
  return padded(x, padding, kConstant, value);
}

template <int N>
std::string ConstantPad<N>::name() const {
  return "ConstantPad" + std::to_string(N) + "d";
}

template <int N>
std::string ConstantPad<N>::extra_repr() const {
  return Repr().add("padding", padding, "value", value).text();
}

template struct Padding<1, kZeros>;
template struct Padding<2, kZeros>;
template struct Padding<3, kZeros>;
template struct Padding<1, kReflect>;
template struct Padding<2, kReflect>;
template struct Padding<3, kReflect>;
template struct Padding<1, kReplicate>;
template struct Padding<2, kReplicate>;
template struct Padding<3, kReplicate>;
template struct Padding<1, kCircular>;
template struct Padding<2, kCircular>;
template struct Padding<3, kCircular>;
template struct ConstantPad<1>;
template struct ConstantPad<2>;
template struct ConstantPad<3>;

}  // namespace reel::nn
