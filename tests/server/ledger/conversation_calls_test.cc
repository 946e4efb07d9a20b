// Calls on conversations, over an engine and a ledger in memory: what is answered, and what becomes of both.
#include "server/ledger/conversation_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using Verb = ConversationCall::Kind;
using text::Json;

class ConversationCalls : public testing::Test {
protected:
    void begin(const SceneOptions& options) { scene_ = std::make_unique<EngineScene>(options); }
    // `id` goes on by one turn of these tokens and two generated ones. Shown under its turn_id if `kept`.
    void turn(const std::string& id, const std::vector<TokenId>& tokens, const std::optional<std::string>& turn_id = {},
              const std::string& kept = "") {
        const bool is_first = scene_->engine.ledger().find(scene_->key(id)) == nullptr;
        scene_->complete(is_first ? scene_->history(id, tokens, 2) : scene_->suffix(id, tokens, 2));
        TurnNotes notes;
        if (turn_id) notes.claim = TurnClaim{.turn_id = *turn_id, .kept = kept};
        ledger_.committed(scene_->key(id), *scene_->engine.ledger().find(scene_->key(id)), notes,
                          [](const std::string& problem, const std::string&) { EXPECT_EQ(problem, ""); });
    }
    ConversationReply call(Verb kind, const std::string& id, ConversationCall more = {}) {
        more.kind = kind;
        more.key = scene_->key(id);
        std::vector<ConversationReply> replies;
        carry_out(more, scene_->engine, ledger_, [&](ConversationReply reply) { replies.push_back(std::move(reply)); });
        CHECK(replies.size() == 1, "{} replies", replies.size());
        return replies.front();
    }
    static std::optional<RefusalReason> reason(const ConversationReply& reply) {
        return reply.refusal ? std::optional(reply.refusal->reason) : std::nullopt;
    }
    bool exists(const std::string& id) const {
        const bool is_known = ledger_.view(scene_->key(id)).has_value();
        EXPECT_EQ(scene_->engine.ledger().find(scene_->key(id)) != nullptr, is_known) << id;
        return is_known;
    }

    std::unique_ptr<EngineScene> scene_ = std::make_unique<EngineScene>();
    ConversationLedger ledger_;
};

TEST_F(ConversationCalls, AConversationIsShownWithItsTurnsAndHeads) {
    turn("c", iota_tokens(100, 6), "t");
    turn("c", iota_tokens(200, 3));
    const ConversationReply reply = call(Verb::kShow, "c");
    EXPECT_FALSE(reply.view);
    const Json& shown = reply.json;
    EXPECT_EQ(shown["turns"], Json::array({{{"turn_id", "t"},
                                            {"new_prompt_tokens", 6},
                                            {"prompt_tokens", 6},
                                            {"completion_tokens", 2},
                                            {"finish_reason", "length"}},
                                           {{"turn_id", nullptr},
                                            {"new_prompt_tokens", 3},
                                            {"prompt_tokens", 11},
                                            {"completion_tokens", 2},
                                            {"finish_reason", "length"}}}));
    EXPECT_EQ(shown["id"], "c");
    EXPECT_EQ(shown["num_turns"], 2);
    EXPECT_EQ(shown["num_tokens"], 13);
    EXPECT_EQ(shown["head_id"], ledger_.view(scene_->key("c"))->head);
    EXPECT_EQ(shown["busy"], false);
    const auto& heads = scene_->engine.cache().find(scene_->key("c"))->heads;
    ASSERT_EQ(shown["heads"].size(), heads.size());
    for (size_t i = 0; i < heads.size(); ++i) {
        const Json& head = shown["heads"][i];
        EXPECT_EQ(head["length"], heads[i].length);
        EXPECT_EQ(head["state_row"], index(scene_->engine.cache().find(heads[i].head)->state));
        int64_t num_blocks = 0;
        for (const Json& run : head["blocks"]) num_blocks += run[1].get<int64_t>();
        EXPECT_EQ(num_blocks, (heads[i].length + scene_->options.block_size - 1) / scene_->options.block_size);
    }
    EXPECT_EQ(call(Verb::kShow, "c", {.with_content = true}).view->turns.size(), 2u);
    EXPECT_EQ(reason(call(Verb::kShow, "d")), RefusalReason::kUnknownConversation);
}

TEST_F(ConversationCalls, AConversationIsBusyWhileATurnOfItRuns) {
    turn("c", iota_tokens(100, 6));
    scene_->submit(scene_->suffix("c", iota_tokens(200, 3)));
    EXPECT_EQ(call(Verb::kShow, "c").json["busy"], true);
    scene_->run();
    EXPECT_EQ(call(Verb::kShow, "c").json["busy"], false);
}

TEST_F(ConversationCalls, AStoppedTurnSaysSo) {
    const std::vector<TokenId> answer = scene_->expected(iota_tokens(100, 6), 2);
    ChatRequest request = scene_->history("c", iota_tokens(100, 6));
    request.stop_tokens = {answer[0]};
    scene_->complete(std::move(request));
    ledger_.committed(scene_->key("c"), *scene_->engine.ledger().find(scene_->key("c")), {},
                      [](const std::string&, const std::string&) {});
    EXPECT_EQ(call(Verb::kShow, "c").json["turns"][0]["finish_reason"], "stop");
}

// A model without states has heads of KV alone; one whose heads are gone has none to show or to give out.
TEST_F(ConversationCalls, HeadsAreShownAsTheyAre) {
    begin({.num_state_rows = 0});
    turn("c", iota_tokens(100, 6));
    const Json heads = call(Verb::kShow, "c").json["heads"];
    ASSERT_FALSE(heads.empty());
    EXPECT_EQ(heads[0]["state_row"], nullptr);
    begin({});
    scene_->engine.restore(scene_->key("d"), {{scene_->store.store(iota_tokens(1, 2))}}, Version{1});
    EXPECT_EQ(reason(call(Verb::kExportHead, "d")), RefusalReason::kUnknownConversation);
}

TEST_F(ConversationCalls, TheLongestHeadIsGivenOut) {
    turn("c", iota_tokens(100, 6));
    turn("c", iota_tokens(200, 3));
    turn("c", iota_tokens(300, 3));
    int64_t longest = 0;
    for (const NamedHead& head : scene_->engine.cache().find(scene_->key("c"))->heads)
        longest = std::max(longest, head.length);
    const ConversationReply reply = call(Verb::kExportHead, "c");
    ASSERT_TRUE(reply.head);
    EXPECT_EQ(std::ssize(reply.head->tokens), longest);
    EXPECT_FALSE(reply.refusal);
    EXPECT_EQ(reason(call(Verb::kExportHead, "d")), RefusalReason::kUnknownConversation);
}

TEST_F(ConversationCalls, ForksAndRewindsSayWhatTheConversationIsNow) {
    turn("c", iota_tokens(100, 6));
    turn("c", iota_tokens(200, 3));
    const Json forked = call(Verb::kFork, "c", {.to = "d", .num_turns = 1}).json;
    EXPECT_EQ(forked, (Json{{"id", "d"},
                            {"object", "conversation"},
                            {"head_id", ledger_.view(scene_->key("d"))->head},
                            {"num_turns", 1},
                            {"num_tokens", 8}}));
    EXPECT_EQ(call(Verb::kFork, "c", {.to = "e"}).json["num_turns"], 2);
    EXPECT_EQ(reason(call(Verb::kFork, "c", {.to = "e"})), RefusalReason::kNameTaken);
    const Json rewound = call(Verb::kRewind, "c", {.num_turns = 1}).json;
    EXPECT_EQ(rewound["num_turns"], 1);
    EXPECT_EQ(rewound["num_tokens"], 8);
    EXPECT_EQ(rewound["head_id"], ledger_.view(scene_->key("c"))->head);
    EXPECT_EQ(reason(call(Verb::kRewind, "c", {.num_turns = 2})), RefusalReason::kNoSuchTurn);
    EXPECT_EQ(reason(call(Verb::kRewind, "c", {.num_turns = 1, .parent_head = "x"})), RefusalReason::kParentMismatch);
    EXPECT_FALSE(call(Verb::kRewind, "c", {.num_turns = 1, .parent_head = rewound["head_id"]}).refusal);
}

TEST_F(ConversationCalls, AConversationIsDeletedInBoth) {
    turn("c", iota_tokens(100, 6));
    EXPECT_EQ(call(Verb::kRemove, "c").json,
              (Json{{"id", "c"}, {"object", "conversation.deleted"}, {"deleted", true}}));
    EXPECT_FALSE(exists("c"));
    EXPECT_EQ(reason(call(Verb::kRemove, "c")), RefusalReason::kUnknownConversation);
}

TEST_F(ConversationCalls, AConversationGoesWithItsLastResponseThatIsShown) {
    turn("c", iota_tokens(100, 6), "t1", "shown");
    turn("c", iota_tokens(200, 3), "t2", "shown");
    const auto remove = [&](const std::string& turn_id) { return call(Verb::kRemoveResponse, "c", {.to = turn_id}); };
    const auto kept = [&](const std::string& turn_id) {
        return (*ledger_.recorded(scene_->key("c"), turn_id, std::nullopt))->kept;
    };
    EXPECT_EQ(reason(remove("t3")), RefusalReason::kUnknownConversation);
    EXPECT_EQ(remove("t1").json, (Json{{"id", "t1"}, {"object", "response"}, {"deleted", true}}));
    EXPECT_TRUE(exists("c"));
    EXPECT_EQ(kept("t1"), "");
    EXPECT_EQ(kept("t2"), "shown");
    EXPECT_EQ(reason(remove("t1")), RefusalReason::kUnknownConversation) << "it is shown no more";
    scene_->submit(scene_->suffix("c", iota_tokens(300, 3)));
    EXPECT_EQ(reason(remove("t2")), RefusalReason::kBusy);
    EXPECT_EQ(kept("t2"), "shown");
    scene_->run();
    EXPECT_EQ(remove("t2").json["id"], "t2");
    EXPECT_FALSE(exists("c"));
    EXPECT_EQ(reason(remove("t2")), RefusalReason::kUnknownConversation);
}

}  // namespace
}  // namespace verbatim::tests
