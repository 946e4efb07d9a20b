// kernels/simt/emulator.h: owns the emulator, which runs a kernel's grid on the host: one fiber per thread of a
// block, block after block, in an order derived from a seed. A kernel's results must not depend on that order. It
// detects and names a kernel's errors:
//
//   E1  every access is checked (simt/emulated_memory.h): bounds, alignment, initialisation, races
//   E2  a block barrier that some threads never reach, and a warp operation whose mask names lanes that do not take
//       part or take part in another operation, are reported instead of hanging. So are lanes of a warp that reach one
//       warp-wide operation (but for sync_warp) at different places of the code. Threads that have returned are not
//       waited for, nor lanes that the block does not have: CUDA allows both, and a note says so
//   E3  asynchronous copies land at the last legal moment: when they are waited for
//   E4  findings name kernel, block, thread and the access; the launch continues where it can
//   E5  mbarriers count arrivals and bytes per phase, also those of the cluster's other blocks. An excess arrival, a
//       phase that never completes and a second wait for the same phase are reported instead of hanging
//   E6  asynchronous tensor-core multiplications are computed at issue. A thread that changes their operands or reads
//       their sums before it has waited for them is reported
//   E7  a kernel that may start before earlier kernels have ended touches nothing of theirs before it waits for them
//   E8  a launch respects the kernel's declarations and a Hopper block's limits (LaunchLimits)
//   E9  on request, barriers and waits are recorded by their places in the code, and one of them is skipped
#pragma once

#include <any>
#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <list>
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
#include "kernels/simt/access_counter.h"
#include "kernels/simt/emulated_memory.h"
#include "kernels/simt/knowledge.h"
#include "kernels/simt/ordering_places.h"
#include "kernels/simt/types.h"

namespace verbatim::simt {

enum class Schedule : uint8_t {
    kForward,       // threads and blocks in ascending order
    kReverse,       // in descending order
    kRandom,        // from the seed
    kOneWarpAhead,  // a warp runs as far as it can before the next one starts
    kLaneBehind,    // the last lane of each warp runs only when no other thread can
};

enum class FindingKind : uint8_t {
    kOutOfBounds,
    kMisaligned,
    kUninitialised,
    kRace,
    kBarrierNotReached,
    kWarpMask,
    kDivergent,     // one warp-wide operation at different places of the code
    kNotAwaited,    // missing wait for a copy, a multiplication or an earlier kernel
    kMissingFence,  // missing proxy fence between threads' writes and agents, or missing register fence
    kBarrierUse,    // wrong number of arrivals or bytes, or wrong phase
    kLaunchLimit,
    kOnHost,  // device memory is accessed by code of the host
    kHang,    // a thread reads one value again and again, and no thread of its block changes it
};
[[nodiscard]] const char* name(FindingKind kind);
// The kind of finding for a clash, and its message about the element.
[[nodiscard]] FindingKind kind_of(Clash clash);
[[nodiscard]] const char* text_of(Clash clash);

struct Finding {
    FindingKind kind = FindingKind::kOutOfBounds;
    std::string text;                 // includes kernel, block and thread
    std::vector<const void*> frames;  // code addresses in the kernel, innermost first, if kept and if a thread runs
};

// Warp-wide operations. kTogether: a function of the parts that all 32 lanes supply.
enum class WarpOperation : uint8_t { kBarrier, kShuffle, kVote, kTogether };
using WarpFunction = void (*)(void* const (&parts)[kWarpSize]);
// An operation of all threads of a warpgroup.
using GroupFunction = void (*)(std::span<void* const> parts);
using Place = std::source_location;              // a place in a kernel's code
[[nodiscard]] std::string text_of(Place where);  // "my_kernel.cu:33"

// A kernel's declarations (limits_of, simt/emulated.h).
struct LaunchLimits {
    int32_t most_threads = 1024;                     // launch bounds: threads per block
    int64_t large_bytes = -1;                        // size of SIMT_LARGE_SHARED; -1: not declared
    int64_t spare_bytes = 0;                         // of these, bytes that no GPU has
    int64_t most_shared_bytes = int64_t{227} << 10;  // of a block in all; Hopper's most
    Dim3 cluster = {1, 1, 1};                        // blocks of a thread block cluster
    int32_t most_cluster_blocks = 8;                 // ... at most; Hopper's may be asked for 16
    bool is_dependent = false;                       // the kernel may start before earlier kernels have ended
    std::vector<uint32_t> unordered;                 // launches before that no stream orders, ascending
    bool is_cooperative = false;                     // its blocks wait for each other: all are resident at once
    int64_t most_blocks = -1;                        // most resident blocks; -1: unlimited
};

// One mbarrier of a block: counts arrivals and bytes (simt.h).
struct EmulatedBarrier {
    int32_t block = -1;
    int32_t agent = 0;    // the agent that writes for its copies; the agent's epoch is the phase
    int32_t wanted = 0;   // arrivals per phase; 0: not initialised
    int32_t leaving = 0;  // of these, not in the next phases
    Moment initialised;
    bool is_published = false;  // a fence.mbarrier_init has followed
    uint32_t seen_from = 0;     // ... and the cluster's blocks see it after so many of the cluster's phases; 0: not yet
    uint32_t phase = 0;         // completed phases
    int32_t arrivals = 0;
    int64_t expected_bytes = 0;
    int64_t copied_bytes = 0;
    std::vector<std::function<void()>> copies;  // copies of this phase; they land when it completes
    Knowledge arriving;                         // joined clocks of the arrivals of this phase
    Knowledge passed;                           // joined clocks of the arrivals of the last completed phase
};

// A thread's asynchronous operations.
struct ThreadAsync {
    Knowledge knowledge;
    std::map<const EmulatedBarrier*, int64_t> phases;  // per barrier, the last phase waited for
    std::map<const EmulatedBarrier*, int64_t> asked;   // ... and the last one said not to be over
    // Multiplications; groups are numbered from 1.
    uint32_t num_fences = 0;
    uint32_t groups = 0;  // committed
    uint32_t done = 0;    // waited for
    // Bulk stores: committed groups that are not waited for, oldest first, and the open group.
    std::vector<std::vector<std::function<void()>>> store_groups;
    std::vector<std::function<void()>> open_stores;
    uint32_t stores_done = 0;  // groups
    bool has_fenced = false;   // no write to device memory since the last fence for all blocks
    BlocksKnowledge at_fence;  // what the thread released by the last one, in a launch of clusters
};

// Arrivals at a named barrier by threads that do not wait there.
struct NamedArrivals {
    int32_t count = 0;
    int32_t threads = 0;  // arrivals that complete it, as the last one says
    Knowledge knowledge;  // joined
};

// The barrier of a cluster's blocks.
struct EmulatedCluster {
    int32_t num_arrived = 0;           // in this phase
    int32_t num_gone = 0;              // threads that have returned
    uint32_t phase = 0;                // completed phases
    BlocksKnowledge arriving, passed;  // joined clocks of this phase and of the last one
};

// A thread of the running block.
struct EmulatedThread {
    enum class State : uint8_t {
        kReady,
        kAtBlock,
        kAtWarp,
        kAtGroup,
        kAtNamed,
        kAtBarrier,
        kAtValue,
        kAsksForLanes,  // active_lanes()
        kDone
    };
    State state = State::kDone;
    int32_t index = 0;  // in the block
    Dim3 position;
    Now moment;
    // The warp operation that it waits in.
    WarpOperation operation = WarpOperation::kBarrier;
    uint32_t mask = 0;
    int32_t source_lane = 0;     // kShuffle
    uint64_t deposit = 0;        // kShuffle, kVote
    uint64_t received = 0;       // kShuffle, kVote, and of active_lanes()
    WarpFunction function = {};  // kTogether
    void* part = nullptr;        // kTogether
    // Copies in flight, oldest group first.
    std::vector<std::vector<std::function<void()>>> copy_groups;
    std::vector<std::function<void()>> open_copies;
    Place where;                                 // the place that it waits at
    GroupFunction group_function = {};           // kAtGroup
    int32_t named = 0;                           // kAtNamed
    int32_t named_threads = 0;                   // kAtNamed: arrivals that complete it
    const EmulatedBarrier* barrier = {};         // kAtBarrier
    const std::function<bool()>* is_there = {};  // kAtValue
    bool spins = false;                          // kAtValue: it goes on when no other thread of the block can
    bool rests = false;                          // spins: it waits for nothing, and lets other blocks come between
    bool is_at_cluster = false;                  // it has arrived at the cluster's barrier, and not waited
    uint32_t cluster_phase = 0;                  // ... for this many phases to be over
    ThreadAsync async;

    boost::context::fiber fiber;
};

// Bit masks over a warp's lanes.
struct WarpLanes {
    uint32_t ready = 0;            // can run
    uint32_t gone = 0;             // have returned, or are beyond the block's end
    uint32_t in_operation = 0;     // wait in a warp operation
    bool may_be_complete = false;  // an operation may have become complete since the last check
};

class Emulator {
public:
    explicit Emulator(Schedule schedule = Schedule::kForward, uint64_t seed = 0);
    ~Emulator();
    Emulator(const Emulator&) = delete;
    Emulator& operator=(const Emulator&) = delete;

    // Allocates device memory. `cell_bytes`: the smallest element that threads write separately. Hidden: the address
    // is of no memory of the host's, so that code which does not go through a view faults.
    enum class Access : uint8_t { kOpen, kHidden };
    void* allocate(size_t bytes, size_t cell_bytes, Access access = Access::kOpen);
    void release(void* address);
    // The allocation that contains the address. REQUIRES: it exists.
    Memory& memory_of(const void* address);

    // Runs the kernel over the whole grid. A grid or a block that no GPU takes is a finding, and nothing runs.
    void launch(const char* kernel_name, Dim3 grid, Dim3 block, const std::function<void()>& kernel,
                const LaunchLimits& limits = {});

    // Makes a note, unless it is there.
    void note(std::string what);
    // In order of detection; the first four of each kernel and kind.
    [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
    // What CUDA allows and a reader should know, each place once.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
    void clear_findings();
    // From now on findings include code addresses, which a caller can resolve to lines.
    void keep_frames(bool keep) { keeps_frames_ = keep; }
    // Counts accesses from now on.
    void count_accesses() { counter_ = std::make_unique<AccessCounter>(); }
    [[nodiscard]] bool counts_accesses() const { return counter_ != nullptr; }
    [[nodiscard]] AccessCounts access_counts() const { return counter_ ? counter_->counts() : AccessCounts{}; }
    [[nodiscard]] AccessCounts access_counts(const std::string& kernel_name) const {
        return counter_ ? counter_->counts(kernel_name) : AccessCounts{};
    }
    // Called before a launch's first block (true) and after its last (false).
    void watch_launches(std::function<void(bool begins)> watch) { watch_launch_ = std::move(watch); }
    // Called when a resident block leaves the device for another one, and when it comes back: swaps what the caller
    // keeps of the running block with the parked one's, which is empty at first.
    void watch_blocks(std::function<void(std::any& parked)> watch) { watch_block_ = std::move(watch); }
    // Called when the running block of a cluster has ended. `over`: the blocks of the cluster, if it was the last one;
    // their shared memory is gone then.
    void watch_clusters(std::function<void(std::span<const int32_t> over)> watch) { watch_cluster_ = std::move(watch); }
    // Called with each finding as it is made: what comes after it may end the process.
    void watch_findings(std::function<void(const Finding& finding)> watch) { watch_finding_ = std::move(watch); }
    // Records ordering places from now on, and skips the place with this id (0: none).
    void note_ordering(uint64_t left_out) { ordering_.emplace(left_out); }
    [[nodiscard]] const OrderingPlaces& ordering() const { return *ordering_; }  // REQUIRES: note_ordering()
    [[nodiscard]] int64_t num_launches() const { return launch_; }

    // Calls of the running kernel's threads (simt/emulated.h).
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
    uint64_t shuffle(uint32_t mask, uint64_t value, int32_t source_lane, Place where);
    uint32_t vote(uint32_t mask, bool mine, Place where);
    // The lanes of the warp that have come here when none of its lanes can go on: how a warp divides is a GPU's choice.
    uint32_t active_lanes(Place where);
    // Every lane of the warp supplies a part for one function, which changes the parts.
    void together(WarpFunction function, void* part, Place where);
    enum class SharedKind : uint8_t { kStatic, kLarge };
    Memory& shared(const void* key, size_t bytes, size_t cell_bytes, SharedKind kind);
    void copy_later(std::function<void()> copy) { running_->open_copies.push_back(std::move(copy)); }
    void commit_copies();
    void wait_copies(size_t num_pending, Place where);
    void found(FindingKind kind, const std::string& what);
    // A finding that settle() makes, once the running thread has gone on, or the note instead if it is harmless then.
    void found_unless(FindingKind kind, const std::string& what, std::function<bool()> is_harmless, std::string note);
    void settle() {
        if (doubtful_) [[unlikely]]
            settle_doubtful();
    }
    // By code of the host, which no launch runs.
    void found_on_host(const std::string& what, FindingKind kind = FindingKind::kOnHost);
    // The running thread reaches a barrier or a wait at this place. True: skip it.
    bool is_skipped(const char* what, Place where) { return ordering_ && ordering_->meets(what, where); }

    // Agents: asynchronous operations (simt/emulator_async.cc). `where`: the requesting call.
    EmulatedBarrier& barrier(const void* key, int32_t i);
    // The one with this key in another block of the cluster. REQUIRES: the block is resident.
    EmulatedBarrier& barrier_of(int32_t block, const void* key);
    void barrier_init(EmulatedBarrier& barrier, int32_t arrivals, Place where);
    void barrier_invalidate(EmulatedBarrier& barrier, Place where);  // it may be initialised again
    // Before a write to memory: found, if an initialised barrier that has its address as its key is there.
    void overwrite(const std::byte* address, size_t num_bytes);
    void barrier_arrive(EmulatedBarrier& barrier, int64_t expected_bytes, Place where);
    // Whether the phase is not over, and the running thread asks for the first time.
    bool is_not_yet(const EmulatedBarrier& barrier, uint32_t parity);
    // Whether a thread may wait for a phase again: in simt.h's words it may not, in PTX it may.
    enum class WaitAgain : uint8_t { kFound, kAllowed };
    void barrier_wait(EmulatedBarrier& barrier, uint32_t parity, Place where, WaitAgain again = WaitAgain::kFound);
    // The agent that copies for the barrier's phase on behalf of the running thread.
    Now copying(EmulatedBarrier& barrier, Place where);
    void copy_until(EmulatedBarrier& barrier, int64_t num_bytes, std::function<void()> copy);
    // The barrier's phase waits for the running thread's copies so far (cp.async.mbarrier.arrive). Counts: they are an
    // arrival, too.
    enum class CopiesArrive : uint8_t { kUncounted, kCounted };
    void copies_arrive(EmulatedBarrier& barrier, CopiesArrive how, Place where);
    // While copies land that a phase has waited for, its agent; null: the running thread has waited for them.
    [[nodiscard]] const Moment* landing_phase() const { return landing_ ? &*landing_ : nullptr; }
    // An arrival, and the next phases want one less.
    void barrier_drop(EmulatedBarrier& barrier, Place where);
    // The agent that stores for the running thread.
    Now storing();
    void store_later(std::function<void()> store) { running_->async.open_stores.push_back(std::move(store)); }
    void commit_stores();
    void wait_stores(size_t num_pending, Place where);
    void fence_async();
    void fence_barrier_init();
    void named_barrier(int32_t named, int32_t num_threads, Place where);
    // The running thread counts as one of the barrier's, and goes on.
    void named_arrive(int32_t named, int32_t num_threads);
    // Every thread of the warpgroup supplies a part for one function, which changes the parts.
    void group_together(GroupFunction function, void* part, Place where);
    // The agent that multiplies for the running thread's warp, in the open group.
    Now multiplying();
    void multiply_fence() { ++running_->async.num_fences; }
    void commit_multiplications() { ++running_->async.groups; }
    void wait_multiplications(uint32_t num_pending, Place where);
    void wait_previous(Place where);
    // Release: stores the running thread's vector clock with a value in memory. An acquire joins the clock of the last
    // value, or of the first value that is large enough: a thread that waits for at least that value must not rely on
    // more. `replaces`: clocks of earlier values are dropped.
    void release_at(const Memory& memory, size_t offset, int32_t value, bool replaces);
    void acquire_at(const Memory& memory, size_t offset, std::optional<int32_t> least = {});
    // __threadfence, which makes the thread's next atomic operations release until it writes otherwise; every one
    // acquires. Both to all blocks.
    void fence_device();
    void write_unfenced() { running_->async.has_fenced = false; }
    void acquire_atomic(const Memory& memory, size_t offset);
    void release_atomic(const Memory& memory, size_t offset);
    // Before an atomic access: in a random order other threads of the block may come between it and the last one, and
    // now and then other blocks.
    void give_way();
    // Waits until is_there() holds; a thread of another block may make it true.
    void wait_for_value(const std::function<bool()>& is_there, Place where);
    // Lets the block's other threads run until is_there() holds, and other blocks when none of them can go on. False:
    // those cannot, either.
    bool spin_until(const std::function<bool()>& is_there);

    // Thread block clusters (simt/emulator_clusters.cc). A block without one is a cluster of one.
    [[nodiscard]] Dim3 cluster_size() const { return limits_.cluster; }
    [[nodiscard]] bool has_clusters() const { return limits_.cluster.x * limits_.cluster.y * limits_.cluster.z > 1; }
    [[nodiscard]] int32_t rank_in_cluster(int32_t block) const;
    [[nodiscard]] int32_t cluster_rank() const { return rank_in_cluster(block_index_); }
    [[nodiscard]] int32_t block_index() const { return block_index_; }
    // The number of the block of this rank in the running block's cluster.
    [[nodiscard]] int32_t block_of_cluster(int32_t rank) const;
    // Relaxed: it releases what comes before the thread's last fence for the cluster, and no more.
    enum class Arrival : uint8_t { kReleases, kRelaxed };
    void arrive_at_cluster(Place where, Arrival arrival = Arrival::kReleases);
    void wait_for_cluster(Place where);
    // Shared memory of a block, the same as shared() in that block. REQUIRES: has_clusters()
    Memory& shared_of(int32_t block, const void* key, size_t bytes, size_t cell_bytes);
    enum class BlockState : uint8_t { kToCome, kResident, kOver };
    [[nodiscard]] BlockState state_of_block(int32_t block) const;  // REQUIRES: has_clusters()

    // Counts an access at the caller's code address. REQUIRES: counts_accesses().
    void count_access(const Memory& memory, size_t offset, size_t num_bytes, bool is_store);
    void count_copy(size_t num_bytes, bool is_store) { counter_->add_copy(num_bytes, is_store); }

private:
    static constexpr int32_t kMostWarps = 32;
    using Warps = std::array<WarpLanes, kMostWarps>;
    using Named = std::array<NamedArrivals, 16>;
    using Barriers = std::map<std::pair<const void*, int32_t>, EmulatedBarrier>;
    // A resident block that is not running.
    struct ParkedBlock {
        std::map<const void*, std::unique_ptr<Memory>> shared;
        Barriers barriers;
        Named named;
        bool has_knowledge = false;
        Dim3 position;
        int32_t index = 0;
        int32_t cursor = 0;
        std::vector<std::unique_ptr<EmulatedThread>> threads;
        Warps warps;
        std::any watched;  // watch_blocks()
    };
    [[noreturn]] static void outside_launch();
    void end_block();
    // simt/emulator_blocks.cc
    void run_in_turn(std::span<int32_t> order, const std::function<void()>& kernel);
    bool run_until_it_waits();
    void park();
    bool advance_parked();
    [[nodiscard]] EmulatedThread* spinning() const;
    [[nodiscard]] EmulatedThread* waiting_for_others() const;
    [[nodiscard]] bool rests() const;
    [[nodiscard]] bool has_room_for(size_t num_parked) const;
    void rest();
    void run_together(std::span<const int32_t> order, const std::function<void()>& kernel);
    void change_block(ParkedBlock& parked);
    ParkedBlock& parked_block(int32_t block);
    void end_fibers(ParkedBlock& parked);
    void release_to(BlocksKnowledge& blocks);
    void acquire_from(const BlocksKnowledge& blocks);
    bool release_values();
    bool release_spinning();
    bool advance();
    [[nodiscard]] bool is_over() const;
    void begin_block(int32_t block, const std::function<void()>& kernel);
    void start_threads(const std::function<void()>& kernel);
    EmulatedThread* choose();
    [[nodiscard]] int32_t next_ready() const;
    void go_on(EmulatedThread& thread);
    [[nodiscard]] EmulatedThread* lane_behind() const;
    bool release_waiting();
    // simt/emulator_clusters.cc
    [[nodiscard]] int32_t cluster_of(int32_t block) const;
    void begin_clusters();
    void end_block_of_cluster();
    void sort_by_cluster(std::span<int32_t> order) const;
    void complete_cluster(EmulatedCluster& cluster);
    void leave_cluster();
    void publish_barriers(uint32_t seen_from);
    [[nodiscard]] bool is_seen_by_cluster(const EmulatedBarrier& barrier) const;
    [[nodiscard]] BlockKnowledge knowledge_of_block() const;
    const Knowledge& knowledge_in(int32_t block);
    Now agent_of(const EmulatedBarrier& barrier);
    void in_block(int32_t block, const std::function<void()>& act);
    // simt/emulator_warps.cc
    bool complete_warp(int32_t warp);
    [[nodiscard]] uint32_t lanes_like(const EmulatedThread& thread) const;
    [[nodiscard]] uint32_t lanes_needed(const EmulatedThread& thread) const;
    [[nodiscard]] std::string missing_lane(const EmulatedThread& thread) const;
    void report_warp_mask();
    void report_barrier_not_reached();
    void note_absent_lanes(const EmulatedThread& thread);
    void complete_barrier(int32_t warp, uint32_t mask);
    void complete_shuffle(EmulatedThread& thread);
    void complete_vote(EmulatedThread& thread);
    void complete_together(const EmulatedThread& thread);
    void join_lanes(int32_t warp, uint32_t mask);
    bool release_active_lanes();
    void find_divergence_at_block();
    bool found_divergence();
    bool release_block();
    void report_deadlock();
    void found_in_launch(FindingKind kind, const std::string& what);
    void settle_doubtful();
    [[nodiscard]] Finding finding_here(FindingKind kind, const std::string& what) const;
    void add_finding(Finding finding);
    [[nodiscard]] bool is_launchable();
    void check_limits();
    [[nodiscard]] int64_t shared_bytes() const;  // of a block of the launch, as far as its arrays are known
    [[nodiscard]] std::string too_much_shared() const;
    void check_block_end();
    // simt/emulator_async.cc
    void enable_clocks();
    void publish_clock(EmulatedThread& thread);
    void learn(EmulatedThread& thread, const Knowledge& knowledge);
    void share(EmulatedThread& thread, const Knowledge& joint);
    Now agent(int32_t number, uint32_t epoch);
    bool is_usable(const EmulatedBarrier& barrier, Place where);
    static EmulatedBarrier& barrier_in(Barriers& barriers, int32_t block, std::pair<const void*, int32_t> key);
    void complete_phase(EmulatedBarrier& barrier);
    bool release_barriers();
    bool release_named();
    void end_named_phase(int32_t named);
    bool release_groups();
    bool report_async_deadlock();
    void wait(EmulatedThread::State state);

    Schedule schedule_;
    Prng prng_;
    std::map<const std::byte*, std::unique_ptr<Memory>> memory_;
    std::map<const void*, std::unique_ptr<Memory>> shared_;
    std::vector<Finding> findings_;
    std::map<std::pair<std::string, FindingKind>, int64_t> num_found_;
    std::vector<std::string> notes_;
    struct Doubtful {
        Finding finding;
        std::function<bool()> is_harmless;
        std::string note;
    };
    std::optional<Doubtful> doubtful_;
    bool keeps_frames_ = false;
    std::unique_ptr<AccessCounter> counter_;  // null: not counting
    std::optional<OrderingPlaces> ordering_;  // empty: not recording
    std::function<void(bool)> watch_launch_;  // empty: not watched
    std::function<void(const Finding&)> watch_finding_;
    std::function<void(std::any&)> watch_block_;  // empty: not watched
    std::function<void(std::span<const int32_t>)> watch_cluster_;
    std::optional<Moment> landing_;
    bool gives_way_ = false;  // the running thread stops, and waits for nothing
    int32_t rests_left_ = 0;  // in this launch

    std::string kernel_name_;
    uint32_t launch_ = 0;
    LaunchLimits limits_;
    uint32_t unsafe_from_ = 1;  // launches from this one up to the current may still run; 0: host
    bool waits_for_previous_ = false;
    int64_t static_bytes_ = 0;             // of static shared memory
    std::set<const void*> static_arrays_;  // in this launch
    Barriers barriers_;
    Named named_;
    bool uses_clocks_ = false;  // this block uses vector clocks
    struct Released {
        int32_t value;
        BlocksKnowledge blocks;
    };
    std::map<std::pair<const Memory*, size_t>, std::vector<Released>> released_;  // in this launch
    std::list<ParkedBlock> parked_;                // the launch's resident blocks but for the running one
    std::map<int32_t, EmulatedCluster> clusters_;  // of the launch
    Knowledge in_other_block_;                     // knowledge_in()
    std::vector<BlockState> block_states_;         // ... if it has clusters
    std::map<std::pair<int32_t, const void*>, std::unique_ptr<Memory>> cluster_shared_;
    Dim3 block_position_;
    Dim3 block_size_;
    Dim3 grid_size_;
    int32_t block_index_ = 0;
    int32_t num_threads_ = 0;
    int32_t cursor_ = 0;  // the scheduler's last choice
    std::vector<std::unique_ptr<EmulatedThread>> threads_;
    Warps warps_;
    EmulatedThread* running_ = nullptr;
    bool in_thread_ = false;                         // the running thread's code runs, not the scheduler's
    const std::function<void()>* kernel_ = nullptr;  // null: fibers end
    boost::context::fiber scheduler_;
    static inline constinit thread_local Emulator* current_ = nullptr;  // the emulator of the current launch
};

}  // namespace verbatim::simt
