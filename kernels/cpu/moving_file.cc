#include "kernels/cpu/moving_file.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "kernels/cpu/aligned_array.h"

namespace verbatim::cpu {
namespace {

constexpr size_t kPartBytes = 16 * kHugePageBytes;  // moved at a time: few mappings, and little memory twice

// Replaces the mapping at `part`, whole large pages, by a copy. False: the system refuses, and it is as it was.
bool move_part(std::span<std::byte> part, size_t file_bytes) {
    std::byte* const copy = map_at_huge_page(part.size(), PROT_READ | PROT_WRITE);
    if (copy == nullptr) return false;
    std::memcpy(copy, part.data(), file_bytes);
    if (mprotect(copy, part.size(), PROT_READ) == 0 &&
        mremap(copy, part.size(), part.size(), MREMAP_MAYMOVE | MREMAP_FIXED, part.data()) != MAP_FAILED)
        return true;
    munmap(copy, part.size());
    return false;
}

}  // namespace

struct MovingFile::State {
    explicit State(size_t file_bytes)
        : num_bytes(file_bytes),
          mapped_bytes(round_up(file_bytes, kHugePageBytes)),
          memory(map_at_huge_page(mapped_bytes, PROT_NONE)) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
        thread = {};  // before its memory goes
        if (memory != nullptr) munmap(memory, mapped_bytes);
    }

    void move_all(const std::stop_token& stop) {
        constexpr int kNice = 10;                                       // a tenth of a processor that others use
        setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);  // of this thread; a hint
        for (size_t begin = 0; begin < num_bytes && !stop.stop_requested(); begin += kPartBytes) {
            const size_t bytes = std::min(kPartBytes, num_bytes - begin);
            if (!move_part({memory + begin, round_up(bytes, kHugePageBytes)}, bytes)) return;
            moved_bytes += static_cast<int64_t>(bytes);
        }
    }

    size_t num_bytes;
    size_t mapped_bytes;  // whole large pages, of which the file's mapping is the first part
    std::byte* memory;    // null: the system refused
    bool has_started = false;
    std::atomic<int64_t> moved_bytes = 0;
    std::jthread thread;
};

Result<MovingFile> MovingFile::map(const RegularFile& file) {
    const auto bytes = static_cast<size_t>(file.state().num_bytes);
    if (bytes == 0) return error("{}: is empty", file.path().string());
    auto state = std::make_unique<State>(bytes);
    if (state->memory == nullptr ||
        mmap(state->memory, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file.descriptor(), 0) == MAP_FAILED)
        return error("{}: cannot be mapped: {}", file.path().string(), std::strerror(errno));
    return MovingFile(std::move(state));
}

MovingFile::MovingFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
MovingFile::MovingFile(MovingFile&& other) noexcept = default;
MovingFile& MovingFile::operator=(MovingFile&& other) noexcept = default;
MovingFile::~MovingFile() = default;

std::span<const std::byte> MovingFile::bytes() const { return {state_->memory, state_->num_bytes}; }

Status MovingFile::populate(std::span<const std::byte> part) const {
    CHECK(part.data() >= bytes().data() && part.data() + part.size() <= bytes().data() + bytes().size(),
          "{} bytes that are no part of the file", part.size());
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
    const uintptr_t end = round_up(reinterpret_cast<uintptr_t>(part.data()) + part.size(), page);
    // Linux before 5.14 does not know it (EINVAL): then the first access does the same.
    if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) != 0 && errno == EFAULT)
        return error("it ends before its size, or its device fails");
    return {};
}

void MovingFile::start_move() {
    CHECK(state_ != nullptr, "a file that was moved from has nothing to move");
    if (std::exchange(state_->has_started, true)) return;
    state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->move_all(stop); });
}

int64_t MovingFile::finish_move() {
    CHECK(state_->thread.joinable(), "no move of {} bytes has begun", state_->num_bytes);
    state_->thread.join();
    return state_->moved_bytes;
}

}  // namespace verbatim::cpu
