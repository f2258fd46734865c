#pragma once

/// What --scaling prints; see scaling.cpp. For programs that link it.
namespace bench::scaling {

void start();                      ///< From here on, one thread does all parts of every op and times them.
void mark();                       ///< The end of an iteration and the beginning of the next.
void print(const char* workload);  ///< Of the iterations since the first mark.

}  // namespace bench::scaling
