#pragma once
#include <string>

#include "reel/distributed/ddp.h"

namespace reel::distributed {

/// What a module has under a path.
struct Description {
  std::string path;
  DType dtype;
  Shape shape;
  Device device;
};

/// Compares options, parameters and buffers between the ranks. The Error, of kMismatch and on all ranks, names the
/// first that differs, with the values of those that disagree.
void compare_layouts(ProcessGroup& group, const nn::Module& module, const DistributedDataParallelOptions& options);

}  // namespace reel::distributed
