#include <algorithm>
#include <span>

#include "traces/conversations.h"
#include "traces/prefix_tree.h"

namespace verbatim::traces {
namespace {

constexpr int64_t kMinCommonBlocks = 2;  // a single common block does not make a conversation

std::span<const IdRun> runs_of(const Recording& recording, const RecordedRequest& request) {
    return std::span(recording.runs).subspan(request.first_run, request.num_runs);
}

// Continuation before rewrite before edit; among several the latest.
Link best_link(const Recording& recording, const PrefixTree::Match& match, const RecordedRequest& request) {
    if (match.num_blocks < kMinCommonBlocks) return {};
    const auto latest_where = [&](auto fits) -> int64_t {
        const auto found = std::find_if(match.complete.rbegin(), match.complete.rend(),
                                        [&](int64_t i) { return fits(recording.requests[static_cast<size_t>(i)]); });
        return found == match.complete.rend() ? -1 : *found;
    };
    const int64_t continued = latest_where([&](const RecordedRequest& earlier) {
        return earlier.prompt_tokens + earlier.output_tokens <= request.prompt_tokens;
    });
    if (continued >= 0) return {continued, match.num_blocks, Relation::kContinuation};
    const int64_t rewritten =
        latest_where([&](const RecordedRequest& earlier) { return earlier.prompt_tokens <= request.prompt_tokens; });
    if (rewritten >= 0) return {rewritten, match.num_blocks, Relation::kRewrite};
    return {match.latest, match.num_blocks, Relation::kEdit};
}

void link_by_ids(const Recording& recording, const Strand& strand, std::vector<Link>& links) {
    PrefixTree tree;
    for (size_t k = 0; k < strand.num_requests; ++k) {
        const size_t i = strand.first_request + k;
        const RecordedRequest& request = recording.requests[i];
        const auto runs = runs_of(recording, request);
        if (request.has_client && request.previous < 0) continue;  // equal ids only mean equal text here
        if (request.has_client) {
            const auto& before = recording.requests[static_cast<size_t>(request.previous)];
            const int64_t common = before.prompt_tokens / recording.block_tokens;
            links[i] = {request.previous, common, Relation::kContinuation};
        } else {
            links[i] = best_link(recording, tree.longest(runs), request);
        }
        if (!request.has_client) tree.insert(runs, static_cast<int64_t>(i));
    }
}

// Without ids only lengths are known: a prompt that is long enough for the previous turn continues it.
void link_by_lengths(const Recording& recording, const Strand& strand, std::vector<Link>& links) {
    for (size_t k = 1; k < strand.num_requests; ++k) {
        const size_t i = strand.first_request + k;
        const RecordedRequest& before = recording.requests[i - 1];
        if (before.prompt_tokens + before.output_tokens <= recording.requests[i].prompt_tokens) {
            links[i] = {static_cast<int64_t>(i) - 1, 0, Relation::kContinuation};
        }
    }
}

// Sub-agents that overlapped a request of their session. A session's own strand comes before its sub-agents'.
int64_t count_overlaps(const Recording& recording) {
    int64_t overlaps = 0;
    const Strand* session = nullptr;
    for (const Strand& strand : recording.strands) {
        if (session == nullptr || strand.session != session->session) session = &strand;
        if (session == &strand || !strand.closed) continue;
        const RecordedRequest& last = recording.requests[strand.first_request + strand.num_requests - 1];
        const int64_t begin_ns = recording.requests[strand.first_request].time_ns;
        const int64_t end_ns = last.time_ns + last.api_ns;
        const auto own = std::span(recording.requests).subspan(session->first_request, session->num_requests);
        overlaps += std::any_of(own.begin(), own.end(), [&](const RecordedRequest& request) {
            return request.time_ns < end_ns && request.time_ns + request.api_ns > begin_ns;
        });
    }
    return overlaps;
}

}  // namespace

std::vector<Link> infer_links(const Recording& recording) {
    std::vector<Link> links(recording.requests.size());
    for (const Strand& strand : recording.strands) {
        (strand.has_ids ? link_by_ids : link_by_lengths)(recording, strand, links);
    }
    return links;
}

void count_links(const Recording& recording, const std::vector<Link>& links, ReadReport& report) {
    std::vector<int64_t> continuations(links.size());
    report.format = recording.format;
    report.rows = static_cast<int64_t>(links.size());
    report.sessions = recording.num_sessions;
    report.subagents = recording.num_subagents;
    report.left_out = recording.left_out;
    report.overlapping_subagents = count_overlaps(recording);
    for (size_t i = 0; i < links.size(); ++i) {
        const Link& link = links[i];
        report.prompt_tokens += recording.requests[i].prompt_tokens;
        if (link.from < 0) {
            ++report.roots;
            continue;
        }
        const auto from = static_cast<size_t>(link.from);
        const RecordedRequest& earlier = recording.requests[from];
        const int64_t common = link.common_blocks * recording.block_tokens;
        switch (link.relation) {
            case Relation::kContinuation:
                ++report.continuations;
                ++continuations[from];
                report.continuation_tokens += earlier.prompt_tokens + earlier.output_tokens;
                break;
            case Relation::kRewrite:
                ++report.rewrites;
                report.rewrite_tokens += earlier.prompt_tokens;
                break;
            default:
                ++report.edits;
                report.edit_tokens += common;
                report.edits_in_last_block += earlier.prompt_tokens / recording.block_tokens == link.common_blocks + 1;
        }
    }
    for (const int64_t count : continuations) {
        report.forked_rows += count > 1;
        report.forks += std::max<int64_t>(count - 1, 0);
    }
}

}  // namespace verbatim::traces
