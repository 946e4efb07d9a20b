#include "reference/worker_pool.h"

#include "engine/base/check.h"
#include "reference/numerics/float_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace verbatim::reference {
namespace {

// A ticket: the loop's number above 20 bits for the number of parts and 20 for those that are taken.
constexpr int kPartBits = 20;
constexpr int64_t kMaxParts = (int64_t{1} << kPartBits) - 1;
constexpr uint64_t kPartMask = kMaxParts;

constexpr uint64_t num_parts_of(uint64_t ticket) { return ticket >> kPartBits & kPartMask; }
constexpr uint64_t num_taken_of(uint64_t ticket) { return ticket & kPartMask; }
constexpr uint64_t ticket_of(uint32_t loop, int64_t num_parts) {
    return uint64_t{loop} << (2 * kPartBits) | static_cast<uint64_t>(num_parts) << kPartBits;
}

// Looks before sleeping: 40 to 140 processor cycles each, 50 us or so together. Longer than the serial work between
// two loops of a step, shorter than anybody would mind.
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

WorkerPool::WorkerPool(int32_t num_threads) {
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
    function_ = function;
    body_ = body;
    for (first_part_ = 0; first_part_ < num_parts; first_part_ += kMaxParts) {
        run_side_by_side(std::min(kMaxParts, num_parts - first_part_));
    }
}

void WorkerPool::run_side_by_side(int64_t num_parts) {
    num_done_.store(0, std::memory_order_relaxed);
    const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
    ticket_.store(ticket_of(loop, num_parts), std::memory_order_release);
    loop_.store(loop);
    loop_.notify_all();
    while (take_part()) {
    }
    int looks = 0;
    for (uint32_t done = num_done_.load(std::memory_order_acquire); done != num_parts;
         done = num_done_.load(std::memory_order_acquire)) {
        ++looks < kLooks ? pause() : num_done_.wait(done, std::memory_order_acquire);
    }
}

// One part of the loop in progress, if any is left.
bool WorkerPool::take_part() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    do {
        if (num_taken_of(ticket) == num_parts_of(ticket)) return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acquire));
    function_(body_, first_part_ + static_cast<int64_t>(num_taken_of(ticket)));
    const uint64_t done = num_done_.fetch_add(1, std::memory_order_release) + 1;
    if (done == num_parts_of(ticket)) num_done_.notify_one();
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
    while (!stop_) {
        const uint32_t seen = loop_.load(std::memory_order_acquire);
        if (!take_part()) wait_for_loop(seen);
    }
}

}  // namespace verbatim::reference
