// Conversations that leave the engine while they are not in use, and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "engine/request_book.h"
#include "tests/support/engine_scene.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What restore() takes.
struct Kept {
    std::vector<Message> parts;
    Version version = kNoVersion;
};

Kept kept(EngineRig& scene, const ConversationKey& key) {
    const Ledger::Conversation& conversation = *scene.engine.ledger().find(key);
    Kept kept{{}, conversation.version};
    int64_t begin = 0;
    for (const Turn& turn : conversation.turns) {
        kept.parts.push_back({conversation.committed.slice(begin, turn.prompt_end)});
        kept.parts.push_back({conversation.committed.slice(turn.prompt_end, turn.end)});
        begin = turn.end;
    }
    return kept;
}

TEST(Unload, TheHeadsStayAndTheNextTurnReusesThem) {
    EngineScene scene;
    RequestBook book({}, scene.store);
    scene.log.listeners.push_back(&book);
    scene.complete(scene.history("a", kPrompt));
    const FinishedEvent second = scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    const std::vector<TokenId> committed = scene.committed("a");
    const Kept a = kept(scene, scene.key("a"));
    ASSERT_TRUE(scene.engine.unload(scene.key("a")));
    EXPECT_EQ(scene.engine.ledger().num_conversations(), 0u);
    EXPECT_THAT(book.committed(scene.key("a")).to_vector(), IsEmpty());
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(13, 20));
    EXPECT_FALSE(scene.engine.unload(scene.key("a"))) << "it is not there";

    ASSERT_TRUE(scene.engine.restore(scene.key("a"), a.parts, a.version));
    EXPECT_EQ(scene.committed("a"), committed);
    EXPECT_EQ(book.committed(scene.key("a")).to_vector(), committed);
    const FinishedEvent third = scene.complete(scene.suffix("a", iota_tokens(600, 2)));
    EXPECT_EQ(third.num_reused_tokens, 20);
    EXPECT_EQ(third.version, Version{index(second.version) + 1});
    EXPECT_EQ(scene.not_reused(NotReused::kLost), 0);
    EXPECT_EQ(scene.streamed(third.request), scene.expected(committed + iota_tokens(600, 2), 4));
    scene.expect_home();
}

TEST(Unload, AConversationWithoutHeadsLeavesNothing) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const Kept a = kept(scene, scene.key("a"));
    EngineScene fresh;
    scene.engine.replace_executor(fresh.executor);
    ASSERT_NE(scene.engine.cache().find(scene.key("a")), nullptr) << "what it knows of the heads that are gone";
    ASSERT_TRUE(scene.engine.unload(scene.key("a")));
    EXPECT_EQ(scene.engine.cache().find(scene.key("a")), nullptr);
    ASSERT_TRUE(scene.engine.restore(scene.key("a"), a.parts, a.version));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 2))).num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kLost), 13);
}

// Its last head goes while it is away: the name goes with it.
TEST(Unload, AHeadMayBeEvictedMeanwhile) {
    EngineScene scene({.num_state_rows = 3});
    scene.complete(scene.history("a", kPrompt));
    const Kept a = kept(scene, scene.key("a"));
    ASSERT_TRUE(scene.engine.unload(scene.key("a")));
    for (int i = 0; scene.engine.cache().find(scene.key("a")) != nullptr && i < 10; ++i)
        scene.complete(scene.history(std::to_string(i), iota_tokens(200 + 20 * i, 10)));
    EXPECT_EQ(scene.engine.cache().find(scene.key("a")), nullptr);
    ASSERT_TRUE(scene.engine.restore(scene.key("a"), a.parts, a.version));
    const auto committed = scene.committed("a");
    const FinishedEvent next = scene.complete(scene.suffix("a", iota_tokens(600, 2)));
    EXPECT_EQ(next.num_reused_tokens, 0);
    EXPECT_EQ(scene.streamed(next.request), scene.expected(committed + iota_tokens(600, 2), 4));
}

TEST(Unload, WhatIsInUseOrCannotComeBackStays) {
    EngineScene scene;
    EXPECT_FALSE(scene.engine.unload(scene.key("a"))) << "unknown";
    const RequestId running = scene.submit(scene.history("a", kPrompt));
    EXPECT_FALSE(scene.engine.unload(scene.key("a"))) << "its first turn runs";
    scene.run();
    ChatRequest asked = scene.suffix("a", iota_tokens(500, 3));
    const RequestId second = scene.submit(asked);
    scene.step();
    EXPECT_FALSE(scene.engine.unload(scene.key("a"))) << "a turn runs";
    scene.abort(second);
    EXPECT_TRUE(scene.is_finished(running));
    ChatRequest known = scene.history("b", kPrompt);
    known.turn_id = "t";
    scene.complete(known);
    EXPECT_FALSE(scene.engine.unload(scene.key("b"))) << "its answer by turn_id would not come back";
    EXPECT_TRUE(scene.engine.submit(known)->recorded.has_value());
    EXPECT_TRUE(scene.engine.unload(scene.key("a")));
    scene.expect_home();
}

// --- the same events with unloads and without

// One random run of clients; in the second of two, conversations leave the engine whenever they may.
class RandomClients {
public:
    RandomClients(uint64_t seed, bool unloads)
        : scene_({.num_blocks = 40, .num_state_rows = 8, .lookup = lookup(seed), .evicts_by_value = seed % 2 == 0}),
          random_(seed),
          unloads_(seed),
          does_unload_(unloads) {}

    struct Outcome {
        std::vector<EngineEvent> events;
        std::vector<std::string> refusals;
        int64_t reused = 0;
        int64_t evictions = 0;
        int64_t unloads = 0;
        friend bool operator==(const Outcome& a, const Outcome& b) {
            return a.events == b.events && a.refusals == b.refusals && a.evictions == b.evictions;
        }
    };
    Outcome run() {
        for (int i = 0; i < 120; ++i) {
            call();
            for (uint64_t steps = below(4); steps > 0; --steps) step();
            if (does_unload_) unload();
        }
        while (!scene_.engine.idle()) step();
        outcome_.reused = scene_.engine.stats().reused_tokens;
        outcome_.evictions = scene_.engine.stats().evictions;
        return std::move(outcome_);
    }

private:
    static LookupMode lookup(uint64_t seed) { return seed % 3 == 0 ? LookupMode::kPrefix : LookupMode::kConversation; }
    uint64_t below(uint64_t count) { return random_() % count; }
    ConversationKey key() { return scene_.key(std::string(1, static_cast<char>('a' + below(5)))); }

    void call() {
        const ConversationKey of = key();
        switch (below(8)) {
            case 0: {
                const ConversationKey to = key();
                load(of);
                load(to);
                return note(scene_.engine.fork(of, to.conversation_id));
            }
            case 1: return load(of), note(scene_.engine.rewind(of, 1 + below(2)));
            case 2: return load(of), note(scene_.engine.remove(of));
            case 3:
                if (!running_.empty()) scene_.engine.abort(running_[below(running_.size())]);
                return;
            default: return submit(of);
        }
    }
    void submit(const ConversationKey& of) {
        load(of);
        const auto tokens = iota_tokens(static_cast<TokenId>(100 + 10 * below(4)), 1 + static_cast<int64_t>(below(9)));
        const Ledger::Conversation* known = scene_.engine.ledger().find(of);
        const bool goes_on = known != nullptr && !known->turns.empty() && below(4) > 0;
        ChatRequest request = goes_on ? scene_.suffix(of.conversation_id, tokens, 1 + static_cast<int64_t>(below(6)))
                                      : scene_.history(of.conversation_id, tokens, 3);
        const auto accepted = scene_.engine.submit(std::move(request));
        outcome_.refusals.emplace_back(accepted ? "" : name(accepted.error().reason));
        if (accepted) running_.push_back(accepted->request);
    }
    void note(const OrRefusal<int64_t>& done) {
        outcome_.refusals.emplace_back(done ? std::to_string(*done) : name(done.error().reason));
    }
    void step() {
        ASSERT_TRUE(scene_.engine.step());
        scene_.engine.verify();
        for (const EngineEvent& event : scene_.engine.take_events()) {
            outcome_.events.push_back(event);
            if (std::holds_alternative<FinishedEvent>(event)) std::erase(running_, request_of(event));
        }
    }

    void unload() {
        for (const char id : {'a', 'b', 'c', 'd', 'e'}) {
            const ConversationKey of = scene_.key(std::string(1, id));
            const Ledger::Conversation* known = scene_.engine.ledger().find(of);
            if (known == nullptr || known->turns.empty() || unloads_() % 2 != 0) continue;
            Kept what = kept(scene_, of);
            if (!scene_.engine.unload(of)) continue;
            scene_.engine.verify();
            away_[of] = std::move(what);
            ++outcome_.unloads;
        }
    }
    void load(const ConversationKey& of) {
        const auto found = away_.find(of);
        if (found == away_.end()) return;
        EXPECT_TRUE(scene_.engine.restore(of, found->second.parts, found->second.version));
        away_.erase(found);
    }

    EngineScene scene_;
    std::mt19937_64 random_;
    std::mt19937_64 unloads_;
    const bool does_unload_;
    std::map<ConversationKey, Kept> away_;
    std::vector<RequestId> running_;
    Outcome outcome_;
};

TEST(Unload, RandomClientsGetTheSameWhateverIsUnloaded) {
    const RandomCases cases = RandomCases::from_environment(300);
    int64_t reused = 0;
    int64_t evictions = 0;
    int64_t unloads = 0;
    for (uint64_t i = 0; i < cases.count; ++i) {
        const auto with = RandomClients(cases.seed + i, true).run();
        ASSERT_EQ(with, RandomClients(cases.seed + i, false).run()) << "again with: VERBATIM_SEED=" << cases.seed + i;
        reused += with.reused;
        evictions += with.evictions;
        unloads += with.unloads;
    }
    EXPECT_GT(reused, 0);
    EXPECT_GT(evictions, 0);
    EXPECT_GT(unloads, 0);
}

}  // namespace
}  // namespace verbatim::tests
