// server/http/conversations.h: owns the parsing of conversation calls other than turns from HTTP: path, query and body.
// No sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/api.h"
#include "server/http/response_items.h"
#include "server/ledger/conversation_calls.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

inline constexpr std::string_view kConversationListPath = "/v1/conversations";
inline constexpr std::string_view kConversationsPath = "/v1/conversations/";

// The methods of a path, as in `Allow`; empty: no such path.
[[nodiscard]] std::string_view conversation_methods(std::string_view path);

// Decodes a part of a path or a query. Empty: a % without two hexadecimal digits.
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text);

// GET or DELETE /v1/conversations/ID?cache_salt=S, GET also with content=true; POST /v1/conversations/ID/fork or
// /rewind, GET or PUT /v1/conversations/ID/head (the caller reads its body). `target`: path and query.
// REQUIRES: the path begins with kConversationsPath and accepts the method. Errors: an invalid name or field.
[[nodiscard]] ApiResult<ConversationCall> parse_conversation_call(std::string_view method, std::string_view target,
                                                                  std::string_view body,
                                                                  const std::optional<std::string>& tenant);

// To the answer of a conversation that is shown with its content: `messages`, and of each turn `num_messages`, up to
// its answer. Where turns were asked for by text or tokens `messages` is null, and each turn has `prompt` and `text`.
// O(tokens). REQUIRES: `shown` is the answer without content.
void add_content(const ConversationView& view, const text::Tokenizer& tokenizer, Json& shown);

// GET /v1/conversations?limit=N&after=ID&cache_salt=S: a page with one conversation more than is shown, which says
// whether there are more. Errors: a field that is none, or out of range.
[[nodiscard]] ApiResult<ConversationPage> parse_conversation_page(std::string_view target,
                                                                  const std::optional<std::string>& tenant);
// The answer. REQUIRES: `listed` is that page's.
[[nodiscard]] Json conversation_list(const ConversationPage& page, std::vector<ListedConversation> listed);

// The methods of a path below kResponsesPath; empty: no such path.
[[nodiscard]] std::string_view response_methods(std::string_view path);

struct ResponseCall {
    ConversationCall call;          // as the one that deletes it
    std::optional<ItemPage> items;  // of its input
};
// GET or DELETE /v1/responses/ID?cache_salt=S, GET /v1/responses/ID/input_items?cache_salt=S&limit=N&after=ITEM&
// order=asc. REQUIRES: the path begins with kResponsesPath, and has methods. Errors: an invalid name or field; 404 for
// the id of no response.
[[nodiscard]] ApiResult<ResponseCall> parse_response_call(std::string_view target,
                                                          const std::optional<std::string>& tenant);

}  // namespace verbatim::server
