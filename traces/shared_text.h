// traces/shared_text.h: owns which block ids of a strand stand for text that several sessions share.
#pragma once

#include <cstdint>
#include <map>

#include "traces/recording.h"

namespace verbatim::traces {

// All sessions with equal (tool tokens, system tokens) begin with the same text (traces/README.md).
class SharedText {
public:
    // The blocks covered by the pair in the strand's first request. An id that occurred keeps its text. REQUIRES:
    // strand.num_requests > 0.
    SharedText(const Recording& recording, const Strand& strand);

    struct Part {
        bool shared = false;
        int64_t place = 0;  // shared: block index in the shared text
        int64_t count = 0;  // number of ids, from the requested one on, with this result
    };
    [[nodiscard]] Part part_at(int64_t id) const;
    [[nodiscard]] uint64_t space() const { return space_; }

private:
    struct Run {
        int64_t count = 0;
        int64_t place = 0;
    };
    void add(int64_t first, int64_t count, int64_t place);
    std::map<int64_t, Run> runs_;  // by first id; disjoint
    uint64_t space_ = 0;
};

}  // namespace verbatim::traces
