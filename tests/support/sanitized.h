// tests/support/sanitized.h: owns whether a sanitizer watches this build: a test that repeats the same accesses many
// times over (every order of threads, every length) then does it a few times. The `dev` build never takes the short
// way.
#pragma once

namespace verbatim::tests {

inline constexpr bool kSanitized = VERBATIM_SANITIZED != 0;

}  // namespace verbatim::tests
