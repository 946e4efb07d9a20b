#include "kernels/simt/ptx_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/simt/emulator.h"
#include "kernels/simt/ptx_operands.h"
#include "kernels/simt/ptx_values.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {

using Instruction = const PtxInstruction&;

void copy_async_ptx(PtxThread& thread, Instruction one) {
    const auto count = static_cast<size_t>(static_cast<uint32_t>(value_of(thread, one, 2)));
    const bool has_size = one.operands.size() > (has(one, "cache_hint") ? 4U : 3U);
    const uint64_t size = has_size ? value_of(thread, one, 3) : count;
    const bool is_ignored = has_size && one.operands[3].is_predicate;
    const size_t read = is_ignored ? (size != 0 ? 0 : count) : static_cast<uint32_t>(size);
    if (read > count) {
        Emulator::current().found(FindingKind::kOutOfBounds,
                                  fmt::format("cp.async of {} bytes has a source of {}: it is undefined", count, read));
    }
    if (has(one, ".cg") && count != 16) {
        return Emulator::current().found(FindingKind::kMisaligned,
                                         fmt::format("cp.async.cg copies 16 bytes, not {}", count));
    }
    source_copy(place_of(thread, one, 0, true, count), place_of(thread, one, 1, false, count), count,
                std::min(read, count));
}
void commit_group(PtxThread&, Instruction) { cuda_source::commit_async(); }
void wait_group(PtxThread& thread, Instruction one) {
    cuda_source::wait_async(static_cast<uint32_t>(value_of(thread, one, 0)), thread.where);
}
void wait_all(PtxThread& thread, Instruction) {
    cuda_source::commit_async();
    cuda_source::wait_async(0, thread.where);
}
void bulk_copy_ptx(PtxThread& thread, Instruction one) {
    const auto count = static_cast<uint32_t>(value_of(thread, one, 2));
    const std::byte* const from = place_of(thread, one, 1, has(one, ".shared::cta."), count);
    const CopyTarget target{place_of(thread, one, 0, true, count), place_of(thread, one, 3, true, 8)};
    constexpr size_t kMask = 4;
    for (const auto& [to, barrier] : targets_of_copy(thread, one, target, kMask))
        source_bulk_copy(to, from, count, barrier, thread.where);
}
void bulk_store_ptx(PtxThread& thread, Instruction one) {
    const auto count = static_cast<uint32_t>(value_of(thread, one, 2));
    source_bulk_store(place_of(thread, one, 0, false, count), place_of(thread, one, 1, true, count), count);
}
void bulk_reduce_ptx(PtxThread& thread, Instruction one) {
    const auto count = static_cast<uint32_t>(value_of(thread, one, 2));
    source_bulk_reduce(place_of(thread, one, 0, false, count), place_of(thread, one, 1, true, count), count,
                       one.words[1], one.words[2]);
}
void bulk_commit(PtxThread&, Instruction) { Emulator::current().commit_stores(); }
void bulk_wait(PtxThread& thread, Instruction one) {
    Emulator::current().wait_stores(static_cast<uint32_t>(value_of(thread, one, 0)), thread.where);
}
void fence_async_ptx(PtxThread&, Instruction) { Emulator::current().fence_async(); }
void fence_barrier_init_ptx(PtxThread&, Instruction) { Emulator::current().fence_barrier_init(); }

void store_async_ptx(PtxThread& thread, Instruction one) {
    const auto bytes = static_cast<size_t>(ptx_bits(one.words[2])) / 8;
    const PtxOperand& value = one.operands[1];
    const size_t count = std::max<size_t>(1, value.elements.size());
    std::byte* const to = place_of(thread, one, 0, true, bytes * count);
    std::byte* const barrier = place_of(thread, one, 2, true, 8);
    for (size_t i = 0; i < count && to != nullptr; ++i) {
        const uint64_t bits = thread.value(value.elements.empty() ? value : value.elements[i]);
        source_store_async(to + i * bytes, bits, bytes, barrier, thread.where);
    }
}

std::vector<CopyTarget> targets_of_copy(const PtxThread& thread, Instruction one, const CopyTarget& target,
                                        size_t mask_operand) {
    if (!has(one, ".multicast::cluster")) return {target};
    const auto mask = static_cast<uint16_t>(value_of(thread, one, mask_operand));
    if (mask == 0) Emulator::current().found(FindingKind::kBarrierUse, "a multicast copy to none of the blocks");
    if (target.to == nullptr || target.barrier == nullptr) return {};
    std::vector<CopyTarget> targets;
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        const auto rank = static_cast<unsigned>(std::countr_zero(left));
        targets.push_back({static_cast<std::byte*>(cuda_source::shared_of_rank(target.to, rank)),
                           static_cast<std::byte*>(cuda_source::shared_of_rank(target.barrier, rank))});
    }
    return targets;
}

}  // namespace verbatim::simt
