// Reports that a process has two copies of the library.
#pragma once

namespace reel {

/// Whether the process has this copy of the library alone. Says so on stderr, once in the process, if it has others: a
/// program and its plug-in that are both linked with the static library have one each.
bool report_copies();

}  // namespace reel
