// This file multiplies matrices of bfloat16 by oneDNN's primitives for sizes that are known when they run. One of fixed
// sizes is faster for batches of small products alone, and takes 0.2 ms to make.
#include "lib/cpu/onednn_gemm.h"

#include <atomic>

#include "lib/base/lazy.h"
#include "lib/cpu/onednn.h"

namespace reel::cpu {
namespace {

using dnnl::memory;
constexpr auto kBF16 = memory::data_type::bf16;
constexpr memory::dim kAny = DNNL_RUNTIME_DIM_VAL;

enum Kind : unsigned { kTransA = 1, kTransB = 2, kBias = 4, kAdds = 8, kBatched = 16, kKinds = 32 };

struct Matrix {
  int64_t rows = kAny, columns = kAny, ld = kAny;
  int64_t batch = kAny, stride = kAny;
};

memory::desc describe(const Matrix& m, bool transposed, bool batched) {
  const int64_t row = transposed ? 1 : m.ld, column = transposed ? m.ld : 1;
  if (batched) return {{m.batch, m.rows, m.columns}, kBF16, memory::dims{m.stride, row, column}};
  return {{m.rows, m.columns}, kBF16, memory::dims{row, column}};
}
memory::desc describe_bias(int64_t n, bool batched) {
  return describe({.rows = 1, .columns = n, .ld = n, .batch = 1, .stride = n}, false, batched);
}

dnnl::matmul make_primitive(unsigned kind) {
  dnnl::post_ops after;
  if (kind & kAdds) after.append_sum();
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // threads share the primitive, and run it at once
  const bool batched = kind & kBatched;
  const memory::desc a = describe({}, kind & kTransA, batched), b = describe({}, kind & kTransB, batched),
                     c = describe({}, false, batched);
  const dnnl::matmul::desc desc =
      kind & kBias ? dnnl::matmul::desc(a, b, describe_bias(kAny, batched), c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc found(desc, attributes, onednn_engine());
  if (found.scratchpad_desc().get_size() != 0) throw dnnl::error(dnnl_unimplemented, "it wants a scratchpad");
  return dnnl::matmul(found);
}

}  // namespace

bool multiplies_bfloat16() {
  static constinit Lazy<bool> known;
  return known.get([] {
    constexpr int wanted = dnnl_cpu_isa_avx512_core_bf16;  // an instruction set has the bits of those that it includes
    return (dnnl_get_effective_cpu_isa() & wanted) == wanted;
  });
}

bool onednn_multiply(const Gemm& g) {
  const OnednnCall call;
  const bool batched = g.batch > 1;
  if (!call) return false;
  // Where it fails in the middle of a batch, products must not be added twice.
  if (batched && (g.stride_a == 0 || g.stride_b == 0 || g.beta != 0)) return false;
  static constinit Lazy<dnnl::matmul> primitives[kKinds];
  const unsigned kind = (g.trans_a ? kTransA : 0u) | (g.trans_b ? kTransB : 0u) | (g.bias ? kBias : 0u) |
                        (g.beta == 1 ? kAdds : 0u) | (batched ? kBatched : 0u);
  try {
    const dnnl::matmul& primitive = primitives[kind].get([&] { return make_primitive(kind); });
    const auto operand = [](const memory::desc& desc, const void* data) {
      return memory(desc, onednn_engine(), const_cast<void*>(data));
    };
    const memory a = operand(describe({g.m, g.k, g.lda, g.batch, g.stride_a}, g.trans_a, batched), g.a),
                 b = operand(describe({g.k, g.n, g.ldb, g.batch, g.stride_b}, g.trans_b, batched), g.b),
                 c = operand(describe({g.m, g.n, g.ldc, g.batch, g.stride_c}, false, batched), g.c),
                 bias = g.bias ? operand(describe_bias(g.n, batched), g.bias) : memory();
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, a.get()}, {DNNL_ARG_WEIGHTS, b.get()}, {DNNL_ARG_DST, c.get()}, {DNNL_ARG_BIAS, bias.get(true)}};
    if (dnnl_primitive_execute(primitive.get(), onednn_stream().get(), g.bias ? 4 : 3, arguments) != dnnl_success)
      return false;
    // Kernels are made when a primitive first runs.
    static constinit std::atomic<uint32_t> kinds = 0;  // that have run, by a bit each
    const uint32_t bit = uint32_t{1} << kind;
    if (!(kinds.load(std::memory_order_relaxed) & bit) && !(kinds.fetch_or(bit) & bit)) [[unlikely]]
      OnednnCall::outlive_what_it_made();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace reel::cpu
