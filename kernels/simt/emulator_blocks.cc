// Emulator: blocks that are resident together and wait for each other, and release and acquire between blocks.
#include <fmt/format.h>

#include <algorithm>
#include <any>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/simt/emulator.h"

#include "engine/base/check.h"

namespace verbatim::simt {

void Emulator::change_block(ParkedBlock& parked) {
    CHECK(!in_thread_, "block {} is parked while its thread runs", block_index_);
    std::swap(shared_, parked.shared);
    std::swap(barriers_, parked.barriers);
    std::swap(named_, parked.named);
    std::swap(uses_clocks_, parked.has_knowledge);
    std::swap(block_position_, parked.position);
    std::swap(block_index_, parked.index);
    std::swap(cursor_, parked.cursor);
    std::swap(threads_, parked.threads);
    std::swap(warps_, parked.warps);
    if (watch_block_) watch_block_(parked.watched);
}

// The running one's place in the list has another, which has ended or is empty.
Emulator::ParkedBlock& Emulator::parked_block(int32_t block) {
    const auto found = std::ranges::find_if(
        parked_, [block](const ParkedBlock& one) { return one.index == block && !one.threads.empty(); });
    CHECK(found != parked_.end(), "{}: block {} is not resident", kernel_name_, block);
    return *found;
}

// Block after block. One that waits for a value which another block may bring stays resident, and those behind it
// begin: from then on in ascending order, as GPUs start them.
void Emulator::run_in_turn(std::span<int32_t> order, const std::function<void()>& kernel) {
    CHECK(parked_.empty(), "{}: blocks of the launch before are left", kernel_name_);
    size_t next = 0, most_parked = 0;
    while (next < order.size() || !parked_.empty()) {
        if (next < order.size()) {
            begin_block(order[next++], kernel);
            bool waits = run_until_it_waits();
            // One that rests leaves as much room to those that wait.
            while (waits && rests() && !has_room_for(2 * parked_.size() + 1)) {
                (void)release_spinning();
                waits = run_until_it_waits();
            }
            const bool is_rest = waits && rests();
            if (waits && !is_rest && most_parked == 0 && !has_clusters()) std::ranges::sort(order.subspan(next));
            if (waits) park();
            if (waits && !is_rest) most_parked = std::max(most_parked, parked_.size());
            if (is_rest && next < order.size()) continue;  // the next block comes between
        }
        while (advance_parked()) {
        }
        if (next < order.size() || parked_.empty()) continue;
        change_block(parked_.front());
        report_deadlock();
        change_block(parked_.front());
    }
    if (most_parked > 0 && !has_clusters()) {
        note(
            fmt::format("{}: blocks wait for other blocks, {} of them at once: a GPU must start those before them, or "
                        "have room for all",
                        kernel_name_, most_parked));
    }
}

// Runs the block until it ends, or until it waits for a value that another block may bring (true).
bool Emulator::run_until_it_waits() {
    while (true) {
        (void)advance();
        if (is_over()) break;
        if (waiting_for_others() != nullptr) return true;
        report_deadlock();
    }
    end_block();
    return false;
}

// Whether one more block may be parked than so many.
bool Emulator::has_room_for(size_t num_parked) const {
    constexpr size_t kMostThreads = 4096, kOfClusters = 8192;  // resident: each has a stack
    return (num_parked + 1) * static_cast<size_t>(num_threads_) <= (has_clusters() ? kOfClusters : kMostThreads);
}

void Emulator::park() {
    CHECK(waiting_for_others() != nullptr, "a block that waits for no other one is parked");
    if (!has_room_for(parked_.size())) {
        running_ = waiting_for_others();
        found(FindingKind::kHang, fmt::format("it waits for another block, as {} blocks before do, and the emulator "
                                              "holds no more of them at once",
                                              parked_.size()));
        std::abort();  // nothing ends the loop: the finding tells why
    }
    change_block(parked_.emplace_back());
}

// Each as far as it can; whether one of them has moved.
bool Emulator::advance_parked() {
    bool has_moved = false;
    for (auto block = parked_.begin(); block != parked_.end();) {
        change_block(*block);
        has_moved |= advance();
        const bool ends = is_over();
        if (ends) end_block();
        change_block(*block);
        if (ends) end_fibers(*block);
        block = ends ? parked_.erase(block) : std::next(block);
    }
    return has_moved;
}

// The first thread that reads a value again and again; null: none does.
EmulatedThread* Emulator::spinning() const {
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    const auto found = std::ranges::find_if(
        all, [](const auto& thread) { return thread->state == EmulatedThread::State::kAtValue && thread->spins; });
    return found == all.end() ? nullptr : found->get();
}

bool Emulator::rests() const {
    const EmulatedThread* const thread = spinning();
    return thread != nullptr && thread->rests;
}

// The first thread that waits for what another block may bring: a value, or in a cluster an arrival or bytes; null:
// none does.
EmulatedThread* Emulator::waiting_for_others() const {
    if (count_of(grid_size_) == 1) return nullptr;
    EmulatedThread* const spins = spinning();
    if (spins != nullptr || !has_clusters()) return spins;
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    const auto found = std::ranges::find_if(
        all, [](const auto& thread) { return thread->state == EmulatedThread::State::kAtBarrier; });
    return found == all.end() ? nullptr : found->get();
}

// Runs the blocks in turns, each as far as it can, until all end. When none can continue, some thread is deadlocked.
void Emulator::run_together(std::span<const int32_t> order, const std::function<void()>& kernel) {
    CHECK(limits_.is_cooperative, "{}: its blocks run one by one", kernel_name_);
    CHECK(parked_.empty(), "{}: blocks of the launch before are left", kernel_name_);
    for (const int32_t index : order) {
        ParkedBlock& block = parked_.emplace_back();
        change_block(block);
        begin_block(index, kernel);
        change_block(block);
    }
    size_t num_over = 0;
    while (num_over < parked_.size()) {
        bool has_moved = false;
        num_over = 0;
        for (ParkedBlock& block : parked_) {
            change_block(block);
            has_moved |= advance();
            num_over += is_over() ? 1 : 0;
            change_block(block);
        }
        if (has_moved) continue;
        for (ParkedBlock& block : parked_) {
            change_block(block);
            const bool waits = !is_over();
            if (waits) report_deadlock();
            change_block(block);
            if (waits) break;
        }
    }
    for (ParkedBlock& block : parked_) {
        change_block(block);
        end_block();
        change_block(block);
        end_fibers(block);
    }
    parked_.clear();
}

void Emulator::end_fibers(ParkedBlock& parked) {
    const auto* kernel = std::exchange(kernel_, nullptr);
    for (const auto& thread : parked.threads) {
        thread->fiber = std::move(thread->fiber).resume();
        CHECK(!thread->fiber, "thread {} does not end", thread->index);
    }
    kernel_ = kernel;
}

void Emulator::wait_for_value(const std::function<bool()>& is_there, Place where) {
    if (!limits_.is_cooperative && grid_size_.x * grid_size_.y * grid_size_.z > 1) {
        found(FindingKind::kLaunchLimit,
              fmt::format("a block waits for another one, which need not be there: the kernel does not say "
                          "kCooperative (line {})",
                          where.line()));
    }
    if (is_there()) return;
    running_->is_there = &is_there;
    running_->where = where;
    wait(EmulatedThread::State::kAtValue);
}

bool Emulator::release_values() {
    bool released = false;
    for (int32_t i = 0; i < num_threads_; ++i) {
        EmulatedThread& thread = *threads_[i];
        if (thread.state != EmulatedThread::State::kAtValue) continue;
        CHECK(thread.is_there != nullptr, "thread {} waits for no value", i);
        if (!(*thread.is_there)()) continue;
        go_on(thread);
        released = true;
    }
    return released;
}

bool Emulator::spin_until(const std::function<bool()>& is_there) {
    running_->is_there = &is_there;
    CHECK(!running_->spins, "thread {} spins in what it waits for", running_->index);
    running_->spins = true;
    wait(EmulatedThread::State::kAtValue);
    running_->spins = false;
    return is_there();
}

// The block stays resident until others have gone on.
void Emulator::rest() {
    --rests_left_;
    bool is_asked_again = false;
    running_->rests = true;
    (void)spin_until([&] { return std::exchange(is_asked_again, true); });
    running_->rests = false;
}

// No thread can go on: those that spin may read their values again.
bool Emulator::release_spinning() {
    bool released = false;
    for (int32_t i = 0; i < num_threads_; ++i) {
        EmulatedThread& thread = *threads_[i];
        if (thread.state != EmulatedThread::State::kAtValue || !thread.spins) continue;
        go_on(thread);
        released = true;
    }
    return released;
}

void Emulator::release_at(const Memory& memory, size_t offset, int32_t value, bool replaces) {
    std::vector<Released>& released = released_[{&memory, offset}];
    Released now{value, {}};
    if (!replaces && !released.empty()) now.blocks = released.back().blocks;
    release_to(now.blocks);
    released.push_back(std::move(now));
}

void Emulator::acquire_atomic(const Memory& memory, size_t offset) {
    if (!released_.empty()) acquire_at(memory, offset);
}

// The value replaces all before, of which it has all that they had.
void Emulator::release_atomic(const Memory& memory, size_t offset) {
    if (!running_->async.has_fenced) return;
    std::vector<Released>& released = released_[{&memory, offset}];
    if (released.empty()) released.push_back({0, {}});
    release_to(released.back().blocks);
}

void Emulator::acquire_at(const Memory& memory, size_t offset, std::optional<int32_t> least) {
    enable_clocks();
    const std::vector<Released>& released = released_[{&memory, offset}];
    if (released.empty()) return;
    const auto enough =
        std::ranges::find_if(released, [&](const Released& one) { return least.has_value() && one.value >= *least; });
    acquire_from(enough == released.end() ? released.back().blocks : enough->blocks);
}

// The running thread releases what it knows.
void Emulator::release_to(BlocksKnowledge& blocks) {
    publish_clock(*running_);
    blocks[block_index_].join(knowledge_of_block());
    join(blocks, running_->async.knowledge.others);
}

void Emulator::acquire_from(const BlocksKnowledge& blocks) {
    Knowledge& mine = running_->async.knowledge;
    for (const auto& [block, knowledge] : blocks) {
        if (block != block_index_) {
            mine.others[block].join(knowledge);
            continue;
        }
        mine.known.join(knowledge.known);
        mine.fenced.join(knowledge.fenced);
        mine.fenced_blocks = std::max(mine.fenced_blocks, knowledge.fenced_blocks);
    }
}

// The running thread's block, as the thread knows it.
BlockKnowledge Emulator::knowledge_of_block() const {
    const Knowledge& mine = running_->async.knowledge;
    return {mine.known, running_->moment.block_epoch, mine.fenced, mine.fenced_blocks};
}

}  // namespace verbatim::simt
