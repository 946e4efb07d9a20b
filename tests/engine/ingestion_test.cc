// The ingestion log: calls with all their arguments, from which a run is made again.
#include "engine/ingestion.h"

#include <gtest/gtest.h>

#include "engine/fields.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

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
    Door() : executor({.pools = kPools}), store(1000), engine(config(), executor, policy, store, log) {}
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

// As they are read from a file, into the store of whoever makes them again.
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
    const Status done = rerun(read_for(again, door.log.calls), again.engine, again.executor);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(again.log.told.digest(), door.log.told.digest());
    EXPECT_EQ(again.engine.ledger().num_conversations(), door.engine.ledger().num_conversations());

    // A call less, and it is another run.
    Door other;
    std::vector<Call> calls = read_for(other, door.log.calls);
    calls.erase(calls.begin() + 3);
    const Status differs = rerun(calls, other.engine, other.executor);
    ASSERT_FALSE(differs);
    EXPECT_EQ(differs.error().message, "step 2: the request for conversation 'b' was 2, and is 1 now");
}

TEST(Ingestion, ACallThatNoStepReachesIsAnError) {
    Door door;
    const std::vector<Call> calls{{.kind = CallKind::kRemove, .step = 3}};
    const Status done = rerun(calls, door.engine, door.executor);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "a remove before step 3, but step -1 is the last one");
}

TEST(Ingestion, AnInputThatIsNoneIsRefusedWhenItIsRead) {
    TokenStore store(10);
    Call call;
    std::vector<std::byte> bytes;
    write_fields(bytes, call);
    ASSERT_TRUE(read_fields<Call>(bytes, store));
    bytes[0] = std::byte{9};
    const auto read = read_fields<Call>(bytes, store);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "byte 1, kind: 9 is none of its values");
}

}  // namespace
}  // namespace verbatim::tests
