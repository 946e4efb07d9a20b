#include "reference/numerics/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>

namespace verbatim::reference {
namespace {

TEST(FloatEnvironment, TheOrdinaryModeIsExact) { EXPECT_TRUE(float_environment_is_exact()); }

TEST(FloatEnvironment, AnotherRoundingModeIsDetected) {
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        const bool exact = float_environment_is_exact();
        std::fesetround(FE_TONEAREST);
        EXPECT_FALSE(exact) << mode;
    }
}

#if defined(__x86_64__)
TEST(FloatEnvironment, FlushingSubnormalsIsDetected) {
    const unsigned before = _mm_getcsr();
    for (const unsigned flag : {0x8000U, 0x0040U}) {
        _mm_setcsr(before | flag);
        const bool exact = float_environment_is_exact();
        _mm_setcsr(before);
        EXPECT_FALSE(exact) << flag;
    }
}

TEST(FloatEnvironmentDeathTest, AWorkerInAnotherModeStops) {
    EXPECT_DEATH(
        {
            _mm_setcsr(_mm_getcsr() | 0x8000U);
            assert_float_environment();
        },
        "flushes subnormals");
}
#endif

}  // namespace
}  // namespace verbatim::reference
