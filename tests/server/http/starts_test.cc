// When requests begin: what is promised of it is counted.
#include "server/http/starts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace verbatim::tests {
namespace {

using server::Starts;
namespace asio = boost::asio;

TEST(Starts, FewRequestsStartPerPollAndInOrder) {
    constexpr size_t kRequests = 1000;
    asio::io_context loop(1);
    Starts starts(loop);
    std::vector<size_t> begun;
    const auto begin = [&](size_t request) -> asio::awaitable<void> {
        co_await starts.wait_for_turn();
        begun.push_back(request);
    };
    for (size_t request = 0; request < kRequests; ++request) asio::co_spawn(loop, begin(request), asio::detached);
    size_t most = 0;
    size_t before = 0;
    const std::function<void()> look = [&] {
        most = std::max(most, begun.size() - before);
        before = begun.size();
        if (begun.size() < kRequests) asio::post(loop, look);
    };
    asio::post(loop, look);
    loop.run();
    ASSERT_EQ(begun.size(), kRequests);
    EXPECT_TRUE(std::ranges::is_sorted(begun));
    EXPECT_LE(most, 2 * Starts::kMaxStarted) << "those of one look, and what was on its way from the one before";
}

TEST(Starts, ASingleRequestDoesNotWait) {
    asio::io_context loop(1);
    Starts starts(loop);
    for (int i = 0; i < 20; ++i) {
        bool has_begun = false;
        const auto begin = [&]() -> asio::awaitable<void> {
            co_await starts.wait_for_turn();
            has_begun = true;
        };
        asio::co_spawn(loop, begin(), asio::detached);
        loop.restart();
        (void)loop.poll_one();
        EXPECT_TRUE(has_begun) << i;
        loop.poll();
    }
}

}  // namespace
}  // namespace verbatim::tests
