// Emulator: warp-wide operations, their happens-before order, and divergence: lanes at different places of the code.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/simt/emulator.h"

#include "engine/base/check.h"

namespace verbatim::simt {
namespace {

// Most places come from one compiled text, whose file name has one address.
bool same_place(const Place& a, const Place& b) {
    return a.line() == b.line() && a.column() == b.column() &&
           (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

}  // namespace

// Completes the warp's operations that all lanes of their mask have reached with the same mask, or have returned.
bool Emulator::complete_warp(int32_t warp) {
    const int32_t first = warp * kWarpSize;
    const int32_t size = std::min(kWarpSize, num_threads_ - first);
    WarpLanes& lanes = warps_[warp];
    if (!std::exchange(lanes.may_be_complete, false)) return false;
    bool released = false;
    for (int32_t lane = 0; lane < size; ++lane) {
        const EmulatedThread& thread = *threads_[first + lane];
        if (thread.state != EmulatedThread::State::kAtWarp) continue;
        const uint32_t mask = thread.mask;
        const uint32_t needed = lanes_needed(thread);
        if ((mask >> lane & 1U) == 0 || lanes_like(thread) != needed) continue;
        if (needed != mask) note_absent_lanes(thread);
        if (thread.operation == WarpOperation::kTogether) complete_together(thread);
        if (thread.operation == WarpOperation::kBarrier) complete_barrier(warp, needed);
        for (int32_t i = 0; i < size; ++i) {
            if ((needed >> i & 1U) == 0) continue;
            EmulatedThread& other = *threads_[first + i];
            other.moment.meetings += needed == ~lanes.gone ? 1 : 0;
            if (other.operation == WarpOperation::kShuffle) complete_shuffle(other);
            if (other.operation == WarpOperation::kVote) complete_vote(other);
            go_on(other);
        }
        released = true;
    }
    return released;
}

// The lanes of its warp that wait in the same operation.
uint32_t Emulator::lanes_like(const EmulatedThread& thread) const {
    const int32_t first = thread.index / kWarpSize * kWarpSize;
    uint32_t like = 0;
    for (uint32_t left = warps_[thread.index / kWarpSize].in_operation; left != 0; left &= left - 1) {
        const int32_t lane = std::countr_zero(left);
        const EmulatedThread& other = *threads_[first + lane];
        const bool same = other.mask == thread.mask && other.operation == thread.operation &&
                          other.function == thread.function &&
                          (thread.operation == WarpOperation::kBarrier || same_place(other.where, thread.where));
        if (same) like |= 1U << lane;
    }
    return like;
}

// The lanes of its mask that its operation waits for. What moves matrices needs the whole warp (.aligned in PTX); the
// rest waits for lanes that have not returned.
uint32_t Emulator::lanes_needed(const EmulatedThread& thread) const {
    if (thread.operation == WarpOperation::kTogether) return thread.mask;
    return thread.mask & ~warps_[thread.index / kWarpSize].gone;
}

void Emulator::note_absent_lanes(const EmulatedThread& thread) {
    note(
        fmt::format("{}: a warp operation's mask {:#010x} names lanes that have returned or that the block does not "
                    "have: CUDA allows it",
                    text_of(thread.where), thread.mask));
}

// The mask's lanes start an epoch later than all of theirs so far, and join their clocks.
void Emulator::complete_barrier(int32_t warp, uint32_t mask) {
    const int32_t first = warp * kWarpSize;
    const int32_t size = std::min(kWarpSize, num_threads_ - first);
    Now joint;
    for (int32_t i = 0; i < size; ++i) {
        const Now& lane = threads_[first + i]->moment;
        joint.warp_epoch = std::max(joint.warp_epoch, lane.warp_epoch + 1);
        if ((mask >> i & 1U) == 0) continue;
        for (int32_t k = 0; k < kWarpSize; ++k) joint.seen[k] = std::max(joint.seen[k], lane.seen[k]);
    }
    for (int32_t i = 0; i < size; ++i) {
        if ((mask >> i & 1U) != 0) joint.seen[i] = joint.warp_epoch;
    }
    for (int32_t i = 0; i < size; ++i) {
        if ((mask >> i & 1U) == 0) continue;
        threads_[first + i]->moment.warp_epoch = joint.warp_epoch;
        threads_[first + i]->moment.seen = joint.seen;
    }
    join_lanes(warp, mask);
}

void Emulator::join_lanes(int32_t warp, uint32_t mask) {
    const int32_t first = warp * kWarpSize;
    CHECK_EQ(mask & warps_[warp].gone, 0U);  // no thread is there
    Knowledge joint;
    for (int32_t i = 0; i < kWarpSize; ++i) {
        if ((mask >> i & 1U) == 0) continue;
        const EmulatedThread& lane = *threads_[first + i];
        joint.unsafe_from = std::max(joint.unsafe_from, lane.moment.unsafe_from);
        if (uses_clocks_) joint.join(lane.async.knowledge);
    }
    for (int32_t i = 0; i < kWarpSize; ++i) {
        if ((mask >> i & 1U) != 0) share(*threads_[first + i], joint);
    }
}

// The lanes of the mask whose vote is set.
void Emulator::complete_vote(EmulatedThread& thread) {
    const int32_t first = thread.index / kWarpSize * kWarpSize;
    thread.received = 0;
    for (int32_t i = 0; i < kWarpSize; ++i) {
        if ((lanes_needed(thread) >> i & 1U) != 0) thread.received |= threads_[first + i]->deposit << i;
    }
}

void Emulator::complete_shuffle(EmulatedThread& thread) {
    CHECK(thread.source_lane >= 0 && thread.source_lane < kWarpSize, "lane {}", thread.source_lane);
    const bool is_left_out = (thread.mask >> thread.source_lane & 1U) == 0;
    if (is_left_out || (lanes_needed(thread) >> thread.source_lane & 1U) == 0) {
        running_ = &thread;
        const std::string why = is_left_out ? fmt::format("which mask {:#010x} leaves out", thread.mask)
                                            : "which has returned or is beyond the block's end";
        found(FindingKind::kWarpMask,
              fmt::format("a shuffle reads lane {}, {} ({})", thread.source_lane, why, text_of(thread.where)));
        return;
    }
    thread.received = threads_[thread.index / kWarpSize * kWarpSize + thread.source_lane]->deposit;
}

void Emulator::complete_together(const EmulatedThread& thread) {
    void* parts[kWarpSize];
    const int32_t first = thread.index / kWarpSize * kWarpSize;
    CHECK(thread.function != nullptr && first + kWarpSize <= num_threads_, "{} threads of the warp from {} on",
          num_threads_ - first, first);
    for (int32_t i = 0; i < kWarpSize; ++i) parts[i] = threads_[first + i]->part;
    thread.function(parts);
}

uint32_t Emulator::active_lanes(Place where) {
    running_->where = where;
    wait(EmulatedThread::State::kAsksForLanes);
    return static_cast<uint32_t>(running_->received);
}

// No lane can go on otherwise: those of a warp that ask at one place are active together. In a random order some of
// them come alone now and then.
bool Emulator::release_active_lanes() {
    bool released = false;
    for (int32_t i = 0; i < num_threads_; ++i) {
        const EmulatedThread& thread = *threads_[i];
        if (thread.state != EmulatedThread::State::kAsksForLanes) continue;
        const int32_t first = i / kWarpSize * kWarpSize, end = std::min(first + kWarpSize, num_threads_);
        uint32_t lanes = 0;
        for (int32_t k = i; k < end; ++k) {
            const EmulatedThread& other = *threads_[k];
            const bool is_here = other.state == EmulatedThread::State::kAsksForLanes;
            if (is_here && same_place(other.where, thread.where)) lanes |= 1U << (k - first);
        }
        constexpr uint64_t kOneIn = 4, kAnyLanes = uint64_t{1} << kWarpSize;
        if (schedule_ == Schedule::kRandom && prng_.below(kOneIn) == 0)
            lanes &= static_cast<uint32_t>(prng_.below(kAnyLanes)) | 1U << (i - first);
        CHECK_EQ(lanes >> (i - first) & 1U, 1U);
        for (int32_t k = i; k < end; ++k) {
            if ((lanes >> (k - first) & 1U) == 0) continue;
            threads_[k]->received = lanes;
            go_on(*threads_[k]);
        }
        released = true;
    }
    return released;
}

// A barrier of the block is one operation of each of its warps.
void Emulator::find_divergence_at_block() {
    for (int32_t i = 0; i < num_threads_; ++i) {
        const int32_t begin = i / kWarpSize * kWarpSize;
        const auto is_here = [](const auto& thread) { return thread->state == EmulatedThread::State::kAtBlock; };
        if (!is_here(threads_[i])) continue;
        const EmulatedThread& first = **std::find_if(threads_.begin() + begin, threads_.begin() + i, is_here);
        if (same_place(first.where, threads_[i]->where)) continue;
        running_ = threads_[i].get();
        found(FindingKind::kDivergent,
              fmt::format("its warp is at the block's barrier of line {}, it at that of line {} ({})",
                          first.where.line(), running_->where.line(), text_of(running_->where)));
    }
}

// Whether lanes of a warp wait for each other in one operation at different places. A sync_warp may have several.
bool Emulator::found_divergence() {
    for (int32_t i = 0; i < num_threads_; ++i) {
        EmulatedThread& thread = *threads_[i];
        if (thread.state != EmulatedThread::State::kAtWarp || thread.operation == WarpOperation::kBarrier) continue;
        const int32_t first = i / kWarpSize * kWarpSize;
        for (int32_t k = first; k < i; ++k) {
            const EmulatedThread& other = *threads_[k];
            const bool waits = other.state == EmulatedThread::State::kAtWarp && other.operation == thread.operation &&
                               other.function == thread.function && other.mask == thread.mask;
            if (!waits || same_place(other.where, thread.where)) continue;
            running_ = &thread;
            constexpr const char* kNames[] = {"a barrier", "a shuffle", "a vote", "an operation of the whole warp"};
            found(FindingKind::kDivergent,
                  fmt::format("{}: it is at line {}, lane {} at {} ({})", kNames[static_cast<size_t>(thread.operation)],
                              thread.where.line(), k - first, other.where.line(), text_of(thread.where)));
            return true;
        }
    }
    return false;
}

// "lane 16 is at my.cu:33": the first lane that its operation waits for in vain.
std::string Emulator::missing_lane(const EmulatedThread& thread) const {
    const uint32_t missing = lanes_needed(thread) & ~lanes_like(thread);
    if (missing == 0) return "the mask leaves out its own lane";
    const int32_t lane = std::countr_zero(missing);
    const int32_t warp = thread.index / kWarpSize;
    if ((warps_[warp].gone >> lane & 1U) != 0) return fmt::format("lane {} has returned", lane);
    return fmt::format("lane {} is at {}", lane, text_of(threads_[warp * kWarpSize + lane]->where));
}

// REQUIRES: a thread waits in a warp operation that is not complete.
void Emulator::report_warp_mask() {
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    const auto waits = [](const auto& thread) { return thread->state == EmulatedThread::State::kAtWarp; };
    const auto first = std::ranges::find_if(all, waits);
    CHECK(first != all.end(), "{}: no thread waits in a warp operation", kernel_name_);
    running_ = first->get();
    found(FindingKind::kWarpMask,
          fmt::format("a warp operation with mask {:#010x} waits for lanes that never take part: {} ({})",
                      running_->mask, missing_lane(*running_), text_of(running_->where)));
}

// REQUIRES: a thread waits at a block barrier that is not complete.
void Emulator::report_barrier_not_reached() {
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    const auto is_here = [](const auto& thread) { return thread->state == EmulatedThread::State::kAtBlock; };
    const auto first = std::ranges::find_if(all, is_here);
    CHECK(first != all.end(), "{}: no thread waits at a block barrier", kernel_name_);
    running_ = first->get();
    found(FindingKind::kBarrierNotReached,
          fmt::format("a block barrier is reached by {} of {} threads ({})", std::ranges::count_if(all, is_here),
                      num_threads_, text_of(running_->where)));
}

}  // namespace verbatim::simt
