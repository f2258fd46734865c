#pragma once
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Random numbers, each thread's generator, and tensors of random numbers.
namespace reel {

/// Random numbers come from Philox4x32-10 (Salmon et al. 2011), a counter-based generator: the numbers depend only on
/// the seed and on how many were drawn before. Each thread has its own generator: there is no locking, and each
/// thread's numbers are reproducible by themselves.
struct GeneratorState {
  uint64_t seed = 0;    ///< As set by manual_seed().
  uint64_t offset = 0;  ///< Numbers drawn so far.
};

/// Seeds the calling thread's generator. Threads that never call it start from a seed derived from the order in which
/// they first drew a number.
void manual_seed(uint64_t seed);
GeneratorState generator_state();                ///< That of the calling thread.
void set_generator_state(GeneratorState state);  ///< Numbers go on from there.
///@{
/// The same as an int64 tensor [2], for checkpoints: restoring it continues the sequence bit for bit. set_rng_state
/// throws for any other dtype or shape.
Tensor get_rng_state();
void set_rng_state(const Tensor& state);
///@}

Tensor rand(const Shape& shape, TensorOptions options = {});   ///< Uniform in [0, 1).
Tensor randn(const Shape& shape, TensorOptions options = {});  ///< Standard normal.
///@{
/// The same with a dtype alone for options: randn({2, 3}, kFloat64).
template <std::same_as<DType> T>
Tensor rand(const Shape& shape, T dtype) {
  return rand(shape, TensorOptions{.dtype = dtype});
}
template <std::same_as<DType> T>
Tensor randn(const Shape& shape, T dtype) {
  return randn(shape, TensorOptions{.dtype = dtype});
}
///@}
///@{
/// Integers, low ≤ x < high, uniformly distributed: int64 unless options say otherwise. low is 0 where not given.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {});
inline Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {}) {
  return randint(0, high, shape, options);
}
///@}
Tensor randperm(int64_t n, TensorOptions options = {});  ///< A random order of 0 … n - 1, int64.
///@{
/// Of other's shape, and of its dtype and device unless options say otherwise.
Tensor rand_like(const Tensor& other, TensorOptions options = {});
Tensor randn_like(const Tensor& other, TensorOptions options = {});
Tensor randint_like(const Tensor& other, int64_t low, int64_t high, TensorOptions options = {});
///@}

// One sample for each element of a floating-point tensor of parameters, of its dtype. No gradient.

Tensor bernoulli(const Tensor& p);                         ///< 1 with probability p, otherwise 0.
Tensor normal(const Tensor& mean, const Tensor& std = 1);  ///< Of the shape that mean and std broadcast to.
Tensor poisson(const Tensor& rate);                        ///< Counts with this mean, as floating point.

/// For each row of probs [rows, categories] (or the one of [categories]) num_samples categories, drawn with
/// probabilities proportional to probs, which need not sum to 1. int64 [rows, num_samples]. Without replacement no
/// category is drawn twice for one row, and a row must have at least num_samples categories of positive probability.
Tensor multinomial(const Tensor& probs, int64_t num_samples, bool replacement = false);

}  // namespace reel
#pragma GCC visibility pop
