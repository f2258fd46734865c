#pragma once

/// Whether a sanitizer has instrumented this: slow, and compiled with little optimization.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
