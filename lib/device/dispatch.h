#pragma once
#include "reel/types.h"

// Dispatch by dtype: a generic lambda gets the C++ type of the elements. Device code passes CUDA's own half
// types.
namespace reel::dispatch {

/// A type as a value.
template <class T>
struct Type {
  using type = T;
};

/// f(Type<T>()) for the C++ type that stores a floating-point dtype.
template <class Half = Float16, class BHalf = BFloat16, class F>
void with_floating(DType dtype, const F& f) {
  switch (dtype) {
    case kFloat16: return f(Type<Half>());
    case kBFloat16: return f(Type<BHalf>());
    case kFloat32: return f(Type<float>());
    default: return f(Type<double>());
  }
}

/// … an integer dtype or bool; bools are bytes, whatever they hold.
template <class F>
void with_integer(DType dtype, const F& f) {
  switch (dtype) {
    case kInt32: return f(Type<int32_t>());
    case kInt64: return f(Type<int64_t>());
    default: return f(Type<uint8_t>());
  }
}

/// … any dtype.
template <class Half = Float16, class BHalf = BFloat16, class F>
void with_type(DType dtype, const F& f) {
  is_floating_point(dtype) ? with_floating<Half, BHalf>(dtype, f) : with_integer(dtype, f);
}

/// f(Type<T>()) for an unsigned integer of the dtype's size, where elements are only moved.
template <class F>
void with_word(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f(Type<uint8_t>());
    case 2: return f(Type<uint16_t>());
    case 4: return f(Type<uint32_t>());
    default: return f(Type<uint64_t>());
  }
}

}  // namespace reel::dispatch

namespace reel::cpu {
using dispatch::Type, dispatch::with_type, dispatch::with_word;
}
