// reference/numerics/float_environment.h: the processor mode that NUMERICS N1 requires of every computing thread.
#pragma once

#include "engine/base/check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace verbatim::reference {

// True when this thread rounds to nearest even and keeps subnormals (neither flush-to-zero nor denormals-are-zero).
inline bool float_environment_is_exact() {
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000U;
    constexpr unsigned kDenormalsAreZero = 0x0040U;
    constexpr unsigned kRoundingMode = 0x6000U;  // 0: to nearest even
    if ((_mm_getcsr() & (kFlushToZero | kDenormalsAreZero | kRoundingMode)) != 0) return false;
#endif
    // The same check by arithmetic, for processors without an MXCSR.
    volatile float smallest_normal = 0x1p-126F;
    volatile float half = 0.5F;
    volatile float one = 1.0F;
    volatile float half_ulp = 0x1p-24F;
    const float subnormal = smallest_normal * half;
    return subnormal != 0.0F && subnormal + subnormal == smallest_normal && one + half_ulp == 1.0F &&
           -one - half_ulp == -1.0F && (one + 0x1p-23F) + half_ulp == 1.0F + 0x1p-22F;
}

// Every worker calls it first, and every forward pass: a library may have changed the mode.
inline void assert_float_environment() {
    CHECK(float_environment_is_exact(), "this thread flushes subnormals or does not round to nearest even");
}

}  // namespace verbatim::reference
