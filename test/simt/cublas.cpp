// A stand-in for cuBLASLt: the functions that cuda/gemm.cu uses, with the real library's checks of arguments. An
// algorithm is valid for one problem and one alignment only, as real ones may be, and overwrites its whole workspace.
#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "test/simt/simt.h"
#include "test/simt/streams.h"

struct cublasLtContext {};

namespace {

struct Layout {
  cudaDataType type;
  int64_t rows, columns, ld, stride;
  int32_t batch;
  int32_t unused;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t first, second;  // cublasOperation_t
  uint32_t epilogue;
  const void* bias;
};
struct Preference {
  uint64_t workspace;
  uint32_t reductions, a, b, c, d;
};
/// What an algorithm was chosen for.
struct Choice {
  uint64_t problem;
  uint32_t workspace, a, b, c, d;
  uint32_t row;  // the alignment of the bias or the sums that the heuristic has seen
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Product) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));

template <class T, class Opaque>
T& in(Opaque* opaque) {
  return *reinterpret_cast<T*>(opaque);
}
template <class T, class Opaque>
const T& in(const Opaque* opaque) {
  return *reinterpret_cast<const T*>(opaque);
}

template <class T>
cublasStatus_t set(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
bool has_bias(const Product& p) { return p.epilogue == CUBLASLT_EPILOGUE_BIAS; }
bool has_sums(const Product& p) { return p.epilogue == CUBLASLT_EPILOGUE_BGRADB; }
/// Whether SIMT_LT names a way in which a real library might behave. plain: there are no epilogues; refuse_one_row: nor
/// products of one row or column; slow_sums, fast_sums: products with the epilogue that sums take 20 ms longer than
/// others, and these 20 ms longer than with it.
bool behaves(std::string_view way) {
  const char* const ways = std::getenv("SIMT_LT");
  return ways && std::string_view(ways).find(way) != std::string_view::npos;
}
bool aligned(const void* data, uint64_t to) { return reinterpret_cast<uintptr_t>(data) % to == 0; }

cublasStatus_t check(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* l : {&a, &b, &c, &d}) {
    if (l->rows < 1 || l->columns < 1 || l->ld < l->rows || l->batch < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (l->type != a.type || l->batch != a.batch) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool wide = a.type == CUDA_R_64F, fast = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (p.compute != (wide   ? CUBLAS_COMPUTE_64F
                    : fast ? CUBLAS_COMPUTE_32F_FAST_TF32
                           : CUBLAS_COMPUTE_32F) ||
      p.scale != (wide ? CUDA_R_64F : CUDA_R_32F) || (fast && a.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t m = p.first ? a.columns : a.rows, k = p.first ? a.rows : a.columns;
  const int64_t n = p.second ? b.rows : b.columns, other_k = p.second ? b.columns : b.rows;
  if (k != other_k || d.rows != m || d.columns != n || std::memcmp(&c, &d, sizeof(Layout)) != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (!has_bias(p) && !has_sums(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if ((has_bias(p) || has_sums(p)) && !p.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (has_sums(p) && a.batch > 1) return CUBLAS_STATUS_INVALID_VALUE;
  // So that what is done then is tested.
  return wide ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

uint64_t hash(const Product& p, std::initializer_list<const Layout*> layouts) {
  uint64_t hash =
      uint64_t(p.compute) << 8 | uint64_t(p.first) << 4 | uint64_t(p.second) << 2 | uint64_t(p.epilogue) << 16;
  for (const Layout* l : layouts)
    for (const int64_t word : {int64_t(l->type), l->rows, l->columns, l->ld, l->stride, int64_t(l->batch)})
      hash = (hash ^ uint64_t(word)) * 1099511628211u;
  return hash;
}

// ---- the product ----------------------------------------------------------------------------------------------------

CBLAS_TRANSPOSE side(int32_t op) { return op ? CblasTrans : CblasNoTrans; }

void multiply(const Product& p, const Layout& a, const Layout& b, const Layout& d, double alpha, const float* x,
              const float* y, double beta, float* z) {
  cblas_sgemm(CblasColMajor, side(p.first), side(p.second), int(d.rows), int(d.columns),
              int(p.first ? a.rows : a.columns), float(alpha), x, int(a.ld), y, int(b.ld), float(beta), z, int(d.ld));
}
void multiply(const Product& p, const Layout& a, const Layout& b, const Layout& d, double alpha, const double* x,
              const double* y, double beta, double* z) {
  cblas_dgemm(CblasColMajor, side(p.first), side(p.second), int(d.rows), int(d.columns),
              int(p.first ? a.rows : a.columns), alpha, x, int(a.ld), y, int(b.ld), beta, z, int(d.ld));
}
template <class T>
void multiply(const Product& p, const Layout& a, const Layout& b, const Layout& d, double alpha, const T* x, const T* y,
              double beta, T* z) {
  const auto dense = [](const Layout& l, const T* from) {
    std::vector<float> all(size_t(l.rows * l.columns));
    for (int64_t j = 0; j < l.columns; ++j)
      for (int64_t i = 0; i < l.rows; ++i) all[size_t(j * l.rows + i)] = float(from[j * l.ld + i]);
    return all;
  };
  const auto packed = [](Layout l) { return l.ld = l.rows, l; };
  const std::vector<float> left = dense(a, x), right = dense(b, y);
  std::vector<float> sum = beta == 0 ? std::vector<float>(size_t(d.rows * d.columns)) : dense(d, z);
  multiply(p, packed(a), packed(b), packed(d), alpha, left.data(), right.data(), beta, sum.data());
  for (int64_t j = 0; j < d.columns; ++j)
    for (int64_t i = 0; i < d.rows; ++i) {
      float value = sum[size_t(j * d.rows + i)];
      if (has_bias(p)) value += float(static_cast<const T*>(p.bias)[i]);
      z[j * d.ld + i] = T(value);
    }
}

template <class T>
void run(const Product& p, const Layout& a, const Layout& b, const Layout& d, double alpha, const void* x,
         const void* y, double beta, void* z) {
  for (int64_t i = 0; i < d.batch; ++i) {
    T* const to = static_cast<T*>(z) + i * d.stride;
    multiply(p, a, b, d, alpha, static_cast<const T*>(x) + i * a.stride, static_cast<const T*>(y) + i * b.stride, beta,
             to);
    if (!has_bias(p) || sizeof(T) == 2) continue;
    for (int64_t column = 0; column < d.columns; ++column)
      for (int64_t row = 0; row < d.rows; ++row) to[column * d.ld + row] += static_cast<const T*>(p.bias)[row];
  }
  if (!has_sums(p)) return;
  const int64_t k = p.second ? b.columns : b.rows;
  for (int64_t column = 0; column < d.columns; ++column) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += double(static_cast<const T*>(y)[p.second ? i * b.ld + column : column * b.ld + i]);
    static_cast<T*>(const_cast<void*>(p.bias))[column] = T(float(sum));
  }
}

}  // namespace

// ---- cuBLASLt's functions -------------------------------------------------------------------------------------------

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    default: return "an error";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {  // allocates
  if (simt::refuse_while_capturing() != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  in<Layout>(layout) = {type, int64_t(rows), int64_t(columns), ld, 0, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(in<Layout>(layout).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(in<Layout>(layout).stride, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product, size_t, cublasComputeType_t compute,
                                               cudaDataType scale) {
  in<Product>(product) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(in<Product>(product).first, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(in<Product>(product).second, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(in<Product>(product).epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(in<Product>(product).bias, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t) {
  in<Preference>(preference) = {0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  Preference& p = in<Preference>(preference);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(p.a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(p.b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(p.c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(p.d, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  if (simt::refuse_while_capturing() != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;  // it may load kernels
  const Product& p = in<Product>(product);
  const Layout &la = in<Layout>(a), &lb = in<Layout>(b), &lc = in<Layout>(c), &ld = in<Layout>(d);
  if (const cublasStatus_t status = check(p, la, lb, lc, ld); status != CUBLAS_STATUS_SUCCESS || wanted < 1)
    return wanted < 1 ? CUBLAS_STATUS_INVALID_VALUE : status;
  if (behaves("plain") && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (behaves("refuse_one_row") && (ld.rows == 1 || ld.columns == 1)) return CUBLAS_STATUS_INVALID_VALUE;
  const Preference& limits = in<Preference>(preference);
  const uint32_t workspace = la.columns >= 32 && limits.workspace >= 4096 ? 4096 : 0;
  *results = {};
  uint32_t row = 256;
  while ((has_bias(p) || has_sums(p)) && !aligned(p.bias, row)) row /= 2;
  in<Choice>(&results->algo) = {hash(p, {&la, &lb, &ld}), workspace, limits.a, limits.b, limits.c, limits.d, row};
  results->workspaceSize = workspace;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (simt::refuse_while_capturing() != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;  // a first run loads kernels
  const Product p = in<Product>(product);
  const Layout la = in<Layout>(a_layout), lb = in<Layout>(b_layout), ld = in<Layout>(d_layout);
  if (const cublasStatus_t status = check(p, la, lb, in<Layout>(c_layout), ld); status != CUBLAS_STATUS_SUCCESS)
    return status;
  const Choice& choice = in<Choice>(algorithm);
  if (choice.problem != hash(p, {&la, &lb, &ld}) || c != d || choice.workspace > workspace_bytes ||
      (choice.workspace && (!workspace || !aligned(workspace, 16))))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const auto& [data, alignment, stride] : {std::tuple{a, choice.a, la.stride},
                                                {b, choice.b, lb.stride},
                                                {c, choice.c, ld.stride},
                                                {const_cast<const void*>(d), choice.d, ld.stride}})
    if (!aligned(data, alignment) || (ld.batch > 1 && size_t(stride) * size_of(ld.type) % alignment))
      return CUBLAS_STATUS_INVALID_VALUE;
  if ((has_bias(p) || has_sums(p)) && !aligned(p.bias, choice.row)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = p.scale == CUDA_R_64F;
  const double times = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double plus = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const bool slow = behaves(has_sums(p) ? "slow_sums" : "fast_sums");
  simt::enqueue(stream, [=, bytes = choice.workspace] {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (bytes) std::memset(workspace, 0x7f, bytes);
    const auto run_as = [&](auto* run) { run(p, la, lb, ld, times, a, b, plus, d); };
    switch (ld.type) {
      case CUDA_R_16F: return run_as(run<__half>);
      case CUDA_R_16BF: return run_as(run<__nv_bfloat16>);
      case CUDA_R_32F: return run_as(run<float>);
      default: return run_as(run<double>);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
