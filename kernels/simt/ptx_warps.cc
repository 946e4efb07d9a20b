#include "kernels/simt/ptx_warps.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/simt/ptx_operands.h"
#include "kernels/simt/ptx_values.h"

namespace verbatim::simt {
namespace {

uint32_t word_of(const PtxThread& thread, const PtxInstruction& one, size_t i) {
    return static_cast<uint32_t>(value_of(thread, one, i));
}
void set_predicate_of(PtxThread& thread, const PtxOperand& operand, bool value) {
    if (!operand.with_predicate.empty()) thread.set(operand.with_predicate[0], value ? 1 : 0);
}

}  // namespace

// The manual's: segments of lanes that the mask in c's upper half leaves equal, clamped at c's lower half.
void shuffle_ptx(PtxThread& thread, const PtxInstruction& one) {
    constexpr uint32_t kLanes = 31;
    const std::string& mode = one.words[1];
    const auto lane = static_cast<uint32_t>(lane_of_thread());
    const uint32_t by = word_of(thread, one, 2) & kLanes, clamp = word_of(thread, one, 3);
    const uint32_t segment = clamp >> 8 & kLanes;
    const uint32_t least = lane & segment, last = least | (clamp & kLanes & ~segment);
    const bool is_up = mode == "up";
    const uint32_t from = is_up            ? lane - by
                          : mode == "down" ? lane + by
                          : mode == "bfly" ? lane ^ by
                                           : least | (by & ~segment);
    const bool is_there = is_up ? static_cast<int32_t>(from) >= static_cast<int32_t>(last) : from <= last;
    const uint64_t got = cuda_source::shuffle(word_of(thread, one, 4), value_of(thread, one, 1),
                                              static_cast<int>(is_there ? from : lane), thread.where);
    thread.set(one.operands[0], ptx_cut(got, 32));
    set_predicate_of(thread, one.operands[0], is_there);
}

void vote_ptx(PtxThread& thread, const PtxInstruction& one) {
    const bool is_all = one.words[2] == "all", mine = value_of(thread, one, 1) != 0;
    const unsigned votes = cuda_source::vote(word_of(thread, one, 2), mine != is_all, thread.where);
    thread.set(one.operands[0], one.words[1] == "ballot" ? votes : (votes != 0) != is_all ? 1 : 0);
}

void active_mask_ptx(PtxThread& thread, const PtxInstruction& one) {
    thread.set(one.operands[0], cuda_source::active_lanes(thread.where));
}

void elect_ptx(PtxThread& thread, const PtxInstruction& one) {
    const unsigned lanes = cuda_source::vote(word_of(thread, one, 1), true, thread.where);
    const auto first = std::countr_zero(lanes);
    thread.set(one.operands[0], static_cast<uint64_t>(first));
    set_predicate_of(thread, one.operands[0], first == lane_of_thread());
}

void reduce_ptx(PtxThread& thread, const PtxInstruction& one) {
    const std::string& how = one.words[1];
    const bool is_signed = one.words[2] == "s32";
    const uint32_t lanes = word_of(thread, one, 2), mine = word_of(thread, one, 1);
    const auto is_less = [is_signed](uint32_t a, uint32_t b) {
        return is_signed ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
    };
    const auto with = [&](uint32_t a, uint32_t b) {
        if (how == "add") return a + b;
        if (how == "and") return a & b;
        if (how == "or") return a | b;
        if (how == "xor") return a ^ b;
        return is_less(a, b) == (how == "min") ? a : b;
    };
    uint32_t result = 0;
    for (int lane = 0; lane < kWarpSize; ++lane) {
        if ((lanes >> lane & 1U) == 0) continue;
        const auto value = static_cast<uint32_t>(cuda_source::shuffle(lanes, mine, lane, thread.where));
        result = lane == std::countr_zero(lanes) ? value : with(result, value);
    }
    thread.set(one.operands[0], result);
}

void match_ptx(PtxThread& thread, const PtxInstruction& one) {
    const uint32_t lanes = word_of(thread, one, 2);
    const uint64_t mine = ptx_cut(value_of(thread, one, 1), has(one, "64") ? 64 : 32);
    uint64_t same = 0;
    for (int lane = 0; lane < kWarpSize; ++lane) {
        if ((lanes >> lane & 1U) != 0 && cuda_source::shuffle(lanes, mine, lane, thread.where) == mine)
            same |= uint64_t{1} << lane;
    }
    thread.set(one.operands[0], same);
}

void map_address_ptx(PtxThread& thread, const PtxInstruction& one) {
    const uint32_t rank = word_of(thread, one, 2);
    const bool is_shared = has(one, ".shared");
    std::byte* const mine = place_of(thread, one, 1, is_shared, 0);
    if (mine == nullptr) return thread.set(one.operands[0], 0);
    void* const there = cuda_source::shared_of_rank(mine, rank);
    const bool is_other = there != mine;
    const uint64_t address = !is_shared ? reinterpret_cast<uintptr_t>(there)
                                        : window_address(mine) | (is_other ? (rank + 1) << kRankShift : 0);
    thread.set(one.operands[0], address);
}
void arrive_at_cluster_ptx(PtxThread& thread, const PtxInstruction& one) {
    using Arrival = Emulator::Arrival;
    Emulator::current().arrive_at_cluster(thread.where, has(one, ".relaxed") ? Arrival::kRelaxed : Arrival::kReleases);
}
void wait_for_cluster_ptx(PtxThread& thread, const PtxInstruction&) { cuda_source::wait_for_cluster(thread.where); }

}  // namespace verbatim::simt
