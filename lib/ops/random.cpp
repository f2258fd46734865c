#include "reel/random.h"

#include <atomic>
#include <numeric>

#include "lib/ops/internal.h"

namespace reel {
namespace {

// ---- the thread's generator -----------------------------------------------------------------------------------------

/// SplitMix64's finalizer (Steele et al. 2014): neighbouring numbers become unrelated seeds.
uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

GeneratorState& generator() {
  static std::atomic<uint64_t> threads{0};
  thread_local GeneratorState state{.seed = scramble(threads.fetch_add(1)), .offset = 0};
  return state;
}

/// The state for n numbers, which are then used up.
GeneratorState draw(int64_t n) {
  GeneratorState& state = generator();
  const GeneratorState now = state;
  state.offset += static_cast<uint64_t>(n);
  return now;
}

void fill_random(RandomKind kind, double a, double b, const Tensor& y) {
  const View& view = view_of(y);
  const GeneratorState state = draw(view.numel);
  backend_of(y).random(kind, a, b, state.seed, state.offset, view);
}

Tensor random_tensor(const char* op, RandomKind kind, double a, double b, const Shape& shape, DType dtype,
                     const TensorOptions& options) {
  REEL_CHECK(kind == RandomKind::kInteger || is_floating_point(dtype), op, ": a tensor of ", dtype,
             "; only floating point ones can be filled with fractions");
  Tensor y = make_tensor(shape, dtype, options.device);
  fill_random(kind, a, b, y);
  return y.requires_grad_(options.requires_grad), y;
}

Tensor& fill_in_place(const char* op, RandomKind kind, double a, double b, Tensor& self) {
  check_in_place(op, self);
  REEL_CHECK(self.is_floating_point(), op, ": a tensor of ", self.dtype(), "; only floating point ones can be filled");
  if (grad_enabled() && tracked(self)) {
    const Tensor values = make_tensor(self.shape(), self.dtype(), self.device());
    fill_random(kind, a, b, values);
    return assign_in_place(op, self, values);
  }
  fill_random(kind, a, b, self);
  TensorImpl::of(self)->storage->changed();
  return self;
}

}  // namespace

void manual_seed(uint64_t seed) { generator() = {.seed = seed, .offset = 0}; }
GeneratorState generator_state() { return generator(); }
void set_generator_state(GeneratorState state) { generator() = state; }

// ---- tensors of random numbers --------------------------------------------------------------------------------------

Tensor rand(const Shape& shape, TensorOptions options) {
  return random_tensor("rand", RandomKind::kUniform, 0, 1, shape, options.dtype.value_or(kFloat32), options);
}

Tensor randn(const Shape& shape, TensorOptions options) {
  return random_tensor("randn", RandomKind::kNormal, 0, 1, shape, options.dtype.value_or(kFloat32), options);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options) {
  constexpr int64_t kMost = int64_t{1} << 53;
  REEL_CHECK(low < high, "randint: no integer in [", low, ", ", high, ")");
  REEL_CHECK(low >= -kMost && high <= kMost, "randint: bounds ", low, " and ", high, " exceed 2^53");
  return random_tensor("randint", RandomKind::kInteger, static_cast<double>(low), static_cast<double>(high), shape,
                       options.dtype.value_or(kInt64), options);
}

Tensor randperm(int64_t n) {
  REEL_CHECK(n >= 0, "randperm: ", n, " elements");
  const Tensor chances = rand({n}, {.dtype = kFloat64}), order = make_tensor({n}, kInt64);
  const double* chance = chances.data<double>();
  int64_t* element = order.data<int64_t>();
  std::iota(element, element + n, 0);
  for (int64_t i = 0; i + 1 < n; ++i)  // Fisher & Yates
    std::swap(element[i], element[i + static_cast<int64_t>(chance[i] * static_cast<double>(n - i))]);
  return order;
}

Tensor& Tensor::uniform_(double low, double high) {
  REEL_CHECK(low <= high, "uniform_: the range [", low, ", ", high, ") is empty");
  return fill_in_place("uniform_", RandomKind::kUniform, low, high, *this);
}

Tensor& Tensor::normal_(double mean, double std) {
  REEL_CHECK(std >= 0, "normal_: the standard deviation ", std, " is negative");
  return fill_in_place("normal_", RandomKind::kNormal, mean, std, *this);
}

// ---- dropout --------------------------------------------------------------------------------------------------------

Tensor dropout(const Tensor& x, double p, bool training) {
  REEL_CHECK(p >= 0 && p <= 1, "dropout: the probability must be in [0, 1], got ", p);
  const DType dtype = view_of(x, "dropout").dtype;
  REEL_CHECK(reel::is_floating_point(dtype), "dropout: a tensor of ", dtype,
             "; only floating point ones can be scaled");
  if (!training || p == 0) return x;
  if (is_half(dtype)) return dropout(to_compute(x), p, training).to(dtype);
  const Tensor dense = x.contiguous();
  const View& view = view_of(dense);
  const Tensor y = make_tensor(view.shape, dtype, x.device()), keep = make_tensor(view.shape, kBool, x.device());
  const GeneratorState state = draw(view.numel);
  backend_of(x).dropout(p, state.seed, state.offset, view, view_of(y), view_of(keep));
  if (recording(dense))
    record("dropout", y, inputs(dense), [keep = Saved(keep), scale = p < 1 ? 1 / (1 - p) : 0](Backward& back) {
      back.set(0, where(back.get(keep), back.grad() * scale, 0));
    });
  return y;
}

}  // namespace reel
