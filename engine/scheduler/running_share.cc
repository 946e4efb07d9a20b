#include "engine/scheduler/running_share.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

void RunningShare::note_admitted(int64_t num_computed, int64_t num_evicted) {
    CHECK(num_evicted >= 0 && num_evicted <= num_computed, "{} of {} computed tokens were evicted", num_evicted,
          num_computed);
    computed_ += num_computed - computed_ / kWindow;
    evicted_ += num_evicted - evicted_ / kWindow;
    CHECK_GE(evicted_, 0);
}

int64_t RunningShare::bytes_of(int64_t memory_bytes) const {
    CHECK_GE(memory_bytes, 0);
    constexpr int64_t kOne = 1 << 10;
    const int64_t of_heads = computed_ == 0 ? 0 : std::min(evicted_ * kOne / computed_, kOne / 2);
    const int64_t of_requests = kOne - of_heads;
    CHECK(of_requests > 0 && of_requests <= kOne, "requests have {} of {} parts", of_requests, kOne);
    return memory_bytes / kOne * of_requests + memory_bytes % kOne * of_requests / kOne;
}

}  // namespace verbatim
