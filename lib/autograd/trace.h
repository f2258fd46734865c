#pragma once
#include <string>
#include <vector>

namespace reel {

bool anomaly_mode();
/// The calling thread's stack without the two innermost frames, and the same a frame a line.
std::vector<void*> stack_frames();
std::string describe_stack(const std::vector<void*>& frames);

}  // namespace reel
