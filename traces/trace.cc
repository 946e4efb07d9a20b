#include "traces/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/base/check.h"
#include "traces/spaces.h"

namespace verbatim::traces {
namespace {

constexpr size_t kMaxProblems = 20;  // limits the report for a trace that is wrong in every row

// Collects the problems of one row.
class RowValidator {
public:
    explicit RowValidator(const Trace& trace) : trace_(trace) {}

    void check(RowIndex i) {
        const Row& row = trace_.row(i);
        row_ = index(i);
        check_indices(i, row);
        if (!problems_.empty()) return;  // the remaining checks need valid indices
        check_ranges(row);
        check_event(row);
        if (row.from != kNoRow) check_from(row);
        if (i != RowIndex{0}) {
            expect(row.arrival_ns >= trace_.rows[static_cast<size_t>(row_) - 1].arrival_ns,
                   "arrival_ns is before the row before");
        }
    }
    std::vector<std::string> take_problems() { return std::move(problems_); }
    [[nodiscard]] bool full() const { return problems_.size() >= kMaxProblems; }

private:
    void expect(bool holds, std::string_view problem) {
        if (!holds && !full()) problems_.push_back(fmt::format("row {}: {}", row_, problem));
    }

    void check_indices(RowIndex i, const Row& row) {
        for (const RowIndex other : {row.from, row.wait_for, row.parent}) {
            expect(index(other) >= -1 && index(other) < index(i), "names a row that is not an earlier one");
        }
        const auto conversation = static_cast<size_t>(index(row.conversation));
        expect(conversation < trace_.conversations.size(), "conversation does not exist");
        expect(row.options < trace_.options.size(), "options do not exist");
        expect(row.name < trace_.names.size() && row.turn < trace_.names.size(), "name or turn does not exist");
        const size_t num_pieces = trace_.pieces.size();
        expect(row.first_piece <= num_pieces && row.num_pieces <= num_pieces - row.first_piece, "pieces do not exist");
    }

    void check_ranges(const Row& row) {
        expect(row.arrival_ns >= 0 && row.think_ns >= 0, "arrival_ns or think_ns is negative");
        expect(row.arrival_ns <= kMaxTimeNs && row.think_ns <= kMaxTimeNs, "arrival_ns or think_ns is over 73 years");
        expect(row.take_tokens >= 0 && row.max_tokens >= -1 && row.abort_after >= -1, "a number of tokens is negative");
        expect(row.session >= -1, "session is negative");
        for (uint32_t k = 0; k < row.num_pieces; ++k) {
            const Piece& piece = trace_.pieces[row.first_piece + k];
            expect(piece.begin >= 0 && piece.length > 0, "a piece begins before 0 or is empty");
            if (piece.space == Piece::kExplicit) {
                const auto end = static_cast<uint64_t>(piece.begin) + static_cast<uint64_t>(piece.length);
                expect(end <= trace_.explicit_ids.size(), "explicit ids do not exist");
            } else {
                expect(piece.space >> 63 == 0, "a space is 2^63 or more");
            }
            expect(piece.ends_message || k + 1 < row.num_pieces, "the last piece does not end a message");
            expect(piece.ends_message || !piece.checkpoint, "a checkpoint inside a message");
        }
    }

    void check_event(const Row& row) {
        if (!is_request(row.event)) {
            expect(row.num_pieces == 0 && row.max_tokens == -1 && row.abort_after == -1,
                   "an event with tokens or limits");
            expect(row.event == Event::kDelete || row.from != kNoRow, "a fork or rewind without `from`");
            expect(row.expect == Expect::kServed && !row.has_parent, "an event with expectations");
        }
        if (row.event == Event::kSuffix) expect(row.num_pieces > 0, "a suffix without tokens");
        if (row.event == Event::kRegenerate) expect(row.num_pieces == 0, "a regenerate with tokens");
        if (row.start != Start::kArrival) expect(row.wait_for != kNoRow, "waits for no row");
        if (row.max_tokens >= 0 && row.abort_after >= 0) {
            expect(row.abort_after < row.max_tokens || row.max_tokens == 0, "abort_after is not below max_tokens");
        }
    }

    void check_from(const Row& row) {
        const Row& from = trace_.row(row.from);
        const Conversation& own = trace_.conversation_of(row);
        expect(is_request(from.event), "`from` is no request");
        expect(trace_.conversation_of(from).salt == own.salt, "takes from a row of another salt");
        if (row.event == Event::kHistory && row.take == Take::kTokens) {
            expect(row.take_tokens <= planned_end(from), "takes more than its predecessor has");
        }
        if (is_request(row.event)) {
            int64_t own_tokens = 0;
            for (uint32_t k = 0; k < row.num_pieces; ++k) own_tokens += trace_.pieces[row.first_piece + k].length;
            expect(row.prompt_tokens == planned_take(trace_, row) + own_tokens,
                   "prompt_tokens is not taken + own tokens");
        }
    }

    const Trace& trace_;
    int32_t row_ = 0;
    std::vector<std::string> problems_;
};

void check_names(const Trace& trace, std::vector<std::string>& problems) {
    if (trace.names.empty() || !trace.names[0].empty()) problems.emplace_back("names[0] is not empty");
    for (size_t i = 1; i < trace.names.size() && problems.size() < kMaxProblems; ++i) {
        if (!valid_name(trace.names[i])) problems.push_back(fmt::format("names[{}]: not a valid name", i));
    }
    std::map<std::pair<uint32_t, std::optional<std::string>>, size_t> seen;
    for (size_t i = 0; i < trace.conversations.size() && problems.size() < kMaxProblems; ++i) {
        const Conversation& conversation = trace.conversations[i];
        if (conversation.name == 0 || conversation.name >= trace.names.size()) {
            problems.push_back(fmt::format("conversation {}: no name", i));
        } else if (!seen.emplace(std::pair{conversation.name, conversation.salt}, i).second) {
            problems.push_back(fmt::format("conversation {}: the name and salt of another one", i));
        }
    }
    std::vector<bool> used(trace.names.size(), false);
    for (size_t i = 0; i < trace.rows.size() && problems.size() < kMaxProblems; ++i) {
        const uint32_t row_name = trace.rows[i].name;
        if (row_name == 0 || row_name >= used.size()) continue;
        if (used[row_name])
            problems.push_back(fmt::format("row {}: the name '{}' of another row", i, trace.names[row_name]));
        used[row_name] = true;
    }
}

}  // namespace

bool valid_name(std::string_view name) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == ':' || c == '-' || c == '/';
    };
    return !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), allowed);
}

int64_t planned_end(const Row& row) { return row.prompt_tokens + std::max<int64_t>(row.max_tokens, 0); }

int64_t planned_take(const Trace& trace, const Row& row) {
    if (!is_request(row.event) || row.from == kNoRow) return 0;
    const Row& from = trace.row(row.from);
    if (row.event == Event::kSuffix) return planned_end(from);
    if (row.event == Event::kRegenerate) return from.prompt_tokens;
    switch (row.take) {
        case Take::kTokens: return row.take_tokens;
        case Take::kPrompt: return from.prompt_tokens;
        case Take::kAll: return planned_end(from);
    }
    CHECK(false, "take {}", static_cast<int>(row.take));
}

Relation relation(const Trace& trace, const Row& row) {
    CHECK(row.event == Event::kHistory);
    const int64_t taken = planned_take(trace, row);
    if (taken == 0) return Relation::kRoot;
    const Row& from = trace.row(row.from);
    if (row.take == Take::kAll || taken == planned_end(from)) return Relation::kContinuation;
    return row.take == Take::kPrompt || taken == from.prompt_tokens ? Relation::kRewrite : Relation::kEdit;
}

uint64_t output_space(RowIndex i) { return private_space(SpaceKind::kOutput, static_cast<uint64_t>(index(i))); }

Status validate(const Trace& trace) {
    std::vector<std::string> problems;
    check_names(trace, problems);
    if (trace.options.empty() || trace.options[0] != RowOptions{})
        problems.emplace_back("options[0] is not the default");
    RowValidator validator(trace);
    for (size_t i = 0; i < trace.rows.size() && !validator.full(); ++i)
        validator.check(RowIndex{static_cast<int32_t>(i)});
    for (std::string& problem : validator.take_problems()) problems.push_back(std::move(problem));
    if (problems.empty()) return {};
    return error("trace: {}", fmt::join(problems, "; "));
}

}  // namespace verbatim::traces
