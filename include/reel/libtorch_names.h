// This file has the names that libtorch has for what reel declares under another name or in another place.
#pragma once
#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"

#pragma GCC visibility push(default)
namespace reel {

using NoGradGuard = NoGrad;  ///< Turns recording off.

///@{
/// Each is the DType of the C++ type that its name has.
inline constexpr DType kByte = kUInt8, kInt = kInt32, kLong = kInt64, kHalf = kFloat16, kFloat = kFloat32,
                       kDouble = kFloat64;
///@}

}  // namespace reel
namespace reel::optim {

namespace lr_scheduler = ::reel::optim;  // optim::lr_scheduler::StepLR is optim::StepLR

}  // namespace reel::optim
namespace reel::nn {

namespace functional = ::reel;  // nn::functional::relu is relu

namespace utils {
/// Calls optim::clip_grad_norm.
inline Tensor clip_grad_norm_(TensorList parameters, double max_norm, double norm_type = 2) {
  return optim::clip_grad_norm(parameters, max_norm, norm_type);
}
/// Calls optim::clip_grad_value.
inline void clip_grad_value_(TensorList parameters, double clip_value) {
  optim::clip_grad_value(parameters, clip_value);
}

namespace rnn {
using reel::pack_padded_sequence;
using reel::pack_sequence;
using reel::PackedSequence;
using reel::pad_packed_sequence;
using reel::pad_sequence;
using reel::unpack_sequence;
using reel::unpad_sequence;
}  // namespace rnn
}  // namespace utils

}  // namespace reel::nn
#pragma GCC visibility pop
