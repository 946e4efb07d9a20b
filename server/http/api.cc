#include "server/http/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "reference/model/strict_json.h"
#include "server/text/utf8.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxStops = 16;
constexpr int64_t kMaxChoices = 16;
constexpr int64_t kMaxChatLogProbs = 20;
constexpr int64_t kMaxCompletionLogProbs = 5;

std::string quoted(const Json& value) { return reference::quote_json(nlohmann::json(value)); }

ApiError wrong(const std::string& field, const Json& value, std::string_view wanted) {
    return {400, fmt::format("{} is {}, wanted {}", field, quoted(value), wanted), field, "invalid_value"};
}

ApiResult<int64_t> whole_number(const std::string& field, const Json& value, int64_t least,
                                int64_t most = std::numeric_limits<int64_t>::max()) {
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                          : value.is_number_integer();
    if (fits && value.get<int64_t>() >= least && value.get<int64_t>() <= most) return value.get<int64_t>();
    const bool bounded = most != std::numeric_limits<int64_t>::max();
    const std::string range = bounded ? fmt::format("{} to {}", least, most) : fmt::format("{}", least);
    return tl::unexpected(wrong(field, value, "a whole number from " + range));
}

ApiResult<float> number(const std::string& field, const Json& value, double least, double most) {
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
        return tl::unexpected(wrong(field, value, fmt::format("a number from {} to {}", least, most)));
    return value.get<float>();
}

ApiResult<bool> truth(const std::string& field, const Json& value) {
    if (!value.is_boolean()) return tl::unexpected(wrong(field, value, "true or false"));
    return value.get<bool>();
}

ApiResult<std::string> identifier(const std::string& field, const Json& value) {
    if (!value.is_string() || !is_identifier(value.get_ref<const std::string&>())) {
        return tl::unexpected(
            wrong(field, value, fmt::format("a text of 1 to {} bytes without control characters", kMaxIdBytes)));
    }
    return value.get<std::string>();
}

using FieldStatus = tl::expected<void, ApiError>;

template <typename T, typename U>
FieldStatus take(T& to, ApiResult<U> value) {
    if (!value) return tl::unexpected(std::move(value).error());
    to = *std::move(value);
    return {};
}

using FieldReader = std::function<FieldStatus(const std::string&, const Json&, GenerateRequest&)>;

// `wanted`: of a value that is no list. An element's error names its place and the model's range.
ApiResult<std::vector<TokenId>> token_ids(const std::string& field, const Json& value, int32_t vocab_size,
                                          std::string_view wanted) {
    if (!value.is_array()) return tl::unexpected(wrong(field, value, wanted));
    std::vector<TokenId> ids;
    for (const Json& id : value) {
        const auto token = whole_number(field, id, 0, vocab_size - 1);
        if (!token) {
            return tl::unexpected(ApiError{400,
                                           fmt::format("{}[{}] is {}, wanted a token id from 0 to {}", field,
                                                       ids.size(), quoted(id), vocab_size - 1),
                                           field, "invalid_value"});
        }
        ids.push_back(static_cast<TokenId>(*token));
    }
    return ids;
}

FieldStatus read_prompt(const std::string& field, const Json& value, GenerateRequest& request) {
    constexpr std::string_view kWanted = "a text or a list of token ids (one prompt)";
    if (value.is_string()) return request.prompt = value.get<std::string>(), FieldStatus();
    if (value.empty()) return tl::unexpected(wrong(field, value, kWanted));
    request.prompt_is_ids = true;
    return take(request.prompt_ids, token_ids(field, value, request.vocab_size, kWanted));
}

// A content of parts becomes their text, a line for each: templates need not know of parts.
ApiResult<std::string> joined_parts(const std::string& field, const Json& parts) {
    std::string text;
    for (const Json& part : parts) {
        const bool is_text = part.is_object() && part.value("type", Json()) == "text" && part.contains("text");
        if (!is_text || !part["text"].is_string())
            return tl::unexpected(wrong(field, part, R"({"type": "text", "text": a text} as every part of a content)"));
        if (&part != &parts.front()) text += '\n';
        text += part["text"].get_ref<const std::string&>();
    }
    return text;
}

ApiResult<std::vector<std::string>> messages_of(const std::string& field, const Json& value) {
    const auto has_role = [](const Json& message) {
        return message.is_object() && message.contains("role") && message["role"].is_string();
    };
    if (!value.is_array() || value.empty() || !std::ranges::all_of(value, has_role))
        return tl::unexpected(wrong(field, value, "a list of objects with a role"));
    std::vector<std::string> messages;
    for (const Json& message : value) {
        const auto content = message.find("content");
        if (content == message.end() || !content->is_array()) {
            messages.push_back(text::written(message));
            continue;
        }
        auto text = joined_parts(field, *content);
        if (!text) return tl::unexpected(text.error());
        Json joined = message;
        joined["content"] = *std::move(text);
        messages.push_back(text::written(joined));
    }
    return messages;
}

FieldStatus read_messages(const std::string& field, const Json& value, GenerateRequest& request) {
    return take(request.messages, messages_of(field, value));
}

FieldStatus read_stop(const std::string& field, const Json& value, GenerateRequest& request) {
    const Json list = value.is_array() ? value : Json::array({value});
    bool texts = list.size() <= kMaxStops;
    for (const Json& stop : list) {
        texts = texts && stop.is_string() && !stop.get_ref<const std::string&>().empty();
        if (texts) request.stop.push_back(stop.get<std::string>());
    }
    if (!texts) return tl::unexpected(wrong(field, value, fmt::format("a text or up to {}, none empty", kMaxStops)));
    return {};
}

FieldStatus read_stream_options(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object()) return tl::unexpected(wrong(field, value, "an object"));
    for (const auto& [key, inner] : value.items()) {
        if (key == "include_obfuscation" && inner == false) continue;
        if (key != "include_usage") return tl::unexpected(wrong(field, value, "include_usage alone"));
        if (auto taken = take(request.include_usage, truth(field + ".include_usage", inner)); !taken) return taken;
    }
    return {};
}

FieldStatus read_metadata(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object()) return tl::unexpected(wrong(field, value, "an object"));
    const auto named = value.find("conversation_id");
    if (request.conversation_id || named == value.end() || named->is_null()) return {};
    return take(request.conversation_id, identifier(field + ".conversation_id", *named));
}

// A field that is served with one value alone.
FieldReader only(Json served) {
    return [served = std::move(served)](const std::string& field, const Json& value, GenerateRequest&) -> FieldStatus {
        if (value == served) return {};
        return tl::unexpected(
            ApiError{400, fmt::format("{} = {} is not supported: {} is", field, quoted(value), quoted(served)), field,
                     "unsupported_value"});
    };
}

using Fields = std::map<std::string, FieldReader, std::less<>>;

const Fields& common_fields() {
    using R = GenerateRequest;
    static const auto kMaxTokens = [](const std::string& f, const Json& v, R& r) {
        return take(r.max_tokens, whole_number(f, v, 1));
    };
    static const auto kIgnored = [](const std::string&, const Json&, R&) { return FieldStatus(); };
    static const Fields kFields = {
        {"max_tokens", kMaxTokens},
        {"temperature",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.temperature, number(f, v, 0, 2)); }},
        {"top_p",
         [](const auto& f, const Json& v, R& r) {
             auto part = number(f, v, 0, 1);
             if (part && *part == 0) part = tl::unexpected(wrong(f, v, "a number above 0, up to 1"));
             return take(r.sampling.top_p, std::move(part));
         }},
        {"top_k",
         [](const auto& f, const Json& v, R& r) {
             auto count = v == -1 ? ApiResult<int64_t>(0) : whole_number(f, v, 0);
             if (count && *count > std::numeric_limits<int32_t>::max()) count = 0;  // more than any vocabulary: off
             return take(r.sampling.top_k, std::move(count));
         }},
        {"presence_penalty",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.presence_penalty, number(f, v, -2, 2)); }},
        {"frequency_penalty",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.frequency_penalty, number(f, v, -2, 2)); }},
        {"repetition_penalty", [](const auto& f, const Json& v,
                                  R& r) { return take(r.sampling.repetition_penalty, number(f, v, 0.01, 10)); }},
        {"seed", [](const auto& f, const Json& v, R& r) { return take(r.seed, whole_number(f, v, 0)); }},
        {"stream", [](const auto& f, const Json& v, R& r) { return take(r.stream, truth(f, v)); }},
        {"stop", read_stop},
        {"stream_options", read_stream_options},
        {"suffix_only", [](const auto& f, const Json& v, R& r) { return take(r.suffix_only, truth(f, v)); }},
        {"turn_id", [](const auto& f, const Json& v, R& r) { return take(r.turn_id, identifier(f, v)); }},
        {"parent_head", [](const auto& f, const Json& v, R& r) { return take(r.parent_head, identifier(f, v)); }},
        {"ignore_eos", [](const auto& f, const Json& v, R& r) { return take(r.ignore_stop, truth(f, v)); }},
        {"use_cache", [](const auto& f, const Json& v, R& r) { return take(r.use_cache, truth(f, v)); }},
        {"conversation_id",
         [](const auto& f, const Json& v, R& r) { return take(r.conversation_id, identifier(f, v)); }},
        {"cache_salt", [](const auto& f, const Json& v, R& r) { return take(r.cache_salt, identifier(f, v)); }},
        {"metadata", read_metadata},
        {"prompt_cache_key",
         [](const auto& f, const Json& v, R& r) { return take(r.prompt_cache_key, identifier(f, v)); }},
        {"n",
         [](const auto& f, const Json& v, R& r) { return take(r.num_choices, whole_number(f, v, 1, kMaxChoices)); }},
        {"logit_bias", only(Json::object())},
        {"user", kIgnored},
        {"safety_identifier", kIgnored},
        {"store", only(false)},
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
    return take(request.num_log_probs, whole_number(field, value, 0, kMaxChatLogProbs));
}

const Fields& chat_fields() {
    static const Fields kFields = {
        {"messages", read_messages},
        {"max_completion_tokens", common_fields().at("max_tokens")},
        {"logprobs", read_log_probs},
        {"top_logprobs", read_top_log_probs},
        {"response_format", only({{"type", "text"}})},
        {"tools", only(Json::array())},
        {"tool_choice", only("none")},
        {"modalities", only(Json::array({"text"}))},
    };
    return kFields;
}

const Fields& completion_fields() {
    static const Fields kFields = {
        {"prompt", read_prompt},
        {"logprobs", read_log_probs},
        {"echo", only(false)},
        {"best_of", only(1)},
    };
    return kFields;
}

FieldStatus read_field(const std::string& field, const Json& value, GenerateRequest& request) {
    const Fields& own = request.kind == ApiKind::kChat ? chat_fields() : completion_fields();
    for (const Fields* fields : {&common_fields(), &own}) {
        const auto known = fields->find(field);
        if (known != fields->end()) return known->second(field, value, request);
    }
    return tl::unexpected(ApiError{400, fmt::format("{} is not supported", field), field, "unsupported_parameter"});
}

// The body as an object with nothing ambiguous in it.
ApiResult<Json> object_of(std::string_view body) {
    auto json = reference::parse_strict_ordered_json(body, "the body");
    if (!json) return tl::unexpected(ApiError{400, json.error().message, "", "invalid_json"});
    if (!json->is_object()) return tl::unexpected(ApiError{400, "the body is no JSON object", "", "invalid_json"});
    return *std::move(json);
}

FieldStatus check_model(const Json& json, const std::string& model) {
    if (!json.contains("model") || json["model"].is_null() || json["model"] == model) return {};
    return tl::unexpected(ApiError{404, fmt::format("model {} is not here: {} is", quoted(json["model"]), model),
                                   "model", "model_not_found"});
}

// What a turn_id stands for. Members have no order; how the answer is sent, and where it goes on, is not what is asked.
Digest content_of(ApiKind kind, const Json& json) {
    nlohmann::json asked = json;
    for (const char* field : {"stream", "stream_options", "parent_head", "turn_id", "user"}) asked.erase(field);
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

ApiError missing(const char* field) {
    return {400, fmt::format("{} is missing", field), field, "missing_required_parameter"};
}

}  // namespace

const char* input_field(ApiKind kind) { return kind == ApiKind::kChat ? "messages" : "prompt"; }

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
    ApiError error{400, refusal.message, "", name(refusal.reason)};
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

bool is_identifier(std::string_view text) {
    return !text.empty() && text.size() <= kMaxIdBytes && !text::first_invalid_utf8(text) &&
           std::ranges::none_of(text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
}

ApiResult<GenerateRequest> parse_generate_request(ApiKind kind, std::string_view body, const std::string& model,
                                                  int32_t vocab_size) {
    const ApiResult<Json> object = object_of(body);
    if (!object) return tl::unexpected(object.error());
    const Json& json = *object;
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
    if (!json.contains(input) || json[input].is_null()) return tl::unexpected(missing(input));
    if (auto right = check_turn_id(request); !right) return tl::unexpected(right.error());
    if (request.turn_id) request.content = content_of(kind, json);
    if (auto right = check_agreement(json, request); !right) return tl::unexpected(right.error());
    return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const std::string& model) {
    const ApiResult<Json> json = object_of(body);
    if (!json) return tl::unexpected(json.error());
    TokenizeRequest request;
    for (const auto& [field, value] : json->items()) {
        FieldStatus read;
        if (value.is_null() || field == "model") continue;
        if (field == "prompt" && value.is_string())
            request.prompt = value.get<std::string>();
        else if (field == "prompt")
            read = tl::unexpected(wrong(field, value, "a text"));
        else if (field == "messages")
            read = take(request.messages, messages_of(field, value));
        else if (field == "add_special_tokens")
            read = take(request.add_special_tokens, truth(field, value));
        else if (field == "add_generation_prompt")
            read = take(request.add_generation_prompt, truth(field, value));
        else
            read = tl::unexpected(ApiError{400, field + " is not supported", field, "unsupported_parameter"});
        if (!read) return tl::unexpected(read.error());
    }
    if (auto right = check_model(*json, model); !right) return tl::unexpected(right.error());
    if (!request.prompt && request.messages.empty()) return tl::unexpected(missing("prompt"));
    if (request.prompt && !request.messages.empty())
        return tl::unexpected(contradiction("there are a prompt and messages: send one", "prompt"));
    return request;
}

ApiResult<std::vector<TokenId>> parse_detokenize_request(std::string_view body, const std::string& model,
                                                         int32_t vocab_size) {
    const ApiResult<Json> json = object_of(body);
    if (!json) return tl::unexpected(json.error());
    for (const auto& [field, value] : json->items()) {
        if (field != "model" && field != "tokens")
            return tl::unexpected(ApiError{400, field + " is not supported", field, "unsupported_parameter"});
    }
    if (auto right = check_model(*json, model); !right) return tl::unexpected(right.error());
    if (!json->contains("tokens")) return tl::unexpected(missing("tokens"));
    return token_ids("tokens", (*json)["tokens"], vocab_size, "a list of token ids");
}

}  // namespace verbatim::server
