#include "traces/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/base/check.h"
#include "traces/builder.h"
#include "traces/shared_text.h"
#include "traces/spaces.h"

namespace verbatim::traces {
namespace {

// Builds the rows strand by strand.
class TraceMaker {
public:
    TraceMaker(const Recording& recording, const std::vector<Link>& links, int64_t tokens_per_id)
        : recording_(recording),
          links_(links),
          per_block_(tokens_per_id > 0 ? tokens_per_id : recording.block_tokens),
          row_of_(recording.requests.size(), kNoRow) {
        exact_.ignore_stop = true;
        num_roots_ = recording.num_sessions;  // roots of strands without a session get new numbers
    }

    Trace make() {
        // Sub-agents come after their session's strand, so the rows of the requests that they follow exist already.
        for (strand_ = 0; strand_ < recording_.strands.size(); ++strand_) make_strand(recording_.strands[strand_]);
        return builder_.finish();
    }

private:
    [[nodiscard]] bool scaled() const { return per_block_ != recording_.block_tokens; }
    // ceil(length * N / block)
    [[nodiscard]] int64_t scale(int64_t length) const {
        return (length * per_block_ + recording_.block_tokens - 1) / recording_.block_tokens;
    }

    void make_strand(const Strand& strand) {
        if (strand.num_requests == 0) return;
        shared_.emplace(recording_, strand);
        RowIndex previous = kNoRow;
        for (size_t k = 0; k < strand.num_requests; ++k) {
            const size_t i = strand.first_request + k;
            const int64_t number = strand.name.empty() ? recording_.requests[i].source_row : static_cast<int64_t>(k);
            previous = make_row(strand, i, previous,
                                fmt::format("{}{}{}", strand.name, strand.name.empty() ? "" : ".", number));
            row_of_[i] = previous;
        }
    }

    RowIndex make_row(const Strand& strand, size_t i, RowIndex previous, const std::string& name) {
        const RecordedRequest& request = recording_.requests[i];
        const Link& link = links_[i];
        Row row;
        row.from = link.from < 0 ? kNoRow : row_of_[static_cast<size_t>(link.from)];
        row.take_tokens = taken_tokens(link, row);
        row.max_tokens = scale(request.output_tokens);
        row.options = builder_.add_options(exact_);
        row.name = builder_.add_name(name);
        set_start(strand, request, previous, row);
        set_conversation(strand, name, row);
        add_own_tokens(request, link, row.take_tokens);
        const RowIndex added = builder_.add_row(row);
        leave_turns(builder_.trace().row(added));
        chain_of(row.conversation).push_back(added);
        return added;
    }

    [[nodiscard]] int64_t taken_tokens(const Link& link, const Row& row) const {
        if (row.from == kNoRow) return 0;
        const Row& from = builder_.trace().row(row.from);
        if (link.relation == Relation::kContinuation) return planned_end(from);
        return link.relation == Relation::kRewrite ? from.prompt_tokens : link.common_blocks * per_block_;
    }

    void set_start(const Strand& strand, const RecordedRequest& request, RowIndex previous, Row& row) const {
        row.arrival_ns = request.time_ns;
        row.wait_for = row.from;
        if (request.previous >= 0) {
            row.wait_for = row_of_[static_cast<size_t>(request.previous)];
            row.think_ns = request.think_ns;
            row.start = Start::kAfterAnswer;
        }
        if (!strand.closed) return;
        row.wait_for = previous;
        row.think_ns = request.think_ns;
        if (previous == kNoRow && strand.after >= 0) {
            row.wait_for = row_of_[static_cast<size_t>(strand.after)];
            row.think_ns = strand.offset_ns;
        }
        if (row.wait_for != kNoRow) row.start = Start::kAfterAnswer;
        if (row.wait_for == kNoRow) row.think_ns = 0;  // the first request of a session starts it
    }

    // --- conversations

    std::vector<RowIndex>& chain_of(ConversationIndex conversation) {
        chains_.resize(builder_.trace().conversations.size());
        return chains_[static_cast<size_t>(index(conversation))];
    }

    // A request continues its predecessor's conversation if the predecessor is the last turn; otherwise it is in a new
    // conversation, forked at the predecessor if that is still one of its turns.
    void set_conversation(const Strand& strand, const std::string& name, Row& row) {
        if (row.from == kNoRow) {
            row.session = static_cast<int32_t>(strand.session >= 0 ? strand.session : num_roots_++);
            row.conversation = builder_.add_conversation(name, std::nullopt);
            return;
        }
        const Row& from = builder_.trace().row(row.from);
        row.session = from.session;
        row.conversation = from.conversation;
        std::vector<RowIndex> turns = chain_of(from.conversation);
        if (turns.empty() || turns.back() != row.from) {
            row.conversation = builder_.add_conversation(name, std::nullopt);
            const auto place = std::find(turns.begin(), turns.end(), row.from);
            if (place == turns.end()) return;
            turns.erase(place + 1, turns.end());
            add_fork(row);
        }
        chain_of(row.conversation) = std::move(turns);
    }

    // As the ledger does (Ledger::begin): a prompt leaves the turns that it does not contain whole, and a turn whose
    // end is the prompt's end.
    void leave_turns(const Row& row) {
        std::vector<RowIndex>& turns = chain_of(row.conversation);
        const auto stays = [&](RowIndex turn) {
            const int64_t end = planned_end(builder_.trace().row(turn));
            return end <= row.take_tokens && end < row.prompt_tokens;
        };
        while (!turns.empty() && !stays(turns.back())) turns.pop_back();
    }

    void add_fork(Row& row) {
        Row fork;
        fork.event = Event::kFork;
        fork.conversation = row.conversation;
        fork.session = row.session;
        fork.from = row.from;
        fork.arrival_ns = row.arrival_ns;
        fork.start = row.start;
        fork.think_ns = row.think_ns;
        fork.wait_for = row.wait_for;
        row.wait_for = builder_.add_row(fork);
        row.think_ns = 0;
    }

    // --- tokens

    void add_own_tokens(const RecordedRequest& request, const Link& link, int64_t position) {
        in_shared_prefix_ = position == 0;
        const size_t num_before = builder_.trace().pieces.size();
        int64_t block = 0;  // in the prompt
        for (size_t k = 0; k < request.num_runs; ++k) {
            const IdRun& run = recording_.runs[request.first_run + k];
            const int64_t skipped = std::clamp<int64_t>(position - block * per_block_, 0, run.count * per_block_);
            add_text(run.first, skipped, run.count * per_block_);
            block += run.count;
        }
        const int64_t end = scale(request.prompt_tokens);
        const int64_t tail = block * per_block_;  // start of the partial block
        if (end > std::max(position, tail)) add_tail(request, std::max(position, tail) - tail, end - tail);
        if (scaled() && link.relation == Relation::kContinuation && end <= position) {
            // Rounding up left no room for the prompt's new tokens.
            add_piece({private_space(SpaceKind::kOwn, static_cast<uint64_t>(request.source_row)), kMaxRecordedTokens, 1,
                       false, false});
        }
        if (builder_.trace().pieces.size() > num_before) builder_.end_message(in_shared_prefix_);
    }

    // Tokens [begin, end) of the blocks whose ids start at `first_id`.
    void add_text(int64_t first_id, int64_t begin, int64_t end) {
        while (begin < end) {
            const int64_t id = first_id + begin / per_block_;
            const int64_t offset = begin % per_block_;
            const SharedText::Part part = shared_->part_at(id);
            const int64_t length = std::min(end - begin, part.count * per_block_ - offset);
            const uint64_t space = part.shared ? shared_->space() : private_space(SpaceKind::kBlocks, strand_);
            const int64_t first = (part.shared ? part.place : id) * per_block_ + offset;
            add_piece({space, first, static_cast<int32_t>(length), false, false});
            begin += length;
        }
    }

    // Tokens [begin, end) of the last, partial block.
    void add_tail(const RecordedRequest& request, int64_t begin, int64_t end) {
        uint64_t space = private_space(SpaceKind::kOwn, static_cast<uint64_t>(request.source_row));
        int64_t first = 0;
        if (request.partial_id >= 0) {
            const int64_t length = request.prompt_tokens % recording_.block_tokens;
            space = private_space(SpaceKind::kPartial, strand_);
            first = (request.partial_id * recording_.block_tokens + length) * recording_.block_tokens;
        }
        add_piece({space, first + begin, static_cast<int32_t>(end - begin), false, false});
    }

    // Shared text at the start of a prompt is a separate message, so that its end is a checkpoint.
    void add_piece(const Piece& piece) {
        const bool shared = kind_of(piece.space) == SpaceKind::kSharedText;
        if (in_shared_prefix_ && !shared) {
            const bool any = builder_.num_own_pieces() > 0;
            if (any) builder_.end_message(/*checkpoint=*/true);
            in_shared_prefix_ = false;
        }
        builder_.add_piece(piece);
    }

    const Recording& recording_;
    const std::vector<Link>& links_;
    int64_t per_block_;
    std::vector<RowIndex> row_of_;  // by request
    TraceBuilder builder_;
    RowOptions exact_;
    std::optional<SharedText> shared_;  // of the current strand
    size_t strand_ = 0;
    int64_t num_roots_ = 0;
    bool in_shared_prefix_ = false;
    std::vector<std::vector<RowIndex>> chains_;  // by conversation: the rows of its current turns
};

}  // namespace

Trace make_trace(const Recording& recording, const std::vector<Link>& links, int64_t tokens_per_id) {
    return TraceMaker(recording, links, tokens_per_id).make();
}

}  // namespace verbatim::traces
