#include "server/http/updates.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::server {

namespace asio = boost::asio;

asio::awaitable<void> Bell::wait(Timer& timer) {
    timer_ = &timer;
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    timer_ = nullptr;
}

asio::awaitable<void> Bell::wait() {
    Timer timer(co_await asio::this_coro::executor, Timer::time_point::max());
    co_await wait(timer);
}

// --- the queue

UpdateQueue::UpdateQueue(asio::io_context& loop) : wake_up_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    const int same = wake_up_ < 0 ? -1 : dup(wake_up_);
    CHECK(same >= 0, "no file is left for the sockets' thread to be woken by");
    woken_by_.emplace(loop, same);
    wait_for_wake_up();
}

UpdateQueue::~UpdateQueue() { ::close(wake_up_); }

void UpdateQueue::wait_for_wake_up() {
    const auto count = asio::buffer(&num_wake_ups_, sizeof num_wake_ups_);
    woken_by_->async_read_some(count, [this](boost::system::error_code problem, size_t) {
        if (problem) return;
        wake_some();
        wait_for_wake_up();
    });
}

void UpdateQueue::put(const std::shared_ptr<Updates>& updates, ChoiceUpdate update) {
    {
        const std::lock_guard lock(mutex_);
        if (is_closed_ || updates->is_closed_) return;
        updates->come_.push_back(std::move(update));
        if (!list(updates)) return;
    }
    const uint64_t one = 1;
    const ssize_t written = write(wake_up_, &one, sizeof one);
    CHECK_EQ(written, static_cast<ssize_t>(sizeof one));
}

bool UpdateQueue::list(const std::shared_ptr<Updates>& updates) {
    if (!std::exchange(updates->is_listed_, true)) listed_.push_back(updates);
    return !std::exchange(is_waking_, true);
}

void UpdateQueue::post_wake_up() {
    asio::post(woken_by_->get_executor(), [this] { wake_some(); });
}

// The others come behind whatever has come to the loop meanwhile.
void UpdateQueue::wake_some() {
    bool are_more = false;
    {
        const std::lock_guard lock(mutex_);
        for (; !listed_.empty() && woken_.size() < kMaxWoken; listed_.pop_front()) {
            Updates& next = *listed_.front();
            next.is_listed_ = false;
            woken_.push_back({std::move(listed_.front()), next.num_come() > next.max_waiting_});
        }
        are_more = is_waking_ = !listed_.empty();
    }
    for (const Woken& one : woken_) {
        if (one.is_behind && one.updates->writing_)
            one.updates->leave();
        else
            one.updates->wake();
    }
    woken_.clear();
    if (are_more) post_wake_up();
}

void UpdateQueue::close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    listed_.clear();
    woken_by_.reset();
}

// --- one request

EngineHost::Sink Updates::sink(size_t choice) {
    return [self = shared_from_this(), choice](HostUpdate update) {
        self->queue_->put(self, {choice, std::move(update)});
    };
}

void Updates::leave() {
    if (std::exchange(gone_, true)) return;
    give_up_();
    {
        const std::lock_guard lock(queue_->mutex_);
        is_closed_ = true;
        come_.clear();
        num_taken_ = 0;
    }
    bell_.ring();
}

void Updates::wake() {
    last_ = std::chrono::steady_clock::now();
    is_awake_ = true;
    bell_.ring();
}

asio::awaitable<void> Updates::next(Bell::Timer& timer, std::vector<ChoiceUpdate>& some) {
    some.clear();
    while (some.empty() && !gone_ && !std::exchange(is_silent_, false)) {
        if (std::exchange(is_awake_, false))
            take(some);
        else
            co_await bell_.wait(timer);
    }
}

// What is too much for once waits for its turn again.
void Updates::take(std::vector<ChoiceUpdate>& some) {
    const std::lock_guard lock(queue_->mutex_);
    if (num_taken_ == 0 && come_.size() <= UpdateQueue::kMaxTaken) return come_.swap(some);
    const size_t end = std::min(come_.size(), num_taken_ + UpdateQueue::kMaxTaken);
    while (num_taken_ < end) some.push_back(std::move(come_[num_taken_++]));
    if (num_taken_ < come_.size()) {
        if (queue_->list(shared_from_this())) queue_->post_wake_up();
        return;
    }
    come_.clear();
    num_taken_ = 0;
}

void Updates::remind(Bell::Timer& timer, std::chrono::seconds limit) {
    reminds_ = true;
    timer.expires_at(last_ + limit);
    timer.async_wait([weak = weak_from_this(), &timer, limit](boost::system::error_code problem) {
        const std::shared_ptr<Updates> self = problem ? nullptr : weak.lock();
        if (!self || !self->reminds_) return;
        if (std::chrono::steady_clock::now() >= self->last_ + limit) {
            self->is_silent_ = true;
            self->wake();
        }
        self->remind(timer, limit);
    });
}

}  // namespace verbatim::server
