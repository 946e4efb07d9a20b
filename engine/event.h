// engine/event.h: what a client sees of its request, from the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "engine/base/ids.h"
#include "engine/ledger/ledger.h"
#include "engine/request/request.h"

namespace verbatim {

// The request's next token.
struct TokenEvent {
    RequestId request{};
    TokenId token = 0;
    friend bool operator==(const TokenEvent&, const TokenEvent&) = default;
};

// The request's next tokens, of equal steps, which only some executors take: Engine::tokens_of() has them.
struct TokensEvent {
    RequestId request{};
    size_t first_token = 0;
    size_t num_tokens = 0;
    friend bool operator==(const TokensEvent&, const TokensEvent&) = default;
};

// The request's turn is over. No event of it follows.
struct FinishedEvent {
    RequestId request{};
    FinishReason reason = FinishReason::kLength;
    bool committed = false;
    HeadId head = kNoHead;          // the name points to it now
    Version version = kNoVersion;   // of the conversation, now
    int64_t num_output_tokens = 0;  // generated
    int64_t num_text_tokens = 0;    // of them streamed: a stop string is cut off
    int64_t num_reused_tokens = 0;  // of the prompt
    uint64_t seed = 0;              // that the tokens were sampled with
    int32_t fault_layer = -1;       // kNonFinite: where
    int64_t step = -1;              // the last one
    friend bool operator==(const FinishedEvent&, const FinishedEvent&) = default;
};

using EngineEvent = std::variant<TokenEvent, TokensEvent, FinishedEvent>;

[[nodiscard]] inline RequestId request_of(const EngineEvent& event) {
    return std::visit([](const auto& of_kind) { return of_kind.request; }, event);
}

}  // namespace verbatim
