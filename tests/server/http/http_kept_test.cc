// No answer says what a kill would take back: a store that has not kept a change yet holds every answer about its
// conversation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/held_database.h"
#include "tests/server/ledger/ledger_places.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::SqliteDatabase;
using server::SqlLedgerStore;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

std::string turn(const std::string& id, const std::string& text, const json& more = json::object()) {
    json body = hello({{"conversation_id", id}});
    body["messages"] = json::array({{{"role", "user"}, {"content", text}}});
    body.update(more);
    return post("/v1/chat/completions", body.dump());
}

std::string delete_of(const std::string& id) {
    return "DELETE /v1/conversations/" + id + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

std::string call(const std::string& id, const std::string& deed, const json& body) {
    return post("/v1/conversations/" + id + "/" + deed, body.dump());
}

bool has_answer(const HttpClient& client) {
    pollfd ready{client.socket(), POLLIN, 0};
    return poll(&ready, 1, 0) > 0;
}

// A server whose store holds its commits while the gate is closed.
class HttpKept : public testing::Test {
protected:
    HttpKept() {
        HttpSceneConfig config;
        config.ledger = [this] {
            auto file = std::make_unique<SqliteDatabase>(folder_.file("ledger"));
            return std::make_unique<SqlLedgerStore>(std::make_unique<HeldDatabase>(std::move(file), gate_));
        };
        scene_ = std::make_unique<HttpScene>(std::move(config));
    }
    ~HttpKept() override { gate_.open(); }

    void ask(const std::string& name, const std::string& request) {
        asked_.emplace_back(name, std::make_unique<HttpClient>(scene_->port()));
        asked_.back().second->send(request);
    }
    // Everything that was asked before has passed the threads of JSON, text and the engine.
    void pass() const {
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(scene_->chat(hello()).status, 200);
            EXPECT_EQ(scene_->ask(get("/v1/conversations/kept")).status, 200);
        }
    }
    void expect_no_answers() const {
        pass();
        for (const auto& [name, client] : asked_) EXPECT_FALSE(has_answer(*client)) << name << " was answered";
    }
    // In memory, kept or not.
    [[nodiscard]] size_t num_turns(const std::string& id) const {
        const auto view = scene_->host().ledger().view({server::salt_of(std::nullopt, std::nullopt), id});
        return view ? view->turns.size() : 0;
    }
    [[nodiscard]] std::string metrics() const { return scene_->ask(get("/metrics")).body; }

    TestFolder folder_;
    StoreGate gate_;
    std::unique_ptr<HttpScene> scene_;
    std::vector<std::pair<std::string, std::unique_ptr<HttpClient>>> asked_;
};

TEST_F(HttpKept, EveryAnswerAboutATurnWaitsForTheStore) {
    ASSERT_EQ(scene_->ask(turn("kept", "hello")).status, 200);
    scene_->wait_until_idle();
    const std::string before = metrics();
    gate_.close();
    ask("the turn", turn("c", "hello", {{"turn_id", "t1"}}));
    gate_.wait_until_held();
    ask("a look", get("/v1/conversations/c"));
    ask("a look by a name with an escape", get("/v1/conversations/%63"));
    ask("the turn again", turn("c", "hello", {{"turn_id", "t1"}}));
    ask("the turn again, streamed", turn("c", "hello", {{"turn_id", "t1"}, {"stream", true}}));
    ask("turn_mismatch", turn("c", "other", {{"turn_id", "t1"}}));
    ask("a suffix", turn("c", "more", {{"suffix_only", true}}));
    ask("a suffix that does not fit", turn("c", "more", {{"suffix_only", true}, {"max_tokens", 4090}}));
    ask("a history", turn("c", "hello there"));
    ask("parent_mismatch of a turn", turn("c", "more", {{"parent_head", "9-x"}}));
    ask("parent_mismatch", call("c", "rewind", {{"num_turns", 1}, {"parent_head", "9-x"}}));
    ask("no_such_turn", call("c", "rewind", {{"num_turns", 9}}));
    ask("a rewind", call("c", "rewind", {{"num_turns", 1}}));
    ask("a fork", call("c", "fork", {{"to", "d"}}));
    ask("name_taken", call("kept", "fork", {{"to", "c"}}));
    ask("a delete", delete_of("c"));
    expect_no_answers();
    EXPECT_THAT(metrics(), HasSubstr("verbatim:conversations{model_name=\"tiny-python\"} 1\n"));
    EXPECT_THAT(metrics(), Not(HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 1\n")))
        << "the chats without a name are counted";
    gate_.open();
    for (const auto& [name, client] : asked_) EXPECT_NE(client->read_answer().status, 0) << name;
    EXPECT_THAT(before, HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 1\n"));
}

TEST_F(HttpKept, EveryAnswerAboutADeleteWaitsForTheStore) {
    ASSERT_EQ(scene_->ask(turn("kept", "hello")).status, 200);
    ASSERT_EQ(scene_->ask(turn("c", "hello", {{"turn_id", "t1"}})).status, 200);
    gate_.close();
    ask("the delete", delete_of("c"));
    gate_.wait_until_held();
    ask("a look", get("/v1/conversations/c"));
    ask("turn_deleted", turn("c", "hello", {{"turn_id", "t1"}}));
    ask("a suffix of nothing", turn("c", "more", {{"suffix_only", true}}));
    ask("a fork of nothing", call("c", "fork", {{"to", "d"}}));
    expect_no_answers();
    EXPECT_THAT(metrics(), HasSubstr("verbatim:conversations{model_name=\"tiny-python\"} 2\n"));
    gate_.open();
    const std::vector<int> wanted = {200, 404, 409, 404, 404};
    for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(asked_[i].second->read_answer().status, wanted[i]) << asked_[i].first;
}

TEST_F(HttpKept, EveryAnswerAboutAForkAndARewindWaitsForTheStore) {
    ASSERT_EQ(scene_->ask(turn("kept", "hello")).status, 200);
    ASSERT_EQ(scene_->ask(turn("c", "hello")).status, 200);
    ASSERT_EQ(scene_->ask(turn("c", "more", {{"suffix_only", true}})).status, 200);
    gate_.close();
    ask("the fork", call("c", "fork", {{"to", "d"}}));
    gate_.wait_until_held();  // the fork is done, and not kept
    ask("the rewind", call("c", "rewind", {{"num_turns", 1}}));
    while (num_turns("c") != 1) std::this_thread::sleep_for(1ms);
    ask("a look at the fork", get("/v1/conversations/d"));
    ask("a look at what was rewound", get("/v1/conversations/c"));
    ask("a fork of the fork", call("d", "fork", {{"to", "e"}}));
    ask("name_taken", call("kept", "fork", {{"to", "d"}}));
    expect_no_answers();
    gate_.open();
    const std::vector<int> wanted = {200, 200, 200, 200, 200, 409};
    for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(asked_[i].second->read_answer().status, wanted[i]) << asked_[i].first;
}

TEST_F(HttpKept, AClientThatLeavesWhileItWaitsForTheStoreIsAborted) {
    ASSERT_EQ(scene_->ask(turn("kept", "hello")).status, 200);
    gate_.close();
    ask("the rewind", call("kept", "rewind", {{"num_turns", 1}}));
    gate_.wait_until_held();
    const json ids = {{"conversation_id", "kept"}, {"prompt", {1, 2, 3}}, {"max_tokens", 4}};
    ask("a turn", post("/v1/completions", ids.dump()));
    EXPECT_EQ(scene_->chat(hello()).status, 200);
    asked_.back().second->hang_up();
    gate_.open();
    EXPECT_EQ(asked_.front().second->read_answer().status, 200);
    scene_->wait_until_idle();
    EXPECT_EQ(scene_->host().num_requests(), 0u);
}

// The engine's own way in waits, too: not only what is prepared by the threads before it.
TEST_F(HttpKept, TheHostBeginsNoTurnOnWhatIsNotKept) {
    ASSERT_EQ(scene_->ask(turn("kept", "hello")).status, 200);
    ASSERT_EQ(scene_->ask(turn("c", "hello")).status, 200);
    scene_->wait_until_idle();
    gate_.close();
    ask("the rewind", call("c", "rewind", {{"num_turns", 1}}));
    gate_.wait_until_held();
    server::HostRequest request;
    request.conversation_id = "c";
    request.salt = server::salt_of(std::nullopt, std::nullopt);
    request.prompt = {1, 2, 3};
    request.max_tokens = 2;
    std::atomic<int> num_updates = 0;
    std::atomic<bool> is_aborted = false;
    const auto sink = [&](const server::HostUpdate& update) {
        ++num_updates;
        const auto* finished = std::get_if<server::FinishedUpdate>(&update);
        is_aborted = finished != nullptr && finished->end.reason == FinishReason::kAborted;
    };
    const auto ticket = scene_->host().submit(request, sink);
    ASSERT_TRUE(ticket);
    pass();
    EXPECT_EQ(num_updates, 0);
    scene_->host().abort(*ticket);
    gate_.open();
    scene_->wait_until_idle();
    EXPECT_EQ(num_updates, 1);
    EXPECT_TRUE(is_aborted);
}

}  // namespace
}  // namespace verbatim::tests
