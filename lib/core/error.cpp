#include "reel/error.h"

#include <locale>

namespace reel::detail {
namespace {
// Made when the program starts, and never destroyed: a copy of it allocates nothing.
const OutOfMemoryError& out_of_memory() {
  static const auto& error = *new OutOfMemoryError("out of memory, also for a message that says where");
  return error;
}
[[maybe_unused]] const OutOfMemoryError& made_early = out_of_memory();
}  // namespace

void fail_bad_alloc() { throw OutOfMemoryError(out_of_memory()); }
void fail_bad_alloc(const char* where) { fail_as<OutOfMemoryError>(where, ": out of memory"); }

TextStream::TextStream() { imbue(std::locale::classic()); }

std::string without_nul(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
  return text;
}

}  // namespace reel::detail
