#include "server/http/starts.h"

#include "engine/base/check.h"

namespace verbatim::server {

namespace asio = boost::asio;

asio::awaitable<void> Starts::wait_for_turn() {
    look_again();
    if (waiting_.empty() && num_started_ < kMaxStarted) {
        ++num_started_;
        co_return;
    }
    const auto waiting = std::make_shared<Waiting>();
    waiting_.push_back(waiting);
    CHECK(is_looking_, "{} wait, and nothing lets them begin", waiting_.size());
    while (!waiting->may_begin) co_await waiting->bell.wait();
}

// Behind whatever has come to the loop by then.
void Starts::look_again() {
    if (std::exchange(is_looking_, true)) return;
    asio::post(loop_, [this] { start_some(); });
}

void Starts::start_some() {
    CHECK(is_looking_, "a look that was not asked for");
    is_looking_ = false;
    num_started_ = 0;
    for (; !waiting_.empty() && num_started_ < kMaxStarted; ++num_started_) {
        waiting_.front()->may_begin = true;
        waiting_.front()->bell.ring();
        waiting_.pop_front();
    }
    CHECK(waiting_.empty() || num_started_ == kMaxStarted, "{} wait, {} began", waiting_.size(), num_started_);
    if (num_started_ > 0) look_again();
}

}  // namespace verbatim::server
