#include "reel/optim/lbfgs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/autograd/autocast.h"
#include "lib/optim/optimizer.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::optim {
namespace {

double inner_product(const Tensor& a, const Tensor& b) {
  const AutocastOff exact;
  return dot(a, b).item<double>();
}
double largest(const Tensor& x) { return x.numel() ? amax(abs(x)).item<double>() : 0; }

/// Where the cubic through two points with their slopes is least, kept within [low, high] (Nocedal & Wright eq. 3.59).
double cubic_minimum(double x1, double f1, double g1, double x2, double f2, double g2, double low, double high) {
  if (x1 > x2) std::swap(x1, x2), std::swap(f1, f2), std::swap(g1, g2);
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  return std::clamp(x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)), low, high);
}

}  // namespace

OptionFields LBFGSOptions::fields() {
  return {{"lr", &lr},
          {"max_iter", &max_iter},
          {"max_eval", &max_eval},
          {"tolerance_grad", &tolerance_grad},
          {"tolerance_change", &tolerance_change},
          {"history_size", &history_size},
          {"strong_wolfe", &strong_wolfe}};
}

void LBFGS::step() { detail::fail("LBFGS: step() needs a closure that computes the loss and its gradients anew"); }

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters(0)) {
    const Tensor grad = p.grad();
    parts.push_back(grad.defined() ? grad.reshape({-1})
                                   : zeros({p.numel()}, {.dtype = p.dtype(), .device = p.device()}));
  }
  return cat(parts);
}

void LBFGS::move(double t, const Tensor& direction) {
  int64_t at = 0;
  for (Tensor p : parameters(0)) {
    p.add_(direction.narrow(0, at, p.numel()).view(p.shape()), t);
    at += p.numel();
  }
}

// Converts what is remembered to the gradient's dtype and device, which Module::to() may have changed.
void LBFGS::follow(const Tensor& gradient) {
  Memory& m = memory_;
  if (!m.gradient.defined() || fits(m.gradient, gradient.dtype(), gradient)) return;
  const auto convert = [&](Tensor& x) { x = fitted(x, gradient.dtype(), gradient); };
  for (Pair& pair : m.pairs) convert(pair.y), convert(pair.s);
  convert(m.direction);
  convert(m.gradient);  // last, as a sign that all are
}

// The two-loop recursion (Algorithm 7.4), after the pair of the last iteration has been remembered.
Tensor LBFGS::next_direction(const Tensor& gradient) {
  Memory& m = memory_;
  if (m.iterations == 1) {
    m.pairs.clear();
    m.scale = 1;
    return -gradient;
  }
  const Tensor y = gradient - m.gradient, s = m.direction * m.length;
  if (const double ys = inner_product(y, s); ys > 1e-10) {
    if (static_cast<int64_t>(m.pairs.size()) >= options().history_size && !m.pairs.empty())
      m.pairs.erase(m.pairs.begin());
    if (options().history_size > 0) m.pairs.push_back({y, s, 1 / ys});
    m.scale = ys / inner_product(y, y);
  }
  Tensor d = -gradient;
  std::vector<double> alphas(m.pairs.size());
  for (size_t i = m.pairs.size(); i-- > 0;) {
    alphas[i] = inner_product(m.pairs[i].s, d) * m.pairs[i].rho;
    d.sub_(m.pairs[i].y, alphas[i]);
  }
  d.mul_(m.scale);
  for (size_t i = 0; i < m.pairs.size(); ++i)
    d.add_(m.pairs[i].s, alphas[i] - inner_product(m.pairs[i].y, d) * m.pairs[i].rho);
  return d;
}

// A step along the line that meets the strong Wolfe conditions, or the best found: first a bracket of one (Algorithm
// 3.5), then its narrowing (3.6). `reach` is the largest element of the direction.
LBFGS::Trial LBFGS::search(const std::function<Trial(double)>& at, double t, const Trial& start, double reach,
                           int64_t most_trials, double tolerance_change) const {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9;
  const auto decreases = [&](const Trial& x) { return x.loss <= start.loss + kDecrease * x.t * start.slope; };
  const auto flat_enough = [&](const Trial& x) { return std::abs(x.slope) <= -kCurvature * start.slope; };

  Trial before = start, now = at(t);
  int64_t trials = 0;
  bool bracketed = false;
  for (; trials < most_trials && !bracketed; ++trials) {
    if (!decreases(now) || (trials > 1 && now.loss >= before.loss)) {
      bracketed = true;
    } else if (flat_enough(now)) {
      return now;
    } else if (now.slope >= 0) {
      bracketed = true;
    }
    if (bracketed) break;
    const double next = cubic_minimum(before.t, before.loss, before.slope, now.t, now.loss, now.slope,
                                      now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, Trial{});
    now = at(next);
  }
  if (!bracketed) before = start;

  std::array<Trial, 2> bracket{before, now};
  int low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
  bool stalled = false;
  while (trials < most_trials) {
    const double left = std::min(bracket[0].t, bracket[1].t), right = std::max(bracket[0].t, bracket[1].t);
    if ((right - left) * reach < tolerance_change) break;
    double next = cubic_minimum(bracket[0].t, bracket[0].loss, bracket[0].slope, bracket[1].t, bracket[1].loss,
                                bracket[1].slope, left, right);
    // A minimum twice at the edge of the bracket would narrow it too little: then go a tenth inwards.
    const double margin = 0.1 * (right - left);
    if (std::min(right - next, next - left) < margin) {
      if (stalled || next >= right || next <= left) {
        next = std::abs(next - right) < std::abs(next - left) ? right - margin : left + margin;
        stalled = false;
      } else {
        stalled = true;
      }
    } else {
      stalled = false;
    }
    Trial trial = at(next);
    ++trials;
    if (!decreases(trial) || trial.loss >= bracket[low].loss) {
      bracket[1 - low] = std::move(trial);
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
      continue;
    }
    if (flat_enough(trial)) return trial;
    if (trial.slope * (bracket[1 - low].t - bracket[low].t) >= 0) bracket[1 - low] = bracket[low];
    bracket[low] = std::move(trial);
  }
  return bracket[low];
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  REEL_CHECK(num_groups() == 1, "LBFGS: ", num_groups(), " parameter groups, it takes one");
  NoGrad guard;
  const LBFGSOptions& o = options();
  const int64_t max_eval = o.max_eval ? o.max_eval : o.max_iter * 5 / 4;
  Memory& m = memory_;
  const Tensor first_loss = enable_grad(closure);
  double loss = first_loss.item<double>();
  int64_t evaluations = 1;
  Tensor gradient = flat_gradient();
  follow(gradient);
  if (largest(gradient) <= o.tolerance_grad) return first_loss;

  for (int64_t iteration = 1; iteration <= o.max_iter; ++iteration) {
    ++m.iterations;
    m.direction = next_direction(gradient);
    m.gradient = gradient;
    m.loss = loss;
    m.length = m.iterations == 1 ? std::min(1., 1 / sum(abs(gradient)).item<double>()) * o.lr : o.lr;
    const double slope = inner_product(gradient, m.direction);
    if (slope > -o.tolerance_change) break;

    if (o.strong_wolfe) {
      double here = 0;  // how far the parameters have moved along the direction
      const auto at = [&](double t) {
        move(t - here, m.direction);
        here = t;
        ++evaluations;
        const double there = enable_grad(closure).item<double>();
        Tensor g = flat_gradient();
        const double downhill = inner_product(g, m.direction);
        return Trial{t, there, downhill, std::move(g)};
      };
      Trial best = search(at, m.length, {0, loss, slope, gradient}, largest(m.direction), max_eval - evaluations,
                          o.tolerance_change);
      move(best.t - here, m.direction);
      m.length = best.t, loss = best.loss, gradient = best.gradient;
    } else {
      move(m.length, m.direction);
      if (iteration == o.max_iter) break;
      loss = enable_grad(closure).item<double>();
      gradient = flat_gradient();
      ++evaluations;
    }
    if (evaluations >= max_eval || largest(gradient) <= o.tolerance_grad ||
        largest(m.direction) * std::abs(m.length) <= o.tolerance_change || std::abs(loss - m.loss) < o.tolerance_change)
      break;
  }
  return first_loss;
}

// ---- saving ---------------------------------------------------------------------------------------------------------

StateDict LBFGS::state_dict() const {
  StateDict dict = Optimizer::state_dict();
  const Memory& m = memory_;
  if (!m.iterations) return dict;
  dict.emplace_back("state.0.iterations", full({}, m.iterations, {.dtype = kInt64, .device = kCPU}));
  dict.emplace_back("state.0.numbers", tensor(std::vector{m.length, m.scale, m.loss}, {.device = kCPU}));
  dict.emplace_back("state.0.direction", m.direction);
  dict.emplace_back("state.0.gradient", m.gradient);
  std::vector<Tensor> y, s;
  std::vector<double> rho;
  for (const Pair& pair : m.pairs) y.push_back(pair.y), s.push_back(pair.s), rho.push_back(pair.rho);
  if (y.empty()) return dict;
  dict.emplace_back("state.0.y", stack(y));
  dict.emplace_back("state.0.s", stack(s));
  dict.emplace_back("state.0.rho", tensor(rho, {.device = kCPU}));
  return dict;
}

void LBFGS::load_state_dict(const StateDict& dict) {
  NoGrad guard;
  int64_t n = 0;
  for (const Tensor& p : parameters(0)) n += p.numel();
  StateDict rest;
  StateDict own;
  for (const auto& entry : dict) (entry.first.starts_with("state.0.") ? own : rest).push_back(entry);
  const auto take = [&](const char* name, const Shape& shape) {
    const Tensor* found = find(own, std::string("state.0.") + name);
    REEL_CHECK(found && found->defined(), "LBFGS::load_state_dict: missing: state.0.", name);
    REEL_CHECK(found->shape() == shape, "LBFGS::load_state_dict: shape of state.0.", name, ": expected ", shape,
               ", given is ", found->shape());
    return found->clone();
  };
  Memory loaded;
  if (!own.empty()) {
    loaded.iterations = take("iterations", {}).item<int64_t>();
    const std::vector<double> numbers = take("numbers", {3}).to_vector<double>();
    loaded.length = numbers[0], loaded.scale = numbers[1], loaded.loss = numbers[2];
    loaded.direction = take("direction", {n});
    loaded.gradient = take("gradient", {n});
    if (const Tensor* rho = find(own, "state.0.rho")) {
      const int64_t pairs = rho->numel();
      const Tensor y = take("y", {pairs, n}), s = take("s", {pairs, n});
      const std::vector<double> rhos = take("rho", {pairs}).to_vector<double>();
      for (int64_t i = 0; i < pairs; ++i) loaded.pairs.push_back({y[i], s[i], rhos[i]});
    }
  }
  Optimizer::load_state_dict(rest);
  memory_ = std::move(loaded);
}

}  // namespace reel::optim
