#include "kernels/simt/emulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/context/fixedsize_stack.hpp>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace verbatim::simt {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

// Stacks begin at one offset of their pages, and a cache keeps a few lines of one offset: what threads touch in turn
// lies in other lines of the page, odd multiples of a line apart.
size_t stack_bytes(size_t thread) {
    constexpr size_t kLine = 64, kLines = 64;
    return kStackBytes + thread * 5 % kLines * kLine;
}
constexpr int32_t kMaxThreads = 1024;
constexpr int64_t kMaxBlocks = int64_t{1} << 24;  // of a launch that the emulator runs
constexpr Dim3 kMaxBlock = {1024, 1024, 64};      // CUDA's, along each axis
constexpr Dim3 kMaxGrid = {std::numeric_limits<int32_t>::max(), 65535, 65535};
constexpr int64_t kStaticSharedBytes = 48 << 10;  // per block, for arrays of static size

bool is_within(Dim3 size, Dim3 most) {
    return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= most.x && size.y <= most.y && size.z <= most.z;
}
std::string text_of(Dim3 size) { return fmt::format("({}, {}, {})", size.x, size.y, size.z); }

}  // namespace

std::string text_of(Place where) {
    const std::string_view file = where.file_name();
    return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), where.line());
}

const char* name(FindingKind kind) {
    switch (kind) {
        case FindingKind::kOutOfBounds: return "out of bounds";
        case FindingKind::kMisaligned: return "misaligned";
        case FindingKind::kUninitialised: return "uninitialised";
        case FindingKind::kRace: return "race";
        case FindingKind::kBarrierNotReached: return "barrier not reached";
        case FindingKind::kWarpMask: return "warp mask";
        case FindingKind::kDivergent: return "divergent";
        case FindingKind::kNotAwaited: return "not awaited";
        case FindingKind::kMissingFence: return "missing fence";
        case FindingKind::kBarrierUse: return "barrier misused";
        case FindingKind::kLaunchLimit: return "launch limit";
        case FindingKind::kOnHost: return "on the host";
        case FindingKind::kHang: return "hang";
    }
    return "unknown";
}

FindingKind kind_of(Clash clash) {
    switch (clash) {
        case Clash::kUninitialised: return FindingKind::kUninitialised;
        case Clash::kBetweenRows: return FindingKind::kOutOfBounds;
        case Clash::kUnderWay:
        case Clash::kStillRead:
        case Clash::kEarlierKernel: return FindingKind::kNotAwaited;
        case Clash::kNotFenced: return FindingKind::kMissingFence;
        default: return FindingKind::kRace;
    }
}

const char* text_of(Clash clash) {
    switch (clash) {
        case Clash::kNone: return "";
        case Clash::kUninitialised: return "is read, and nobody has written it";
        case Clash::kBetweenRows: return "lies between two rows (stride > width), and is accessed";
        case Clash::kWriteAfterWrite:
        case Clash::kWrittenInWarp: return "is written by two threads with nothing between";
        case Clash::kReadAfterWrite: return "is read while another thread writes it";
        case Clash::kWriteAfterRead: return "is written while another thread reads it";
        case Clash::kUnderWay: return "is touched while a copy to it is under way";
        case Clash::kStillRead: return "is written while tensor cores or a copy may still read it";
        case Clash::kNotFenced: return "was written by a thread with no fence_async() before a copy or tensor cores";
        case Clash::kOtherStream:
            return "is touched, and a launch of another stream may touch it at the same time: no event or "
                   "synchronisation orders them";
        case Clash::kEarlierKernel: return "is touched before wait_previous(), and a kernel before may touch it";
    }
    return "";
}

Emulator::Emulator(Schedule schedule, uint64_t seed) : schedule_(schedule), prng_(seed) {}

// Resumes every fiber once more so that it ends.
Emulator::~Emulator() {
    kernel_ = nullptr;
    for (const auto& thread : threads_) {
        if (thread->fiber) thread->fiber = std::move(thread->fiber).resume();
    }
}

void Emulator::outside_launch() {
    CHECK(current_ != nullptr, "a kernel's code runs outside a launch");
    __builtin_unreachable();
}

// --- memory

void* Emulator::allocate(size_t bytes, size_t cell_bytes, Access access) {
    CHECK_GT(cell_bytes, size_t{0});
    auto memory = std::make_unique<Memory>(std::max<size_t>(bytes, cell_bytes), cell_bytes);
    if (access == Access::kHidden) memory->hide();
    std::byte* address = memory->address();
    CHECK(memory_.emplace(address, std::move(memory)).second, "two allocations at {}", fmt::ptr(address));
    return address;
}

void Emulator::release(void* address) {
    if (address != nullptr) CHECK_EQ(memory_.erase(static_cast<std::byte*>(address)), 1u);
}

Memory& Emulator::memory_of(const void* address) {
    auto after = memory_.upper_bound(static_cast<const std::byte*>(address));
    CHECK(after != memory_.begin() && std::prev(after)->second->holds(address), "no device memory at {}", address);
    return *std::prev(after)->second;
}

Memory& Emulator::shared(const void* key, size_t bytes, size_t cell_bytes, SharedKind kind) {
    if (static_arrays_.insert(key).second) {
        if (kind == SharedKind::kStatic) static_bytes_ += static_cast<int64_t>(bytes);
        if (static_bytes_ > kStaticSharedBytes) {
            found(FindingKind::kLaunchLimit, fmt::format("{} bytes of shared arrays, and a block has {} for them",
                                                         static_bytes_, kStaticSharedBytes));
        }
        if (kind == SharedKind::kLarge && limits_.large_bytes >= 0 &&
            static_cast<int64_t>(bytes) > limits_.large_bytes) {
            found(FindingKind::kLaunchLimit,
                  fmt::format("a large shared array of {} bytes, and kSharedBytes is {}", bytes, limits_.large_bytes));
        }
        if (static_bytes_ > 0 && shared_bytes() > limits_.most_shared_bytes)
            found(FindingKind::kLaunchLimit, too_much_shared());
    }
    if (has_clusters()) return shared_of(block_index_, key, bytes, cell_bytes);
    auto& memory = shared_[key];
    if (!memory || memory->size() != bytes) {
        memory = std::make_unique<Memory>(bytes, cell_bytes, Memory::Life::kBlock);
    }
    return *memory;
}

int64_t Emulator::shared_bytes() const {
    return static_bytes_ + std::max<int64_t>(limits_.large_bytes - limits_.spare_bytes, 0);
}

std::string Emulator::too_much_shared() const {
    const bool is_asked = limits_.most_shared_bytes > kStaticSharedBytes;
    return fmt::format("{} bytes of shared memory, and a block has {}{}", shared_bytes(), limits_.most_shared_bytes,
                       is_asked ? "" : " unless cudaFuncSetAttribute allows the kernel more");
}

void Emulator::count_access(const Memory& memory, size_t offset, size_t num_bytes, bool is_store) {
    counter_->add({.site = __builtin_return_address(0),
                   .memory = &memory,
                   .offset = offset,
                   .num_bytes = num_bytes,
                   .is_shared = memory.life() != Memory::Life::kDevice,
                   .is_store = is_store},
                  // Threads of concurrently resident blocks need distinct numbers.
                  limits_.is_cooperative ? block_index_ * kMaxThreads + running_->index : running_->index);
}

// --- launches

void Emulator::launch(const char* kernel_name, Dim3 grid, Dim3 block, const std::function<void()>& kernel,
                      const LaunchLimits& limits) {
    kernel_name_ = kernel_name;
    limits_ = limits;
    block_size_ = block;
    grid_size_ = grid;
    if (!is_launchable()) return;
    num_threads_ = block.x * block.y * block.z;
    ++launch_;
    if (counter_) counter_->launched(kernel_name);
    check_limits();
    Emulator* outer = std::exchange(current_, this);
    if (watch_launch_) watch_launch_(true);
    std::vector<int32_t> order(static_cast<size_t>(grid.x) * grid.y * grid.z);
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    if (schedule_ == Schedule::kReverse) std::ranges::reverse(order);
    if (schedule_ == Schedule::kRandom) {
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[prng_.below(i)]);
    }
    if (has_clusters()) sort_by_cluster(order);
    if (limits.is_cooperative) {
        run_together(order, kernel);
    } else {
        run_in_turn(order, kernel);
    }
    if (limits.is_dependent && !waits_for_previous_) {
        found_in_launch(FindingKind::kNotAwaited,
                        "no thread waits for the kernels before, so that those behind it may overtake them");
    }
    if (watch_launch_) watch_launch_(false);
    current_ = outer;
}

// What cudaLaunchKernel refuses, and what would take the emulator for ever.
bool Emulator::is_launchable() {
    const auto refuse = [this](const std::string& why) {
        found_in_launch(FindingKind::kLaunchLimit, why);
        return false;
    };
    if (!is_within(block_size_, kMaxBlock) || count_of(block_size_) > kMaxThreads) {
        return refuse(fmt::format("a block of {} threads, {}: CUDA takes 1 to {} of them, within {}",
                                  count_of(block_size_), text_of(block_size_), kMaxThreads, text_of(kMaxBlock)));
    }
    const Dim3 cluster = limits_.cluster;
    const bool is_divided = cluster.x > 0 && cluster.y > 0 && cluster.z > 0 && grid_size_.x % cluster.x == 0 &&
                            grid_size_.y % cluster.y == 0 && grid_size_.z % cluster.z == 0;
    if (!is_divided || count_of(cluster) > limits_.most_cluster_blocks) {
        return refuse(fmt::format("clusters of {} blocks in a grid of {}: they divide it, and have {} blocks at most",
                                  text_of(cluster), text_of(grid_size_), limits_.most_cluster_blocks));
    }
    if (!is_within(grid_size_, kMaxGrid)) {
        return refuse(fmt::format("a grid of {} blocks: CUDA takes 1 or more along each axis, within {}",
                                  text_of(grid_size_), text_of(kMaxGrid)));
    }
    // Two axes at a time: three of the longest would overflow.
    if (int64_t{grid_size_.x} * grid_size_.y > kMaxBlocks || count_of(grid_size_) > kMaxBlocks) {
        return refuse(fmt::format("a grid of {} blocks is more than the {} that the emulator runs", text_of(grid_size_),
                                  kMaxBlocks));
    }
    return true;
}

// Before the first block runs.
void Emulator::check_limits() {
    if (!limits_.is_dependent) unsafe_from_ = launch_;
    waits_for_previous_ = false;
    static_bytes_ = 0;
    static_arrays_.clear();
    released_.clear();
    begin_clusters();
    const int64_t num_blocks = int64_t{grid_size_.x} * grid_size_.y * grid_size_.z;
    constexpr int32_t kMostRests = 4;  // each keeps a block's stacks
    rests_left_ = num_blocks > 1 && !limits_.is_cooperative ? kMostRests : 0;
    if (limits_.is_cooperative && limits_.most_blocks >= 0 && num_blocks > limits_.most_blocks) {
        found_in_launch(FindingKind::kLaunchLimit,
                        fmt::format("{} blocks wait for each other, and the device holds {} at once", num_blocks,
                                    limits_.most_blocks));
    }
    if (shared_bytes() > limits_.most_shared_bytes) found_in_launch(FindingKind::kLaunchLimit, too_much_shared());
    if (num_threads_ > limits_.most_threads) {
        found_in_launch(FindingKind::kLaunchLimit, fmt::format("blocks of {} threads, and its launch bounds are {}",
                                                               num_threads_, limits_.most_threads));
    }
}

void Emulator::start_threads(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    while (static_cast<int32_t>(threads_.size()) < num_threads_) {
        auto thread = std::make_unique<EmulatedThread>();
        thread->index = static_cast<int32_t>(threads_.size());
        // One fiber runs the same thread of block after block.
        thread->fiber =
            boost::context::fiber(std::allocator_arg, boost::context::fixedsize_stack(stack_bytes(threads_.size())),
                                  [this](boost::context::fiber&& scheduler) {
                                      scheduler_ = std::move(scheduler);
                                      while (kernel_ != nullptr) {
                                          (*kernel_)();
                                          running_->copy_groups.clear();  // no thread waited for them: they never land
                                          running_->open_copies.clear();
                                          leave_cluster();
                                          wait(EmulatedThread::State::kDone);
                                      }
                                      return std::move(scheduler_);
                                  });
        threads_.push_back(std::move(thread));
    }
    warps_ = {};
    if (num_threads_ % kWarpSize != 0) warps_[num_threads_ / kWarpSize].gone = kFullWarp << num_threads_ % kWarpSize;
    for (int32_t i = 0; i < num_threads_; ++i) {
        CHECK(threads_[i]->state == EmulatedThread::State::kDone, "thread {} of the block before has not ended", i);
        go_on(*threads_[i]);
        threads_[i]->position = position_of(i, block_size_);
        threads_[i]->moment = {{launch_, block_index_, i, 0, 0},
                               {},
                               i,
                               unsafe_from_,
                               nullptr,
                               limits_.unordered.empty() ? nullptr : &limits_.unordered};
        threads_[i]->async = {};
        threads_[i]->is_at_cluster = false;
        threads_[i]->cluster_phase = 0;
    }
    barriers_.clear();
    named_ = {};
    uses_clocks_ = false;
    if (limits_.is_cooperative || has_clusters()) enable_clocks();
}

void Emulator::begin_block(int32_t block, const std::function<void()>& kernel) {
    CHECK_LT(block, count_of(grid_size_));
    block_index_ = block;
    block_position_ = position_of(block, grid_size_);
    if (has_clusters()) block_states_[static_cast<size_t>(block)] = BlockState::kResident;
    start_threads(kernel);
    cursor_ = schedule_ == Schedule::kReverse ? num_threads_ - 1 : 0;
}

void Emulator::end_block() {
    CHECK(is_over(), "{}: block {} ends before its threads", kernel_name_, block_index_);
    CHECK(!doubtful_, "{}: a finding of block {} is not settled", kernel_name_, block_index_);
    if (counter_) counter_->block_over(num_threads_, threads_[0]->moment.block_epoch);
    check_block_end();
    if (has_clusters()) end_block_of_cluster();
}

bool Emulator::is_over() const {
    return std::all_of(threads_.begin(), threads_.begin() + num_threads_,
                       [](const auto& thread) { return thread->state == EmulatedThread::State::kDone; });
}

// Runs the block until it ends or cannot continue by itself; returns whether it made progress.
bool Emulator::advance() {
    bool has_moved = false;
    while (true) {
        running_ = choose();
        if (running_ == nullptr && release_waiting()) {
            has_moved = true;
            continue;
        }
        if (running_ == nullptr) running_ = lane_behind();
        if (running_ == nullptr) return has_moved;
        in_thread_ = true;
        running_->fiber = std::move(running_->fiber).resume();
        in_thread_ = false;
        const bool gives_way = std::exchange(gives_way_, false);
        CHECK(gives_way == (running_->state == EmulatedThread::State::kReady),
              "thread {} has stopped and waits for nothing", running_->index);
        settle();
        has_moved = true;
    }
}

// The next thread to run by the schedule; null when none is ready.
EmulatedThread* Emulator::choose() {
    if (schedule_ == Schedule::kRandom)
        cursor_ = static_cast<int32_t>(prng_.below(static_cast<uint64_t>(num_threads_)));
    if (schedule_ == Schedule::kOneWarpAhead) {
        // Complete a warp operation of the last warp before any other warp runs.
        (void)complete_warp(cursor_ / kWarpSize);
        cursor_ = cursor_ / kWarpSize * kWarpSize;
    }
    const int32_t next = next_ready();
    if (next < 0) return nullptr;
    CHECK(threads_[next]->state == EmulatedThread::State::kReady, "thread {} is ready by its warp's bits alone", next);
    cursor_ = next;
    return threads_[next].get();
}

// Cyclically from the cursor; negative when none is ready.
int32_t Emulator::next_ready() const {
    const bool forward = schedule_ != Schedule::kReverse;
    const uint32_t chosen = schedule_ == Schedule::kLaneBehind ? kFullWarp >> 1 : kFullWarp;
    const int32_t num_warps = (num_threads_ + kWarpSize - 1) / kWarpSize;
    const int32_t lane = cursor_ % kWarpSize;
    int32_t warp = cursor_ / kWarpSize;
    uint32_t lanes = warps_[warp].ready & chosen & (forward ? kFullWarp << lane : kFullWarp >> (kWarpSize - 1 - lane));
    for (int32_t tried = 0; tried < num_warps && lanes == 0; ++tried) {
        warp += forward ? 1 : num_warps - 1;
        if (warp >= num_warps) warp -= num_warps;
        lanes = warps_[warp].ready & chosen;
    }
    if (lanes == 0) return -1;
    return warp * kWarpSize + (forward ? std::countr_zero(lanes) : kWarpSize - 1 - std::countl_zero(lanes));
}

// The lane that kLaneBehind has held back.
EmulatedThread* Emulator::lane_behind() const {
    for (int32_t i = kWarpSize - 1; i < num_threads_; i += kWarpSize) {
        if (threads_[i]->state == EmulatedThread::State::kReady) return threads_[i].get();
    }
    return nullptr;
}

// --- barriers and warp operations

void Emulator::wait(EmulatedThread::State state) {
    CHECK(in_thread_, "a wait without a thread");
    running_->state = state;
    WarpLanes& lanes = warps_[running_->index / kWarpSize];
    const uint32_t lane = 1U << running_->index % kWarpSize;
    lanes.ready &= ~lane;
    if (state == EmulatedThread::State::kDone) {
        lanes.gone |= lane;
        lanes.may_be_complete |= lanes.in_operation != 0;  // no operation waits for it any more
    }
    if (state == EmulatedThread::State::kAtWarp) {
        lanes.in_operation |= lane;
        // The last arrival of an operation finds all other lanes there.
        lanes.may_be_complete |= (running_->mask & ~lanes.in_operation & ~lanes.gone) == 0;
    }
    scheduler_ = std::move(scheduler_).resume();
}

void Emulator::give_way() {
    if (schedule_ != Schedule::kRandom) return;
    CHECK(in_thread_ && !gives_way_, "no thread gives way");
    constexpr uint64_t kOneIn = 8;
    if (rests_left_ > 0 && prng_.below(kOneIn) == 0) return rest();
    gives_way_ = true;
    scheduler_ = std::move(scheduler_).resume();
}

// Ends the thread's wait.
void Emulator::go_on(EmulatedThread& thread) {
    CHECK(thread.state != EmulatedThread::State::kReady, "thread {} goes on and has not waited", thread.index);
    thread.state = EmulatedThread::State::kReady;
    WarpLanes& lanes = warps_[thread.index / kWarpSize];
    const uint32_t lane = 1U << thread.index % kWarpSize;
    lanes.ready |= lane;
    lanes.in_operation &= ~lane;
}

void Emulator::sync_block(Place where) {
    if (is_skipped("sync_block", where)) return;
    running_->where = where;
    wait(EmulatedThread::State::kAtBlock);
}

void Emulator::sync_warp(uint32_t mask, Place where) {
    if (is_skipped("sync_warp", where)) return;
    running_->operation = WarpOperation::kBarrier;
    running_->where = where;
    running_->function = nullptr;
    running_->mask = mask;
    wait(EmulatedThread::State::kAtWarp);
}

uint64_t Emulator::shuffle(uint32_t mask, uint64_t value, int32_t source_lane, Place where) {
    running_->operation = WarpOperation::kShuffle;
    running_->where = where;
    running_->function = nullptr;
    running_->mask = mask;
    running_->deposit = value;
    // Beyond the warp's end a lane receives the value that it passed.
    const bool inside = source_lane >= 0 && source_lane < kWarpSize;
    running_->source_lane = inside ? source_lane : running_->index % kWarpSize;
    wait(EmulatedThread::State::kAtWarp);
    return running_->received;
}

uint32_t Emulator::vote(uint32_t mask, bool mine, Place where) {
    running_->operation = WarpOperation::kVote;
    running_->where = where;
    running_->function = nullptr;
    running_->mask = mask;
    running_->deposit = mine ? 1 : 0;
    wait(EmulatedThread::State::kAtWarp);
    return static_cast<uint32_t>(running_->received);
}

void Emulator::together(WarpFunction function, void* part, Place where) {
    CHECK(function != nullptr);
    running_->operation = WarpOperation::kTogether;
    running_->where = where;
    running_->mask = kFullWarp;
    running_->function = function;
    running_->part = part;
    wait(EmulatedThread::State::kAtWarp);
}

// No thread is ready: completes every operation that is complete. False when there is none.
bool Emulator::release_waiting() {
    bool released = false;
    for (int32_t warp = 0; warp * kWarpSize < num_threads_; ++warp) released |= complete_warp(warp);
    released |= release_groups() || release_named() || release_barriers() || release_values();
    return released || release_block() || release_active_lanes();
}

bool Emulator::release_block() {
    const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
    const auto is_in = [](EmulatedThread::State state) {
        return [state](const auto& thread) { return thread->state == state; };
    };
    const int64_t num_here = std::ranges::count_if(all, is_in(EmulatedThread::State::kAtBlock));
    const int64_t num_gone = std::ranges::count_if(all, is_in(EmulatedThread::State::kDone));
    if (num_here == 0 || num_here + num_gone < num_threads_) return false;
    find_divergence_at_block();
    if (num_gone > 0) {
        const auto first = std::ranges::find_if(all, is_in(EmulatedThread::State::kAtBlock));
        note(fmt::format("{}: a block barrier is reached while other threads have returned: CUDA allows it",
                         text_of((*first)->where)));
    }
    Knowledge joint;
    for (const auto& thread : all) {
        joint.unsafe_from = std::max(joint.unsafe_from, thread->moment.unsafe_from);
        if (uses_clocks_) joint.join(thread->async.knowledge);
    }
    for (const auto& thread : all) {
        if (thread->state == EmulatedThread::State::kDone) continue;
        CHECK(thread->state == EmulatedThread::State::kAtBlock, "thread {} waits elsewhere", thread->index);
        ++thread->moment.block_epoch;
        go_on(*thread);
        share(*thread, joint);
    }
    return true;
}

// Deadlock: the kernel would hang. Reports it once and then releases all waiting threads.
void Emulator::report_deadlock() {
    if (release_spinning()) return;
    if (!found_divergence() && !report_async_deadlock()) {
        const auto all = std::span(threads_).first(static_cast<size_t>(num_threads_));
        const bool in_warp = std::ranges::any_of(
            all, [](const auto& thread) { return thread->state == EmulatedThread::State::kAtWarp; });
        in_warp ? report_warp_mask() : report_barrier_not_reached();
    }
    for (int32_t i = 0; i < num_threads_; ++i) {
        if (threads_[i]->state == EmulatedThread::State::kDone) continue;
        threads_[i]->received = threads_[i]->deposit;
        go_on(*threads_[i]);
    }
}

// --- asynchronous copies

void Emulator::commit_copies() { running_->copy_groups.push_back(std::exchange(running_->open_copies, {})); }

void Emulator::wait_copies(size_t num_pending, Place where) {
    if (is_skipped("wait_async", where)) return;
    auto& groups = running_->copy_groups;
    while (groups.size() > num_pending) {
        for (const auto& copy : groups.front()) copy();
        groups.erase(groups.begin());
    }
}

}  // namespace verbatim::simt
