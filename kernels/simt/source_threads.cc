#include "kernels/simt/source_threads.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <any>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/source_memory.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {
namespace {

const char dynamic_key = 0;  // its address is the key of dynamic shared memory

cuda_source::Index index_of(Dim3 from) {
    return {static_cast<unsigned>(from.x), static_cast<unsigned>(from.y), static_cast<unsigned>(from.z)};
}
Dim3 size_of(cuda_source::Index from) {
    return {static_cast<int32_t>(from.x), static_cast<int32_t>(from.y), static_cast<int32_t>(from.z)};
}

// An access of run() itself, outside of a launch.
void look_at_host(const std::byte* address, bool is_write) {
    if (source.emulator == nullptr) return;
    const SourceRange* const range = source.find(address);
    if (range == nullptr || address < range->begin || address >= range->begin + range->num_bytes) return;
    source.emulator->found_on_host(
        fmt::format("byte {} of {} bytes of {} is {} by run() on the host: a GPU's host crashes there",
                    address - range->begin, range->num_bytes, range->what, is_write ? "written" : "read"));
}

// Several threads of a warp write one place, the access follows: CUDA keeps one of the values, and equal ones are no
// race.
void report_unless_equal(const SourceRange& range, const std::byte* address, size_t num_bytes) {
    const std::string bytes(reinterpret_cast<const char*>(address), num_bytes);
    const std::string where =
        fmt::format("byte {} of {} bytes of {}", address - range.begin, range.num_bytes, range.what);
    Emulator::current().found_unless(
        kind_of(Clash::kWrittenInWarp), fmt::format("{} {}", where, text_of(Clash::kWrittenInWarp)),
        [bytes, address] { return std::memcmp(bytes.data(), address, bytes.size()) == 0; },
        fmt::format("{} is written by several threads of a warp with nothing between, with one value", range.what));
}

// How a thread reads: one value again and again, with nothing between.
struct Reading {
    const std::byte* address = nullptr;
    uint64_t value = 0;
    int32_t times = 0;
};
OfThreads<Reading> readings;

uint64_t value_at(const std::byte* address, size_t num_bytes) {
    uint64_t value = 0;
    std::memcpy(&value, address, std::min(num_bytes, sizeof value));
    return value;
}

// A GPU runs a block's threads in turns, and resident blocks too: a thread that waits for a value lets the others run,
// and hangs if none of them can bring it.
void look_at_spinning(const std::byte* address, size_t num_bytes) {
    constexpr int32_t kInTurn = 256, kMost = 64 * kInTurn;  // reads of an unchanged value
    Emulator& emulator = Emulator::current();
    Reading& mine = readings.of_running();
    const uint64_t value = value_at(address, num_bytes);
    if (mine.address != address || mine.value != value) {
        mine = {address, value, 0};
        return;
    }
    if (++mine.times % kInTurn != 0) return;
    const auto has_changed = [&] { return value_at(address, num_bytes) != value; };
    if (emulator.spin_until(has_changed) || mine.times < kMost) return;
    emulator.found(FindingKind::kHang,
                   fmt::format("a value is read {} times, and no thread can change it: all others have ended or wait",
                               mine.times));
    std::abort();  // nothing ends the loop: the finding tells why
}
void stop_spinning() { readings.of_running().address = nullptr; }

// Bytes of dynamic shared memory that cudaFuncSetAttribute allowed, by a kernel's address.
std::map<const void*, size_t>& allowed_shared() {
    static std::map<const void*, size_t> allowed;
    return allowed;
}
bool is_allowed(const void* kernel, size_t num_bytes) {
    return std::ranges::any_of(allowed_shared(), [&](const auto& one) {
        return one.second >= num_bytes && (kernel == nullptr || one.first == kernel);
    });
}

std::set<const void*>& large_clusters() {
    static std::set<const void*> kernels;
    return kernels;
}

// A call of a kernel outside of a launch, which its first statement ends with its __cluster_dims__.
bool asks_for_dims = false;
cuda_source::Index cluster_dims_of(const std::function<void()>& body) {
    asks_for_dims = true;
    cuda_source::Index dims;
    try {
        body();
    } catch (const cuda_source::Index& thrown) {
        dims = thrown;
    }
    asks_for_dims = false;
    return dims;
}

// The host's memory that a launch must not touch: the call stack from launch() on, and the heap.
struct Addresses {
    uintptr_t begin = 0, end = 0;
    [[nodiscard]] bool contain(const void* address) const {
        const auto at = reinterpret_cast<uintptr_t>(address);
        return at >= begin && at < end;
    }
};
Addresses stack_from(const void* frame) {
    thread_local const uintptr_t end = [] {
        pthread_attr_t attributes;
        void* lowest = nullptr;
        size_t num_bytes = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return uintptr_t{0};
        pthread_attr_getstack(&attributes, &lowest, &num_bytes);
        pthread_attr_destroy(&attributes);
        return reinterpret_cast<uintptr_t>(lowest) + num_bytes;
    }();
    return {reinterpret_cast<uintptr_t>(frame), end};
}
Addresses heap() {
    static const uintptr_t begin = [] {
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line);) {
            if (line.ends_with("[heap]")) return static_cast<uintptr_t>(std::stoull(line, nullptr, 16));
        }
        return UINTPTR_MAX;
    }();
    return {begin, reinterpret_cast<uintptr_t>(sbrk(0))};
}
Addresses stack_of_host, heap_of_host;  // of the launch
OfThreads<bool> has_begun;

// Of an access to memory that is no device's and not shared.
void look_for_host_memory(const std::byte* address, const char* verb) {
    constexpr ptrdiff_t kStack = ptrdiff_t{512} << 10;  // the thread's may be in the heap
    const auto* const mine = reinterpret_cast<const std::byte*>(&address);
    const bool is_stack = stack_of_host.contain(address);
    const bool is_heap = heap_of_host.contain(address) && std::abs(address - mine) > kStack;
    if ((!is_heap && !is_stack) || !has_begun.of_running()) return;
    if (is_stack) {
        return Emulator::current().found(
            FindingKind::kOnHost,
            fmt::format("a variable of the host is {} by a kernel: an argument points to it, or has a pointer", verb));
    }
    Emulator::current().found(
        FindingKind::kOutOfBounds,
        fmt::format("memory is {} that is no tensor, workspace or shared array: the address is far out of one, or the "
                    "host's",
                    verb));
}

}  // namespace

namespace {

// Of memory of cudaMallocAsync.
void look_at_life(const SourceRange& range, const char* verb) {
    Emulator& emulator = Emulator::current();
    if (range.is_free)
        emulator.found(FindingKind::kOutOfBounds, fmt::format("{} is {} behind its cudaFreeAsync", range.what, verb));
    if (is_unordered(range.made_in, emulator.thread().moment)) {
        emulator.found(FindingKind::kRace,
                       fmt::format("{} is {} in another stream than its cudaMallocAsync, and no event or "
                                   "synchronisation orders them",
                                   range.what, verb));
    }
}

void look_at_residence(const SourceRange& range, const char* verb) {
    const Emulator::BlockState state = Emulator::current().state_of_block(range.block);
    if (state == Emulator::BlockState::kResident) return;
    Emulator::current().found(
        FindingKind::kOutOfBounds,
        fmt::format("{} is {}, and the block {}: a barrier of the cluster must come between", range.what, verb,
                    state == Emulator::BlockState::kOver ? "has ended" : "has not begun"));
}

}  // namespace

const SourceRange* checked_range(const std::byte* address, size_t num_bytes, size_t alignment, const char* verb) {
    const SourceRange* const range = source.find(address);
    if (range == nullptr) return look_for_host_memory(address, verb), nullptr;
    if (range->made_in != 0) look_at_life(*range, verb);
    if (range->block >= 0) look_at_residence(*range, verb);
    const auto at = address - range->begin;
    if (at >= 0 && static_cast<size_t>(at) + num_bytes <= range->num_bytes) {
        if (!range->is_aligned(address, alignment)) {
            const bool is_asked = range->alignment != 0 && range->alignment < alignment;
            Emulator::current().found(
                FindingKind::kMisaligned,
                fmt::format(
                    "{} bytes at byte {} of {} bytes of {}{}", num_bytes, at, range->num_bytes, range->what,
                    is_asked ? fmt::format(", which is declared with an alignment of {}", range->alignment) : ""));
        }
        return range;
    }
    Emulator::current().found(FindingKind::kOutOfBounds,
                              fmt::format("byte {} of {} bytes of {} is {}", at, range->num_bytes, range->what, verb));
    return nullptr;
}

void report(Clash clash, const SourceRange& range, const std::byte* address) {
    if (clash == Clash::kNone) return;
    Emulator::current().found(kind_of(clash), fmt::format("byte {} of {} bytes of {} {}", address - range.begin,
                                                          range.num_bytes, range.what, text_of(clash)));
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

using simt::Emulator;
using simt::source;
using simt::SourceRange;

// Behind a macro that has __global__ a kernel does not say that it begins, but it asks where it is.
Index thread_index() {
    if (simt::asks_for_dims) throw Index(1);
    return simt::index_of(Emulator::current().thread().position);
}
Index block_index() {
    if (simt::asks_for_dims) throw Index(1);
    return simt::index_of(Emulator::current().block_position());
}
Index block_size() { return simt::index_of(Emulator::current().block_size()); }
Index grid_size() { return simt::index_of(Emulator::current().grid_size()); }
int lane() { return Emulator::current().thread().index % simt::kWarpSize; }

void access(const void* address, size_t num_bytes, bool is_write) {
    const auto* const byte = static_cast<const std::byte*>(address);
    if (!source.in_launch) return simt::look_at_host(byte, is_write);
    Emulator::current().settle();
    const SourceRange* const range = simt::checked_range(byte, num_bytes, num_bytes, is_write ? "written" : "read");
    if (range == nullptr) {
        simt::look_at_sums(byte, num_bytes, is_write);
        const std::span<const std::byte> statics = source.static_memory;
        if (is_write && byte >= statics.data() && byte < statics.data() + statics.size()) {
            Emulator::current().found(simt::FindingKind::kOutOfBounds,
                                      "static memory is written, which is no __shared__ array");
        }
        return;
    }
    is_write ? simt::stop_spinning() : simt::look_at_spinning(byte, num_bytes);
    const size_t offset = range->offset_of(byte);
    const simt::Now& now = Emulator::current().thread().moment;
    if (!is_write) return simt::report(range->memory->read(offset, num_bytes, now), *range, byte);
    Emulator::current().overwrite(byte, num_bytes);
    if (range->memory->life() == simt::Memory::Life::kDevice) Emulator::current().write_unfenced();
    const simt::Clash clash = range->memory->write(offset, num_bytes, now);
    if (clash == simt::Clash::kWrittenInWarp) return simt::report_unless_equal(*range, byte, num_bytes);
    simt::report(clash, *range, byte);
}

namespace {

bool is_of_block(Scope scope) {
    return scope == Scope::kBlock || (scope == Scope::kCluster && !Emulator::current().has_clusters());
}
// Before an atomic operation acquires.
simt::Order checked_order(Scope scope, const SourceRange& range, const std::byte* address, size_t num_bytes) {
    const simt::Order order = is_of_block(scope) ? simt::Order::kAtomicInBlock : simt::Order::kAtomic;
    const simt::Now& now = Emulator::current().thread().moment;
    if (!range.memory->is_in_scope(range.offset_of(address), num_bytes, now, order)) {
        Emulator::current().found(
            simt::FindingKind::kRace,
            fmt::format("byte {} of {} bytes of {} is touched by atomic operations of several blocks, and one of them "
                        "is atomic within its block alone (.cta, _block, thread_scope_block)",
                        address - range.begin, range.num_bytes, range.what));
    }
    return order;
}

}  // namespace

void fence(Scope scope) {
    if (source.in_launch && !is_of_block(scope)) Emulator::current().fence_device();
}

void atomic_access(const void* address, size_t num_bytes, Scope scope) {
    const auto* const byte = static_cast<const std::byte*>(address);
    if (!source.in_launch) return simt::look_at_host(byte, true);
    Emulator::current().give_way();
    const SourceRange* const range = simt::checked_range(byte, num_bytes, num_bytes, "changed");
    if (range == nullptr) return;
    simt::look_at_spinning(byte, num_bytes);
    const size_t offset = range->offset_of(byte);
    const simt::Order order = checked_order(scope, *range, byte, num_bytes);
    Emulator::current().acquire_atomic(*range->memory, offset);
    const simt::Now& now = Emulator::current().thread().moment;
    simt::report(range->memory->update(offset, num_bytes, now, order), *range, byte);
    Emulator::current().release_atomic(*range->memory, offset);  // the operation, too
}
void ordered_access(const void* address, size_t num_bytes, bool is_write, bool orders, Scope scope) {
    const auto* const byte = static_cast<const std::byte*>(address);
    if (!source.in_launch) return simt::look_at_host(byte, is_write);
    Emulator& emulator = Emulator::current();
    emulator.give_way();
    const SourceRange* const range = simt::checked_range(byte, num_bytes, num_bytes, is_write ? "written" : "read");
    if (range == nullptr) return;
    is_write ? simt::stop_spinning() : simt::look_at_spinning(byte, num_bytes);
    const size_t offset = range->offset_of(byte);
    const simt::Order order = checked_order(scope, *range, byte, num_bytes);
    if (!is_write) {
        emulator.acquire_atomic(*range->memory, offset);
        const simt::Now& now = emulator.thread().moment;
        return simt::report(range->memory->read(offset, num_bytes, now, order), *range, byte);
    }
    emulator.overwrite(byte, num_bytes);
    const bool has_fenced = emulator.thread().async.has_fenced;
    if (orders) emulator.fence_device();
    const simt::Now& now = emulator.thread().moment;
    simt::report(range->memory->write(offset, num_bytes, now, order), *range, byte);
    emulator.release_atomic(*range->memory, offset);
    if (!has_fenced) emulator.write_unfenced();
}
void releasing_access(const void* address, size_t num_bytes, Scope scope) {
    if (!source.in_launch) return atomic_access(address, num_bytes);
    const bool has_fenced = Emulator::current().thread().async.has_fenced;
    Emulator::current().fence_device();
    atomic_access(address, num_bytes, scope);
    if (!has_fenced) Emulator::current().write_unfenced();
}

void volatile_access(const void* address, size_t num_bytes, bool is_write) {
    constexpr size_t kFlagAndValue = 8;  // a word that has both needs no fence
    const auto* const byte = static_cast<const std::byte*>(address);
    const SourceRange* const range = source.in_launch ? source.find(byte) : nullptr;
    const bool is_device = range != nullptr && range->memory->life() == simt::Memory::Life::kDevice;
    const auto is_flag = [&] { return num_bytes == kFlagAndValue || Emulator::current().thread().async.has_fenced; };
    const bool is_atomic = is_device && (!is_write || is_flag());
    is_atomic ? ordered_access(address, num_bytes, is_write, false) : access(address, num_bytes, is_write);
}

void sleep() {
    bool is_asked_again = false;
    (void)Emulator::current().spin_until([&] { return std::exchange(is_asked_again, true); });
}

void read_only(const void* address, size_t num_bytes) {
    const auto* const byte = static_cast<const std::byte*>(address);
    const SourceRange* const range = source.in_launch ? source.find(byte) : nullptr;
    if (range == nullptr || byte < range->begin || byte + num_bytes > range->begin + range->num_bytes) return;
    if (!range->memory->is_written_in(Emulator::current().thread().moment.launch, range->offset_of(byte), num_bytes))
        return;
    Emulator::current().found(
        simt::FindingKind::kRace,
        fmt::format("byte {} of {} bytes of {} is read as read-only memory (__ldg, ld.global.nc), and this kernel has "
                    "written it: a GPU may read the value of before",
                    byte - range->begin, range->num_bytes, range->what));
}

void kernel_begins(unsigned cluster_x, unsigned cluster_y, unsigned cluster_z) {
    if (simt::asks_for_dims) throw Index(std::max(cluster_x, 1U), cluster_y, cluster_z);
}
void call_begins() {
    if (source.in_launch) simt::has_begun.of_running() = true;
}

void launch_bounds(int most_threads, int /*least_blocks*/, int /*most_cluster*/) {
    if (!source.in_launch) return;
    const Index threads = block_size(), block = block_index();
    const auto count = static_cast<int64_t>(threads.x) * threads.y * threads.z;
    const bool is_first = block.x + block.y + block.z == 0 && Emulator::current().thread().index == 0;
    if (!is_first || count <= most_threads) return;
    Emulator::current().found(
        simt::FindingKind::kLaunchLimit,
        fmt::format("blocks of {} threads, and its __launch_bounds__ are {}", count, most_threads));
}

void allow_large_clusters(const void* kernel) { simt::large_clusters().insert(kernel); }

void allow_shared(const void* kernel, size_t num_bytes) {
    size_t& allowed = simt::allowed_shared()[kernel];
    allowed = std::max(allowed, num_bytes);
}

void sync_block(Place where) { Emulator::current().sync_block(where); }
void sync_warp(unsigned mask, Place where) { Emulator::current().sync_warp(mask, where); }
uint64_t shuffle(unsigned mask, uint64_t value, int source_lane, Place where) {
    return Emulator::current().shuffle(mask, value, source_lane, where);
}
unsigned vote(unsigned mask, bool mine, Place where) { return Emulator::current().vote(mask, mine, where); }

unsigned active_lanes(Place where) { return Emulator::current().active_lanes(where); }

void look_at_matrix(const void* first, size_t row_bytes) {
    constexpr size_t kAlignment = 32, kRow = 16;  // wmma asks for 256 bits, and rows of 128
    (void)simt::checked_range(static_cast<const std::byte*>(first), 1, kAlignment, "loaded or stored as a matrix");
    if (row_bytes % kRow == 0) return;
    Emulator::current().found(
        simt::FindingKind::kMisaligned,
        fmt::format("a matrix with rows of {} bytes: wmma takes multiples of {}", row_bytes, kRow));
}

bool is_shared(const void* address) {
    const SourceRange* const range = source.find(static_cast<const std::byte*>(address));
    return range != nullptr && range->memory->life() != simt::Memory::Life::kDevice;
}

bool is_cooperative_launch() { return source.is_cooperative; }
void wait_previous(Place where) {
    if (source.limits.is_dependent) Emulator::current().wait_previous(where);
}
int num_multiprocessors() { return source.num_multiprocessors; }

void look_at_grid_sync(Place where) {
    if (source.is_cooperative) return;
    Emulator::current().found(simt::FindingKind::kLaunchLimit,
                              fmt::format("this_grid().sync() in a kernel that cudaLaunchCooperativeKernel has not "
                                          "launched ({})",
                                          simt::text_of(where)));
}

void share(void* data, size_t num_bytes, size_t cell_bytes, size_t alignment) {
    auto* const begin = static_cast<std::byte*>(data);
    simt::begin_shared_of_block();
    for (const SourceRange& range : source.shared()) {
        if (range.begin == begin && range.num_bytes == num_bytes) return;
    }
    simt::Memory& memory = Emulator::current().shared(data, num_bytes, cell_bytes, Emulator::SharedKind::kStatic);
    source.add_shared({.begin = begin,
                       .num_bytes = num_bytes,
                       .memory = &memory,
                       .what = "a shared array",
                       .alignment = alignment,
                       .key = data});
    const int32_t block = source.shared_block;
    if (block >= 0 && simt::has_home(block, begin))
        std::copy_n(simt::home_of(block, begin, num_bytes), num_bytes, begin);
}

// With spare bytes behind it, where the block's shared memory has room for them.
void* dynamic_shared() {
    simt::begin_shared_of_block();
    const auto whole = static_cast<size_t>(source.limits.large_bytes);
    simt::Memory& memory =
        Emulator::current().shared(&simt::dynamic_key, std::max<size_t>(whole, 1), 1, Emulator::SharedKind::kLarge);
    const auto is_it = [&](const SourceRange& range) { return range.memory == &memory; };
    if (std::ranges::none_of(source.shared(), is_it)) {
        source.add_shared({.begin = memory.bytes(),
                           .num_bytes = source.dynamic_bytes,
                           .memory = &memory,
                           .what = "dynamic shared memory",
                           .spare_behind = whole - source.dynamic_bytes,
                           .key = &simt::dynamic_key});
    }
    return memory.bytes();
}

bool may_launch(const char* name) {
    CHECK(source.emulator != nullptr, "{}: launched outside of a call of run()", name);
    if (source.in_launch) {
        Emulator::current().found(
            simt::FindingKind::kLaunchLimit,
            fmt::format("it launches {}: launches by a kernel (dynamic parallelism) are not taken", name));
    }
    return !source.in_launch;
}

void launch(const char* name, const void* kernel, const Config& config, const std::function<void()>& body) {
    if (!may_launch(name)) return;
    constexpr int64_t kSpare = 64, kWithoutAsking = 48 << 10;
    source.dynamic_bytes = config.shared_bytes;
    source.limits = {};
    if (!simt::is_allowed(kernel, config.shared_bytes)) source.limits.most_shared_bytes = kWithoutAsking;
    source.limits.spare_bytes = kSpare;
    source.limits.large_bytes = static_cast<int64_t>(config.shared_bytes) + kSpare;
    simt::readings.clear();
    simt::has_begun.clear();
    const std::byte frame{};
    simt::stack_of_host = simt::stack_from(&frame);
    simt::heap_of_host = simt::heap();
    simt::forget_sums();
    source.take_shared();
    source.forget_remote();
    source.window_end = 0;
    Index cluster = config.cluster;
    if (simt::source_has_clusters() && cluster.x * cluster.y * cluster.z == 1) cluster = simt::cluster_dims_of(body);
    source.limits.cluster = simt::size_of(cluster);
    if (simt::large_clusters().contains(kernel)) source.limits.most_cluster_blocks = 16;
    source.is_cooperative = config.is_cooperative;
    source.limits.is_dependent = config.is_dependent;
    source.limits.unordered =
        simt::launch_in_stream(config.stream, static_cast<uint32_t>(source.emulator->num_launches()) + 1, name);
    source.in_launch = true;
    source.emulator->launch(name, simt::size_of(config.grid), simt::size_of(config.threads), body, source.limits);
    source.in_launch = false;
    source.take_shared();
}

void set_memory(void* to, unsigned char value, size_t num_bytes, const void* stream) {
    auto* const bytes = static_cast<unsigned char*>(to);
    launch("cudaMemset", nullptr, {1, 1, 0, stream}, [&] {
        for (size_t i = 0; i < num_bytes; ++i) {
            access(bytes + i, 1, true);
            bytes[i] = value;
        }
    });
}

void copy_memory(void* to, const void* from, size_t num_bytes, bool to_host, const void* stream) {
    if (to_host) {
        CHECK(source.emulator != nullptr, "a copy outside of a call of run()");
        return source.emulator->found_on_host("cudaMemcpy copies to the host: run() may only launch");
    }
    auto* const bytes = static_cast<std::byte*>(to);
    const auto* const given = static_cast<const std::byte*>(from);
    launch("cudaMemcpy", nullptr, {1, 1, 0, stream}, [&] {
        for (size_t i = 0; i < num_bytes; ++i) {
            access(given + i, 1, false);
            access(bytes + i, 1, true);
            bytes[i] = given[i];
        }
    });
}

}  // namespace verbatim::cuda_source
