// server/http/response_chain.h: owns what responses are in the ledger: a stored response is a turn of a conversation,
// and its id is the turn's turn_id.
//
//   Q1  an id names its conversation: resp_A is the first turn of the conversation resp_A, resp_A_B a later one
//   Q2  a response that goes on from the newest one of its conversation is the conversation's next turn; from another
//       one, it begins a conversation with that history
//   Q3  instructions are of one response: the history of the next one has none of them
//   Q4  what the ledger keeps of a response (AnswerRow) is enough to show it again
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http/api.h"
#include "server/http/response_items.h"
#include "server/http/response_request.h"
#include "server/http/service.h"
#include "server/ledger/conversation_ledger.h"

namespace verbatim::server {

inline constexpr std::string_view kResponsesPath = "/v1/responses/";
inline constexpr std::string_view kResponsePrefix = "resp_";

// The conversation of a response's id. Empty: it is the id of no response.
[[nodiscard]] std::string conversation_of_response(std::string_view id);

// 404: there is no such response. `field`: the request's field that names it, or none.
[[nodiscard]] ApiError unknown_response(const std::string& id, const char* field);

// Sets the request's history, id and turn, and the conversation that its answer goes into: none without `store`.
// `previous`: what the ledger knows of the response from which the request goes on; null: it goes on from none.
// REQUIRES: the request has a response. Errors: the ledger's; an unknown previous response.
[[nodiscard]] std::optional<ApiError> place_response(const Service& service, GenerateRequest& request,
                                                     ConversationHint& conversation, History& history, Look* previous);

// What the ledger keeps of the request for Q4: a JSON text. Empty for requests that are no responses.
[[nodiscard]] std::string kept_of_response(const GenerateRequest& request, const text::AnswerForm& form);

// What it was asked with, and what was before it in its conversation, without instructions: the items of a page.
// Errors: it was deleted, or is no response's.
[[nodiscard]] ApiResult<Json> stored_input(const Service& service, const std::string& id, const Look& look,
                                           const ItemPage& page);
// The answer once more. Errors: it was deleted, or is no response's.
[[nodiscard]] ApiResult<Json> stored_response(const Service& service, const std::string& id, const Look& look);

}  // namespace verbatim::server
