// Three values of a verdict, and the share that it stands on.
#include "reference/records/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/records/comparison.h"
#include "reference/records/run_again.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::HasSubstr;

TEST(Verdict, NothingComparedIsNeverTheSame) {
    ComparedShare share;
    EXPECT_EQ(verdict_of(false, share), Verdict::kNotAllCompared);
    share.compare("requests", 0);
    share.leave_out("a flag", Promise::kNone, "requests", 7);
    EXPECT_EQ(verdict_of(false, share), Verdict::kNotAllCompared);
    EXPECT_EQ(verdict_of(true, share), Verdict::kDifferent);
}

TEST(Verdict, OmittingAPromisedValueRulesOutSame) {
    ComparedShare share;
    share.compare("requests", 5);
    EXPECT_EQ(verdict_of(false, share), Verdict::kSame);
    share.leave_out("ordinary", Promise::kNone, "requests", 3);
    share.leave_out("missing", Promise::kBits, "requests", 0);
    EXPECT_EQ(verdict_of(false, share), Verdict::kSame);
    ComparedShare uncounted = share;
    uncounted.leave_out_uncounted("cut off");
    EXPECT_EQ(verdict_of(false, uncounted), Verdict::kNotAllCompared);
    share.leave_out("missing", Promise::kBits, "requests", 1);
    EXPECT_EQ(verdict_of(false, share), Verdict::kNotAllCompared);
    EXPECT_EQ(verdict_of(true, share), Verdict::kDifferent);
}

TEST(Verdict, TheTotalIsComparedPlusLeftOut) {
    ComparedShare share;
    share.compare("requests", 5);
    share.compare("positions", 1085);
    share.leave_out("not in b", Promise::kBits, "requests", 65);
    share.leave_out("not in b", Promise::kBits, "positions", 19225);
    EXPECT_EQ(to_string(share), "5 of 70 requests, 1085 of 20310 positions");
    ASSERT_EQ(share.left_out().size(), 1u);
    EXPECT_EQ(to_string(share.left_out()[0]), "not in b: 65 requests, 19225 positions");
    ComparedShare both = share;
    both.merge(share);
    EXPECT_EQ(both.total().of("positions"), 2 * 20310);
    EXPECT_EQ(both.left_out().size(), 1u);
}

TEST(Verdict, OmissionsAreAddedUpByReasonAndPromise) {
    ComparedShare share;
    share.compare("requests", 0);
    share.compare("positions", 0);
    EXPECT_EQ(to_string(share), "nothing");
    share.compare("requests", 1);
    EXPECT_EQ(share.compared().of("requests"), 1);
    EXPECT_EQ(share.compared().of("no such unit"), 0);
    share.leave_out("a reason", Promise::kNone, "requests", 1);
    share.leave_out("a reason", Promise::kBits, "requests", 2);
    share.leave_out("another", Promise::kBits, "requests", 4);
    share.leave_out("a reason", Promise::kBits, "requests", 8);
    EXPECT_EQ(to_string(share), "1 of 16 requests");
    ASSERT_EQ(share.left_out().size(), 3u);
    EXPECT_EQ(to_string(share.left_out()[0]), "a reason: 1 requests");
    EXPECT_EQ(to_string(share.left_out()[1]), "a reason: 10 requests");
    EXPECT_EQ(to_string(share.left_out()[2]), "another: 4 requests");
}

TEST(Verdict, AnOmissionOfUnknownSizeStaysUnknownInASum) {
    ComparedShare counted;
    counted.leave_out("cut off", Promise::kBits, "requests", 1);
    ComparedShare uncounted;
    uncounted.leave_out_uncounted("cut off");
    EXPECT_EQ(to_string(counted.left_out()[0]), "cut off: 1 requests");
    EXPECT_EQ(to_string(uncounted.left_out()[0]), "cut off: how much is missing is not known");
    for (const auto& [one, other] : {std::pair{counted, uncounted}, {uncounted, counted}}) {
        ComparedShare both = one;
        both.merge(other);
        EXPECT_EQ(to_string(both.left_out()[0]), "cut off: 1 requests, how much is missing is not known");
    }
    counted.merge(counted);
    EXPECT_EQ(to_string(counted.left_out()[0]), "cut off: 2 requests");
    ComparedShare::LeftOut zero{.reason = "nothing", .counts = {}};
    zero.counts.add("requests", 0);
    EXPECT_EQ(to_string(zero), "nothing: ");
}

TEST(Verdict, TheWorstOfSeveralVerdictsHolds) {
    EXPECT_EQ(std::max(Verdict::kSame, Verdict::kNotAllCompared), Verdict::kNotAllCompared);
    EXPECT_EQ(std::max(Verdict::kDifferent, Verdict::kNotAllCompared), Verdict::kDifferent);
}

// --- of records

const CompareOptions kPeers = {.is_complete = false, .sides = {"a", "b", true}};

Verdict verdict(const RecordScene& scene, const Record& a, const Record& b, const CompareOptions& options) {
    return compare(RunIndex(a), RunIndex(b), scene.points, options).verdict();
}

Record again(const RecordScene& scene, const Record& record) {
    auto made = run_again(record, scene.again(scene.cpu(), record.run.digests));
    CHECK(made.has_value());
    return *std::move(made);
}

// The record's first entries, as a run that died leaves them.
Record first_entries(const Record& record, size_t count) {
    Record cut;
    cut.run = record.run;
    cut.store = record.store;
    cut.entries.assign(record.entries.begin(), record.entries.begin() + static_cast<std::ptrdiff_t>(count));
    cut.cut_off = "it was cut off";
    return cut;
}

TEST(RecordShare, AWholeRunIsComparedToItsLastState) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kHeads, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        const Record made = again(scene, record);
        for (const CompareOptions& options : {CompareOptions{}, kPeers}) {
            const Comparison comparison = compare(RunIndex(record), RunIndex(made), scene.points, options);
            EXPECT_EQ(comparison.verdict(), Verdict::kSame) << name(level) << to_string(comparison.share);
            EXPECT_EQ(comparison.share.compared() == comparison.share.total(), level != DigestLevel::kNone);
            EXPECT_EQ(comparison.share.compared().of("tokens"), comparison.share.total().of("tokens"));
            EXPECT_EQ(comparison.share.compared().of("tokens"), comparison.compared.tokens);
        }
    }
}

// Wherever it is cut.
TEST(RecordShare, ARunThatWasCutOffIsNotAllCompared) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kLayers}) {
        const Record record = scene.record(level);
        for (size_t count = 0; count <= record.entries.size(); ++count) {
            const Record cut = first_entries(record, count);
            EXPECT_EQ(verdict(scene, cut, again(scene, cut), {}), Verdict::kNotAllCompared) << count;
            EXPECT_EQ(verdict(scene, cut, record, kPeers), Verdict::kNotAllCompared) << count;
            EXPECT_EQ(verdict(scene, record, cut, kPeers), Verdict::kNotAllCompared) << count;
            EXPECT_EQ(verdict(scene, cut, cut, kPeers), Verdict::kNotAllCompared) << count;
        }
    }
}

TEST(RecordShare, AFailedRerunIsNotAllCompared) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kLayers);
    for (size_t count = 0; count <= record.entries.size(); ++count) {
        Record failed = first_entries(record, count);
        failed.end = record.end;
        failed.end->failure = "the device is gone";
        const Comparison comparison = compare(RunIndex(record), RunIndex(failed), scene.points, {.is_complete = false});
        EXPECT_EQ(comparison.verdict(), Verdict::kNotAllCompared) << count;
        EXPECT_THAT(to_string(comparison.share.left_out()[0]),
                    HasSubstr("the run made again ended early: the device is gone"));
    }
}

// Without its last reported tokens or its commit, in a record that claims to be complete.
TEST(RecordShare, ATurnWithAnotherEndIsNotAllCompared) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kHeads);
    for (const EventKind kind : {EventKind::kCommit, EventKind::kPublish}) {
        Record other = scene.record(DigestLevel::kHeads);
        bool is_changed = false;
        for (Entry& entry : other.entries) {
            auto* reported = std::get_if<Reported>(&entry);
            if (reported == nullptr || is_changed) continue;
            const bool commits = std::ranges::count(reported->events, EventKind::kCommit, &Event::kind) > 0;
            is_changed = commits && std::erase_if(reported->events, [&](const Event& e) { return e.kind == kind; }) > 0;
        }
        ASSERT_TRUE(is_changed);
        for (const CompareOptions& options : {CompareOptions{}, kPeers})
            EXPECT_EQ(verdict(scene, record, other, options), Verdict::kNotAllCompared) << static_cast<int>(kind);
    }
    Record shorter = scene.record(DigestLevel::kHeads);
    for (Entry& entry : shorter.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) continue;
        std::erase_if(reported->events, [](const Event& e) { return e.request == RequestId{1}; });
    }
    for (auto entry = shorter.entries.rbegin(); entry != shorter.entries.rend(); ++entry) {
        auto* reported = std::get_if<Reported>(&*entry);
        if (reported != nullptr &&
            std::erase_if(reported->tokens, [](const ReportedToken& t) { return t.request == RequestId{1}; }))
            break;
    }
    for (const CompareOptions& options : {CompareOptions{}, kPeers}) {
        const Comparison comparison = compare(RunIndex(record), RunIndex(shorter), scene.points, options);
        EXPECT_EQ(comparison.verdict(), Verdict::kNotAllCompared);
        EXPECT_LT(comparison.share.compared().of("tokens"), comparison.share.total().of("tokens"));
    }
    EXPECT_EQ(verdict(scene, shorter, record, kPeers), Verdict::kNotAllCompared);
}

TEST(RecordShare, RecordsOfDifferentDigestLevelsAreComparedByTheCommonDigests) {
    const RecordScene scene;
    const Record tokens = scene.record(DigestLevel::kNone);
    const Record digests = scene.record(DigestLevel::kOps);
    for (const auto& [a, b] : {std::pair{&tokens, &digests}, std::pair{&digests, &tokens}}) {
        const Comparison comparison = compare(RunIndex(*a), RunIndex(*b), scene.points, kPeers);
        EXPECT_EQ(comparison.verdict(), Verdict::kNotAllCompared) << "the digests of one run stay unconfirmed";
        EXPECT_GT(comparison.share.total().of("logits"), 10);
        EXPECT_EQ(comparison.share.compared().of("logits"), 0);
        EXPECT_EQ(comparison.share.compared().of("positions"), comparison.share.compared().of("tokens"));
    }
}

TEST(RecordShare, CommittedStatesWithoutDigestsAreLeftOut) {
    const RecordScene scene;
    Record with = scene.record(DigestLevel::kHeads);
    Record without = scene.record(DigestLevel::kHeads);
    without.run.engine.digest_heads = false;
    for (Entry& entry : without.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) continue;
        for (Event& event : reported->events) event.digest = {};
    }
    const Comparison alone = compare(RunIndex(without), RunIndex(without), scene.points);
    EXPECT_EQ(alone.verdict(), Verdict::kSame) << "the record never promised its states";
    EXPECT_EQ(alone.share.compared().of("states"), 0);
    EXPECT_GE(alone.share.total().of("states"), 4);
    EXPECT_EQ(verdict(scene, with, without, kPeers), Verdict::kNotAllCompared);
    EXPECT_EQ(verdict(scene, without, with, kPeers), Verdict::kNotAllCompared);
}

// A row without finite numbers ends its request before the first token: equal rows of that kind confirm no answer.
TEST(RecordShare, RequestsThatEndedAtANumberThatIsNotFiniteAreNotCompared) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kLayers);
    for (Entry& entry : record.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) continue;
        reported->tokens.clear();
        std::erase_if(reported->events, [](const Event& event) { return event.kind == EventKind::kPublish; });
        for (Event& event : reported->events) {
            if (event.kind != EventKind::kCommit) continue;
            event.kind = EventKind::kDiscard;
            event.value = static_cast<int64_t>(FinishReason::kNonFinite);
        }
    }
    const Comparison comparison = compare(RunIndex(record), RunIndex(record), scene.points);
    EXPECT_GT(comparison.compared.logits, 0);
    EXPECT_TRUE(comparison.share.is_empty()) << to_string(comparison.share);
    EXPECT_EQ(comparison.verdict(), Verdict::kNotAllCompared);
}

}  // namespace
}  // namespace verbatim::tests
