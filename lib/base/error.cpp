#include "reel/error.h"

#include <locale>

namespace reel::detail {

TextStream::TextStream() { imbue(std::locale::classic()); }

std::string without_nul(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
  return text;
}

}  // namespace reel::detail
