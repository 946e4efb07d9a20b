// What a comparison of two records covers of one turn, and why the rest of it is left out.
#include "reference/records/request_share.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/records/comparison.h"
#include "tests/reference/records/written_record.h"

namespace verbatim::tests {
namespace {

using namespace records;
using End = WrittenTurn::End;

const CompareOptions kAsRerun = {.is_complete = false, .same_prompts = false, .sides = {"a", "b", false}};
const CompareOptions kAsPeers = {.is_complete = false, .same_prompts = false, .sides = {"a", "b", true}};

const std::string kWholeTurn = "same: 1 of 1 requests, 7 of 7 positions, 3 of 3 tokens, 3 of 3 logits, 1 of 1 states";
const std::string kOtherHead = "\nfree: heads that one of them did not keep: 1 states";

// The verdict, the share, and a line for everything that was left out.
std::string covered(const WrittenRecord& a, const WrittenRecord& b, const CompareOptions& options) {
    const Comparison comparison = compare(RunIndex(a.record), RunIndex(b.record), written_points(), options);
    std::string text = fmt::format("{}: {}", name(comparison.verdict()), to_string(comparison.share));
    for (const ComparedShare::LeftOut& left_out : comparison.share.left_out())
        text += fmt::format("\n{}: {}", left_out.promise == Promise::kBits ? "promised" : "free", to_string(left_out));
    return text;
}

WrittenRecord run_of(const WrittenTurn& turn, DigestLevel level = DigestLevel::kHeads) {
    WrittenRecord record(level);
    record.turn(turn).ends();
    return record;
}
WrittenRecord cut_run_of(const WrittenTurn& turn) {
    WrittenRecord record;
    record.turn(turn);
    return record;
}
WrittenRecord no_run() {
    WrittenRecord record;
    record.ends();
    return record;
}

const WrittenTurn kTwoTokensLeft = {.tokens = {11, 12}, .states = {}, .end = End::kLeft};
const WrittenTurn kThreeTokensLeft = {.states = {}, .end = End::kLeft};
const WrittenTurn kUnanswered = {.tokens = {}, .states = {}, .end = End::kLeft};
const WrittenTurn kNeverStarted = {.num_prompt_tokens = 0, .tokens = {}, .states = {}, .end = End::kLeft};

TEST(RequestShare, EqualTurnsAreComparedToTheirLastToken) {
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of({}), run_of({}), options), kWholeTurn);
        EXPECT_EQ(covered(run_of({.more_rows = 1}), run_of({.more_rows = 1}), options), kWholeTurn);
        EXPECT_EQ(covered(run_of({}), run_of({.more_rows = 1}), options), kWholeTurn);
        EXPECT_EQ(covered(run_of({.more_rows = 1}), run_of({}), options), kWholeTurn);
    }
    EXPECT_EQ(covered(run_of({.end = End::kByClient}), run_of({}), kAsRerun), kWholeTurn);
    const WrittenTurn one = {.tokens = {11}, .states = {}};
    EXPECT_EQ(covered(run_of(one, DigestLevel::kNone), run_of(one, DigestLevel::kNone), kAsRerun),
              "same: 1 of 1 requests, 1 of 5 positions, 1 of 1 tokens, 0 of 1 logits, 0 of 1 states\n"
              "free: values of which no digests were recorded: 4 positions, 1 logits, 1 states");
}

TEST(RequestShare, AnAnswerThatOneRecordCutsShortIsMissingThere) {
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of({}), run_of(kTwoTokensLeft), options),
                  "not_all_compared: 0 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits, 0 of 1 states\n"
                  "promised: not in b: 1 requests, 1 positions, 1 tokens, 1 logits" +
                      kOtherHead);
        EXPECT_EQ(covered(run_of({}), run_of(kThreeTokensLeft), options),
                  "not_all_compared: 0 of 1 requests, 7 of 7 positions, 3 of 3 tokens, 3 of 3 logits, 0 of 1 states\n"
                  "promised: not in b: 1 requests" +
                      kOtherHead);
    }
    EXPECT_EQ(covered(run_of(kTwoTokensLeft), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits, 0 of 1 states\n"
              "promised: not in a: 1 requests, 1 positions, 1 tokens, 1 logits" +
                  kOtherHead);
    EXPECT_EQ(covered(run_of(kThreeTokensLeft), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests, 7 of 7 positions, 3 of 3 tokens, 3 of 3 logits, 0 of 1 states\n"
              "promised: not in a: 1 requests" +
                  kOtherHead);
}

// Of a run that failed, whose record is complete.
TEST(RequestShare, OneTokenLessThanATurnWithoutAnEndIsMissing) {
    const WrittenTurn two = {.tokens = {11, 12}, .states = {}, .end = End::kNone};
    const std::string two_of_three =
        "not_all_compared: 0 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits\n";
    EXPECT_EQ(covered(run_of(two), run_of(kThreeTokensLeft), kAsPeers),
              two_of_three + "promised: not in a: 1 requests, 1 positions, 1 tokens, 1 logits");
    EXPECT_EQ(covered(run_of(kThreeTokensLeft), run_of(two), kAsPeers),
              two_of_three + "promised: not in b: 1 requests, 1 positions, 1 tokens, 1 logits");
}

TEST(RequestShare, ARerunMayGoOnWhereTheRecordEnds) {
    EXPECT_EQ(covered(run_of(kTwoTokensLeft), run_of({}), kAsRerun),
              "same: 1 of 1 requests, 6 of 6 positions, 2 of 2 tokens, 2 of 2 logits");
    EXPECT_EQ(covered(run_of(kThreeTokensLeft), run_of({}), kAsRerun),
              "same: 1 of 1 requests, 7 of 7 positions, 3 of 3 tokens, 3 of 3 logits");
}

TEST(RequestShare, TheScheduleDecidesWhereAClientLeaves) {
    const std::string shorter =
        "same: 1 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits\n"
        "free: told in one run only, since the schedule decides where a client leaves: 1 positions, 1 tokens, 1 logits";
    EXPECT_EQ(covered(run_of(kThreeTokensLeft), run_of(kTwoTokensLeft), kAsRerun), shorter);
    EXPECT_EQ(covered(run_of(kThreeTokensLeft), run_of(kTwoTokensLeft), kAsPeers), shorter);
    EXPECT_EQ(covered(run_of(kTwoTokensLeft), run_of(kThreeTokensLeft), kAsPeers), shorter);
    EXPECT_EQ(covered(run_of(kTwoTokensLeft), run_of(kThreeTokensLeft), kAsRerun),
              "same: 1 of 1 requests, 6 of 6 positions, 2 of 2 tokens, 2 of 2 logits");
    EXPECT_EQ(covered(run_of({.states = {}, .end = End::kByClient}), run_of(kTwoTokensLeft), kAsRerun), shorter);
}

TEST(RequestShare, NothingBehindAFirstDifferenceIsCompared) {
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of({}), run_of({.tokens = {11, 99, 13}}), options),
                  "different: 0 of 1 requests, 5 of 7 positions, 1 of 3 tokens, 2 of 3 logits, 0 of 1 states\n"
                  "promised: behind a request's first difference: 1 requests, 2 positions, 2 tokens, 1 logits" +
                      kOtherHead);
    }
}

TEST(RequestShare, ATurnWithoutAnEndIsCutOffWhereItsRecordIs) {
    const WrittenTurn begun = {.tokens = {11, 12}, .states = {}, .end = End::kNone};
    const std::string a_was_cut = "promised: a was cut off: how much is missing is not known";
    const std::string b_was_cut = "promised: b was cut off: how much is missing is not known";
    EXPECT_EQ(covered(cut_run_of(begun), run_of({}), kAsRerun),
              "not_all_compared: 0 of 1 requests, 6 of 6 positions, 2 of 2 tokens, 2 of 2 logits\n" + a_was_cut +
                  "\npromised: no end in a: 1 requests");
    EXPECT_EQ(covered(cut_run_of(begun), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits, 0 of 1 states\n" +
                  a_was_cut + "\npromised: no end in a: 1 requests, 1 positions, 1 tokens, 1 logits" + kOtherHead);
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        const std::string no_end_in_b =
            "\npromised: no end in b: 1 requests, 1 positions, 1 tokens, 1 logits" + kOtherHead;
        const std::string two_of_three =
            "not_all_compared: 0 of 1 requests, 6 of 7 positions, 2 of 3 tokens, 2 of 3 logits, 0 of 1 states\n";
        EXPECT_EQ(covered(run_of({}), cut_run_of(begun), options), two_of_three + b_was_cut + no_end_in_b);
        EXPECT_EQ(covered(cut_run_of({}), cut_run_of(begun), options),
                  two_of_three + a_was_cut + "\n" + b_was_cut + no_end_in_b);
        EXPECT_EQ(covered(cut_run_of(begun), cut_run_of(begun), options),
                  "not_all_compared: 0 of 1 requests, 6 of 6 positions, 2 of 2 tokens, 2 of 2 logits\n" + a_was_cut +
                      "\n" + b_was_cut + "\npromised: no end in a: 1 requests");
        EXPECT_EQ(covered(cut_run_of({}), run_of({}), options),
                  "not_all_compared" + kWholeTurn.substr(4) + "\n" + a_was_cut);
        EXPECT_EQ(covered(run_of({}), cut_run_of({}), options),
                  "not_all_compared" + kWholeTurn.substr(4) + "\n" + b_was_cut);
        EXPECT_EQ(covered(run_of(begun), run_of(begun), options),
                  "same: 1 of 1 requests, 6 of 6 positions, 2 of 2 tokens, 2 of 2 logits");
    }
    WrittenTurn unanswered = kUnanswered;
    unanswered.end = End::kNone;
    EXPECT_EQ(covered(cut_run_of(unanswered), run_of({}), kAsRerun),
              "not_all_compared: 0 of 1 requests, 0 of 4 positions\n" + a_was_cut +
                  "\npromised: no end in a: 1 requests, 4 positions");
}

TEST(RequestShare, OnlyARerunHasToComeToItsEnd) {
    WrittenRecord failed;
    failed.turn({}).ends("a reason");
    const std::string of_a = "\nfree: a ended early: a reason: how much is missing is not known";
    EXPECT_EQ(covered(failed, run_of({}), kAsRerun), kWholeTurn + of_a);
    EXPECT_EQ(covered(failed, run_of({}), kAsPeers), kWholeTurn + of_a);
    EXPECT_EQ(covered(run_of({}), failed, kAsRerun),
              "not_all_compared" + kWholeTurn.substr(4) +
                  "\npromised: b ended early: a reason: how much is missing is not known");
    EXPECT_EQ(covered(run_of({}), failed, kAsPeers),
              kWholeTurn + "\nfree: b ended early: a reason: how much is missing is not known");
}

TEST(RequestShare, ATurnThatEndedUnansweredWasNotPromised) {
    const std::string unanswered =
        "not_all_compared: 0 of 1 requests, 0 of 4 positions\n"
        "free: ended before their first token: 1 requests, 4 positions";
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of(kUnanswered), run_of(kUnanswered), options), unanswered);
        EXPECT_EQ(covered(run_of(kUnanswered), no_run(), options), unanswered);
        EXPECT_EQ(covered(no_run(), run_of(kUnanswered), options), unanswered);
    }
    WrittenTurn not_finite = kUnanswered;
    not_finite.end = End::kNonFinite;
    EXPECT_EQ(covered(run_of(not_finite), run_of(not_finite), kAsRerun), unanswered);
    WrittenTurn with_state = kUnanswered;
    with_state.states = {{4, 40}};
    EXPECT_EQ(covered(run_of(with_state), run_of(with_state), kAsRerun),
              "same: 1 of 1 requests, 4 of 4 positions, 1 of 1 states");
    EXPECT_EQ(covered(run_of(kUnanswered), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests, 0 of 7 positions, 0 of 3 tokens, 0 of 3 logits, 0 of 1 states\n"
              "promised: not in a: 1 requests, 7 positions, 3 tokens, 3 logits" +
                  kOtherHead);
}

TEST(RequestShare, ATurnInOneRecordOnlyIsMissingInTheOther) {
    const std::string whole = "1 requests, 7 positions, 3 tokens, 3 logits, 1 states";
    const std::string none =
        "not_all_compared: 0 of 1 requests, 0 of 7 positions, 0 of 3 tokens, 0 of 3 logits, 0 of 1 states\n";
    EXPECT_EQ(covered(run_of({}), no_run(), kAsRerun), none + "promised: not in b: " + whole);
    EXPECT_EQ(covered(run_of({}), no_run(), kAsPeers), none + "promised: not in b: " + whole);
    EXPECT_EQ(covered(no_run(), run_of({}), kAsRerun), none + "free: not in a: " + whole);
    EXPECT_EQ(covered(no_run(), run_of({}), kAsPeers), none + "promised: not in a: " + whole);
    // A missing end, and a row without finite numbers, are not the client's.
    for (const End end : {End::kNone, End::kNonFinite}) {
        WrittenTurn unanswered = kUnanswered;
        unanswered.end = end;
        EXPECT_EQ(covered(run_of(unanswered), no_run(), kAsPeers),
                  "not_all_compared: 0 of 1 requests, 0 of 4 positions\npromised: not in b: 1 requests, 4 positions");
    }
}

TEST(RequestShare, ATurnThatWasNeverStartedHasNothingToCompare) {
    const std::string unanswered =
        "not_all_compared: 0 of 1 requests\nfree: ended before their first token: 1 requests";
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of(kNeverStarted), no_run(), options), unanswered);
        EXPECT_EQ(covered(run_of(kNeverStarted), run_of(kNeverStarted), options), unanswered);
        EXPECT_EQ(covered(run_of(kUnanswered), run_of(kNeverStarted), options),
                  "not_all_compared: 0 of 1 requests, 0 of 4 positions\n"
                  "free: ended before their first token: 1 requests, 4 positions");
    }
    EXPECT_EQ(covered(run_of(kNeverStarted), run_of({}), kAsRerun), unanswered);
    EXPECT_EQ(covered(run_of(kNeverStarted), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests, 0 of 7 positions, 0 of 3 tokens, 0 of 3 logits, 0 of 1 states\n"
              "promised: not in a: 1 requests, 7 positions, 3 tokens, 3 logits, 1 states");
    WrittenTurn waiting = kNeverStarted;
    waiting.end = End::kNone;
    const std::string a_was_cut = "promised: a was cut off: how much is missing is not known";
    EXPECT_EQ(covered(cut_run_of(waiting), run_of({}), kAsPeers),
              "not_all_compared: 0 of 1 requests\n" + a_was_cut + "\npromised: no end in a: 1 requests");
    EXPECT_EQ(covered(cut_run_of(kNeverStarted), run_of({}), kAsRerun),
              "not_all_compared: 0 of 1 requests\n" + a_was_cut + "\nfree: ended before their first token: 1 requests");
    EXPECT_EQ(covered(run_of(waiting), run_of({}), kAsRerun), unanswered);
}

TEST(RequestShare, OrdinaryTurnsPromiseNoBitsToAnotherRun) {
    WrittenRecord one = run_of({.deterministic = false});
    WrittenRecord two = run_of({.deterministic = false});
    two.turn({.id = 1, .conversation = "d", .deterministic = false, .tokens = {11}, .states = {{4, 40}}});
    two.turn({.id = 2, .conversation = "e", .tokens = {11, 12}, .states = {{4, 40}}});
    for (CompareOptions options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(one, one, options), kWholeTurn);
        options.ordinary = false;
        EXPECT_EQ(covered(one, two, options),
                  fmt::format("not_all_compared: 0 of 3 requests, 0 of 18 positions, 0 of 6 tokens, 0 of 6 logits, "
                              "0 of 3 states\n"
                              "free: ordinary requests, whose arithmetic promises no bits to another run: "
                              "2 requests, 12 positions, 4 tokens, 4 logits, 2 states\n"
                              "{}: not in a: 1 requests, 6 positions, 2 tokens, 2 logits, 1 states",
                              options.sides.are_peers ? "promised" : "free"));
        EXPECT_EQ(covered(run_of({}), run_of({}), options), kWholeTurn);
    }
}

TEST(RequestShare, ATurnWithAnotherPromptIsNotCompared) {
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(run_of({}), run_of({.prompt = 2}), options),
                  fmt::format("not_all_compared: 0 of 1 requests, 0 of 7 positions, 0 of 3 tokens, 0 of 3 logits, "
                              "0 of 1 states\n{}: other prompts, since a client left or forked at another token: "
                              "1 requests, 7 positions, 3 tokens, 3 logits, 1 states",
                              options.sides.are_peers ? "promised" : "free"));
    }
}

TEST(RequestShare, DigestsOfOneRecordStayUnconfirmed) {
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        const std::string all = ": 1 of 1 requests, 3 of 7 positions, 3 of 3 tokens, 0 of 3 logits, 0 of 1 states\n";
        const std::string lacking = "4 positions, 3 logits, 1 states";
        EXPECT_EQ(covered(run_of({}), run_of({}, DigestLevel::kNone), options),
                  "not_all_compared" + all + "promised: digests that b does not hold: " + lacking);
        EXPECT_EQ(covered(run_of({}, DigestLevel::kNone), run_of({}), options),
                  "not_all_compared" + all + "promised: digests that a does not hold: " + lacking);
        EXPECT_EQ(covered(run_of({}, DigestLevel::kNone), run_of({}, DigestLevel::kNone), options),
                  "same" + all + "free: values of which no digests were recorded: " + lacking);
        EXPECT_EQ(
            covered(run_of(kThreeTokensLeft, DigestLevel::kNone), run_of(kTwoTokensLeft, DigestLevel::kNone), options),
            "same: 1 of 1 requests, 2 of 7 positions, 2 of 3 tokens, 0 of 3 logits\n"
            "free: values of which no digests were recorded: 4 positions, 3 logits\n"
            "free: told in one run only, since the schedule decides where a client leaves: "
            "1 positions, 1 tokens");
        EXPECT_EQ(covered(run_of({}, DigestLevel::kNone), run_of(kThreeTokensLeft, DigestLevel::kNone), options),
                  "not_all_compared: 0 of 1 requests, 3 of 7 positions, 3 of 3 tokens, 0 of 3 logits, 0 of 1 states\n"
                  "promised: not in b: 1 requests\n"
                  "free: values of which no digests were recorded: 4 positions, 3 logits, 1 states");
    }
}

// Of two records one may hold digests of layers or operations that the other lacks, and nothing of them is compared.
TEST(RequestShare, DigestsOfOtherLevelsStayUnconfirmed) {
    const std::string rest = kWholeTurn.substr(std::string("same").size());
    const std::string unknown = " does not hold: how much is missing is not known";
    const auto run = [](DigestLevel level) { return run_of({}, level); };
    EXPECT_EQ(covered(run(DigestLevel::kHeads), run(DigestLevel::kLayers), kAsPeers),
              "not_all_compared" + rest + "\npromised: digests of layers that a" + unknown);
    EXPECT_EQ(covered(run(DigestLevel::kOps), run(DigestLevel::kHeads), kAsPeers),
              "not_all_compared" + rest + "\npromised: digests of operations that b" + unknown);
    EXPECT_EQ(covered(run(DigestLevel::kOps), run(DigestLevel::kLayers), kAsPeers),
              "not_all_compared" + rest + "\npromised: digests of operations that b" + unknown +
                  "\npromised: digests of layers that a" + unknown);
    EXPECT_EQ(covered(run(DigestLevel::kLayers), run(DigestLevel::kLayers), kAsPeers), kWholeTurn);
    EXPECT_EQ(covered(run(DigestLevel::kLayers), run(DigestLevel::kHeads), kAsRerun), kWholeTurn);
}

TEST(RequestShare, OnlyTheHeadOfATurnHasToBeInBothRecords) {
    const WrittenRecord none = run_of({.states = {}});
    const WrittenRecord first = run_of({.states = {{4, 40}}});
    const WrittenRecord last = run_of({});
    const WrittenRecord both = run_of({.states = {{4, 40}, {6, 60}}});
    const std::string most = ": 1 of 1 requests, 7 of 7 positions, 3 of 3 tokens, 3 of 3 logits";
    for (const CompareOptions& options : {kAsRerun, kAsPeers}) {
        EXPECT_EQ(covered(both, both, options), "same" + most + ", 2 of 2 states");
        EXPECT_EQ(covered(both, last, options), "same" + most + ", 1 of 2 states" + kOtherHead);
        EXPECT_EQ(covered(last, none, options),
                  "not_all_compared" + most + ", 0 of 1 states\npromised: heads of turns, not in b: 1 states");
        EXPECT_EQ(covered(both, first, options),
                  "not_all_compared" + most + ", 1 of 2 states\npromised: heads of turns, not in b: 1 states");
        EXPECT_EQ(
            covered(both, none, options),
            "not_all_compared" + most + ", 0 of 2 states\npromised: heads of turns, not in b: 1 states" + kOtherHead);
    }
    EXPECT_EQ(covered(last, both, kAsRerun), "same" + most + ", 1 of 1 states");
    EXPECT_EQ(covered(last, both, kAsPeers), "same" + most + ", 1 of 2 states" + kOtherHead);
    EXPECT_EQ(covered(none, last, kAsRerun), "same" + most);
    EXPECT_EQ(covered(first, both, kAsRerun), "same" + most + ", 1 of 1 states");
    EXPECT_EQ(covered(none, last, kAsPeers),
              "not_all_compared" + most + ", 0 of 1 states\npromised: heads of turns, not in a: 1 states");
    EXPECT_EQ(covered(first, both, kAsPeers),
              "not_all_compared" + most + ", 1 of 2 states\npromised: heads of turns, not in a: 1 states");
}

}  // namespace
}  // namespace verbatim::tests
