#include "traces/builder.h"

#include "engine/base/check.h"
#include "engine/fields.h"

namespace verbatim::traces {
uint32_t TraceBuilder::add_name(std::string_view text) {
    if (text.empty()) return 0;
    CHECK(valid_name(text), "'{}'", text);
    if (const auto found = names_.find(text); found != names_.end()) return found->second;
    const auto number = static_cast<uint32_t>(trace_.names.size());
    trace_.names.emplace_back(text);
    names_.emplace(text, number);
    return number;
}

uint32_t TraceBuilder::add_options(const RowOptions& options) {
    if (options == RowOptions{}) return 0;
    const auto [entry, is_new] =
        options_.emplace(digest_of_fields(options), static_cast<uint32_t>(trace_.options.size()));
    if (is_new) trace_.options.push_back(options);
    return entry->second;
}

ConversationIndex TraceBuilder::add_conversation(std::string_view name, const std::optional<std::string>& salt) {
    const uint32_t number = add_name(name);
    CHECK_NE(number, 0u);
    const auto next = ConversationIndex{static_cast<int32_t>(trace_.conversations.size())};
    const auto [entry, is_new] = conversations_.emplace(std::pair{number, salt}, next);
    if (is_new) trace_.conversations.push_back({number, salt});
    return entry->second;
}

std::optional<ConversationIndex> TraceBuilder::find_conversation(std::string_view name,
                                                                 const std::optional<std::string>& salt) const {
    const auto number = names_.find(name);
    if (number == names_.end()) return std::nullopt;
    const auto found = conversations_.find(std::pair{number->second, salt});
    return found == conversations_.end() ? std::nullopt : std::optional(found->second);
}

void TraceBuilder::add_piece(const Piece& piece) {
    if (num_own_pieces() > 0) {
        Piece& last = trace_.pieces.back();
        const bool goes_on = !last.ends_message && last.space == piece.space && last.begin + last.length == piece.begin;
        if (goes_on && piece.space != Piece::kExplicit && last.length <= INT32_MAX - piece.length) {
            last.length += piece.length;
            return;
        }
    }
    trace_.pieces.push_back(piece);
}

void TraceBuilder::add_explicit_piece(std::span<const TokenId> ids) {
    CHECK(!ids.empty());
    Piece piece;
    piece.space = Piece::kExplicit;
    piece.begin = static_cast<int64_t>(trace_.explicit_ids.size());
    piece.length = static_cast<int32_t>(ids.size());
    trace_.explicit_ids.insert(trace_.explicit_ids.end(), ids.begin(), ids.end());
    trace_.pieces.push_back(piece);
}

void TraceBuilder::end_message(bool checkpoint) {
    CHECK_GT(trace_.pieces.size(), first_piece_);
    trace_.pieces.back().ends_message = true;
    trace_.pieces.back().checkpoint = checkpoint;
}

RowIndex TraceBuilder::add_row(Row row) {
    row.first_piece = first_piece_;
    row.num_pieces = static_cast<uint32_t>(trace_.pieces.size() - first_piece_);
    row.prompt_tokens = planned_take(trace_, row);
    for (uint64_t k = first_piece_; k < trace_.pieces.size(); ++k) row.prompt_tokens += trace_.pieces[k].length;
    first_piece_ = trace_.pieces.size();
    trace_.rows.push_back(row);
    return RowIndex{static_cast<int32_t>(trace_.rows.size() - 1)};
}

}  // namespace verbatim::traces
