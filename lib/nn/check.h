#pragma once
#include <vector>

#include "lib/nn/dry_run.h"
#include "reel/nn/check.h"

namespace reel::nn::internal {

/// What check() says of a run of the model that was recorded.
Check check_graph(Module& model, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                  const CallRecorder& calls);

}  // namespace reel::nn::internal
