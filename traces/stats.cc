#include "traces/stats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "traces/interval_set.h"

namespace verbatim::traces {
namespace {

// The text seen so far, and in which session.
class SeenText {
public:
    void add(const Trace& trace, const Row& row, TraceStats& stats) {
        const int64_t group = row.session >= 0 ? row.session : -1 - int64_t{index(row.conversation)};
        for (uint64_t k = 0; k < row.num_pieces; ++k) {
            const Piece& piece = trace.pieces[row.first_piece + k];
            if (piece.space == Piece::kExplicit) {  // explicit tokens count as new
                stats.new_tokens += piece.length;
                continue;
            }
            const int64_t end = piece.begin + piece.length;
            const int64_t fresh = by_anybody_[piece.space].insert(piece.begin, end);
            const int64_t fresh_here = by_group_[{piece.space, group}].insert(piece.begin, end);
            stats.new_tokens += fresh;
            stats.repeated_across += fresh_here - fresh;
            stats.repeated_within += piece.length - fresh_here;
        }
    }

private:
    std::map<uint64_t, IntervalSet> by_anybody_;
    std::map<std::pair<uint64_t, int64_t>, IntervalSet> by_group_;
};

void add_taken(const Trace& trace, const Row& row, TraceStats& stats) {
    const int64_t taken = planned_take(trace, row);
    if (row.event == Event::kSuffix) {
        stats.by_continuation += taken;
    } else if (row.event == Event::kRegenerate) {
        stats.by_rewrite += taken;
    } else {
        const Relation how = relation(trace, row);
        if (how == Relation::kContinuation) stats.by_continuation += taken;
        if (how == Relation::kRewrite) stats.by_rewrite += taken;
        if (how == Relation::kEdit) stats.by_edit += taken;
    }
}

void add_arrivals(const std::vector<int64_t>& arrivals, TraceStats& stats) {
    std::vector<int64_t> gaps;
    std::map<int64_t, int64_t> per_second;
    for (size_t i = 0; i < arrivals.size(); ++i) {
        if (i > 0) gaps.push_back(arrivals[i] - arrivals[i - 1]);
        stats.busiest_second = std::max(stats.busiest_second, ++per_second[arrivals[i] / kNsPerSecond]);
    }
    if (gaps.empty()) return;
    stats.duration_ns = arrivals.back() - arrivals.front();
    const double mean = static_cast<double>(stats.duration_ns) / static_cast<double>(gaps.size());
    double squares = 0;
    for (const int64_t gap : gaps) squares += (static_cast<double>(gap) - mean) * (static_cast<double>(gap) - mean);
    if (mean > 0) {
        stats.gap_cv = std::sqrt(squares / static_cast<double>(gaps.size())) / mean;
        stats.requests_per_second = 1e9 / mean;
    }
    stats.gap_ns = distribution(std::move(gaps));
}

}  // namespace

Distribution distribution(std::vector<int64_t> values) {
    Distribution result;
    if (values.empty()) return result;
    std::sort(values.begin(), values.end());
    result.count = static_cast<int64_t>(values.size());
    double sum = 0;
    for (const int64_t value : values) sum += static_cast<double>(value);
    result.mean = sum / static_cast<double>(values.size());
    const auto percentile = [&](size_t p) { return values[(values.size() * p + 99) / 100 - 1]; };
    result.min = values.front();
    result.p50 = percentile(50);
    result.p90 = percentile(90);
    result.p99 = percentile(99);
    result.max = values.back();
    return result;
}

TraceStats stats_of(const Trace& trace) {
    TraceStats stats;
    SeenText said;
    std::vector<int64_t> prompts, own, outputs, thinks, arrivals, depths(trace.rows.size()), request_depths;
    std::map<ConversationIndex, int64_t> turns;
    std::map<int32_t, int64_t> sessions;
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const Row& row = trace.rows[i];
        if (row.session >= 0) ++sessions[row.session];
        if (!is_request(row.event)) {
            ++stats.events;
            continue;
        }
        const int64_t output = std::max<int64_t>(row.max_tokens, 0);
        depths[i] = 1 + (row.from == kNoRow ? 0 : depths[static_cast<size_t>(index(row.from))]);
        request_depths.push_back(depths[i]);
        stats.subsequent += row.from != kNoRow;
        ++turns[row.conversation];
        prompts.push_back(row.prompt_tokens);
        own.push_back(row.prompt_tokens - planned_take(trace, row));
        outputs.push_back(output);
        arrivals.push_back(row.arrival_ns);
        if (row.start == Start::kAfterAnswer) thinks.push_back(row.think_ns);
        stats.prompt_total += row.prompt_tokens;
        stats.output_total += output;
        stats.longest_row = std::max(stats.longest_row, planned_end(row));
        add_taken(trace, row, stats);
        said.add(trace, row, stats);
    }
    stats.requests = static_cast<int64_t>(prompts.size());
    stats.conversations = static_cast<int64_t>(turns.size());
    stats.sessions = static_cast<int64_t>(sessions.size());
    stats.prompt_tokens = distribution(std::move(prompts));
    stats.own_tokens = distribution(std::move(own));
    stats.output_tokens = distribution(std::move(outputs));
    stats.think_ns = distribution(std::move(thinks));
    stats.depth = distribution(std::move(request_depths));
    std::vector<int64_t> counts;
    for (const auto& [conversation, count] : turns) counts.push_back(count);
    stats.turns = distribution(std::move(counts));
    add_arrivals(arrivals, stats);
    return stats;
}

}  // namespace verbatim::traces
