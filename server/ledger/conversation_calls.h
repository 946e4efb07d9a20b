// server/ledger/conversation_calls.h: the calls on conversations other than turns: fork, rewind, delete, show. For the
// engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "reference/loader/head_file.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/user_text.h"

namespace verbatim::server {

struct ConversationCall {
    enum class Kind : uint8_t { kShow, kFork, kRewind, kRemove, kExportHead, kImportHead, kRemoveResponse };
    Kind kind = Kind::kShow;
    ConversationKey key;
    std::string to;                                   // kFork; kRemoveResponse: the turn_id
    std::optional<int64_t> num_turns;                 // kFork: all without it; kRewind
    bool with_content = false;                        // kShow: the reply has the view
    std::optional<std::string> parent_head;           // refused unless it is the conversation's
    std::shared_ptr<const reference::HeadFile> head;  // kImportHead
};

// A refusal, or the problem with storing the change, or the answer.
struct ConversationReply {
    std::optional<Refusal> refusal;
    std::string problem;
    text::Json json;
    std::optional<ConversationView> view;  // kShow, with_content
    std::optional<HeadCopy> head;          // kExportHead
    std::string head_problem;              // kImportHead: why the head does not come in
};

// `done` is called once: here, or on the ledger's thread when the store has the change.
void carry_out(const ConversationCall& call, Engine& engine, ConversationLedger& ledger,
               std::function<void(ConversationReply)> done);

// Empty where `parent_head` is the conversation's head.
[[nodiscard]] std::optional<Refusal> parent_refusal(const ConversationLedger& ledger, const ConversationKey& key,
                                                    const std::string& parent_head);

}  // namespace verbatim::server
