#pragma once
#include <string>

namespace reel {

bool anomaly_mode();
/// The calling thread's stack without reel's own recording frames, a frame a line.
std::string stack_trace();

}  // namespace reel
