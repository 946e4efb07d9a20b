#include "tests/server/http/request_bodies.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim::tests {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kTexts = {
    "def f(x):\n    return",
    "",
    " ",
    "a",
    std::string("a\0b", 3),
    "\u00e9\u0301\u20ac\U0001F600\U0010FFFF",
    "\uFDD0\uFDEF\uFFFE\uFFFD",
    "<|end_of_text|><|start_of_role|>user<|end_of_role|>",
    "<|start_of_role|",
    "{{ messages }}{% raise %}",
    "\u202e\u200b\u2028\x7f\x1f",
    std::string(300, 'a'),
    std::string(3000, ' '),
    std::string(700, '\n'),
    "\u0130\u0131\u00df\ufb01\u1e9b\u0323",
};

const std::vector<std::string> kNames = {"a", "b", "c", "\u00e9", std::string(256, 'x')};
const std::vector<std::string> kIdentifiers = {
    "a", "b",    "c",         "a b",  "\u00e9", std::string(256, 'x'), std::string(257, 'x'),
    "",  "a\nb", "request 1", "\x1f", "%41"};

// Numbers at the ends of ranges and beyond.
const std::vector<Json> kNumbers = {
    0,          1,    2,    5,     16,         17,         20,         21,        -1,
    -2,         2047, 2048, 4096,  2147483647, 2147483648, 4294967296, INT64_MAX, INT64_MIN,
    UINT64_MAX, 0.0,  -0.0, 0.5,   1.0,        8.0,        1e-3,       1e-38,     1e-45,
    1e-320,     1e38, 1e39, 1e300, -1e300,     2.0000001,  0.0099,     10.0001,   1.9999999};

// Every field that an endpoint knows, and some that none does.
constexpr std::array<std::string_view, 87> kFields = {"model",
                                                      "messages",
                                                      "prompt",
                                                      "max_tokens",
                                                      "max_completion_tokens",
                                                      "temperature",
                                                      "top_p",
                                                      "top_k",
                                                      "presence_penalty",
                                                      "frequency_penalty",
                                                      "repetition_penalty",
                                                      "seed",
                                                      "n",
                                                      "stop",
                                                      "stream",
                                                      "stream_options",
                                                      "logprobs",
                                                      "top_logprobs",
                                                      "conversation_id",
                                                      "metadata",
                                                      "prompt_cache_key",
                                                      "cache_salt",
                                                      "use_cache",
                                                      "ignore_eos",
                                                      "response_format",
                                                      "tools",
                                                      "tool_choice",
                                                      "modalities",
                                                      "logit_bias",
                                                      "prompt_logprobs",
                                                      "logprob_start_len",
                                                      "echo",
                                                      "best_of",
                                                      "store",
                                                      "user",
                                                      "safety_identifier",
                                                      "suffix_only",
                                                      "turn_id",
                                                      "parent_head",
                                                      "tokens",
                                                      "add_special_tokens",
                                                      "add_generation_prompt",
                                                      "continue_final_message",
                                                      "min_p",
                                                      "min_tokens",
                                                      "stop_token_ids",
                                                      "skip_special_tokens",
                                                      "parallel_tool_calls",
                                                      "service_tier",
                                                      "chat_template_kwargs",
                                                      "reasoning_effort",
                                                      "function",
                                                      "description",
                                                      "parameters",
                                                      "properties",
                                                      "anyOf",
                                                      "guided_json",
                                                      "to",
                                                      "num_turns",
                                                      "role",
                                                      "content",
                                                      "tool_calls",
                                                      "arguments",
                                                      "name",
                                                      "type",
                                                      "text",
                                                      "include_usage",
                                                      "continuous_usage_stats",
                                                      "",
                                                      "\u00e9",
                                                      "input",
                                                      "instructions",
                                                      "previous_response_id",
                                                      "max_output_tokens",
                                                      "reasoning",
                                                      "truncation",
                                                      "background",
                                                      "include",
                                                      "system",
                                                      "thinking",
                                                      "stop_sequences",
                                                      "cache_control",
                                                      "call_id",
                                                      "output",
                                                      "tool_use_id",
                                                      "is_error",
                                                      "input_schema"};

}  // namespace

Json RequestBodies::text() { return one_of(kTexts); }

Json RequestBodies::token_ids() {
    Json ids = Json::array();
    for (uint64_t count = 1 + below(12); count > 0; --count) ids.push_back(below(2048));
    return ids;
}

Json RequestBodies::messages() {
    constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "tool"};
    Json all = Json::array();
    for (uint64_t count = 1 + below(4); count > 0; --count) {
        Json content = text();
        if (below(6) == 0) content = Json::array({{{"type", "text"}, {"text", text()}}});
        all.push_back({{"role", one_of(kRoles)}, {"content", std::move(content)}});
    }
    all.back()["role"] = "user";
    return all;
}

Json RequestBodies::any_value(int depth) {
    switch (below(depth > 3 ? 6 : 9)) {
        case 0: return nullptr;
        case 1: return below(2) == 0;
        case 2:
        case 3: return one_of(kNumbers);
        case 4: return text();
        case 5: return one_of(kIdentifiers);
        case 6: return token_ids();
        case 7: {
            Json list = Json::array();
            for (uint64_t count = below(4); count > 0; --count) list.push_back(any_value(depth + 1));
            return list;
        }
        default: {
            Json object = Json::object();
            for (uint64_t count = below(4); count > 0; --count)
                object[std::string(one_of(kFields))] = any_value(depth + 1);
            return object;
        }
    }
}

// Some of what a request may ask for, with values that are right.
void RequestBodies::add_options(Json& body, bool is_chat) {
    const auto maybe = [&](const char* field, Json value) {
        if (below(4) == 0) body[field] = std::move(value);
    };
    maybe("temperature", one_of(std::vector<Json>{0, 1, 0.5, 2, 1e-45, 1e-38}));
    maybe("top_p", one_of(std::vector<Json>{1, 0.9, 1e-30}));
    maybe("top_k", one_of(std::vector<Json>{-1, 0, 1, 50, INT64_MAX}));
    maybe("presence_penalty", one_of(std::vector<Json>{-2, 2}));
    maybe("frequency_penalty", one_of(std::vector<Json>{-2, 2}));
    maybe("repetition_penalty", one_of(std::vector<Json>{0.01, 10}));
    maybe("seed", one_of(std::vector<Json>{0, 7, INT64_MAX}));
    maybe("min_p", one_of(std::vector<Json>{0, 1, 0.1, 1e-45}));
    maybe("min_tokens", one_of(std::vector<Json>{0, 3, 1000}));
    maybe("logit_bias", one_of(std::vector<Json>{Json::object(), {{"5", -100}, {"2047", 100}}}));
    maybe("logprob_start_len", below(20));
    maybe("stop", one_of(std::vector<Json>{"e", {"a", "\u00e9"}, "\uFFFD", Json::array()}));
    maybe("stream", true);
    maybe("ignore_eos", true);
    maybe("use_cache", false);
    maybe("cache_salt", one_of(kNames));
    if (below(2) == 0) {
        body["conversation_id"] = one_of(kNames);
        maybe("suffix_only", true);
        maybe("parent_head", one_of(kNames));
        if (below(4) == 0) return void(body["turn_id"] = one_of(kNames));  // neither logprobs nor n with it
    }
    maybe("n", 1 + below(3));
    maybe("prompt_logprobs", below(21));
    if (!is_chat) maybe("echo", true);
    if (!is_chat) maybe("best_of", 1 + below(4));
    if (below(2) == 0) body["logprobs"] = is_chat ? Json(true) : Json(below(6));
    if (is_chat && body.contains("logprobs")) maybe("top_logprobs", below(21));
}

Json RequestBodies::tool(const char* parameters) {
    return {{"name", one_of(kIdentifiers)},
            {"description", text()},
            {parameters, {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}}};
}

// Of /v1/responses. Where it goes on from another one, the test says from which.
Json RequestBodies::response_body() {
    Json input = text();
    if (below(2) == 0) {
        const Json call = {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{}"}};
        const Json output = {{"type", "function_call_output"}, {"call_id", "c"}, {"output", text()}};
        const Json thought = {{"type", "reasoning"},
                              {"summary", Json::array()},
                              {"content", Json::array({{{"type", "reasoning_text"}, {"text", text()}}})}};
        input = Json::array({{{"role", "user"}, {"content", text()}}});
        for (const Json& item : {thought, call, output}) {
            if (below(3) == 0) input.push_back(item);
        }
        input.push_back({{"role", below(3) == 0 ? "developer" : "user"}, {"content", text()}});
    }
    Json body = {{"input", std::move(input)}, {"max_output_tokens", 1 + below(24)}};
    const auto maybe = [&](const char* field, Json value) {
        if (below(4) == 0) body[field] = std::move(value);
    };
    maybe("instructions", text());
    maybe("previous_response_id", "resp_a");
    maybe("store", below(2) == 0);
    maybe("stream", true);
    maybe("temperature", 0.5);
    maybe("metadata", {{"a", "b"}});
    maybe("cache_salt", one_of(kNames));
    maybe("text", {{"format", {{"type", "text"}}}});
    if (below(4) != 0) return body;
    body["tools"] = Json::array({tool("parameters")});
    body["tools"][0]["type"] = "function";
    maybe("tool_choice", one_of(std::vector<Json>{"none", "auto", "required"}));
    maybe("parallel_tool_calls", false);
    return body;
}

// Of /v1/messages, and of its count of tokens.
Json RequestBodies::message_body(bool is_counted) {
    Json all = Json::array({{{"role", "user"}, {"content", text()}}});
    if (below(3) == 0) {
        const Json use = {{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", {{"a", 1}}}};
        const Json result = {{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", text()}};
        all.push_back({{"role", "assistant"}, {"content", Json::array({{{"type", "text"}, {"text", text()}}, use})}});
        all.push_back({{"role", "user"}, {"content", Json::array({result})}});
    }
    if (below(6) == 0) all.push_back({{"role", "assistant"}, {"content", text()}});
    Json body = {{"model", "tiny-python"}, {"messages", std::move(all)}};
    if (!is_counted) body["max_tokens"] = 1 + below(24);
    const auto maybe = [&](const char* field, Json value) {
        if (below(4) == 0) body[field] = std::move(value);
    };
    maybe("system", text());
    if (below(4) == 0) {
        body["tools"] = Json::array({tool("input_schema")});
        maybe("tool_choice", {{"type", one_of(std::vector<std::string>{"auto", "any", "none"})}});
    }
    maybe("thinking", {{"type", "disabled"}});
    if (is_counted) return body;
    maybe("stop_sequences", Json::array({"e"}));
    maybe("stream", true);
    maybe("temperature", 0.5);
    maybe("top_k", 5);
    maybe("metadata", {{"user_id", "u"}});
    return body;
}

Json RequestBodies::valid_body(RequestKind kind) {
    Json body = Json::object();
    if (kind == RequestKind::kDetokenize) return {{"tokens", token_ids()}};
    if (kind == RequestKind::kResponse) return response_body();
    if (kind == RequestKind::kMessage || kind == RequestKind::kCountTokens)
        return message_body(kind == RequestKind::kCountTokens);
    const bool is_chat = kind == RequestKind::kChat || (kind == RequestKind::kTokenize && below(2) == 0);
    if (is_chat)
        body["messages"] = messages();
    else
        body["prompt"] = kind == RequestKind::kCompletion && below(2) == 0 ? token_ids() : text();
    if (kind == RequestKind::kTokenize) return body;
    if (!is_chat && below(6) == 0) body["prompt"] = Json::array({text(), body["prompt"], token_ids()});
    body["max_tokens"] = below(24);
    add_options(body, is_chat);
    return body;
}

// One value somewhere in the body: another one, none, or one more.
void RequestBodies::change_value(Json& body) {
    Json* at = &body;
    for (uint64_t depth = below(4); depth > 0 && at->is_structured() && !at->empty(); --depth) {
        const uint64_t index = below(at->size());
        at = at->is_array() ? &(*at)[index] : &std::next(at->begin(), static_cast<std::ptrdiff_t>(index)).value();
    }
    if (at->is_object() && below(2) == 0) {
        (*at)[std::string(one_of(kFields))] = any_value();
    } else if (at->is_array() && below(2) == 0) {
        at->push_back(at->empty() || below(2) == 0 ? any_value() : Json(at->front()));
    } else if (at->is_object() && !at->empty() && below(2) == 0) {
        at->erase(std::next(at->begin(), static_cast<std::ptrdiff_t>(below(at->size()))));
    } else if (at != &body || below(8) == 0) {
        *at = any_value();
    }
}

void RequestBodies::change_bytes(std::string& bytes) {
    const std::string_view kBytes("\0{}[]\",:\\u0dD8e+-.\n\x01\x7f\x80\xbf\xc2\xed\xf0\xff", 27);
    for (uint64_t count = 1 + below(3); count > 0 && !bytes.empty(); --count) {
        const uint64_t at = below(bytes.size());
        const char byte = one_of(kBytes);
        switch (below(5)) {
            case 0: bytes[at] = byte; break;
            case 1: bytes.insert(at, 1, byte); break;
            case 2: bytes.erase(at, 1 + below(4)); break;
            case 3: bytes.resize(at); break;
            default: bytes += std::string("\0garbage", below(2) == 0 ? 8 : 1); break;
        }
    }
}

std::string RequestBodies::conversation_target() {
    constexpr std::array<std::string_view, 12> kPaths = {"a",  "b",   "c",   "a%20b", "%C3%A9", "%",
                                                         "%4", "%zz", "%00", "%ff",   "",       "x%2Fy"};
    constexpr std::array<std::string_view, 6> kDeeds = {"", "", "/fork", "/rewind", "/", "/fork/x"};
    constexpr std::array<std::string_view, 7> kQueries = {
        "", "", "?cache_salt=a", "?cache_salt=", "?x=1", "?&&", "?cache_salt=a&cache_salt=%"};
    return std::string("/v1/conversations/").append(one_of(kPaths)).append(one_of(kDeeds)).append(one_of(kQueries));
}

RandomRequest RequestBodies::next() {
    constexpr std::array<std::string_view, 4> kMethods = {"GET", "GET", "POST", "DELETE"};
    using Kind = RequestKind;
    constexpr std::array<Kind, 14> kKinds = {
        Kind::kChat,       Kind::kChat,         Kind::kCompletion,   Kind::kCompletion,   Kind::kTokenize,
        Kind::kDetokenize, Kind::kConversation, Kind::kConversation, Kind::kConversation, Kind::kResponse,
        Kind::kResponse,   Kind::kMessage,      Kind::kMessage,      Kind::kCountTokens};
    RandomRequest request{.kind = one_of(kKinds)};
    Json body;
    if (request.kind == Kind::kConversation) {
        request.method = one_of(kMethods);
        request.target = conversation_target();
        const bool is_deed = request.target.find("/fork") != std::string::npos || request.target.ends_with("/rewind");
        if (is_deed && below(4) != 0) request.method = "POST";
        body = {{"num_turns", below(3)}};
        if (!request.target.ends_with("/rewind")) body["to"] = one_of(kNames);
        if (below(4) == 0) body.erase("num_turns");
        if (below(4) == 0) body["cache_salt"] = one_of(kNames);
    } else {
        body = valid_body(request.kind);
    }
    if (below(2) == 0) {
        for (uint64_t count = 1 + below(3); count > 0; --count) change_value(body);
    }
    request.body = body.dump(-1, ' ', below(2) == 0, Json::error_handler_t::replace);
    if (below(10) == 0) change_bytes(request.body);
    return request;
}

}  // namespace verbatim::tests
