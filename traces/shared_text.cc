#include "traces/shared_text.h"

#include <algorithm>

#include "traces/spaces.h"

namespace verbatim::traces {

SharedText::SharedText(const Recording& recording, const Strand& strand)
    : space_(shared_text_space(strand.tool_tokens, strand.system_tokens)) {
    const int64_t num_shared = (int64_t{strand.tool_tokens} + strand.system_tokens) / recording.block_tokens;
    const RecordedRequest& first = recording.requests[strand.first_request];
    int64_t place = 0;
    for (size_t k = 0; k < first.num_runs && place < num_shared; ++k) {
        const IdRun& run = recording.runs[first.first_run + k];
        add(run.first, std::min(run.count, num_shared - place), place);
        place += run.count;
    }
}

SharedText::Part SharedText::part_at(int64_t id) const {
    const auto next = runs_.upper_bound(id);
    if (next != runs_.begin()) {
        const auto& [first, run] = *std::prev(next);
        if (id < first + run.count) return {true, run.place + (id - first), first + run.count - id};
    }
    return {false, 0, next == runs_.end() ? kMaxGivenBlockId + 1 - id : next->first - id};
}

void SharedText::add(int64_t first, int64_t count, int64_t place) {
    while (count > 0) {
        const Part part = part_at(first);
        const int64_t step = std::min(count, part.count);
        if (!part.shared) runs_[first] = {step, place};
        first += step;
        place += step;
        count -= step;
    }
}

}  // namespace verbatim::traces
