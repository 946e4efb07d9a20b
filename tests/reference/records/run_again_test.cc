// Runs in which an executor failed, made again.
#include "reference/records/run_again.h"

#include <gtest/gtest.h>

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
        const MakeExecutor make = [&](const EngineConfig& config, bool has_ordinary) {
            ++num_made;
            return scene.cpu()(config, has_ordinary);
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

}  // namespace
}  // namespace verbatim::tests
