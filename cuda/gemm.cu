#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/plans.h"
#include "cuda/runtime.h"
#include "cuda/stopwatch.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/gemm.h"
#include "lib/functors/unary.h"
#include "reel/precision.h"

// Matrix products by cuBLASLt. It takes column-major matrices, and a row-major matrix is its transpose in column-major
// order, so it computes Cᵀ = op(B)ᵀ op(A)ᵀ. A bias per row of Cᵀ, which its epilogue adds, is ours per column of C.
namespace reel::cuda {
namespace {

constexpr size_t kMaxPlans = 1024;                  // per thread and device
constexpr size_t kMaxWorkspace = size_t{32} << 20;  // bytes, what NVIDIA recommends for Hopper
constexpr int64_t kMaxBatch = 65535;  // the limit of a grid's z dimension, which kernels use for the batch

// ---- the library ----------------------------------------------------------------------------------------------------

struct Symbol {
  void* address;
  template <class F>
  operator F*() const {
    return reinterpret_cast<F*>(address);
  }
};
/// A function of cuBLASLt, which is loaded by the first product: loading takes 80 ms and 94 MB of memory, which a
/// program that stays on the CPU should not pay.
Symbol symbol(const char* name) {
  static void* const library = [] {
#ifdef REEL_CUBLASLT  // where it was when this was built; else the program has these functions itself
    void* opened = dlopen("libcublasLt.so." REEL_CUBLASLT_VERSION, RTLD_NOW | RTLD_LOCAL);
    if (!opened) opened = dlopen(REEL_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
#else
    void* const opened = dlopen(nullptr, RTLD_NOW);
#endif
    REEL_CHECK(opened, "cuBLAS: ", dlerror());
    return opened;
  }();
  void* const found = dlsym(library, name);
  REEL_CHECK(found, "cuBLAS: ", dlerror());
  return {found};
}

struct CublasLt {
  decltype(cublasLtCreate)* create = symbol("cublasLtCreate");
  decltype(cublasLtGetStatusString)* status_string = symbol("cublasLtGetStatusString");
  decltype(cublasLtMatmul)* matmul = symbol("cublasLtMatmul");
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = symbol("cublasLtMatmulAlgoGetHeuristic");
  decltype(cublasLtMatmulDescInit_internal)* init_product = symbol("cublasLtMatmulDescInit_internal");
  decltype(cublasLtMatmulDescSetAttribute)* set_product = symbol("cublasLtMatmulDescSetAttribute");
  decltype(cublasLtMatmulPreferenceInit_internal)* init_preference = symbol("cublasLtMatmulPreferenceInit_internal");
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference = symbol("cublasLtMatmulPreferenceSetAttribute");
  decltype(cublasLtMatrixLayoutInit_internal)* init_layout = symbol("cublasLtMatrixLayoutInit_internal");
  decltype(cublasLtMatrixLayoutSetAttribute)* set_layout = symbol("cublasLtMatrixLayoutSetAttribute");
};
const CublasLt& lt() {
  static const CublasLt functions;
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  REEL_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: ", lt().status_string(status), " from ", call);
}

// ---- products with k = 0, -------------------------------------------------------------------------------------------

/// c = bias, or beta c.
template <class T>
__global__ void init_result_kernel(int64_t count, int64_t m, int64_t n, T* c, int64_t ldc, int64_t stride_c,
                                   const T* bias, Wide<T> beta) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = i / n, column = i % n;
    T& to = c[row / m * stride_c + row % m * ldc + column];
    to = bias ? bias[column] : beta == 0 ? narrow<T>(0.f) : narrow<T>(beta * widen(to));
  }
}

void init_result(const Gemm& g) {
  const int64_t count = g.batch * g.m * g.n;
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(init_result_kernel<T>, blocks_for(count), kThreads, 0, count, g.m, g.n, static_cast<T*>(g.c), g.ldc,
           g.stride_c, static_cast<const T*>(g.bias), static_cast<Wide<T>>(g.beta));
  });
}

// ---- products that cuBLASLt refuses, --------------------------------------------------------------------------------

/// A thread an element.
template <class T>
__global__ void product_kernel(int64_t count, Gemm g) {
  const Wide<T> alpha = static_cast<Wide<T>>(g.alpha), beta = static_cast<Wide<T>>(g.beta);
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t line = i / g.n, column = i % g.n, matrix = line / g.m, row = line % g.m;
    const T* a = static_cast<const T*>(g.a) + matrix * g.stride_a + (g.trans_a ? row : row * g.lda);
    const T* b = static_cast<const T*>(g.b) + matrix * g.stride_b + (g.trans_b ? column * g.ldb : column);
    const int64_t step_a = g.trans_a ? g.lda : 1, step_b = g.trans_b ? 1 : g.ldb;
    Wide<T> sum = 0;
    for (int64_t p = 0; p < g.k; ++p) sum += widen(a[p * step_a]) * widen(b[p * step_b]);
    T& to = static_cast<T*>(g.c)[matrix * g.stride_c + row * g.ldc + column];
    to = narrow<T>(beta == 0 ? alpha * sum : alpha * sum + beta * widen(to));
  }
}

void multiply_slowly(const Gemm& g) {
  const auto size = [](int64_t rows, int64_t columns) {
    return std::to_string(rows) + " x " + std::to_string(columns);
  };
  note_fallback("cuBLASLt has no algorithm for " + size(g.m, g.k) + " times " + size(g.k, g.n) + " of " +
                name_of(g.dtype));
  const int64_t count = g.batch * g.m * g.n;
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(product_kernel<T>, blocks_for(count), kThreads, 0, count, g);
  });
}

// ---- epilogues by kernels of their own ------------------------------------------------------------------------------

/// A matrix, or a batch of them.
View matrices(DType dtype, void* data, const Shape& shape, const Strides& strides) {
  View view;
  view.data = data, view.dtype = dtype, view.shape = shape, view.strides = strides;
  view.numel = shape.numel();
  view.contiguous = false;
  return view;
}

void apply_relu(const Gemm& g) {
  const View c = matrices(g.dtype, g.c, {g.batch, g.m, g.n}, {g.stride_c, g.ldc, 1});
  const functors::Relu relu;
  table().unary[functors::index_of<functors::UnaryList, functors::Relu>](&relu, c, c);
}

void sum_rows(const Gemm& g) {
  const Shape strides = g.trans_a ? Shape{1, g.lda} : Shape{g.lda, 1};
  const View a = matrices(g.dtype, const_cast<void*>(g.a), {g.m, g.k}, strides);
  const View sums = matrices(g.dtype, g.a_sums, {g.m, 1}, {1, 1});
  table().reduce(ReduceOp::kSum, a, sums);
}

// ---- plans ----------------------------------------------------------------------------------------------------------

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case kFloat16: return CUDA_R_16F;
    case kBFloat16: return CUDA_R_16BF;
    case kFloat32: return CUDA_R_32F;
    default: return CUDA_R_64F;
  }
}

/// The alignment that the operand has in every batch.
int64_t alignment(const Gemm& g, const void* data, int64_t stride) {
  const int64_t step = g.batch > 1 ? stride * size_of(g.dtype) : 0;
  return std::min(alignment_of(data), alignment_of(reinterpret_cast<const void*>(step)));
}
struct Alignments {
  int64_t a, b, c, row;  // row: the bias or the sums
  explicit Alignments(const Gemm& g)
      : a(alignment(g, g.a, g.stride_a)),
        b(alignment(g, g.b, g.stride_b)),
        c(alignment(g, g.c, g.stride_c)),
        row(alignment_of(g.a_sums ? g.a_sums : g.bias)) {}
  /// All of them in one number: 4 bits of logarithm each.
  int64_t key() const {
    int64_t bits = 0;
    for (const int64_t one : {a, b, c, row}) bits = bits << 4 | std::countr_zero(static_cast<uint64_t>(one));
    return bits;
  }
};

/// The descriptors and the algorithm of a product, all but its data. They are structs of the caller's rather than
/// allocated handles (the *Init functions).
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Gemm& g, const Alignments& alignments, bool tf32)
      : epilogue_(epilogue_of(g)), row_(g.bias || g.a_sums) {
    const bool wide = g.dtype == kFloat64;
    const auto compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(lt().init_product(&product_, sizeof product_, compute, wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_);
    set_row(g);
    describe(first_, g, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb, g.stride_b);
    describe(second_, g, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda, g.stride_a);
    describe(result_, g, g.n, g.m, g.ldc, g.stride_c);
    find_algorithm(handle, g, alignments);
  }
  /// Whether cuBLASLt has an algorithm.
  explicit operator bool() const { return found_; }
  /// Whether the sums come faster from a kernel of their own; empty until it has been timed.
  std::optional<bool> sums_apart;

  void run(cublasLtHandle_t handle, const Gemm& g) {
    if (!workspace_) return run(handle, g, nullptr);
    const Scratch<char> workspace(static_cast<int64_t>(workspace_));
    run(handle, g, workspace.data());
  }

  /// What cuBLASLt does along with the product.
  static cublasLtEpilogue_t epilogue_of(const Gemm& g) {
    if (g.a_sums) return CUBLASLT_EPILOGUE_BGRADB;  // our a is its second matrix
    return g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

 private:
  void run(cublasLtHandle_t handle, const Gemm& g, void* workspace) {
    set_row(g);
    const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
    const bool wide = g.dtype == kFloat64;
    check(lt().matmul(handle, &product_, wide ? static_cast<const void*>(&g.alpha) : &alpha, g.b, &first_, g.a,
                      &second_, wide ? static_cast<const void*>(&g.beta) : &beta, g.c, &result_, g.c, &result_,
                      &algorithm_, workspace, workspace_, stream()),
          "cublasLtMatmul");
  }
  void set_row(const Gemm& g) {
    if (row_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.a_sums ? g.a_sums : g.bias);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(lt().set_product(&product_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  static void describe(cublasLtMatrixLayoutOpaque_t& layout, const Gemm& g, int64_t rows, int64_t columns, int64_t ld,
                       int64_t stride) {
    check(lt().init_layout(&layout, sizeof layout, type_of(g.dtype), static_cast<uint64_t>(rows),
                           static_cast<uint64_t>(columns), ld),
          "cublasLtMatrixLayoutInit");
    if (g.batch == 1) return;
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      check(lt().set_layout(&layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(g.batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  void find_algorithm(cublasLtHandle_t handle, const Gemm& g, const Alignments& alignments) {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(lt().init_preference(&preference, sizeof preference), "cublasLtMatmulPreferenceInit");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(lt().set_preference(&preference, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
    // Split-k algorithms must not round their partial sums to half precision.
    if (is_half(g.dtype))
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignments.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignments.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignments.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignments.c));
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status =
        lt().heuristic(handle, &product_, &first_, &second_, &result_, &result_, &preference, 1, &result, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    found_ = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    algorithm_ = result.algo, workspace_ = result.workspaceSize;
  }

  cublasLtMatmulDescOpaque_t product_;
  cublasLtMatrixLayoutOpaque_t first_, second_, result_;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_ = 0;
  cublasLtEpilogue_t epilogue_;
  bool row_, found_ = false;
};

struct Library {
  cublasLtHandle_t handle;
  Plans<11, Plan> plans{kMaxPlans};
  Library() { check(lt().create(&handle), "cublasLtCreate"); }
};

// ---- the table's entry ----------------------------------------------------------------------------------------------

void multiply(const Gemm& g);

void multiply_and_sum(const Gemm& g) {
  Gemm rest = g;
  rest.a_sums = nullptr;
  multiply(rest);
  sum_rows(g);
}

/// A product of at most kMaxBatch batches.
void multiply(const Gemm& g) {
  if (g.relu) {  // cuBLASLt's RELU epilogues make 0 of NaN, or not, as the algorithm goes
    Gemm rest = g;
    rest.relu = false;
    multiply(rest);
    return apply_relu(g);
  }
  const Alignments alignments(g);
  // The epilogue that sums may leave only slower algorithms. Both ways write the same, so that they can be tried.
  const bool timed = g.a_sums && g.beta == 0 && cudnn_benchmark();
  const bool tf32 = g.dtype == kFloat32 && matmul_precision() == MatmulPrecision::kHigh;
  const int64_t kind = static_cast<int64_t>(g.dtype) | g.trans_a << 8 | g.trans_b << 9 | tf32 << 10 | timed << 11 |
                       alignments.key() << 16 | static_cast<int64_t>(Plan::epilogue_of(g)) << 32;
  Library& library = of_this_thread<Library>();
  const RelaxedCaptureGuard guard(capturing());  // a heuristic or a first run may load kernels
  Plan& plan =
      library.plans.get({kind, g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.batch, g.stride_a, g.stride_b, g.stride_c},
                        library.handle, g, alignments, tf32);
  if (plan && timed && !plan.sums_apart && !capturing()) {
    const float along = time_of([&] { plan.run(library.handle, g); });
    plan.sums_apart = time_of([&] { multiply_and_sum(g); }) < along;
  }
  if (plan && !plan.sums_apart.value_or(false)) return plan.run(library.handle, g);
  // Epilogues that cuBLASLt does not support for this problem, or not well, are done before or after the product.
  if (g.a_sums) return multiply_and_sum(g);
  if (!g.bias) return multiply_slowly(g);
  init_result(g);
  Gemm rest = g;
  rest.bias = nullptr, rest.beta = 1;
  multiply(rest);
}

}  // namespace

void gemm(const Gemm& g) {
  if (refreshing) return;  // like launch()
  if (g.a_sums && (g.n == 0 || g.k == 0)) sum_rows(g);
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  if (g.k == 0) {
    init_result(g);
    return g.relu ? apply_relu(g) : void();
  }
  if (g.batch <= kMaxBatch) return multiply(g);
  const auto after = [&](const void* data, int64_t elements) {
    return static_cast<const char*>(data) + elements * size_of(g.dtype);
  };
  for (int64_t first = 0; first < g.batch; first += kMaxBatch) {
    Gemm part = g;
    part.batch = std::min(g.batch - first, kMaxBatch);
    part.a = after(g.a, first * g.stride_a), part.b = after(g.b, first * g.stride_b);
    part.c = const_cast<char*>(after(g.c, first * g.stride_c));
    multiply(part);
  }
}

namespace {

/// A thread computes an element of C, of unsigned numbers.
template <class T>
__global__ void integer_gemm_kernel(const Gemm g) {
  const int64_t size = g.m * g.n;
  const int64_t a_row = g.trans_a ? 1 : g.lda, a_column = g.trans_a ? g.lda : 1;
  const int64_t b_row = g.trans_b ? 1 : g.ldb, b_column = g.trans_b ? g.ldb : 1;
  for (int64_t at = first_index(); at < g.batch * size; at += index_step()) {
    const int64_t batch = at / size, i = at % size / g.n, j = at % g.n;
    const T* const a = static_cast<const T*>(g.a) + batch * g.stride_a + i * a_row;
    const T* const b = static_cast<const T*>(g.b) + batch * g.stride_b + j * b_column;
    T sum = 0;
    for (int64_t p = 0; p < g.k; ++p) sum = static_cast<T>(sum + a[p * a_column] * b[p * b_row]);
    static_cast<T*>(g.c)[batch * g.stride_c + i * g.ldc + j] = sum;
  }
}

void integer_gemm(const Gemm& g) {
  with_word(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(integer_gemm_kernel<T>, blocks_for(g.batch * g.m * g.n), kThreads, 0, g);
  });
}

}  // namespace

void install_gemm(KernelTable& table) {
  table.gemm = gemm;
  table.integer_gemm = integer_gemm;
}

}  // namespace reel::cuda
