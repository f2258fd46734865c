#include "lib/backend.h"

#include <cstdlib>
#include <string_view>

#include "lib/core/allocator.h"
#include "lib/cpu/kernels.h"

namespace reel {
namespace cpu {
namespace {

enum class Isa { kBaseline, kAvx2, kAvx512 };

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

Isa chosen_isa() {
  const char* wish = std::getenv("REEL_CPU");
  if (!wish || !*wish) return has_avx512() ? Isa::kAvx512 : has_avx2() ? Isa::kAvx2 : Isa::kBaseline;
  const std::string_view name = wish;
  REEL_CHECK(name == "baseline" || name == "avx2" || name == "avx512", "REEL_CPU=", name,
             ": expected baseline, avx2 or avx512");
  REEL_CHECK(name != "avx2" || has_avx2(), "REEL_CPU=avx2: this machine does not have AVX2 and FMA");
  REEL_CHECK(name != "avx512" || has_avx512(), "REEL_CPU=avx512: this machine does not have AVX-512 F, CD, DQ, BW, VL");
  return name == "baseline" ? Isa::kBaseline : name == "avx2" ? Isa::kAvx2 : Isa::kAvx512;
}

#define REEL_INSTALL(isa)           \
  do {                              \
    isa::install_unary(table);      \
    isa::install_unary_grad(table); \
    isa::install_binary(table);     \
    isa::install_compare(table);    \
    isa::install_reduce(table);     \
    isa::install_softmax(table);    \
    isa::install_gemv(table);       \
    isa::install_cell(table);       \
    isa::install_update(table);     \
  } while (false)

Backend make_table() {
  Backend table{};
  table.allocate = allocate_cpu;
  table.release = release_cpu;
  table.copy = copy;
  table.fill = fill;
  table.arg_reduce = arg_reduce;
  table.cumsum = cumsum;
  table.find_out_of_range = find_out_of_range;
  table.index_select = index_select;
  table.index_copy = index_copy;
  table.index_add = index_add;
  table.gather = gather;
  table.scatter = scatter;
  table.count_nonzero = count_nonzero;
  table.nonzero = nonzero;
  table.sort = sort;
  table.random = random;
  table.dropout = dropout;
  switch (chosen_isa()) {
    case Isa::kBaseline: REEL_INSTALL(baseline); break;
    case Isa::kAvx2: REEL_INSTALL(avx2); break;
    case Isa::kAvx512: REEL_INSTALL(avx512); break;
  }
  return table;
}

}  // namespace
}  // namespace cpu

const Backend& cpu_backend() {
  static const Backend table = cpu::make_table();
  return table;
}

const Backend& backend(Device device) {
  REEL_CHECK(device.type == DeviceType::kCPU, "this build of reel has no CUDA backend");
  return cpu_backend();
}

}  // namespace reel
