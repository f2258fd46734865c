#include "cuda/elementwise.h"
#include "cuda/kernels.h"
#include "cuda/strided.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/philox.h"
#include "lib/functors/number.h"

// Random numbers, multinomial samples and dropout by the counter-based generator Philox (lib/device/philox.h): number i
// of a stream is a function of seed and i, so any thread can make it.
//
// The numbers are those of the CPU, bit for bit where the math functions of both agree. Hence this file is compiled
// with -fmad=false: a fused multiply-add rounds once where the CPU rounds twice.
//
// Seed and offset are updated on each replay of a captured graph (ReplayParam), and an offset need not be a multiple of
// 4 then: kernels decide at run time whether they can store vectors.
namespace reel::cuda {
namespace {

/// Numbers offset … offset + count - 1 of a stream. Philox makes them in blocks of four (lanes), the first and last of
/// which may be used in part.
struct Numbers {
  uint64_t seed, offset;
  int64_t count;

  __host__ __device__ int64_t blocks() const { return static_cast<int64_t>((offset % 4 + count + 3) / 4); }
  __device__ PhiloxBlock block(int64_t b, uint32_t extra = 0) const { return philox(seed, offset / 4 + b, extra); }
  /// The index, counted from offset, of lane 0 of block b. It is negative where the range begins within the block.
  __device__ int64_t first(int64_t b) const { return 4 * b - int64_t(offset % 4); }
};

// ---- storing them ---------------------------------------------------------------------------------------------------

template <class To, class From>
__device__ To convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
    return functors::to_integer<To>(x);
  else
    return narrow<To>(x);
}

/// A tensor of any dtype and layout. `packed`: contiguous, aligned and of the type in which numbers are made, so that
/// blocks are stored as vectors.
struct Target {
  DType dtype;
  bool packed;
  Strided<1> s;
  void* data;

  template <class T>
  __device__ void put(int64_t i, T x) const {
    const int64_t at = locate(s, i);
    switch (dtype) {
      case kBool: static_cast<bool*>(data)[at] = x != T(0); break;
      case kUInt8: static_cast<uint8_t*>(data)[at] = convert<uint8_t>(x); break;
      case kInt32: static_cast<int32_t*>(data)[at] = convert<int32_t>(x); break;
      case kInt64: static_cast<int64_t*>(data)[at] = convert<int64_t>(x); break;
      case kFloat16: static_cast<__half*>(data)[at] = convert<__half>(x); break;
      case kBFloat16: static_cast<__nv_bfloat16*>(data)[at] = convert<__nv_bfloat16>(x); break;
      case kFloat32: static_cast<float*>(data)[at] = convert<float>(x); break;
      case kFloat64: static_cast<double*>(data)[at] = convert<double>(x); break;
    }
  }
};

// ---- distributions --------------------------------------------------------------------------------------------------

// Each functor makes four numbers from a block of four 32-bit lanes and, where kExtra, from a second block with 32 bits
// more for each: float64 and integers take more bits than a lane has.

template <class T>
struct Uniform {
  using Value = T;
  static constexpr bool kExtra = sizeof(T) == 8;
  T start, scale, end;
  Uniform(double low, double high) : start(T(low)), scale(T(high) - T(low)), end(T(high)) {}
  // start + u * scale may round up to the upper end, which is not part of the interval.
  __device__ T place(T u) const {
    const T value = start + u * scale;
    return value < end || start == end ? value : start;
  }
  __device__ void operator()(const PhiloxBlock& block, const PhiloxBlock& extra, T (&y)[4]) const {
    for (int i = 0; i < 4; ++i) {
      if constexpr (kExtra)
        y[i] = place(uniform_double(block.lane[i], extra.lane[i]));
      else
        y[i] = place(uniform_float(block.lane[i]));
    }
  }
};

/// Uniform numbers for a half type, with no more bits than it has: rounded ones might reach `end`.
template <class Half>
struct Coarse {
  using Value = float;
  static constexpr bool kExtra = false;
  static constexpr float kSteps = std::is_same_v<Half, __half> ? 0x1p11f : 0x1p8f;
  float start, scale, end;
  Coarse(double low, double high)
      : start(static_cast<float>(low)), scale(static_cast<float>(high - low)), end(static_cast<float>(high)) {}
  __device__ void operator()(const PhiloxBlock& block, const PhiloxBlock&, float (&y)[4]) const {
    for (int i = 0; i < 4; ++i) {
      const float value = start + functors::floor(uniform_float(block.lane[i]) * kSteps) / kSteps * scale;
      y[i] = widen(narrow<Half>(value)) < end ? value : start;
    }
  }
};

template <class T>
struct Normal {
  using Value = T;
  static constexpr bool kExtra = sizeof(T) == 8;
  T mean, std;
  bool log;
  __device__ void operator()(const PhiloxBlock& block, const PhiloxBlock& extra, T (&y)[4]) const {
    for (int i = 0; i < 4; i += 2) {
      if constexpr (kExtra) {
        const double u = uniform_double(block.lane[i], extra.lane[i]) + 0x1p-54;
        const double v = uniform_double(block.lane[i + 1], extra.lane[i + 1]);
        const double radius = functors::sqrt(-2 * functors::log(u)), angle = 6.283185307179586477 * v;
        y[i] = mean + std * radius * functors::cos(angle);
        y[i + 1] = mean + std * radius * functors::sin(angle);
      } else {
        const NormalPair pair = normal_pair(block.lane[i], block.lane[i + 1]);
        y[i] = mean + std * pair.first;
        y[i + 1] = mean + std * pair.second;
      }
    }
    if (log)
      for (T& value : y) value = functors::exp(value);
  }
};

struct Integer {
  using Value = int64_t;
  static constexpr bool kExtra = true;
  uint64_t start, range;
  Integer(double low, double high)
      : start(static_cast<uint64_t>(static_cast<int64_t>(low))),
        range(static_cast<uint64_t>(static_cast<int64_t>(high)) - start) {}
  __device__ void operator()(const PhiloxBlock& block, const PhiloxBlock& extra, int64_t (&y)[4]) const {
    for (int i = 0; i < 4; ++i) y[i] = int64_t(start + uniform_integer(block.lane[i], extra.lane[i], range));
  }
};

/// Inverse transform sampling.
template <class T>
struct Inverse {
  using Value = T;
  static constexpr bool kExtra = true;
  RandomKind kind;
  double a, b;
  __device__ double transform(double u) const {
    switch (kind) {
      case RandomKind::kExponential:
        return u > 0 ? -functors::log1p(-u) / a : 0x1p-54 / a;  // never 0: its logarithm is finite
      case RandomKind::kCauchy: return a + b * functors::tan(functors::kPi * (u - 0.5));
      default: return 1 + functors::floor(functors::log1p(-u) / functors::log1p(-a));  // kGeometric
    }
  }
  __device__ void operator()(const PhiloxBlock& block, const PhiloxBlock& extra, T (&y)[4]) const {
    for (int i = 0; i < 4; ++i) y[i] = static_cast<T>(transform(uniform_double(block.lane[i], extra.lane[i])));
  }
};

template <class Make>
__global__ void random_kernel(Make make, ReplayParam<Numbers> param, Target target) {
  using T = typename Make::Value;
  const Numbers numbers = param.get();
  const bool packed = target.packed && numbers.offset % 4 == 0;
  for (int64_t b = first_index(); b < numbers.blocks(); b += index_step()) {
    const PhiloxBlock block = numbers.block(b);
    PhiloxBlock extra{};
    if constexpr (Make::kExtra) extra = numbers.block(b, 1);
    AlignedVector<T, 4> y;
    make(block, extra, y.items);
    const int64_t first = numbers.first(b);
    if (packed && first + 4 <= numbers.count) {
      static_cast<AlignedVector<T, 4>*>(target.data)[b] = y;
    } else {
      for (int i = 0; i < 4; ++i)
        if (first + i >= 0 && first + i < numbers.count) target.put(first + i, y.items[i]);
    }
  }
}

template <class Make>
void fill(const Make& make, const Numbers& numbers, const View& y) {
  using T = typename Make::Value;
  const bool packed = y.contiguous && y.dtype == dtype_of<T>() && is_aligned<alignof(AlignedVector<T, 4>)>(y.data);
  launch(random_kernel<Make>, blocks_for(numbers.blocks()), kThreads, 0, make, ReplayParam<Numbers>(numbers),
         Target{y.dtype, packed, merge_dims(y), y.data});
}

void random(RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y) {
  if (y.numel == 0) return;
  const Numbers numbers{seed, offset, y.numel};
  if (kind == RandomKind::kInteger) return fill(Integer(a, b), numbers, y);
  if (kind == RandomKind::kUniform && y.dtype == kFloat16) return fill(Coarse<__half>(a, b), numbers, y);
  if (kind == RandomKind::kUniform && y.dtype == kBFloat16) return fill(Coarse<__nv_bfloat16>(a, b), numbers, y);
  const bool wide = y.dtype == kFloat64 || !is_floating_point(y.dtype);  // float32 does not have all integers
  with_float(wide ? kFloat64 : kFloat32, [&](auto type) {
    using T = typename decltype(type)::type;
    switch (kind) {
      case RandomKind::kUniform: return fill(Uniform<T>(a, b), numbers, y);
      case RandomKind::kNormal: return fill(Normal<T>{T(a), T(b), false}, numbers, y);
      case RandomKind::kLogNormal: return fill(Normal<T>{T(a), T(b), true}, numbers, y);
      default: return fill(Inverse<T>{kind, a, b}, numbers, y);
    }
  });
}

// ---- poisson --------------------------------------------------------------------------------------------------------

__device__ double draw_poisson(double rate, Draws draw) {
  if (!(rate > 0)) return rate == 0 ? 0 : NAN;
  if (rate < 10) {  // by the arrival times of the events
    const double end = functors::exp(-rate);
    double product = draw();
    int64_t events = 0;
    for (; product > end; ++events) product *= draw();
    return static_cast<double>(events);
  }
  // Transformed rejection (Hörmann 1993, PTRS).
  const double root = functors::sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = draw() - 0.5, v = draw(), distance = 0.5 - functors::abs(u);
    const double k = functors::floor((2 * a / distance + b) * u + rate + 0.43);
    if (distance >= 0.07 && v <= v_r) return k;
    if (k < 0 || (distance < 0.013 && v > distance)) continue;
    const double bound = k * functors::log(rate) - rate - functors::lgamma(k + 1);
    if (functors::log(v * inverse_alpha / (a / (distance * distance) + b)) <= bound) return k;
  }
}

template <class T>
__global__ void poisson_kernel(ReplayParam<Numbers> param, const T* rate, T* y) {
  const Numbers numbers = param.get();
  for (int64_t i = first_index(); i < numbers.count; i += index_step())
    y[i] = static_cast<T>(draw_poisson(rate[i], {numbers.seed, numbers.offset + i}));
}

void poisson(uint64_t seed, uint64_t offset, const View& rate, const View& y) {
  with_float(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(poisson_kernel<T>, blocks_for(y.numel), kThreads, 0, ReplayParam<Numbers>({seed, offset, y.numel}),
           rate.as<const T>(), y.as<T>());
  });
}

// ---- multinomial ----------------------------------------------------------------------------------------------------

/// Binary search: the index of the first number for which f holds, n if there is none.
template <class F>
__device__ int64_t first_of(const double* numbers, int64_t n, const F& f) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (f(numbers[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

__global__ void multinomial_kernel(ReplayParam<Numbers> param, int64_t categories, int64_t samples, const double* sums,
                                   int64_t* y) {
  const Numbers numbers = param.get();
  for (int64_t b = first_index(); b < numbers.blocks(); b += index_step()) {
    const PhiloxBlock block = numbers.block(b), extra = numbers.block(b, 1);
    for (int lane = 0; lane < 4; ++lane) {
      const int64_t i = numbers.first(b) + lane;
      if (i < 0 || i >= numbers.count) continue;
      const double* const row = sums + divide(i, samples) * categories;
      const double total = row[categories - 1], wanted = uniform_double(block.lane[lane], extra.lane[lane]) * total;
      int64_t found = first_of(row, categories, [&](double sum) { return sum > wanted; });
      if (found == categories)  // `wanted` was rounded up to the total
        found = first_of(row, categories, [&](double sum) { return !(sum < total); });
      y[i] = found;
    }
  }
}

void multinomial(uint64_t seed, uint64_t offset, const View& sums, const View& y) {
  if (y.numel == 0) return;
  const Numbers numbers{seed, offset, y.numel};
  launch(multinomial_kernel, blocks_for(numbers.blocks()), kThreads, 0, ReplayParam<Numbers>(numbers),
         sums.shape.back(), y.shape.back(), sums.as<const double>(), y.as<int64_t>());
}

// ---- dropout --------------------------------------------------------------------------------------------------------

/// Keeps an element where its lane is not below the threshold.
template <class T>
struct Dropout {
  uint32_t threshold;
  bool none;  // kept
  Wide<T> scale;
  __device__ T operator()(T x, uint32_t lane, uint8_t& kept) const {
    kept = !none && lane >= threshold;
    return narrow<T>(kept ? widen(x) * scale : Wide<T>(0));
  }
};

template <class T>
__global__ void dropout_kernel(Dropout<T> drop, ReplayParam<Numbers> param, bool aligned, const T* x, T* y,
                               uint8_t* keep) {
  const Numbers numbers = param.get();
  const bool packed = aligned && numbers.offset % 4 == 0;
  for (int64_t b = first_index(); b < numbers.blocks(); b += index_step()) {
    const PhiloxBlock block = numbers.block(b);
    const int64_t first = numbers.first(b);
    if (packed && first + 4 <= numbers.count) {
      const AlignedVector<T, 4> in = reinterpret_cast<const AlignedVector<T, 4>*>(x)[b];
      AlignedVector<T, 4> out;
      AlignedVector<uint8_t, 4> kept;
      for (int i = 0; i < 4; ++i) out.items[i] = drop(in.items[i], block.lane[i], kept.items[i]);
      reinterpret_cast<AlignedVector<T, 4>*>(y)[b] = out;
      reinterpret_cast<AlignedVector<uint8_t, 4>*>(keep)[b] = kept;
    } else {
      for (int lane = 0; lane < 4; ++lane) {
        const int64_t i = first + lane;
        if (i >= 0 && i < numbers.count) y[i] = drop(x[i], block.lane[lane], keep[i]);
      }
    }
  }
}

void dropout(double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep) {
  if (x.numel == 0) return;
  const Numbers numbers{seed, offset, x.numel};
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Dropout<T> drop{static_cast<uint32_t>(p * 4294967295.0), p >= 1, p < 1 ? Wide<T>(1 / (1 - p)) : Wide<T>(0)};
    constexpr size_t kAlignment = alignof(AlignedVector<T, 4>);
    const bool aligned = is_aligned<kAlignment>(x.data) && is_aligned<kAlignment>(y.data) && is_aligned<4>(keep.data);
    launch(dropout_kernel<T>, blocks_for(numbers.blocks()), kThreads, 0, drop, ReplayParam<Numbers>(numbers), aligned,
           x.as<const T>(), y.as<T>(), keep.as<uint8_t>());
  });
}

template <class T>
struct DropoutGrad {
  Wide<T> scale;
  __device__ Wide<T> operator()(Wide<T> g, uint8_t keep) const { return keep ? g * scale : Wide<T>(0); }
};

void dropout_grad(double p, const View& g, const View& keep, const View& gx) {
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T, uint8_t>(DropoutGrad<T>{p < 1 ? Wide<T>(1 / (1 - p)) : Wide<T>(0)}, gx, &g, &keep);
  });
}

}  // namespace

void install_random(KernelTable& table) {
  table.random = random;
  table.poisson = poisson;
  table.multinomial = multinomial;
  table.dropout = dropout;
  table.dropout_grad = dropout_grad;
}

}  // namespace reel::cuda
