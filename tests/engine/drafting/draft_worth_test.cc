#include "engine/drafting/draft_worth.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/prng.h"
#include "engine/clock.h"
#include "engine/drafting/priced_drafter.h"

namespace verbatim::tests {
namespace {

// A machine on which a step, a draft's row and the drafter take these times, and a draft is right with `right` of 1000.
struct Machine {
    int32_t num_requests = 1;
    int64_t step_ns = 1'000'000;
    int64_t row_ns = 0;
    int64_t drafter_ns = 0;
    int64_t right = 0;
    int64_t noise = 0;  // of 1000: times vary by so much

    [[nodiscard]] int64_t time(Prng& prng, int64_t ns) const {
        return ns + ns * (static_cast<int64_t>(prng.below(static_cast<uint64_t>(2 * noise + 1))) - noise) / 1000;
    }
};

constexpr int64_t kDrafts = 3;

// Tokens, and what they took.
struct Ran {
    int64_t num_tokens = 0;
    int64_t ns = 0;
    int64_t num_drafted_steps = 0;
    int64_t rests = 0;

    [[nodiscard]] int64_t token_ns() const { return ns / num_tokens; }
};

enum class Way { kPlain, kDrafted, kPriced };

Ran run(const Machine& machine, Way way, int64_t num_steps, DraftWorth& worth, uint64_t seed) {
    Prng prng(seed);
    Ran ran;
    for (int64_t i = 0; i < num_steps; ++i) {
        std::optional<DraftTerms> terms;
        if (way == Way::kPriced) terms = worth.terms(machine.num_requests);
        if (way == Way::kDrafted) terms = DraftTerms{};
        const bool drafts = terms.has_value();
        ran.rests += worth.rests() ? 1 : 0;
        DecodeStep step{.num_requests = machine.num_requests, .num_tokens = machine.num_requests};
        for (int32_t r = 0; drafts && r < machine.num_requests; ++r) {
            step.num_drafts += kDrafts;
            for (int64_t d = 0; d < kDrafts && static_cast<int64_t>(prng.below(1000)) < machine.right; ++d)
                ++step.num_tokens;
        }
        const int64_t step_ns = machine.time(prng, machine.step_ns + step.num_drafts * machine.row_ns);
        const int64_t draft_ns = drafts ? machine.time(prng, machine.drafter_ns) : 0;
        if (way == Way::kPriced) worth.record(step, step_ns, draft_ns);
        ran.num_tokens += step.num_tokens;
        ran.ns += step_ns + draft_ns;
        ran.num_drafted_steps += drafts ? 1 : 0;
    }
    return ran;
}

Ran run(const Machine& machine, Way way, int64_t num_steps = 2000, uint64_t seed = 1) {
    DraftWorth worth;
    return run(machine, way, num_steps, worth, seed);
}

TEST(DraftWorth, MeasuresPlainStepsFirst) {
    DraftWorth worth;
    for (int32_t i = 0; i < DraftWorth::kFirst; ++i) {
        EXPECT_FALSE(worth.terms(1)) << i;
        worth.record({.num_requests = 1, .num_tokens = 1}, 100, 0);
    }
    EXPECT_TRUE(worth.terms(1));
    EXPECT_FALSE(worth.terms(2)) << "each range of batch sizes is measured";
}

// A batch that always computes some prompt.
TEST(DraftWorth, WhereNoStepIsMeasuredAcceptanceAloneDecides) {
    DraftWorth worth;
    for (int32_t i = 0; i < DraftWorth::kPatience; ++i) EXPECT_FALSE(worth.terms(1)) << i;
    for (int i = 0; i < 100; ++i) EXPECT_EQ(worth.terms(1), DraftTerms{}) << i;
    worth.record({.num_requests = 1, .num_tokens = 1}, 100, 0);
    EXPECT_FALSE(worth.terms(1)) << "the steps before drafts are measured as soon as there are any";
}

// The first draft waits for the drafter to compute a thousand steps' worth of prompts.
TEST(DraftWorth, APromptThatTheDrafterComputesIsNoPriceOfADraft) {
    const Machine machine{.row_ns = 20'000, .drafter_ns = 50'000, .right = 950};
    DraftWorth worth;
    run(machine, Way::kPriced, DraftWorth::kFirst, worth, 1);
    ASSERT_TRUE(worth.terms(1));
    worth.record_catch_up(1000, 1'000'000'000);
    worth.record({.num_requests = 1, .num_tokens = 4, .num_drafts = 3}, 1'000'000, 1'000'000);
    EXPECT_GT(run(machine, Way::kPriced, 1000, worth, 2).num_drafted_steps, 900);
}

// The layer of a tiny model: half of the drafts are wrong, and it takes as long as the model.
TEST(DraftWorth, DraftsThatCostMoreThanTheyGiveStop) {
    const Machine machine{.row_ns = 300'000, .drafter_ns = 900'000, .right = 500};
    const Ran ran = run(machine, Way::kPriced);
    EXPECT_LT(ran.num_drafted_steps, 60);
    EXPECT_GE(ran.num_drafted_steps, DraftWorth::kFirst);
    EXPECT_GT(ran.rests, 1900);
    EXPECT_LT(ran.token_ns() * 98 / 100, machine.step_ns);
    EXPECT_GT(run(machine, Way::kDrafted).token_ns(), machine.step_ns * 13 / 10) << "without prices";
}

TEST(DraftWorth, DraftsThatPayGoOn) {
    const Machine machine{.row_ns = 50'000, .drafter_ns = 50'000, .right = 900};
    EXPECT_GT(run(machine, Way::kPriced).num_drafted_steps, 1900);
}

// A text that begins to repeat itself.
TEST(DraftWorth, DraftsThatBeginToPayAreFound) {
    Machine machine{.row_ns = 100'000, .drafter_ns = 100'000, .right = 50};
    DraftWorth worth;
    const Ran before = run(machine, Way::kPriced, 1000, worth, 1);
    machine.right = 1000;
    const Ran after = run(machine, Way::kPriced, 1000, worth, 2);
    EXPECT_LT(before.num_drafted_steps, 100);
    EXPECT_GT(after.num_drafted_steps, 700);
    machine.right = 0;
    EXPECT_LT(run(machine, Way::kPriced, 1000, worth, 3).num_drafted_steps, 100);
}

// One step in a hundred is held up by another program.
TEST(DraftWorth, AStepThatWasHeldUpDecidesNothing) {
    DraftWorth worth;
    int held_up = 0;
    int drafted = 0;
    for (int i = 0; i < 1000; ++i) {
        const bool drafts = worth.terms(1).has_value();
        drafted += drafts ? 1 : 0;
        const bool is_held_up = drafts && i % 100 == 50 && ++held_up > 0;
        worth.record({.num_requests = 1, .num_tokens = drafts ? 4 : 1, .num_drafts = drafts ? 3 : 0},
                     is_held_up ? 500'000'000 : 1'000'000, 0);
    }
    EXPECT_GT(held_up, 3);
    EXPECT_GT(drafted, 900);
}

// A quarter of a plain step for a row, at one request and at eight.
TEST(DraftWorth, ARowsPriceIsRelativeToOneRequestsShareOfAStep) {
    for (const int32_t num_requests : {1, 8}) {
        const Machine machine{.num_requests = num_requests, .row_ns = 250'000 / num_requests, .right = 990};
        DraftWorth worth;
        run(machine, Way::kPriced, 100, worth, 1);
        int64_t greatest = 0;
        for (int i = 0; i < 8; ++i)
            greatest = std::max(greatest, worth.terms(num_requests).value_or(DraftTerms{}).least_acceptance);
        EXPECT_NEAR(static_cast<double>(greatest) / kSure, 0.25, 0.03) << num_requests;
    }
}

// D1 on any machine, and drafts that clearly pay are used.
RC_GTEST_PROP(DraftWorth, NeverCostsMoreThanItsBudget, (uint64_t seed)) {
    Prng prng(seed);
    const auto draw = [&](int64_t least, int64_t most) {
        return least + static_cast<int64_t>(prng.below(static_cast<uint64_t>(most - least + 1)));
    };
    Machine machine{.num_requests = static_cast<int32_t>(draw(1, 64)),
                    .step_ns = draw(20'000, 200'000'000),
                    .right = draw(0, 1000),
                    .noise = draw(0, 100)};
    machine.row_ns = machine.step_ns * draw(0, 600) / 1000 / machine.num_requests;
    machine.drafter_ns = machine.step_ns * draw(0, 1500) / 1000;
    const Ran plain = run(machine, Way::kPlain, 3000, seed);
    const Ran drafted = run(machine, Way::kDrafted, 3000, seed);
    const Ran priced = run(machine, Way::kPriced, 3000, seed);
    const int64_t first_ns = 2 * DraftWorth::kFirst * drafted.ns / 3000;
    const int64_t ns = (priced.ns - first_ns) / priced.num_tokens;
    RC_ASSERT(ns * 98 <= plain.token_ns() * 100);
    if (drafted.token_ns() * 10 < plain.token_ns() * 8) {
        RC_ASSERT(ns * 90 <= drafted.token_ns() * 100);
    }
}

// A drafter that computes: requests come one after another in each of num_requests places, and each has a prompt that
// the drafter computes, too, before its first draft.
struct Traffic {
    Machine machine;
    int64_t num_prompt = 100;
    int64_t num_output = 100;
    int64_t num_stop = 100;         // tokens after which a request stops, at most num_output
    int64_t catch_up_ns = 100'000;  // a token
};

// The time of a token of all, without drafts and with those that DraftWorth wants; what was caught up for the first
// measurement is apart.
struct TrafficTimes {
    int64_t plain_ns = 0;
    int64_t priced_ns = 0;
    int64_t num_drafts = 0;
    int64_t num_catch_ups = 0;
};

TrafficTimes run(const Traffic& traffic, uint64_t seed, int64_t num_steps) {
    const Machine& machine = traffic.machine;
    Prng prng(seed);
    DraftWorth worth;
    struct Place {
        int64_t num_output = 0;
        int64_t num_computed = 0;  // by the drafter
    };
    std::vector<Place> places(static_cast<size_t>(machine.num_requests));
    TrafficTimes times;
    int64_t num_tokens = 0;
    int64_t num_drafted_steps = 0;
    int64_t ns = 0;
    for (int64_t i = 0; i < num_steps; ++i) {
        const std::optional<DraftTerms> terms = worth.terms(machine.num_requests);
        DecodeStep step{.num_requests = machine.num_requests};
        int64_t num_caught_up = 0;
        const auto behind = [&](const Place& of) {
            const int64_t missing = traffic.num_prompt + of.num_output - of.num_computed;
            return missing > kDrafts + 1 ? missing : 0;
        };
        if (terms) std::ranges::stable_sort(places, {}, behind);
        int32_t num_drafted = 0;
        for (Place& place : places) {
            int64_t accepted = 0;
            const int64_t gains_from = std::min(place.num_output, traffic.num_output - place.num_output);
            const bool is_behind = behind(place) > 0;
            if (terms && (!is_behind || num_drafted < terms->catch_up_to) && terms->repay(behind(place), gains_from)) {
                ++num_drafted;
                num_caught_up += behind(place);
                place.num_computed = traffic.num_prompt + place.num_output;
                step.num_drafts += kDrafts;
                while (accepted < kDrafts && static_cast<int64_t>(prng.below(1000)) < machine.right) ++accepted;
            }
            place.num_output += 1 + accepted;
            step.num_tokens += 1 + accepted;
            if (place.num_output >= traffic.num_stop) place = {};
        }
        if (num_caught_up > 0) worth.record_catch_up(num_caught_up, num_caught_up * traffic.catch_up_ns);
        const int64_t step_ns = machine.time(prng, machine.step_ns + step.num_drafts * machine.row_ns);
        const int64_t draft_ns = step.num_drafts > 0 ? machine.time(prng, machine.drafter_ns) : 0;
        worth.record(step, step_ns, draft_ns);
        ns += step_ns + draft_ns;
        num_drafted_steps += step.num_drafts > 0 ? 1 : 0;
        if (num_drafted_steps > DraftWorth::kFirst) ns += num_caught_up * traffic.catch_up_ns;
        num_tokens += step.num_tokens;
        times.num_drafts += step.num_drafts;
        times.num_catch_ups += num_caught_up;
    }
    times.plain_ns = machine.step_ns / machine.num_requests;
    times.priced_ns = ns / num_tokens;
    return times;
}

// A large batch, short answers, and a drafter whose prompts take as long as the model's.
TEST(DraftWorth, AnswersTooShortForTheDraftersPromptsHaveNoDrafts) {
    const Traffic traffic{.machine = {.num_requests = 64, .step_ns = 100'000'000, .row_ns = 1'000'000, .right = 1000},
                          .num_prompt = 64,
                          .num_output = 25,
                          .num_stop = 25,
                          .catch_up_ns = 1'600'000};
    const TrafficTimes times = run(traffic, 1, 1000);
    EXPECT_LE(times.priced_ns * 98, times.plain_ns * 100);
    EXPECT_GT(times.num_catch_ups, 0) << "it was measured";
}

TEST(DraftWorth, LongAnswersRepayTheDraftersPrompts) {
    const Traffic traffic{.machine = {.num_requests = 4, .row_ns = 10'000, .drafter_ns = 100'000, .right = 900},
                          .num_prompt = 500,
                          .num_output = 1000,
                          .num_stop = 1000,
                          .catch_up_ns = 20'000};
    const TrafficTimes times = run(traffic, 1, 4000);
    EXPECT_LT(times.priced_ns * 10, times.plain_ns * 6);
    EXPECT_GT(times.num_catch_ups, 40 * 500);
}

TEST(DraftWorth, AnEighthOfTheRequestsCatchesUpForAMeasurementAndTwiceAsManyWhileDraftsPay) {
    constexpr int32_t kRequests = 64;
    DraftWorth worth;
    const auto record = [&](int64_t num_drafts, int64_t num_tokens) {
        worth.record({.num_requests = kRequests, .num_tokens = num_tokens, .num_drafts = num_drafts}, 1'000'000, 0);
    };
    const auto catch_up_to = [&] { return worth.terms(kRequests).value_or(DraftTerms{}).catch_up_to; };
    for (int32_t i = 0; i < DraftWorth::kFirst; ++i) record(0, kRequests);
    EXPECT_EQ(catch_up_to(), 8);
    for (int32_t i = 0; i < DraftWorth::kFirst; ++i) record(8, kRequests + 8);
    for (const int32_t expected : {16, 32, 64, 64}) {
        EXPECT_EQ(catch_up_to(), expected);
        record(expected, kRequests + expected);
    }
    while (!worth.rests()) {
        if (worth.terms(kRequests)) record(kRequests, kRequests / 2);
    }
    std::optional<DraftTerms> terms;
    for (int i = 0; i < 10'000 && !terms; ++i) {
        terms = worth.terms(kRequests);
        if (!terms) record(0, kRequests);
    }
    ASSERT_TRUE(terms);
    EXPECT_EQ(terms->catch_up_to, 8) << "it is measured anew";
}

// The drafter catches up for a hundred steps' time, and its drafts do not pay: a further batch size is measured when it
// has saved as much. N-grams, which catch up nothing, are measured at once.
TEST(DraftWorth, AFurtherBatchSizeIsMeasuredWhenCatchingUpIsSavedFor) {
    for (const int64_t catch_up_ns : {0, 100'000'000}) {
        DraftWorth worth;
        for (int32_t i = 0; i < DraftWorth::kFirst; ++i)
            worth.record({.num_requests = 8, .num_tokens = 8}, 1'000'000, 0);
        if (catch_up_ns > 0) worth.record_catch_up(1000, catch_up_ns);
        for (int32_t i = 0; i < DraftWorth::kFirst; ++i)
            worth.record({.num_requests = 8, .num_tokens = 9, .num_drafts = 8}, 4'000'000, 0);
        ASSERT_FALSE(worth.terms(8));
        int64_t num_plain = 0;
        while (!worth.terms(1)) {
            worth.record({.num_requests = 1, .num_tokens = 1}, 1'000'000, 0);
            ASSERT_LT(++num_plain, 20'000);
        }
        EXPECT_NEAR(static_cast<double>(num_plain), catch_up_ns == 0 ? DraftWorth::kFirst : 100 * DraftWorth::kBudget,
                    2);
    }
}

// Steps without drafts are measured, and turn out to be the faster way: the steps that were left to measure are not
// steps with drafts.
TEST(DraftWorth, AMeasurementEndsWhenTheOtherWayTurnsOutToBeFaster) {
    DraftWorth worth;
    for (int32_t i = 0; i < DraftWorth::kFirst; ++i) worth.record({.num_requests = 1, .num_tokens = 1}, 1'000'000, 0);
    const DecodeStep drafted{.num_requests = 1, .num_tokens = 2, .num_drafts = 1};
    for (int32_t i = 0; i < DraftWorth::kFirst; ++i) worth.record(drafted, 1'990'000, 0);
    int i = 0;
    for (; worth.terms(1); ++i) {
        ASSERT_LT(i, 1000);
        worth.record(drafted, 1'990'000, 0);
    }
    ASSERT_FALSE(worth.rests()) << "drafts pay, and the other way is measured";
    worth.record({.num_requests = 1, .num_tokens = 1}, 500'000, 0);
    EXPECT_FALSE(worth.terms(1));
    EXPECT_TRUE(worth.rests());
}

// Never much slower than without drafts, though requests end when they like: one that ends as soon as its drafts could
// have repaid what they caught up has lost as much as they would have saved.
RC_GTEST_PROP(DraftWorth, CatchingUpCostsNoMoreThanDraftsSave, (uint64_t seed)) {
    Prng prng(seed);
    const auto draw = [&](int64_t least, int64_t most) {
        return least + static_cast<int64_t>(prng.below(static_cast<uint64_t>(most - least + 1)));
    };
    Traffic traffic;
    traffic.machine = {.num_requests = static_cast<int32_t>(draw(1, 64)),
                       .step_ns = draw(1'000'000, 100'000'000),
                       .right = draw(0, 1000),
                       .noise = draw(0, 30)};
    const int64_t share_ns = traffic.machine.step_ns / traffic.machine.num_requests;
    traffic.machine.row_ns = share_ns * draw(0, 1000) / 1000;
    traffic.machine.drafter_ns = traffic.machine.step_ns * draw(0, 1500) / 1000;
    traffic.catch_up_ns = share_ns * draw(1, 1000) / 1000;
    traffic.num_prompt = draw(1, 2000);
    traffic.num_output = draw(2, 400);
    traffic.num_stop = draw(0, 1) == 0 ? traffic.num_output : draw(1, traffic.num_output);
    const TrafficTimes times = run(traffic, seed, 6000);
    RC_LOG() << times.plain_ns << " ns without, " << times.priced_ns << " with prices, " << times.num_catch_ups
             << " tokens caught up, " << times.num_drafts << " drafts";
    RC_ASSERT(times.priced_ns * 97 <= times.plain_ns * 100 || traffic.num_stop < traffic.num_output);
    RC_ASSERT(times.priced_ns <= times.plain_ns * 2);
}

// What it answers is a policy: a change of it is made on purpose, and changes this number.
TEST(DraftWorth, AnswersAreThePinnedOnes) {
    Digester digester;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        Prng prng(seed);
        const auto below = [&](int64_t n) { return static_cast<int64_t>(prng.below(static_cast<uint64_t>(n))); };
        DraftWorth worth;
        const int64_t usual_ns = below(seed % 4 == 0 ? 3 : 2'000'000);  // clocks may stand still
        const int64_t row_ns = seed % 5 == 0 ? 0 : below(usual_ns + 1);
        for (int i = 0; i < 300; ++i) {
            const auto num_requests = static_cast<int32_t>(1 + below(seed % 3 == 0 ? 9 : 2));
            const std::optional<DraftTerms> terms = worth.terms(below(10) == 0 ? 0 : num_requests);
            digester.add(terms ? terms->least_acceptance : int64_t{-1});
            if (terms) digester.add(terms->catch_up_to);
            if (terms) digester.add(terms->output_for_1024_behind);
            digester.add(static_cast<uint8_t>(worth.rests()));
            if (below(8) == 0 || i % 100 < 20) continue;  // a step that is not measured
            DecodeStep step{.num_requests = num_requests, .num_tokens = num_requests};
            if (terms && below(6) > 0) step.num_drafts = static_cast<int32_t>(1 + below(3 * num_requests));
            step.num_tokens += static_cast<int32_t>(below(step.num_drafts + 1));
            worth.record(step, usual_ns + step.num_drafts * row_ns + below(usual_ns + 1),
                         terms ? below(usual_ns + 1) : 0);
            if (terms && below(10) == 0) worth.record_catch_up(1 + below(1000), below(10 * usual_ns + 1));
            if (below(20) == 0) worth.add_overhead(below(4 * usual_ns + 1));
        }
    }
    EXPECT_EQ(digester.digest().hex(), "cdbea063bf6adb7ce34106c040d32c1c");
}

// --- the drafter that asks

class StepClock final : public Clock {
public:
    int64_t now_ns() override { return now; }
    int64_t now = 0;
};

class DearDrafter final : public Drafter {
public:
    explicit DearDrafter(StepClock& clock) : clock_(clock) {}
    void step_begins() override { ++begun; }
    void step_begins_undrafted() override { ++rested; }
    void draft(std::span<DraftJob> jobs) override {
        clock_.now += 700;
        for (DraftJob& job : jobs) job.drafts = {1};
    }
    void ended(RequestId) override {}
    int begun = 0;
    int rested = 0;

private:
    StepClock& clock_;
};

TEST(PricedDrafter, TheDraftersTimeCounts) {
    StepClock clock;
    DearDrafter dear(clock);
    PricedDrafter priced(dear, clock);
    int drafted = 0;
    for (int i = 0; i < 200; ++i) {
        const bool drafts = priced.terms(1).has_value();
        DecodeStep step{.num_requests = 1, .num_tokens = 1};
        if (drafts) {
            priced.step_begins();
            DraftJob job{.max_drafts = 1};
            priced.draft({&job, 1});
            step = {.num_requests = 1, .num_tokens = i % 2 == 0 ? 2 : 1, .num_drafts = 1};  // half of them are right
            ++drafted;
        } else {
            priced.step_begins_undrafted();
        }
        clock.now += 1000;
        priced.step_ends(&step);
    }
    EXPECT_LT(drafted, 20) << "1.7 times as long, 1.5 times as many";
    EXPECT_GT(dear.rested, 170);
    EXPECT_EQ(dear.begun + dear.rested, 200);
    EXPECT_LT(dear.begun, 30) << "it keeps up where it may be asked soon";
}

}  // namespace
}  // namespace verbatim::tests
