#pragma once
#include <type_traits>
#include <utility>

#include "reel/types.h"

#pragma GCC visibility push(default)
/// Mixed precision: products in a half type; ops that need its range or precision in float32. On CPUs and GPUs.
///
///   Tensor loss = amp::autocast(kBFloat16, [&] { return net.loss(x, y); });
///   loss.backward();   // outside: rules run in the types of their ops
///   adam.step();       // parameters, gradients and states are float32 as ever
namespace reel::amp {

/// Whether the calling thread's ops autocast; false when the thread starts.
bool autocast_enabled();
/// The half type in which the calling thread computes products; float32 while autocast is off.
DType autocast_dtype();

/// While the guard lives, ops of the calling thread choose their types as PyTorch's on GPUs do:
///
/// - In `dtype`, which they also give: matmul, mm, mv, bmm, dot, linear, linear_relu, addmm, baddbmm, bilinear, einsum,
///   tensordot, inner, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, lstm, gru,
///   rnn_tanh, rnn_relu, and with weights lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell;
///   scaled_dot_product_attention and MultiheadAttention; prelu. They take float32 and half tensors.
/// - In float32, which they also give: softmax, log_softmax, gumbel_softmax, logsumexp, segment_softmax; all losses;
///   exp, expm1, log, log1p, log2, log10, pow, rsqrt, reciprocal, softplus, sinh, cosh, tan, asin, acos; sum, nansum,
///   prod, cumsum, cumprod; norm, renorm, normalize, cov, corrcoef, cosine_similarity, pairwise_distance, cdist, pdist;
///   layer_norm, group_norm, rms_norm; interpolate; crf_log_likelihood, crf_marginals, crf_decode,
///   hierarchical_log_softmax; all of linalg::.
/// - In the widest of their inputs' types: scatter_add, grid_sample, affine_grid, and of gates lstm_cell and
///   tree_lstm_cell.
/// - All others as without autocast: where a half tensor meets a float32 one the result is float32.
///
/// float64 is not cast. A parameter (a leaf that requires grad) is cast once, and its gradient comes back through that
/// one cast, however often it is used until the outermost guard ends or it is changed in place. kFloat16 has a small
/// range: scale the loss (GradScaler).
///
/// Guards nest, and the innermost one is in effect; they must be destroyed in reverse order. A gradient's rule runs
/// without autocast; those of custom ops, and what a checkpoint runs again, with that of their forward pass.
class Autocast {
 public:
  /// `dtype` is kBFloat16 or kFloat16, an Error otherwise. With enabled = false autocast is off inside another guard.
  explicit Autocast(DType dtype = kBFloat16, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  DType before_;
  bool outermost_;
};
/// Turns autocast off inside an Autocast.
struct NoAutocast : Autocast {
  NoAutocast() : Autocast(kBFloat16, false) {}
};

/// autocast(kFloat16, [&] { … }) runs f under a guard and returns what it returns.
template <class F>
decltype(auto) autocast(DType dtype, F&& f) {
  Autocast guard(dtype);
  return std::forward<F>(f)();
}
/// The same with kBFloat16: autocast([&] { … }).
template <class F>
requires std::is_invocable_v<F>
decltype(auto) autocast(F&& f) {
  Autocast guard;
  return std::forward<F>(f)();
}
/// no_autocast([&] { … }) runs f without autocast and returns what it returns.
template <class F>
decltype(auto) no_autocast(F&& f) {
  NoAutocast guard;
  return std::forward<F>(f)();
}

}  // namespace reel::amp
#pragma GCC visibility pop
