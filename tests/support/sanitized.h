// tests/support/sanitized.h: whether this build runs under a sanitizer: tests that repeat the same accesses many times
// (every thread order, every length) then run a few of them. The `dev` build always runs all.
#pragma once

namespace verbatim::tests {

inline constexpr bool kSanitized = VERBATIM_SANITIZED != 0;

}  // namespace verbatim::tests
