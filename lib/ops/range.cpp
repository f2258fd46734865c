#include <algorithm>
#include <cmath>

#include "lib/device/kernels/enums.h"
#include "lib/ops/internal.h"
#include "lib/tensor/op_trace.h"

namespace reel {
namespace {

/// first + at step, where the sum fits though the product need not.
double term(double first, double step, int64_t at) { return first + static_cast<double>(at) * step; }
int64_t term(int64_t first, int64_t step, int64_t at) {
  const auto wide = [](int64_t value) { return static_cast<uint64_t>(value); };
  return static_cast<int64_t>(wide(first) + wide(at) * wide(step));
}

/// Writes first + at step, first + (at + 1) step, … to n elements.
template <class T, class Out>
void write_progression(T first, T step, int64_t at, int64_t n, Out* elements) {
  for (int64_t i = 0; i < n; ++i) elements[i] = static_cast<Out>(term(first, step, at + i));
}

/// int64 or float64: element i is first + (at + i) step. Where the host cannot write to the device, kernels compute it,
/// with the same bits: there is no copy of pageable memory, which would wait for the device and cannot be captured.
template <class T>
Tensor progression(T first, T step, int64_t at, int64_t n, Device device) {
  const Tensor result = make_tensor({n}, dtype_of<T>(), device);
  if (view_of(result).host) {
    if (n) write_progression(first, step, at, n, result.data<T>());
  } else if constexpr (std::is_floating_point_v<T>) {
    return progression<int64_t>(at, 1, 0, n, device).to(kFloat64).mul_(step).add_(first);
  } else if (n) {
    const Tensor steps = make_tensor({n}, kInt64, device);
    const KernelTable& kernels = kernels_on(device);
    kernels.fill(view_of(steps), step);
    kernels.fill(view_of(steps.narrow(0, 0, 1)), term(first, step, at));
    kernels.scan(ScanOp::kSum, view_of(steps), 0, view_of(result));
  }
  return result;
}
/// Converts the exact elements to dtype. It is an Error if that cannot hold the first or the last one.
Tensor finished(const char* op, Scalar first, Scalar last, const Tensor& exact, const TensorOptions& options,
                DType dtype) {
  if (exact.numel()) check_fits(op, first, dtype), check_fits(op, last, dtype);
  Tensor result = exact.to(dtype);
  return result.requires_grad_(options.requires_grad), result;
}
}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options) {
  const bool integral = !start.is_floating_point() && !end.is_floating_point() && !step.is_floating_point();
  REEL_CHECK(step.to<double>() != 0, "arange: step 0");
  const DType dtype = options.dtype.value_or(integral ? kInt64 : kFloat32);
  if (integral) {
    const int64_t from = start.to<int64_t>(), by = step.to<int64_t>();
    __extension__ using Wide = __int128;
    const Wide distance = Wide{end.to<int64_t>()} - from, count = (distance + by - (by > 0 ? 1 : -1)) / by;
    REEL_CHECK(count <= INT64_MAX, "arange: from ", from, " to ", end.to<int64_t>(), " by ", by,
               " are more elements than 63 bits count");
    const int64_t n = std::max<int64_t>(0, static_cast<int64_t>(count));
    return call("arange", std::span<const Tensor>(), {{"start", from}, {"end", end.to<int64_t>()}, {"step", by}},
                [&](std::span<const Tensor>) {
                  return finished("arange", from, term(from, by, n - 1), progression(from, by, 0, n, options.device),
                                  options, dtype);
                });
  }
  const double from = start.to<double>(), by = step.to<double>(), n = std::ceil((end.to<double>() - from) / by);
  REEL_CHECK(n < 9e15, "arange: ", n, " elements");
  const int64_t count = std::max<int64_t>(0, static_cast<int64_t>(n));
  if (!is_floating_point(dtype)) {  // as in NumPy: start and step are rounded, not their sums
    check_fits("arange", start, kInt64), check_fits("arange", step, kInt64);
    const int64_t first = start.to<int64_t>(), distance = step.to<int64_t>();
    return finished("arange", first, term(first, distance, count - 1),
                    progression(first, distance, 0, count, options.device), options, dtype);
  }
  return finished("arange", from, term(from, by, count - 1), progression(from, by, 0, count, options.device), options,
                  dtype);
}
Tensor arange(Scalar end, TensorOptions options) {
  return arange(end.is_floating_point() ? Scalar(0.0) : Scalar(0), end, 1, options);
}

Tensor linspace(double start, double end, int64_t steps, TensorOptions options) {
  REEL_CHECK(steps >= 0, "linspace: ", steps, " steps");
  const double by = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  // From both ends, so that each is exact.
  const int64_t half = steps == 1 ? 1 : steps / 2;
  const int64_t at = half - steps + 1, rest = steps - half;
  const DType dtype = options.dtype.value_or(kFloat32);
  Tensor elements;
  if (dtype == kFloat32 && options.device == kCPU && steps) {  // rounded as they are written
    elements = make_tensor({steps}, dtype, options.device);
    float* const to = elements.data<float>();
    write_progression(start, by, 0, half, to), write_progression(end, by, at, rest, to + half);
  } else {
    elements = cat({progression(start, by, 0, half, options.device), progression(end, by, at, rest, options.device)});
  }
  return finished("linspace", start, steps == 1 ? start : end, elements, options, dtype);
}

}  // namespace reel
