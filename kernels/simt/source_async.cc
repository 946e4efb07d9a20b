// What CUDA source's inline PTX and intrinsics do with memory, copies and barriers on the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/ptx_arithmetic.h"
#include "kernels/simt/ptx_program.h"
#include "kernels/simt/ptx_values.h"
#include "kernels/simt/source_clusters.h"
#include "kernels/simt/source_state.h"
#include "kernels/simt/source_threads.h"

namespace verbatim::simt {
namespace {

constexpr uint32_t kNear = 32 << 10;  // an address so far from a shared array may be meant as its

void misuse(FindingKind kind, const std::string& what) { Emulator::current().found(kind, what); }

bool is_multiple(const void* address, size_t of) { return reinterpret_cast<uintptr_t>(address) % of == 0; }

const SourceRange* both_checked(const std::byte* address, size_t num_bytes, size_t alignment, const char* verb,
                                const char* what) {
    const SourceRange* const range = checked_range(address, num_bytes, alignment, verb);
    if (range == nullptr && source.find(address) == nullptr)
        misuse(FindingKind::kOutOfBounds, fmt::format("a copy's {} is in no memory of the device", what));
    return range;
}

// The agent that stores from shared memory, which it may read, and the place in device memory; empty: found.
struct BulkStore {
    const SourceRange* place;
    Now agent;
};
std::optional<BulkStore> begin_bulk_store(std::byte* to, const std::byte* from, size_t count) {
    if (from == nullptr || count == 0) return {};
    if (count % 16 != 0) {
        misuse(FindingKind::kMisaligned, fmt::format("a bulk copy of {} bytes: a multiple of 16 is taken", count));
        return {};
    }
    const SourceRange* const origin = both_checked(from, count, 16, "copied", "source");
    const SourceRange* const place = both_checked(to, count, 16, "copied to", "destination");
    if (place == nullptr || origin == nullptr) return {};
    const Now agent = Emulator::current().storing();
    report(origin->memory->read(origin->offset_of(from), count, agent), *origin, from);
    return BulkStore{place, agent};
}

}  // namespace

uint32_t window_address(const std::byte* address) {
    const SourceRange* const range = source.find(address);
    for (const SourceRange& one : source.shared()) {
        if (&one == range) return one.window + static_cast<uint32_t>(address - one.begin);
    }
    misuse(FindingKind::kOutOfBounds, "the shared address of a pointer to no shared array is asked for");
    return 0;
}

std::byte* from_window(uint32_t address, size_t num_bytes) {
    const auto offset_in = [&](const SourceRange& one) { return static_cast<int64_t>(address) - one.window; };
    for (const SourceRange& one : source.shared()) {
        const int64_t at = offset_in(one);
        if (at >= 0 && static_cast<size_t>(at) + num_bytes <= one.num_bytes) return one.begin + at;
    }
    for (const SourceRange& one : source.shared()) {
        if (address + kNear < one.window || address >= one.window + one.num_bytes + kNear) continue;
        const int64_t at = offset_in(one);
        if (num_bytes == 0) return one.begin + at;
        misuse(FindingKind::kOutOfBounds, fmt::format("byte {} of {} bytes of {} is accessed, with {} bytes", at,
                                                      one.num_bytes, one.what, num_bytes));
        return nullptr;
    }
    misuse(FindingKind::kOutOfBounds, fmt::format("shared address {:#x} is in no shared array", address));
    return nullptr;
}

EmulatedBarrier* source_barrier(std::byte* address) {
    if (address == nullptr) return nullptr;
    const SourceRange* const range = checked_range(address, 8, 8, "used as a barrier");
    if (range == nullptr) return nullptr;
    Emulator& emulator = Emulator::current();
    if (range->block < 0) return &emulator.barrier(address, 0);
    if (emulator.state_of_block(range->block) != Emulator::BlockState::kResident) return nullptr;  // and found
    return &emulator.barrier_of(range->block, range->home(address));
}

std::optional<ArrivingCopy> begin_copy(std::byte* to, size_t num_bytes, size_t alignment, std::byte* barrier,
                                       cuda_source::Place where) {
    EmulatedBarrier* const counted = source_barrier(barrier);
    if (to == nullptr || counted == nullptr) return {};
    const SourceRange* const place = both_checked(to, num_bytes, alignment, "copied to", "destination");
    if (place == nullptr) return {};
    Emulator& emulator = Emulator::current();
    if (counted->block != (place->block >= 0 ? place->block : emulator.block_index())) {
        misuse(FindingKind::kBarrierUse, "a copy to one block's shared memory signals another block's barrier");
        return {};
    }
    return ArrivingCopy{counted, place, emulator.copying(*counted, where), place->home(to)};
}

void source_copy(std::byte* to, const std::byte* from, size_t count, size_t read) {
    Emulator& emulator = Emulator::current();
    if (to == nullptr) return;
    if (count != 4 && count != 8 && count != 16)
        return misuse(FindingKind::kMisaligned, fmt::format("cp.async copies 4, 8 or 16 bytes, not {}", count));
    const SourceRange* const place = both_checked(to, count, count, "copied to", "destination");
    if (place == nullptr) return;
    const SourceRange copied_to = *place;
    if (copied_to.memory->life() == Memory::Life::kDevice)
        return misuse(FindingKind::kOutOfBounds, "cp.async's destination is in no shared array");
    if (read > 0 && !is_multiple(from, count))
        misuse(FindingKind::kMisaligned, fmt::format("cp.async copies {} bytes from an address that is no multiple of "
                                                     "them",
                                                     count));
    const SourceRange* const origin = read > 0 ? both_checked(from, read, 1, "copied", "source") : nullptr;
    const bool is_readable = origin != nullptr;
    const SourceRange copied_from = is_readable ? *origin : SourceRange{};
    report(copied_to.memory->begin_copy(copied_to.offset_of(to), count, emulator.thread().moment), copied_to, to);
    const Now at_request = emulator.thread().moment;
    emulator.copy_later([=] {
        const size_t offset = copied_to.offset_of(to);
        const Moment* const phase = Emulator::current().landing_phase();
        const Now& now = phase != nullptr ? at_request : Emulator::current().thread().moment;
        if (phase != nullptr) {
            copied_to.memory->end_copy(offset, count, *phase);
        } else {
            copied_to.memory->end_copy(offset, count);
            report(copied_to.memory->write(offset, count, now), copied_to, to);
        }
        std::memset(to, 0, count);
        if (!is_readable) return;
        report(copied_from.memory->read(copied_from.offset_of(from), read, now), copied_from, from);
        std::memcpy(to, from, read);
    });
}

void source_bulk_copy(std::byte* to, const std::byte* from, size_t count, std::byte* barrier,
                      cuda_source::Place where) {
    if (count == 0) return;
    if (count % 16 != 0)
        return misuse(FindingKind::kMisaligned,
                      fmt::format("a bulk copy of {} bytes: a multiple of 16 is taken", count));
    const SourceRange* const origin = both_checked(from, count, 16, "copied", "source");
    const std::optional<ArrivingCopy> copy = begin_copy(to, count, 16, barrier, where);
    if (origin == nullptr || !copy) return;
    Emulator& emulator = Emulator::current();
    Memory& memory = *copy->place->memory;
    const size_t offset = origin->offset_of(from), to_offset = copy->place->offset_of(to);
    const auto num_bytes = static_cast<int64_t>(count);
    report(memory.write(to_offset, count, copy->agent), *copy->place, to);
    if (origin->memory->life() == Memory::Life::kDevice) {
        report(origin->memory->read_for_copy(offset, count, copy->agent), *origin, from);
        memory.carry_unwritten(to_offset, *origin->memory, offset, count);
        return emulator.copy_until(*copy->barrier, num_bytes,
                                   [=, landing = copy->landing] { std::memcpy(landing, from, count); });
    }
    // Static arrays of all blocks are one place, which another block has when the copy lands.
    if (!origin->memory->is_fenced_at(offset, count, emulator.storing())) report(Clash::kNotFenced, *origin, from);
    report(origin->memory->read(offset, count, copy->agent), *origin, from);
    emulator.copy_until(*copy->barrier, num_bytes, [landing = copy->landing, bytes = std::vector(from, from + count)] {
        std::ranges::copy(bytes, landing);
    });
}

void source_store_async(std::byte* to, uint64_t bits, size_t count, std::byte* barrier, cuda_source::Place where) {
    const std::optional<ArrivingCopy> copy = begin_copy(to, count, count, barrier, where);
    if (!copy) return;
    report(copy->place->memory->write(copy->place->offset_of(to), count, copy->agent), *copy->place, to);
    Emulator::current().copy_until(*copy->barrier, static_cast<int64_t>(count),
                                   [=, landing = copy->landing] { std::memcpy(landing, &bits, count); });
}

void source_bulk_store(std::byte* to, const std::byte* from, size_t count) {
    const std::optional<BulkStore> store = begin_bulk_store(to, from, count);
    if (!store) return;
    report(store->place->memory->write(store->place->offset_of(to), count, store->agent), *store->place, to);
    Emulator::current().store_later([=] { std::memcpy(to, from, count); });
}

void source_bulk_reduce(std::byte* to, const std::byte* from, size_t count, const std::string& how,
                        const std::string& type) {
    const std::optional<BulkStore> store = begin_bulk_store(to, from, count);
    if (!store) return;
    report(store->place->memory->update(store->place->offset_of(to), count, store->agent), *store->place, to);
    const auto bytes = static_cast<size_t>(ptx_bits(type)) / 8;
    Emulator::current().store_later([=] {
        for (size_t i = 0; i < count; i += bytes) {
            uint64_t before = 0, with = 0;
            std::memcpy(&before, to + i, bytes);
            std::memcpy(&with, from + i, bytes);
            const uint64_t after = ptx_changed(how, type, before, with);
            std::memcpy(to + i, &after, bytes);
        }
    });
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

using simt::Emulator;

uint32_t shared_address(const void* pointer) { return simt::window_address(static_cast<const std::byte*>(pointer)); }
void* shared_pointer(uint32_t address) { return simt::from_window(address, 0); }

void copy_async(void* to, const void* from, size_t count, size_t read) {
    simt::source_copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), count, read);
}
void commit_async() { Emulator::current().commit_copies(); }
void wait_async(size_t num_pending, Place where) { Emulator::current().wait_copies(num_pending, where); }

uint64_t special_register(std::string_view name) {
    if (name == "laneid") return static_cast<uint64_t>(lane());
    if (name == "warpid") return static_cast<uint64_t>(Emulator::current().thread().index / simt::kWarpSize);
    if (name.starts_with("lanemask_")) {
        const uint32_t mine = uint32_t{1} << lane(), below = mine - 1;
        const std::string_view which = name.substr(name.size() - 2);
        return which == "eq"   ? mine
               : which == "lt" ? below
               : which == "le" ? below | mine
               : which == "gt" ? ~(below | mine)
                               : ~below;
    }
    const Index cluster = cluster_size(), block = block_index(), grid = grid_size();
    if (name == "cluster_ctarank") return cluster_rank();
    if (name == "cluster_nctarank") return cluster.x * cluster.y * cluster.z;
    const Index in_cluster{block.x % cluster.x, block.y % cluster.y, block.z % cluster.z};
    const Index of_block{block.x / cluster.x, block.y / cluster.y, block.z / cluster.z};
    const Index clusters{grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
    const Index from = name.starts_with("tid")              ? thread_index()
                       : name.starts_with("ntid")           ? block_size()
                       : name.starts_with("ctaid")          ? block
                       : name.starts_with("cluster_ctaid")  ? in_cluster
                       : name.starts_with("cluster_nctaid") ? cluster
                       : name.starts_with("clusterid")      ? of_block
                       : name.starts_with("nclusterid")     ? clusters
                                                            : grid;
    return name.back() == 'x' ? from.x : name.back() == 'y' ? from.y : from.z;
}

void run_ptx(Place where, const char* text, const PtxOperands& operands) {
    CHECK(simt::source.in_launch, "an asm runs outside of a launch: {}", text);
    // The text was taken when the file was translated. Another library may have another text at its address.
    struct ReadText {
        std::string text;
        simt::PtxProgram program;
    };
    static std::map<std::pair<const char*, size_t>, ReadText> texts;
    const auto [found, is_new] = texts.try_emplace({text, operands.count});
    ReadText& read = found->second;
    if (is_new || read.text != text) {
        read = {text, {}};
        simt::PtxProblem problem;
        CHECK(simt::read_ptx(text, operands.count, read.program, problem), "{}: {}", problem.what, text);
    }
    simt::PtxThread thread(where, operands);
    thread.run(read.program);
    for (size_t i = 0; i < operands.count; ++i) {
        if (thread.written.test(i)) continue;
        thread.registers[i] = 0;
        simt::misuse(simt::FindingKind::kUninitialised,
                     fmt::format("%{} is an output of an asm that has not written it: \"+\" keeps a value", i));
    }
    std::copy_n(thread.registers, operands.count, operands.values);
}

}  // namespace verbatim::cuda_source
