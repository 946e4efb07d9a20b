// Other threads' way to the sockets' loop: nothing reaches a closed loop, and a closed loop has no call under way.
#include "server/http/loop_handle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace verbatim::tests {
namespace {

using server::LoopHandle;
namespace asio = boost::asio;

TEST(LoopHandle, PostsToTheLoopUntilItIsClosed) {
    asio::io_context loop(1);
    LoopHandle handle(loop);
    int num_run = 0;
    handle.post([&] { ++num_run; });
    EXPECT_EQ(num_run, 0) << "it ran on the thread that posted it";
    EXPECT_EQ(loop.poll(), 1);
    EXPECT_EQ(num_run, 1);
    loop.restart();
    handle.close();
    handle.post([&] { ++num_run; });
    EXPECT_EQ(loop.poll(), 0);
    EXPECT_EQ(num_run, 1);
}

TEST(LoopHandle, StopsTheLoopUntilItIsClosed) {
    asio::io_context loop(1);
    LoopHandle handle(loop);
    handle.stop();
    EXPECT_TRUE(loop.stopped());
    loop.restart();
    handle.close();
    handle.stop();
    EXPECT_FALSE(loop.stopped());
}

// Work that is slow to move: posting it takes until `may_go_on`.
struct SlowWork {
    std::atomic<bool>* is_under_way;
    std::atomic<bool>* may_go_on;
    SlowWork(std::atomic<bool>* under_way, std::atomic<bool>* go_on) : is_under_way(under_way), may_go_on(go_on) {}
    SlowWork(SlowWork&& from) noexcept : is_under_way(from.is_under_way), may_go_on(from.may_go_on) {
        *is_under_way = true;
        while (!*may_go_on) std::this_thread::yield();
    }
    void operator()() const {}
};

TEST(LoopHandle, CloseWaitsForACallUnderWay) {
    asio::io_context loop(1);
    LoopHandle handle(loop);
    std::atomic<bool> is_under_way = false;
    std::atomic<bool> may_go_on = false;
    std::atomic<bool> is_posted = false;
    std::thread poster([&] {
        handle.post(SlowWork(&is_under_way, &may_go_on));
        is_posted = true;
    });
    while (!is_under_way) std::this_thread::yield();
    std::thread letter([&] {
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // a close() that does not wait returns meanwhile
        may_go_on = true;
    });
    handle.close();
    EXPECT_TRUE(may_go_on);
    may_go_on = true;
    poster.join();
    letter.join();
    EXPECT_TRUE(is_posted);
    EXPECT_EQ(loop.poll(), 1) << "it was posted before the loop was closed";
}

// For the sanitizers: the loop goes while other threads call it.
TEST(LoopHandle, OutlivesItsLoopWhileOthersPost) {
    constexpr int kLoops = 200;
    for (int i = 0; i < kLoops; ++i) {
        auto loop = std::make_unique<asio::io_context>(1);
        const auto handle = std::make_shared<LoopHandle>(*loop);
        const auto content = std::make_shared<int>(i);
        std::atomic<bool> is_open = true;
        std::vector<std::thread> posters;
        for (int thread = 0; thread < 2; ++thread) {
            posters.emplace_back([&, handle] {
                while (is_open) handle->post([content] {});
            });
        }
        while (content.use_count() < 4) std::this_thread::yield();
        handle->close();
        loop.reset();
        is_open = false;
        for (std::thread& poster : posters) poster.join();
        EXPECT_EQ(content.use_count(), 1) << "the loop kept work";
    }
}

}  // namespace
}  // namespace verbatim::tests
