#include "reference/worker_pool.h"

#include "engine/base/check.h"
#include "reference/numerics/float_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace verbatim::reference {
namespace {

// A share: the loop's number above 20 bits for the first part left and 20 for the end.
constexpr int kPartBits = 20;
constexpr int64_t kMaxParts = (int64_t{1} << kPartBits) - 1;
constexpr uint64_t kPartMask = kMaxParts;
constexpr uint64_t kOnePart = uint64_t{1} << kPartBits;  // taken from the front

constexpr uint64_t begin_of(uint64_t share) { return share >> kPartBits & kPartMask; }
constexpr uint64_t end_of(uint64_t share) { return share & kPartMask; }
constexpr uint64_t without_parts(uint64_t share) { return share >> (2 * kPartBits); }
constexpr uint64_t share_of(uint32_t loop, int64_t begin, int64_t end) {
    return uint64_t{loop} << (2 * kPartBits) | static_cast<uint64_t>(begin) << kPartBits | static_cast<uint64_t>(end);
}

// Polls before sleeping: 40 to 140 processor cycles each, about 50 us together. Longer than the serial work between two
// loops of a step, and too short to matter to other programs.
constexpr int kLooks = 3000;

thread_local int32_t this_thread_index = 0;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

WorkerPool::WorkerPool(int32_t num_threads) : shares_(std::max(num_threads, 0)) {
    CHECK_GT(num_threads, 0);
    try {
        for (int32_t i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (...) {
        stop();
        throw;
    }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
    stop_ = true;
    ++loop_;
    loop_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

int32_t WorkerPool::thread_index() { return this_thread_index; }

void WorkerPool::run(int64_t num_parts, PartFunction function, const void* body) {
    if (threads_.empty() || num_parts <= 1) {
        for (int64_t i = 0; i < num_parts; ++i) function(body, i);
        return;
    }
    CHECK(function_ == nullptr, "two loops at a time");
    function_ = function;
    body_ = body;
    for (first_part_ = 0; first_part_ < num_parts; first_part_ += kMaxParts) {
        run_side_by_side(std::min(kMaxParts, num_parts - first_part_));
    }
    function_ = nullptr;
}

void WorkerPool::run_side_by_side(int64_t num_parts) {
    CHECK(num_parts > 0 && num_parts <= kMaxParts, "{} parts", num_parts);
    num_done_.store(0, std::memory_order_relaxed);
    num_parts_ = static_cast<uint32_t>(num_parts);
    const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
    const auto num_shares = static_cast<int64_t>(shares_.size());
    for (int64_t i = 0; i < num_shares; ++i) {
        const int64_t begin = num_parts * i / num_shares;
        const int64_t end = num_parts * (i + 1) / num_shares;
        shares_[i].left.store(share_of(loop, begin, end), std::memory_order_release);
    }
    loop_.store(loop);
    loop_.notify_all();
    while (take_part(loop)) {
    }
    int looks = 0;
    for (uint32_t done = num_done_.load(std::memory_order_acquire); done != num_parts;
         done = num_done_.load(std::memory_order_acquire)) {
        ++looks < kLooks ? pause() : num_done_.wait(done, std::memory_order_acquire);
    }
}

// One part of the loop, if any is left: own ones from the first on, others' from their end. Parts of the next
// loop are not taken before all of them are there.
bool WorkerPool::take_part(uint32_t loop) {
    const auto num_shares = static_cast<int32_t>(shares_.size());
    for (int32_t i = 0; i < num_shares; ++i) {
        if (take_part_of(shares_[(this_thread_index + i) % num_shares], loop, i == 0)) return true;
    }
    return false;
}

bool WorkerPool::take_part_of(Share& share, uint32_t loop, bool own) {
    uint64_t left = share.left.load(std::memory_order_acquire);
    do {
        const bool of_loop = without_parts(left) == without_parts(share_of(loop, 0, 0));
        if (!of_loop || begin_of(left) == end_of(left)) return false;
    } while (!share.left.compare_exchange_weak(left, own ? left + kOnePart : left - 1, std::memory_order_acquire));
    function_(body_, first_part_ + static_cast<int64_t>(own ? begin_of(left) : end_of(left) - 1));
    const uint32_t num_parts = num_parts_;  // before the loop may end
    if (num_done_.fetch_add(1, std::memory_order_release) + 1 == num_parts) num_done_.notify_one();
    return true;
}

void WorkerPool::wait_for_loop(uint32_t seen) {
    for (int looks = 0; looks < kLooks; ++looks) {
        if (loop_.load(std::memory_order_acquire) != seen) return;
        pause();
    }
    loop_.wait(seen, std::memory_order_acquire);
}

void WorkerPool::work(int32_t index) {
    assert_float_environment();
    this_thread_index = index;
    uint32_t seen = 0;
    while (!stop_) {
        wait_for_loop(seen);
        seen = loop_.load(std::memory_order_acquire);
        while (take_part(seen)) {
        }
    }
}

}  // namespace verbatim::reference
