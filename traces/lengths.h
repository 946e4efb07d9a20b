// traces/lengths.h: owns what readers of logs with lengths only have in common: requests are recorded as they come, and
// those of a session are one client's.
//
// Private to the readers.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/recording.h"

namespace verbatim::traces {

// Records requests; the first one is at time 0.
class LengthsRecorder {
public:
    LengthsRecorder(Recording& recording, Format format);
    void add(int64_t time_ns, int64_t prompt_tokens, int64_t output_tokens);
    // Whether `time_ns` is not before the requests added so far.
    [[nodiscard]] bool in_order(int64_t time_ns) const {
        return recording_.requests.empty() || time_ns - start_ns_ >= recording_.requests.back().time_ns;
    }

private:
    Recording& recording_;
    int64_t start_ns_ = 0;
};

// `sessions`: of each request; -1: none. Strands of sessions come first, in order of their first requests; then one
// strand of all requests without a session. REQUIRES: recording.num_sessions is set.
void group_by_session(Recording& recording, const std::vector<int64_t>& sessions);

}  // namespace verbatim::traces
