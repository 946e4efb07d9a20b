// traces/builder.h: owns a Trace under construction, row by row: names, options and conversations are interned.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/digest.h"
#include "traces/trace.h"

namespace verbatim::traces {

class TraceBuilder {
public:
    // 0 for "". REQUIRES: valid_name(text) or empty.
    uint32_t add_name(std::string_view text);
    uint32_t add_options(const RowOptions& options);
    // The conversation with this name and salt; added if new.
    ConversationIndex add_conversation(std::string_view name, const std::optional<std::string>& salt);
    [[nodiscard]] std::optional<ConversationIndex> find_conversation(std::string_view name,
                                                                     const std::optional<std::string>& salt) const;
    // Adds own tokens of the next row, in order. A piece that continues the previous one in the same message is merged
    // into it.
    void add_piece(const Piece& piece);
    [[nodiscard]] size_t num_own_pieces() const { return trace_.pieces.size() - first_piece_; }
    void add_explicit_piece(std::span<const TokenId> ids);
    // Ends a message at the last piece. REQUIRES: add_piece was called for this row.
    void end_message(bool checkpoint);
    // Appends the row with the pieces added since the last one; fills in first_piece, num_pieces and prompt_tokens.
    RowIndex add_row(Row row);

    [[nodiscard]] const Trace& trace() const { return trace_; }
    [[nodiscard]] Trace finish() { return std::move(trace_); }

private:
    struct TextHash {
        using is_transparent = void;
        size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    Trace trace_;
    std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> names_;
    std::map<Digest, uint32_t> options_;
    std::map<std::pair<uint32_t, std::optional<std::string>>, ConversationIndex> conversations_;
    uint64_t first_piece_ = 0;
};

}  // namespace verbatim::traces
