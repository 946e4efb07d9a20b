// Emulator: mbarriers, and agents: bulk copies and multiplications on tensor cores.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/emulator.h"

namespace verbatim::simt {
namespace {

using State = EmulatedThread::State;

// Agent numbers from kFirstAgent on: one for each barrier, each multiplying warp, and each storing thread.
constexpr int32_t kMaxBarriers = 256;
constexpr int32_t kFirstMultiplying = kFirstAgent + kMaxBarriers;
constexpr int32_t kFirstStoring = kFirstMultiplying + 32;

}  // namespace

// --- vector clocks

// From now on the block's threads keep vector clocks.
void Emulator::enable_clocks() {
    if (uses_clocks_) return;
    uses_clocks_ = true;
    for (int32_t i = 0; i < num_threads_; ++i) {
        threads_[i]->async.knowledge.is_cooperative = limits_.is_cooperative || has_clusters();
        threads_[i]->moment.knowledge = &threads_[i]->async.knowledge;
    }
}

// Publishes the thread's latest epoch in its clock, so that other threads can join it.
void Emulator::publish_clock(EmulatedThread& thread) {
    enable_clocks();
    CHECK(thread.moment.knowledge == &thread.async.knowledge, "thread {} has another thread's clock", thread.index);
    VectorClock& known = thread.async.knowledge.known;
    const int32_t first = thread.index / kWarpSize * kWarpSize;
    for (int32_t lane = 0; lane < kWarpSize; ++lane) {
        if (first + lane < num_threads_) known.raise(first + lane, thread.moment.seen[lane]);
    }
    known.raise(thread.index, ++thread.moment.warp_epoch);
    thread.async.knowledge.unsafe_from = std::max(thread.async.knowledge.unsafe_from, thread.moment.unsafe_from);
}

void Emulator::learn(EmulatedThread& thread, const Knowledge& knowledge) {
    thread.moment.unsafe_from = std::max(thread.moment.unsafe_from, knowledge.unsafe_from);
    if (uses_clocks_) thread.async.knowledge.join(knowledge);
}

// REQUIRES: `joint` has joined the thread's clock.
void Emulator::share(EmulatedThread& thread, const Knowledge& joint) {
    thread.moment.unsafe_from = std::max(thread.moment.unsafe_from, joint.unsafe_from);
    if (!uses_clocks_) return;
    CHECK_GE(joint.known.at(thread.index), thread.async.knowledge.known.at(thread.index));
    thread.async.knowledge = joint;
}

// An agent of the running thread: it starts with the thread's clock.
Now Emulator::agent(int32_t number, uint32_t epoch) {
    CHECK_GE(number, kFirstAgent);
    enable_clocks();
    Now now = running_->moment;
    now.thread = number;
    now.warp_epoch = epoch;
    return now;
}

void Emulator::fence_async() {
    publish_clock(*running_);
    Knowledge& knowledge = running_->async.knowledge;
    knowledge.fenced = knowledge.known;  // K3
    knowledge.fenced_blocks = std::max(knowledge.fenced_blocks, running_->moment.block_epoch);
}

// Also the barriers that the thread has initialised: the cluster's next arrival shows them to its blocks.
void Emulator::fence_barrier_init() {
    fence_async();
    for (auto& [key, barrier] : barriers_)
        barrier.is_published |= barrier.wanted > 0 && barrier.initialised.thread == running_->index;
}

void Emulator::wait_previous(Place where) {
    if (is_skipped("wait_previous", where)) return;
    CHECK_LE(running_->moment.unsafe_from, launch_);
    running_->moment.unsafe_from = launch_;
    waits_for_previous_ = true;
}

// --- barriers

EmulatedBarrier& Emulator::barrier(const void* key, int32_t i) { return barrier_in(barriers_, block_index_, {key, i}); }

EmulatedBarrier& Emulator::barrier_of(int32_t block, const void* key) {
    return block == block_index_ ? barrier(key, 0) : barrier_in(parked_block(block).barriers, block, {key, 0});
}

EmulatedBarrier& Emulator::barrier_in(Barriers& barriers, int32_t block, std::pair<const void*, int32_t> key) {
    CHECK(block >= 0 && key.first != nullptr, "a barrier of no block, or without a key");
    const auto [place, fresh] = barriers.try_emplace(key);
    if (fresh) {
        CHECK_LE(barriers.size(), size_t{kMaxBarriers});
        place->second.block = block;
        place->second.agent = kFirstAgent + static_cast<int32_t>(barriers.size()) - 1;
    }
    return place->second;
}

void Emulator::barrier_init(EmulatedBarrier& barrier, int32_t arrivals, Place where) {
    enable_clocks();
    CHECK_GE(arrivals, 1);
    if (barrier.wanted != 0) {
        found(FindingKind::kBarrierUse, fmt::format("a barrier is initialised again ({})", text_of(where)));
    }
    barrier.wanted = arrivals;
    barrier.initialised = running_->moment;
    barrier.is_published = false;
    barrier.seen_from = 0;
}

void Emulator::barrier_invalidate(EmulatedBarrier& barrier, Place where) {
    if (!is_usable(barrier, where)) return;
    barrier.wanted = barrier.arrivals = 0;
    barrier.expected_bytes = barrier.copied_bytes = 0;
    barrier.arriving = {};
    // Its first phase has parity 0 again, and comes after all phases before.
    barrier.phase += barrier.phase & 1;
}

void Emulator::overwrite(const std::byte* address, size_t num_bytes) {
    constexpr size_t kBytes = 8;  // of a barrier
    for (auto at = barriers_.lower_bound({address - (kBytes - 1), 0});
         at != barriers_.end() && at->first.first < address + num_bytes; ++at) {
        if (at->second.wanted == 0) continue;
        found(FindingKind::kBarrierUse, "an initialised barrier is written over: mbarrier.inval ends its use");
    }
}

bool Emulator::is_not_yet(const EmulatedBarrier& barrier, uint32_t parity) {
    const int64_t runs = barrier.phase;
    if (barrier.wanted == 0 || (runs & 1) != int64_t{parity & 1}) return false;
    const auto [asked, is_first] = running_->async.asked.try_emplace(&barrier, runs);
    return is_first || std::exchange(asked->second, runs) != runs;
}

bool Emulator::is_usable(const EmulatedBarrier& barrier, Place where) {
    if (barrier.wanted == 0) {
        found(FindingKind::kUninitialised,
              fmt::format("a barrier is used that has no initialisation ({})", text_of(where)));
        return false;
    }
    if (comes_before(barrier.initialised, running_->moment) || is_seen_by_cluster(barrier)) return true;
    found(FindingKind::kRace,
          fmt::format("a barrier is used with nothing between it and its initialisation ({})", text_of(where)));
    return true;
}

void Emulator::barrier_arrive(EmulatedBarrier& barrier, int64_t expected_bytes, Place where) {
    enable_clocks();
    if (!is_usable(barrier, where)) return;
    if (barrier.arrivals == barrier.wanted) {
        return found(FindingKind::kBarrierUse, fmt::format("phase {} of a barrier has all its {} arrivals already ({})",
                                                           barrier.phase, barrier.wanted, text_of(where)));
    }
    publish_clock(*running_);
    barrier.arriving.join(knowledge_in(barrier.block));
    barrier.expected_bytes += expected_bytes;
    ++barrier.arrivals;
    const bool has_copies = barrier.expected_bytes > 0 || !barrier.copies.empty();
    if (barrier.arrivals < barrier.wanted || has_copies) return;
    if (barrier.block == block_index_) return complete_phase(barrier);
    in_block(barrier.block, [&] { complete_phase(barrier); });
}

void Emulator::barrier_drop(EmulatedBarrier& barrier, Place where) {
    if (barrier.wanted > 0 && barrier.leaving == barrier.wanted) {
        return found(FindingKind::kBarrierUse,
                     fmt::format("all {} participants of a barrier have left it ({})", barrier.wanted, text_of(where)));
    }
    ++barrier.leaving;
    barrier_arrive(barrier, 0, where);
}

// Phase n is complete when the parity of the current phase differs from n's; the phase before phase 0 has parity 1.
void Emulator::barrier_wait(EmulatedBarrier& barrier, uint32_t parity, Place where, WaitAgain again) {
    if (is_skipped("wait", where)) return;
    enable_clocks();
    if (!is_usable(barrier, where)) return;
    const int64_t runs = barrier.phase;
    const int64_t wanted = (runs & 1) == int64_t{parity & 1} ? runs : runs - 1;
    const auto [last, is_first] = running_->async.phases.try_emplace(&barrier, wanted);
    if (again == WaitAgain::kFound && !is_first && last->second >= wanted) {
        found(FindingKind::kBarrierUse, fmt::format("phase {} of a barrier is waited for again, by parity {} ({})",
                                                    wanted, parity, text_of(where)));
    }
    last->second = wanted;
    if (wanted < runs) return learn(*running_, barrier.passed);
    running_->barrier = &barrier;
    running_->where = where;
    wait(State::kAtBarrier);
}

// All arrivals and bytes of the phase are there: copies land, and waiting threads join the clocks of the arrivals.
void Emulator::complete_phase(EmulatedBarrier& barrier) {
    CHECK_EQ(barrier.block, block_index_);
    landing_ = Moment{launch_, block_index_, barrier.agent, 0, barrier.phase, 0};
    for (const auto& copy : std::exchange(barrier.copies, {})) copy();
    landing_.reset();
    barrier.passed.join(std::exchange(barrier.arriving, {}));
    barrier.passed.known.raise(barrier.agent, ++barrier.phase);
    barrier.arrivals = 0;
    barrier.wanted -= std::exchange(barrier.leaving, 0);
    barrier.expected_bytes = barrier.copied_bytes = 0;
    for (int32_t i = 0; i < num_threads_; ++i) {
        EmulatedThread& thread = *threads_[i];
        if (thread.state != State::kAtBarrier || thread.barrier != &barrier) continue;
        go_on(thread);
        learn(thread, barrier.passed);
    }
}

// The last legal moment for copies to land: a thread waits for them, and no thread can run.
bool Emulator::release_barriers() {
    for (int32_t i = 0; i < num_threads_; ++i) {
        EmulatedThread& thread = *threads_[i];
        if (thread.state != State::kAtBarrier) continue;
        CHECK(thread.barrier != nullptr, "thread {} waits at no barrier", i);
        auto& barrier = const_cast<EmulatedBarrier&>(*thread.barrier);  // an element of barriers_
        if (barrier.arrivals < barrier.wanted || barrier.copied_bytes < barrier.expected_bytes) continue;
        if (barrier.copied_bytes > barrier.expected_bytes) {
            running_ = &thread;
            found(FindingKind::kBarrierUse,
                  fmt::format("phase {} of a barrier expects {} bytes, {} are copied ({})", barrier.phase,
                              barrier.expected_bytes, barrier.copied_bytes, text_of(thread.where)));
        }
        complete_phase(barrier);
        return true;
    }
    return false;
}

// --- copies

Now Emulator::copying(EmulatedBarrier& barrier, Place where) {
    enable_clocks();
    const Now agent = agent_of(barrier);
    if (is_usable(barrier, where) && !is_fenced(barrier.initialised, agent) && !is_seen_by_cluster(barrier)) {
        found(FindingKind::kMissingFence,
              fmt::format("a copy signals a barrier with no fence_async() between it and its "
                          "initialisation ({})",
                          text_of(where)));
    }
    return agent;
}

void Emulator::copy_until(EmulatedBarrier& barrier, int64_t num_bytes, std::function<void()> copy) {
    CHECK(num_bytes >= 0 && copy, "a copy of {} bytes", num_bytes);
    barrier.copied_bytes += num_bytes;
    barrier.copies.push_back(std::move(copy));
}

void Emulator::copies_arrive(EmulatedBarrier& barrier, CopiesArrive how, Place where) {
    enable_clocks();
    if (!is_usable(barrier, where)) return;
    for (auto& group : running_->copy_groups) {
        for (auto& copy : std::exchange(group, {})) copy_until(barrier, 0, std::move(copy));
    }
    for (auto& copy : std::exchange(running_->open_copies, {})) copy_until(barrier, 0, std::move(copy));
    if (how == CopiesArrive::kCounted) return barrier_arrive(barrier, 0, where);
    publish_clock(*running_);
    barrier.arriving.join(running_->async.knowledge);
}

Now Emulator::storing() {
    const ThreadAsync& async = running_->async;
    const auto pending = static_cast<uint32_t>(async.store_groups.size());
    return agent(kFirstStoring + running_->index, async.stores_done + pending);
}

void Emulator::commit_stores() {
    running_->async.store_groups.push_back(std::exchange(running_->async.open_stores, {}));
}

void Emulator::wait_stores(size_t num_pending, Place where) {
    if (is_skipped("wait_bulk", where)) return;
    ThreadAsync& async = running_->async;
    while (async.store_groups.size() > num_pending) {
        for (const auto& store : async.store_groups.front()) store();
        async.store_groups.erase(async.store_groups.begin());
        ++async.stores_done;
    }
    async.knowledge.known.raise(kFirstStoring + running_->index, async.stores_done);
}

// An operation in flight at a block's end would touch memory that another block uses by then.
void Emulator::check_block_end() {
    const bool copies = std::ranges::any_of(barriers_, [](const auto& entry) { return !entry.second.copies.empty(); });
    if (copies) {
        running_ = threads_[0].get();
        found(FindingKind::kNotAwaited, "a copy to shared memory is under way when its block ends");
    }
    for (int32_t i = 0; i < num_threads_; ++i) {
        CHECK(threads_[i]->state == State::kDone, "thread {} runs behind its block's end", i);
        const ThreadAsync& async = threads_[i]->async;
        if (async.store_groups.empty() && async.open_stores.empty()) continue;
        running_ = threads_[i].get();
        found(FindingKind::kNotAwaited, "it ends while its stores from shared memory are under way");
    }
}

// --- named barriers

void Emulator::named_barrier(int32_t named, int32_t num_threads, Place where) {
    if (is_skipped("named_barrier", where)) return;
    enable_clocks();
    CHECK(named >= 1 && named <= 15, "named barrier {}: there are 1 to 15", named);
    CHECK(num_threads > 0 && num_threads % kWarpSize == 0, "a named barrier of {} threads", num_threads);
    end_named_phase(named);
    running_->named = named;
    running_->named_threads = num_threads;
    running_->where = where;
    wait(State::kAtNamed);
}

void Emulator::named_arrive(int32_t named, int32_t num_threads) {
    CHECK(named >= 1 && named <= 15, "named barrier {}: there are 1 to 15", named);
    CHECK(num_threads > 0 && num_threads % kWarpSize == 0, "a named barrier of {} threads", num_threads);
    end_named_phase(named);
    publish_clock(*running_);
    NamedArrivals& arrived = named_.at(static_cast<size_t>(named));
    arrived.knowledge.join(running_->async.knowledge);
    arrived.threads = num_threads;
    if (++arrived.count == num_threads) arrived = {};  // no thread waits
}

// A thread that does not wait may come to the next phase before the scheduler has ended this one.
void Emulator::end_named_phase(int32_t named) {
    if (named_.at(static_cast<size_t>(named)).count == 0) return;
    EmulatedThread* const running = running_;
    CHECK(running != nullptr, "no thread has come to barrier {}", named);
    while (release_named()) {
    }
    running_ = running;
}

bool Emulator::release_named() {
    std::vector<EmulatedThread*> here[16];
    for (int32_t i = 0; i < num_threads_; ++i) {
        if (threads_[i]->state == State::kAtNamed) here[threads_[i]->named].push_back(threads_[i].get());
    }
    for (const auto& threads : here) {
        if (threads.empty()) continue;
        const NamedArrivals arrived = named_[static_cast<size_t>(threads[0]->named)];
        const auto num_here = std::ssize(threads) + arrived.count;
        if (num_here < threads[0]->named_threads) continue;
        named_[static_cast<size_t>(threads[0]->named)] = {};
        running_ = threads[0];
        const bool fits = std::ranges::all_of(
            threads, [&](const EmulatedThread* thread) { return thread->named_threads == num_here; });
        if (!fits || (arrived.count > 0 && arrived.threads != num_here)) {
            const std::string arrivals =
                arrived.count == 0 ? "" : fmt::format(", {} have arrived for {}", arrived.count, arrived.threads);
            found(FindingKind::kBarrierUse,
                  fmt::format("named barrier {} is for {} threads, and {} wait in it{} ({})", running_->named,
                              running_->named_threads, threads.size(), arrivals, text_of(running_->where)));
        }
        Knowledge joint = arrived.knowledge;
        for (EmulatedThread* thread : threads) {
            go_on(*thread);
            publish_clock(*thread);
            joint.join(thread->async.knowledge);
        }
        for (EmulatedThread* thread : threads) share(*thread, joint);
        return true;
    }
    return false;
}

// --- warpgroups and their multiplications

void Emulator::group_together(GroupFunction function, void* part, Place where) {
    CHECK(function != nullptr);
    running_->group_function = function;
    running_->part = part;
    running_->where = where;
    wait(State::kAtGroup);
}

bool Emulator::release_groups() {
    bool released = false;
    for (int32_t first = 0; first + kWarpgroupSize <= num_threads_; first += kWarpgroupSize) {
        const auto group = std::span(threads_).subspan(static_cast<size_t>(first), kWarpgroupSize);
        const EmulatedThread& leader = *group[0];
        const bool together = std::ranges::all_of(group, [&](const auto& thread) {
            return thread->state == State::kAtGroup && thread->group_function == leader.group_function &&
                   thread->where.line() == leader.where.line() && thread->where.column() == leader.where.column();
        });
        if (!together) continue;
        std::vector<void*> parts;
        for (const auto& thread : group) parts.push_back(thread->part);
        leader.group_function(parts);
        for (const auto& thread : group) go_on(*thread);
        released = true;
    }
    return released;
}

Now Emulator::multiplying() {
    return agent(kFirstMultiplying + running_->index / kWarpSize, running_->async.groups + 1);
}

// The oldest groups except for the last num_pending are complete for this warp.
void Emulator::wait_multiplications(uint32_t num_pending, Place where) {
    if (is_skipped("wait_multiply", where)) return;
    enable_clocks();
    ThreadAsync& async = running_->async;
    if (async.groups > num_pending) async.done = std::max(async.done, async.groups - num_pending);
    CHECK_LE(async.done, async.groups);
    async.knowledge.known.raise(kFirstMultiplying + running_->index / kWarpSize, async.done + 1);
}

// --- deadlocks

// Reports the first thread that waits in one of these operations, once.
bool Emulator::report_async_deadlock() {
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    auto found_at = std::ranges::find_if(
        all, [](const auto& thread) { return thread->state == State::kAtGroup || thread->state == State::kAtNamed; });
    // If only bytes are missing, the other waits depend on this one: a circular wait on barriers.
    if (found_at == all.end()) {
        found_at = std::ranges::find_if(all, [](const auto& thread) {
            return thread->state == State::kAtBarrier && thread->barrier->arrivals == thread->barrier->wanted;
        });
    }
    if (found_at == all.end()) {
        found_at = std::ranges::find_if(all, [](const auto& thread) { return thread->state == State::kAtBarrier; });
    }
    if (found_at == all.end()) {
        found_at = std::ranges::find_if(all, [](const auto& thread) { return thread->state == State::kAtValue; });
    }
    if (found_at == all.end()) return false;
    running_ = found_at->get();
    const auto like = std::ranges::count_if(all, [&](const auto& thread) {
        const bool same = thread->state == running_->state && thread->named == running_->named;
        const bool in_group = thread->index / kWarpgroupSize == running_->index / kWarpgroupSize;
        return same && (running_->state == State::kAtNamed || in_group);
    });
    const std::string where = text_of(running_->where);
    if (running_->state == State::kAtGroup) {
        const bool apart = like == kWarpgroupSize;
        found(apart ? FindingKind::kDivergent : FindingKind::kBarrierNotReached,
              apart ? fmt::format("a warpgroup multiplies at {} and elsewhere", where)
                    : fmt::format("a multiplication is reached by {} of a warpgroup's 128 threads ({})", like, where));
    } else if (running_->state == State::kAtValue) {
        found(FindingKind::kBarrierNotReached, fmt::format("it waits for a value that nobody brings ({})", where));
    } else if (running_->state == State::kAtNamed) {
        const int32_t arrived = named_[static_cast<size_t>(running_->named)].count;
        found(FindingKind::kBarrierNotReached,
              fmt::format("named barrier {} is reached by {} of {} threads ({})", running_->named, like + arrived,
                          running_->named_threads, where));
    } else {
        const EmulatedBarrier& barrier = *running_->barrier;
        found(FindingKind::kBarrierNotReached,
              fmt::format("phase {} of a barrier has {} of {} arrivals and {} of {} bytes ({})", barrier.phase,
                          barrier.arrivals, barrier.wanted, barrier.copied_bytes, barrier.expected_bytes, where));
    }
    return true;
}

}  // namespace verbatim::simt
