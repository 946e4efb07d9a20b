#include "server/http/response_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "server/answer_reader.h"
#include "server/http/response_answer.h"
#include "server/ledger/history.h"
#include "server/text/decoder.h"

namespace verbatim::server {
namespace {

// Of messages in their order, without instructions.
Digest digest_after(const Digest& before, const std::string& message) {
    Digester digester;
    digester.add(before);
    digester.add(std::string_view(message));
    return digester.digest();
}

std::span<const std::string> without_first(std::span<const std::string> messages, bool first) {
    return messages.subspan(first && !messages.empty() ? 1 : 0);
}

Json kept_json(const AnswerRow& answer) {
    Json kept = Json::parse(answer.kept, nullptr, /*allow_exceptions=*/false);
    return kept.is_object() && kept.contains("response") ? kept : Json();
}

bool had_instructions(const Json& kept) { return kept["response"].value("instructions", Json()).is_string(); }

// Whether a message of the conversation is what was answered, after the beginning that the prompt gave it.
bool is_answer(const std::string& message, const AnswerRow& answer, const std::string& begun,
               const text::Tokenizer& tokenizer) {
    const Json json = Json::parse(message, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.value("content", Json()).is_string()) return false;
    const std::string content = json["content"].get<std::string>();
    const std::string text = text::decode(tokenizer, answer.output, /*skip_special=*/true);
    return content.starts_with(begun) && text.starts_with(std::string_view(content).substr(begun.size()));
}

// A turn that later ones have rewritten is still in their messages: behind those that it was asked with.
std::optional<std::vector<std::string>> find_in_messages(const std::vector<std::string>& all, const AnswerRow& answer,
                                                         const std::string& begun, const text::Tokenizer& tokenizer) {
    for (const size_t first : {size_t{0}, size_t{1}}) {
        Digest digest;
        for (size_t i = first; i < all.size(); ++i) {
            if (digest == answer.request && is_answer(all[i], answer, begun, tokenizer))
                return std::vector<std::string>(all.begin() + static_cast<ptrdiff_t>(first),
                                                all.begin() + static_cast<ptrdiff_t>(i) + 1);
            digest = digest_after(digest, all[i]);
        }
    }
    return std::nullopt;
}

// The messages up to the response and with it, without its instructions. Empty: they are gone.
std::optional<std::vector<std::string>> messages_up_to(const std::string& id, const Look& look, const AnswerRow& answer,
                                                       const text::Tokenizer& tokenizer) {
    if (!look.view) return std::nullopt;
    const Json kept = kept_json(answer);
    if (kept.is_null()) return std::nullopt;
    ConversationView view = *look.view;
    const auto turn = std::ranges::find_if(view.turns, [&](const TurnPtr& one) { return one->turn_id == id; });
    const bool is_there = turn != view.turns.end();
    if (is_there) view.turns.erase(turn + 1, view.turns.end());
    auto all = messages_of(view, tokenizer);
    if (!all) return std::nullopt;
    if (!is_there) return find_in_messages(*all, answer, kept.value("begun", ""), tokenizer);
    if (had_instructions(kept)) all->erase(all->begin());
    return all;
}

// Behind the instructions, and before the input.
void prepend(const std::vector<std::string>& before, bool has_instructions, std::vector<std::string>& messages) {
    messages.insert(messages.begin() + (has_instructions ? 1 : 0), before.begin(), before.end());
}

Digest content_of(const GenerateRequest& request) {
    Digest digest;
    for (const std::string& message : without_first(request.chat.messages, request.response->has_instructions))
        digest = digest_after(digest, message);
    return digest;
}

bool is_newest(const std::string& id, const Look& look) { return look.view && look.view->turns.back()->turn_id == id; }

}  // namespace

std::string conversation_of_response(std::string_view id) {
    if (!id.starts_with(kResponsePrefix) || !is_identifier(id)) return "";
    return std::string(id.substr(0, id.find('_', kResponsePrefix.size())));
}

ApiError unknown_response(const std::string& id, const char* field) {
    return {404, fmt::format("response '{}' is not here: it was never stored, or was deleted", id), field,
            "response_not_found"};
}

std::optional<ApiError> place_response(const Service& service, GenerateRequest& request, ConversationHint& conversation,
                                       History& history, Look* previous) {
    ResponseRequest& response = *request.response;
    response.id = std::string(kResponsePrefix) + response.number;
    std::string conversation_id = response.id;
    if (previous != nullptr) {
        const std::string& id = *response.previous_id;
        if (!previous->problem.empty()) return ledger_problem(previous->problem);
        if (!previous->recorded || *previous->recorded == nullptr) return unknown_response(id, "previous_response_id");
        const auto before = messages_up_to(id, *previous, **previous->recorded, *service.tokenizer);
        if (!before) return unknown_response(id, "previous_response_id");
        prepend(*before, response.has_instructions, request.chat.messages);
        if (response.is_stored && is_newest(id, *previous)) {
            conversation_id = conversation_of_response(id);
            response.id = fmt::format("{}_{}", conversation_id, response.number);
            request.parent_head = previous->view->head;
        }
        history.conversation = std::move(previous->view);
    }
    if (!response.is_stored) {
        if (previous != nullptr) conversation = {};
        return std::nullopt;
    }
    conversation = {conversation_id, /*is_said=*/true};
    request.turn_id = response.id;
    request.content = content_of(request);
    return std::nullopt;
}

std::string kept_of_response(const GenerateRequest& request, const text::AnswerForm& form) {
    if (!request.response) return "";
    Json kept = {{"response", request.response->repeated}, {"stop", request.stop}};
    if (request.sampling.min_tokens > 0) kept["min_tokens"] = request.sampling.min_tokens;
    if (form.begins_in_reasoning) kept["begins_in_reasoning"] = true;
    if (form.ends_with_call) kept["ends_with_call"] = true;
    if (!form.begun.empty()) kept["begun"] = form.begun;
    if (form.tools == text::ToolFormat::kNone) kept["calls_are_text"] = true;
    return written_answer(kept);
}

ApiResult<Json> stored_input(const Service& service, const std::string& id, const Look& look, const ItemPage& page) {
    if (!look.problem.empty()) return tl::unexpected(ledger_problem(look.problem));
    if (!look.recorded || *look.recorded == nullptr) return tl::unexpected(unknown_response(id, ""));
    auto messages = messages_up_to(id, look, **look.recorded, *service.tokenizer);
    if (!messages || messages->empty()) return tl::unexpected(unknown_response(id, ""));
    messages->pop_back();  // the answer
    return item_list(items_of_messages(*messages, id.substr(kResponsePrefix.size())), page);
}

ApiResult<Json> stored_response(const Service& service, const std::string& id, const Look& look) {
    if (!look.problem.empty()) return tl::unexpected(ledger_problem(look.problem));
    if (!look.recorded || *look.recorded == nullptr) return tl::unexpected(unknown_response(id, ""));
    const AnswerRow& answer = **look.recorded;
    const Json kept = kept_json(answer);
    if (kept.is_null()) return tl::unexpected(unknown_response(id, ""));
    ResponseRequest request;
    request.repeated = kept["response"];
    text::AnswerForm form;
    form.reasoning = service.reasoning_format;
    form.begins_in_reasoning = kept.value("begins_in_reasoning", false);
    form.begun = kept.value("begun", "");
    if (!kept.value("calls_are_text", false)) {
        form.tools = service.tool_format;
        form.functions = functions_of_response(request.repeated.value("tools", Json::array()));
        form.ends_with_call = kept.value("ends_with_call", false);
    }
    ResponseAnswer again(request, {ApiKind::kChat, id, service.model.first(), service.fingerprint, answer.created},
                         /*is_stream=*/false);
    AnswerReader reader(*service.tokenizer, kept.value("stop", std::vector<std::string>()), form,
                        kept.value("min_tokens", int64_t{0}));
    for (const TokenId token : answer.output) {
        text::AnswerParts parts;
        reader.add(token, parts);
        again.take(parts);
        again.count_token();
    }
    text::AnswerParts rest;
    reader.finish(rest);
    again.take(rest);
    again.end(
        {answer.finish, std::nullopt, {answer.num_prompt_tokens, answer.num_output_tokens, answer.num_cached_tokens}});
    return again.whole();
}

}  // namespace verbatim::server
