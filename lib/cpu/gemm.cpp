#include <cblas.h>

#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/kernels/gemm.h"

// Matrix products by OpenBLAS, for what simd/gemm.cpp leaves to it.
namespace reel::cpu {
namespace {

CBLAS_TRANSPOSE side(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void multiply(const Gemm& g, const float* a, const float* b, double beta, float* c) {
  cblas_sgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), g.m, g.n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c,
              g.ldc);
}
void multiply(const Gemm& g, const double* a, const double* b, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), g.m, g.n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c,
              g.ldc);
}

template <class T>
void run(const Gemm& g) {
  for (int64_t i = 0; i < g.batch; ++i) {
    T* c = static_cast<T*>(g.c) + i * g.stride_c;
    double beta = g.beta;
    if (g.bias) {
      for (int64_t row = 0; row < g.m; ++row) std::copy_n(static_cast<const T*>(g.bias), g.n, c + row * g.ldc);
      beta = 1;
    }
    multiply(g, static_cast<const T*>(g.a) + i * g.stride_a, static_cast<const T*>(g.b) + i * g.stride_b, beta, c);
  }
}

}  // namespace

void blas_gemm(const Gemm& gemm) {
  // Threads run across examples, not inside a product.
  static const bool single = (openblas_set_num_threads(1), true);
  static_cast<void>(single);
  gemm.dtype == kFloat32 ? run<float>(gemm) : run<double>(gemm);
}

}  // namespace reel::cpu
