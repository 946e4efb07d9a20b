#include "server/http/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "server/checkpoints.h"
#include "server/http/response_chain.h"
#include "server/http/tools.h"
#include "server/ledger/history.h"
#include "server/text/decoder.h"
#include "server/text/known_ids.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

// What clients send of themselves, ours first: coding agents name their session so.
constexpr std::array<std::string_view, 6> kConversationHeaders = {
    "X-Session-Id", "X-Claude-Code-Session-Id", "Session-Id", "Session_id", "X-Session-Affinity", "X-Opencode-Session"};

ApiError wrong_value(std::string message, const char* param) {
    return {400, std::move(message), param, "invalid_value"};
}

// Does the template have the variable, as a word?
bool has_variable(std::string_view chat_template, std::string_view name) {
    for (size_t at = chat_template.find(name); at != std::string_view::npos; at = chat_template.find(name, at + 1)) {
        const size_t end = at + name.size();
        const bool begins = at == 0 || !is_of_variable(chat_template[at - 1]);
        if (begins && (end == chat_template.size() || !is_of_variable(chat_template[end]))) return true;
    }
    return false;
}

// A variable that the template does not have would change nothing.
std::optional<ApiError> problem_of_template(const Service& service, const AskedTemplate& asked) {
    for (const auto& [name, value] : asked.variables.items()) {
        if (has_variable(service.chat_template, name)) continue;
        const bool is_effort = name == "reasoning_effort";
        return ApiError{400, fmt::format("the model's chat template has no {}", name),
                        is_effort ? name : "chat_template_kwargs." + name, "unsupported_value"};
    }
    if (!asked.tools.are_offered()) return std::nullopt;
    if (!has_variable(service.chat_template, "tools")) {
        return ApiError{400,
                        "the model's chat template says nothing of tools: a template that does is given with "
                        "--chat-template",
                        "tools", "unsupported_value"};
    }
    if (service.tool_format == text::ToolFormat::kNone) {
        return ApiError{400,
                        "how the model writes calls of tools is not known from its chat template: --tool-parser says "
                        "it when the server is started",
                        "tools", "unsupported_value"};
    }
    return std::nullopt;
}

ApiResult<std::vector<TokenId>> render(const Service& service, const AskedTemplate& asked,
                                       const std::vector<std::string>& messages, std::span<const TokenId> known,
                                       text::WordCache& cache) {
    if (service.chat == nullptr)
        return tl::unexpected(wrong_value("the model has no chat template: use /v1/completions", "messages"));
    if (auto problem = problem_of_template(service, asked)) return tl::unexpected(*std::move(problem));
    text::WrittenChat chat{.messages = messages,
                           .add_generation_prompt = asked.end == ChatEnd::kAnswer,
                           .continue_final_message = asked.end == ChatEnd::kContinued};
    chat.now = service.now();
    if (asked.tools.are_offered()) chat.tools = asked.tools.list;
    chat.variables = text::written(asked.variables);
    auto ids = service.chat->encode(std::move(chat), cache, known);
    if (!ids) return tl::unexpected(ApiError{400, ids.error().message, ids.error().field, "invalid_value"});
    return *std::move(ids);
}

// Of a completion: a text or tokens, behind what the conversation has committed, or with it.
ApiResult<std::vector<TokenId>> complete(const Service& service, const GenerateRequest& request, size_t which,
                                         std::vector<TokenId> known, text::WordCache& cache) {
    const AskedPrompt& prompt = request.prompts[which];
    const auto wrong = [](std::string message) { return tl::unexpected(wrong_value(std::move(message), "prompt")); };
    std::vector<TokenId> ids = prompt.ids;
    if (!prompt.is_ids) {
        const text::EncodeOptions options{.add_special = !request.suffix_only, .parse_special = false};
        const text::KnownIds from(*service.tokenizer, request.suffix_only ? std::span<const TokenId>() : known);
        auto encoded = service.tokenizer->encode(prompt.text, options, cache, from);
        if (!encoded) return wrong(encoded.error().message);
        ids = *std::move(encoded);
    }
    if (ids.empty()) {
        return wrong(request.prompts.size() == 1 ? "prompt is empty" : fmt::format("prompt[{}] is empty", which));
    }
    if (!request.suffix_only) return ids;
    known.insert(known.end(), ids.begin(), ids.end());
    return known;
}

// The messages of a chat as a whole, and which of them the conversation has.
ApiResult<AskedMessages> whole_chat(const Service& service, GenerateRequest& request, const History& history) {
    AskedMessages asked{.continues_last = request.chat.end == ChatEnd::kContinued};
    if (history.conversation) asked.base = history.conversation->version;
    if (!request.suffix_only) {
        asked.all = std::exchange(request.chat.messages, {});
        if (history.conversation)
            asked.num_equal = num_equal_messages(*history.conversation, *service.tokenizer, asked.all);
        return asked;
    }
    auto before = history.conversation ? messages_of(*history.conversation, *service.tokenizer) : std::nullopt;
    if (!before)
        return tl::unexpected(
            wrong_value("the conversation has turns without messages: what comes after them is "
                        "asked for by /v1/completions",
                        "suffix_only"));
    asked.all = *std::move(before);
    asked.num_equal = static_cast<int64_t>(asked.all.size());
    asked.all.insert(asked.all.end(), request.chat.messages.begin(), request.chat.messages.end());
    return asked;
}

// Whether the prompt ends inside of reasoning: by what stands behind its last special token, or by all of it.
bool ends_in_reasoning(const Service& service, std::span<const TokenId> prompt) {
    if (service.reasoning_format == text::ReasoningFormat::kNone) return false;
    const auto is_of_messages = [&](TokenId id) {
        const std::string& bytes = service.tokenizer->bytes_of(id);
        return service.tokenizer->is_special(id) && bytes != text::kThinkBegin && bytes != text::kThinkEnd;
    };
    size_t begin = prompt.size();
    while (begin > 0 && !is_of_messages(prompt[begin - 1])) --begin;
    const std::string end = text::decode(*service.tokenizer, prompt.subspan(begin));
    const size_t opened = end.rfind(text::kThinkBegin);
    return opened != std::string::npos && end.find(text::kThinkEnd, opened) == std::string::npos;
}

// The beginning of the call that the request wants, as if the model had written it: it ends the prompt, and is kept as
// the beginning of the answer's message.
std::optional<ApiError> begin_call(const Service& service, const AskedTools& tools, std::vector<TokenId>& ids,
                                   Prompt& prompt, text::WordCache& cache) {
    const bool is_named = tools.choice == AskedTools::Choice::kNamed;
    prompt.form.begun = text::begun_call(prompt.form.tools, is_named ? std::optional(tools.named) : std::nullopt);
    std::string begun = prompt.form.begun;
    if (std::exchange(prompt.form.begins_in_reasoning, false))
        begun = fmt::format("\n{}\n\n{}", text::kThinkEnd, begun);
    const text::EncodeOptions options{.add_special = false, .parse_special = true};
    const auto encoded = service.tokenizer->encode(begun, options, cache);
    if (!encoded) return wrong_value(encoded.error().message, "tool_choice");
    ids.insert(ids.end(), encoded->begin(), encoded->end());
    prompt.messages.all.push_back(text::written({{"role", "assistant"}, {"content", begun}}));
    prompt.messages.continues_last = true;
    return std::nullopt;
}

// What the answer to a prompt is made of. A call that the request wants is begun in the prompt.
std::optional<ApiError> find_answer_form(const Service& service, const AskedTemplate& asked, std::vector<TokenId>& ids,
                                         Prompt& prompt, text::WordCache& cache) {
    using Choice = AskedTools::Choice;
    prompt.form.reasoning = service.reasoning_format;
    prompt.form.begins_in_reasoning = asked.end != ChatEnd::kNothing && ends_in_reasoning(service, ids);
    if (!asked.tools.are_offered()) return std::nullopt;
    prompt.form.tools = service.tool_format;
    prompt.form.functions = asked.tools.functions;
    prompt.form.ends_with_call = !asked.tools.several;
    const bool wants_call = asked.tools.choice == Choice::kRequired || asked.tools.choice == Choice::kNamed;
    if (!wants_call) return std::nullopt;
    if (asked.end != ChatEnd::kAnswer) {
        return ApiError{400, "tool_choice wants a call, which begins an answer: here the prompt ends in another way",
                        "tool_choice", "invalid_value"};
    }
    return begin_call(service, asked.tools, ids, prompt, cache);
}

std::vector<int64_t> checkpoints_of(const Service& service, std::span<const TokenId> prompt) {
    const auto is_special = [&](TokenId id) { return service.tokenizer->is_special(id); };
    return spread_checkpoints(message_ends(prompt, is_special), static_cast<int64_t>(prompt.size()), kMaxCheckpoints);
}

ApiResult<Prompt> prompt_to_answer(const Service& service, GenerateRequest& request, size_t which,
                                   const History& history, text::WordCache& cache) {
    Prompt prompt;
    std::vector<TokenId> known = history.conversation ? history.conversation->tokens() : std::vector<TokenId>();
    if (request.suffix_only) prompt.version = history.conversation->version;
    ApiResult<std::vector<TokenId>> ids;
    if (request.kind == ApiKind::kCompletion) {
        ids = complete(service, request, which, std::move(known), cache);
    } else {
        auto asked = whole_chat(service, request, history);
        if (!asked) return tl::unexpected(asked.error());
        prompt.messages = *std::move(asked);
        ids = render(service, request.chat, prompt.messages.all, known, cache);
        if (ids && ids->empty()) return tl::unexpected(wrong_value("the messages make no tokens", "messages"));
        if (ids) {
            if (auto problem = find_answer_form(service, request.chat, *ids, prompt, cache))
                return tl::unexpected(*std::move(problem));
        }
    }
    if (!ids) return tl::unexpected(ids.error());
    prompt.ids = *std::move(ids);
    const bool is_text = request.kind != ApiKind::kCompletion || !request.prompts[which].is_ids;
    if (history.conversation && is_text) {
        if (const auto end = rewritten_answer_end(*history.conversation, *service.tokenizer, prompt.ids))
            prompt.rewritten = RewrittenAnswer{history.conversation->version, *end};
    }
    return prompt;
}

}  // namespace

ApiResult<Prompt> prompt_of(const Service& service, GenerateRequest& request, size_t which, const History& history,
                            text::WordCache& cache) {
    CHECK(which < request.num_prompts(), "prompt {} of {}", which, request.num_prompts());
    if (!history.is_answered) return prompt_to_answer(service, request, which, history, cache);
    Prompt answered;
    const bool has_form = request.chat.tools.are_offered() || service.reasoning_format != text::ReasoningFormat::kNone;
    if (request.kind == ApiKind::kCompletion || !has_form) return answered;
    // The form of a chat's answer depends on how its prompt ends.
    if (!request.suffix_only || history.conversation) {
        if (auto again = prompt_to_answer(service, request, which, history, cache))
            answered.form = std::move(again->form);
    }
    return answered;
}

std::optional<ApiError> conversation_problem(const GenerateRequest& request, const ConversationHint& conversation) {
    const bool is_of_one = conversation.is_said || request.suffix_only || request.turn_id || request.parent_head;
    if (is_of_one && (request.num_prompts() > 1 || request.max_tokens == 0)) {
        const bool is_list = request.num_prompts() > 1;
        return ApiError{400,
                        is_list ? "a list of prompts goes into no conversation"
                                : "an answer without tokens goes into no conversation: max_tokens is 0",
                        is_list ? "prompt" : "max_tokens", "unsupported_value"};
    }
    if (conversation.id) return std::nullopt;
    const char* field = request.suffix_only ? "suffix_only" : request.turn_id ? "turn_id" : nullptr;
    if (field == nullptr && request.parent_head) field = "parent_head";
    if (field == nullptr) return std::nullopt;
    return ApiError{400, fmt::format("{} is of a conversation: conversation_id is missing", field), "conversation_id",
                    "missing_required_parameter"};
}

ApiResult<History> history_of(const GenerateRequest& request, const std::string& conversation_id, Look look) {
    if (!look.problem.empty()) return tl::unexpected(ledger_problem(look.problem));
    if (!look.recorded) return tl::unexpected(api_error(look.recorded.error()));
    History history{.conversation = std::move(look.view), .is_answered = *look.recorded != nullptr};
    if (request.suffix_only && !history.conversation && !history.is_answered) {
        return tl::unexpected(api_error({.reason = RefusalReason::kUnknownConversation,
                                         .conversation = conversation_id,
                                         .problem = " has no committed turn that a suffix could go on from"}));
    }
    return history;
}

ConversationHint conversation_of(const GenerateRequest& request,
                                 const std::function<std::string(std::string_view)>& header) {
    if (request.conversation_id) return {request.conversation_id, /*is_said=*/true};
    if (request.num_prompts() > 1 || request.max_tokens == 0) return {};
    for (const std::string_view name : kConversationHeaders) {
        std::string value = header(name);
        if (is_identifier(value)) return {std::move(value)};
    }
    return {request.prompt_cache_key};
}

ReasoningTraits reasoning_traits(const Service& service) {
    return {.is_switched = has_variable(service.chat_template, "enable_thinking"),
            .is_there = service.reasoning_format != text::ReasoningFormat::kNone};
}

std::string echoed_text(const Service& service, const GenerateRequest& request, size_t which,
                        std::span<const TokenId> ids) {
    if (!request.echo) return "";
    const AskedPrompt& prompt = request.prompts[which];
    return prompt.is_ids ? text::decode_text(*service.tokenizer, ids) : prompt.text;
}

ApiResult<TokenMask> first_mask_of(const Service& service, const GenerateRequest& request) {
    if (request.grammar.empty() || request.max_tokens == 0) return TokenMask();
    if (service.grammars == nullptr) {
        return tl::unexpected(ApiError{400, "the model has no end token, with which an answer of a form could end",
                                       request.grammar_field, "unsupported_value"});
    }
    text::NextMask first = service.grammars->first_mask(request.grammar);
    if (first.problem.empty()) return std::move(first.mask);
    if (first.is_grammars) {
        return tl::unexpected(ApiError{400, fmt::format("{}: {}", request.grammar_field, first.problem),
                                       request.grammar_field, "invalid_value"});
    }
    return tl::unexpected(ApiError{501,
                                   fmt::format("structured output needs the Python library llguidance, which `python3 "
                                               "-B tests/environment.py build/python llguidance` installs: {}",
                                               first.problem),
                                   request.grammar_field, "structured_output_unavailable"});
}

ApiResult<std::vector<HostRequest>> host_requests(const Service& service, const GenerateRequest& request,
                                                  const ConversationHint& conversation, const CacheSalt& salt,
                                                  Prompt prompt, const TokenMask& first_mask) {
    const bool wants_logits = request.num_log_probs || request.num_prompt_log_probs;
    if (wants_logits && !service.host->shows_logits())
        return tl::unexpected(ApiError{400, "the executor shows no logits: there are no log probabilities",
                                       request.num_log_probs ? "logprobs" : "prompt_logprobs", "unsupported_value"});
    const int64_t room = service.max_model_len - static_cast<int64_t>(prompt.ids.size());
    if (room < request.max_tokens.value_or(1)) {
        return tl::unexpected(
            ApiError{400,
                     fmt::format("the prompt has {} tokens and the answer may have {}: together there is room for {}",
                                 prompt.ids.size(), request.max_tokens.value_or(1), service.max_model_len),
                     input_field(request.kind), "context_length_exceeded"});
    }
    HostRequest host;
    host.conversation_id = conversation.id;
    host.id_is_hint = !conversation.is_said && !request.suffix_only && !request.turn_id && !request.parent_head;
    host.salt = salt;
    host.prompt = std::move(prompt.ids);
    host.checkpoints = checkpoints_of(service, host.prompt);
    host.messages = std::move(prompt.messages);
    host.rewritten = prompt.rewritten;
    host.version = prompt.version;
    host.parent_head = request.parent_head;
    host.stop = request.stop;
    host.form = prompt.form;
    if (!first_mask.runs.empty()) {
        if (prompt.form.begins_in_reasoning) {
            return tl::unexpected(ApiError{400,
                                           fmt::format("{}: the prompt ends inside of reasoning, which has another "
                                                       "form: turn it off in chat_template_kwargs",
                                                       request.grammar_field),
                                           request.grammar_field, "unsupported_value"});
        }
        host.grammar = request.grammar;
        host.first_mask = first_mask;
    }
    if (request.turn_id) {
        host.claim = TurnClaim{*request.turn_id, request.content, "", 0, kept_of_response(request, host.form)};
    }
    host.max_tokens = request.max_tokens.value_or(room);
    host.sampling = request.sampling;
    host.seed = request.seed;
    host.stop_tokens = request.stop_token_ids;
    if (!request.ignore_stop)
        host.stop_tokens.insert(host.stop_tokens.end(), service.stop_tokens.begin(), service.stop_tokens.end());
    host.use_cache = request.use_cache;
    host.shows_details = request.shows_details;
    host.num_log_probs = request.num_log_probs;
    const size_t num_sampled = request.num_sampled_choices();
    if (std::cmp_greater(num_sampled, request.num_choices)) host.num_log_probs = request.num_log_probs.value_or(0);
    if (request.sampling.min_tokens > 0) host.sampling.end_tokens = host.stop_tokens;
    std::vector<HostRequest> all(num_sampled);
    for (size_t i = 1; i < all.size(); ++i) {
        all[i] = host;
        all[i].conversation_id.reset();
        all[i].parent_head.reset();
        all[i].shares_prompt = request.use_cache;
        all[i].checkpoints.clear();
        if (all[i].seed) *all[i].seed += i;
    }
    all.front() = std::move(host);  // a long prompt is copied for other choices alone
    if (!request.is_scored()) return all;
    const int32_t num_echoed = request.echo ? request.num_log_probs.value_or(0) : 0;
    all.front().num_prompt_log_probs = std::max(request.num_prompt_log_probs.value_or(0), num_echoed);
    all.front().scored_from = request.scored_from;
    return all;
}

Json model_json(const Service& service, const std::string& name) {
    return {{"id", name},
            {"object", "model"},
            {"created", 0},
            {"owned_by", "verbatim"},
            {"max_model_len", service.max_model_len}};
}

Json model_list(const Service& service) {
    Json models = Json::array();
    for (const std::string& name : service.model.all) models.push_back(model_json(service, name));
    return {{"object", "list"}, {"data", std::move(models)}};
}

ApiResult<Json> tokenize(const Service& service, const TokenizeRequest& request, text::WordCache& cache) {
    ApiResult<std::vector<TokenId>> ids;
    if (request.prompt) {
        const text::EncodeOptions options{.add_special = request.add_special_tokens, .parse_special = false};
        auto encoded = service.tokenizer->encode(*request.prompt, options, cache);
        if (!encoded) return tl::unexpected(wrong_value(encoded.error().message, "prompt"));
        ids = *std::move(encoded);
    } else {
        ids = render(service, request.chat, request.chat.messages, {}, cache);
    }
    if (!ids) return tl::unexpected(ids.error());
    return Json{{"count", ids->size()}, {"max_model_len", service.max_model_len}, {"tokens", *ids}};
}

Json tokenizer_info(const Service& service) {
    Json info = {{"eos_token", nullptr}, {"chat_template", nullptr}, {"model_max_length", service.max_model_len}};
    if (!service.stop_tokens.empty()) info["eos_token"] = service.tokenizer->bytes_of(service.stop_tokens.front());
    if (!service.chat_template.empty()) info["chat_template"] = service.chat_template;
    return info;
}

Json detokenize(const Service& service, const std::vector<TokenId>& tokens) {
    return {{"prompt", text::decode_text(*service.tokenizer, tokens)}};
}

}  // namespace verbatim::server
