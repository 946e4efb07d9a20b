// kernels/simt/source_state.h: owns what the emulator knows of running CUDA source (kernels/simt/source_threads.h):
// where its device and shared memory is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/simt/emulator.h"
#include "kernels/simt/source_threads.h"

namespace verbatim::simt {

struct SourceRange {
    std::byte* begin = nullptr;
    size_t num_bytes = 0;
    Memory* memory = nullptr;
    size_t offset = 0;  // of `begin` in the memory
    const char* what = "";
    size_t spare_before = 0, spare_behind = 0;  // bytes that belong to it alone, and that nothing uses
    uint32_t window = 0;                        // shared memory: PTX's address of `begin`
    size_t alignment = 0;                       // that was asked for; a GPU need give no more. 0: the address says it
    uint32_t made_in = 0;                       // cudaMallocAsync: its launch
    bool is_free = false;                       // ... and cudaFreeAsync
    const void* key = nullptr;                  // shared memory: the emulator's
    int32_t block = -1;                         // shared memory of this other block of the cluster
    std::byte* in_block = nullptr;              // ... where its `begin` is while that block runs

    // Where the address's bytes are while the block runs that they belong to.
    [[nodiscard]] std::byte* home(std::byte* address) const {
        return block >= 0 ? in_block + (address - begin) : address;
    }
    [[nodiscard]] const std::byte* near_begin() const { return begin - spare_before; }
    [[nodiscard]] const std::byte* near_end() const { return begin + num_bytes + spare_behind; }
    [[nodiscard]] bool is_near(const std::byte* address) const {
        return address >= near_begin() && address < near_end();
    }
    // Whether a GPU finds the address aligned wherever it puts the range.
    [[nodiscard]] bool is_aligned(const std::byte* address, size_t to) const {
        const auto at = static_cast<uintptr_t>(address - begin) + alignment;
        return (alignment != 0 ? at : reinterpret_cast<uintptr_t>(address)) % to == 0;
    }
    // The memory's offset of an address in the range.
    [[nodiscard]] size_t offset_of(const std::byte* address) const {
        return offset + static_cast<size_t>(address - begin);
    }
};

struct SourceState {
    Emulator* emulator = nullptr;
    bool in_launch = false;
    int32_t num_multiprocessors = 1;
    bool is_cooperative = false;  // the launch
    size_t dynamic_bytes = 0;
    LaunchLimits limits;
    std::span<const std::byte> static_memory;  // of the library
    uint32_t window_end = 0;                   // of the shared ranges so far
    int32_t shared_block = -1;                 // in a launch of clusters, the block that the shared ranges are of

    [[nodiscard]] std::span<const SourceRange> shared() const { return shared_; }
    // Null: the address is near no range.
    [[nodiscard]] const SourceRange* find(const std::byte* address) const {
        for (const Answer& known : known_) {
            if (address >= known.begin && address < known.end) return known.range;
        }
        return find_anew(address);
    }
    void add_device(const SourceRange& range);
    void free_device(const std::byte* begin);
    [[nodiscard]] size_t num_unfreed() const;  // bytes of cudaMallocAsync
    // Gives the range an address for PTX, which is as aligned as the host's.
    void add_shared(SourceRange range);
    // The same array of another block of the running one's cluster: where it is while that block does not run.
    std::byte* add_remote(const SourceRange& mine, int32_t block);
    void forget_remote();  // a launch begins
    void forget_remote(std::span<const int32_t> blocks);
    // The shared ranges so far; there are none after it.
    std::vector<SourceRange> take_shared();
    void set_shared(std::vector<SourceRange> ranges);

private:
    // The same range, or none, is near all these addresses.
    struct Answer {
        const std::byte* begin = nullptr;
        const std::byte* end = nullptr;
        const SourceRange* range = nullptr;
    };
    [[nodiscard]] const SourceRange* find_anew(const std::byte* address) const;
    void forget_answers() { known_ = {}; }

    std::vector<SourceRange> device_, shared_, remote_;
    mutable std::array<Answer, 4> known_;  // the last of no range, of a shared, a device's and a remote one
};
extern SourceState source;

// The range of an access; null: nothing to check, or it is out of bounds, and found. So is what is misaligned.
[[nodiscard]] const SourceRange* checked_range(const std::byte* address, size_t num_bytes, size_t alignment,
                                               const char* verb);
// Device memory (SourceDevice::allocate). `made_in`: the launch that cudaMallocAsync is; 0: it is there before run().
[[nodiscard]] std::byte* allocate_source(size_t num_bytes, size_t cell_bytes, size_t shift, uint32_t made_in);

// Clusters (kernels/simt/source_clusters.h): static shared arrays of a block that does not run.
[[nodiscard]] std::byte* home_of(int32_t block, std::byte* array, size_t num_bytes);
[[nodiscard]] bool has_home(int32_t block, std::byte* array);
void forget_homes();
void forget_home_of(int32_t block);
void begin_shared_of_block();               // before a shared range of the running block is asked for
[[nodiscard]] bool& source_has_clusters();  // the library's kernels have __cluster_dims__

// Streams (kernels/simt/source_streams.h): of a call; before a launch, those before that may run at the same time;
// behind run(), launches that may still run are found.
void begin_streams();
[[nodiscard]] std::vector<uint32_t> launch_in_stream(const void* stream, uint32_t number, const char* name);
void end_streams();

void report(Clash clash, const SourceRange& range, const std::byte* address);

// What is kept of each thread of a block, of the running one. Of a thread that had the number in another block of the
// launch it is forgotten.
template <typename Value>
class OfThreads {
public:
    [[nodiscard]] Value& of_running() {
        const Emulator& emulator = Emulator::current();
        const auto thread = static_cast<size_t>(emulator.thread().index);
        if (threads_.size() <= thread) threads_.resize(thread + 1);
        const Dim3 at = emulator.block_position(), grid = emulator.grid_size();
        const int32_t block = (at.z * grid.y + at.y) * grid.x + at.x;
        if (threads_[thread].block != block) threads_[thread] = {block, {}};
        return threads_[thread].value;
    }
    [[nodiscard]] bool empty() const { return threads_.empty(); }
    void clear() { threads_.clear(); }  // a launch begins

private:
    struct Thread {
        int32_t block = -1;
        Value value;
    };
    std::vector<Thread> threads_;
};

// An address of shared memory whose 16-byte vectors are swizzled in rows of so many bytes: 16 (no swizzle) to 128. Bits
// 4 and up by bits 7 and up, as many as the swizzle has.
constexpr uint32_t swizzled(uint32_t address, uint32_t row_bytes) {
    constexpr uint32_t kVector = 16;
    return address ^ (address >> 7 & (row_bytes / kVector - 1)) << 4;
}

// PTX's address of shared memory, and back; null: so many bytes are not in one shared array, and found. 0 bytes: a
// pointer, which may point behind its array.
[[nodiscard]] uint32_t window_address(const std::byte* address);
[[nodiscard]] std::byte* from_window(uint32_t address, size_t num_bytes);

// cp.async: `read` bytes, and zeros up to `count`. Both addresses are multiples of `count`.
void source_copy(std::byte* to, const std::byte* from, size_t count, size_t read);
// cp.async.bulk, also to another block of the cluster.
void source_bulk_copy(std::byte* to, const std::byte* from, size_t count, std::byte* barrier, cuda_source::Place where);
// st.async: to shared memory of the cluster, by a barrier of the same block.
void source_store_async(std::byte* to, uint64_t bits, size_t count, std::byte* barrier, cuda_source::Place where);
void source_bulk_store(std::byte* to, const std::byte* from, size_t count);
// cp.reduce.async.bulk to device memory: adds, or what `how` says, elements of the type
// (kernels/simt/ptx_arithmetic.h).
void source_bulk_reduce(std::byte* to, const std::byte* from, size_t count, const std::string& how,
                        const std::string& type);
// wgmma adds to sums in a thread's own memory, from which the thread may neither read nor write before it has waited
// for the multiplication. Of an access to memory that is no device's and not shared:
void look_at_sums(const std::byte* address, size_t num_bytes, bool is_write);
void forget_sums();  // a launch begins
// The barrier at an address of shared memory, also of another block of the cluster; null: it is none, and found.
[[nodiscard]] EmulatedBarrier* source_barrier(std::byte* address);
// A copy to shared memory that a barrier of the same block waits for.
struct ArrivingCopy {
    EmulatedBarrier* barrier;
    const SourceRange* place;
    Now agent;           // that writes
    std::byte* landing;  // where the first byte is when the copy lands
};
// Empty: the memory or the barrier is none, or they are of two blocks, and found.
[[nodiscard]] std::optional<ArrivingCopy> begin_copy(std::byte* to, size_t num_bytes, size_t alignment,
                                                     std::byte* barrier, cuda_source::Place where);

}  // namespace verbatim::simt
