#pragma once
#include "lib/cpu/simd/batch.h"
#include "lib/functors/math.h"

// Loads and stores of a vector of hidden units, whole or in part, for the kernels of recurrent cells.
namespace reel::cpu::REEL_ISA {

/// Elements i … i + n of a row of hidden values.
template <class T>
struct Lanes {
  int64_t n;
  bool whole = n >= kWidth<T>;
  Batch<T> get(const void* data, int64_t at) const {
    const T* p = static_cast<const T*>(data) + at;
    return whole ? load(p) : load_part(p, n);
  }
  Batch<T> get_or_zero(const void* data, int64_t at) const { return data ? get(data, at) : Batch<T>(T(0)); }
  void set(void* data, int64_t at, const Batch<T>& value) const {
    T* p = static_cast<T*>(data) + at;
    whole ? store(p, value) : store_part(p, value, n);
  }
  void set_if_wanted(void* data, int64_t at, const Batch<T>& value) const {
    if (data) set(data, at, value);
  }
};

template <class T>
Batch<T> logistic(const Batch<T>& x) {
  return functors::Sigmoid()(x);
}

}  // namespace reel::cpu::REEL_ISA
