// What the scheduler decides where blocks are short: requests that wait, are preempted or draft less, in pinned counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

// Drafts one token again and again, which is wrong.
class WrongDrafter final : public Drafter {
public:
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) job.drafts.assign(static_cast<size_t>(job.max_drafts), 7);
    }
    void ended(RequestId) override {}
};

// Request i has num_prompt + i tokens and answers 12 + i, or up to a stop token with state_lag.
struct ShortMemory {
    int32_t lag_steps = 0;
    int32_t num_blocks = 0;
    int num_requests = 0;
    int64_t num_prompt = 0;
    int32_t state_lag = 0;  // tokens
    bool drafts = false;
};

struct Decided {
    int64_t steps = 0;
    int64_t preemptions = 0;
    int64_t drafted = 0;
    int64_t evictions = 0;
    int64_t recomputed = 0;
    friend bool operator==(const Decided&, const Decided&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Decided& of) {
        return out << of.steps << ' ' << of.preemptions << ' ' << of.drafted << ' ' << of.evictions << ' '
                   << of.recomputed;
    }
};

Decided decided(const ShortMemory& load) {
    EngineScene scene({.num_blocks = load.num_blocks,
                       .max_window = 4,
                       .max_state_lag_tokens = load.state_lag,
                       .lag_steps = load.lag_steps});
    WrongDrafter drafter;
    if (load.drafts) scene.engine.draft_with(&drafter);
    std::vector<std::pair<RequestId, std::vector<TokenId>>> answers;
    for (int i = 0; i < load.num_requests; ++i) {
        const std::vector<TokenId> prompt = iota_tokens(100 * i, load.num_prompt + i);
        std::vector<TokenId> answer = scene.expected(prompt, 12 + i);
        ChatRequest request = scene.history(std::to_string(i), prompt, 12 + i);
        if (load.state_lag > 0) {
            answer.resize(static_cast<size_t>(9 - i));
            request.stop_tokens = {answer.back()};
        }
        answers.emplace_back(scene.submit(std::move(request)), std::move(answer));
    }
    const int64_t steps = scene.run();
    for (const auto& [request, answer] : answers) EXPECT_EQ(scene.streamed(request), answer) << index(request);
    scene.expect_home();
    const EngineStats& stats = scene.engine.stats();
    return {steps, stats.preemptions, stats.drafted_tokens, stats.evictions, stats.recomputed_tokens};
}

TEST(ShortMemory, ARequestThatIsPreemptedDraftsAnew) {
    EXPECT_EQ(decided({.num_blocks = 8, .num_requests = 2, .num_prompt = 7, .drafts = true}),
              (Decided{.steps = 17, .preemptions = 1, .drafted = 43, .evictions = 1, .recomputed = 9}));
}

// Blocks that are fenced are owed to older requests: room for a younger one is made beyond them.
TEST(ShortMemory, OwedBlocksAreNotGivenTwice) {
    EXPECT_EQ(decided({.lag_steps = 1, .num_blocks = 15, .num_requests = 7, .num_prompt = 3, .state_lag = 8}),
              (Decided{.steps = 13, .preemptions = 2, .drafted = 0, .evictions = 6, .recomputed = 20}));
    EXPECT_EQ(decided({.lag_steps = 2, .num_blocks = 22, .num_requests = 6, .num_prompt = 3, .drafts = true}),
              (Decided{.steps = 27, .preemptions = 1, .drafted = 172, .evictions = 4, .recomputed = 16}));
}

TEST(ShortMemory, DraftsLieInBlocksThatAreNotOwed) {
    EXPECT_EQ(decided({.num_blocks = 14, .num_requests = 3, .num_prompt = 10, .state_lag = 8, .drafts = true}),
              (Decided{.steps = 12, .preemptions = 0, .drafted = 55, .evictions = 1, .recomputed = 0}));
}

// The youngest one's row moves in this step: it gives its memory back in the next.
TEST(ShortMemory, ARequestWhoseTurnIsOverIsNotPreempted) {
    EXPECT_EQ(decided({.num_blocks = 10, .num_requests = 3, .num_prompt = 5, .state_lag = 8}),
              (Decided{.steps = 11, .preemptions = 0, .drafted = 0, .evictions = 1, .recomputed = 0}));
}

}  // namespace
}  // namespace verbatim::tests
