#include "kernels/simt/source_state.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <any>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/source_memory.h"
#include "kernels/simt/source_threads.h"

namespace verbatim::simt {
namespace {

// The `__device__` variables of the loaded libraries.
struct DeviceVariable {
    std::byte* begin;
    size_t num_bytes, cell_bytes;
};
std::vector<DeviceVariable>& device_variables() {
    static std::vector<DeviceVariable> variables;
    return variables;
}

// What a block has in shared memory while it is parked.
struct ParkedShared {
    std::vector<SourceRange> ranges;
    uint32_t window_end = 0;
    int32_t block = -1;                         // of a cluster
    std::vector<std::vector<std::byte>> bytes;  // of static arrays, by range; of dynamic memory, which stays: none
};

// Static arrays are one place for all blocks.
void change_shared(std::any& parked) {
    if (!parked.has_value()) parked.emplace<ParkedShared>();
    auto& coming = std::any_cast<ParkedShared&>(parked);
    ParkedShared leaving{source.take_shared(), source.window_end, source.shared_block, {}};
    const bool has_clusters = source.emulator->has_clusters();
    for (const SourceRange& range : leaving.ranges) {
        const bool is_static = range.begin != range.memory->bytes();
        if (has_clusters && is_static)
            std::copy_n(range.begin, range.num_bytes, home_of(leaving.block, range.begin, range.num_bytes));
        if (!has_clusters) leaving.bytes.emplace_back(range.begin, range.begin + (is_static ? range.num_bytes : 0));
    }
    for (size_t i = 0; i < coming.bytes.size(); ++i) std::ranges::copy(coming.bytes[i], coming.ranges[i].begin);
    for (const SourceRange& range : coming.ranges) {
        if (has_clusters && range.begin != range.memory->bytes())
            std::copy_n(home_of(coming.block, range.begin, range.num_bytes), range.num_bytes, range.begin);
    }
    source.set_shared(std::move(coming.ranges));
    source.window_end = coming.window_end;
    source.shared_block = coming.block;
    coming = std::move(leaving);
}

}  // namespace

SourceState source;
bool& source_has_clusters() {
    static bool has = false;
    return has;
}

const SourceRange* SourceState::find_anew(const std::byte* address) const {
    const auto* lowest = static_cast<const std::byte*>(nullptr);
    const auto* highest = reinterpret_cast<const std::byte*>(UINTPTR_MAX);
    for (size_t kind = 0; kind < 3; ++kind) {
        for (const SourceRange& range : kind == 0 ? shared_ : kind == 1 ? device_ : remote_) {
            if (range.is_near(address)) {
                known_[1 + kind] = {range.near_begin(), range.near_end(), &range};
                return &range;
            }
            if (range.near_end() <= address) lowest = std::max(lowest, range.near_end());
            if (range.near_begin() > address) highest = std::min(highest, range.near_begin());
        }
    }
    known_[0] = {lowest, highest, nullptr};
    return nullptr;
}

void SourceState::add_device(const SourceRange& range) {
    CHECK(range.memory != nullptr, "{}", range.what);
    forget_answers();
    device_.push_back(range);
}

void SourceState::free_device(const std::byte* begin) {
    const auto found = std::ranges::find_if(device_, [&](const SourceRange& one) { return one.begin == begin; });
    CHECK(found != device_.end() && found->made_in != 0, "memory is freed that was not allocated");
    found->is_free = true;
}

size_t SourceState::num_unfreed() const {
    size_t num_bytes = 0;
    for (const SourceRange& one : device_) num_bytes += one.made_in != 0 && !one.is_free ? one.num_bytes : 0;
    return num_bytes;
}

std::vector<SourceRange> SourceState::take_shared() {
    forget_answers();
    return std::exchange(shared_, {});
}

void SourceState::set_shared(std::vector<SourceRange> ranges) {
    CHECK(shared_.empty(), "{} shared ranges are lost", shared_.size());
    forget_answers();
    shared_ = std::move(ranges);
}

std::byte* SourceState::add_remote(const SourceRange& mine, int32_t block) {
    Memory& memory = emulator->shared_of(block, mine.key, mine.memory->size(), mine.memory->cell_bytes());
    const bool is_static = mine.begin != mine.memory->bytes();
    std::byte* const begin = is_static ? home_of(block, mine.begin, mine.num_bytes) : memory.bytes();
    const auto is_it = [&](const SourceRange& range) { return range.begin == begin && range.block == block; };
    if (std::ranges::any_of(remote_, is_it)) return begin;
    SourceRange range = mine;
    range.begin = begin;
    range.memory = &memory;
    range.what = is_static ? "a shared array of another block" : "dynamic shared memory of another block";
    range.block = block;
    range.in_block = is_static ? mine.begin : begin;
    forget_answers();
    remote_.push_back(range);
    return begin;
}

void SourceState::forget_remote(std::span<const int32_t> blocks) {
    forget_answers();
    for (const int32_t block : blocks) {
        std::erase_if(remote_, [block](const SourceRange& range) { return range.block == block; });
        forget_home_of(block);
    }
}

void SourceState::forget_remote() {
    forget_answers();
    remote_.clear();
    forget_homes();
    shared_block = -1;
}

void SourceState::add_shared(SourceRange range) {
    // Far enough from the range before that an access a little beyond it is named as its.
    // But not so far that they leave the 256 KiB of a matrix descriptor's addresses.
    constexpr uint32_t kFar = 64 << 10, kNear = 2 << 10, kAlignment = 1024, kOfDescriptors = 256 << 10;
    const uint32_t between = window_end + kFar + range.num_bytes <= kOfDescriptors ? kFar : kNear;
    const auto misalignment = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(range.begin) % kAlignment);
    range.window = (window_end + between + kAlignment - 1) / kAlignment * kAlignment + misalignment;
    window_end = range.window + static_cast<uint32_t>(range.num_bytes);
    forget_answers();
    shared_.push_back(range);
}

// A block of a cluster has its shared memory alone, and no ranges of the block before.
void begin_shared_of_block() {
    if (!Emulator::current().has_clusters() || source.shared_block == Emulator::current().block_index()) return;
    source.take_shared();
    source.window_end = 0;
    source.shared_block = Emulator::current().block_index();
}

SourceDevice::SourceDevice(Emulator& emulator, const std::byte* static_begin, size_t static_bytes,
                           int32_t num_multiprocessors) {
    CHECK(source.emulator == nullptr, "two devices at once");
    // All that run() allocates is in the heap, where a kernel's access is found.
    static const bool is_set = mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, 64 << 20) == 1;
    CHECK(is_set, "malloc takes no options");
    source = {};
    source.emulator = &emulator;
    source.num_multiprocessors = num_multiprocessors;
    emulator.watch_blocks(change_shared);
    emulator.watch_clusters([](std::span<const int32_t> over) {
        source.take_shared();
        source.shared_block = -1;
        source.forget_remote(over);
    });
    begin_streams();
    source.static_memory = {static_begin, static_bytes};
    for (const DeviceVariable& one : device_variables()) {
        if (one.begin < static_begin || one.begin >= static_begin + static_bytes) continue;  // another library's
        Memory& memory = emulator.memory_of(emulator.allocate(one.num_bytes, one.cell_bytes));
        memory.fill(0, one.num_bytes);  // a program's variables begin as zeros
        source.add_device({one.begin, one.num_bytes, &memory, 0, "a __device__ variable", 0, 0});
    }
}
SourceDevice::~SourceDevice() { source = {}; }

void SourceDevice::end_call() {
    end_streams();
    const size_t num_left = source.num_unfreed();
    if (num_left > 0) source.emulator->note(fmt::format("{} bytes of cudaMallocAsync are not freed", num_left));
}

std::byte* SourceDevice::allocate(size_t num_bytes, size_t cell_bytes, size_t shift) {
    return allocate_source(num_bytes, cell_bytes, shift, 0);
}

std::byte* allocate_source(size_t num_bytes, size_t cell_bytes, size_t shift, uint32_t made_in) {
    const size_t whole = num_bytes + shift + 2 * kSpareBytes;
    auto* const begin = static_cast<std::byte*>(source.emulator->allocate(whole, cell_bytes)) + kSpareBytes + shift;
    Memory& memory = source.emulator->memory_of(begin);
    source.add_device({.begin = begin,
                       .num_bytes = num_bytes,
                       .memory = &memory,
                       .offset = kSpareBytes + shift,
                       .what = made_in == 0 ? "device memory" : "memory of cudaMallocAsync",
                       .spare_before = kSpareBytes,
                       .spare_behind = kSpareBytes,
                       .made_in = made_in});
    return begin;
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

bool device_variable(void* data, size_t num_bytes, size_t cell_bytes) {
    simt::device_variables().push_back({static_cast<std::byte*>(data), num_bytes, cell_bytes});
    return true;
}

}  // namespace verbatim::cuda_source
