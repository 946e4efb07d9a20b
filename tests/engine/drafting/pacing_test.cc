#include "engine/drafting/pacing.h"

#include <gtest/gtest.h>

namespace verbatim::tests {
namespace {

// Windows of an acceptance rate that is spread evenly: how long they are in the end.
int32_t window_of(int64_t least, int right_of_ten, int32_t max_drafts = 15) {
    DraftPacing pacing;
    int64_t drafted_before = 0;
    int32_t drafts = 0;
    for (int step = 0; step < 500; ++step) {
        const int32_t asked = pacing.next(max_drafts, least);
        if (asked == 0) continue;
        drafts = asked;
        int32_t accepted = 0;
        while (accepted < asked && (drafted_before++ * right_of_ten) % 10 < right_of_ten) ++accepted;
        pacing.record(asked, accepted, max_drafts);
    }
    return drafts;
}

TEST(DraftPacing, RightDraftsMakeLongWindowsWhateverRowsCost) {
    EXPECT_EQ(window_of(0, 10), 15);
    EXPECT_EQ(window_of(kSure / 20, 10), 15);
    EXPECT_EQ(window_of(kSure * 9 / 10, 10), 15);
}

// Eight of ten: 0.8, 0.64, 0.51, 0.41, ...
TEST(DraftPacing, NoDraftIsAskedForThatIsLessLikelyThanItsRowIsDear) {
    EXPECT_GE(window_of(0, 8), 3);
    EXPECT_LE(window_of(kSure * 2 / 3, 8), 2);
    EXPECT_LE(window_of(kSure * 9 / 10, 8), 1);
}

TEST(DraftPacing, WhereNoDraftIsWorthItsRowOneNowAndThenSaysSo) {
    DraftPacing pacing;
    int num_drafts = 0;
    for (int step = 0; step < 1000; ++step) {
        const int32_t asked = pacing.next(15, kSure * 9 / 10);
        num_drafts += asked;
        if (asked > 0) pacing.record(asked, step % 2, 15);
    }
    EXPECT_GT(num_drafts, 0);
    EXPECT_LT(num_drafts, 1000 / DraftPacing::kMaxPause + 4);
}

}  // namespace
}  // namespace verbatim::tests
