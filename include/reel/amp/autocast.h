#pragma once
#include <type_traits>
#include <utility>

#include "reel/types.h"

/// Mixed precision: products in a half type, what needs range or digits in float32. For tensors of the CPU and of GPUs.
///
///   Tensor loss = amp::autocast(kBFloat16, [&] { return net.loss(x, y); });
///   loss.backward();   // outside: rules run in the types of their ops
///   adam.step();       // parameters, gradients and states are float32 as ever
namespace reel::amp {

bool autocast_enabled();  ///< Of the calling thread; false at its start.
DType autocast_dtype();   ///< The half type in which it computes products; float32 while autocast is off.

/// While it lives, ops of the calling thread choose their types as PyTorch's on GPUs do:
///
/// - In `dtype`: matmul, mm, mv, bmm, dot, linear, addmm, baddbmm, bilinear, einsum, tensordot, inner; convolutions,
///   transposed ones, too; lstm, gru, rnn and their cells; scaled_dot_product_attention and MultiheadAttention; prelu.
///   They take float32 and half tensors, and give `dtype`.
/// - In float32, which they also give: softmax, log_softmax, logsumexp and all losses; exp, expm1, log, log1p, log2,
///   log10, pow, rsqrt, reciprocal, softplus, sinh, cosh, tan, asin, acos; sum, prod, cumsum, cumprod; norm, renorm,
///   normalize, cov, corrcoef, and what measures distances; layer_norm, group_norm, rms_norm; interpolate; linalg::.
/// - In the widest type that they are given: scatter_add, grid_sample, lstm_cell and tree_lstm_cell of gates.
/// - All others as without: where a half tensor meets a float32 one the result is float32.
///
/// float64 stays as it is. A parameter (a leaf that requires grad) is cast once, and its gradient comes back through
/// that one cast, however often it is used until the outermost guard goes or it is changed in place. kFloat16 has a
/// small range: scale the loss (GradScaler).
///
/// Guards nest, the innermost one counts; they go in the opposite order. A gradient's rule runs without autocast;
/// those of custom ops, and what a checkpoint runs again, with that of their forward pass.
class Autocast {
 public:
  explicit Autocast(DType dtype = kBFloat16, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  DType before_;
  bool outermost_;
};
struct NoAutocast : Autocast {
  NoAutocast() : Autocast(kBFloat16, false) {}
};

/// autocast(kFloat16, [&] { … }) runs f under a guard and returns what it returns. The dtype defaults to kBFloat16.
template <class F>
decltype(auto) autocast(DType dtype, F&& f) {
  Autocast guard(dtype);
  return std::forward<F>(f)();
}
template <class F>
requires std::is_invocable_v<F>
decltype(auto) autocast(F&& f) {
  Autocast guard;
  return std::forward<F>(f)();
}
template <class F>
decltype(auto) no_autocast(F&& f) {
  NoAutocast guard;
  return std::forward<F>(f)();
}

}  // namespace reel::amp
