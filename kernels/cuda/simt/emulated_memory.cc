#include "kernels/cuda/simt/emulated_memory.h"

#include <algorithm>
#include <new>

#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {
namespace {

int32_t warp_of(int32_t thread) { return thread / kWarpSize; }
int32_t lane_of(int32_t thread) { return thread % kWarpSize; }

// Whether `before` is ordered before `now` (M2).
bool ordered(const Moment& before, const Now& now, bool blocks_share) {
    if (before.launch != now.launch) return true;
    if (before.block != now.block) return !blocks_share;
    if (before.thread == now.thread) return true;
    if (before.block_epoch < now.block_epoch) return true;
    return warp_of(before.thread) == warp_of(now.thread) && before.warp_epoch < now.seen[lane_of(before.thread)];
}

// The same of accesses by several lanes of now's warp.
bool all_ordered(uint32_t lanes, uint32_t last_epoch, const Now& now) {
    for (int32_t lane = 0; lane < kWarpSize; ++lane) {
        const bool other = (lanes >> lane & 1U) != 0 && lane != lane_of(now.thread);
        if (other && last_epoch >= now.seen[lane]) return false;
    }
    return true;
}

}  // namespace

Memory::Memory(size_t bytes, size_t cell_bytes, Life life)
    : size_(bytes),
      cell_bytes_(cell_bytes),
      life_(life),
      bytes_(static_cast<std::byte*>(std::calloc(bytes, 1))),
      pages_((bytes / cell_bytes + kPageCells) / kPageCells) {
    if (bytes_ == nullptr) throw std::bad_alloc();
}

Memory::Cell& Memory::cell(size_t i) {
    auto& page = pages_[i / kPageCells];
    if (!page) page = std::make_unique<Cell[]>(kPageCells);
    return page[i % kPageCells];
}

bool Memory::holds(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= bytes_.get() && byte < bytes_.get() + size_;
}

bool Memory::is_written(const Cell& cell, const Moment& now) const {
    const bool by_this_block = cell.written.launch == now.launch && cell.written.block == now.block;
    return cell.initialised && (life_ == Life::kDevice || by_this_block);
}

Clash Memory::read(size_t offset, size_t count, const Now& now) {
    Clash clash = Clash::kNone;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        Cell& cell = this->cell(i);
        if (!is_written(cell, now)) clash = Clash::kUninitialised;
        if (!ordered(cell.written, now, life_ == Life::kDevice)) clash = Clash::kReadAfterWrite;
        Moment& last = cell.last_read;
        const bool same_epoch =
            last.launch == now.launch && last.block == now.block && last.block_epoch == now.block_epoch;
        if (same_epoch && last.thread != now.thread) {
            if (cell.read_warp != warp_of(now.thread)) cell.read_warp = -1;
            cell.read_lanes |= 1U << lane_of(now.thread);
            last.thread = -1;
            last.warp_epoch = std::max(last.warp_epoch, now.warp_epoch);
        } else if (life_ == Life::kDevice && last.launch == now.launch && last.block != now.block) {
            last.block = -1;  // blocks are never ordered: one of them is enough to know
        } else {
            last = now;
            cell.read_warp = warp_of(now.thread);
            cell.read_lanes = 1U << lane_of(now.thread);
        }
    }
    return clash;
}

Clash Memory::write_cell(Cell& cell, const Now& now, bool atomic) {
    Clash clash = Clash::kNone;
    const Moment& last = cell.last_read;
    const bool by_several = last.launch == now.launch && last.block == now.block && last.thread == -1;
    const bool in_warp = cell.read_warp == warp_of(now.thread) && all_ordered(cell.read_lanes, last.warp_epoch, now);
    const bool after_reads =
        by_several ? last.block_epoch < now.block_epoch || in_warp : ordered(last, now, life_ == Life::kDevice);
    if (!after_reads) clash = Clash::kWriteAfterRead;
    if (!ordered(cell.written, now, life_ == Life::kDevice) && !(atomic && cell.written_atomically))
        clash = Clash::kWriteAfterWrite;
    cell.written = now;
    cell.written_atomically = atomic;
    cell.initialised = true;
    return clash;
}

Clash Memory::write(size_t offset, size_t count, const Now& now) {
    Clash clash = Clash::kNone;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        const Clash found = write_cell(cell(i), now, false);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

Clash Memory::update(size_t offset, size_t count, const Now& now) {
    Clash clash = Clash::kNone;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        if (!is_written(cell(i), now)) clash = Clash::kUninitialised;
        const Clash found = write_cell(cell(i), now, true);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

void Memory::fill(size_t offset, size_t count) {
    if (count == 0) return;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) cell(i) = {.initialised = true};
}

}  // namespace verbatim::simt
