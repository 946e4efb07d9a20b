// tests/support/sanitized.h: owns whether a sanitizer watches this build: a test that repeats the same accesses many
// times over (every order of threads, every length) then does it a few times. The `dev` build never takes the short
// way.
#pragma once

namespace verbatim::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace verbatim::tests
