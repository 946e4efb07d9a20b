#include "traces/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "traces/builder.h"
#include "traces/spaces.h"

namespace verbatim::traces {
namespace {

size_t place(RowIndex row) { return static_cast<size_t>(index(row)); }

Status need_sessions(const Trace& trace, std::string_view what) {
    const auto without =
        std::find_if(trace.rows.begin(), trace.rows.end(), [](const Row& row) { return row.session < 0; });
    if (without == trace.rows.end()) return {};
    return error("trace: row {} belongs to no session, and {} needs them: fill in the column `session`",
                 without - trace.rows.begin(), what);
}

// Reorders rows: order[new] = old. References to a removed row are replaced by `instead` (an old index).
void rearrange(Trace& trace, const std::vector<size_t>& order, const std::vector<RowIndex>& instead) {
    std::vector<RowIndex> new_place(trace.rows.size(), kNoRow);
    for (size_t i = 0; i < order.size(); ++i) new_place[order[i]] = RowIndex{static_cast<int32_t>(i)};
    const auto moved = [&](RowIndex row) {
        while (row != kNoRow && new_place[place(row)] == kNoRow) row = instead[place(row)];
        return row == kNoRow ? kNoRow : new_place[place(row)];
    };
    std::vector<Row> rows;
    rows.reserve(order.size());
    for (const size_t old : order) {
        Row row = trace.rows[old];
        const bool waited = row.wait_for != kNoRow;
        for (RowIndex* link : {&row.from, &row.wait_for, &row.parent}) *link = moved(*link);
        if (waited && row.wait_for == kNoRow) {
            row.start = Start::kArrival;
            row.think_ns = 0;
        }
        rows.push_back(row);
    }
    trace.rows = std::move(rows);
}

// In [0, 1), 53 bits.
double uniform(Prng& prng) { return static_cast<double>(prng.next() >> 11) * 0x1p-53; }

// What is over the limit stays over it, and does not overflow in sums of two: validate() refuses it.
int64_t whole_ns(double ns) {
    constexpr auto kTooLate = static_cast<double>(2 * kMaxTimeNs);
    return std::llround(std::min(ns, kTooLate));
}

// Appends copy `copy` of rows [0, count), which are copy 0.
class SessionCopier {
public:
    SessionCopier(Trace& trace, uint64_t seed, bool keep_starts)
        : trace_(trace), count_(trace.rows.size()), prng_(seed) {
        for (size_t i = 0; i < count_; ++i) {
            const Row& row = trace.rows[i];
            num_sessions_ = std::max(num_sessions_, int64_t{row.session} + 1);
            span_ns_ = std::max(span_ns_, row.arrival_ns);
            first_ns_.emplace(row.session, row.arrival_ns);
        }
        if (keep_starts) span_ns_ = -1;
    }

    void append(uint64_t copy) {
        std::map<int32_t, int64_t> shift_ns;
        for (const auto& [session, first_ns] : first_ns_) {
            shift_ns[session] =
                span_ns_ < 0 ? 0 : std::llround(uniform(prng_) * static_cast<double>(span_ns_)) - first_ns;
        }
        conversations_.clear();
        const auto offset = static_cast<int32_t>(trace_.rows.size());
        for (size_t i = 0; i < count_; ++i) {
            Row row = trace_.rows[i];
            for (RowIndex* link : {&row.from, &row.wait_for, &row.parent}) {
                if (*link != kNoRow) *link = RowIndex{index(*link) + offset};
            }
            row.arrival_ns += shift_ns[row.session];
            row.session += static_cast<int32_t>(static_cast<int64_t>(copy) * num_sessions_);
            row.conversation = conversation(row.conversation, copy);
            row.name = row.name == 0 ? 0 : renamed(row.name, copy);
            copy_pieces(row, copy);
            trace_.rows.push_back(row);
        }
    }
    [[nodiscard]] int64_t num_sessions() const { return num_sessions_; }

private:
    uint32_t renamed(uint32_t name, uint64_t copy) {
        trace_.names.push_back(fmt::format("{}.c{}", trace_.names[name], copy));
        return static_cast<uint32_t>(trace_.names.size() - 1);
    }

    ConversationIndex conversation(ConversationIndex original, uint64_t copy) {
        const auto next = ConversationIndex{static_cast<int32_t>(trace_.conversations.size())};
        const auto [entry, is_new] = conversations_.emplace(original, next);
        if (is_new) {
            Conversation named = trace_.conversations[static_cast<size_t>(index(original))];
            named.name = renamed(named.name, copy);
            trace_.conversations.push_back(named);
        }
        return entry->second;
    }

    void copy_pieces(Row& row, uint64_t copy) {
        const uint64_t first = trace_.pieces.size();
        for (uint64_t k = 0; k < row.num_pieces; ++k) {
            Piece piece = trace_.pieces[row.first_piece + k];
            if (piece.space != Piece::kExplicit) piece.space = space_of_copy(piece.space, copy);
            trace_.pieces.push_back(piece);
        }
        row.first_piece = first;
    }

    Trace& trace_;
    size_t count_;
    Prng prng_;
    int64_t num_sessions_ = 0;
    int64_t span_ns_ = 0;
    std::map<int32_t, int64_t> first_ns_;                           // by session
    std::map<ConversationIndex, ConversationIndex> conversations_;  // of the current copy
};

// Removes rows; other rows' tokens taken from them become own tokens.
class RowDropper {
public:
    RowDropper(Trace& trace, const std::vector<bool>& dropped) : trace_(trace), dropped_(dropped) {}

    void rebase() {
        for (size_t i = 0; i < trace_.rows.size(); ++i) {
            Row& row = trace_.rows[i];
            if (dropped_[i] || row.event != Event::kHistory || row.from == kNoRow || !dropped_[place(row.from)])
                continue;
            std::vector<Piece> pieces;
            const int64_t wanted = planned_take(trace_, row);
            const auto [from, taken] = resolve(row.from, wanted, pieces);
            for (Piece& piece : pieces) piece.ends_message = piece.checkpoint = false;
            if (!pieces.empty()) pieces.back().ends_message = true;
            for (uint64_t k = 0; k < row.num_pieces; ++k) pieces.push_back(trace_.pieces[row.first_piece + k]);
            row.from = from;
            row.take = Take::kTokens;
            row.take_tokens = taken;
            row.first_piece = trace_.pieces.size();
            row.num_pieces = static_cast<uint32_t>(pieces.size());
            trace_.pieces.insert(trace_.pieces.end(), pieces.begin(), pieces.end());
        }
    }

private:
    // The first `count` tokens of row `i`'s prompt and output, as tokens of a remaining row followed by `pieces`.
    std::pair<RowIndex, int64_t> resolve(RowIndex i, int64_t count, std::vector<Piece>& pieces) const {
        // Own pieces are collected from the outermost row inwards, so walk down first.
        std::vector<std::pair<RowIndex, int64_t>> chain;
        RowIndex at = i;
        int64_t wanted = count;
        while (at != kNoRow && dropped_[place(at)]) {
            chain.emplace_back(at, wanted);
            const Row& row = trace_.row(at);
            wanted = std::min(wanted, planned_take(trace_, row));
            at = wanted == 0 ? kNoRow : row.from;
        }
        for (auto link = chain.rbegin(); link != chain.rend(); ++link) add_own(link->first, link->second, pieces);
        return {at, at == kNoRow ? 0 : wanted};
    }

    // Adds the part of row `i`'s own tokens in the first `count` tokens of its prompt and output.
    void add_own(RowIndex i, int64_t count, std::vector<Piece>& pieces) const {
        const Row& row = trace_.row(i);
        int64_t position = planned_take(trace_, row);
        for (uint64_t k = 0; k < row.num_pieces && position < count; ++k) {
            Piece piece = trace_.pieces[row.first_piece + k];
            piece.length = static_cast<int32_t>(std::min<int64_t>(piece.length, count - position));
            position += piece.length;
            pieces.push_back(piece);
        }
        if (position >= count) return;
        // The answer of the removed row, at positions far above those of the row's own text.
        const uint64_t space = private_space(SpaceKind::kOwn, static_cast<uint64_t>(index(i)));
        pieces.push_back({space, int64_t{1} << 40, static_cast<int32_t>(count - position), false, false});
    }

    Trace& trace_;
    const std::vector<bool>& dropped_;
};

// A suffix, regenerate or rewind does not determine the conversation's content, so no turn before it can be removed.
Status check_droppable(const Trace& trace, const std::vector<bool>& dropped) {
    std::vector<bool> loses_a_row(trace.conversations.size());
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const Row& row = trace.rows[i];
        const auto conversation = static_cast<size_t>(index(row.conversation));
        const bool forked_from_nothing = row.event == Event::kFork && dropped[place(row.from)];
        if (dropped[i] || forked_from_nothing) loses_a_row[conversation] = true;
        const bool whole = row.event == Event::kHistory || row.event == Event::kFork || row.event == Event::kDelete;
        if (whole || !loses_a_row[conversation]) continue;
        return error(
            "--max-context drop: row {} is a suffix, regenerate or rewind in a conversation that loses a row before it "
            "or this one: rows over the context can only be rejected",
            i);
    }
    return {};
}

}  // namespace

Status keep_sessions(Trace& trace, const SessionRange& range) {
    RETURN_IF_ERROR(need_sessions(trace, "choosing sessions"));
    std::vector<size_t> order;
    std::vector<RowIndex> instead(trace.rows.size(), kNoRow);
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        instead[i] = trace.rows[i].wait_for;
        if (trace.rows[i].session >= range.first && trace.rows[i].session <= range.last) order.push_back(i);
    }
    rearrange(trace, order, instead);
    return {};
}

Trace only_rows(const Trace& trace, const std::vector<size_t>& rows) {
    Trace part = trace;
    rearrange(part, rows, std::vector<RowIndex>(trace.rows.size(), kNoRow));
    return part;
}

Status copy_sessions(Trace& trace, int64_t copies, uint64_t seed, bool starts_follow) {
    if (copies <= 1) return {};
    RETURN_IF_ERROR(need_sessions(trace, "copying sessions"));
    SessionCopier copier(trace, seed, starts_follow);
    constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
    const int64_t num_rows = static_cast<int64_t>(trace.rows.size());
    if (num_rows > kMaxRows / copies || copier.num_sessions() > kMaxRows / copies ||
        static_cast<uint64_t>(copies) > kMaxSpaceCopy) {
        return error(
            "trace: {} copies of {} rows and {} sessions are more than a trace can hold (2^31 of either, "
            "65535 copies)",
            copies, num_rows, copier.num_sessions());
    }
    for (const Piece& piece : trace.pieces) {
        const bool shared = piece.space == Piece::kExplicit || kind_of(piece.space) == SpaceKind::kSharedText;
        if (shared || (piece.space >> kSpaceKeyBits & kMaxSpaceCopy) == 0) continue;
        return error(
            "trace: the space {} leaves no room for copies: is this trace a copy already, or is a space over 2^44?",
            piece.space);
    }
    trace.rows.reserve(trace.rows.size() * static_cast<size_t>(copies));
    for (int64_t copy = 1; copy < copies; ++copy) copier.append(static_cast<uint64_t>(copy));
    return {};
}

void start_sessions(Trace& trace, double rate, uint64_t seed) {
    CHECK(rate > 0);
    std::map<int32_t, int64_t> start_ns;
    for (const Row& row : trace.rows) start_ns.emplace(row.session, 0);
    Prng prng(seed);
    double seconds = 0;
    bool first = true;
    for (auto& [session, start] : start_ns) {
        if (!first) seconds -= std::log1p(-uniform(prng)) / rate;  // exponential gaps
        first = false;
        start = whole_ns(seconds * 1e9);
    }
    for (Row& row : trace.rows) row.arrival_ns += start_ns.at(row.session);
}

void scale_times(Trace& trace, double rate_scale, double think_scale) {
    if (rate_scale == 1 && think_scale == 1) return;
    std::vector<int64_t> arrivals;
    arrivals.reserve(trace.rows.size());
    const auto scaled = [](int64_t ns, double factor) { return whole_ns(static_cast<double>(ns) * factor); };
    for (const Row& row : trace.rows) {
        int64_t arrival = scaled(row.arrival_ns, 1 / rate_scale);
        if (row.start != Start::kArrival) {
            arrival = arrivals[place(row.wait_for)] + (row.arrival_ns - trace.row(row.wait_for).arrival_ns);
        }
        arrivals.push_back(arrival);
    }
    for (size_t i = 0; i < arrivals.size(); ++i) {
        trace.rows[i].arrival_ns = arrivals[i];
        trace.rows[i].think_ns = scaled(trace.rows[i].think_ns, think_scale);
    }
}

void sort_by_arrival(Trace& trace) {
    std::vector<size_t> order(trace.rows.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return trace.rows[a].arrival_ns < trace.rows[b].arrival_ns; });
    rearrange(trace, order, {});
}

Result<int64_t> bound_context(Trace& trace, int64_t max_context, OverContext over_context) {
    std::vector<bool> over(trace.rows.size());
    int64_t count = 0;
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        over[i] = is_request(trace.rows[i].event) && planned_end(trace.rows[i]) > max_context;
        count += over[i];
    }
    if (count == 0) return count;
    if (over_context == OverContext::kDrop) {
        RETURN_IF_ERROR(check_droppable(trace, over));
        RowDropper(trace, over).rebase();
    }
    std::vector<size_t> order;
    std::vector<RowIndex> instead(trace.rows.size(), kNoRow);
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        Row& row = trace.rows[i];
        instead[i] = row.wait_for;
        const bool fork_of_nothing = row.event == Event::kFork && over[place(row.from)];  // the source commits nothing
        if (over[i]) row.expect = Expect::kRefused;
        if (!fork_of_nothing && (!over[i] || over_context == OverContext::kReject)) order.push_back(i);
    }
    rearrange(trace, order, instead);
    return count;
}

}  // namespace verbatim::traces
