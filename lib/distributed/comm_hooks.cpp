#include <memory>

#include "reel/autograd.h"
#include "reel/distributed/ddp.h"
#include "reel/ops.h"

namespace reel::distributed::hooks {
namespace {

CommHook compressed(DType dtype) {
  return [dtype](ProcessGroup& group, GradBucket bucket) -> std::function<void()> {
    if (size_of(bucket.flat.dtype()) <= size_of(dtype)) return [work = group.all_reduce(bucket.flat)] { work.wait(); };
    const NoGrad guard;
    Tensor small = bucket.flat.to(dtype);
    return [work = group.all_reduce(small), small, flat = bucket.flat]() mutable {
      const NoGrad no_history;
      work.wait();
      flat.copy_(small);
    };
  };
}

}  // namespace

CommHook bf16() { return compressed(kBFloat16); }
CommHook fp16() { return compressed(kFloat16); }

}  // namespace reel::distributed::hooks
