#pragma once
// What the sides of bench/kernels.cpp share: shapes, sizes, and the limits of the machine that every figure stands
// beside, measured in the same process just before it.
#include <cstring>
#include <thread>

#include "bench/bench.h"

namespace bench {

// ---- products -------------------------------------------------------------------------------------------------------

/// C [m, n] = A [m, k] B [k, n], where A and B may be stored transposed, as a layer's weight is.
struct Product {
  const char* name;
  bool trans_a, trans_b;
  int m, n, k;
  double flop() const { return 2.0 * m * n * k; }
  /// How often a measurement calls it, so that it lasts long enough for the clock.
  int repeats() const { return std::max(1, static_cast<int>(2e7 / (flop() + 2e4))); }
};
inline const Product kProducts[] = {
    {"k.gemm1024", false, false, 1024, 1024, 1024},
    {"k.gemm.475x450x300.nt", false, true, 475, 450, 300},   // the leaves of 25 trees
    {"k.gemm.50x750x300.nt", false, true, 50, 750, 300},     // a level of 25 trees
    {"k.gemm.10x750x300.nt", false, true, 10, 750, 300},     // one of few nodes
    {"k.gemm.4x750x300.nt", false, true, 4, 750, 300},       //
    {"k.gemm.1x750x300.nt", false, true, 1, 750, 300},       // one node
    {"k.gemm.1x300x750.nn", false, false, 1, 300, 750},      // the same backwards
    {"k.gemm.750x300x1.tn", true, false, 750, 300, 1},       // its weight's gradient
    {"k.gemm.750x300x450.tn", true, false, 750, 300, 450},   // 450 of them merged
    {"k.gemm.23x200x128.nt", false, true, 23, 200, 128},     // an LSTM's inputs of a sentence
    {"k.gemm.1x200x50.nt", false, true, 1, 200, 50},         // one of its steps
    {"k.gemm.1x64x64.nn", false, false, 1, 64, 64},          //
    {"k.gemm.64x100x1000.nn", false, false, 64, 100, 1000},  // a perceptron's first layer
};

namespace internal {
/// n · 12 fused multiply-adds of vectors; the chains depend on nothing but themselves, so that they fill every pipe.
template <class Vector>
[[gnu::always_inline]] inline float multiply_add(int n) {
  constexpr int kChains = 12, kLanes = sizeof(Vector) / sizeof(float);
  Vector factor, term, chains[kChains], sum = {};
  for (int i = 0; i < kLanes; ++i) factor[i] = 1.0000001f, term[i] = 1e-9f;
  for (int i = 0; i < kChains; ++i) chains[i] = term * static_cast<float>(i);
  for (int k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (Vector& chain : chains) chain = chain * factor + term;
  }
  for (const Vector& chain : chains) sum += chain;
  return sum[0];
}
typedef float Vector4 __attribute__((vector_size(16)));
inline float multiply_add_baseline(int n) { return multiply_add<Vector4>(n); }
#ifdef __x86_64__
typedef float Vector8 __attribute__((vector_size(32)));
typedef float Vector16 __attribute__((vector_size(64)));
[[gnu::target("avx2,fma")]] inline float multiply_add_avx2(int n) { return multiply_add<Vector8>(n); }
[[gnu::target("avx512f")]] inline float multiply_add_avx512(int n) { return multiply_add<Vector16>(n); }
#endif
}  // namespace internal

/// The most GFLOP/s that so many cores of this machine do.
inline double peak_gflops(double secs, int threads = 1) {
  constexpr int kSteps = 20000;
  auto f = internal::multiply_add_baseline;
  int lanes = 4;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) f = internal::multiply_add_avx2, lanes = 8;
  if (__builtin_cpu_supports("avx512f")) f = internal::multiply_add_avx512, lanes = 16;
#endif
  volatile float sink = 0;
  const Samples samples = measure([&] { sink = f(kSteps); }, std::min(secs, 0.2));
  return threads * 2.0 * 12 * lanes * kSteps / samples.cpu() * 1e-9;
}

/// The time of a call of f in microseconds; a measurement makes `count`.
template <class F>
void time_calls(const Report& report, double secs, const std::string& name, int count, const F& f) {
  const auto repeat = [&] {
    for (int i = 0; i < count; ++i) f();
  };
  report.time(name, measure(repeat, secs), 1e6 / count, "µs");
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// A matrix of floats that lies in memory, and one that stays in the second cache.
struct Size {
  const char* name;
  int rows, columns, repeats;
  double gigabytes() const { return 4e-9 * rows * columns; }
};
inline const Size kSizes[] = {{"64MiB", 16384, 1024, 1}, {"128KiB", 32, 1024, 200}};

/// What memcpy moves, read and written, in GB/s; on several threads, each with a part of a large matrix.
inline double memcpy_bandwidth(const Size& size, double secs, int threads = 1) {
  if (size.repeats > 1) threads = 1;
  const std::vector<float> from(static_cast<size_t>(size.rows) * size.columns, 1.0f);
  std::vector<float> to(from.size());
  const Samples samples = measure(
      [&] {
        for (int i = 0; i < size.repeats; ++i) {
          const size_t part = from.size() / static_cast<size_t>(threads);
          std::vector<std::thread> others;
          const auto copy = [&](size_t t) {
            std::memcpy(to.data() + t * part, from.data() + t * part, sizeof(float) * part);
          };
          for (size_t t = 1; t < static_cast<size_t>(threads); ++t) others.emplace_back(copy, t);
          copy(0);
          for (std::thread& other : others) other.join();
          asm volatile("" : : "r"(to.data()) : "memory");
        }
      },
      std::min(secs, 0.2));
  return 2 * size.gigabytes() * size.repeats / (threads > 1 ? samples.wall() : samples.cpu());
}

}  // namespace bench
