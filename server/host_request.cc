#include "server/host_request.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

// The prompt in parts that end where its states are to be kept.
std::vector<Message> message_parts(const HostRequest& request, TokenStore& store) {
    const TokenSeq whole = store.store(request.prompt);
    std::vector<Message> parts;
    int64_t begin = 0;
    for (const int64_t end : request.checkpoints) {
        CHECK(begin < end && end <= whole.size(), "a checkpoint at {} behind {} of {} tokens", end, begin,
              whole.size());
        parts.push_back({whole.slice(begin, end)});
        begin = end;
    }
    if (begin < whole.size()) parts.push_back({whole.slice(begin, whole.size())});
    return parts;
}

}  // namespace

ChatRequest chat_request(const HostRequest& request, Ticket ticket, TokenStore& store) {
    ChatRequest chat;
    chat.conversation.salt = request.salt;
    chat.conversation.conversation_id =
        request.conversation_id.value_or(fmt::format("{}request {}", kUnnamedMark, static_cast<int64_t>(ticket)));
    chat.input = InputKind::kHistory;
    chat.messages = message_parts(request, store);
    chat.max_tokens = request.max_tokens;
    chat.sampling = request.sampling;
    chat.seed = request.seed;
    chat.stop_tokens = request.stop_tokens;
    chat.use_cache = request.use_cache;
    chat.grammar = request.grammar;
    if (!request.grammar.empty()) chat.masks.push_back(request.first_mask);
    if (request.num_prompt_log_probs) chat.scored_from = request.scored_from;
    return chat;
}

}  // namespace verbatim::server
