// traces/requests.h: owns the conversion of a trace's rows into the engine's requests, lazily: tokens stay runs over
// shared sources.
//
// It keeps the prompts and outputs that later rows still take from, and no others.
//   Q1  after the last row that takes from row i is made, nothing of row i is kept
//   Q2  a history's tokens are exactly: the tokens taken from its predecessor's real prompt and output, then own tokens
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
    // `wait_for`. The row's messages are the request's messages; the taken tokens are one message without checkpoint.
    // Fills in turn_id, max_tokens, sampling, stops and flags; parent if has_parent.
    [[nodiscard]] ChatRequest make(RowIndex row);

    // The whole prompt of a row, for a suffix or regenerate as far as the rows determine it. REQUIRES: make(row) was
    // called, and some later row takes from this one or answered(row) was not called yet.
    [[nodiscard]] const TokenSeq& prompt(RowIndex row) const;

    // Records the engine's output for a row, and the version that it committed (kNoVersion: none). A row without an
    // answer (refused, aborted) counts with its planned output, made from output_space(row).
    void answered(RowIndex row, const TokenSeq& output, Version version);

    // The version that a row committed; kNoVersion if it has not. For forks and rewinds.
    [[nodiscard]] Version version(RowIndex row) const;
    [[nodiscard]] ConversationKey key(ConversationIndex conversation) const;
    // Rows whose tokens are still kept (Q1).
    [[nodiscard]] size_t num_kept() const { return num_kept_; }

private:
    struct Kept {
        TokenSeq prompt;
        std::optional<TokenSeq> output;  // none: not answered
        int32_t num_takers = 0;          // later rows that take from this one
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
