// kernels/cuda/simt/emulator.h: runs a kernel's grid on the host: one fiber per thread of a block, one block after
// another, in an order that a seed chooses. What a kernel computes must not depend on that order; what it does wrong is
// found and named:
//
//   E1  every access is looked at (simt/emulated_memory.h): bounds, alignment, initialisation, races
//   E2  a block barrier that some threads never reach, a warp operation whose mask names lanes that do not take part,
//       take part in another one, or are not in the warp: found, not hung. So are lanes of a warp that meet one
//       operation of the whole warp at different places of the code
//   E3  asynchronous copies land at the last legal moment: when they are waited for
//   E4  findings name kernel, block, thread and what was accessed; the launch goes on where it can
//   E5  barriers count arrivals and bytes by phases: one too many, a phase that is never complete, a second wait for
//       the same phase: found, not hung
//   E6  what tensor cores multiply behind the threads' backs is computed when it is asked for: whoever changes what
//       they read, or reads what they add to, before it is waited for, is found
//   E7  a kernel that may begin before those before it have ended touches nothing of theirs before it waits for them
//   E8  a launch keeps to what the kernel says of itself, and to what a block of Hopper has (LaunchLimits)
//   E9  where it is asked for, barriers and waits are noted by their places in the code, and one is left out
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/cuda/simt/access_counter.h"
#include "kernels/cuda/simt/emulated_memory.h"
#include "kernels/cuda/simt/knowledge.h"
#include "kernels/cuda/simt/ordering_places.h"
#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

enum class Schedule : uint8_t {
    kForward,       // threads and blocks in ascending order
    kReverse,       // in descending order
    kRandom,        // as the seed says
    kOneWarpAhead,  // one warp runs as far as it can before another one starts
    kLaneBehind,    // the last lane of each warp goes on when nobody else can
};

enum class FindingKind : uint8_t {
    kOutOfBounds,
    kMisaligned,
    kUninitialised,
    kRace,
    kBarrierNotReached,
    kWarpMask,
    kDivergent,     // one operation of a whole warp, at different places of the code
    kNotAwaited,    // a copy, a multiplication or a kernel before has not been waited for
    kMissingFence,  // between what threads write and what others than threads touch, or of registers
    kBarrierUse,    // arrivals, bytes or phases that do not fit
    kLaunchLimit,
};
[[nodiscard]] const char* name(FindingKind kind);
// What a clash is, and what to say of the element that has met it.
[[nodiscard]] FindingKind kind_of(Clash clash);
[[nodiscard]] const char* text_of(Clash clash);

struct Finding {
    FindingKind kind = FindingKind::kOutOfBounds;
    std::string text;                 // with kernel, block and thread
    std::vector<const void*> frames;  // where in the kernel's code, innermost first, when they are kept
};

// What a warp's lanes do at once. kTogether: a function over what each of the 32 lanes brings.
enum class WarpOperation : uint8_t { kBarrier, kShuffle, kVote, kTogether };
using WarpFunction = void (*)(void* const (&parts)[kWarpSize]);
// What the threads of a warpgroup do at once.
using GroupFunction = void (*)(std::span<void* const> parts);
using Place = std::source_location;  // in a kernel's code

// What a kernel says of itself (limits_of, simt/emulated.h).
struct LaunchLimits {
    int32_t most_threads = 1024;  // of a block: its launch bounds
    int64_t large_bytes = -1;     // of SIMT_LARGE_SHARED; -1: it does not say
    bool is_dependent = false;    // it may begin before those before it have ended
    bool blocks_meet = false;     // its blocks wait for each other: all of them are there from the beginning
    int64_t most_blocks = -1;     // that are there at once; -1: nobody says
};

// One barrier of the block that runs, which counts arrivals and bytes (simt.h).
struct EmulatedBarrier {
    int32_t agent = 0;   // whose the writes of its copies are; their epoch is the phase
    int32_t wanted = 0;  // arrivals of a phase; 0: nobody has initialised it
    Moment initialised;
    uint32_t phase = 0;  // how many are complete
    int32_t arrivals = 0;
    int64_t expected_bytes = 0;
    int64_t copied_bytes = 0;
    std::vector<std::function<void()>> copies;  // of the phase: they land when it is complete
    Knowledge arriving;                         // of those who have arrived in the phase
    Knowledge passed;                           // of those who had when the last one was complete
};

// What a thread has asked others than threads for.
struct ThreadAsync {
    Knowledge knowledge;
    std::map<const EmulatedBarrier*, int64_t> phases;  // the last one of each barrier that it has waited for
    // Multiplications: groups are counted from 1.
    uint32_t num_fences = 0;
    uint32_t groups = 0;  // committed
    uint32_t done = 0;    // waited for
    // Bulk stores: the groups that are not waited for, oldest first, and those that are not committed.
    std::vector<std::vector<std::function<void()>>> store_groups;
    std::vector<std::function<void()>> open_stores;
    uint32_t stores_done = 0;  // groups
};

// A thread of the block that runs.
struct EmulatedThread {
    enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kAtGroup, kAtNamed, kAtBarrier, kAtValue, kDone };
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
    Place where;                                 // of what it waits in
    GroupFunction group_function = {};           // kAtGroup
    int32_t named = 0;                           // kAtNamed
    int32_t named_threads = 0;                   // kAtNamed: how many it is for
    const EmulatedBarrier* barrier = {};         // kAtBarrier
    const std::function<bool()>* is_there = {};  // kAtValue
    ThreadAsync async;

    boost::context::fiber fiber;
};

// Of a warp's lanes, bit by bit.
struct WarpLanes {
    uint32_t ready = 0;            // they can go on
    uint32_t in_operation = 0;     // they wait in a warp operation
    bool may_be_complete = false;  // one of those may be, since somebody looked last
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
    void launch(const char* kernel_name, Dim3 grid, Dim3 block, const std::function<void()>& kernel,
                const LaunchLimits& limits = {});

    // In the order of their meeting; of each kernel and kind the first four.
    [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
    void clear_findings();
    // From now on findings say which code met them, for whoever can make lines of it.
    void keep_frames(bool keep) { keeps_frames_ = keep; }
    // From now on accesses are counted.
    void count_accesses() { counter_ = std::make_unique<AccessCounter>(); }
    [[nodiscard]] bool counts_accesses() const { return counter_ != nullptr; }
    [[nodiscard]] AccessCounts access_counts() const { return counter_ ? counter_->counts() : AccessCounts{}; }
    [[nodiscard]] AccessCounts access_counts(const std::string& kernel_name) const {
        return counter_ ? counter_->counts(kernel_name) : AccessCounts{};
    }
    // From now on places that order accesses are noted, and the one of this id is left out (0: none).
    void note_ordering(uint64_t left_out) { ordering_.emplace(left_out); }
    [[nodiscard]] const OrderingPlaces& ordering() const { return *ordering_; }  // REQUIRES: they are noted
    [[nodiscard]] int64_t num_launches() const { return launch_; }

    // What a thread of the running kernel asks for (simt/emulated.h).
    static Emulator& current() {
        if (current_ == nullptr) [[unlikely]]
            outside_launch();
        return *current_;
    }
    [[nodiscard]] const EmulatedThread& thread() const { return *running_; }
    [[nodiscard]] Dim3 block_position() const { return block_position_; }
    [[nodiscard]] Dim3 block_size() const { return block_size_; }
    [[nodiscard]] Dim3 grid_size() const { return grid_size_; }
    void sync_block(Place where);
    void sync_warp(uint32_t mask, Place where);
    uint64_t shuffle(uint32_t mask, uint64_t value, int32_t source_lane);
    uint32_t vote(uint32_t mask, bool mine);
    // Every lane of the warp brings a part for one function, which changes the parts.
    void together(WarpFunction function, void* part, Place where);
    enum class SharedKind : uint8_t { kStatic, kLarge };
    Memory& shared(const void* key, size_t bytes, size_t cell_bytes, SharedKind kind);
    void copy_later(std::function<void()> copy) { running_->open_copies.push_back(std::move(copy)); }
    void commit_copies();
    void wait_copies(size_t num_pending, Place where);
    void found(FindingKind kind, const std::string& what);
    // The running thread meets a barrier or a wait there. True: it goes on.
    bool passes_over(const char* what, Place where) { return ordering_ && ordering_->meets(what, where); }

    // What others than threads do (simt/emulator_async.cc). `where`: who asks.
    EmulatedBarrier& barrier(const void* key, int32_t i);
    void barrier_init(EmulatedBarrier& barrier, int32_t arrivals, Place where);
    void barrier_arrive(EmulatedBarrier& barrier, int64_t expected_bytes, Place where);
    void barrier_wait(EmulatedBarrier& barrier, uint32_t parity, Place where);
    // The agent that copies for the barrier's phase, as the running thread asks it to.
    Now copying(EmulatedBarrier& barrier, Place where);
    void copy_until(EmulatedBarrier& barrier, int64_t num_bytes, std::function<void()> copy);
    // The agent that stores for the running thread.
    Now storing();
    void store_later(std::function<void()> store) { running_->async.open_stores.push_back(std::move(store)); }
    void commit_stores();
    void wait_stores(size_t num_pending, Place where);
    void fence_async();
    void named_barrier(int32_t named, int32_t num_threads, Place where);
    // Every thread of the warpgroup brings a part for one function, which changes the parts.
    void group_together(GroupFunction function, void* part, Place where);
    // The agent that multiplies for the running thread's warp, in the group that is not committed yet.
    Now multiplying();
    void multiply_fence() { ++running_->async.num_fences; }
    void commit_multiplications() { ++running_->async.groups; }
    void wait_multiplications(uint32_t num_pending, Place where);
    void wait_previous(Place where);
    // What the running thread knows goes with a value of memory, and comes to who acquires it: the last one, or the
    // first that is large enough, for who waits for that must not rely on more. `replaces`: what went with earlier
    // values does not any more.
    void release_at(const Memory& memory, size_t offset, int32_t value, bool replaces);
    void acquire_at(const Memory& memory, size_t offset, std::optional<int32_t> least = {});
    // Until is_there() says so, which another block's thread may bring about.
    void wait_for_value(const std::function<bool()>& is_there, Place where);

    // The access of the code that calls this. REQUIRES: counts_accesses().
    void count_access(const Memory& memory, size_t offset, size_t num_bytes, bool is_store);
    void count_copy(size_t num_bytes, bool is_store) { counter_->add_copy(num_bytes, is_store); }

private:
    static constexpr int32_t kMostWarps = 32;
    using Warps = std::array<WarpLanes, kMostWarps>;
    // A block that lives beside the one that runs.
    struct ParkedBlock {
        std::map<const void*, std::unique_ptr<Memory>> shared;
        std::map<std::pair<const void*, int32_t>, EmulatedBarrier> barriers;
        bool has_knowledge = false;
        Dim3 position;
        int32_t index = 0;
        int32_t cursor = 0;
        std::vector<std::unique_ptr<EmulatedThread>> threads;
        Warps warps;
    };
    [[noreturn]] static void outside_launch();
    void run_block();
    void end_block();
    // simt/emulator_blocks.cc
    void run_together(std::span<const int32_t> order, const std::function<void()>& kernel);
    void change_block(ParkedBlock& parked);
    void end_fibers(ParkedBlock& parked);
    bool release_values();
    bool advance();
    [[nodiscard]] bool is_over() const;
    void begin_block(int32_t block, const std::function<void()>& kernel);
    void start_threads(const std::function<void()>& kernel);
    EmulatedThread* choose();
    [[nodiscard]] int32_t next_ready() const;
    void go_on(EmulatedThread& thread);
    [[nodiscard]] EmulatedThread* lane_behind() const;
    bool release_waiting();
    // simt/emulator_warps.cc
    bool complete_warp(int32_t warp);
    [[nodiscard]] uint32_t lanes_like(const EmulatedThread& thread) const;
    void complete_barrier(int32_t warp, uint32_t mask);
    void complete_shuffle(EmulatedThread& thread);
    void complete_vote(EmulatedThread& thread);
    void complete_together(const EmulatedThread& thread);
    void join_lanes(int32_t warp, uint32_t mask);
    void find_divergence_at_block();
    bool found_divergence();
    bool release_block();
    void give_up();
    void found_in_launch(FindingKind kind, const std::string& what);
    void check_limits();
    void check_block_end();
    // simt/emulator_async.cc
    void know();
    void make_known(EmulatedThread& thread);
    void learn(EmulatedThread& thread, const Knowledge& knowledge);
    void share(EmulatedThread& thread, const Knowledge& joint);
    Now agent(int32_t number, uint32_t epoch);
    bool is_usable(const EmulatedBarrier& barrier, Place where);
    void complete_phase(EmulatedBarrier& barrier);
    bool release_barriers();
    bool release_named();
    bool release_groups();
    bool give_up_async();
    void wait(EmulatedThread::State state);

    Schedule schedule_;
    Prng prng_;
    std::map<const std::byte*, std::unique_ptr<Memory>> memory_;
    std::map<const void*, std::unique_ptr<Memory>> shared_;
    std::vector<Finding> findings_;
    std::map<std::pair<std::string, FindingKind>, int64_t> num_found_;
    bool keeps_frames_ = false;
    std::unique_ptr<AccessCounter> counter_;  // null: nothing is counted
    std::optional<OrderingPlaces> ordering_;  // empty: nothing is noted

    std::string kernel_name_;
    uint32_t launch_ = 0;
    LaunchLimits limits_;
    uint32_t unsafe_from_ = 1;  // of launches: those from here on, before this one, may not have ended; 0: the host's
    bool waits_for_previous_ = false;
    int64_t static_bytes_ = 0;             // of shared memory
    std::set<const void*> static_arrays_;  // of this launch
    std::map<std::pair<const void*, int32_t>, EmulatedBarrier> barriers_;
    bool has_knowledge_ = false;  // this block has used something that needs it
    struct Released {
        int32_t value;
        std::map<int32_t, BlockKnowledge> blocks;
    };
    std::map<std::pair<const Memory*, size_t>, std::vector<Released>> released_;  // of this launch
    Dim3 block_position_;
    Dim3 block_size_;
    Dim3 grid_size_;
    int32_t block_index_ = 0;
    int32_t num_threads_ = 0;
    int32_t cursor_ = 0;  // where the last choice was made
    std::vector<std::unique_ptr<EmulatedThread>> threads_;
    Warps warps_;
    EmulatedThread* running_ = nullptr;
    const std::function<void()>* kernel_ = nullptr;  // null: the fibers end
    boost::context::fiber scheduler_;
    static inline constinit thread_local Emulator* current_ = nullptr;  // whose launch runs
};

}  // namespace verbatim::simt
