#pragma once
#include <cmath>
#include <functional>
#include <string>

#include "lib/cpu/parts.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/reel.h"
#include "test/support/tolerance.h"

// Whether results depend on the number of threads, or on the division into parts by more than rounding.
namespace reel {

using Tensors = std::vector<Tensor>;

/// set_num_threads() for a scope.
struct Threads {
  const int before = num_threads();
  explicit Threads(int threads) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before); }
};
/// Parts of so many elements for a scope, so that small operands are divided.
struct PartSize {
  const int64_t before = cpu::part_size;
  explicit PartSize(int64_t size) { cpu::part_size = size; }
  ~PartSize() { cpu::part_size = before; }
};

inline std::string bytes_of(const Tensor& x) {
  if (!x.defined()) return "undefined";
  const Tensor dense = x.contiguous();
  const View& view = view_of(dense);
  return {view.as<const char>(), static_cast<size_t>(view.numel * size_of(view.dtype))};
}

/// What f gives, or the message of its Error.
inline std::vector<std::string> results_of(const std::function<Tensors()>& f) {
  std::vector<std::string> results;
  try {
    for (const Tensor& x : f()) results.push_back(bytes_of(x));
  } catch (const Error& e) {
    results.push_back(e.what());
  }
  return results;
}

/// Where the results of f differ for some number of threads, or "".
inline std::string difference(const std::function<Tensors()>& f) {
  const auto run = [&](int threads) {
    const Threads scope(threads);
    manual_seed(29);
    return results_of(f);
  };
  const std::vector<std::string> expected = run(1);
  for (const int threads : {2, 3, 8}) {
    const std::vector<std::string> got = run(threads);
    for (size_t i = 0; i < expected.size(); ++i)
      if (got.size() != expected.size() || got[i] != expected[i])
        return "result " + std::to_string(i) + " with " + std::to_string(threads) + " threads";
  }
  return "";
}

/// Where divided results differ by more than rounding from undivided ones, or "".
inline std::string error_of_division(const std::function<Tensors()>& f) {
  const auto run = [&] { return manual_seed(29), f(); };
  const Tensors divided = run();
  const PartSize undivided(int64_t{1} << 40);
  const Tensors expected = run();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].defined()) continue;
    const std::vector<double> a = divided[i].to_vector<double>(), b = expected[i].to_vector<double>();
    double scale = 0;
    for (const double e : b) scale = std::isfinite(e) ? std::max(scale, std::abs(e)) : scale;
    const double tolerance = is_floating_point(expected[i].dtype()) ? 4 * tolerance_of(expected[i].dtype()) * scale : 0;
    for (size_t k = 0; k < b.size(); ++k)
      if (!(std::abs(a[k] - b[k]) <= tolerance || a[k] == b[k] || (a[k] != a[k] && b[k] != b[k])))
        return "element " + std::to_string(k) + " of result " + std::to_string(i);
  }
  return "";
}

/// A result and the gradients of a function for those inputs that are floats.
inline Tensors with_gradients(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs) {
  Tensors arguments = inputs, targets;
  for (Tensor& x : arguments)
    if (x.is_floating_point()) targets.push_back(x = x.detach().requires_grad_());
  const Tensor y = f(arguments);
  Tensors results{y.detach()};
  if (!y.requires_grad()) return results;
  const Tensor cotangent = randn(y.shape()).to(y.dtype());
  for (const Tensor& g : grad({&y, 1}, targets, {&cotangent, 1}, {.allow_unused = true})) results.push_back(g);
  return results;
}

}  // namespace reel
