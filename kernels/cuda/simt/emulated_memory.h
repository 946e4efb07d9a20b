// kernels/cuda/simt/emulated_memory.h: memory that knows who wrote and read each of its cells, and when.
//
//   M1  an access outside its view, or of a cell that nobody has written, is found by construction
//   M2  two accesses to a cell, one of them a write, by two threads of one launch are a race unless something orders
//       them: a block barrier between threads of a block, sync_warp between the lanes of its mask, or what a thread
//       knows (simt/knowledge.h). Blocks of one launch are ordered by what is released and acquired, and nothing else.
//   M3  looking at an access does not change what it does: a bad read gives zeros, a bad write is dropped
//   M4  a bulk copy writes, and tensor cores read, from when they are asked to until they are waited for; what a thread
//       wrote to shared memory is theirs to touch behind a fence_async, what it wrote to global memory in no way
//   M5  a bulk copy to shared memory may read cells that nobody has written: nobody has written them where it lands
//   M6  a thread's asynchronous copy writes from when it is asked for; until it lands nobody touches those cells
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/simt/knowledge.h"
#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

// One thread's place in a launch, and how many barriers it has passed.
struct Moment {
    uint32_t launch = 0;  // 0: never
    int32_t block = -1;
    int32_t thread = -1;
    uint32_t block_epoch = 0;
    uint32_t warp_epoch = 0;
};
// A thread that goes on knows what its warp barriers have ordered: what lane l did in a warp epoch before seen[l].
struct Now : Moment {
    std::array<uint32_t, kWarpSize> seen{};
    int32_t issuer = -1;                   // the thread whose order counts: `thread`, or who has asked an agent for it
    uint32_t unsafe_from = 0;              // launches before this one have ended
    const Knowledge* knowledge = nullptr;  // null in a block that has used nothing that needs it
};

enum class Clash : uint8_t {
    kNone,
    kUninitialised,
    kWriteAfterWrite,
    kReadAfterWrite,
    kWriteAfterRead,
    kUnderWay,      // a copy to it has not been waited for
    kStillRead,     // it is written, and tensor cores or a copy that read it have not been waited for
    kNotFenced,     // a thread wrote it, and an agent touches it without a fence between
    kEarlierKernel  // a kernel before may still touch it
};

// M2, of threads of a block, and M4.
[[nodiscard]] bool comes_before(const Moment& before, const Now& now);
[[nodiscard]] bool is_fenced(const Moment& before, const Now& now);

// Bytes and their cells. A cell is the smallest element that threads access on their own.
class Memory {
public:
    enum class Life : uint8_t {
        kDevice,  // what is written stays
        kBlock,   // shared memory: every block finds it unwritten
    };
    Memory(size_t bytes, size_t cell_bytes, Life life = Life::kDevice);

    [[nodiscard]] std::byte* bytes() { return bytes_.get(); }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] bool holds(const void* address) const;

    // Atomically: a race only with writes that are not.
    [[nodiscard]] Clash read(size_t offset, size_t count, const Now& now, bool atomic = false);
    // By a bulk copy, of cells that may be unwritten.
    [[nodiscard]] Clash read_for_copy(size_t offset, size_t count, const Now& now);
    // Of what a copy has written: where its source is unwritten, so is this. REQUIRES: `source` is the device's.
    void carry_unwritten(size_t offset, const Memory& source, size_t source_offset, size_t count);
    [[nodiscard]] Clash write(size_t offset, size_t count, const Now& now);
    // Of four elements of so many bytes, one after another: what each of them has met.
    using Clashes = std::array<Clash, 4>;
    [[nodiscard]] Clashes read4(size_t offset, size_t element_bytes, const Now& now);
    [[nodiscard]] Clashes write4(size_t offset, size_t element_bytes, const Now& now);
    // By an asynchronous copy of a thread, in shared memory: it is asked for, and lands.
    [[nodiscard]] Clash begin_copy(size_t offset, size_t count, const Now& now);
    void end_copy(size_t offset, size_t count);
    // By an atomic operation: a race only with accesses that are not.
    [[nodiscard]] Clash update(size_t offset, size_t count, const Now& now);
    // By the host, between launches.
    void fill(size_t offset, size_t count);

private:
    struct Cell {
        Moment written;
        Moment last_read;  // thread -1: by several; kListed: by those of readers_
        int32_t read_warp = -1;
        uint32_t read_lanes = 0;  // of the warp, when thread is -1
        bool initialised = false;
        bool written_atomically = false;
    };
    static constexpr int32_t kListed = -2;
    struct Cells {
        size_t begin = 0;
        size_t end = 0;
    };
    [[nodiscard]] Cells cells_of(size_t offset, size_t count) const;
    [[nodiscard]] Clash read_cell(size_t i, const Now& now, bool atomic);
    [[nodiscard]] Clash write_cell(size_t i, const Now& now, bool atomic);
    [[nodiscard]] Clash clash_with_reads(size_t i, Cell& cell, const Now& now);
    void note_read(Cell& cell, const Now& now);
    void note_reader(size_t i, Cell& cell, const Now& now);
    // Whether a copy to it has not landed.
    [[nodiscard]] bool is_under_way(size_t i, const Moment& now) const {
        return !copies_.empty() && copies_[i] > 0 && copying_.launch == now.launch && copying_.block == now.block;
    }
    // Whether whoever looks finds a value there.
    [[nodiscard]] bool is_written(const Cell& cell, const Moment& now) const;
    [[nodiscard]] bool is_seen(const Moment& written, const Now& now) const;

    static constexpr size_t kPageCells = 4096;
    [[nodiscard]] Cell& cell(size_t i);
    struct Free {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };

    size_t size_;
    size_t cell_bytes_;
    int cell_shift_;  // 2 to the power of it are cell_bytes_; negative if they are none
    Life life_;
    std::unique_ptr<std::byte[], Free> bytes_;    // untouched ones cost nothing
    std::vector<std::unique_ptr<Cell[]>> pages_;  // of cells; null until one of them is touched
    std::vector<uint8_t> copies_;                 // under way to each cell, by threads of one block
    int64_t num_copies_ = 0;                      // all of copies_
    Moment copying_;                              // that block
    // Of cells that several read, none of whom knows of the others, where there is knowledge.
    std::unordered_map<size_t, std::vector<Moment>> readers_;
};

}  // namespace verbatim::simt
