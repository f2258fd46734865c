#pragma once
// Each public header includes this one first, so that this is the first of the compiler's errors.
#if __cplusplus < 202002L
#error reel needs C++20: compile with -std=c++20 or later
#endif

/// The version of these headers, by semver.org. While the major version is 0, a minor version may change the API and
/// the ABI, a patch changes neither; from 1.0 on only a major version may. The shared library's SONAME follows: it
/// holds major and minor version while the major version is 0, only the major version from then on.
#define REEL_VERSION_MAJOR 0
#define REEL_VERSION_MINOR 1  ///< As said of REEL_VERSION_MAJOR.
#define REEL_VERSION_PATCH 0  ///< As said of REEL_VERSION_MAJOR.

/// A version as one number to compare with: `#if REEL_VERSION >= REEL_MAKE_VERSION(0, 2, 0)`.
#define REEL_MAKE_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/// The version of these headers as one number.
#define REEL_VERSION REEL_MAKE_VERSION(REEL_VERSION_MAJOR, REEL_VERSION_MINOR, REEL_VERSION_PATCH)

/// Marks what a later version removes, and says what replaces it: REEL_DEPRECATED("use matmul"). It is kept for at
/// least one minor version. -DREEL_NO_DEPRECATED silences the warnings.
#ifdef REEL_NO_DEPRECATED
#define REEL_DEPRECATED(message)
#else
#define REEL_DEPRECATED(message) [[deprecated(message)]]
#endif

#pragma GCC visibility push(default)
/// The version of the headers and of the library.
namespace reel {

/// The version of the library that the program runs with, as "0.1.0"; of a shared one it may be newer than the headers.
const char* version();

}  // namespace reel
#pragma GCC visibility pop
