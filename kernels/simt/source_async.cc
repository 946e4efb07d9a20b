// What CUDA source's inline PTX and intrinsics do with memory, copies and barriers on the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "kernels/simt/ptx_program.h"
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
    return &Emulator::current().barrier(address, 0);
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
    EmulatedBarrier* const counted = source_barrier(barrier);
    if (to == nullptr || counted == nullptr || count == 0) return;
    if (count % 16 != 0)
        return misuse(FindingKind::kMisaligned,
                      fmt::format("a bulk copy of {} bytes: a multiple of 16 is taken", count));
    const SourceRange* const place = both_checked(to, count, 16, "copied to", "destination");
    const SourceRange* const origin = both_checked(from, count, 16, "copied", "source");
    if (place == nullptr || origin == nullptr) return;
    Emulator& emulator = Emulator::current();
    const Now agent = emulator.copying(*counted, where);
    report(origin->memory->read_for_copy(origin->offset_of(from), count, agent), *origin, from);
    report(place->memory->write(place->offset_of(to), count, agent), *place, to);
    place->memory->carry_unwritten(place->offset_of(to), *origin->memory, origin->offset_of(from), count);
    emulator.copy_until(*counted, static_cast<int64_t>(count), [=] { std::memcpy(to, from, count); });
}

void source_bulk_store(std::byte* to, const std::byte* from, size_t count) {
    if (from == nullptr || count == 0) return;
    if (count % 16 != 0)
        return misuse(FindingKind::kMisaligned,
                      fmt::format("a bulk copy of {} bytes: a multiple of 16 is taken", count));
    const SourceRange* const origin = both_checked(from, count, 16, "copied", "source");
    const SourceRange* const place = both_checked(to, count, 16, "copied to", "destination");
    if (place == nullptr || origin == nullptr) return;
    Emulator& emulator = Emulator::current();
    const Now agent = emulator.storing();
    report(origin->memory->read(origin->offset_of(from), count, agent), *origin, from);
    report(place->memory->write(place->offset_of(to), count, agent), *place, to);
    emulator.store_later([=] { std::memcpy(to, from, count); });
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
