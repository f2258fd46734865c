#include "reel/precision.h"

#include <atomic>

namespace reel {
namespace {
std::atomic<MatmulPrecision> precision_now{MatmulPrecision::kHighest};
}

void set_matmul_precision(MatmulPrecision precision) { precision_now.store(precision, std::memory_order_relaxed); }

MatmulPrecision matmul_precision() { return precision_now.load(std::memory_order_relaxed); }

}  // namespace reel
