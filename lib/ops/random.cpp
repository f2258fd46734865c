#include "reel/random.h"

#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>

#include "lib/device/device.h"
#include "lib/device/kernels/enums.h"
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
  static constinit std::atomic<uint64_t> threads{0};
  static constinit thread_local std::optional<GeneratorState> state;
  if (!state) [[unlikely]]
    state = {.seed = scramble(threads.fetch_add(1)), .offset = 0};
  return *state;
}

/// The state for n numbers, which are then used up.
GeneratorState draw(int64_t n) {
  GeneratorState& state = generator();
  const GeneratorState now = state;
  state.offset += static_cast<uint64_t>(n);
  return now;
}

/// Calls kernel(state for n numbers) for the elements of y; again, with the next numbers, in every replay of a graph
/// that is being captured.
template <class Kernel>
void with_numbers(const Tensor& y, int64_t n, Kernel kernel) {
  kernel(draw(n));
  if (!view_of(y).host && capturing()) current_capture->before_replay([=] { kernel(draw(n)); });
}

void fill_random(RandomKind kind, double a, double b, const Tensor& y) {
  with_numbers(y, view_of(y).numel, [=, &table = kernels_of(y), view = view_of(y)](GeneratorState state) {
    table.random(kind, a, b, state.seed, state.offset, view);
  });
}

Tensor random_tensor(const char* op, RandomKind kind, double a, double b, const Shape& shape, DType dtype,
                     const TensorOptions& options) {
  REEL_CHECK(kind == RandomKind::kInteger || is_floating_point(dtype), op, ": a tensor of ", dtype,
             "; only floating point ones can be filled with fractions");
  Tensor y = make_tensor(shape, dtype, options.device);
  fill_random(kind, a, b, y);
  return y.requires_grad_(options.requires_grad), y;
}

// Whole numbers go into tensors of integers, too.
Tensor& fill_in_place(const char* op, RandomKind kind, double a, double b, Tensor& self, bool whole = false) {
  check_in_place(op, self);
  REEL_CHECK(whole || self.is_floating_point(), op, ": a tensor of ", self.dtype(),
             "; only floating point ones can be filled");
  if (grad_enabled() && needs_grad(self)) {
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

Tensor get_rng_state() {
  const GeneratorState& state = generator();
  return tensor(std::vector<int64_t>{static_cast<int64_t>(state.seed), static_cast<int64_t>(state.offset)}, on_host());
}
void set_rng_state(const Tensor& state) {
  const View& view = view_of(state, "set_rng_state");
  REEL_CHECK(view.dtype == kInt64 && view.shape == Shape{2}, "set_rng_state: ", view.dtype, " ", view.shape,
             ", not int64 [2] as get_rng_state gives it");
  const std::vector<int64_t> numbers = state.to_vector<int64_t>();
  generator() = {static_cast<uint64_t>(numbers[0]), static_cast<uint64_t>(numbers[1])};
}

// ---- tensors of random numbers --------------------------------------------------------------------------------------

Tensor rand(const Shape& shape, TensorOptions options) {
  return random_tensor("rand", RandomKind::kUniform, 0, 1, shape, options.dtype.value_or(kFloat32), options);
}

Tensor randn(const Shape& shape, TensorOptions options) {
  return random_tensor("randn", RandomKind::kNormal, 0, 1, shape, options.dtype.value_or(kFloat32), options);
}

static void check_range(const char* op, int64_t low, int64_t high, DType dtype) {
  REEL_CHECK(low < high, op, ": no integer in [", low, ", ", high, ")");
  // Up to here a type has all integers. Draws are made in double precision.
  const int bits = dtype == kFloat16 ? 11 : dtype == kBFloat16 ? 8 : dtype == kFloat32 ? 24 : 53;
  const int64_t most = int64_t{1} << bits;
  REEL_CHECK(low >= -most && high - 1 <= most, op, ": bounds ", low, " and ", high, " exceed 2^", bits,
             ", too large for ", dtype);
  check_fits(op, low, dtype), check_fits(op, high - 1, dtype);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options) {
  check_range("randint", low, high, options.dtype.value_or(kInt64));
  return random_tensor("randint", RandomKind::kInteger, static_cast<double>(low), static_cast<double>(high), shape,
                       options.dtype.value_or(kInt64), options);
}

namespace {
Tensor filled_like(const char* op, RandomKind kind, double a, double b, const Tensor& other,
                   const TensorOptions& options) {
  view_of(other, op);
  Tensor y = empty_like(other, options);
  NoGrad guard;
  return fill_in_place(op, kind, a, b, y, kind == RandomKind::kInteger);
}
}  // namespace
Tensor rand_like(const Tensor& other, TensorOptions options) {
  return filled_like("rand_like", RandomKind::kUniform, 0, 1, other, options);
}
Tensor randn_like(const Tensor& other, TensorOptions options) {
  return filled_like("randn_like", RandomKind::kNormal, 0, 1, other, options);
}
Tensor randint_like(const Tensor& other, int64_t low, int64_t high, TensorOptions options) {
  check_range("randint_like", low, high, options.dtype.value_or(view_of(other, "randint_like").dtype));
  return filled_like("randint_like", RandomKind::kInteger, static_cast<double>(low), static_cast<double>(high), other,
                     options);
}

Tensor randperm(int64_t n, TensorOptions options) {
  REEL_CHECK(n >= 0, "randperm: ", n, " elements");
  if (n > 0) check_fits("randperm", n - 1, options.dtype.value_or(kInt64));
  const Tensor chances = rand({n}, on_host(kFloat64)), order = make_tensor({n}, kInt64);
  const double* chance = chances.data<double>();
  int64_t* element = order.data<int64_t>();
  std::iota(element, element + n, 0);
  for (int64_t i = 0; i + 1 < n; ++i)  // Fisher & Yates
    std::swap(element[i], element[i + static_cast<int64_t>(chance[i] * static_cast<double>(n - i))]);
  return order.to(options.dtype.value_or(kInt64)).to(options.device);
}

Tensor& TensorMethods::uniform_(double low, double high) {
  REEL_CHECK(low <= high, "uniform_: the range [", low, ", ", high, ") is empty");
  const DType dtype = view_of(self(this), "uniform_").dtype;
  const double most = dtype == kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  REEL_CHECK(high - low <= most, "uniform_: the range [", low, ", ", high, ") is too wide for ", dtype);
  return fill_in_place("uniform_", RandomKind::kUniform, low, high, self(this));
}

Tensor& TensorMethods::normal_(double mean, double std) {
  REEL_CHECK(std >= 0, "normal_: the standard deviation ", std, " is negative");
  return fill_in_place("normal_", RandomKind::kNormal, mean, std, self(this));
}

Tensor& TensorMethods::log_normal_(double mean, double std) {
  REEL_CHECK(std > 0, "log_normal_: the standard deviation ", std, " is not positive");
  return fill_in_place("log_normal_", RandomKind::kLogNormal, mean, std, self(this));
}
Tensor& TensorMethods::exponential_(double lambda) {
  REEL_CHECK(lambda > 0, "exponential_: the rate lambda ", lambda, " is not positive");
  return fill_in_place("exponential_", RandomKind::kExponential, lambda, 0, self(this));
}
Tensor& TensorMethods::cauchy_(double median, double sigma) {
  REEL_CHECK(sigma > 0, "cauchy_: sigma ", sigma, " is not positive");
  return fill_in_place("cauchy_", RandomKind::kCauchy, median, sigma, self(this));
}
Tensor& TensorMethods::geometric_(double p) {
  REEL_CHECK(p > 0 && p < 1, "geometric_: the probability must be in (0, 1), got ", p);
  return fill_in_place("geometric_", RandomKind::kGeometric, p, 0, self(this), true);
}
Tensor& TensorMethods::random_(int64_t low, int64_t high) {
  check_range("random_", low, high, view_of(self(this), "random_").dtype);
  return fill_in_place("random_", RandomKind::kInteger, static_cast<double>(low), static_cast<double>(high), self(this),
                       true);
}

// ---- tensors of outcomes --------------------------------------------------------------------------------------------

namespace {
void check_probabilities(const char* op, const Tensor& p) {
  REEL_CHECK(p.numel() == 0 || !is_readable(p) || all((p >= 0) & (p <= 1)).item<bool>(), op,
             ": probabilities must be in [0, 1], got ", min(p).item<double>(), " to ", max(p).item<double>());
}
// Success in each element of `shape` with the probabilities p; bool.
Tensor successes(const char* op, const Tensor& p, const Shape& shape) {
  check_probabilities(op, p);
  // By numbers of 53 bits: those of float32, multiples of 2⁻²⁴, would be below a tiny p too often.
  return rand(shape, {.dtype = kFloat64, .device = p.device()}) < p.to(kFloat64);
}
}  // namespace

Tensor bernoulli(const Tensor& p) {
  REEL_CHECK(is_floating_point(view_of(p, "bernoulli").dtype), "bernoulli: probabilities of ", p.dtype(),
             ", not floating point");
  return no_grad([&] { return successes("bernoulli", p, p.shape()).to(p.dtype()); });
}
Tensor& TensorMethods::bernoulli_() { return bernoulli_(0.5); }
Tensor& TensorMethods::bernoulli_(const Tensor& p) {
  view_of(self(this), "bernoulli_"), view_of(p, "bernoulli_");
  check_in_place("bernoulli_", self(this));
  return assign_in_place("bernoulli_", self(this),
                         no_grad([&] { return successes("bernoulli_", p, self(this).shape()); }));
}

Tensor normal(const Tensor& mean, const Tensor& std) {
  view_of(mean, "normal"), view_of(std, "normal");
  REEL_CHECK(std.numel() == 0 || !is_readable(std) || min(std).item<double>() >= 0, "normal: the standard deviation ",
             min(std).item<double>(), " is negative");
  const DType dtype = result_type(mean, std);
  const TensorOptions options{.dtype = reel::is_floating_point(dtype) ? dtype : kFloat32,
                              .device = common_device("normal", {&mean, &std})};
  return no_grad([&] { return randn(broadcast_shapes(mean.shape(), std.shape(), "normal"), options) * std + mean; });
}

Tensor poisson(const Tensor& rate) {
  const DType dtype = view_of(rate, "poisson").dtype;
  REEL_CHECK(is_floating_point(dtype), "poisson: rates of ", dtype, ", not floating point");
  NoGrad guard;
  REEL_CHECK(rate.numel() == 0 || all(rate >= 0).item<bool>(), "poisson: the rate ", min(rate).item<double>(),
             " is negative");
  const Tensor dense = to_compute(rate).contiguous();
  const Tensor y = make_tensor(dense.shape(), dense.dtype(), dense.device());
  with_numbers(y, dense.numel(),
               [&table = kernels_of(y), from = view_of(dense), to = view_of(y)](GeneratorState state) {
                 table.poisson(state.seed, state.offset, from, to);
               });
  return y.to(dtype);
}

Tensor multinomial(const Tensor& probs, int64_t num_samples, bool replacement) {
  const View& view = view_of(probs, "multinomial");
  const int rank = view.shape.size();
  REEL_CHECK(is_floating_point(view.dtype) && (rank == 1 || rank == 2), "multinomial: probs of ", view.dtype, " ",
             view.shape, "; expected floating point [categories] or [rows, categories]");
  REEL_CHECK(num_samples > 0, "multinomial: ", num_samples, " samples");
  NoGrad guard;
  const Tensor weights = probs.to(kFloat64).contiguous();
  const Shape rows = rank == 2 ? Shape{view.shape[0]} : Shape{};
  REEL_CHECK(view.numel == 0 || all((probs >= 0) & isfinite(probs)).item<bool>(),
             "multinomial: probabilities must be finite and not negative");
  const int64_t needed = replacement ? 1 : num_samples;
  // The last sum of a row tells whether there is a possible category, and whether all sums are finite.
  const bool summed = replacement && view.shape.back() > 0;
  const Tensor sums = summed ? cumsum(weights, -1) : Tensor(), totals = summed ? sums.select(-1, -1) : Tensor();
  const Tensor possible = summed ? (totals > 0).to(kInt64) : sum(weights > 0, -1);
  const int64_t fewest = possible.numel() ? min(possible).item<int64_t>() : needed;
  REEL_CHECK(fewest >= needed, "multinomial: ", needed, replacement ? "" : " different", " samples of a row with ",
             fewest, " possible categories");
  if (!replacement)  // a race: category i comes first with probability weights[i] / their sum
    return topk(weights / make_tensor(weights.shape(), kFloat64, weights.device()).exponential_(), num_samples).indices;
  Shape shape = rows;
  shape.push_back(num_samples);
  const Tensor y = make_tensor(shape, kInt64, probs.device());
  if (y.numel() == 0) return y;
  REEL_CHECK(all(isfinite(totals)).item<bool>(), "multinomial: the probabilities of a row add up to infinity");
  with_numbers(y, y.numel(), [&table = kernels_of(y), from = view_of(sums), to = view_of(y)](GeneratorState state) {
    table.multinomial(state.seed, state.offset, from, to);
  });
  return y;
}

// ---- dropout --------------------------------------------------------------------------------------------------------

Tensor dropout(const Tensor& x, double p, bool training) {
  REEL_CHECK(p >= 0 && p <= 1, "dropout: the probability must be in [0, 1], got ", p);
  const DType dtype = view_of(x, "dropout").dtype;
  REEL_CHECK(reel::is_floating_point(dtype), "dropout: a tensor of ", dtype,
             "; only floating point ones can be scaled");
  if (!training || p == 0) return x;
  const Tensor dense = x.contiguous();
  const View& view = view_of(dense);
  const Tensor y = make_tensor(view.shape, dtype, x.device()), keep = make_tensor(view.shape, kBool, x.device());
  with_numbers(y, view.numel, [=, &table = kernels_of(x), to = view_of(y), mask = view_of(keep)](GeneratorState state) {
    table.dropout(p, state.seed, state.offset, view, to, mask);
  });
  if (recording(dense))
    record("dropout", y, inputs(dense), [keep = SavedTensor(keep), p](Backward& back) {
      const Tensor mask = back.get(keep), g = back.grad().contiguous();
      if (back.create_graph()) return back.set(0, where(mask, g * (p < 1 ? 1 / (1 - p) : 0), 0));
      const Tensor gx = make_tensor(g.shape(), g.dtype(), g.device());
      kernels_of(g).dropout_grad(p, view_of(g), view_of(mask), view_of(gx));
      back.set(0, gx);
    });
  return y;
}

namespace {

void check_dropout(const char* op, const Tensor& x, double p) {
  const DType dtype = view_of(x, op).dtype;
  REEL_CHECK(p >= 0 && p <= 1, op, ": the probability must be in [0, 1], got ", p);
  REEL_CHECK(is_floating_point(dtype), op, ": a tensor of ", dtype, "; only floating point ones can be dropped");
}

// x with whole channels dropped; `channels` of its leading dimensions tell them apart.
Tensor dropout_channels(const char* op, const Tensor& x, double p, bool training, int channels) {
  check_dropout(op, x, p);
  if (!training || p == 0) return x;
  Shape shape = x.shape();
  for (int d = channels; d < shape.size(); ++d) shape[d] = 1;
  return x * dropout(ones(shape, {.dtype = x.dtype(), .device = x.device()}), p);
}

// Dropped elements become SELU's limit -λα, then scaled and shifted to keep mean and variance.
Tensor alpha_dropout_of(const char* op, const Tensor& x, double p, bool training, int channels) {
  check_dropout(op, x, p);
  if (!training || p == 0) return x;
  if (p == 1) return x * 0;
  constexpr double kLimit = 1.7580993408473766;
  const double scale = 1 / std::sqrt((kLimit * kLimit * p + 1) * (1 - p));
  Shape shape = x.shape();
  for (int d = channels; d < shape.size(); ++d) shape[d] = 1;
  const Tensor keep = rand(shape, {.device = x.device()}) >= p;
  const Tensor shift = full({}, kLimit * scale * p, {.dtype = x.dtype(), .device = x.device()});
  return add(shift, where(keep, x, -kLimit), scale);
}

}  // namespace

Tensor dropout1d(const Tensor& x, double p, bool training) {
  const int rank = view_of(x, "dropout1d").shape.size();
  REEL_CHECK(rank == 2 || rank == 3, "dropout1d: x of shape ", x.shape(), "; expected [C, L] or [N, C, L]");
  return dropout_channels("dropout1d", x, p, training, rank - 1);
}
Tensor dropout2d(const Tensor& x, double p, bool training) {
  const int rank = view_of(x, "dropout2d").shape.size();
  REEL_CHECK(rank == 3 || rank == 4, "dropout2d: x of shape ", x.shape(), "; expected [N, C, L] or [N, C, H, W]");
  return dropout_channels("dropout2d", x, p, training, 2);
}
Tensor dropout3d(const Tensor& x, double p, bool training) {
  const int rank = view_of(x, "dropout3d").shape.size();
  REEL_CHECK(rank == 4 || rank == 5, "dropout3d: x of shape ", x.shape(), "; expected [C, D, H, W] or [N, C, D, H, W]");
  return dropout_channels("dropout3d", x, p, training, rank - 3);
}
Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  return alpha_dropout_of("alpha_dropout", x, p, training, kMaxDims);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  REEL_CHECK(view_of(x, "feature_alpha_dropout").shape.size() >= 2, "feature_alpha_dropout: x of shape ", x.shape(),
             "; expected at least [N, C]");
  return alpha_dropout_of("feature_alpha_dropout", x, p, training, 2);
}

}  // namespace reel
