#include <algorithm>

#include "traces/recording.h"
#include "traces/shared_text.h"

namespace verbatim::traces {
namespace {

// Disjoint ids: 2^32 per strand, and per shared text beyond all strands.
class BlockLogMaker {
public:
    explicit BlockLogMaker(const Recording& recording) : recording_(recording) {
        log_.block_tokens = recording.block_tokens;
    }

    BlockLog make() {
        for (size_t s = 0; s < recording_.strands.size(); ++s) {
            const Strand& strand = recording_.strands[s];
            if (strand.num_requests == 0) continue;
            const SharedText shared(recording_, strand);
            for (size_t k = 0; k < strand.num_requests; ++k)
                add(recording_.requests[strand.first_request + k], s, shared);
        }
        return std::move(log_);
    }

private:
    static constexpr int64_t kIdsPerStrand = int64_t{1} << 32;

    void add(const RecordedRequest& request, size_t strand, const SharedText& shared) {
        for (size_t k = 0; k < request.num_runs; ++k) add_run(recording_.runs[request.first_run + k], strand, shared);
        if (request.partial_id >= 0) add_run({request.partial_id, 1}, strand, shared);
        log_.prompt_tokens.push_back(request.prompt_tokens);
        log_.output_tokens.push_back(request.output_tokens);
        log_.run_ends.push_back(log_.runs.size());
    }

    void add_run(IdRun run, size_t strand, const SharedText& shared) {
        while (run.count > 0) {
            const SharedText::Part part = shared.part_at(run.first);
            const int64_t count = std::min(run.count, part.count);
            const int64_t base = part.shared ? text_number(shared.space()) : static_cast<int64_t>(strand);
            log_.runs.push_back({base * kIdsPerStrand + (part.shared ? part.place : run.first), count});
            run = {run.first + count, run.count - count};
        }
    }

    int64_t text_number(uint64_t space) {
        const auto next = static_cast<int64_t>(recording_.strands.size() + texts_.size());
        return texts_.emplace(space, next).first->second;
    }

    const Recording& recording_;
    BlockLog log_;
    std::map<uint64_t, int64_t> texts_;
};

}  // namespace

BlockLog make_block_log(const Recording& recording) { return BlockLogMaker(recording).make(); }

}  // namespace verbatim::traces
