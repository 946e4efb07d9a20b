// How much memory requests that run take from heads (D6).
#include "engine/scheduler/running_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

TEST(RunningShare, IsWhatIsNotComputedAgainButHalfAtLeast) {
    RunningShare share;
    EXPECT_EQ(share.bytes_of(1000), 1000);
    share.note_admitted(100, 0);
    EXPECT_EQ(share.bytes_of(1000), 1000);
    share.note_admitted(100, 50);
    EXPECT_EQ(share.bytes_of(1024), 768);
    EXPECT_EQ(share.bytes_of(int64_t{1} << 50), int64_t{768} << 40);
    for (int i = 0; i < 100; ++i) share.note_admitted(100, 100);
    EXPECT_EQ(share.bytes_of(1000), 500);
}

TEST(RunningShare, FollowsALoadThatChanges) {
    RunningShare share;
    const auto admit = [&](int count, int64_t num_evicted) {
        for (int i = 0; i < count; ++i) share.note_admitted(1000, num_evicted);
    };
    admit(2000, 0);
    admit(RunningShare::kWindow, 500);
    EXPECT_THAT(share.bytes_of(1000), AllOf(Ge(640), Le(720))) << "1 - (1 - 1 / e) / 2";
    admit(2000, 0);
    EXPECT_GE(share.bytes_of(1000), 990);
}

TEST(RunningShare, StaysAShareWhateverIsCounted) {
    Prng prng(1);
    RunningShare share;
    for (int i = 0; i < 20'000; ++i) {
        const int64_t most = int64_t{1} << prng.below(20);
        const auto num_computed = static_cast<int64_t>(prng.below(static_cast<uint64_t>(most)));
        share.note_admitted(num_computed, prng.below(2) == 0 ? num_computed : 0);
        ASSERT_THAT(share.bytes_of(3000), AllOf(Ge(1500), Le(3000)));
    }
}

TEST(RunningShareDeathTest, NoMoreIsComputedAgainThanIsComputed) {
    RunningShare share;
    EXPECT_DEATH(share.note_admitted(10, 11), "11 of 10 computed tokens were evicted");
}

// What is not as usual.
struct Load {
    bool repeated = false;   // thirty prompts come again and again
    bool forgotten = false;  // the conversations are deleted before the ten requests come
    bool learns = true;
    int64_t budget_bytes = 1000;
    int64_t num_tokens = 36;  // of a request's prompt
};

// What requests hold at most when ten come at once, after three hundred prompts have filled the memory.
int64_t most_held(const Load& load) {
    SceneOptions options;
    options.num_blocks = 250;
    options.num_state_rows = 25;
    options.budget_bytes = load.budget_bytes;
    options.lookup = LookupMode::kPrefix;
    options.evicts_by_value = load.learns;
    EngineScene scene(options);
    int id = 0;
    for (TokenId i = 0; i < 300; ++i) {
        const TokenId first = load.repeated ? i % 30 : i;
        scene.complete(scene.history(std::to_string(id++), iota_tokens(1 + first, 60), 2));
    }
    for (int past = 0; load.forgotten && past < id; ++past)
        EXPECT_TRUE(scene.engine.remove(scene.key(std::to_string(past))).has_value());
    std::vector<RequestId> requests;
    for (TokenId i = 0; i < 10; ++i)
        requests.push_back(scene.submit(scene.history(std::to_string(id++), iota_tokens(400 + i, load.num_tokens), 4)));
    int64_t most = 0;
    const auto is_finished = [&](RequestId request) { return scene.is_finished(request); };
    while (!std::ranges::all_of(requests, is_finished)) {
        scene.step();
        most = std::max(most, scene.engine.cache().bytes_by_kind().kv_of_sequences);
    }
    scene.run();
    scene.expect_home();
    return most;
}

// Eighty bytes each, of thousand: six are half of them.
TEST(RunningShare, WherePromptsAreComputedAgainFewerRequestsRunAtOnce) {
    EXPECT_EQ(most_held({}), 10 * 40);
    EXPECT_EQ(most_held({.repeated = true}), 6 * 40);
}

TEST(RunningShare, FourRunWhateverTheyTake) { EXPECT_EQ(most_held({.repeated = true, .num_tokens = 116}), 4 * 120); }

TEST(RunningShare, WhereNoHeadGoesOrNothingIsLearnedAllRun) {
    EXPECT_EQ(most_held({.repeated = true, .forgotten = true}), 8 * 40) << "then heads of prompts have the rest";
    EXPECT_EQ(most_held({.repeated = true, .learns = false}), 10 * 40);
    EXPECT_EQ(most_held({.repeated = true, .budget_bytes = 0}), 10 * 40) << "blocks and rows do not compete";
}

}  // namespace
}  // namespace verbatim::tests
