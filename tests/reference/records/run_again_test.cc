// Runs that are made again: after a step that failed, with an observer, with drafts.
#include "reference/records/run_again.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "reference/records/comparison.h"
#include "reference/records/run_index.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;

constexpr int64_t kFailing = 3;

// Computes nothing in that step.
class FailingOnce final : public WrappingExecutor {
public:
    FailingOnce(Executor& inner, reference::NumericExecutor& numeric) : WrappingExecutor(inner), numeric_(numeric) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        if (plan.step != kFailing) return inner().execute(plan, result);
        numeric_.forget_slots();
        return error("the device is lost");
    }

private:
    reference::NumericExecutor& numeric_;
};

// A turn is lost in a step that fails; its conversation goes on, on a fresh executor or on the same.
Record run_with_failure(const RecordScene& scene, DigestLevel level, bool replaced) {
    Record record;
    record.own_store = std::make_unique<TokenStore>(scene.model.config.vocab_size);
    record.store = record.own_store.get();
    record.run.vocab_size = scene.model.config.vocab_size;
    record.run.engine = scene.config;
    record.run.digests = level;
    RecordKeeper keeper(record);
    RunRecorder recorder(level, keeper);
    const auto first = *scene.cpu()(scene.config, false);
    const auto second = *scene.cpu()(scene.config, false);
    DigestingExecutor digesting(*first, *first, level);
    DigestingExecutor fresh(*second, *second, level);
    FailingOnce failing(digesting, *first);
    recorder.take_digests_of(&digesting);
    LruEviction policy;
    Engine engine(scene.config, failing, policy, *record.store, recorder);
    const auto submit = [&](int64_t num_tokens, int64_t max_tokens) {
        std::vector<TokenId> tokens;
        for (int64_t i = 0; i < num_tokens; ++i) tokens.push_back(static_cast<TokenId>(i * 5 % record.run.vocab_size));
        ChatRequest request;
        request.conversation.conversation_id = "ann";
        request.messages.push_back({record.store->store(tokens)});
        request.max_tokens = max_tokens;
        CHECK(engine.submit(request).has_value());
    };
    submit(20, 9);
    for (int64_t step = 0; step < kFailing; ++step) CHECK(engine.step().has_value());
    CHECK(!engine.step().has_value());
    if (replaced) {
        engine.replace_executor(fresh);
        recorder.take_digests_of(&fresh);
    }
    submit(25, 4);
    for (auto stepped = engine.step(); *stepped; stepped = engine.step()) {
    }
    recorder.finish();
    return record;
}

TEST(RunAgain, AStepThatFailedFailsAgain) {
    const RecordScene scene;
    for (const auto& [level, replaced] : {std::pair{DigestLevel::kNone, true},
                                          {DigestLevel::kHeads, true},
                                          {DigestLevel::kOps, true},
                                          {DigestLevel::kOps, false}}) {
        const Record record = run_with_failure(scene, level, replaced);
        int num_made = 0;
        std::weak_ptr<reference::NumericExecutor> last;
        const MakeExecutor make = [&](const EngineConfig& config, bool has_ordinary) {
            ++num_made;
            EXPECT_TRUE(last.expired()) << "both may not fit into memory";
            auto made = scene.cpu()(config, has_ordinary);
            last = *made;
            return made;
        };
        const auto again = run_again(record, scene.again(make, level));
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->end->failure, "");
        EXPECT_EQ(again->end, record.end);
        EXPECT_EQ(num_made, replaced ? 2 : 1);
        EXPECT_FALSE(compare(RunIndex(record), RunIndex(*again), scene.points).first);
        EXPECT_EQ(again->entries.size(), record.entries.size());
        const Event* discarded = nullptr;
        for (const Entry& entry : again->entries) {
            const auto* reported = std::get_if<Reported>(&entry);
            if (reported == nullptr) continue;
            for (const Event& event : reported->events) {
                if (event.kind == EventKind::kDiscard) discarded = &event;
            }
        }
        ASSERT_NE(discarded, nullptr);
        EXPECT_EQ(discarded->value, static_cast<int64_t>(FinishReason::kExecutorFailed));
    }
}

TEST(RunAgain, AScheduleHasEachKeyOnce) {
    const auto schedule_of = [](std::vector<std::string> words) { return parse_schedule(words); };
    for (const char* word : {"chunks=3", "batch=1", "cache=off", "policy=lru", "policy=exact"}) {
        const auto twice = schedule_of({"windows=2", word, word});
        ASSERT_FALSE(twice) << word;
        EXPECT_THAT(twice.error().message, testing::HasSubstr("is given twice")) << word;
    }
    EXPECT_FALSE(schedule_of({"chunks=3", "chunks=5"}));
    EXPECT_TRUE(schedule_of({"chunks=3", "policy=lru", "policy=exact", "batch=1"}));
}

TEST(RunAgain, NoStepFailsUnderAnotherSchedule) {
    const RecordScene scene;
    const Record record = run_with_failure(scene, DigestLevel::kOps, true);
    for (const char* const word : {"chunks=5", "cache=off"}) {
        RunAgainOptions options = scene.again(scene.cpu(), DigestLevel::kOps);
        options.schedule = *parse_schedule(std::vector<std::string>{word});
        const auto again = run_again(record, options);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->end->failure, "");
        EXPECT_FALSE(compare(RunIndex(record), RunIndex(*again), scene.points).first) << word;
        for (const Entry& entry : again->entries) {
            const auto* call = std::get_if<Call>(&entry);
            EXPECT_TRUE(call == nullptr || call->kind != CallKind::kFailStep);
        }
    }
}

// --- observers

// Wants every operation, up to a step.
class CountingWatch final : public StepWatch {
public:
    explicit CountingWatch(int64_t last_step) : last_step_(last_step) {}
    void before(const StepPlan& plan, reference::NumericExecutor& /*executor*/) override { step_ = plan.step; }
    void observe(const reference::Observation& /*observation*/) override { ++num_observed; }
    void after(const StepPlan& /*plan*/, reference::NumericExecutor& /*executor*/) override {}
    void head(const HeadImage& /*image*/, reference::NumericExecutor& /*executor*/) override {}
    [[nodiscard]] bool is_done() const override { return step_ == last_step_; }
    [[nodiscard]] bool wants_operations(const StepPlan& /*plan*/) const override { return true; }

    std::atomic<int> num_observed = 0;

private:
    int64_t last_step_;
    int64_t step_ = -1;
};

TEST(RunAgain, AnExecutorThatOutlivesItsRunIsNotObserved) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kNone);
    std::shared_ptr<reference::NumericExecutor> kept;
    const MakeExecutor make = [&](const EngineConfig& config, bool ordinary) {
        if (kept == nullptr) kept = *scene.cpu()(config, ordinary);
        kept->forget_slots();
        return Result<std::shared_ptr<reference::NumericExecutor>>(kept);
    };
    CountingWatch watch(1);
    RunAgainOptions options = scene.again(make, DigestLevel::kNone);
    options.watch = &watch;
    const auto watched = run_again(record, options);
    ASSERT_TRUE(watched);
    EXPECT_EQ(watched->end->failure, "nothing more is to be seen");
    const int num_observed = watch.num_observed;
    EXPECT_GT(num_observed, 0);
    options.watch = nullptr;
    const auto again = run_again(record, options);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->end->failure, "");
    EXPECT_EQ(watch.num_observed, num_observed);
}

TEST(RunAgain, AFreshExecutorIsObserved) {
    const RecordScene scene;
    const Record record = run_with_failure(scene, DigestLevel::kNone, true);
    CountingWatch before(kFailing - 1);
    RunAgainOptions options = scene.again(scene.cpu(), DigestLevel::kNone);
    options.watch = &before;
    ASSERT_TRUE(run_again(record, options));
    CountingWatch all(-1);
    options.watch = &all;
    const auto again = run_again(record, options);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->end, record.end);
    EXPECT_GT(before.num_observed, 0);
    EXPECT_GT(all.num_observed, before.num_observed);
}

// --- drafts

// The drafts of the request's first window, when it runs again with windows of four.
std::vector<TokenId> first_drafts_of(const RecordScene& scene, const Record& record, RequestId request) {
    RunAgainOptions options = scene.again(scene.cpu(), DigestLevel::kHeads);
    options.schedule.windows = 4;
    const auto made = run_again(record, options);
    CHECK(made.has_value());
    EXPECT_EQ(made->end->failure, "");
    for (const Entry& entry : made->entries) {
        const auto* step = std::get_if<StepRecord>(&entry);
        if (step == nullptr) continue;
        for (const SequenceRecord& sequence : step->sequences) {
            if (sequence.request == request && !sequence.drafts.empty()) return sequence.drafts;
        }
    }
    return {};
}

// A record may be anything: its tokens are drafted where they are tokens.
TEST(RunAgain, DraftsOfWindowsAreTheRecordedAnswers) {
    const RecordScene scene;
    const auto drafts = [&](const std::vector<TokenId>& answer) {
        Record record = scene.record(DigestLevel::kNone);
        size_t next = 0;
        for (Entry& entry : record.entries) {
            auto* reported = std::get_if<Reported>(&entry);
            if (reported == nullptr) continue;
            std::erase_if(reported->tokens, [&](ReportedToken& token) {
                if (token.request != RequestId{1}) return false;
                if (next == answer.size()) return true;
                token.token = answer[next++];
                return false;
            });
        }
        return first_drafts_of(scene, record, RequestId{1});
    };
    EXPECT_EQ(drafts({3, 0, 0, 7, 5}), (std::vector<TokenId>{0, 0, 7}));
    EXPECT_EQ(drafts({3, -1, 0, scene.model.config.vocab_size, 7}), (std::vector<TokenId>{0, 7}));
    EXPECT_EQ(drafts({}), (std::vector<TokenId>{}));
}

// Guesses the same tokens at every position.
class WrongDrafter final : public Drafter {
public:
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            for (int32_t i = 0; i < job.max_drafts; ++i) job.drafts.push_back(i % 2);
        }
    }
    void ended(RequestId /*request*/) override {}
};

TEST(RunAgain, RejectedDraftsAreDraftedAgain) {
    RecordScene scene;
    scene.config.scheduler.max_window = 4;
    WrongDrafter drafter;
    scene.drafter = &drafter;
    const Record record = scene.record(DigestLevel::kHeads);
    const RunIndex index(record);
    int num_rejected = 0;
    for (const Share& share : index.find(RequestId{1})->shares) {
        const SequenceRecord& sequence = share.sequence();
        num_rejected += std::ssize(sequence.drafts) + 1 > sequence.end - sequence.begin ? 1 : 0;
    }
    EXPECT_GT(num_rejected, 1);
    const auto again = run_again(record, scene.again(scene.cpu(), DigestLevel::kHeads));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->end, record.end);
    EXPECT_TRUE(compare(index, RunIndex(*again), scene.points).same_plans);
}

}  // namespace
}  // namespace verbatim::tests
