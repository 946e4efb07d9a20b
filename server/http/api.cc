#include "server/http/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <system_error>
#include <type_traits>
#include <utility>

#include "engine/base/check.h"
#include "files/strict_json.h"
#include "server/http/field_values.h"
#include "server/http/messages.h"
#include "server/http/structured_output.h"
#include "server/http/usual_values.h"
#include "server/text/utf8.h"

namespace verbatim::server {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopTokens = 256;  // each is compared with every token
constexpr int64_t kMaxChoices = 16;
constexpr size_t kMaxPrompts = 2048;
constexpr size_t kMaxLogitBiases = 1024;
constexpr int64_t kMaxChatLogProbs = 20;
constexpr int64_t kMaxCompletionLogProbs = 5;

using FieldStatus = tl::expected<void, ApiError>;

template <typename T, typename U>
FieldStatus take(T& to, ApiResult<U> value) {
    if (!value) return tl::unexpected(std::move(value).error());
    if constexpr (std::is_same_v<T, int32_t>) {
        CHECK(std::in_range<T>(*value), "{} was read as a number of 32 bits", *value);
        to = static_cast<T>(*value);
    } else {
        to = *std::move(value);
    }
    return {};
}

using FieldReader = std::function<FieldStatus(const std::string&, const Json&, GenerateRequest&)>;

// A text, a list of token ids, or a list of these.
FieldStatus read_prompt(const std::string& field, const Json& value, GenerateRequest& request) {
    const std::string wanted = fmt::format("a text, a list of token ids, or a list of up to {} of these", kMaxPrompts);
    const bool is_one = !value.is_array() || (!value.empty() && value.front().is_number());
    const std::span<const Json> prompts =
        is_one ? std::span(&value, 1) : std::span<const Json>(value.get_ref<const Json::array_t&>());
    if (prompts.empty() || prompts.size() > kMaxPrompts) return tl::unexpected(wrong_field(field, value, wanted));
    for (size_t i = 0; i < prompts.size(); ++i) {
        const Json& one = prompts[i];
        AskedPrompt& prompt = request.prompts.emplace_back();
        prompt.is_ids = one.is_array() && !one.empty();
        if (one.is_string()) prompt.text = one.get<std::string>();
        if (!one.is_string() && !prompt.is_ids) return tl::unexpected(wrong_field(field, value, wanted));
        if (!prompt.is_ids) continue;
        const std::string place = prompts.size() == 1 ? field : fmt::format("{}[{}]", field, i);
        if (auto taken = take(prompt.ids, token_ids(place, one, request.vocab_size, wanted)); !taken) return taken;
    }
    return {};
}

// Token ids as keys, numbers as values.
FieldStatus read_logit_bias(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object() || value.size() > kMaxLogitBiases) {
        return tl::unexpected(
            wrong_field(field, value, fmt::format("an object of up to {} token ids", kMaxLogitBiases)));
    }
    std::map<TokenId, float> sorted;
    for (const auto& [key, one] : value.items()) {
        const std::string place = fmt::format("{}.{}", field, key);
        TokenId token = -1;
        const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), token);
        const bool is_whole = problem == std::errc() && end == key.data() + key.size();
        const bool is_id = is_whole && token >= 0 && key == std::to_string(token);  // "01" would be a second "1"
        if (!is_id || token >= request.vocab_size) {
            return tl::unexpected(ApiError{400,
                                           fmt::format("{}: the key is {}, wanted a token id from 0 to {}", field,
                                                       quoted(Json(key)), request.vocab_size - 1),
                                           field, "invalid_value"});
        }
        auto bias = number(place, one, -kMaxLogitBias, kMaxLogitBias);
        if (!bias) return tl::unexpected(std::move(bias).error());
        sorted[token] = *bias;
    }
    for (const auto& [token, bias] : sorted) request.sampling.logit_bias.push_back({token, bias});
    return {};
}

FieldStatus read_stop(const std::string& field, const Json& value, GenerateRequest& request) {
    const Json list = value.is_array() ? value : Json::array({value});
    bool texts = list.size() <= kMaxStops;
    for (const Json& stop : list) {
        texts = texts && stop.is_string() && !stop.get_ref<const std::string&>().empty();
        if (texts) request.stop.push_back(stop.get<std::string>());
    }
    if (!texts)
        return tl::unexpected(wrong_field(field, value, fmt::format("a text or up to {}, none empty", kMaxStops)));
    return {};
}

FieldStatus read_stream_options(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object()) return tl::unexpected(wrong_field(field, value, "an object"));
    for (const auto& [key, inner] : value.items()) {
        if (inner.is_null() || (key == "include_obfuscation" && inner == false)) continue;
        bool* flag = nullptr;
        if (key == "include_usage") flag = &request.include_usage;
        if (key == "continuous_usage_stats") flag = &request.continuous_usage;
        if (flag == nullptr)
            return tl::unexpected(wrong_field(field, value, "include_usage and continuous_usage_stats alone"));
        if (auto taken = take(*flag, truth(field + "." + key, inner)); !taken) return taken;
    }
    return {};
}

FieldStatus read_metadata(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object()) return tl::unexpected(wrong_field(field, value, "an object"));
    const auto named = value.find("conversation_id");
    if (request.conversation_id || named == value.end() || named->is_null()) return {};
    return take(request.conversation_id, identifier(field + ".conversation_id", *named));
}

// A number from `least`, or the -1 with which clients say that there is none.
template <typename T>
ApiResult<T> number_or_none(const std::string& field, const Json& value, T none) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const auto number = whole_number(field, value, -1, kMost);
    if (!number)
        return tl::unexpected(
            wrong_field(field, value, fmt::format("a whole number from 0 to {}, or -1 for none", kMost)));
    if (*number == -1) return none;
    return T(*number);
}

using Fields = std::map<std::string, FieldReader, std::less<>>;

const Fields& common_fields() {
    using R = GenerateRequest;
    static const auto kMaxTokens = [](const std::string& f, const Json& v, R& r) {
        return take(r.max_tokens, whole_number(f, v, v == 0 ? 0 : 1));
    };
    static const auto kIgnored = [](const std::string&, const Json&, R&) { return FieldStatus(); };
    static const Fields kFields = {
        {"max_tokens", kMaxTokens},
        {"temperature",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.temperature, number(f, v, 0, 2)); }},
        {"top_p",
         [](const auto& f, const Json& v, R& r) {
             auto part = number(f, v, 0, 1);
             if (!part || *part == 0) part = tl::unexpected(wrong_field(f, v, "a number above 0, up to 1"));
             return take(r.sampling.top_p, std::move(part));
         }},
        {"top_k",
         [](const auto& f, const Json& v, R& r) {
             auto count = number_or_none<int64_t>(f, v, 0);
             if (count && *count > std::numeric_limits<int32_t>::max()) count = 0;  // more than any vocabulary: off
             return take(r.sampling.top_k, std::move(count));
         }},
        {"presence_penalty",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.presence_penalty, number(f, v, -2, 2)); }},
        {"frequency_penalty",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.frequency_penalty, number(f, v, -2, 2)); }},
        {"repetition_penalty", [](const auto& f, const Json& v,
                                  R& r) { return take(r.sampling.repetition_penalty, number(f, v, 0.01, 10)); }},
        {"seed", [](const auto& f, const Json& v,
                    R& r) { return take(r.seed, number_or_none<std::optional<uint64_t>>(f, v, {})); }},
        {"stream", [](const auto& f, const Json& v, R& r) { return take(r.stream, truth(f, v)); }},
        {"stop", read_stop},
        {"stop_token_ids",
         [](const auto& f, const Json& v, R& r) {
             if (v.is_array() && v.size() > kMaxStopTokens)
                 return FieldStatus(tl::unexpected(wrong_field(f, v, fmt::format("up to {} ids", kMaxStopTokens))));
             return take(r.stop_token_ids, token_ids(f, v, r.vocab_size, "a list of token ids"));
         }},
        {"stream_options", read_stream_options},
        {"suffix_only", [](const auto& f, const Json& v, R& r) { return take(r.suffix_only, truth(f, v)); }},
        {"turn_id", [](const auto& f, const Json& v, R& r) { return take(r.turn_id, identifier(f, v)); }},
        {"parent_head", [](const auto& f, const Json& v, R& r) { return take(r.parent_head, identifier(f, v)); }},
        {"ignore_eos", [](const auto& f, const Json& v, R& r) { return take(r.ignore_stop, truth(f, v)); }},
        {"return_turn_details", [](const auto& f, const Json& v, R& r) { return take(r.shows_details, truth(f, v)); }},
        {"use_cache", [](const auto& f, const Json& v, R& r) { return take(r.use_cache, truth(f, v)); }},
        {"conversation_id",
         [](const auto& f, const Json& v, R& r) { return take(r.conversation_id, identifier(f, v)); }},
        {"cache_salt", [](const auto& f, const Json& v, R& r) { return take(r.cache_salt, identifier(f, v)); }},
        {"metadata", read_metadata},
        {"prompt_cache_key",
         [](const auto& f, const Json& v, R& r) { return take(r.prompt_cache_key, identifier(f, v)); }},
        {"n",
         [](const auto& f, const Json& v, R& r) { return take(r.num_choices, whole_number(f, v, 1, kMaxChoices)); }},
        {"min_p", [](const auto& f, const Json& v, R& r) { return take(r.sampling.min_p, number(f, v, 0, 1)); }},
        {"min_tokens",
         [](const auto& f, const Json& v, R& r) {
             return take(r.sampling.min_tokens, whole_number(f, v, 0, std::numeric_limits<int32_t>::max()));
         }},
        {"logit_bias", read_logit_bias},
        {"prompt_logprobs", [](const auto& f, const Json& v,
                               R& r) { return take(r.num_prompt_log_probs, whole_number(f, v, 0, kMaxChatLogProbs)); }},
        {"logprob_start_len",
         [](const auto& f, const Json& v, R& r) { return take(r.scored_from, number_or_none<int64_t>(f, v, 0)); }},
        {"user", kIgnored},
        {"safety_identifier", kIgnored},
    };
    return kFields;
}

// Chats say whether, and of how many others; completions say how many.
FieldStatus read_log_probs(const std::string& field, const Json& value, GenerateRequest& request) {
    if (request.kind == ApiKind::kCompletion)
        return take(request.num_log_probs, whole_number(field, value, 0, kMaxCompletionLogProbs));
    bool wanted = false;
    if (auto taken = take(wanted, truth(field, value)); !taken) return taken;
    if (wanted) request.num_log_probs = request.num_log_probs.value_or(0);
    return {};
}

FieldStatus read_top_log_probs(const std::string& field, const Json& value, GenerateRequest& request) {
    auto number = whole_number(field, value, 0, kMaxChatLogProbs);
    if (number && *number == 0) return {};  // none beyond what logprobs asks for
    return take(request.num_log_probs, std::move(number));
}

// What read_chat() reads, when all of it is there.
constexpr std::array<std::string_view, 8> kChatFields = {
    "messages",    "add_generation_prompt", "continue_final_message", "tools",
    "tool_choice", "parallel_tool_calls",   "chat_template_kwargs",   "reasoning_effort"};

const Fields& chat_fields() {
    static const Fields kFields = {
        {"max_completion_tokens", common_fields().at("max_tokens")},
        {"logprobs", read_log_probs},
        {"top_logprobs", read_top_log_probs},
    };
    return kFields;
}

const Fields& completion_fields() {
    static const Fields kFields = {
        {"prompt", read_prompt},
        {"echo", [](const auto& f, const Json& v, GenerateRequest& r) { return take(r.echo, truth(f, v)); }},
        {"best_of", [](const auto& f, const Json& v,
                       GenerateRequest& r) { return take(r.best_of, whole_number(f, v, 1, kMaxChoices)); }},
        {"logprobs", read_log_probs},
    };
    return kFields;
}

// One field says it.
FieldStatus read_form(const std::string& field, const Json& value, GenerateRequest& request) {
    auto asked = read_grammar(field, value);
    if (!asked) return tl::unexpected(std::move(asked).error());
    if (asked->text.empty()) return {};
    if (!request.grammar.empty()) {
        return tl::unexpected(ApiError{
            422, fmt::format("{} and {} both say what form the answer has: send one", request.grammar_field, field),
            field, "contradicting_values"});
    }
    request.grammar = std::move(asked->text);
    request.grammar_field = std::move(asked->field);
    return {};
}

FieldStatus read_field(const std::string& field, const Json& value, GenerateRequest& request) {
    const bool is_chat = request.kind == ApiKind::kChat;
    if (is_chat && std::ranges::count(kChatFields, field) > 0) return {};
    if (is_of_structured_output(field)) return read_form(field, value, request);
    const Fields& own = is_chat ? chat_fields() : completion_fields();
    for (const Fields* fields : {&common_fields(), &own}) {
        const auto known = fields->find(field);
        if (known != fields->end()) return known->second(field, value, request);
    }
    if (auto problem = problem_of_usual_value(request.kind, field, value)) return tl::unexpected(*std::move(problem));
    return {};
}

FieldStatus check_model(const Json& json, const ModelNames& model) {
    const auto said = json.find("model");
    if (said == json.end() || said->is_null()) return {};
    if (said->is_string() && model.contains(said->get_ref<const std::string&>())) return {};
    return tl::unexpected(ApiError{404,
                                   fmt::format("model {} is not here: {} {}", quoted(*said), fmt::join(model.all, ", "),
                                               model.all.size() == 1 ? "is" : "are"),
                                   "model", "model_not_found"});
}

// What a turn_id stands for. Members have no order; how the answer is sent, and where it goes on, is not what is asked.
Digest content_of(ApiKind kind, const Json& json) {
    nlohmann::json asked = json;
    for (const char* field : {"stream", "stream_options", "parent_head", "turn_id", "user", "return_turn_details"})
        asked.erase(field);
    Digester digester;
    digester.add(kind);
    digester.add(std::string_view(asked.dump()));
    return digester.digest();
}

FieldStatus check_turn_id(const GenerateRequest& request) {
    if (!request.turn_id) return {};
    const auto beside = [](const char* field) {
        return tl::unexpected(
            ApiError{400, fmt::format("{} is not supported beside turn_id", field), field, "unsupported_value"});
    };
    if (request.num_choices != 1) return beside("n");
    if (request.best_of.value_or(1) != 1) return beside("best_of");
    if (request.num_prompts() > 1) return beside("a list of prompts");
    if (request.echo) return beside("echo");
    if (request.num_prompt_log_probs) return beside("prompt_logprobs");
    if (request.num_log_probs) return beside("logprobs");
    return {};
}

// Each of two values is right by itself, and both cannot be meant.
ApiError contradiction(std::string message, const char* param) {
    return {422, std::move(message), param, "contradicting_values"};
}

FieldStatus check_agreement(const Json& json, const GenerateRequest& request) {
    const auto said = [&json](const char* field) { return json.contains(field) && !json[field].is_null(); };
    const bool two_limits = said("max_tokens") && said("max_completion_tokens");
    if (two_limits && json["max_tokens"].get<int64_t>() != json["max_completion_tokens"].get<int64_t>()) {
        return tl::unexpected(
            contradiction(fmt::format("max_completion_tokens is {} and max_tokens is {}: send one",
                                      quoted(json["max_completion_tokens"]), quoted(json["max_tokens"])),
                          "max_completion_tokens"));
    }
    if (said("top_logprobs") && json.value("logprobs", Json()) != true && request.num_log_probs) {
        return tl::unexpected(contradiction(fmt::format("top_logprobs is {} without log probabilities: send logprobs = "
                                                        "true beside it",
                                                        quoted(json["top_logprobs"])),
                                            "top_logprobs"));
    }
    return {};
}

// What is asked of the prompt and of the choices, taken together.
FieldStatus check_scoring(const Json& json, const GenerateRequest& request) {
    const auto wrong = [](const char* field, std::string message) {
        return tl::unexpected(ApiError{400, std::move(message), field, "invalid_value"});
    };
    if (request.best_of.value_or(request.num_choices) < request.num_choices) {
        return wrong("best_of", fmt::format("best_of is {}, wanted at least n, which is {}", *request.best_of,
                                            request.num_choices));
    }
    if (request.stream && request.best_of.value_or(request.num_choices) > request.num_choices)
        return wrong("best_of", "best_of of more than n is known when all choices are: it has no stream");
    if (request.stream && request.num_prompt_log_probs)
        return wrong("prompt_logprobs", "prompt_logprobs are in whole answers alone: echo and logprobs have a stream");
    if (request.max_tokens != 0 || request.echo || request.num_prompt_log_probs) return {};
    const char* field = json.value("max_tokens", Json()) == 0 ? "max_tokens" : "max_completion_tokens";
    return tl::unexpected(wrong_field(field, json[field],
                                      fmt::format("a whole number from 1 to {}, or 0 with echo or prompt_logprobs",
                                                  std::numeric_limits<int64_t>::max())));
}

}  // namespace

const char* input_field(ApiKind kind) { return kind == ApiKind::kChat ? "messages" : "prompt"; }

bool ModelNames::contains(std::string_view name) const {
    return takes_any || std::ranges::find(all, name) != all.end();
}

std::string ApiError::type() const {
    if (status == 404) return "not_found_error";
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

Json ApiError::envelope() const {
    const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return {{"error", {{"message", message}, {"type", type()}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

ApiError api_error(const Refusal& refusal) {
    ApiError error{400, refusal.message(), "", name(refusal.reason)};
    switch (refusal.reason) {
        case RefusalReason::kUnknownConversation: error.status = 404; break;
        case RefusalReason::kBusy:
        case RefusalReason::kParentMismatch:
        case RefusalReason::kNameTaken:
        case RefusalReason::kTurnMismatch:
        case RefusalReason::kTurnDeleted: error.status = 409; break;
        default: break;
    }
    const bool too_long = refusal.reason == RefusalReason::kTooLong || refusal.reason == RefusalReason::kTooLarge;
    if (too_long) error.code = "context_length_exceeded";
    return error;
}

ApiError ledger_problem(const std::string& why) {
    return {503, "the ledger cannot be used: " + why, "", "ledger_unavailable"};
}

bool is_identifier(std::string_view text) {
    return !text.empty() && text.size() <= kMaxIdBytes && !text::first_invalid_utf8(text) &&
           std::ranges::none_of(text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
}

ApiResult<Json> parse_body(std::string_view body) {
    auto json = parse_strict_ordered_json(body, "the body");
    if (!json) return tl::unexpected(ApiError{400, json.error().message, "", "invalid_json"});
    if (!json->is_object()) return tl::unexpected(ApiError{400, "the body is no JSON object", "", "invalid_json"});
    return *std::move(json);
}

ApiResult<GenerateRequest> parse_generate_request(ApiKind kind, std::string_view body, const ModelNames& model,
                                                  int32_t vocab_size) {
    const ApiResult<Json> json = parse_body(body);
    if (!json) return tl::unexpected(json.error());
    return read_generate_request(kind, *json, model, vocab_size);
}

ApiResult<GenerateRequest> read_generate_request(ApiKind kind, const Json& json, const ModelNames& model,
                                                 int32_t vocab_size) {
    GenerateRequest request;
    request.kind = kind;
    request.vocab_size = vocab_size;
    request.sampling.temperature = 1;
    // What a client says of its conversation in the body comes before what its metadata say.
    if (json.contains("conversation_id") && !json["conversation_id"].is_null()) {
        if (auto read = read_field("conversation_id", json["conversation_id"], request); !read)
            return tl::unexpected(read.error());
    }
    for (const auto& [field, value] : json.items()) {
        if (value.is_null() || field == "model") continue;
        if (auto read = read_field(field, value, request); !read) return tl::unexpected(read.error());
    }
    if (auto right = check_model(json, model); !right) return tl::unexpected(right.error());
    const char* input = input_field(kind);
    if (!json.contains(input) || json[input].is_null()) return tl::unexpected(missing_field(input));
    if (kind == ApiKind::kChat) {
        if (auto read = take(request.chat, read_chat(json)); !read) return tl::unexpected(read.error());
    }
    if (auto right = check_turn_id(request); !right) return tl::unexpected(right.error());
    if (request.turn_id) request.content = content_of(kind, json);
    if (auto right = check_agreement(json, request); !right) return tl::unexpected(right.error());
    if (auto right = check_scoring(json, request); !right) return tl::unexpected(right.error());
    if (auto problem = problem_beside_grammar(request)) return tl::unexpected(*std::move(problem));
    return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ModelNames& model) {
    const ApiResult<Json> json = parse_body(body);
    if (!json) return tl::unexpected(json.error());
    return read_tokenize_request(*json, model);
}

ApiResult<TokenizeRequest> read_tokenize_request(const Json& json, const ModelNames& model) {
    TokenizeRequest request;
    for (const auto& [field, value] : json.items()) {
        FieldStatus read;
        if (value.is_null() || field == "model") continue;
        if (field == "prompt" && value.is_string())
            request.prompt = value.get<std::string>();
        else if (field == "prompt")
            read = tl::unexpected(wrong_field(field, value, "a text"));
        else if (field == "add_special_tokens")
            read = take(request.add_special_tokens, truth(field, value));
        else if (std::ranges::count(kChatFields, field) == 0)
            read = tl::unexpected(ApiError{400, field + " is not supported", field, "unsupported_parameter"});
        if (!read) return tl::unexpected(read.error());
    }
    if (auto right = check_model(json, model); !right) return tl::unexpected(right.error());
    const bool is_chat = json.contains("messages") && !json["messages"].is_null();
    if (!request.prompt && !is_chat) return tl::unexpected(missing_field("prompt"));
    if (is_chat) {
        if (auto read = take(request.chat, read_chat(json)); !read) return tl::unexpected(read.error());
    }
    if (request.prompt && is_chat)
        return tl::unexpected(contradiction("there are a prompt and messages: send one", "prompt"));
    return request;
}

ApiResult<std::vector<TokenId>> parse_detokenize_request(std::string_view body, const ModelNames& model,
                                                         int32_t vocab_size) {
    const ApiResult<Json> json = parse_body(body);
    if (!json) return tl::unexpected(json.error());
    for (const auto& [field, value] : json->items()) {
        if (!value.is_null() && field != "model" && field != "tokens")
            return tl::unexpected(ApiError{400, field + " is not supported", field, "unsupported_parameter"});
    }
    if (auto right = check_model(*json, model); !right) return tl::unexpected(right.error());
    if (!json->contains("tokens") || (*json)["tokens"].is_null()) return tl::unexpected(missing_field("tokens"));
    return token_ids("tokens", (*json)["tokens"], vocab_size, "a list of token ids");
}

}  // namespace verbatim::server
