// The way from the engine's thread to the sockets': what is promised of it is counted.
#include "server/http/updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
namespace asio = boost::asio;

// Requests of one loop, each read by a coroutine until it has its last update, and the updates of each.
class UpdatesScene {
public:
    explicit UpdatesScene(size_t num_requests) {
        for (size_t i = 0; i < num_requests; ++i) {
            requests_.push_back(std::make_shared<Updates>(queue_, /*max_waiting=*/4, [this] { ++num_given_up_; }));
            told_.emplace_back();
            asio::co_spawn(*loop_, read(i), asio::detached);
        }
    }
    UpdatesScene(const UpdatesScene&) = delete;
    UpdatesScene& operator=(const UpdatesScene&) = delete;
    ~UpdatesScene() {
        queue_->close();
        handle_->close();
    }

    // As the engine does, on any thread.
    void tell(size_t request, TokenId token) const { requests_[request]->sink(0)(TokenUpdate{.token = token}); }
    void end(size_t request) const { requests_[request]->sink(0)(FinishedUpdate{}); }
    asio::io_context& loop() { return *loop_; }
    Updates& request(size_t index) { return *requests_[index]; }
    [[nodiscard]] const std::vector<TokenId>& told(size_t request) const { return told_[request]; }
    [[nodiscard]] int num_taken() const { return num_taken_; }
    [[nodiscard]] int num_given_up() const { return num_given_up_; }
    [[nodiscard]] size_t most_at_once() const { return most_at_once_; }

private:
    asio::awaitable<void> read(size_t index) {
        Bell::Timer timer(*loop_, Bell::Timer::time_point::max());
        bool is_over = false;
        const Updates::Taker taker = [&](std::vector<ChoiceUpdate>& some) {
            most_at_once_ = std::max(most_at_once_, some.size());
            for (const ChoiceUpdate& one : some) {
                ++num_taken_;
                if (const auto* token = std::get_if<TokenUpdate>(&one.update)) told_[index].push_back(token->token);
                is_over = is_over || is_end(one.update);
            }
            return !is_over;
        };
        const Updates::Waited waited = co_await requests_[index]->hand_on(timer, taker);
        EXPECT_EQ(waited, is_over ? Updates::Waited::kEnough : Updates::Waited::kGone);
        if (++num_over_ == requests_.size()) loop_->stop();
    }

    std::unique_ptr<asio::io_context> loop_ = std::make_unique<asio::io_context>(1);
    std::shared_ptr<LoopHandle> handle_ = std::make_shared<LoopHandle>(*loop_);
    std::shared_ptr<UpdateQueue> queue_ = std::make_shared<UpdateQueue>(handle_);
    std::vector<std::shared_ptr<Updates>> requests_;
    std::vector<std::vector<TokenId>> told_;
    int num_taken_ = 0;
    int num_given_up_ = 0;
    size_t num_over_ = 0;
    size_t most_at_once_ = 0;
};

TEST(Updates, ComeInOrderAndWhole) {
    UpdatesScene scene(3);
    std::vector<TokenId> all;
    for (TokenId token = 0; token < 1000; ++token) {
        all.push_back(token);
        for (size_t i = 0; i < 3; ++i) scene.tell(i, token);
        if (token % 50 == 0) scene.loop().poll_one();
    }
    for (size_t i = 0; i < 3; ++i) scene.end(i);
    scene.loop().run();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(scene.told(i), all);
    EXPECT_EQ(scene.most_at_once(), UpdateQueue::kMaxTaken);
}

// A look at the sockets is a handler of the loop among others; between two of them little is done, whatever waits.
TEST(Updates, AWakeUpDoesBoundedWork) {
    constexpr size_t kRequests = 1000;
    constexpr TokenId kTokens = 100;
    UpdatesScene scene(kRequests);
    scene.loop().poll();  // all of them wait
    for (TokenId token = 0; token < kTokens; ++token) {
        for (size_t i = 0; i < kRequests; ++i) scene.tell(i, token);
    }
    for (size_t i = 0; i < kRequests; ++i) scene.end(i);
    int most = 0;
    int before = 0;
    int num_looks = 0;
    std::function<void()> look = [&] {
        most = std::max(most, scene.num_taken() - before);
        before = scene.num_taken();
        ++num_looks;
        if (scene.num_taken() < static_cast<int>(kRequests) * (kTokens + 1)) asio::post(scene.loop(), look);
    };
    asio::post(scene.loop(), look);
    scene.loop().run();
    EXPECT_EQ(scene.num_taken(), static_cast<int>(kRequests) * (kTokens + 1));
    EXPECT_LE(most, static_cast<int>(UpdateQueue::kMaxWoken * UpdateQueue::kMaxTaken));
    EXPECT_GT(num_looks, 100);
    for (size_t i = 0; i < kRequests; ++i) EXPECT_EQ(scene.told(i).size(), static_cast<size_t>(kTokens));
}

// However much comes before the loop turns, it is woken once.
TEST(Updates, UpdatesThatArriveTogetherAreOneWakeUp) {
    UpdatesScene scene(1);
    scene.loop().poll();
    for (TokenId token = 0; token < 20; ++token) scene.tell(0, token);
    EXPECT_EQ(scene.loop().poll(), 1u) << "the wake-up, without the request's coroutine";
    EXPECT_EQ(scene.loop().poll(), 0u);
    EXPECT_EQ(scene.told(0).size(), 20u);
    EXPECT_EQ(scene.most_at_once(), 20u);
}

TEST(Updates, AClientThatTakesNothingIsDisconnected) {
    UpdatesScene scene(2);
    scene.loop().poll();
    scene.request(0).set_writing(true);
    for (TokenId token = 0; token < 5; ++token) {
        EXPECT_FALSE(scene.request(0).gone());
        for (size_t i = 0; i < 2; ++i) scene.tell(i, token);
    }
    scene.loop().poll();
    EXPECT_TRUE(scene.request(0).gone());
    EXPECT_FALSE(scene.request(1).gone()) << "nothing was sent that it could have taken";
    EXPECT_EQ(scene.num_given_up(), 1);
    scene.tell(0, 7);  // no request gets it
    scene.end(1);
    scene.loop().run();
    EXPECT_TRUE(scene.told(0).empty());
    EXPECT_EQ(scene.told(1).size(), 5u);
}

// One request, read as often as a test says.
class ReadInParts : public testing::Test {
protected:
    ~ReadInParts() override {
        queue_->close();
        handle_->close();
    }
    void tell(TokenId token) const { request_->sink(0)(TokenUpdate{.token = token}); }
    // With an answer that it alone holds from now on.
    std::weak_ptr<const AnswerRow> tell_answer() const {
        const auto answer = std::make_shared<const AnswerRow>();
        request_->sink(0)(AcceptedUpdate{.recorded = answer});
        return answer;
    }
    // The loop does what there is to do: how many handlers.
    size_t poll() {
        loop_->restart();
        return loop_->poll();
    }
    // Begins to take updates, up to this token.
    void read_up_to(TokenId last) {
        asio::co_spawn(*loop_, read(last), [this](const std::exception_ptr& thrown) { thrown_ = thrown; });
    }
    asio::awaitable<void> read(TokenId last) {
        Bell::Timer timer(*loop_, Bell::Timer::time_point::max());
        const Updates::Taker taker = [&](std::vector<ChoiceUpdate>& some) {
            for (const ChoiceUpdate& one : some) taken_.push_back(std::get<TokenUpdate>(one.update).token);
            if (!taken_.empty() && taken_.back() < 0) throw std::runtime_error("no such token");
            return taken_.empty() || taken_.back() < last;
        };
        ends_.push_back(co_await request_->hand_on(timer, taker));
    }

    std::unique_ptr<asio::io_context> loop_ = std::make_unique<asio::io_context>(1);
    std::shared_ptr<LoopHandle> handle_ = std::make_shared<LoopHandle>(*loop_);
    std::shared_ptr<UpdateQueue> queue_ = std::make_shared<UpdateQueue>(handle_);
    std::shared_ptr<Updates> request_ = std::make_shared<Updates>(queue_, /*max_waiting=*/4, [] {});
    std::vector<TokenId> taken_;
    std::vector<Updates::Waited> ends_;
    std::exception_ptr thrown_;
};

constexpr auto kTakenEnough = Updates::Waited::kEnough;
constexpr auto kHasLeft = Updates::Waited::kGone;

TEST_F(ReadInParts, WhatCameBeforeTheReaderIsTakenAtOnce) {
    tell(1);
    poll();
    read_up_to(1);
    poll();
    EXPECT_THAT(taken_, testing::ElementsAre(1));
    EXPECT_THAT(ends_, testing::ElementsAre(kTakenEnough));
}

TEST_F(ReadInParts, AReaderWaitsForWhatComesBehindIt) {
    read_up_to(2);
    poll();
    tell(1);
    poll();
    EXPECT_THAT(taken_, testing::ElementsAre(1));
    EXPECT_TRUE(ends_.empty());
    tell(2);
    poll();
    EXPECT_THAT(ends_, testing::ElementsAre(kTakenEnough));
    read_up_to(3);  // another one behind it
    poll();
    EXPECT_EQ(ends_.size(), 1u);
    tell(3);
    poll();
    EXPECT_THAT(taken_, testing::ElementsAre(1, 2, 3));
    EXPECT_EQ(ends_.size(), 2u);
}

// More than is taken at once, then more.
TEST_F(ReadInParts, WhatIsTakenInPartsIsTakenOnce) {
    std::vector<TokenId> all;
    constexpr auto kMany = static_cast<TokenId>(2 * UpdateQueue::kMaxTaken + 5);
    read_up_to(3 * kMany);
    poll();
    for (TokenId token = 1; token <= 3 * kMany; ++token) {
        all.push_back(token);
        tell(token);
        if (token % kMany == 0) poll();
    }
    EXPECT_EQ(taken_, all);
    EXPECT_THAT(ends_, testing::ElementsAre(kTakenEnough));
}

TEST_F(ReadInParts, WhatATakerThrowsIsTheReaders) {
    read_up_to(9);
    poll();
    tell(-1);
    poll();
    EXPECT_TRUE(ends_.empty());
    ASSERT_TRUE(thrown_);
    EXPECT_THROW(std::rethrow_exception(thrown_), std::runtime_error);
    taken_.clear();
    tell(9);
    poll();
    read_up_to(9);
    poll();
    EXPECT_THAT(ends_, testing::ElementsAre(kTakenEnough));
}

// Whatever was taken of what had come.
TEST_F(ReadInParts, ARequestThatLeavesGetsNothingMore) {
    read_up_to(1000);
    poll();
    constexpr auto kMany = static_cast<TokenId>(UpdateQueue::kMaxTaken + 5);
    for (TokenId token = 1; token <= kMany; ++token) tell(token);
    loop_->poll_one();  // the first ones are taken, the others listed
    ASSERT_EQ(taken_.size(), UpdateQueue::kMaxTaken);
    const std::weak_ptr<const AnswerRow> before = tell_answer();
    EXPECT_FALSE(before.expired());
    request_->leave();
    EXPECT_TRUE(before.expired()) << "it holds what no client gets";
    EXPECT_TRUE(tell_answer().expired());
    poll();
    EXPECT_EQ(taken_.size(), UpdateQueue::kMaxTaken);
    EXPECT_THAT(ends_, testing::ElementsAre(kHasLeft));
}

TEST_F(ReadInParts, AQueueThatIsClosedKeepsNothing) {
    const std::weak_ptr<Updates> request = request_;
    tell(1);
    queue_->close();
    EXPECT_TRUE(tell_answer().expired());
    request_.reset();
    EXPECT_TRUE(request.expired()) << "it is listed no more";
    EXPECT_EQ(poll(), 1u) << "the wake-up finds nothing";
    queue_ = std::make_shared<UpdateQueue>(handle_);  // for the scene's end
}

TEST_F(ReadInParts, AClientMayHaveAsMuchToTakeAsItsRequestMayHoldBack) {
    read_up_to(9);
    poll();
    request_->set_writing(true);
    for (TokenId token = 1; token <= 4; ++token) tell(token);
    poll();
    EXPECT_FALSE(request_->gone());
    for (TokenId token = 5; token <= 9; ++token) tell(token);
    poll();
    EXPECT_TRUE(request_->gone());
    EXPECT_THAT(ends_, testing::ElementsAre(kHasLeft));
}

// A reminder comes a second behind the last update, and the next a second behind it.
TEST_F(ReadInParts, SilenceBeginsAtTheLastUpdateOrReminder) {
    using std::chrono::milliseconds;
    using std::chrono::steady_clock;
    Bell::Timer timer(*loop_, Bell::Timer::time_point::max());
    request_->remind(timer, std::chrono::seconds(1));
    read_up_to(9);
    size_t num_handlers = loop_->run_for(milliseconds(100));
    const steady_clock::time_point told = steady_clock::now();
    tell(1);
    for (size_t silences = 1; silences <= 2; ++silences) {
        while (ends_.size() < silences && steady_clock::now() - told < std::chrono::seconds(60))
            num_handlers += loop_->run_for(milliseconds(20));
        ASSERT_EQ(ends_.size(), silences);
        EXPECT_EQ(ends_.back(), Updates::Waited::kSilent);
        EXPECT_GE(steady_clock::now() - told, std::chrono::seconds(silences));
        read_up_to(9);
    }
    EXPECT_LT(num_handlers, 20u) << "the loop sleeps meanwhile";
    request_->stop_reminding();
    request_->leave();
    timer.cancel();
    poll();
}

}  // namespace
}  // namespace verbatim::tests
