// kernels/cuda/simt/emulator.h: runs a kernel's grid on the host: one fiber per thread of a block, one block after
// another, in an order that a seed chooses. What a kernel computes must not depend on that order; what it does wrong is
// found and named:
//
//   E1  every access is looked at (simt/emulated_memory.h): bounds, alignment, initialisation, races
//   E2  a block barrier that some threads never reach, a warp operation whose mask names lanes that do not take part,
//       take part in another one, or are not in the warp: found, not hung
//   E3  asynchronous copies land at the last legal moment: when they are waited for
//   E4  findings name kernel, block, thread and what was accessed; the launch goes on where it can
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/cuda/simt/access_counter.h"
#include "kernels/cuda/simt/emulated_memory.h"
#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

enum class Schedule : uint8_t {
    kForward,       // threads and blocks in ascending order
    kReverse,       // in descending order
    kRandom,        // as the seed says
    kOneWarpAhead,  // one warp runs as far as it can before another one starts
};

enum class FindingKind : uint8_t {
    kOutOfBounds,
    kMisaligned,
    kUninitialised,
    kRace,
    kBarrierNotReached,
    kWarpMask,
};
[[nodiscard]] const char* name(FindingKind kind);

struct Finding {
    FindingKind kind = FindingKind::kOutOfBounds;
    std::string text;                 // with kernel, block and thread
    std::vector<const void*> frames;  // where in the kernel's code, innermost first, when they are kept
};

// What a warp's lanes do at once. kTogether: a function over what each of the 32 lanes brings.
enum class WarpOperation : uint8_t { kBarrier, kShuffle, kVote, kTogether };
using WarpFunction = void (*)(void* const (&parts)[kWarpSize]);

// A thread of the block that runs.
struct EmulatedThread {
    enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kDone };
    State state = State::kDone;
    int32_t index = 0;  // in its block
    Dim3 position;
    Now moment;
    // The warp operation that it waits in.
    WarpOperation operation = WarpOperation::kBarrier;
    uint32_t mask = 0;
    int32_t source_lane = 0;     // kShuffle
    uint64_t deposit = 0;        // kShuffle, kVote
    uint64_t received = 0;       // kShuffle, kVote
    WarpFunction function = {};  // kTogether
    void* part = nullptr;        // kTogether
    // Copies not landed yet, oldest group first.
    std::vector<std::vector<std::function<void()>>> copy_groups;
    std::vector<std::function<void()>> open_copies;

    boost::context::fiber fiber;
};

class Emulator {
public:
    explicit Emulator(Schedule schedule = Schedule::kForward, uint64_t seed = 0);
    ~Emulator();
    Emulator(const Emulator&) = delete;
    Emulator& operator=(const Emulator&) = delete;

    // Memory of the device. `cell_bytes`: of the smallest element that threads write on their own.
    void* allocate(size_t bytes, size_t cell_bytes);
    void release(void* address);
    // The allocation that holds the address. REQUIRES: there is one.
    Memory& memory_of(const void* address);

    // Runs the kernel over the grid to its end. REQUIRES: 1 ... 1024 threads in a block.
    void launch(const char* kernel_name, Dim3 grid, Dim3 block, const std::function<void()>& kernel);

    // In the order of their meeting; of each kernel and kind the first four.
    [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
    void clear_findings();
    // From now on findings say which code met them, for whoever can make lines of it.
    void keep_frames(bool keep) { keeps_frames_ = keep; }
    // From now on accesses are counted.
    void count_accesses() { counter_ = std::make_unique<AccessCounter>(); }
    [[nodiscard]] bool counts_accesses() const { return counter_ != nullptr; }
    [[nodiscard]] AccessCounts access_counts() const { return counter_ ? counter_->counts() : AccessCounts{}; }
    [[nodiscard]] int64_t num_launches() const { return launch_; }

    // What a thread of the running kernel asks for (simt/emulated.h).
    static Emulator& current();
    [[nodiscard]] const EmulatedThread& thread() const { return *running_; }
    [[nodiscard]] Dim3 block_position() const { return block_position_; }
    [[nodiscard]] Dim3 block_size() const { return block_size_; }
    [[nodiscard]] Dim3 grid_size() const { return grid_size_; }
    void sync_block();
    void sync_warp(uint32_t mask);
    uint64_t shuffle(uint32_t mask, uint64_t value, int32_t source_lane);
    uint32_t vote(uint32_t mask, bool mine);
    // Every lane of the warp brings a part for one function, which changes the parts.
    void together(WarpFunction function, void* part);
    Memory& shared(const void* key, size_t bytes, size_t cell_bytes);
    void copy_later(std::function<void()> copy) { running_->open_copies.push_back(std::move(copy)); }
    void commit_copies();
    void wait_copies(size_t num_pending);
    void found(FindingKind kind, const std::string& what);
    // The access of the code that calls this. REQUIRES: counts_accesses().
    void count_access(const Memory& memory, size_t offset, size_t num_bytes, bool is_store);

private:
    void run_block(const std::function<void()>& kernel);
    void start_threads(const std::function<void()>& kernel);
    EmulatedThread* choose();
    bool release_waiting();
    bool complete_warp(int32_t warp);
    void complete_barrier(int32_t warp, uint32_t mask);
    void complete_shuffle(EmulatedThread& thread);
    void complete_vote(EmulatedThread& thread);
    void complete_together(const EmulatedThread& thread);
    void give_up();
    void wait(EmulatedThread::State state);

    Schedule schedule_;
    Prng prng_;
    std::map<const std::byte*, std::unique_ptr<Memory>> memory_;
    std::map<const void*, std::unique_ptr<Memory>> shared_;
    std::vector<Finding> findings_;
    std::map<std::pair<std::string, FindingKind>, int64_t> num_found_;
    bool keeps_frames_ = false;
    std::unique_ptr<AccessCounter> counter_;  // null: nothing is counted

    std::string kernel_name_;
    uint32_t launch_ = 0;
    Dim3 block_position_;
    Dim3 block_size_;
    Dim3 grid_size_;
    int32_t block_index_ = 0;
    int32_t num_threads_ = 0;
    int32_t cursor_ = 0;  // where the last choice was made
    std::vector<std::unique_ptr<EmulatedThread>> threads_;
    EmulatedThread* running_ = nullptr;
    const std::function<void()>* kernel_ = nullptr;  // null: the fibers end
    boost::context::fiber scheduler_;
};

}  // namespace verbatim::simt
