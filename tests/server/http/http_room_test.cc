// A server that is full: a client that has its answer may ask again.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <variant>

#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

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

TEST(HttpRoom, OfOneRequestIsEnoughForAClientOfOneAtATime) {
    HttpScene scene(one_at_a_time());
    for (int i = 0; i < 200; ++i) ASSERT_EQ(scene.chat(hello()).status, 200) << i;
}

}  // namespace
}  // namespace verbatim::tests
