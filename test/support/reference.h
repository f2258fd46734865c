#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "reel/types.h"

// What the ops are compared with: plain double arithmetic, an element at a time, that shares no code with reel.
namespace reel::reference {

using Index = Shape;
using Line = std::vector<double>;

struct Array {
  Shape shape;
  std::vector<double> data;
  double operator()(const Index& at) const {
    int64_t flat = 0;
    for (int d = 0; d < shape.size(); ++d) flat = flat * shape[d] + at[d];
    return data[flat];
  }
};
using Arrays = std::vector<Array>;

inline const double kInfinity = std::numeric_limits<double>::infinity();

/// The array of `shape` whose element at i is f(i).
inline Array build(const Shape& shape, const std::function<double(const Index&)>& f) {
  Array y{shape, {}};
  Index at = shape;
  std::fill(at.begin(), at.end(), 0);
  for (int64_t n = shape.numel(); n-- > 0;) {
    y.data.push_back(f(at));
    for (int d = shape.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
  return y;
}

/// at with dimension d set to i.
inline Index with(Index at, int d, double i) { return at[d] = static_cast<int64_t>(i), at; }
/// x's element that NumPy broadcasting shows at `at`.
inline double broadcast(const Array& x, const Index& at) {
  Index own = x.shape;
  for (int d = 0; d < own.size(); ++d) own[d] = own[d] == 1 ? 0 : at[at.size() - own.size() + d];
  return x(own);
}

/// x with dimension `from` in place `to`, the others in their order.
inline Array movedim(const Array& x, int from, int to) {
  const int rank = x.shape.size();
  from += from < 0 ? rank : 0, to += to < 0 ? rank : 0;
  const auto moved = [](Index at, int out, int in) {
    const int64_t i = at[out];
    at.erase(out), at.insert(in, i);
    return at;
  };
  return build(moved(x.shape, from, to), [&](const Index& at) { return x(moved(at, to, from)); });
}
/// What f, whose first input has its channels in front of so many sizes, makes of one that has them last.
inline Array channels_last(Arrays x, int sizes, const std::function<Array(const Arrays&)>& f) {
  x[0] = movedim(x[0], -1, -1 - sizes);
  return movedim(f(x), -1 - sizes, -1);
}

/// Every line of x along dim replaced by f(line), which may be of another length.
inline Array along(const Array& x, int dim, const std::function<Line(const Line&)>& f) {
  const auto line_at = [&](const Index& at) {
    Line line(x.shape[dim]);
    for (size_t i = 0; i < line.size(); ++i) line[i] = x(with(at, dim, i));
    return line;
  };
  Shape shape = x.shape;
  shape[dim] = f(Line(x.shape[dim], 1)).size();
  return build(shape, [&](const Index& at) { return f(line_at(at))[at[dim]]; });
}

/// All elements that differ only in `dims` (all dimensions if there are none) become the one element f(them).
inline Array fold(const Array& x, Shape dims, const std::function<double(const Line&)>& f, bool keepdim = false) {
  std::vector<bool> folded(x.shape.size(), dims.empty());
  for (int64_t d : dims) folded[d] = true;
  const auto drop = [&](const Index& at) {
    Index kept;
    for (int d = 0; d < at.size(); ++d)
      if (!folded[d])
        kept.push_back(at[d]);
      else if (keepdim)
        kept.push_back(0);
    return kept;
  };
  Shape shape = drop(x.shape);
  for (int d = 0; keepdim && d < shape.size(); ++d)
    if (folded[d]) shape[d] = 1;
  Array y{shape, {}};
  std::vector<Line> lines(shape.numel());
  build(x.shape, [&](const Index& at) {
    const Index to = drop(at);
    int64_t flat = 0;
    for (int d = 0; d < shape.size(); ++d) flat = flat * shape[d] + to[d];
    lines[flat].push_back(x(at));
    return 0.;
  });
  for (const Line& line : lines) y.data.push_back(f(line));
  return y;
}

// ---- what to do with a line -----------------------------------------------------------------------------------------

inline double total(const Line& x) { return std::accumulate(x.begin(), x.end(), 0.); }
inline double average(const Line& x) { return total(x) / static_cast<double>(x.size()); }
inline double product(const Line& x) { return std::accumulate(x.begin(), x.end(), 1., std::multiplies()); }
inline double largest(const Line& x) { return *std::max_element(x.begin(), x.end()); }
inline double smallest(const Line& x) { return *std::min_element(x.begin(), x.end()); }
inline double largest_at(const Line& x) { return std::max_element(x.begin(), x.end()) - x.begin(); }
inline double smallest_at(const Line& x) { return std::min_element(x.begin(), x.end()) - x.begin(); }
inline double variance(const Line& x, double correction = 1) {
  double sum = 0;
  for (double v : x) sum += (v - average(x)) * (v - average(x));
  return sum / (static_cast<double>(x.size()) - correction);
}
inline double norm(const Line& x, double p) {
  double sum = 0;
  for (double v : x) sum = p == kInfinity ? std::max(sum, std::abs(v)) : sum + std::pow(std::abs(v), p);
  return p == kInfinity ? sum : std::pow(sum, 1 / p);
}
inline double logsumexp(const Line& x) {
  double sum = 0;
  for (double v : x) sum += std::exp(v - largest(x));
  return largest(x) + std::log(sum);
}
inline double some(const Line& x) {
  return std::any_of(x.begin(), x.end(), [](double v) { return v != 0; });
}
inline double every(const Line& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return v != 0; });
}
inline Line running_total(const Line& x) {
  Line y(x.size());
  std::partial_sum(x.begin(), x.end(), y.begin());
  return y;
}
inline Line softmax(Line x) {
  const double norm = logsumexp(x);
  for (double& v : x) v = std::exp(v - norm);
  return x;
}
inline Line log_softmax(Line x) {
  const double norm = logsumexp(x);
  for (double& v : x) v -= norm;
  return x;
}
/// The positions of the elements in ascending (descending) order, equals in their own.
inline Line order(const Line& x, bool descending = false) {
  Line at(x.size());
  std::iota(at.begin(), at.end(), 0.);
  std::stable_sort(at.begin(), at.end(), [&](double i, double j) {
    const double a = x[static_cast<size_t>(i)], b = x[static_cast<size_t>(j)];
    return descending ? a > b : a < b;
  });
  return at;
}
inline Line sorted(const Line& x, bool descending = false) {
  Line y = order(x, descending);
  for (double& at : y) at = x[static_cast<size_t>(at)];
  return y;
}
inline Line first(Line x, int64_t n) { return x.resize(n), x; }

// ---- whole arrays ---------------------------------------------------------------------------------------------------

/// [..., m, k] · [..., k, n] with equal or broadcast leading dimensions.
inline Array matmul(const Array& a, const Array& b) {
  const int rank = std::max(a.shape.size(), b.shape.size());
  const int64_t k = a.shape.back();
  Shape shape = a.shape.size() == rank ? a.shape : b.shape;
  for (int d = 0; d < rank - 2; ++d) {
    const int da = d - (rank - a.shape.size()), db = d - (rank - b.shape.size());
    shape[d] = std::max(da < 0 ? 1 : a.shape[da], db < 0 ? 1 : b.shape[db]);
  }
  shape[rank - 2] = a.shape[a.shape.size() - 2], shape[rank - 1] = b.shape.back();
  return build(shape, [&](const Index& at) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += broadcast(a, with(at, rank - 1, i)) * broadcast(b, with(at, rank - 2, i));
    return sum;
  });
}

/// x with x[…, index[i], …] = source[i], or += where `add`.
inline Array scatter(Array x, int dim, const Array& index, const Array& source, bool add) {
  build(index.shape, [&](const Index& from) {
    const Index to = with(from, dim, index(from));
    int64_t flat = 0;
    for (int d = 0; d < x.shape.size(); ++d) flat = flat * x.shape[d] + to[d];
    return x.data[flat] = source(from) + (add ? x.data[flat] : 0);
  });
  return x;
}

/// The elements of x where mask is true; the positions of the elements that are not 0.
inline Array where(const Array& mask, const Array& x) {
  Array y{{}, {}};
  build(mask.shape, [&](const Index& at) { return mask(at) ? y.data.push_back(x(at)), 0. : 0.; });
  y.shape.push_back(y.data.size());
  return y;
}
inline Array nonzero(const Array& x) {
  Array y{{0, x.shape.size()}, {}};
  build(x.shape, [&](const Index& at) {
    if (x(at)) ++y.shape[0], y.data.insert(y.data.end(), at.begin(), at.end());
    return 0.;
  });
  return y;
}

inline Array zip(const Array& a, const Array& b, double (*f)(double, double)) {
  return build(a.shape, [&](const Index& at) { return f(a(at), b(at)); });
}

/// W x (+ b), as a line.
inline Line linear(const Line& x, const Array& weight, const Array& bias = {}) {
  Line y = bias.data;
  y.resize(weight.shape[0]);
  for (size_t j = 0; j < y.size(); ++j)
    for (size_t k = 0; k < x.size(); ++k) y[j] += x[k] * weight.data[j * x.size() + k];
  return y;
}

/// -log_probs[i, target[i]] for each row.
inline Array negative_log_likelihood(const Array& log_probs, const Array& target) {
  return build(target.shape, [&](Index at) { return at.push_back(target(at)), -log_probs(at); });
}

inline double python_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && std::signbit(rest) != std::signbit(b) ? rest + b : rest;
}
inline double floor_divide(double a, double b) {
  if (!std::isfinite(a)) return b == 0 ? a / b : std::nan("");
  if (std::isinf(b) && a != 0) return std::signbit(a) == std::signbit(b) ? 0 : -1;
  const double quotient = std::floor(a / b);  // 0 also where a / b underflows
  return quotient == 0 && a != 0 && std::signbit(a) != std::signbit(b) ? -1 : quotient;
}
inline double logaddexp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return a == b ? a + std::log(2) : std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}
/// The n-th derivative of log Γ's, n > 0, summed term by term up to 1000 and by Euler and Maclaurin beyond.
inline double polygamma(int n, double x) {
  if (x == -kInfinity) return std::nan("");
  long double sum = 0, a = x, factor = n % 2 ? 1 : -1, s = n + 1;
  for (int i = 2; i <= n; ++i) factor *= i;
  if (x <= 0 && x == std::floor(x)) return static_cast<double>(factor) * kInfinity;
  for (int i = 0; i < 1000; ++i, a += 1) sum += std::pow(a, -s);
  sum += std::pow(a, 1 - s) / (s - 1) + std::pow(a, -s) / 2 + s / 12 * std::pow(a, -s - 1);
  return static_cast<double>(factor * (sum - s * (s + 1) * (s + 2) / 720 * std::pow(a, -s - 3)));
}
inline double digamma(double x) {
  if (x == 0) return -1 / x;
  if (x < 0 && x == std::floor(x)) return std::nan("");
  long double sum = 0, a = x;
  for (int i = 0; i < 1000; ++i, a += 1) sum -= 1 / a;
  return static_cast<double>(sum + std::log(a) - 1 / (2 * a) - 1 / (12 * a * a) + 1 / (120 * a * a * a * a));
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double squared_error(double a, double b) { return (a - b) * (a - b); }
inline double cross_entropy(double p, double target) { return -target * std::log(p) - (1 - target) * std::log1p(-p); }
inline double cross_entropy_of_logit(double z, double target) { return std::log1p(std::exp(z)) - target * z; }

/// [h, c'] of an LSTM cell with gates i f g o, and of an N-ary Tree-LSTM cell with gates i f_1 … f_N o u.
inline Array lstm_cell(const Array& gates, const Array& c) {
  const int64_t hidden = c.shape[1];
  return build({c.shape[0], 2 * hidden}, [&](const Index& at) {
    const int64_t row = at[0], j = at[1] % hidden;
    const auto gate = [&](int64_t k) { return gates({row, k * hidden + j}); };
    const double next = sigmoid(gate(1)) * c({row, j}) + sigmoid(gate(0)) * std::tanh(gate(2));
    return at[1] < hidden ? sigmoid(gate(3)) * std::tanh(next) : next;
  });
}
inline Array tree_lstm_cell(const Arrays& gates_and_children) {
  const Array& gates = gates_and_children[0];
  const int64_t children = gates_and_children.size() - 1, hidden = gates.shape[1] / (3 + children);
  return build({gates.shape[0], 2 * hidden}, [&](const Index& at) {
    const int64_t row = at[0], j = at[1] % hidden;
    const auto gate = [&](int64_t k) { return gates({row, k * hidden + j}); };
    double c = sigmoid(gate(0)) * std::tanh(gate(children + 2));
    for (int64_t k = 1; k <= children; ++k) c += sigmoid(gate(k)) * gates_and_children[k]({row, j});
    return at[1] < hidden ? sigmoid(gate(children + 1)) * std::tanh(c) : c;
  });
}

}  // namespace reel::reference
