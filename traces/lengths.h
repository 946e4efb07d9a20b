// traces/lengths.h: owns what readers of logs with lengths only have in common: requests are recorded as they come, and
// those of a session are one client's.
//
// Private to the readers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "traces/recording.h"

namespace verbatim::traces {

// Records requests; the first one is at time 0.
class LengthsRecorder {
public:
    LengthsRecorder(Recording& recording, Format format);
    void add(int64_t time_ns, int64_t prompt_tokens, int64_t output_tokens);
    // The time that is wanted where `time_ns` cannot follow the requests added so far; "": it can.
    [[nodiscard]] std::string_view wanted_instead_of(int64_t time_ns) const;

private:
    Recording& recording_;
    int64_t start_ns_ = 0;
};

// `sessions`: of each request; -1: none. Strands of sessions come first, in order of their first requests; then one
// strand of all requests without a session. REQUIRES: recording.num_sessions is set.
void group_by_session(Recording& recording, const std::vector<int64_t>& sessions);

}  // namespace verbatim::traces
