// The ingestion log: calls with all their arguments, from which a run is made again.
#include "engine/ingestion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/fields.h"
#include "tests/support/engine_scene.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Keeps the calls, and a digest of all the rest.
class CallLog final : public Recorder {
public:
    void on_plan(const StepPlan& plan) override { told.on_plan(plan); }
    void on_token(RequestId request, TokenId token) override { told.on_token(request, token); }
    void on_event(const Event& event) override { told.on_event(event); }
    void on_call(const Call& call) override { calls.push_back(call); }
    void on_result(const StepResult&) override { ++num_results; }

    DigestRecorder told;
    std::vector<Call> calls;
    int64_t num_results = 0;
};

constexpr PoolSizes kPools{.block_size = 4, .num_blocks = 64, .num_state_rows = 16};

struct Door {
    explicit Door(const HashExecutorConfig& computes = {.pools = kPools})
        : executor(computes), store(1000), engine(config(), executor, policy, store, log) {}
    static EngineConfig config() {
        EngineConfig config;
        config.cache.pools = kPools;
        return config;
    }
    ChatRequest request(const std::string& id, int64_t max_tokens) {
        ChatRequest request;
        request.conversation.conversation_id = id;
        request.messages.push_back({store.store(kPrompt)});
        request.max_tokens = max_tokens;
        request.sampling.temperature = 1;
        return request;
    }
    HashExecutor executor;
    LruEviction policy;
    TokenStore store;
    CallLog log;
    Engine engine;
};

// As they are read from a file, into the store of the engine that repeats them.
std::vector<Call> read_for(Door& door, const std::vector<Call>& calls) {
    std::vector<std::byte> bytes;
    write_fields(bytes, calls);
    auto read = read_fields<std::vector<Call>>(bytes, door.store);
    CHECK(read.has_value());
    CHECK(*read == calls);
    return *std::move(read);
}

TEST(Ingestion, ARunIsMadeAgainFromWhatCameIn) {
    Door door;
    ASSERT_TRUE(
        door.engine.restore({{}, "old"}, {{door.store.store(kPrompt)}, {door.store.store(kPrompt)}}, Version{3}));
    const auto ended = door.engine.submit(door.request("old", 50));
    ASSERT_TRUE(ended && *door.engine.step() && *door.engine.step());
    ASSERT_TRUE(door.engine.end_turn(ended->request));
    ASSERT_TRUE(door.engine.submit(door.request("a", 5)));
    const auto left = door.engine.submit(door.request("b", 9));
    ASSERT_TRUE(left);
    ASSERT_TRUE(door.engine.step());
    const StepPlan plan = door.engine.plan_step();
    ASSERT_TRUE(door.engine.abort(left->request));           // while the step is open
    EXPECT_FALSE(door.engine.submit(door.request("a", 5)));  // busy
    StepResult result;
    ASSERT_TRUE(door.executor.execute(plan, result));
    door.engine.apply(result);
    while (*door.engine.step()) {
    }
    ASSERT_TRUE(door.engine.fork({{}, "a"}, "c", {}));
    EXPECT_FALSE(door.engine.rewind({{}, "nobody"}, 1));
    ASSERT_TRUE(door.engine.submit(door.request("c", 3)));
    while (*door.engine.step()) {
    }
    EXPECT_EQ(door.log.num_results, door.engine.next_step());
    ASSERT_EQ(door.log.calls.size(), 10u);
    EXPECT_TRUE(door.log.calls[5].in_open_step);
    EXPECT_EQ(door.log.calls[6].id, RequestId{-1});
    EXPECT_TRUE(door.log.calls[3].request.seed.has_value());  // the engine drew one

    Door again;
    const auto done = rerun(read_for(again, door.log.calls), again.engine, again.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "");
    EXPECT_EQ(done->num_calls, 10);
    EXPECT_EQ(again.log.told.digest(), door.log.told.digest());
    EXPECT_EQ(again.engine.ledger().num_conversations(), door.engine.ledger().num_conversations());

    // A call less, and it is another run.
    Door other;
    std::vector<Call> calls = read_for(other, door.log.calls);
    calls.erase(calls.begin() + 3);
    const auto differs = rerun(calls, other.engine, other.executor);
    ASSERT_TRUE(differs) << differs.error().message;
    EXPECT_EQ(differs->parted, "step 2: the request for conversation 'b' was 2, and is 1 now");
}

TEST(Ingestion, ACallThatNoStepReachesIsAnError) {
    Door door;
    const std::vector<Call> calls{{.kind = CallKind::kRemove, .step = 3}};
    const auto done = rerun(calls, door.engine, door.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "a remove before step 3, but step -1 is the last one");
}

// A turn, a step that fails by step() and one that fails between plan and result, a fresh executor, and the turn again.
void fail_twice(Door& door, HashExecutor& fresh) {
    ASSERT_TRUE(door.engine.submit(door.request("a", 2)));
    while (*door.engine.step()) {
    }
    ASSERT_TRUE(door.engine.submit(door.request("b", 60)));
    while (door.engine.step()) {
    }
    ASSERT_TRUE(door.engine.submit(door.request("b", 60)));
    StepResult result;
    while (door.executor.execute(door.engine.plan_step(), result)) door.engine.apply(result);
    ASSERT_TRUE(door.engine.submit(door.request("late", 3)));  // while the step is open: it fails, too
    door.engine.fail_step();
    door.engine.replace_executor(fresh);
    for (FailedTurn& turn : door.engine.take_failed_turns()) ASSERT_TRUE(door.engine.submit(std::move(turn.again)));
    while (*door.engine.step()) {
    }
}

TEST(Ingestion, FailuresAndLaterRequestsAreRepeated) {
    const HashExecutorConfig failing{.pools = kPools, .fail_one_in = 6};
    HashExecutor fresh({.pools = kPools});
    Door door(failing);
    ASSERT_NO_FATAL_FAILURE(fail_twice(door, fresh));
    std::vector<CallKind> kinds;
    for (const Call& call : door.log.calls) kinds.push_back(call.kind);
    EXPECT_THAT(kinds, ElementsAre(CallKind::kSubmit, CallKind::kSubmit, CallKind::kFailStep, CallKind::kSubmit,
                                   CallKind::kSubmit, CallKind::kFailStep, CallKind::kReplaceExecutor,
                                   CallKind::kSubmit, CallKind::kSubmit));
    EXPECT_TRUE(door.log.calls[2].in_open_step && door.log.calls[5].in_open_step);
    EXPECT_EQ(door.engine.stats().commits, 3);

    Door again(failing);
    HashExecutor fresh_again({.pools = kPools});
    const RerunOptions options{.fresh_executor = [&]() -> Result<Executor*> { return &fresh_again; }};
    const auto done = rerun(read_for(again, door.log.calls), again.engine, again.executor, options);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "");
    EXPECT_EQ(again.log.told.digest(), door.log.told.digest());
    EXPECT_EQ(again.log.calls, door.log.calls);
}

// One mask comes before its step, the others while theirs runs, in the opposite order of the plan.
TEST(Ingestion, LateMasksAreToldAsIfTheyHadComeBefore) {
    Door door({.pools = kPools, .fail_at_step = 7, .takes_late_masks = true});
    std::vector<RequestId> ids;
    for (const char* const id : {"a", "b"})
        ids.push_back(door.engine.submit(with_grammar(door.request(id, 9), 3, 1000))->request);
    int64_t num_late = 0;
    const auto is_now = [&](RequestId id) { return id == ids[1] || !door.engine.find(ids[1])->is_late; };
    ASSERT_TRUE(door.executor.complete_masks_with([&] {
        while (door.engine.lacks_masks()) num_late += supply_masks(door.engine, is_now);
    }));
    while (door.engine.step() && !door.engine.idle()) {
        for (const RequestId id : ids) door.engine.expect_late_masks(id, true);
        if (door.engine.next_step() == 4) supply_masks(door.engine, [&](RequestId id) { return id == ids[0]; });
    }
    EXPECT_EQ(num_late, 13);  // of two requests in 7 steps behind the first one, but for one mask
    const HashExecutorConfig failing{.pools = kPools, .fail_at_step = 7};
    Door again(failing);
    const auto done = rerun(read_for(again, door.log.calls), again.engine, again.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "");
    EXPECT_EQ(again.log.told.digest(), door.log.told.digest());
    EXPECT_EQ(again.log.calls, door.log.calls);
}

TEST(Ingestion, AFailureThatDoesNotComeAgainIsAnotherRun) {
    Door door({.pools = kPools, .fail_at_step = 2});
    ASSERT_TRUE(door.engine.submit(door.request("a", 9)));
    while (door.engine.step()) {
    }
    Door again;
    const auto done = rerun(read_for(again, door.log.calls), again.engine, again.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "step 2 failed, and does not now");
    EXPECT_EQ(again.log.told.digest(), door.log.told.digest());  // so far it was the same

    Door other({.pools = kPools, .fail_at_step = 1});
    const auto failed = rerun(read_for(other, door.log.calls), other.engine, other.executor);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "step 1: told to fail");
    EXPECT_TRUE(other.engine.idle());
}

TEST(Ingestion, AFreshExecutorIsTheCallersAndComesWhenNothingRuns) {
    const std::vector<Call> calls{{.kind = CallKind::kReplaceExecutor}};
    Door door;
    const auto done = rerun(calls, door.engine, door.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "step 0: a fresh executor came, and none is here");
    for (const bool in_open_step : {false, true}) {
        Door other;
        std::vector<Call> busy{{.kind = CallKind::kSubmit, .id = RequestId{0}, .request = other.request("a", 2)},
                               {.kind = CallKind::kReplaceExecutor, .in_open_step = in_open_step}};
        busy[1].step = in_open_step ? 1 : 0;
        const RerunOptions options{.fresh_executor = [&]() -> Result<Executor*> { return &other.executor; }};
        const auto ran = rerun(busy, other.engine, other.executor, options);
        ASSERT_TRUE(ran) << ran.error().message;
        EXPECT_THAT(ran->parted, HasSubstr("a fresh executor came, and turns run now"));
    }
}

TEST(Ingestion, AnOlderLogsRestoreHasItsVersionAmongTheTurns) {
    Door door;
    Call call{.kind = CallKind::kRestore, .key = {{}, "old"}, .num_turns = 3};
    call.request.messages = {{door.store.store(kPrompt)}, {door.store.store(kPrompt)}};
    EXPECT_EQ(make_call(call, door.engine), RequestId{-1});
    EXPECT_EQ(door.engine.ledger().find({{}, "old"})->version, Version{3});
    EXPECT_EQ(door.log.calls.front().version, Version{3});
    EXPECT_FALSE(door.log.calls.front().num_turns.has_value());
}

TEST(Ingestion, AnInputThatIsNoneIsRefusedWhenItIsRead) {
    TokenStore store(10);
    Call call;
    std::vector<std::byte> bytes;
    write_fields(bytes, call);
    ASSERT_TRUE(read_fields<Call>(bytes, store));
    bytes[0] = static_cast<std::byte>(CallKind::kCount);
    const auto read = read_fields<Call>(bytes, store);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "byte 1, kind: 15 is none of its values");
}

TEST(Ingestion, EveryCallOfAClientIsMadeAsOne) {
    for (size_t kind = 0; kind < static_cast<size_t>(CallKind::kCount); ++kind) {
        Door door;
        Call call{.kind = static_cast<CallKind>(kind), .id = RequestId{5}, .key = {{}, "a"}, .to = "b"};
        if (call.kind == CallKind::kFailStep || call.kind == CallKind::kReplaceExecutor ||
            call.kind == CallKind::kImportHead) {
            continue;
        }
        call.request.masks = {{{0, 3}}};  // that another kind's would make known, too
        if (call.kind == CallKind::kSubmit) call.request = door.request("a", 2);
        if (call.kind == CallKind::kUnload) {
            const std::vector<Message> parts{{door.store.store(kPrompt)}, {}};
            ASSERT_TRUE(door.engine.restore(call.key, parts, Version{1}));
            door.log.calls.clear();
        }
        make_call(call, door.engine);
        std::vector<CallKind> kinds;
        for (const Call& made : door.log.calls) kinds.push_back(made.kind);
        EXPECT_THAT(kinds, ElementsAre(call.kind)) << name(call.kind);
    }
}

TEST(Ingestion, AHeadThatIsImportedHasTokensInOneMessage) {
    for (const size_t num_messages : {0U, 1U, 2U}) {
        for (const bool empty : {false, true}) {
            Door door;
            Call call{.kind = CallKind::kImportHead, .step = 4, .key = {{}, "a"}};
            call.request.messages.assign(num_messages, {empty ? TokenSeq() : door.store.store(kPrompt)});
            int num_made = 0;
            const auto make = [&](const Call&) -> Result<MadeHead> {
                ++num_made;
                return error("it is made");
            };
            const Status imported = import_again(call, make, door.engine);
            ASSERT_FALSE(imported);
            const bool is_head = num_messages == 1 && !empty;
            EXPECT_EQ(imported.error().message, is_head ? "it is made" : "step 4: a head of no tokens is imported");
            EXPECT_EQ(num_made, is_head ? 1 : 0);
        }
    }
    Door door;
    const std::vector<Call> calls{{.kind = CallKind::kImportHead}};
    EXPECT_EQ(rerun(calls, door.engine, door.executor)->parted, "step 0: a head was imported, and none is here");
}

TEST(Ingestion, ARunIsMadeAgainUpToAStep) {
    Door door;
    const std::vector<Call> calls{{.kind = CallKind::kSubmit, .id = RequestId{0}, .request = door.request("a", 9)},
                                  {.kind = CallKind::kRemove, .step = 1, .key = {{}, "b"}}};
    std::vector<int64_t> told;
    const RerunOptions options{.max_steps = 3, .after_step = [&](int64_t num_calls) { told.push_back(num_calls); }};
    const auto done = rerun(calls, door.engine, door.executor, options);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->parted, "");
    EXPECT_EQ(door.engine.next_step(), 3);
    EXPECT_THAT(told, ElementsAre(1, 2, 2));
}

TEST(Ingestion, ARunThatWaitsForWhatNoCallBringsEnds) {
    Door door;
    int num_steps = 0;
    const RerunOptions options{.after_step = [&](int64_t) { ++num_steps; }};
    const std::vector<Call> masks{
        {.kind = CallKind::kSubmit, .id = RequestId{0}, .request = with_grammar(door.request("a", 9), 3, 1000)}};
    const auto masked = rerun(masks, door.engine, door.executor, options);
    ASSERT_TRUE(masked) << masked.error().message;
    EXPECT_EQ(masked->parted, "step 0: a mask is missing, and none comes");
    EXPECT_EQ(num_steps, 0) << "the step that parted";

    Door other;
    const std::vector<Call> heads{{.kind = CallKind::kSubmit, .id = RequestId{0}, .request = other.request("a", 9)},
                                  {.kind = CallKind::kAwaitHead, .id = RequestId{0}}};
    const auto awaited = rerun(heads, other.engine, other.executor);
    ASSERT_TRUE(awaited) << awaited.error().message;
    EXPECT_EQ(awaited->parted, "step 0: a head is awaited, and none comes");
}

}  // namespace
}  // namespace verbatim::tests
