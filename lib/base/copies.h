// Reports that a process has two copies of the library.
#pragma once

namespace reel {

/// Returns whether this is the only copy of the library in the process. If there are others, it says so on stderr, once
/// in the process: a program and its plug-in that are both linked with the static library have one each.
bool report_copies();

}  // namespace reel
