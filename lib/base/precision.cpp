#include "reel/precision.h"

#include <atomic>

namespace reel {
namespace {
std::atomic<MatmulPrecision> precision_now{MatmulPrecision::kHighest};
std::atomic<bool> benchmark_now{false}, deterministic_now{true};
}  // namespace

void set_matmul_precision(MatmulPrecision precision) { precision_now.store(precision, std::memory_order_relaxed); }

MatmulPrecision matmul_precision() { return precision_now.load(std::memory_order_relaxed); }

namespace cuda {

void set_cudnn_benchmark(bool benchmark) { benchmark_now.store(benchmark, std::memory_order_relaxed); }
bool cudnn_benchmark() { return benchmark_now.load(std::memory_order_relaxed); }
void set_cudnn_deterministic(bool deterministic) { deterministic_now.store(deterministic, std::memory_order_relaxed); }
bool cudnn_deterministic() { return deterministic_now.load(std::memory_order_relaxed); }

}  // namespace cuda
}  // namespace reel
