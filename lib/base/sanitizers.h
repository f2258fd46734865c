#pragma once

// Says which sanitizer instruments what is compiled, by GCC's macros or clang's __has_feature: REEL_ADDRESS_SANITIZER
// and REEL_THREAD_SANITIZER are defined or not.
#if defined(__SANITIZE_ADDRESS__)
#define REEL_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define REEL_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REEL_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define REEL_THREAD_SANITIZER
#endif
#endif

namespace reel {

/// Whether a sanitizer instruments this, which makes it slow, and replaces malloc and operator new.
#if defined(REEL_ADDRESS_SANITIZER) || defined(REEL_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace reel
