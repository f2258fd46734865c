#pragma once
#include "reel/types.h"

// Dispatch by dtype: a generic lambda gets the C++ type of the elements.
namespace reel::cpu {

/// A type as a value.
template <class T>
struct Type {
  using type = T;
};

/// f(Type<T>()) for the C++ type that stores a dtype; bools are bytes, whatever they hold.
template <class F>
void with_type(DType dtype, const F& f) {
  switch (dtype) {
    case kBool:
    case kUInt8: return f(Type<uint8_t>());
    case kInt32: return f(Type<int32_t>());
    case kInt64: return f(Type<int64_t>());
    case kFloat16: return f(Type<Float16>());
    case kBFloat16: return f(Type<BFloat16>());
    case kFloat32: return f(Type<float>());
    case kFloat64: return f(Type<double>());
  }
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

}  // namespace reel::cpu
