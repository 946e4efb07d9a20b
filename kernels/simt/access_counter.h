// kernels/simt/access_counter.h: owns the memory traffic that a launch would cause on a GPU. The n-th execution of
// one access site by the lanes of a warp is one request. A request to global memory moves whole sectors of 32 bytes;
// one to shared memory takes as many passes as the most loaded bank has words to deliver.
//
//   A1  counts depend on what threads access, not on the order in which they run
//   A2  if lanes execute a site a different number of times, their n-th executions count as one request for every n
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/simt/types.h"

namespace verbatim::simt {

// Totals of all launches so far. A plain struct, so that it can be sent to another process.
struct AccessCounts {
    int64_t num_launches = 0;
    int64_t num_blocks = 0;
    int64_t num_threads = 0;
    int64_t num_barriers = 0;  // barriers passed by CTAs
    struct Device {
        int64_t num_requests = 0;  // per warp
        int64_t num_sectors = 0;   // sectors of 32 bytes touched
        int64_t num_bytes = 0;     // bytes requested by lanes
    };
    Device loads, stores;
    int64_t shared_requests = 0;
    int64_t shared_passes = 0;
    int64_t shared_least_passes = 0;  // without bank conflicts: 4 for the 32 accesses of 16 bytes of a warp, 1 of 4
};

class AccessCounter {
public:
    AccessCounter() = default;
    AccessCounter(const AccessCounter&) = delete;
    AccessCounter& operator=(const AccessCounter&) = delete;

    // One lane's access. `site`: the code address; `memory`, `offset`: the location.
    struct Access {
        const void* site = nullptr;
        const void* memory = nullptr;
        size_t offset = 0;
        size_t num_bytes = 0;
        bool is_shared = false;
        bool is_store = false;
        size_t lane = 0;  // in its warp; set by add()
    };
    void add(const Access& access, int32_t thread);
    // Accesses from here on belong to this kernel.
    void launched(const std::string& kernel_name);
    // A bulk copy, which no lanes request: whole sectors.
    void add_copy(size_t num_bytes, bool is_store);
    void block_over(int32_t num_threads, uint32_t num_barriers);
    [[nodiscard]] AccessCounts counts() const;  // totals of all kernels
    [[nodiscard]] AccessCounts counts(const std::string& kernel_name) const;

private:
    // Site, warp, number of the execution.
    using Key = std::tuple<const void*, int32_t, int64_t>;
    void count(const std::vector<Access>& lanes);

    std::map<std::string, AccessCounts> kernels_;
    AccessCounts* counts_ = &kernels_[""];                    // of the running kernel
    std::map<std::pair<const void*, int32_t>, int64_t> met_;  // executions by site and thread, in this CTA
    std::map<Key, std::vector<Access>> open_;                 // requests of this CTA that some lanes have not made yet
};

}  // namespace verbatim::simt
