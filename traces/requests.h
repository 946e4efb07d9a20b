// traces/requests.h: turns the rows of a trace into the engine's requests, lazily: tokens stay runs over shared
// sources.
//
// Owns the prompts and outputs that later rows still take from, and no more.
//   Q1  after the last row that takes from row i is made, nothing of row i is kept
//   Q2  a history's tokens are exactly: taken from what its predecessor really had, then own tokens
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"
#include "traces/trace.h"

namespace verbatim::traces {

class RequestMaker {
public:
    // Borrows both. Error: an explicit token id of the trace (in a prompt or a stop condition) is outside the
    // vocabulary.
    static Result<RequestMaker> create(const Trace& trace, TokenStore& store);

    // The request of a row. REQUIRES: is_request(event); rows are made in any order that respects `from` and
    // `wait_for`. Message ends of the row are the messages of the request; what it takes is a message of its own
    // without checkpoint. turn_id, max_tokens, sampling, stops and flags are filled in; parent when has_parent.
    [[nodiscard]] ChatRequest make(RowIndex row);

    // The whole prompt of a row: of a suffix or regenerate too, as far as rows tell it.
    // REQUIRES: make(row) was called, and some later row takes from this one or answered(row) was not called yet.
    [[nodiscard]] const TokenSeq& prompt(RowIndex row) const;

    // Says what the engine generated for a row, and the version that it committed (kNoVersion: none). A row that is
    // never answered (refused, aborted) stands with its planned output, made from output_space(row).
    void answered(RowIndex row, const TokenSeq& output, Version version);

    // The version that a row committed; kNoVersion before that, or if it did not. For forks and rewinds.
    [[nodiscard]] Version version(RowIndex row) const;
    [[nodiscard]] ConversationKey key(ConversationIndex conversation) const;
    // Rows whose tokens are still kept (Q1).
    [[nodiscard]] size_t num_kept() const { return num_kept_; }

private:
    struct Kept {
        TokenSeq prompt;
        std::optional<TokenSeq> output;  // none: not answered
        int32_t num_takers = 0;          // rows to come that take from this one
        bool made = false;
        bool done = false;  // answered
    };
    RequestMaker(const Trace& trace, TokenStore& store);
    [[nodiscard]] TokenSeq taken(const Row& row);
    void own_messages(const Row& row, ChatRequest& request, TokenSeq& prompt);
    void drop_if_unused(RowIndex row);

    const Trace* trace_;
    TokenStore* store_;
    std::vector<Kept> kept_;         // one per row
    std::vector<Version> versions_;  // one per row
    size_t num_kept_ = 0;
};

}  // namespace verbatim::traces
