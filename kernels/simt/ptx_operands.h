// kernels/simt/ptx_operands.h: owns what PTX's instructions ask of their operands (kernels/simt/ptx_program.h): a
// value, and an address as the opcode's state space has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/emulator.h"
#include "kernels/simt/ptx_program.h"
#include "kernels/simt/source_clusters.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {

inline uint64_t value_of(const PtxThread& thread, const PtxInstruction& one, size_t i) {
    return i < one.operands.size() ? thread.value(one.operands[i]) : 0;
}
inline bool has(const PtxInstruction& one, const char* word) { return one.words[0].find(word) != std::string::npos; }
inline int lane_of_thread() { return Emulator::current().thread().index % kWarpSize; }

// An address of .shared::cluster: the block's own as in .shared, and in another block with the rank above it.
inline constexpr uint32_t kRankShift = 24;  // of the rank + 1
constexpr uint32_t in_own_window(uint32_t address) { return address & ((uint32_t{1} << kRankShift) - 1); }
inline std::byte* from_cluster_window(uint32_t address, size_t num_bytes) {
    const uint32_t rank = address >> kRankShift;
    std::byte* const mine = from_window(in_own_window(address), num_bytes);
    if (mine == nullptr || rank == 0) return mine;
    return static_cast<std::byte*>(cuda_source::shared_of_rank(mine, rank - 1));
}

// The host's address of an operand: of shared memory if the opcode says so, else generic. Null: so many bytes of shared
// memory are not in one array, and found.
inline std::byte* place_of(const PtxThread& thread, const PtxInstruction& one, size_t i, bool is_shared,
                           size_t num_bytes) {
    const uint64_t address = value_of(thread, one, i);
    if (!is_shared) return reinterpret_cast<std::byte*>(address);
    return has(one, ".shared::cluster") ? from_cluster_window(static_cast<uint32_t>(address), num_bytes)
                                        : from_window(static_cast<uint32_t>(address), num_bytes);
}

}  // namespace verbatim::simt
