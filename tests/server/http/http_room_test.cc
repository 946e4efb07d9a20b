// A server that is full: a client that has its answer may ask again.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using server::SqliteDatabase;
using server::SqlLedgerStore;

HttpSceneConfig one_at_a_time() {
    HttpSceneConfig config;
    config.host.max_requests = 1;
    config.host.max_queue_requests = 0;
    return config;
}

server::HostRequest request_of(const std::optional<std::string>& conversation) {
    server::HostRequest request;
    request.conversation_id = conversation;
    request.salt = server::salt_of(std::nullopt, std::nullopt);
    request.prompt = {1, 2, 3};
    request.max_tokens = 2;
    return request;
}

// A client of one request at a time got 429 for every third one: the request before it was over for the client, and
// not for the server.
TEST(HttpRoom, IsFreeWhenTheEndOfAnAnswerIsSaid) {
    for (const std::optional<std::string>& conversation :
         {std::optional<std::string>(), std::optional<std::string>("c")}) {
        HttpScene scene(one_at_a_time());
        std::promise<bool> second;
        const auto ask_again = [&](const server::HostUpdate& update) {
            if (std::holds_alternative<server::TokenUpdate>(update) ||
                std::holds_alternative<server::AcceptedUpdate>(update))
                return;
            EXPECT_TRUE(scene.host().has_room(0));
            EXPECT_FALSE(scene.host().has_room(1));
            EXPECT_EQ(scene.host().num_requests(), 1u);  // this one, until it returns
            second.set_value(scene.host().submit(request_of({}), [](const server::HostUpdate&) {}).has_value());
        };
        ASSERT_TRUE(scene.host().submit(request_of(conversation), ask_again));
        EXPECT_TRUE(second.get_future().get());
        scene.wait_until_idle();
        EXPECT_EQ(scene.host().num_requests(), 0u);
    }
}

// The store has the first answer by then: the turn is not computed again.
TEST(HttpRoom, ASecondTryGetsTheAnswerWhileItsFirstEndIsPassedOn) {
    const ScratchFolder folder;
    HttpSceneConfig config = one_at_a_time();
    config.ledger = [&]() -> std::unique_ptr<server::LedgerStore> {
        return std::make_unique<SqlLedgerStore>(std::make_unique<SqliteDatabase>(folder.path("ledger")));
    };
    HttpScene scene(std::move(config));
    server::HostRequest request = request_of("c");
    request.claim = server::TurnClaim{.turn_id = "t", .request = {1, 2}, .answer_id = "first", .kept = {}};
    server::HostRequest second = request;
    second.claim->answer_id = "second";

    std::string head;         // of the first answer
    std::string repeated_id;  // of the answer that the second try gets
    std::promise<std::string> repeated_head;
    const auto hear_second = [&](const server::HostUpdate& update) {
        if (const auto* accepted = std::get_if<server::AcceptedUpdate>(&update))
            repeated_id = accepted->recorded ? accepted->recorded->answer_id : "";
        if (const auto* end = std::get_if<server::FinishedUpdate>(&update)) repeated_head.set_value(end->head);
    };
    std::promise<bool> is_over;
    const auto hear_first = [&](const server::HostUpdate& update) {
        const auto* end = std::get_if<server::FinishedUpdate>(&update);
        if (end == nullptr) return;
        head = end->head;
        const bool is_taken = scene.host().submit(second, hear_second).has_value();
        EXPECT_TRUE(is_taken);
        EXPECT_FALSE(head.empty());
        if (is_taken) EXPECT_EQ(repeated_head.get_future().get(), head);
        is_over.set_value(true);
    };
    ASSERT_TRUE(scene.host().submit(request, hear_first));
    EXPECT_TRUE(is_over.get_future().get());
    EXPECT_EQ(repeated_id, "first");
    scene.wait_until_idle();
    EXPECT_EQ(scene.host().view().num_commits, 1);
}

TEST(HttpRoom, OfOneRequestIsEnoughForAClientOfOneAtATime) {
    HttpScene scene(one_at_a_time());
    for (int i = 0; i < 200; ++i) ASSERT_EQ(scene.chat(hello()).status, 200) << i;
}

}  // namespace
}  // namespace verbatim::tests
