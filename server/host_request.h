// server/host_request.h: a request in token ids, and the form that the engine takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/request.h"
#include "engine/request/sampling.h"
#include "engine/tokens/token_seq.h"
#include "server/answer_reader.h"
#include "server/ledger/conversation_ledger.h"

namespace verbatim::server {

enum class Ticket : int64_t {};

// What begins the ids of conversations that clients have not named: clients' ids have no such character
// (server/http/api.h A2).
inline constexpr char kUnnamedMark = '\x1f';
[[nodiscard]] inline bool is_unnamed(const ConversationKey& key) {
    return key.conversation_id.starts_with(kUnnamedMark);
}

// A request in token ids, before the engine's thread creates sequences of it.
struct HostRequest {
    std::optional<std::string> conversation_id;  // none: the conversation is deleted when the request ends
    bool id_is_hint = false;  // if the conversation has a writer, the request runs outside it instead of being refused
    CacheSalt salt;
    std::vector<TokenId> prompt;       // the whole conversation
    std::vector<int64_t> checkpoints;  // positions whose states are kept for diverging histories; ascending
    int64_t max_tokens = 0;
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<TokenId> stop_tokens;
    bool use_cache = true;
    bool shares_prompt = false;  // with the last request before it in the same submit() that is not one itself
    std::optional<int32_t> num_log_probs;  // of every sampled token, and of this many most likely ones
    // The same of the prompt's tokens from position `scored_from` on.
    std::optional<int32_t> num_prompt_log_probs;
    int64_t scored_from = 0;
    std::vector<std::string> stop;  // the turn ends with the token that completes one of these texts, or
    text::AnswerForm form;          // the answer's first call, where it ends with that
    std::string grammar;            // of the answer (server/text/run_grammars.py); empty: none
    TokenMask first_mask;           // of its first token, with a grammar
    // For a conversation. The request is refused unless this is the conversation's head, or its version.
    std::optional<std::string> parent_head;
    std::optional<Version> version;
    std::optional<TurnClaim> claim;
    AskedMessages messages;
    std::optional<RewrittenAnswer> rewritten;
    bool shows_details = false;  // its updates carry TurnDetails
    std::string answer_id;       // the client-visible id; the error for a busy conversation contains it
};

// The engine's form of a request. A request outside conversations gets a name that no client can use.
[[nodiscard]] ChatRequest chat_request(const HostRequest& request, Ticket ticket, TokenStore& store);

}  // namespace verbatim::server
