#include "kernels/simt/emulated_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/knowledge.h"
#include "kernels/simt/types.h"

namespace verbatim::simt {
namespace {

int32_t warp_of(int32_t thread) { return thread / kWarpSize; }
int32_t lane_of(int32_t thread) { return thread % kWarpSize; }

constexpr size_t kFewListed = 32;  // least capacity of a cell's reader list, before superseded readers are searched for

bool is_agent(const Moment& moment) { return moment.thread >= kFirstAgent; }

bool knows_of_block(const Moment& before, const Now& now) {
    if (now.knowledge == nullptr) return false;
    const auto other = now.knowledge->others.find(before.block);
    if (other == now.knowledge->others.end()) return false;
    if (!is_agent(before) && before.block_epoch < other->second.block_epoch) return true;
    return before.warp_epoch < other->second.known.at(before.thread);
}

// Whether readers share a list: those of a block, and of all resident blocks if they wait for each other.
bool are_listed(const Moment& last, const Now& now, bool blocks_share) {
    if (last.launch != now.launch) return false;
    return last.block == now.block || (blocks_share && now.knowledge != nullptr && now.knowledge->is_cooperative);
}

bool is_before_launch(const Moment& before, const Now& now) {
    return before.launch < now.unsafe_from && !is_unordered(before.launch, now);
}

// Whether `before` happens before `now` (M2); the most frequent case comes first.
bool ordered_in_block(const Moment& before, const Now& now) {
    if (!is_agent(before)) {
        const bool in_warp = warp_of(before.thread) == warp_of(now.issuer);
        if (in_warp && before.warp_epoch < now.seen[lane_of(before.thread)]) return true;
    }
    return now.knowledge != nullptr && before.warp_epoch < now.knowledge->known.at(before.thread);
}
[[gnu::always_inline]] inline bool ordered(const Moment& before, const Now& now, bool blocks_share) {
    if (before.launch != now.launch) return !blocks_share || is_before_launch(before, now);
    if (before.block != now.block) return !blocks_share || knows_of_block(before, now);
    const bool is_before = before.block_epoch < now.block_epoch || before.thread == now.issuer;
    return (is_before && !is_agent(before)) || ordered_in_block(before, now);
}

// Whether the warp of a reader has met since: a shuffle orders no memory, but what its lanes read before is read.
bool has_met_since(const Moment& reader, const Now& now) {
    const bool in_block = reader.launch == now.launch && reader.block == now.block && !is_agent(reader);
    return in_block && warp_of(reader.thread) == warp_of(now.issuer) && reader.meetings < now.meetings;
}

// The clash to report when `before` is not ordered.
Clash clash_of(const Moment& before, const Now& now, Clash between_threads) {
    if (is_unordered(before.launch, now)) return Clash::kOtherStream;
    if (before.launch != now.launch) return Clash::kEarlierKernel;
    if (!is_agent(before)) return between_threads;
    return between_threads == Clash::kWriteAfterRead ? Clash::kStillRead : Clash::kUnderWay;
}

// The same for accesses by several lanes of now's warp.
bool all_ordered(uint32_t lanes, uint32_t last_epoch, const Now& now) {
    for (uint32_t others = lanes & ~(1U << lane_of(now.issuer)); others != 0; others &= others - 1) {
        if (last_epoch >= now.seen[std::countr_zero(others)]) return false;
    }
    return true;
}

// The clashes of four consecutive elements from `offset` on.
template <typename Access>
Memory::Clashes of_four(size_t offset, size_t element_bytes, const Access& access) {
    Memory::Clashes clashes{};
    for (Clash& clash : clashes) {
        clash = access(offset);
        offset += element_bytes;
    }
    return clashes;
}

// Shared memory begins at a multiple of 1024 bytes, as a block's does.
std::byte* zeros(size_t bytes, Memory::Life life) {
    if (life == Memory::Life::kDevice) return static_cast<std::byte*>(std::calloc(bytes, 1));
    constexpr size_t kAlignment = 1024;
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const aligned = std::aligned_alloc(kAlignment, std::max(whole, kAlignment));
    if (aligned != nullptr) std::memset(aligned, 0, bytes);
    return static_cast<std::byte*>(aligned);
}

}  // namespace

bool is_unordered(uint32_t launch, const Now& now) {
    return now.unordered != nullptr && std::ranges::binary_search(*now.unordered, launch);
}

bool comes_before(const Moment& before, const Now& now) { return ordered(before, now, true); }

// Whether an agent may touch what a thread of its block has written.
bool is_fenced(const Moment& before, const Now& now) {
    const bool by_thread = before.launch == now.launch && before.block == now.block && !is_agent(before);
    if (!by_thread || !is_agent(now)) return true;
    const Knowledge& knowledge = *now.knowledge;
    return before.block_epoch < knowledge.fenced_blocks || before.warp_epoch < knowledge.fenced.at(before.thread);
}

Memory::Memory(size_t bytes, size_t cell_bytes, Life life)
    : size_(bytes),
      cell_bytes_(cell_bytes),
      cell_shift_(std::has_single_bit(cell_bytes) ? std::countr_zero(cell_bytes) : -1),
      life_(life),
      bytes_(zeros(bytes, life)),
      pages_((bytes / cell_bytes + kPageCells) / kPageCells) {
    if (bytes_ == nullptr) throw std::bad_alloc();
}

[[gnu::always_inline]] inline Memory::Cell& Memory::cell(size_t i) {
    Page& page = pages_[i / kPageCells];
    if (!page.cells) [[unlikely]]
        touch(page);
    return page.cells.get()[i % kPageCells];
}

[[gnu::noinline]] void Memory::touch(Page& page) {
    page.cells = std::make_unique<Cell[]>(kPageCells);
    if (page.is_filled) std::fill_n(page.cells.get(), kPageCells, Cell{.initialised = true});
}

inline Memory::Cells Memory::cells_of(size_t offset, size_t count) const {
    if (cell_shift_ >= 0) return {offset >> cell_shift_, ((offset + count - 1) >> cell_shift_) + 1};
    return {offset / cell_bytes_, (offset + count - 1) / cell_bytes_ + 1};
}

bool Memory::holds(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= this->address() && byte < this->address() + size_;
}

void Memory::Unmap::operator()(std::byte* address) const { munmap(address, bytes); }

void Memory::hide() {
    CHECK(hidden_ == nullptr, "memory is hidden twice");
    void* const address = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    hidden_ = {static_cast<std::byte*>(address), Unmap{size_}};
}

void Memory::forbid(size_t offset, size_t count) {
    if (count == 0) return;
    CHECK_LE(offset + count, size_);
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) cell(i).is_forbidden = true;
}

inline bool Memory::is_written(const Cell& cell, const Moment& now) const {
    const bool by_this_block = cell.written.launch == now.launch && cell.written.block == now.block;
    return cell.initialised && (blocks_share() || by_this_block);
}

// Agents see writes by threads of their launch and block only behind a fence, which covers shared memory alone.
inline bool Memory::is_seen(const Moment& written, const Now& now) const {
    if (!is_agent(now)) return true;
    const bool by_thread = written.launch == now.launch && written.block == now.block && !is_agent(written);
    return life_ == Life::kDevice && by_thread ? false : is_fenced(written, now);
}

Clash Memory::read_for_copy(size_t offset, size_t count, const Now& now) {
    Clash clash = Clash::kNone;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        if (!is_written(cell(i), now)) continue;
        const Clash found = read(i * cell_bytes_, cell_bytes_, now);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

bool Memory::is_fenced_at(size_t offset, size_t count, const Now& agent) {
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) {
        if (cell(i).initialised && !is_fenced(cell(i).written, agent)) return false;
    }
    return true;
}

void Memory::carry_unwritten(size_t offset, const Memory& source, size_t source_offset, size_t count) {
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        const size_t from = source_offset + std::max(i * cell_bytes_, offset) - offset;
        const size_t end = std::min(from + cell_bytes_, source_offset + count);
        for (size_t k = from / source.cell_bytes_; k <= (end - 1) / source.cell_bytes_; ++k) {
            const Page& page = source.pages_[k / kPageCells];
            const bool is_written = page.cells ? page.cells[k % kPageCells].initialised : page.is_filled;
            if (!is_written) cell(i).initialised = false;
        }
    }
}

bool Memory::is_in_scope(size_t offset, size_t count, const Now& now, Order order) {
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) {
        const Cell& cell = this->cell(i);
        if (cell.written_as == Order::kPlain || cell.written.launch != now.launch) continue;
        if (order == Order::kAtomic && cell.written_as == Order::kAtomic) continue;
        if (cell.written.block != now.block && !ordered(cell.written, now, blocks_share())) return false;
    }
    return true;
}

[[gnu::always_inline]] inline Clash Memory::read_cell(size_t i, const Now& now, Order order) {
    Cell& cell = this->cell(i);
    Clash clash = Clash::kNone;
    if (!is_written(cell, now)) {
        clash = Clash::kUninitialised;
    } else if (!is_seen(cell.written, now)) {
        clash = Clash::kNotFenced;
    }
    const bool is_atomic = order != Order::kPlain;
    if (!ordered(cell.written, now, blocks_share()) && !(is_atomic && cell.written_as != Order::kPlain)) {
        clash = clash_of(cell.written, now, Clash::kReadAfterWrite);
    }
    if (is_under_way(i, now)) clash = Clash::kUnderWay;
    if (cell.is_forbidden) clash = Clash::kBetweenRows;
    if (is_atomic) return clash;
    if (now.knowledge == nullptr) {
        note_read(cell, now);
    } else {
        note_reader(cell, now);
    }
    return clash;
}

Clash Memory::read(size_t offset, size_t count, const Now& now, Order order) {
    Clash clash = Clash::kNone;
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) {
        const Clash found = read_cell(i, now, order);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

Memory::Clashes Memory::read4(size_t offset, size_t element_bytes, const Now& now) {
    return of_four(offset, element_bytes, [&](size_t at) { return read(at, element_bytes, now); });
}

Memory::Clashes Memory::write4(size_t offset, size_t element_bytes, const Now& now) {
    return of_four(offset, element_bytes, [&](size_t at) { return write(at, element_bytes, now); });
}

// A reader that is ordered after all lanes that have read so far replaces them.
inline void Memory::note_read(Cell& cell, const Now& now) {
    Moment& last = cell.last_read;
    const bool in_block = last.launch == now.launch && last.block == now.block;
    const int32_t warp = warp_of(now.thread);
    const uint32_t lane = 1U << lane_of(now.thread);
    if (in_block && last.block_epoch == now.block_epoch && last.thread != now.thread) {
        if (last.thread == -1 && cell.read_warp == -1) return;  // several warps: a further one adds no information
        const bool same_warp = cell.read_warp == warp;
        const bool has_met = last.meetings < now.meetings;  // as for a write: has_met_since()
        if (!same_warp || (!has_met && !all_ordered(cell.read_lanes, last.warp_epoch, now))) {
            if (!same_warp) cell.read_warp = -1;
            cell.read_lanes |= lane;
            last.thread = -1;
            last.warp_epoch = std::max(last.warp_epoch, now.warp_epoch);
            last.meetings = std::max(last.meetings, now.meetings);
            return;
        }
    } else if (life_ == Life::kDevice && last.launch == now.launch && !in_block) {
        last.block = -1;  // the blocks are not ordered: one reader of another block suffices
        return;
    }
    drop_list(cell);
    replace_reader(cell, now);
    cell.read_warp = warp;
    cell.read_lanes = lane;
}

void Memory::replace_reader(Cell& cell, const Now& now) const {
    if (life_ == Life::kDevice && is_unordered(cell.last_read.launch, now)) cell.also_read = cell.last_read.launch;
    cell.last_read = now;
}

// A reader that is ordered after all earlier readers replaces them; otherwise it joins the list. A full list first
// drops superseded readers and then has at least half its capacity free.
void Memory::note_reader(Cell& cell, const Now& now) {
    Moment& last = cell.last_read;
    const bool blocks_share = this->blocks_share();
    const bool listed = are_listed(last, now, blocks_share);
    const bool is_elsewhere = last.launch == now.launch && last.block != now.block && blocks_share;
    if (!listed && is_elsewhere && !ordered(last, now, blocks_share)) {
        last.block = -1;
        return;
    }
    const auto comes_after = [&](const Moment& reader) {
        return (reader.block == now.block && reader.thread == now.thread) || ordered(reader, now, blocks_share);
    };
    const bool is_alone = !listed || last.thread == -1 || (last.thread != kListed && comes_after(last));
    if (is_alone) {
        drop_list(cell);
        replace_reader(cell, now);
        cell.read_warp = warp_of(now.issuer);
        cell.read_lanes = 1U << lane_of(now.issuer);
        return;
    }
    if (last.thread != kListed) begin_list(cell);
    std::vector<Moment>& readers = lists_[static_cast<size_t>(cell.read_warp)];
    if (readers.size() == readers.capacity()) {
        std::erase_if(readers, comes_after);
        readers.reserve(std::max(kFewListed, 2 * readers.size()));
    }
    readers.push_back(now);
    last = now;
    last.thread = kListed;
}

void Memory::begin_list(Cell& cell) {
    if (unused_lists_.empty()) {
        unused_lists_.push_back(static_cast<int32_t>(lists_.size()));
        lists_.emplace_back();
    }
    cell.read_warp = unused_lists_.back();
    unused_lists_.pop_back();
    lists_[static_cast<size_t>(cell.read_warp)].assign(1, cell.last_read);
    cell.last_read.thread = kListed;
}

void Memory::drop_list(const Cell& cell) {
    if (cell.last_read.thread == kListed) unused_lists_.push_back(cell.read_warp);
}

// Whether all readers of the cell happen before `now`.
Clash Memory::clash_with_reads(Cell& cell, const Now& now) {
    const bool blocks_share = this->blocks_share();
    const Moment& last = cell.last_read;
    if (is_unordered(cell.also_read, now)) return Clash::kOtherStream;
    if (last.thread == kListed && are_listed(last, now, blocks_share)) {
        Clash clash = Clash::kNone;
        for (const Moment& reader : lists_[static_cast<size_t>(cell.read_warp)]) {
            if (!ordered(reader, now, blocks_share) && !has_met_since(reader, now))
                clash = clash_of(reader, now, Clash::kWriteAfterRead);
        }
        drop_list(cell);
        cell.last_read = {};
        return clash;
    }
    if (last.launch == now.launch && last.block == now.block && last.thread == -1) {
        const bool in_warp = cell.read_warp == warp_of(now.issuer) &&
                             (last.meetings < now.meetings || all_ordered(cell.read_lanes, last.warp_epoch, now));
        return last.block_epoch < now.block_epoch || in_warp ? Clash::kNone : Clash::kWriteAfterRead;
    }
    const bool is_over = ordered(last, now, blocks_share) || has_met_since(last, now);
    return is_over ? Clash::kNone : clash_of(last, now, Clash::kWriteAfterRead);
}

bool Memory::overwrites(const Cell& cell, const Now& now) {
    const bool by_another = cell.written.launch == now.launch && cell.written.block != now.block;
    const bool is_read = cell.last_read.launch == now.launch && cell.last_read.block != cell.written.block;
    return by_another && !is_read;
}

Clash Memory::write_cell(size_t i, const Now& now, Order order) {
    Cell& cell = this->cell(i);
    if (watches_overwrites_ && order == Order::kPlain && overwrites(cell, now)) is_overwritten_ = true;
    Clash clash = clash_with_reads(cell, now);
    if (!ordered(cell.written, now, blocks_share())) {
        const bool in_warp = !blocks_share() || cell.written.block == now.block;
        const bool by_warp = in_warp && warp_of(cell.written.thread) == warp_of(now.issuer);
        if (order == Order::kPlain || cell.written_as == Order::kPlain)
            clash = clash_of(cell.written, now, by_warp ? Clash::kWrittenInWarp : Clash::kWriteAfterWrite);
    } else if (is_written(cell, now) && !is_seen(cell.written, now)) {
        clash = Clash::kNotFenced;
    }
    if (is_under_way(i, now)) clash = Clash::kUnderWay;
    if (cell.is_forbidden) clash = Clash::kBetweenRows;
    cell.written = now;
    cell.written_as = order;
    cell.initialised = true;
    return clash;
}

Clash Memory::write(size_t offset, size_t count, const Now& now, Order order) {
    Clash clash = Clash::kNone;
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) {
        const Clash found = write_cell(i, now, order);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

Clash Memory::begin_copy(size_t offset, size_t count, const Now& now) {
    if (copying_.launch != now.launch || copying_.block != now.block) {
        // If all copies of the previous block have landed, all counts are already 0.
        if (copies_.empty() || num_copies_ != 0) copies_.assign(size_ / cell_bytes_ + 1, 0);
        num_copies_ = 0;
        copying_ = now;
    }
    const Clash clash = write(offset, count, now);
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) ++copies_[i];
    num_copies_ += static_cast<int64_t>(cells.end - cells.begin);
    return clash;
}

void Memory::end_copy(size_t offset, size_t count) {
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) --copies_[i];
    num_copies_ -= static_cast<int64_t>(cells.end - cells.begin);
    CHECK_GE(num_copies_, 0);
}

void Memory::end_copy(size_t offset, size_t count, const Moment& agent) {
    CHECK(is_agent(agent), "thread {} waits for its copies", agent.thread);
    end_copy(offset, count);
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) cell(i).written = agent;
}

Clash Memory::update(size_t offset, size_t count, const Now& now, Order order) {
    Clash clash = Clash::kNone;
    for (size_t i = offset / cell_bytes_; i <= (offset + count - 1) / cell_bytes_; ++i) {
        if (!is_written(cell(i), now)) clash = Clash::kUninitialised;
        const Clash found = write_cell(i, now, order);
        if (found != Clash::kNone) clash = found;
    }
    return clash;
}

Clash Memory::write_touched(const Now& now) {
    Clash clash = Clash::kNone;
    for (size_t page = 0; page < pages_.size(); ++page) {
        for (size_t i = 0; pages_[page].cells && i < kPageCells; ++i) {
            const Clash found = write_cell(page * kPageCells + i, now, Order::kPlain);
            if (found != Clash::kNone) clash = found;
        }
    }
    return clash;
}

bool Memory::is_written_in(uint32_t launch, size_t offset, size_t count) {
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end; ++i) {
        if (cell(i).initialised && cell(i).written.launch == launch) return true;
    }
    return false;
}

void Memory::fill(size_t offset, size_t count) {
    if (count == 0) return;
    CHECK_LE(offset + count, size_);
    const Cells cells = cells_of(offset, count);
    for (size_t i = cells.begin; i < cells.end;) {
        if (i % kPageCells == 0 && i + kPageCells <= cells.end) {
            Page& page = pages_[i / kPageCells];
            for (size_t k = 0; page.cells && k < kPageCells; ++k) drop_list(page.cells[k]);
            page = {.cells = nullptr, .is_filled = true};
            i += kPageCells;
        } else {
            drop_list(cell(i));
            cell(i++) = {.initialised = true};
        }
    }
}

}  // namespace verbatim::simt
