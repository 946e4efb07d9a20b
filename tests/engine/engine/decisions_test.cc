// What the engine decides, pinned. Other tests say that a decision is right. Whether it is yesterday's, this one asks:
// which request is admitted and when, which head goes, how far a step reaches, what is counted and sent.
//
// A change that means to decide otherwise puts in the digests that the failure prints, and says why.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "engine/drafting/ngram_drafter.h"
#include "engine/engine.h"
#include "tests/support/hash_executor.h"

namespace verbatim::tests {
namespace {

constexpr int32_t kSmallVocabulary = 12;  // n-grams come back, stop tokens are drawn

// A scarce engine for each seed: its pools, budgets, windows and way to look up follow from it.
// `max_wait_steps`: the request with the fewest tokens left comes in first; none: in order of arrival.
EngineConfig scarce_config(uint64_t seed, std::optional<int32_t> max_wait_steps) {
    EngineConfig config;
    if (max_wait_steps) config.scheduler.admission = AdmissionOrder::kFewestTokens;
    config.scheduler.max_wait_steps = max_wait_steps.value_or(100);
    config.cache.pools = {.block_size = seed % 2 == 0 ? 4 : 3, .num_blocks = 34, .num_state_rows = 7};
    config.cache.has_state = seed % 5 != 4;
    if (!config.cache.has_state) config.cache.pools.num_state_rows = 0;
    config.cache.lookup = static_cast<LookupMode>(seed % 3);
    config.scheduler.step_tokens = seed % 4 == 0 ? 12 : 48;
    config.scheduler.max_num_sequences = seed % 4 == 1 ? 3 : 16;
    config.scheduler.max_checkpoints = static_cast<int32_t>(seed % 3);
    config.scheduler.max_window = seed % 2 == 0 ? 1 : 4;
    config.scheduler.paced_windows = seed % 4 == 1;
    config.scheduler.verify_tokens = seed % 4 == 3 ? 9 : 0;
    if (seed % 2 == 0) config.token_template.end_of_turn = TokenId{1};
    config.max_model_len = 70;
    config.default_max_tokens = 9;
    config.digest_heads = true;
    config.seed = seed;
    return config;
}

HashExecutorConfig executor_of(const EngineConfig& engine) {
    return {.vocab_size = kSmallVocabulary,
            .pools = engine.cache.pools,
            .max_log_tokens = engine.scheduler.max_log_tokens(),
            .lag_steps = static_cast<int32_t>(engine.seed % 3),
            .wrong_draft_one_in = 3};
}

void add_stats(Digester& digester, const EngineStats& stats) {
    for (const int64_t count : {stats.requests,
                                stats.repeats,
                                stats.steps,
                                stats.reused_tokens,
                                stats.computed_prompt_tokens,
                                stats.computed_output_tokens,
                                stats.recomputed_tokens,
                                stats.generated_tokens,
                                stats.windows,
                                stats.drafted_tokens,
                                stats.accepted_tokens,
                                stats.rolled_back_tokens,
                                stats.draft_path_tokens,
                                stats.attaches,
                                stats.tail_copies,
                                stats.state_copies,
                                stats.preemptions,
                                stats.evictions,
                                stats.commits,
                                stats.discards,
                                stats.aborts,
                                stats.forks,
                                stats.rewinds,
                                stats.steps_without_room,
                                stats.snapshots_without_room}) {
        digester.add(count);
    }
    for (size_t i = 0; i < stats.not_reused.size(); ++i) {
        const bool came_later = i > static_cast<size_t>(NotReused::kCacheOff);
        if (!came_later || stats.not_reused[i] != 0) digester.add(stats.not_reused[i]);
    }
    for (const int64_t count : stats.refusals) digester.add(count);
}

// Clients that come faster than they can be served.
class Crowd {
public:
    explicit Crowd(uint64_t seed, std::optional<int32_t> max_wait_steps = {})
        : config_(scarce_config(seed, max_wait_steps)),
          executor_(executor_of(config_)),
          store_(kSmallVocabulary),
          engine_(config_, executor_, policy_, store_, recorder_),
          prng_(seed) {
        if (config_.scheduler.max_window > 1) engine_.draft_with(&drafter_);
    }

    // The digest of all that was planned, drawn, sent and counted.
    Digest run() {
        for (int i = 0; i < 160; ++i) act();
        for (int i = 0; step(); ++i) CHECK(i < 5000, "the crowd never goes home");
        CHECK(executor_.violations().empty(), "{}", executor_.violations().front());
        Digester all;
        all.add(recorder_.digest());
        all.add(recorder_.plan_digest());
        for (const EngineEvent& event : engine_.take_events()) {
            const auto* token = std::get_if<TokenEvent>(&event);
            const FinishedEvent finished = token != nullptr ? FinishedEvent{} : std::get<FinishedEvent>(event);
            all.add(static_cast<uint8_t>(token != nullptr ? 0 : 1));
            all.add(request_of(event));
            all.add(token != nullptr ? token->token : TokenId{0});
            all.add(finished.reason);
            all.add(finished.version);
            all.add(finished.num_text_tokens);
            all.add(finished.num_reused_tokens);
        }
        add_stats(all, engine_.stats());
        return all.digest();
    }
    [[nodiscard]] const EngineStats& stats() const { return engine_.stats(); }

private:
    bool step() {
        const auto stepped = engine_.step();
        CHECK(stepped.has_value(), "{}", stepped.error().message);
        engine_.verify();
        return *stepped;
    }

    int64_t below(uint64_t bound) { return static_cast<int64_t>(prng_.below(bound)); }

    [[nodiscard]] std::string any_id() { return std::string(1, static_cast<char>('a' + below(9))); }
    [[nodiscard]] ConversationKey any_key() {
        return {CacheSalt{below(6) == 0 ? std::optional<std::string>("s") : std::nullopt}, any_id()};
    }
    [[nodiscard]] TokenSeq text(int64_t count) {
        std::vector<TokenId> tokens;
        const TokenId first = static_cast<TokenId>(below(3));
        for (int64_t i = 0; i < count; ++i) tokens.push_back((first + static_cast<TokenId>(i * i)) % kSmallVocabulary);
        return store_.store(tokens);
    }

    ChatRequest any_request() {
        ChatRequest request;
        request.conversation = any_key();
        request.input = static_cast<InputKind>(below(3));
        if (request.input != InputKind::kRegenerate) {
            for (int64_t i = 0; i <= below(3); ++i) request.messages.push_back({text(1 + below(14)), below(4) != 0});
        }
        if (below(3) != 0) request.max_tokens = below(12);
        if (below(4) == 0) request.turn_id = std::string(1, static_cast<char>('0' + below(3)));
        if (below(2) == 0) request.stop_tokens = {static_cast<TokenId>(3 + below(4))};
        if (below(4) == 0) request.stop_strings = {{5, 6}, {7}};
        request.sampling.temperature = below(2) == 0 ? 0.0F : 1.0F;
        request.ignore_stop = below(6) == 0;
        request.use_cache = below(12) != 0;
        request.deterministic = below(4) != 0;
        if (below(10) == 0) request.forced_output = text(1 + below(6));
        return request;
    }

    void act() {
        const int64_t what = below(40);
        if (what < 18) {
            ChatRequest request = any_request();
            if (request.turn_id) sent_ = request;
            const auto accepted = engine_.submit(std::move(request));
            if (accepted && !accepted->recorded) last_ = accepted->request;
        } else if (what < 20) {
            (void)engine_.abort(last_);
        } else if (what < 22) {
            const ConversationKey from = any_key();
            (void)engine_.fork(from, any_id());
        } else if (what == 22) {
            (void)engine_.rewind(any_key(), 1);
        } else if (what == 23) {
            (void)engine_.remove(any_key());
        } else if (what == 24) {
            (void)engine_.revoke(any_key());
        } else if (what == 25 && sent_) {
            (void)engine_.submit(*sent_);  // a client that has not heard the answer
        } else {
            step();
        }
    }

    EngineConfig config_;
    HashExecutor executor_;
    TokenStore store_;
    LruEviction policy_;
    DigestRecorder recorder_;
    NgramDrafter drafter_;
    Engine engine_;
    Prng prng_;
    RequestId last_{-1};
    std::optional<ChatRequest> sent_;
};

constexpr std::array kPinned = {
    "5a189fd949025656edd735d8f8c7b135", "c2a01731b00c1b607200a4724f89a978", "008abcebbb916e0757f645ff28951244",
    "039b398a9094c43413052ce46490b5a6", "7260177fd5246c13e7b1bb01c3a74ec8", "8c86c4c09f8a0a54f30326c0adf3fc89",
    "64c955732b347035942b9db7bdb3e861", "86ebecf7a7944369c49c5bfe73f13fdc", "c7ff0f0dbd76896b3cee80ee41e882bc",
    "d91bff466efc3301e95e76fdbd28b245", "4315a163eae0c6565f79271f53212592", "1042a4fd6857766a41e93ed7f201ba34",
    "c8d7d300ebc89466b108f044f826f879", "934c6323e67d7f38c705bd07940f828f", "96a08d376c623d771180d1d1177027b7",
    "74873b96d2c2e4e697d11fd39ef95c27", "b3564fa23c65cceb935e0ab2b12e3af3", "b603634c03c1c3010fcac1073699907f",
    "4f402a675c8c647e708555f5ca548f77", "bd0f1762b12e6fce8b90b390d4e28a00", "e01ae31ee981a926f84109cffcd2e298",
    "de90f5a7baf2ec3dbf2568fe0e41bef5", "d211e1dc85ae13b2004e4be87d6eb416", "d0c2a73d3def5ee94309dd31d6f8fef8",
};

TEST(Decisions, AreThePinnedOnes) {
    for (size_t seed = 0; seed < kPinned.size(); ++seed) {
        EXPECT_EQ(Crowd(seed).run().hex(), kPinned[seed]) << "seed " << seed;
    }
}

TEST(Decisions, EqualArrivalOrderWhenNoRequestMayBeOvertaken) {
    for (size_t seed = 0; seed < kPinned.size(); ++seed) {
        EXPECT_EQ(Crowd(seed, 0).run().hex(), kPinned[seed]) << "seed " << seed;
    }
    EXPECT_NE(Crowd(1, 100).run().hex(), kPinned[1]);
}

// Else the pins would say little.
TEST(Decisions, OfCrowdsAreMadeInNeed) {
    EngineStats sum;
    for (size_t seed = 0; seed < kPinned.size(); ++seed) {
        Crowd crowd(seed);
        (void)crowd.run();
        const EngineStats& stats = crowd.stats();
        sum.preemptions += stats.preemptions;
        sum.evictions += stats.evictions;
        sum.repeats += stats.repeats;
        sum.steps_without_room += stats.steps_without_room;
        sum.snapshots_without_room += stats.snapshots_without_room;
        sum.draft_path_tokens += stats.draft_path_tokens;
        sum.rolled_back_tokens += stats.rolled_back_tokens;
        sum.recomputed_tokens += stats.recomputed_tokens;
        sum.forks += stats.forks;
        sum.rewinds += stats.rewinds;
    }
    EXPECT_GE(sum.preemptions, 3);
    EXPECT_GE(sum.evictions, 3);
    EXPECT_GE(sum.repeats, 3);
    EXPECT_GE(sum.steps_without_room, 3);
    EXPECT_GE(sum.snapshots_without_room, 3);
    EXPECT_GE(sum.draft_path_tokens, 3);
    EXPECT_GE(sum.rolled_back_tokens, 3);
    EXPECT_GE(sum.recomputed_tokens, 3);
    EXPECT_GE(sum.forks, 3);
    EXPECT_GE(sum.rewinds, 3);
}

}  // namespace
}  // namespace verbatim::tests
