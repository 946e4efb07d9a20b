#include "server/http/updates.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {

namespace asio = boost::asio;

asio::awaitable<void> Bell::wait(Timer& timer) {
    CHECK(timer_ == nullptr, "two wait for one bell");
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

UpdateQueue::UpdateQueue(std::shared_ptr<LoopHandle> loop) : loop_(std::move(loop)) {}

void UpdateQueue::put(const std::shared_ptr<Updates>& updates, ChoiceUpdate update) {
    {
        const std::lock_guard lock(mutex_);
        if (is_closed_ || updates->is_closed_) return;
        updates->come_.push_back(std::move(update));
        if (!list(updates)) return;
    }
    post_wake_up();
}

bool UpdateQueue::list(const std::shared_ptr<Updates>& updates) {
    if (!std::exchange(updates->is_listed_, true)) listed_.push_back(updates);
    return !std::exchange(is_waking_, true);
}

void UpdateQueue::post_wake_up() {
    loop_->post([this] { wake_some(); });
}

// The others come behind whatever has come to the loop meanwhile.
void UpdateQueue::wake_some() {
    CHECK(woken_.empty(), "{} are being woken", woken_.size());
    bool are_more = false;
    {
        const std::lock_guard lock(mutex_);
        CHECK(is_waking_ || is_closed_, "a wake-up that was not asked for");
        for (; !listed_.empty() && woken_.size() < kMaxWoken; listed_.pop_front()) {
            Updates& next = *listed_.front();
            CHECK(next.is_listed_, "an update's request is woken and was not listed");
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
    CHECK(!std::exchange(is_closed_, true), "the queue is closed twice");
    listed_.clear();
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
    if (taker_ == nullptr) {
        is_awake_ = true;
        return;
    }
    try {
        if (hand_some_on(*taker_)) return;
        has_enough_ = true;
    } catch (...) {  // it is the coroutine's
        thrown_ = std::current_exception();
    }
    taker_ = nullptr;
    bell_.ring();
}

asio::awaitable<Updates::Waited> Updates::hand_on(Bell::Timer& timer, const Taker& take) {
    has_enough_ = std::exchange(is_awake_, false) && !hand_some_on(take);
    while (true) {
        if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
        if (gone_) co_return Waited::kGone;
        if (has_enough_) co_return Waited::kEnough;
        if (std::exchange(is_silent_, false)) co_return Waited::kSilent;
        CHECK(taker_ == nullptr, "two take of one request's updates");
        taker_ = &take;
        co_await bell_.wait(timer);
        taker_ = nullptr;
    }
}

bool Updates::hand_some_on(const Taker& take) {
    take_some();
    return some_.empty() || take(some_);
}

// What is too much for once waits for its turn again.
void Updates::take_some() {
    some_.clear();
    const std::lock_guard lock(queue_->mutex_);
    if (num_taken_ == 0 && come_.size() <= UpdateQueue::kMaxTaken) return come_.swap(some_);
    CHECK_LE(num_taken_, come_.size());
    const size_t end = std::min(come_.size(), num_taken_ + UpdateQueue::kMaxTaken);
    while (num_taken_ < end) some_.push_back(std::move(come_[num_taken_++]));
    if (num_taken_ < come_.size()) {
        if (queue_->list(shared_from_this())) queue_->post_wake_up();
        return;
    }
    come_.clear();
    num_taken_ = 0;
}

void Updates::remind(Bell::Timer& timer, std::chrono::seconds limit) {
    CHECK_GT(limit.count(), 0);
    reminds_ = true;
    timer.expires_at(last_ + limit);
    timer.async_wait([weak = weak_from_this(), &timer, limit](boost::system::error_code problem) {
        const std::shared_ptr<Updates> self = problem ? nullptr : weak.lock();
        if (!self || !self->reminds_) return;
        if (std::chrono::steady_clock::now() >= self->last_ + limit) {
            self->is_silent_ = true;
            self->last_ = std::chrono::steady_clock::now();
            self->bell_.ring();
        }
        self->remind(timer, limit);
    });
}

}  // namespace verbatim::server
