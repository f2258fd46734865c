#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)
namespace reel {

/// Every wrong call, unreadable file and failed allocation is reported by throwing this. The message names the op (or
/// the file and offset), says what is wrong and shows the values. Everything that the caller holds is left unchanged
/// (the strong exception guarantee).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
/// Streams all parts into one string and throws it as an Error.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline, gnu::visibility("hidden")]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(std::move(message).str());
}
}  // namespace detail

}  // namespace reel
#pragma GCC visibility pop

/// REEL_CHECK(a.dim() == 2, "mm: expected a matrix, got shape ", a.shape()) throws reel::Error when the condition is
/// false. The message is built only then.
#define REEL_CHECK(condition, ...)                                            \
  do {                                                                        \
    if (__builtin_expect(!(condition), 0)) ::reel::detail::fail(__VA_ARGS__); \
  } while (false)
