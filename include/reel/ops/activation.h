#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Activations: the pointwise functions between layers, and softmax and its variants. Those that take only x can be
/// used as functions: nn::Sequential{…, relu, …}.
namespace reel {

Tensor relu(const Tensor& x);   ///< max(x, 0); integers stay integers. Its slope at 0 is 0.
Tensor relu6(const Tensor& x);  ///< min(max(x, 0), 6); integers stay integers.
/// clamp, between numbers. Integers stay integers, with bounds rounded towards 0.
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);
/// x where it is positive, negative_slope x elsewhere (Maas et al. 2013).
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where it is positive, weight x elsewhere (He et al. 2015): a learnt slope for all channels, or one for each
/// (dimension 1 of x).
Tensor prelu(const Tensor& x, const Tensor& weight);
/// x where it is positive, slope x elsewhere: in training the slope is drawn from [lower, upper) for every element,
/// otherwise it is their mean.
Tensor rrelu(const Tensor& x, double lower = 1. / 8, double upper = 1. / 3, bool training = false);
Tensor elu(const Tensor& x, double alpha = 1.0);   ///< Clevert et al. 2015
Tensor selu(const Tensor& x);                      ///< Klambauer et al. 2017
Tensor celu(const Tensor& x, double alpha = 1.0);  ///< Barron 2017
Tensor gelu(const Tensor& x);                      ///< The exact form, x Φ(x) (Hendrycks & Gimpel 2016).
Tensor gelu_tanh(const Tensor& x);    ///< gelu(approximate="tanh"): x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))
Tensor silu(const Tensor& x);         ///< x sigmoid(x)
Tensor mish(const Tensor& x);         ///< x tanh(softplus(x)) (Misra 2019)
Tensor hardswish(const Tensor& x);    ///< x relu6(x + 3) / 6 (Howard et al. 2019)
Tensor hardsigmoid(const Tensor& x);  ///< relu6(x + 3) / 6
Tensor logsigmoid(const Tensor& x);   ///< log sigmoid(x), exact also where sigmoid underflows.
/// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
Tensor softsign(const Tensor& x);                         ///< x / (1 + |x|)
Tensor tanhshrink(const Tensor& x);                       ///< x - tanh(x)
Tensor hardshrink(const Tensor& x, double lambda = 0.5);  ///< 0 within ±lambda, x outside.
Tensor softshrink(const Tensor& x, double lambda = 0.5);  ///< 0 within ±lambda, x - lambda above, x + lambda below.
/// x where it is above the threshold, else value, which is rounded towards 0 where x has integers.
Tensor threshold(const Tensor& x, double threshold, Scalar value);

/// The first half of x along dim times the sigmoid of the second (Dauphin et al. 2016).
Tensor glu(const Tensor& x, int64_t dim = -1);
/// exp(x) / Σ exp(x) along dim, without intermediate overflow. A slice that is all -∞ gives NaN. float16 and bfloat16
/// are computed in float32.
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);  ///< log(softmax(x, dim)), exact also where softmax underflows.
Tensor softmin(const Tensor& x, int64_t dim);      ///< softmax(-x, dim)
/// A softmax of logits with Gumbel noise, at temperature tau: a differentiable draw from softmax(logits) (Jang et al.
/// 2016). `hard` gives one-hot vectors with the gradient of the soft ones.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1);

}  // namespace reel
#pragma GCC visibility pop
