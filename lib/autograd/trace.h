#pragma once
#include <span>
#include <string>
#include <vector>

namespace reel {

class Tensor;
struct Node;

/// Whether a DetectAnomaly of the calling thread is on.
extern constinit thread_local bool anomaly;
inline bool anomaly_mode() { return anomaly; }
/// The calling thread's stack without the two innermost frames.
std::vector<void*> stack_frames();
/// Their names, one a line.
std::string describe_stack(const std::vector<void*>& frames);

/// Every node of the tape behind the roots that have a history, newest first.
std::vector<Node*> nodes_behind(std::span<const Tensor> roots);

}  // namespace reel
