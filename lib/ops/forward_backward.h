#pragma once
#include <vector>

#include "lib/ops/internal.h"

namespace reel {

struct ForwardBackward {
  std::vector<Tensor> alpha, beta;  // [states] for each step
  Tensor log_z;                     // [], the log of the sum over all paths
};

/// The forward-backward recursions of one sequence in log space (Rabiner 1989, section III), composed of ops so that
/// they can be differentiated. `scores` [steps, states] are those of a state at a step, `start` and `end` [states]
/// those of a path's first and last state. forward(a) and backward(b) sum over the transitions into and out of each
/// state.
template <class Forward, class Backward>
ForwardBackward forward_backward(const Tensor& scores, const Tensor& start, const Tensor& end, const Forward& forward,
                                 const Backward& backward) {
  const int64_t steps = scores.size(0);
  ForwardBackward result;
  std::vector<Tensor>&alpha = result.alpha, &beta = result.beta;
  alpha.push_back(scores[0] + start);
  for (int64_t t = 1; t < steps; ++t) alpha.push_back(forward(alpha.back()) + scores[t]);
  beta.resize(alpha.size());
  beta.back() = end;
  for (int64_t t = steps - 1; t > 0; --t) {
    const auto at = static_cast<size_t>(t);
    beta[at - 1] = backward(scores[t] + beta[at]);
  }
  result.log_z = logsumexp(alpha.back() + end, 0);
  return result;
}

}  // namespace reel
