// Conversations as clients see them: turns by their ids, suffixes, heads, forks, and what a new process knows of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/server/ledger/wrapping_database.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::SqliteDatabase;
using server::SqlLedgerStore;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

json turn(const std::string& id, const std::string& text, const json& more = json::object()) {
    json body = hello({{"conversation_id", id}, {"messages", json::array({user(text)})}});
    body.update(more);
    return body;
}

std::string said(const HttpAnswer& answer) {
    const json body = answer.json();
    return answer.status == 200 ? body["choices"][0]["message"]["content"].get<std::string>() : body.dump();
}

int64_t cached(const HttpAnswer& answer) {
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

void expect_error(const HttpAnswer& answer, int status, const std::string& code, const std::string& param = "") {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json error = answer.json()["error"];
    EXPECT_EQ(error["code"], code) << error;
    if (!param.empty()) EXPECT_EQ(error["param"], param) << error;
}

std::string delete_of(const std::string& path) {
    return "DELETE " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

HttpSceneConfig kept_in(const TestFolder& folder) {
    HttpSceneConfig config;
    config.ledger = [file = folder.file("ledger")] {
        return std::make_unique<SqlLedgerStore>(std::make_unique<SqliteDatabase>(file));
    };
    return config;
}

// With a ledger of files and without: the same pages.
TEST(HttpConversations, AreListedInPages) {
    const TestFolder folder;
    for (const HttpSceneConfig& config : {kept_in(folder), HttpSceneConfig()}) {
        HttpScene scene(config);
        const auto page = [&](const std::string& query) { return scene.ask(get("/v1/conversations" + query)).json(); };
        EXPECT_EQ(page(""), json::parse(R"({"object": "list", "data": [], "first_id": null, "last_id": null,
                                            "has_more": false})"));
        for (const char* id : {"b", "a b", "c", "\u00e9"}) ASSERT_EQ(scene.chat(turn(id, "Hello.")).status, 200);
        ASSERT_EQ(scene.chat(turn("salted", "Hello.", {{"cache_salt", "s"}})).status, 200);
        const json first = page("?limit=3");
        ASSERT_EQ(first["data"].size(), 3) << first;
        EXPECT_EQ(first["first_id"], "a b");
        EXPECT_EQ(first["last_id"], "c");
        EXPECT_EQ(first["has_more"], true);
        const json shown = scene.ask(get("/v1/conversations/b")).json();
        for (const char* field : {"id", "object", "head_id", "num_turns", "num_tokens"})
            EXPECT_EQ(first["data"][1][field], shown[field]) << field;
        const json rest = page("?limit=3&after=c");
        EXPECT_EQ(rest["data"].size(), 1) << rest;
        EXPECT_EQ(rest["data"][0]["id"], "\u00e9");
        EXPECT_EQ(rest["has_more"], false);
        EXPECT_EQ(page("?limit=4")["has_more"], false);
        EXPECT_EQ(page("?cache_salt=s")["data"][0]["id"], "salted");
        ASSERT_EQ(scene.ask(delete_of("/v1/conversations/b")).status, 200);
        EXPECT_EQ(page("?after=a%20b")["data"][0]["id"], "c");
        expect_error(scene.ask(get("/v1/conversations?limit=0")), 400, "invalid_value", "limit");
        expect_error(scene.ask(get("/v1/conversations?limit=101")), 400, "invalid_value", "limit");
        expect_error(scene.ask(get("/v1/conversations?after=")), 400, "invalid_value", "after");
        expect_error(scene.ask(get("/v1/conversations?before=a")), 400, "invalid_value", "before");
    }
}

TEST(HttpConversations, ATurnIsAnsweredOnce) {
    const TestFolder folder;
    const json asked = turn("c", "hello", {{"turn_id", "t1"}});
    std::string first;
    {
        HttpScene scene(kept_in(folder));
        const HttpAnswer whole = scene.chat(asked);
        ASSERT_EQ(whole.status, 200) << whole.body;
        first = whole.body;
        scene.wait_until_idle();
        const int64_t num_computed = scene.num_computed_tokens();
        EXPECT_EQ(scene.chat(asked).body, first);
        json streamed = asked;
        streamed["stream"] = true;
        const Joined again = joined(scene.chat(streamed));
        EXPECT_EQ(again.text, said(whole));
        EXPECT_TRUE(again.done);
        EXPECT_EQ(again.head_id, whole.json()["head_id"]);
        EXPECT_EQ(scene.num_computed_tokens(), num_computed);
        expect_error(scene.chat(turn("c", "other", {{"turn_id", "t1"}})), 409, "turn_mismatch");
        expect_error(scene.chat(turn("c", "hello", {{"turn_id", "t1"}, {"n", 2}})), 400, "unsupported_value", "n");
    }
    HttpScene next(kept_in(folder));
    EXPECT_EQ(next.chat(asked).body, first) << "after a restart";
    EXPECT_EQ(next.num_computed_tokens(), 0);
    EXPECT_EQ(next.ask(delete_of("/v1/conversations/c")).status, 200);
    expect_error(next.chat(asked), 409, "turn_deleted");
}

TEST(HttpConversations, ASuffixGoesOnFromWhatIsCommitted) {
    HttpScene scene({.lookup = LookupMode::kConversation});
    const HttpAnswer first = scene.chat(turn("whole", "hello"));
    ASSERT_EQ(scene.chat(turn("suffix", "hello")).status, 200);
    const json history = json::array({user("hello"), {{"role", "assistant"}, {"content", said(first)}}, user("more")});
    const HttpAnswer whole = scene.chat(turn("whole", "", {{"messages", history}}));
    const HttpAnswer suffix = scene.chat(turn("suffix", "more", {{"suffix_only", true}}));
    EXPECT_EQ(said(suffix), said(whole));
    EXPECT_EQ(suffix.json()["usage"], whole.json()["usage"]);
    const int64_t num_first = first.json()["usage"]["total_tokens"];
    EXPECT_EQ(cached(suffix), num_first - 1) << "all but the token that was drawn last";
    const HttpAnswer third = scene.chat(turn("suffix", "and more", {{"suffix_only", true}}));
    EXPECT_EQ(cached(third), suffix.json()["usage"]["total_tokens"].get<int64_t>() - 1);

    expect_error(scene.chat(turn("nobody", "more", {{"suffix_only", true}})), 404, "unknown_conversation");
    expect_error(scene.chat(hello({{"suffix_only", true}})), 400, "missing_required_parameter", "conversation_id");
    expect_error(scene.chat(hello({{"turn_id", "t"}})), 400, "missing_required_parameter", "conversation_id");
}

TEST(HttpConversations, SuffixesOfCompletionsAreTextOrTokens) {
    HttpScene scene;
    const json first = {
        {"prompt", {1, 2, 3, 4}}, {"max_tokens", 4}, {"ignore_eos", true}, {"seed", 1}, {"conversation_id", "c"}};
    ASSERT_EQ(scene.complete(first).status, 200);
    json suffix = first;
    suffix["prompt"] = {7, 8};
    suffix["suffix_only"] = true;
    const json usage = scene.complete(suffix).json()["usage"];
    EXPECT_EQ(usage["prompt_tokens"], 10);
    EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 7);
    suffix["prompt"] = "def";
    EXPECT_GT(scene.complete(suffix).json()["usage"]["prompt_tokens"], 14);
    expect_error(scene.chat(turn("c", "hello", {{"suffix_only", true}})), 400, "invalid_value", "suffix_only");
}

TEST(HttpConversations, AParentHeadIsComparedBeforeAnythingIsComputed) {
    HttpScene scene;
    const std::string head = scene.chat(turn("c", "hello")).json()["head_id"];
    const HttpAnswer second = scene.chat(turn("c", "more", {{"suffix_only", true}, {"parent_head", head}}));
    ASSERT_EQ(second.status, 200) << second.body;
    EXPECT_NE(second.json()["head_id"], head);
    EXPECT_THAT(second.head, HasSubstr("X-Head-Id: " + second.json()["head_id"].get<std::string>()));
    expect_error(scene.chat(turn("c", "more", {{"suffix_only", true}, {"parent_head", head}})), 409, "parent_mismatch");
    ASSERT_EQ(scene.ask(delete_of("/v1/conversations/c")).status, 200);
    ASSERT_EQ(scene.chat(turn("c", "hullo")).status, 200);
    expect_error(scene.chat(turn("c", "more", {{"suffix_only", true}, {"parent_head", head}})), 409, "parent_mismatch");
}

TEST(HttpConversations, AreForkedRewoundShownAndDeleted) {
    HttpScene scene({.lookup = LookupMode::kConversation});
    const std::string head = scene.chat(turn("a b", "hello", {{"turn_id", "t1"}})).json()["head_id"];
    ASSERT_EQ(scene.chat(turn("a b", "more", {{"suffix_only", true}})).status, 200);
    const json shown = scene.ask(get("/v1/conversations/a%20b")).json();
    EXPECT_EQ(shown["id"], "a b");
    ASSERT_EQ(shown["turns"].size(), 2u) << shown;
    EXPECT_EQ(shown["turns"][0]["turn_id"], "t1");
    EXPECT_EQ(shown["num_tokens"], shown["turns"][1]["prompt_tokens"].get<int64_t>() + 12);
    EXPECT_GE(shown["heads"].size(), 2u);
    EXPECT_EQ(shown["heads"].back()["kind"], "turn");

    const HttpAnswer forked = scene.ask(post("/v1/conversations/a%20b/fork", R"({"to": "c", "num_turns": 1})"));
    ASSERT_EQ(forked.status, 200) << forked.body;
    EXPECT_EQ(forked.json()["num_turns"], 1);
    const HttpAnswer rewound = scene.ask(post("/v1/conversations/a%20b/rewind", R"({"num_turns": 1})"));
    ASSERT_EQ(rewound.status, 200) << rewound.body;
    EXPECT_NE(rewound.json()["head_id"], head) << "a head is named once";
    const HttpAnswer on_fork = scene.chat(turn("c", "else", {{"suffix_only", true}}));
    EXPECT_EQ(said(scene.chat(turn("a b", "else", {{"suffix_only", true}}))), said(on_fork));
    EXPECT_EQ(cached(on_fork), forked.json()["num_tokens"].get<int64_t>() - 1);

    EXPECT_EQ(scene.ask(delete_of("/v1/conversations/c")).json()["deleted"], true);
    expect_error(scene.ask(delete_of("/v1/conversations/c")), 404, "unknown_conversation");
    expect_error(scene.ask(get("/v1/conversations/c")), 404, "unknown_conversation");
    const auto wrong = [&](const char* deed, const char* body) {
        return scene.ask(post(std::string("/v1/conversations/a%20b") + deed, body));
    };
    expect_error(wrong("/fork", R"({"to": "a b"})"), 409, "name_taken");
    expect_error(wrong("/fork", R"({"to": "d", "num_turns": 9})"), 400, "no_such_turn");
    expect_error(wrong("/fork", "{}"), 400, "missing_required_parameter", "to");
    expect_error(wrong("/rewind", R"({"num_turns": -1})"), 400, "invalid_value", "num_turns");
    expect_error(wrong("/rewind", R"({"num_turns": 1, "parent_head": "x"})"), 409, "parent_mismatch");
    expect_error(wrong("/rewind", R"({"num_turns": 1, "mood": 2})"), 400, "unsupported_parameter", "mood");
    expect_error(wrong("/rewind", "no"), 400, "invalid_json");
    expect_error(wrong("/burn", "{}"), 404, "unknown_url");
    expect_error(wrong("", "{}"), 405, "method_not_allowed");
    expect_error(scene.ask(get("/v1/conversations/%zz")), 400, "invalid_value", "conversation_id");
    expect_error(scene.ask(get("/v1/conversations/%ff")), 400, "invalid_value", "conversation_id");
    expect_error(scene.ask(get("/v1/conversations/a%20b?x=1")), 400, "invalid_value", "x");
    expect_error(wrong("/fork", std::string(16385, ' ').c_str()), 413, "body");
}

TEST(HttpConversations, AreOfTheirSaltAlone) {
    HttpSceneConfig config;
    config.api_keys = "one first-key\ntwo second-key\n";
    HttpScene scene(std::move(config));
    const auto ask_as = [&](const char* key, const std::string& head, const std::string& body) {
        return scene.ask(
            fmt::format("{} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: "
                        "close\r\nContent-Length: {}\r\n\r\n{}",
                        head, key, body.size(), body));
    };
    ASSERT_EQ(ask_as("first-key", "POST /v1/chat/completions", turn("c", "hello").dump()).status, 200);
    EXPECT_EQ(ask_as("first-key", "GET /v1/conversations/c", "").status, 200);
    EXPECT_EQ(ask_as("first-key", "GET /v1/conversations/c?cache_salt=s", "").status, 404);
    EXPECT_EQ(ask_as("second-key", "GET /v1/conversations/c", "").status, 404);
    EXPECT_EQ(ask_as("second-key", "DELETE /v1/conversations/c", "").status, 404);
    EXPECT_EQ(ask_as("second-key", "POST /v1/conversations/c/fork", R"({"to": "d"})").status, 404);
    EXPECT_EQ(ask_as("no-key", "GET /v1/conversations/c", "").status, 401);
    const json salted = turn("c", "hello", {{"cache_salt", "s"}});
    ASSERT_EQ(ask_as("second-key", "POST /v1/chat/completions", salted.dump()).status, 200);
    EXPECT_EQ(ask_as("second-key", "GET /v1/conversations/c?cache_salt=s", "").status, 200);
    EXPECT_EQ(ask_as("second-key", "POST /v1/conversations/c/fork", R"({"to": "d", "cache_salt": "s"})").status, 200);
}

TEST(HttpConversations, ANewProcessComputesCommittedTokensAgain) {
    const TestFolder folder;
    HttpScene undisturbed;
    int64_t num_tokens = 0;
    {
        HttpScene scene(kept_in(folder));
        for (HttpScene* one : {&scene, &undisturbed}) {
            ASSERT_EQ(one->chat(turn("c", "hello")).status, 200);
            const HttpAnswer second = one->chat(turn("c", "more", {{"suffix_only", true}}));
            num_tokens = second.json()["usage"]["total_tokens"];
        }
    }
    HttpScene scene(kept_in(folder));
    const json asked = turn("c", "and more", {{"suffix_only", true}});
    const HttpAnswer next = scene.chat(asked);
    const HttpAnswer wanted = undisturbed.chat(asked);
    EXPECT_EQ(said(next), said(wanted));
    EXPECT_EQ(next.json()["head_id"], wanted.json()["head_id"]);
    EXPECT_EQ(cached(next), 0);
    EXPECT_EQ(cached(wanted), num_tokens - 1);
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().not_reused[static_cast<size_t>(NotReused::kLost)], num_tokens - 1);
    EXPECT_EQ(scene.engine().stats().not_reused[static_cast<size_t>(NotReused::kSeam)], 1);
    EXPECT_EQ(scene.ask(get("/v1/conversations/c")).json()["turns"].size(), 3u);
}

// Of a conversation that was deleted in one piece, many turn ids were forgotten at once.
TEST(HttpConversations, WithoutALedgerTheNewestDeletedTurnsAreRemembered) {
    HttpSceneConfig config;
    config.ledger_memory.max_deleted_turns = 3;
    HttpScene scene(std::move(config));
    const auto ask = [&](const std::string& id, const std::string& turn_id) {
        return scene.chat(turn(id, "hello", {{"turn_id", turn_id}, {"max_tokens", 1}}));
    };
    for (const char* turn_id : {"t1", "t2", "t3", "t4", "t5"}) ASSERT_EQ(ask("c", turn_id).status, 200);
    ASSERT_EQ(scene.ask(delete_of("/v1/conversations/c")).status, 200);
    for (const char* turn_id : {"t1", "t2", "t3", "t4", "t5"}) expect_error(ask("c", turn_id), 409, "turn_deleted");
    ASSERT_EQ(ask("d", "t1").status, 200);
    ASSERT_EQ(scene.ask(delete_of("/v1/conversations/d")).status, 200);
    expect_error(ask("d", "t1"), 409, "turn_deleted");
    for (const char* turn_id : {"t4", "t5"}) expect_error(ask("c", turn_id), 409, "turn_deleted");
    EXPECT_EQ(ask("c", "t3").status, 200) << "the bound is three";
}

// A stop text ends the answer and the turn; what the client has not seen is no message of the conversation.
TEST(HttpConversations, ATurnThatAStopTextEndsIsCommitted) {
    const TestFolder folder;
    std::string before;
    std::string second;
    {
        HttpScene scene(kept_in(folder));
        const std::string whole = said(scene.chat(hello()));
        const std::string stop = whole.substr(whole.size() / 2, 3);
        before = whole.substr(0, whole.find(stop));
        const json asked = turn("c", "hello", {{"stop", stop}, {"turn_id", "t"}});
        const HttpAnswer stopped = scene.chat(asked);
        EXPECT_EQ(said(stopped), before);
        EXPECT_TRUE(stopped.json().contains("head_id"));
        EXPECT_EQ(scene.chat(asked).body, stopped.body);
        EXPECT_EQ(scene.host().num_aborts(), 0);
        const json shown = scene.ask(get("/v1/conversations/c")).json();
        EXPECT_EQ(shown["turns"][0]["finish_reason"], "stop");
        EXPECT_EQ(shown["num_tokens"], stopped.json()["usage"]["total_tokens"]);
        ASSERT_EQ(scene.ask(post("/v1/conversations/c/fork", R"({"to": "d"})")).status, 200);
        second = said(scene.chat(turn("c", "more", {{"suffix_only", true}})));
        const json history = json::array({user("hello"), {{"role", "assistant"}, {"content", before}}, user("more")});
        EXPECT_EQ(said(scene.chat(hello({{"messages", history}}))), second);
    }
    HttpScene scene(kept_in(folder));
    EXPECT_EQ(said(scene.chat(turn("d", "more", {{"suffix_only", true}}))), second);
}

// A stop text is no part of the message, and the next prompt has the answer in other tokens: the turn stays one, by a
// suffix and by a whole history, in the engine, in memory and in the store.
TEST(HttpConversations, ATurnThatAStopTextEndedStaysATurn) {
    const TestFolder folder;
    std::string first, second, third;
    const auto num_turns = [](HttpScene& scene, const std::string& id) {
        const json shown = scene.ask(get("/v1/conversations/" + id + "?content=true")).json();
        EXPECT_EQ(shown["num_turns"], shown["turns"].size()) << shown;
        EXPECT_EQ(shown["messages"].size(), 2 * shown["turns"].size()) << shown;
        return shown["num_turns"].get<int64_t>();
    };
    const auto rewound = [](HttpScene& scene, const std::string& id, int64_t turns) {
        const json body = {{"num_turns", turns}};
        return scene.ask(post("/v1/conversations/" + id + "/rewind", body.dump())).json();
    };
    {
        HttpScene scene(kept_in(folder));
        const std::string whole = said(scene.chat(turn("plain", "hello")));
        const json stop = {{"stop", whole.substr(whole.size() / 2, 3)}};
        for (const char* id : {"suffix", "history"}) {
            const auto ask = [&](const std::string& text, const json& history, json more) {
                if (std::string(id) == "suffix") return scene.chat(turn(id, text, more));
                more.update({{"messages", history}, {"suffix_only", false}});
                return scene.chat(turn(id, "", more));
            };
            int64_t num_second = 0;
            json history = json::array({user("hello")});
            json more = stop;
            more["turn_id"] = "t";
            first = said(ask("hello", history, more));
            ASSERT_LT(first.size(), whole.size());
            for (auto [text, answer] : {std::pair("more", &second), std::pair("and more", &third)}) {
                history.push_back({{"role", "assistant"}, {"content", text == std::string("more") ? first : second}});
                history.push_back(user(text));
                const HttpAnswer got = ask(text, history, {{"suffix_only", true}});
                *answer = said(got);
                if (answer == &second) num_second = got.json()["usage"]["total_tokens"];
                if (answer == &third) EXPECT_GE(cached(got), num_second - 1) << "no state was lost";
            }
            EXPECT_EQ(num_turns(scene, id), 3) << id;
            EXPECT_EQ(said(scene.chat(hello({{"messages", history}}))), third) << "as without a conversation";
        }
        // Back to the turn, in the tokens of the prompt behind it, and on to the same answer.
        EXPECT_EQ(rewound(scene, "suffix", 1)["num_turns"], 1);
        EXPECT_EQ(said(scene.chat(turn("suffix", "more", {{"suffix_only", true}}))), second);
        EXPECT_EQ(num_turns(scene, "suffix"), 2);
    }
    HttpScene scene(kept_in(folder));
    EXPECT_EQ(num_turns(scene, "history"), 3);
    EXPECT_EQ(rewound(scene, "history", 2)["num_turns"], 2);
    EXPECT_EQ(said(scene.chat(turn("history", "and more", {{"suffix_only", true}}))), third);
}

// A client that rewrites what was said: the tokens before it are reused, and those behind it have their reason.
TEST(HttpConversations, ARewrittenHistoryCostsWhatDiverged) {
    HttpScene scene({.lookup = LookupMode::kConversation});
    const HttpAnswer first = scene.chat(turn("c", "hello there"));
    const json answer = {{"role", "assistant"}, {"content", said(first)}};
    const int64_t num_first_prompt = first.json()["usage"]["prompt_tokens"];
    const json other = {{"role", "assistant"}, {"content", "rewritten"}};
    std::array<int64_t, static_cast<size_t>(NotReused::kCount)> before{};
    const auto grown = [&](NotReused reason) {
        const auto i = static_cast<size_t>(reason);
        return scene.engine().stats().not_reused[i] - before[i];
    };
    const auto ask_with = [&](const json& said_before) {
        scene.wait_until_idle();
        before = scene.engine().stats().not_reused;
        const HttpAnswer asked =
            scene.chat(turn("c", "", {{"messages", {user("hello there"), said_before, user("go on")}}}));
        scene.wait_until_idle();
        return asked;
    };
    // The first prompt is what it was.
    const HttpAnswer rewritten = ask_with(other);
    EXPECT_EQ(cached(rewritten), num_first_prompt - 1);
    const int64_t num_prompt = rewritten.json()["usage"]["prompt_tokens"];
    EXPECT_GT(grown(NotReused::kNewTokens), 0);
    EXPECT_GT(grown(NotReused::kBetweenHeads), 0) << "the prompt's last token, which every request computes";
    EXPECT_EQ(cached(rewritten) + grown(NotReused::kNewTokens) + grown(NotReused::kBetweenHeads), num_prompt);
    EXPECT_EQ(scene.ask(get("/v1/conversations/c")).json()["turns"].size(), 1u) << "the turn that it left is gone";
    // Back again: the first prompt's state was let go meanwhile, and that is the reason that is counted. The one behind
    // the message before, the template's own, is there.
    const int64_t left = cached(ask_with(answer));
    EXPECT_GT(left, 0);
    EXPECT_LT(left, num_first_prompt - 1);
    EXPECT_GT(grown(NotReused::kNotRetained), 0);
    EXPECT_EQ(grown(NotReused::kNewConversation), 0);
}

// --- a store that fails

class FailingDatabase final : public WrappingDatabase {
public:
    FailingDatabase(std::unique_ptr<SqlDatabase> inner, std::atomic<bool>& fails)
        : WrappingDatabase(std::move(inner)), fails_(fails) {}
    Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override {
        if (fails_) return tl::unexpected(Error{"the disk is full", ErrorKind::kMachine});
        return inner().run(sql, values);
    }

private:
    std::atomic<bool>& fails_;
};

TEST(HttpConversations, AFailingStoreIsReportedAndNothingIsLost) {
    const TestFolder folder;
    std::atomic<bool> fails = false;
    const json asked = turn("c", "more", {{"suffix_only", true}, {"turn_id", "t2"}});
    std::string kept;
    {
        HttpSceneConfig config;
        config.ledger = [&] {
            auto file = std::make_unique<SqliteDatabase>(folder.file("ledger"));
            return std::make_unique<SqlLedgerStore>(std::make_unique<FailingDatabase>(std::move(file), fails));
        };
        HttpScene scene(std::move(config));
        ASSERT_EQ(scene.chat(turn("c", "hello")).status, 200);
        fails = true;
        json streamed = asked;
        streamed["stream"] = true;
        const HttpAnswer cut = scene.chat(streamed);
        EXPECT_THAT(cut.body, AllOf(HasSubstr("ledger_unavailable"), HasSubstr("the disk is full")));
        EXPECT_FALSE(joined(cut).done);
        expect_error(scene.chat(turn("d", "hello")), 503, "ledger_unavailable");
        expect_error(scene.chat(asked), 503, "ledger_unavailable");
        expect_error(scene.ask(post("/v1/conversations/c/fork", R"({"to": "d"})")), 503, "ledger_unavailable");
        EXPECT_EQ(scene.chat(hello()).status, 200) << "who keeps nothing is served";
        EXPECT_EQ(scene.ask(get("/health")).status, 200);
        fails = false;
        HttpAnswer again = scene.chat(asked);
        while (again.status == 503) again = scene.chat(asked);
        ASSERT_EQ(again.status, 200) << again.body;
        kept = again.body;
    }
    HttpScene next(kept_in(folder));
    EXPECT_EQ(next.chat(asked).body, kept);
    EXPECT_EQ(next.ask(get("/v1/conversations/c")).json()["turns"].size(), 2u) << "it was computed once";
}

}  // namespace
}  // namespace verbatim::tests
