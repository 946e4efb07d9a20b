// server/ledger/conversation_calls.h: what clients do with conversations beside turns: fork, rewind, delete, look. On
// the engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/engine/engine.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/user_text.h"

namespace verbatim::server {

struct ConversationCall {
    enum class Kind : uint8_t { kShow, kFork, kRewind, kRemove };
    Kind kind = Kind::kShow;
    ConversationKey key;
    std::string to;                          // kFork
    std::optional<int64_t> num_turns;        // kFork: all without it; kRewind
    std::optional<std::string> parent_head;  // refused unless it is the conversation's
};

// A refusal, or what is in the way of keeping it, or what there is to tell.
struct ConversationReply {
    std::optional<Refusal> refusal;
    std::string problem;
    text::Json json;
};

// `told` is called once: here, or on the ledger's thread when it is kept.
void carry_out(const ConversationCall& call, Engine& engine, ConversationLedger& ledger,
               std::function<void(ConversationReply)> told);

// Empty where the conversation's head is the one that is expected.
[[nodiscard]] std::optional<Refusal> parent_refusal(const ConversationLedger& ledger, const ConversationKey& key,
                                                    const std::string& parent_head);

}  // namespace verbatim::server
