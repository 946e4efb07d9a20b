#include "kernels/simt/source_clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {
namespace {

// Static arrays are one place for all blocks: those of a block that is not running are here.
constexpr size_t kSpare = 64;
std::map<std::pair<int32_t, std::byte*>, std::vector<std::byte>> homes;  // of the launch

}  // namespace

void forget_homes() { homes.clear(); }
void forget_home_of(int32_t block) {
    std::erase_if(homes, [block](const auto& home) { return home.first.first == block; });
}

bool has_home(int32_t block, std::byte* array) { return homes.contains({block, array}); }
std::byte* home_of(int32_t block, std::byte* array, size_t num_bytes) {
    std::vector<std::byte>& home = homes[{block, array}];
    if (home.empty()) home.resize(num_bytes + 2 * kSpare);
    CHECK_EQ(home.size(), num_bytes + 2 * kSpare);
    return home.data() + kSpare;
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

using simt::Emulator;
using simt::source;
using simt::SourceRange;

bool has_cluster_dims() { return simt::source_has_clusters() = true; }

Index cluster_size() {
    const simt::Dim3 size = Emulator::current().cluster_size();
    return {static_cast<unsigned>(size.x), static_cast<unsigned>(size.y), static_cast<unsigned>(size.z)};
}
unsigned cluster_rank() { return static_cast<unsigned>(Emulator::current().cluster_rank()); }

void sync_cluster(Place where) {
    Emulator& emulator = Emulator::current();
    if (emulator.is_skipped("sync_cluster", where)) return;
    emulator.arrive_at_cluster(where);
    emulator.wait_for_cluster(where);
}
void arrive_at_cluster(Place where) { Emulator::current().arrive_at_cluster(where); }
void wait_for_cluster(Place where) { Emulator::current().wait_for_cluster(where); }

void* shared_of_rank(void* pointer, unsigned rank) {
    Emulator& emulator = Emulator::current();
    auto* const byte = static_cast<std::byte*>(pointer);
    const SourceRange* const range = source.find(byte);
    const Index size = cluster_size();
    if (range == nullptr || range->memory->life() == simt::Memory::Life::kDevice || range->block >= 0) {
        emulator.found(simt::FindingKind::kOutOfBounds, "map_shared_rank of no shared memory of the block");
        return pointer;
    }
    if (rank >= size.x * size.y * size.z) {
        emulator.found(simt::FindingKind::kOutOfBounds,
                       fmt::format("map_shared_rank of block {} of a cluster of {}", rank, size.x * size.y * size.z));
        return pointer;
    }
    const int32_t block = emulator.block_of_cluster(static_cast<int32_t>(rank));
    if (rank == cluster_rank()) return pointer;
    return source.add_remote(*range, block) + (byte - range->begin);
}

unsigned rank_of_shared(const void* pointer) {
    const SourceRange* const range = source.find(static_cast<const std::byte*>(pointer));
    const bool is_of_other = range != nullptr && range->block >= 0;
    return is_of_other ? static_cast<unsigned>(Emulator::current().rank_in_cluster(range->block)) : cluster_rank();
}

}  // namespace verbatim::cuda_source
