#pragma once
#include "reel/tensor.h"

namespace reel {

/// Random numbers come from Philox4x32-10 (Salmon et al. 2011), a counter-based generator: the numbers depend only on
/// the seed and on how many were drawn before. Every thread has a generator of its own, so that threads neither wait
/// for each other nor disturb each other's reproducibility.
struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;  ///< numbers drawn so far
};

/// Seeds the calling thread's generator. Threads that never call it start from a seed derived from the order in which
/// they first drew a number.
void manual_seed(uint64_t seed);
GeneratorState generator_state();
void set_generator_state(GeneratorState state);

Tensor rand(const Shape& shape, TensorOptions options = {});                                ///< Uniform in [0, 1).
Tensor randn(const Shape& shape, TensorOptions options = {});                               ///< Standard normal.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {});  ///< low ≤ x < high
inline Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {}) {
  return randint(0, high, shape, options);
}
Tensor randperm(int64_t n);  ///< A random order of 0 … n - 1, int64.

}  // namespace reel
