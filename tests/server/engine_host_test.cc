// The engine's thread and what it tells.
#include "server/engine_host.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using server::HostRequest;
using server::HostUpdate;

// Whoever is woken by them is woken once: the tokens of one step come between one begin and one end.
TEST(EngineHost, AStepsTokensAreToldInOneDelivery) {
    constexpr size_t kRequests = 3;
    int num_deliveries = 0;  // of the engine's thread, like the others
    bool is_inside = false;
    std::vector<std::vector<int>> told_in(kRequests);
    HttpSceneConfig config;
    config.has_template = false;
    config.is_loaded = false;  // the server would set its own
    HttpScene scene(std::move(config));
    scene.host().set_delivery({[&] {
                                   EXPECT_FALSE(std::exchange(is_inside, true));
                                   ++num_deliveries;
                               },
                               [&] { EXPECT_TRUE(std::exchange(is_inside, false)); }});
    std::vector<EngineHost::Job> jobs;
    for (size_t i = 0; i < kRequests; ++i) {
        HostRequest request;
        request.prompt = {5, 6, static_cast<TokenId>(7 + i)};
        request.max_tokens = 4;
        jobs.push_back({std::move(request), [&, i](const HostUpdate& update) {
                            if (update.kind != HostUpdate::Kind::kToken) return;
                            EXPECT_TRUE(is_inside);
                            told_in[i].push_back(num_deliveries);
                        }});
    }
    ASSERT_TRUE(scene.host().submit(std::move(jobs)));
    scene.wait_until_idle();
    EXPECT_EQ(told_in[0].size(), 4u);
    for (size_t i = 1; i < kRequests; ++i) EXPECT_EQ(told_in[i], told_in[0]);
}

}  // namespace
}  // namespace verbatim::tests
