// kernels/cuda/simt/access_counter.h: owns what a launch's accesses would cost a GPU's memory: the lanes of a warp that
// meet one access of the code for the n-th time make one request; a request to device memory moves whole sectors of 32
// bytes, one to shared memory takes a pass for every word that a bank has to give.
//
//   A1  counts depend on what threads access, not on the order in which they run
//   A2  lanes that meet an access a different number of times are counted as if the first times were together
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

// Of all launches so far. Plain, so that it crosses to another process.
struct AccessCounts {
    int64_t num_launches = 0;
    int64_t num_blocks = 0;
    int64_t num_threads = 0;
    int64_t num_barriers = 0;  // that a block passed
    struct Device {
        int64_t num_requests = 0;  // of a warp
        int64_t num_sectors = 0;   // of 32 bytes, that they touch
        int64_t num_bytes = 0;     // that lanes asked for
    };
    Device loads, stores;
    int64_t shared_requests = 0;
    int64_t shared_passes = 0;  // as many as requests where no banks conflict
};

class AccessCounter {
public:
    AccessCounter() = default;
    AccessCounter(const AccessCounter&) = delete;
    AccessCounter& operator=(const AccessCounter&) = delete;

    // One lane's access. `site`: which of the code; `memory`, `offset`: where.
    struct Access {
        const void* site = nullptr;
        const void* memory = nullptr;
        size_t offset = 0;
        size_t num_bytes = 0;
        bool is_shared = false;
        bool is_store = false;
        size_t lane = 0;  // of its warp: add() knows
    };
    void add(const Access& access, int32_t thread);
    // What comes now is this kernel's.
    void launched(const std::string& kernel_name);
    // A copy of a block's own, which no warp asks for lane by lane: whole sectors.
    void add_copy(size_t num_bytes, bool is_store);
    void block_over(int32_t num_threads, uint32_t num_barriers);
    [[nodiscard]] AccessCounts counts() const;  // of all kernels
    [[nodiscard]] AccessCounts counts(const std::string& kernel_name) const;

private:
    // Site, warp, how often it was met.
    using Key = std::tuple<const void*, int32_t, int64_t>;
    void count(const std::vector<Access>& lanes);

    std::map<std::string, AccessCounts> kernels_;
    AccessCounts* counts_ = &kernels_[""];                    // of the kernel that runs
    std::map<std::pair<const void*, int32_t>, int64_t> met_;  // by site and thread, in this block
    std::map<Key, std::vector<Access>> open_;                 // requests of this block that not all lanes have made
};

}  // namespace verbatim::simt
