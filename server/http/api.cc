#include "server/http/api.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "reference/model/strict_json.h"

namespace verbatim::server {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxStops = 16;

std::string quoted(const Json& value) { return reference::quote_json(nlohmann::json(value)); }

ApiError wrong(const std::string& field, const Json& value, std::string_view wanted) {
    return {400, fmt::format("{} is {}, wanted {}", field, quoted(value), wanted), field, "invalid_value"};
}

ApiResult<int64_t> whole_number(const std::string& field, const Json& value, int64_t least) {
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                          : value.is_number_integer();
    if (!fits || value.get<int64_t>() < least)
        return tl::unexpected(wrong(field, value, fmt::format("a whole number from {}", least)));
    return value.get<int64_t>();
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
    if (!value.is_string() || value.get_ref<const std::string&>().empty() ||
        value.get_ref<const std::string&>().size() > kMaxIdBytes)
        return tl::unexpected(wrong(field, value, fmt::format("a text of 1 to {} bytes", kMaxIdBytes)));
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

FieldStatus read_prompt(const std::string& field, const Json& value, GenerateRequest& request) {
    if (value.is_string()) return request.prompt = value.get<std::string>(), FieldStatus();
    if (!value.is_array() || value.empty())
        return tl::unexpected(wrong(field, value, "a text or a list of token ids (one prompt)"));
    request.prompt_is_ids = true;
    for (const Json& id : value) {
        const auto token = whole_number(field, id, 0);
        if (!token || *token > std::numeric_limits<TokenId>::max())
            return tl::unexpected(wrong(field, id, "a text or a list of token ids (one prompt)"));
        request.prompt_ids.push_back(static_cast<TokenId>(*token));
    }
    return {};
}

FieldStatus read_messages(const std::string& field, const Json& value, GenerateRequest& request) {
    bool objects = value.is_array() && !value.empty();
    for (const Json& message : value) objects = objects && message.is_object() && message.contains("role");
    if (!objects) return tl::unexpected(wrong(field, value, "a list of objects with a role"));
    request.messages = value;
    return {};
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
        if (key != "include_usage") return tl::unexpected(wrong(field, value, "include_usage alone"));
        if (auto taken = take(request.include_usage, truth(field + ".include_usage", inner)); !taken) return taken;
    }
    return {};
}

FieldStatus read_metadata(const std::string& field, const Json& value, GenerateRequest& request) {
    if (!value.is_object()) return tl::unexpected(wrong(field, value, "an object"));
    if (request.conversation_id || !value.contains("conversation_id")) return {};
    return take(request.conversation_id, identifier(field + ".conversation_id", value["conversation_id"]));
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

const std::map<std::string, FieldReader, std::less<>>& common_fields() {
    using R = GenerateRequest;
    static const auto kMaxTokens = [](const std::string& f, const Json& v, R& r) {
        return take(r.max_tokens, whole_number(f, v, 1));
    };
    static const auto kIgnored = [](const std::string&, const Json&, R&) { return FieldStatus(); };
    static const std::map<std::string, FieldReader, std::less<>> kFields = {
        {"max_tokens", kMaxTokens},
        {"temperature",
         [](const auto& f, const Json& v, R& r) { return take(r.sampling.temperature, number(f, v, 0, 2)); }},
        {"top_p", [](const auto& f, const Json& v, R& r) { return take(r.sampling.top_p, number(f, v, 0, 1)); }},
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
        {"ignore_eos", [](const auto& f, const Json& v, R& r) { return take(r.ignore_stop, truth(f, v)); }},
        {"use_cache", [](const auto& f, const Json& v, R& r) { return take(r.use_cache, truth(f, v)); }},
        {"conversation_id",
         [](const auto& f, const Json& v, R& r) { return take(r.conversation_id, identifier(f, v)); }},
        {"cache_salt", [](const auto& f, const Json& v, R& r) { return take(r.cache_salt, identifier(f, v)); }},
        {"metadata", read_metadata},
        {"n", only(1)},
        {"user", kIgnored},
        {"store", only(false)},
    };
    return kFields;
}

FieldStatus read_field(const std::string& field, const Json& value, GenerateRequest& request) {
    const auto known = common_fields().find(field);
    if (known != common_fields().end()) return known->second(field, value, request);
    if (request.kind == ApiKind::kChat) {
        if (field == "messages") return read_messages(field, value, request);
        if (field == "max_completion_tokens") return common_fields().at("max_tokens")(field, value, request);
        if (field == "logprobs") return only(false)(field, value, request);
        if (field == "response_format") return only({{"type", "text"}})(field, value, request);
    } else {
        if (field == "prompt") return read_prompt(field, value, request);
        if (field == "echo") return only(false)(field, value, request);
        if (field == "best_of") return only(1)(field, value, request);
    }
    return tl::unexpected(ApiError{400, fmt::format("{} is not supported", field), field, "unsupported_parameter"});
}

Json frame_json(const AnswerFrame& frame, const char* object) {
    return {{"id", frame.id},
            {"object", object},
            {"created", frame.created},
            {"model", frame.model},
            {"system_fingerprint", frame.fingerprint}};
}

Json usage_json(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// One choice of a stream: what it adds, and how it ended.
Json chunk(const AnswerFrame& frame, const Json& delta, const std::string& text, const Json& reason) {
    const bool is_chat = frame.kind == ApiKind::kChat;
    Json json = frame_json(frame, is_chat ? "chat.completion.chunk" : "text_completion");
    Json choice = {{"index", 0}};
    if (is_chat)
        choice["delta"] = delta;
    else
        choice["text"] = text;
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = reason;
    json["choices"] = Json::array({choice});
    return json;
}

}  // namespace

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
    if (refusal.reason == RefusalReason::kBusy) error.status = 409;
    const bool too_long = refusal.reason == RefusalReason::kTooLong || refusal.reason == RefusalReason::kTooLarge;
    if (too_long) error.code = "context_length_exceeded";
    return error;
}

ApiResult<GenerateRequest> parse_generate_request(ApiKind kind, std::string_view body, const std::string& model) {
    if (const auto strict = reference::parse_strict_json(body, "the body"); !strict)
        return tl::unexpected(ApiError{400, strict.error().message, "", "invalid_json"});
    const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return tl::unexpected(ApiError{400, "the body is no JSON object", "", "invalid_json"});
    GenerateRequest request;
    request.kind = kind;
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
    if (json.contains("model") && json["model"] != model)
        return tl::unexpected(ApiError{404, fmt::format("model {} is not here: {} is", quoted(json["model"]), model),
                                       "model", "model_not_found"});
    const char* input = kind == ApiKind::kChat ? "messages" : "prompt";
    if (!json.contains(input) || json[input].is_null())
        return tl::unexpected(ApiError{400, fmt::format("{} is missing", input), input, "missing_required_parameter"});
    return request;
}

const char* finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

Json whole_answer(const AnswerFrame& frame, const std::string& text, FinishReason reason, const Usage& usage) {
    const bool is_chat = frame.kind == ApiKind::kChat;
    Json json = frame_json(frame, is_chat ? "chat.completion" : "text_completion");
    Json choice = {{"index", 0}};
    if (is_chat)
        choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    else
        choice["text"] = text;
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_name(reason);
    json["choices"] = Json::array({choice});
    json["usage"] = usage_json(usage);
    return json;
}

Json role_chunk(const AnswerFrame& frame) {
    return chunk(frame, {{"role", "assistant"}, {"content", ""}}, "", nullptr);
}

Json text_chunk(const AnswerFrame& frame, const std::string& text) {
    return chunk(frame, {{"content", text}}, text, nullptr);
}

Json finish_chunk(const AnswerFrame& frame, FinishReason reason) {
    return chunk(frame, Json::object(), "", finish_name(reason));
}

Json usage_chunk(const AnswerFrame& frame, const Usage& usage) {
    Json json = frame_json(frame, frame.kind == ApiKind::kChat ? "chat.completion.chunk" : "text_completion");
    json["choices"] = Json::array();
    json["usage"] = usage_json(usage);
    return json;
}

}  // namespace verbatim::server
