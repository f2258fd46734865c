
#include <cstdlib>
#include <string_view>

#if defined(REEL_WITH_AVX2) || defined(REEL_WITH_AVX512)
#include <cpuid.h>
#endif

#include "lib/base/lazy.h"
#include "lib/cpu/kernels.h"
#include "reel/threads.h"

namespace reel {
namespace cpu {
namespace {

#if defined(REEL_WITH_AVX2) || defined(REEL_WITH_AVX512)
// clang 14's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

// Kernels that the build left out (REEL_WIDE_KERNELS) are treated like those that the processor cannot run.
#ifdef REEL_WITH_AVX2
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
#else
bool has_avx2() { return false; }
#endif
#ifdef REEL_WITH_AVX512
bool has_avx512() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx512() { return false; }
#endif
#if defined(REEL_WITH_AVX2) && defined(REEL_WITH_AVX512)
constexpr const char* kWithout = "";
#else
constexpr const char* kWithout = ", or reel was built without kernels for it (REEL_WIDE_KERNELS)";
#endif

Isa chosen_isa() {
  const char* wish = std::getenv("REEL_CPU");
  if (!wish || !*wish) return has_avx512() ? Isa::kAvx512 : has_avx2() ? Isa::kAvx2 : Isa::kBaseline;
  const std::string_view name = wish;
  REEL_CHECK(name == "baseline" || name == "avx2" || name == "avx512", "REEL_CPU=", name,
             ": expected baseline, avx2 or avx512");
  REEL_CHECK(name != "avx2" || has_avx2(), "REEL_CPU=avx2: this machine does not have AVX2 and FMA", kWithout);
  REEL_CHECK(name != "avx512" || has_avx512(), "REEL_CPU=avx512: this machine does not have AVX-512 F, CD, DQ, BW, VL",
             kWithout);
  const Isa isa = name == "baseline" ? Isa::kBaseline : name == "avx2" ? Isa::kAvx2 : Isa::kAvx512;
  limit_onednn(isa);
  return isa;
}

KernelTable make_table() {
  num_threads();  // a malformed REEL_NUM_THREADS is an Error of the first op, not of the first large one
  KernelTable table{};
  install_conv(table), install_linalg(table), install_random(table);
  install_sort(table);
  switch (chosen_isa()) {
#ifdef REEL_WITH_AVX2
    case Isa::kAvx2: avx2::install(table); break;
#endif
#ifdef REEL_WITH_AVX512
    case Isa::kAvx512: avx512::install(table); break;
#endif
    default: baseline::install(table); break;
  }
  return table;
}

}  // namespace
}  // namespace cpu

constinit std::atomic<const KernelTable*> current_cpu_kernels = nullptr;

const KernelTable& cpu_kernels() {
  static constinit Lazy<KernelTable> lazy;
  const KernelTable& table = lazy.get(cpu::make_table);
  if (!current_cpu_kernels.load(std::memory_order_acquire)) [[unlikely]] {
    const KernelTable* none = nullptr;
    current_cpu_kernels.compare_exchange_strong(none, &table);
  }
  return table;
}

void cpu::copy(const View& from, const View& to) { cpu_kernels().copy(from, to); }
void cpu::fill(const View& to, Scalar value) { cpu_kernels().fill(to, value); }

}  // namespace reel
