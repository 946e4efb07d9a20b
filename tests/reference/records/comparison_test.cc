// Two records of the same requests: what is compared, what is found first, whatever the schedules.
#include "reference/records/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/records/rerun.h"
#include "reference/records/run_again.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;

Record again(const RecordScene& scene, const Record& record, const Schedule& schedule, const MakeExecutor& make) {
    RunAgainOptions options = scene.again(make, record.run.digests);
    options.schedule = schedule;
    auto made = run_again(record, options);
    CHECK(made.has_value(), "{}", made ? "" : made.error().message);
    CHECK_EQ(made->end->failure, "");
    return *std::move(made);
}

TEST(RecordComparison, ARepeatedRunIsTheSameEntryByEntry) {
    for (const auto architecture :
         {reference::Architecture::kGraniteHybrid, reference::Architecture::kMamba2, reference::Architecture::kLlama}) {
        const RecordScene scene(architecture);
        const Record record = scene.record(DigestLevel::kOps);
        const Record made = again(scene, record, {}, scene.cpu());
        EXPECT_EQ(made.entries, record.entries);
        EXPECT_EQ(made.end, record.end);
        EXPECT_TRUE(compare(RunIndex(record), RunIndex(made), scene.points).same_plans);
    }
}

// The head is computed from its tokens: a record has no bytes of it.
TEST(RecordComparison, ARunWithAnImportedHeadIsTheSameAgain) {
    for (const auto architecture :
         {reference::Architecture::kGraniteHybrid, reference::Architecture::kMamba2, reference::Architecture::kLlama}) {
        RecordScene scene(architecture);
        scene.imports_head = true;
        const Record record = scene.record(DigestLevel::kLayers);
        EXPECT_TRUE(
            std::ranges::any_of(calls_of(record), [](const Call& call) { return call.kind == CallKind::kImportHead; }));
        const Record made = again(scene, record, {}, scene.cpu());
        EXPECT_EQ(made.entries, record.entries);
        EXPECT_EQ(made.end, record.end);
        const RunIndex recorded(record);
        for (const auto* words : {"blocks=3", "chunks=5", "cache=off"}) {
            const auto schedule = parse_schedule(std::vector<std::string>{words});
            for (const MakeExecutor& make : {scene.cpu(), scene.uncached()}) {
                const Record other = again(scene, record, *schedule, make);
                const auto compared = compare(recorded, RunIndex(other), scene.points);
                EXPECT_FALSE(compared.first.has_value()) << words;
            }
        }
    }
}

// A rerun that becomes another run says so, and does not pass for one that has come to its end.
TEST(RecordComparison, ADivergingRerunEndsWithTheReason) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kNone);
    for (Entry& entry : record.entries) {
        Call* call = std::get_if<Call>(&entry);
        if (call != nullptr && call->id == RequestId{3}) call->id = RequestId{7};
    }
    const auto made = run_again(record, scene.again(scene.cpu(), DigestLevel::kNone));
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->end->failure, testing::HasSubstr("the run became another one: "));
    EXPECT_THAT(made->end->failure, testing::HasSubstr("was 7, and is 3 now"));
}

// A record may be anything.
TEST(RecordComparison, AnAnswerOutsideTheVocabularyIsNotDrafted) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kNone);
    for (Entry& entry : record.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr || reported->tokens.empty()) continue;
        reported->tokens.back().token = scene.model.config.vocab_size;
    }
    const auto schedule = parse_schedule(std::vector<std::string>{"windows=3"});
    EXPECT_GT(again(scene, record, *schedule, scene.cpu()).end->num_steps, 0);
}

TEST(RecordComparison, RecordingChangesNothing) {
    const RecordScene scene;
    const Digest none = scene.record(DigestLevel::kNone).end->digest;
    for (const DigestLevel level : {DigestLevel::kHeads, DigestLevel::kLayers, DigestLevel::kOps})
        EXPECT_EQ(scene.record(level).end->digest, none);
}

TEST(RecordComparison, EverySchedulesDigestsAddUpToTheSame) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kLayers, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        const RunIndex recorded(record);
        for (const std::vector<std::string>& words :
             std::vector<std::vector<std::string>>{{"batch=1"},
                                                   {"chunks=5"},
                                                   {"chunks=1"},
                                                   {"cache=off"},
                                                   {"blocks=3"},
                                                   {"windows=3"},
                                                   {"batch=1", "admission=fewest-tokens"},
                                                   {"batch=1", "chunks=7", "cache=off"}}) {
            const auto schedule = parse_schedule(words);
            ASSERT_TRUE(schedule);
            const Record made = again(scene, record, *schedule, scene.cpu());
            const Comparison comparison = compare(recorded, RunIndex(made), scene.points, {.same_prompts = false});
            EXPECT_TRUE(comparison.identical())
                << words[0] << ": " << (comparison.first ? to_string(*comparison.first) : "");
            EXPECT_FALSE(comparison.same_plans) << words[0];
            EXPECT_GE(comparison.num_requests, 4) << words[0];
            EXPECT_GT(comparison.compared.operations, 50) << words[0];
            EXPECT_GT(comparison.compared.states, 3) << words[0];
            EXPECT_GT(comparison.compared.logits, 12) << words[0];
        }
    }
}

TEST(RecordComparison, WindowsAcceptDraftsThatEqualTheAnswer) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kHeads);
    const Record made = again(scene, record, {.windows = 3}, scene.cpu());
    EXPECT_LT(made.end->num_steps, record.end->num_steps);
    // And a run with drafts is made again with the same drafts.
    EXPECT_EQ(again(scene, made, {}, scene.cpu()).entries, made.entries);
}

// Changes one entry of a record.
template <typename T, typename Change>
bool change_first(Record& record, const Change& change) {
    for (Entry& entry : record.entries) {
        T* value = std::get_if<T>(&entry);
        if (value != nullptr && change(*value)) return true;
    }
    return false;
}

TEST(RecordComparison, TheFirstDifferenceIsNamed) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kLayers);
    const auto compared_with = [&](const Record& other, CompareOptions options = {}) {
        return compare(RunIndex(record), RunIndex(other), scene.points, options);
    };
    Record tokens = scene.record(DigestLevel::kLayers);
    ASSERT_TRUE(change_first<Reported>(tokens, [](Reported& reported) {
        if (reported.tokens.empty()) return false;
        reported.tokens[0].token ^= 1;
        return true;
    }));
    const Comparison by_token = compared_with(tokens);
    ASSERT_TRUE(by_token.first);
    EXPECT_EQ(by_token.first->op, "token");
    EXPECT_NE(by_token.first->recorded, by_token.first->computed);
    EXPECT_EQ(by_token.num_different, 1);

    Record layers = scene.record(DigestLevel::kLayers);
    ASSERT_TRUE(change_first<StepRecord>(layers, [](StepRecord& step) {
        if (step.sequences[0].request != RequestId{0} || step.sequences[0].begin < 23) return false;
        step.sequences[0].layers += 1;
        step.sequences[0].layer_tags[1] ^= 1;
        return true;
    }));
    const Comparison by_layer = compared_with(layers);
    ASSERT_TRUE(by_layer.first);
    EXPECT_EQ(by_layer.first->op, "layer residual");
    EXPECT_EQ(by_layer.first->layer, 1);
    EXPECT_EQ(by_layer.first->position, 23);

    // Older records have two bytes of each layer.
    Record older = scene.record(DigestLevel::kLayers);
    for (Entry& entry : older.entries) {
        auto* step = std::get_if<StepRecord>(&entry);
        if (step == nullptr) continue;
        for (SequenceRecord& sequence : step->sequences) {
            std::string wide;
            for (const char tag : sequence.layer_tags) {
                wide += tag;
                wide += '?';
            }
            sequence.layer_tags = wide;
        }
    }
    EXPECT_TRUE(compared_with(older).identical());
    EXPECT_EQ(compared_with(older).compared, compared_with(scene.record(DigestLevel::kLayers)).compared);
    EXPECT_EQ(compare(RunIndex(older), RunIndex(layers), scene.points).first->layer, 1);

    // Another request's token comes earlier, and is ignored when computed values are compared.
    ASSERT_TRUE(change_first<Reported>(layers, [](Reported& reported) {
        for (ReportedToken& token : reported.tokens) {
            if (token.request != RequestId{1}) continue;
            token.token ^= 1;
            return true;
        }
        return false;
    }));
    EXPECT_EQ(compared_with(layers).first->op, "token");
    const auto followed = compared_with(layers, {.follow_tokens = true}).first;
    ASSERT_TRUE(followed);
    EXPECT_EQ(followed->op, "layer residual");
}

TEST(RecordComparison, OtherModelsAndArithmeticsAreNamed) {
    RunDescription one;
    one.numerics = one.ordinary_numerics = "exact/1";
    EXPECT_TRUE(what_differs(one, one).empty());
    RunDescription other = one;
    other.numerics = "tensor.sm90/1";
    other.model_digest = {1, 2};
    EXPECT_EQ(what_differs(one, other).size(), 2u);
}

TEST(RecordSchedule, WordsAreReadStrictly) {
    const auto parsed = parse_schedule(std::vector<std::string>{"batch=1", "chunks=37", "cache=off", "blocks=3"});
    ASSERT_TRUE(parsed);
    EXPECT_EQ(to_string(*parsed), "batch=1 chunks=37 cache=off blocks=3");
    EXPECT_EQ(to_string(Schedule{}), "as recorded");
    const auto ordered = parse_schedule(std::vector<std::string>{"admission=fewest-tokens", "policy=lfu"});
    ASSERT_TRUE(ordered);
    EXPECT_EQ(to_string(*ordered), "admission=fewest-tokens policy=lfu");
    EXPECT_FALSE(ordered->as_recorded());
    for (const char* word : {"batch=0", "batch=", "batch", "batch=x", "batch=1x", "cache=on", "policy=", "rows=3",
                             "admission=", "admission=random"})
        EXPECT_FALSE(parse_schedule(std::vector<std::string>{word})) << word;
}

}  // namespace
}  // namespace verbatim::tests
