#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// The optimizers' steps, in the manner of pointwise.h: operator()(p, g, s, t, u) changes the parameter p and its up to
// three states in place; the averages of parameters are stepped alike. Two steps that are equal may be done as one,
// over more parameters.
namespace reel::functors {

// clang-format off

/// What every step does first: turns around the gradient of what is to be maximized, and decays the weights, decoupled
/// (Loshchilov & Hutter 2019) or by way of g. A decay of 0 leaves g as it is, since 0 times an infinite p is NaN.
struct Objective {
  double lr, weight_decay;
  bool decoupled, maximize;
  template <class T> REEL_HD void operator()(T& p, T& g) const {
    if (maximize) g = -g;
    if (weight_decay == 0) return;
    if (decoupled) p = p * T(1 - lr * weight_decay);
    else g = g + T(weight_decay) * p;
  }
  bool operator==(const Objective&) const = default;
};
/// p -= lr g, with (Nesterov) momentum as in PyTorch: the buffer s starts as the first gradient.
struct SgdUpdate {
  Objective objective;
  double lr, momentum, dampening;
  bool nesterov, first;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T&, T&) const {
    objective(p, g);
    if (momentum != 0) {
      s = first ? g : T(momentum) * s + T(1 - dampening) * g;
      g = nesterov ? g + T(momentum) * s : s;
    }
    p = p - T(lr) * g;
  }
  bool operator==(const SgdUpdate&) const = default;
};
/// Duchi et al. 2011, with PyTorch's lr decay folded into lr.
struct AdagradUpdate {
  Objective objective;
  double lr, eps;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T&, T&) const {
    objective(p, g);
    s = s + g * g;
    p = p - T(lr) * g / (sqrt(s) + T(eps));
  }
  bool operator==(const AdagradUpdate&) const = default;
};
/// Kingma & Ba 2015, Algorithm 1; with amsgrad u is the largest t so far (Reddi et al. 2018). correction1 = 1 - β1ᵗ,
/// correction2 = sqrt(1 - β2ᵗ).
struct AdamUpdate {
  Objective objective;
  double lr, beta1, beta2, eps, correction1, correction2;
  bool amsgrad;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T& u) const {
    objective(p, g);
    s = T(beta1) * s + T(1 - beta1) * g;
    t = T(beta2) * t + T(1 - beta2) * g * g;
    if (amsgrad) u = select(u > t, u, t);
    p = p - T(lr / correction1) * s / (sqrt(amsgrad ? u : t) / T(correction2) + T(eps));
  }
  bool operator==(const AdamUpdate&) const = default;
};
/// Kingma & Ba 2015, Algorithm 2: t is the infinity norm of the past gradients.
struct AdamaxUpdate {
  Objective objective;
  double lr, beta1, beta2, eps, correction1;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T&) const {
    objective(p, g);
    s = T(beta1) * s + T(1 - beta1) * g;
    const T now = abs(g) + T(eps), before = T(beta2) * t;
    t = select(before > now, before, now);
    p = p - T(lr / correction1) * s / t;
  }
  bool operator==(const AdamaxUpdate&) const = default;
};
/// Dozat 2016; scale_g and scale_s are the factors of the gradient and of the first moment.
struct NAdamUpdate {
  Objective objective;
  double beta1, beta2, eps, scale_g, scale_s, correction2;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T&) const {
    objective(p, g);
    s = T(beta1) * s + T(1 - beta1) * g;
    t = T(beta2) * t + T(1 - beta2) * g * g;
    const T root = sqrt(t) / T(correction2) + T(eps);
    p = p - T(scale_g) * g / root - T(scale_s) * s / root;
  }
  bool operator==(const NAdamUpdate&) const = default;
};
/// Liu et al. 2020, Algorithm 2: without `rectified` the second moment is not trusted yet. scale holds all factors.
struct RAdamUpdate {
  Objective objective;
  double beta1, beta2, eps, scale;
  bool rectified;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T&) const {
    objective(p, g);
    s = T(beta1) * s + T(1 - beta1) * g;
    t = T(beta2) * t + T(1 - beta2) * g * g;
    p = p - T(scale) * (rectified ? s / (sqrt(t) + T(eps)) : s);
  }
  bool operator==(const RAdamUpdate&) const = default;
};
/// Hinton 2012 (lecture 6e): s is the mean square, t (centered, Graves 2013) the mean, u the momentum buffer.
struct RmspropUpdate {
  Objective objective;
  double lr, alpha, eps, momentum;
  bool centered;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T& u) const {
    objective(p, g);
    s = T(alpha) * s + T(1 - alpha) * g * g;
    if (centered) t = T(alpha) * t + T(1 - alpha) * g;
    g = g / (sqrt(centered ? s - t * t : s) + T(eps));
    if (momentum != 0) g = u = T(momentum) * u + g;
    p = p - T(lr) * g;
  }
  bool operator==(const RmspropUpdate&) const = default;
};
/// Zeiler 2012, Algorithm 1: s is the mean square of gradients, t that of changes.
struct AdadeltaUpdate {
  Objective objective;
  double lr, rho, eps;
  template <class T> REEL_HD void operator()(T& p, T g, T& s, T& t, T&) const {
    objective(p, g);
    s = T(rho) * s + T(1 - rho) * g * g;
    const T change = sqrt(t + T(eps)) / sqrt(s + T(eps)) * g;
    t = T(rho) * t + T(1 - rho) * change * change;
    p = p - T(lr) * change;
  }
  bool operator==(const AdadeltaUpdate&) const = default;
};
/// An average p of parameters g: p ← (1 - weight) p + weight g. Written with the difference, it keeps what is equal, but
/// infinite numbers have no difference.
struct AverageUpdate {
  double weight;
  template <class T> REEL_HD void operator()(T& p, T g, T&, T&, T&) const {
    const T moved = p + T(weight) * (g - p);
    p = select(moved == moved, moved, T(1 - weight) * p + T(weight) * g);
  }
  bool operator==(const AverageUpdate&) const = default;
};

/// What gradients whose norm is `norm` are multiplied with so that it is at most max_norm; NaN for a norm of NaN.
REEL_HD static inline double clip_factor(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

using UpdateList = std::tuple<SgdUpdate, AdagradUpdate, AdamUpdate, AdamaxUpdate, NAdamUpdate, RAdamUpdate, RmspropUpdate,
                              AdadeltaUpdate, AverageUpdate>;

// clang-format on

}  // namespace reel::functors
