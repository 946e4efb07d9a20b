// kernels/simt/emulated_memory.h: owns emulated memory with shadow cells that store the last write and the last
// reads of every element.
//
//   M1  an access out of bounds, or of a cell that was never written, is always found
//   M2  two accesses to a cell by two threads of one launch, one of them a write, are a race unless a happens-before
//       relation orders them: a block barrier between threads of a block, sync_warp between the lanes of its mask, or
//       the thread's vector clock (simt/knowledge.h). Blocks of one launch are ordered by release and acquire alone
//   M3  checks do not change results: an illegal read returns zeros, an illegal write is dropped
//   M4  a bulk copy writes, and tensor cores read, from the request until it is waited for. They may touch what a
//       thread wrote to shared memory after a fence_async; what it wrote to global memory never
//   M5  a bulk copy to shared memory may read unwritten cells; the cells where it lands are then unwritten
//   M6  a thread's asynchronous copy writes from the request until it lands; no access to those cells is legal
//       meanwhile
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/simt/knowledge.h"
#include "kernels/simt/types.h"

namespace verbatim::simt {

// A thread's point in a launch, with the number of barriers that it has passed.
struct Moment {
    uint32_t launch = 0;  // 0: never
    int32_t block = -1;
    int32_t thread = -1;
    uint32_t block_epoch = 0;
    uint32_t warp_epoch = 0;
    uint32_t meetings = 0;  // shuffles, votes and the like by all lanes of the warp
};
// The running thread's point, with what its warp barriers have ordered: what lane l did in a warp epoch before seen[l].
struct Now : Moment {
    std::array<uint32_t, kWarpSize> seen{};
    int32_t issuer = -1;       // the thread whose order counts: `thread`, or the thread that started an agent
    uint32_t unsafe_from = 0;  // launches before this one have ended
    const Knowledge* knowledge = nullptr;  // null in a block that needs no vector clocks
    // Launches before that no stream orders, and that may still run, in ascending order; null: none.
    const std::vector<uint32_t>* unordered = nullptr;
};

enum class Clash : uint8_t {
    kNone,
    kUninitialised,
    kBetweenRows,  // it lies between two rows, and belongs to none
    kWriteAfterWrite,
    kWrittenInWarp,  // the same, by two threads of a warp
    kReadAfterWrite,
    kWriteAfterRead,
    kUnderWay,       // a copy to it is in flight
    kStillRead,      // it is written while tensor cores or a copy may still read it
    kNotFenced,      // a thread wrote it, and an agent touches it without a proxy fence between
    kEarlierKernel,  // an earlier kernel may still touch it
    kOtherStream     // a launch of another stream may touch it at the same time
};

// Whether the launch is one that no stream orders before `now`.
[[nodiscard]] bool is_unordered(uint32_t launch, const Now& now);

// Happens-before between threads of a block (M2), and M4.
[[nodiscard]] bool comes_before(const Moment& before, const Now& now);
[[nodiscard]] bool is_fenced(const Moment& before, const Now& now);

// Atomic operations race only with plain accesses, and those whose scope is the block (.cta, atomicAdd_block) with all
// of other blocks.
enum class Order : uint8_t { kPlain, kAtomicInBlock, kAtomic };

// Bytes and their cells. A cell is the smallest element that threads access separately.
class Memory {
public:
    enum class Life : uint8_t {
        kDevice,  // keeps its content
        kBlock,   // shared memory: unwritten at the start of every block
        kCluster  // shared memory of one block, which the others of its cluster may touch
    };
    Memory(size_t bytes, size_t cell_bytes, Life life = Life::kDevice);

    [[nodiscard]] std::byte* bytes() { return bytes_.get(); }
    // What kernels hold: the bytes' address, or that of as many bytes which cannot be accessed.
    [[nodiscard]] std::byte* address() const { return hidden_ ? hidden_.get() : bytes_.get(); }
    // REQUIRES: no kernel holds the address yet.
    void hide();
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] size_t cell_bytes() const { return cell_bytes_; }
    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] bool holds(const void* address) const;

    [[nodiscard]] Clash read(size_t offset, size_t count, const Now& now, Order order = Order::kPlain);
    // By a bulk copy: cells may be unwritten.
    [[nodiscard]] Clash read_for_copy(size_t offset, size_t count, const Now& now);
    // Whether the agent may touch what threads of its block have written here.
    [[nodiscard]] bool is_fenced_at(size_t offset, size_t count, const Now& agent);
    // After a copy: marks cells as unwritten where the source is unwritten. REQUIRES: `source` is device memory.
    void carry_unwritten(size_t offset, const Memory& source, size_t source_offset, size_t count);
    [[nodiscard]] Clash write(size_t offset, size_t count, const Now& now, Order order = Order::kPlain);
    // The clashes of four consecutive elements of equal size.
    using Clashes = std::array<Clash, 4>;
    [[nodiscard]] Clashes read4(size_t offset, size_t element_bytes, const Now& now);
    [[nodiscard]] Clashes write4(size_t offset, size_t element_bytes, const Now& now);
    // A thread's asynchronous copy in shared memory: at the request, and when it lands.
    [[nodiscard]] Clash begin_copy(size_t offset, size_t count, const Now& now);
    void end_copy(size_t offset, size_t count);
    // The same of a copy that a barrier's phase has waited for, whose agent has written by then.
    void end_copy(size_t offset, size_t count, const Moment& agent);
    // Whether an atomic operation of this scope and the last one here are atomic for each other. Before it acquires:
    // what it would then know is no order, if it is out of scope.
    [[nodiscard]] bool is_in_scope(size_t offset, size_t count, const Now& now, Order order);
    // By an atomic operation.
    [[nodiscard]] Clash update(size_t offset, size_t count, const Now& now, Order order = Order::kAtomic);
    // Of all bytes that have been touched.
    [[nodiscard]] Clash write_touched(const Now& now);
    // Whether the launch has written any of these bytes.
    [[nodiscard]] bool is_written_in(uint32_t launch, size_t offset, size_t count);
    // By the host, between launches.
    void fill(size_t offset, size_t count);
    // From now on every access to these bytes is found.
    void forbid(size_t offset, size_t count);
    // From now on notes whether a block writes a cell that another one has written in the launch, and that it has not
    // read since: both do the same work.
    void watch_overwrites() { watches_overwrites_ = true; }
    [[nodiscard]] bool is_overwritten() const { return is_overwritten_; }

private:
    struct Cell {
        Moment written;
        Moment last_read;         // thread -1: several readers; kListed: see lists_
        int32_t read_warp = -1;   // of kListed: the index in lists_
        uint32_t read_lanes = 0;  // lanes of the warp, when thread is -1
        uint32_t also_read = 0;   // a launch that no stream orders before the last reader's; 0: none
        bool initialised = false;
        Order written_as = Order::kPlain;
        bool is_forbidden = false;
    };
    static constexpr int32_t kListed = -2;
    struct Cells {
        size_t begin = 0;
        size_t end = 0;
    };
    [[nodiscard]] Cells cells_of(size_t offset, size_t count) const;
    [[nodiscard]] Clash read_cell(size_t i, const Now& now, Order order);
    [[nodiscard]] Clash write_cell(size_t i, const Now& now, Order order);
    [[nodiscard]] Clash clash_with_reads(Cell& cell, const Now& now);
    void note_read(Cell& cell, const Now& now);
    void note_reader(Cell& cell, const Now& now);
    void replace_reader(Cell& cell, const Now& now) const;
    void begin_list(Cell& cell);
    // Before the cell's last reader changes.
    void drop_list(const Cell& cell);
    [[nodiscard]] static bool overwrites(const Cell& cell, const Now& now);
    // Whether a copy to the cell is in flight.
    [[nodiscard]] bool is_under_way(size_t i, const Moment& now) const {
        return !copies_.empty() && copies_[i] > 0 && copying_.launch == now.launch && copying_.block == now.block;
    }
    [[nodiscard]] bool blocks_share() const { return life_ != Life::kBlock; }
    // Whether a reader at `now` finds a value.
    [[nodiscard]] bool is_written(const Cell& cell, const Moment& now) const;
    [[nodiscard]] bool is_seen(const Moment& written, const Now& now) const;

    static constexpr size_t kPageCells = 4096;
    struct Page {
        std::unique_ptr<Cell[]> cells;  // null: untouched since the page was made or filled
        bool is_filled = false;         // untouched cells are initialised
    };
    [[nodiscard]] Cell& cell(size_t i);
    static void touch(Page& page);
    struct Free {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    struct Unmap {
        size_t bytes;
        void operator()(std::byte* address) const;
    };

    size_t size_;
    size_t cell_bytes_;
    int cell_shift_;  // cell_bytes_ is 2 to this power; negative if it is no power of two
    Life life_;
    std::unique_ptr<std::byte[], Free> bytes_;    // untouched pages cost nothing
    std::unique_ptr<std::byte[], Unmap> hidden_;  // null: kernels hold the address of bytes_
    std::vector<Page> pages_;
    std::vector<uint8_t> copies_;  // copies in flight per cell, by threads of one block
    int64_t num_copies_ = 0;       // sum of copies_
    Moment copying_;               // that block
    bool watches_overwrites_ = false;
    bool is_overwritten_ = false;
    // With vector clocks: concurrent readers of a cell, none ordered before another. A list that its cell has dropped
    // keeps its capacity for the next cell.
    std::vector<std::vector<Moment>> lists_;
    std::vector<int32_t> unused_lists_;
};

}  // namespace verbatim::simt
