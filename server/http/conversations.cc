#include "server/http/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "files/strict_json.h"
#include "server/http/response_chain.h"
#include "server/http/tenants.h"
#include "server/ledger/history.h"

namespace verbatim::server {
namespace {

using Verb = ConversationCall::Kind;

tl::unexpected<ApiError> wrong_call(std::string message, std::string param) {
    return tl::unexpected(ApiError{400, std::move(message), std::move(param), "invalid_value"});
}

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// What a client calls something, out of a path or a query.
ApiResult<std::string> name_of(std::string_view text, const char* param) {
    const auto decoded = percent_decoded(text);
    if (!decoded || !is_identifier(*decoded))
        return wrong_call(fmt::format("{} is no name: 1 to 256 bytes of UTF-8 without control characters", param),
                          param);
    return *decoded;
}

struct QueryFields {
    std::optional<std::string> cache_salt;
    std::optional<std::string> after;
    int64_t limit = 20;
    bool is_ascending = false;
    bool content = false;
};
constexpr int64_t kMaxLimit = 100;

// Errors: another field than `known`.
ApiResult<QueryFields> read_query(std::string_view query, std::span<const std::string_view> known) {
    QueryFields fields;
    while (!query.empty()) {
        const std::string_view field = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), field.size() + 1));
        const std::string name(field.substr(0, field.find('=')));
        const std::string_view said = field.substr(std::min(field.size(), name.size() + 1));
        if (std::ranges::find(known, name) == known.end())
            return wrong_call(fmt::format("{} is not supported", name), name);
        if (name == "limit") {
            const auto [end, problem] = std::from_chars(said.data(), said.data() + said.size(), fields.limit);
            const bool is_number = problem == std::errc() && end == said.data() + said.size();
            if (!is_number || fields.limit < 1 || fields.limit > kMaxLimit)
                return wrong_call(fmt::format("limit is wanted to be a whole number from 1 to {}", kMaxLimit), name);
            continue;
        }
        if (name == "order") {
            fields.is_ascending = said == "asc";
            if (said != "asc" && said != "desc") return wrong_call("order is wanted to be asc or desc", name);
            continue;
        }
        if (name == "content") {
            if (said != "true" && said != "false") return wrong_call("content is wanted to be true or false", name);
            fields.content = said == "true";
            continue;
        }
        auto value = name_of(said, name.c_str());
        if (!value) return tl::unexpected(value.error());
        (name == "after" ? fields.after : fields.cache_salt) = *std::move(value);
    }
    return fields;
}

// What comes behind a conversation's name in a path.
std::string_view deed_of(std::string_view path) {
    const std::string_view rest = path.substr(kConversationsPath.size());
    return rest.substr(std::min(rest.find('/'), rest.size()));
}

struct CallFields {
    std::optional<std::string> cache_salt;
    std::optional<std::string> to;
    std::optional<std::string> parent_head;
    std::optional<int64_t> num_turns;
};

ApiResult<std::string> text_field(const std::string& field, const Json& value) {
    if (value.is_string() && is_identifier(value.get_ref<const std::string&>())) return value.get<std::string>();
    return wrong_call(fmt::format("{} is wanted to be 1 to 256 bytes of text without control characters", field),
                      field);
}

ApiResult<CallFields> read_body(std::string_view body) {
    CallFields fields;
    if (body.empty()) return fields;
    constexpr size_t kMaxBytes = 16384;  // it is read on the sockets' thread
    if (body.size() > kMaxBytes)
        return tl::unexpected(ApiError{413, fmt::format("a body of more than {} bytes", kMaxBytes), "", "body"});
    const auto json = parse_strict_ordered_json(body, "the body");
    if (!json) return tl::unexpected(ApiError{400, json.error().message, "", "invalid_json"});
    if (!json->is_object()) return tl::unexpected(ApiError{400, "the body is no JSON object", "", "invalid_json"});
    for (const auto& [field, value] : json->items()) {
        if (value.is_null()) continue;
        if (field == "num_turns") {
            const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{1} << 32;
            if (!fits) return wrong_call("num_turns is wanted to be a whole number from 0", field);
            fields.num_turns = value.get<int64_t>();
            continue;
        }
        std::optional<std::string>* to = nullptr;
        if (field == "cache_salt") to = &fields.cache_salt;
        if (field == "to") to = &fields.to;
        if (field == "parent_head") to = &fields.parent_head;
        if (to == nullptr)
            return tl::unexpected(
                ApiError{400, fmt::format("{} is not supported", field), field, "unsupported_parameter"});
        auto text = text_field(field, value);
        if (!text) return tl::unexpected(text.error());
        *to = *std::move(text);
    }
    return fields;
}

std::optional<ApiError> field_problem(const CallFields& fields, Verb verb) {
    const auto absent = [](const char* field) {
        return ApiError{400, fmt::format("{} is missing", field), field, "missing_required_parameter"};
    };
    if (verb == Verb::kFork && !fields.to) return absent("to");
    if (verb == Verb::kRewind && !fields.num_turns) return absent("num_turns");
    if (verb == Verb::kRewind && fields.to) return ApiError{400, "to is a fork's", "to", "unsupported_parameter"};
    return std::nullopt;
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
        if (high < 0 || low < 0) return std::nullopt;
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

std::string_view conversation_methods(std::string_view path) {
    const std::string_view deed = deed_of(path);
    if (deed.empty()) return "GET, DELETE";
    if (deed == "/head") return "GET, PUT";
    return deed == "/fork" || deed == "/rewind" ? "POST" : "";
}

ApiResult<ConversationCall> parse_conversation_call(std::string_view method, std::string_view target,
                                                    std::string_view body, const std::optional<std::string>& tenant) {
    const size_t question = std::min(target.find('?'), target.size());
    const std::string_view path = target.substr(0, question);
    const std::string_view deed = deed_of(path);
    const size_t num_behind = kConversationsPath.size() + deed.size();
    CHECK(conversation_methods(path).find(method) != std::string_view::npos, "{} of {}", method, path);
    ConversationCall call;
    if (deed.empty())
        call.kind = method == "GET" ? Verb::kShow : Verb::kRemove;
    else if (deed == "/head")
        call.kind = method == "GET" ? Verb::kExportHead : Verb::kImportHead;
    else
        call.kind = deed == "/fork" ? Verb::kFork : Verb::kRewind;
    auto id = name_of(path.substr(kConversationsPath.size(), path.size() - num_behind), "conversation_id");
    if (!id) return tl::unexpected(id.error());
    call.key.conversation_id = *std::move(id);
    CallFields fields;
    constexpr std::array<std::string_view, 2> kKnown = {"cache_salt", "content"};
    const size_t num_known = call.kind == Verb::kShow ? 2 : 1;
    auto query = read_query(target.substr(std::min(target.size(), question + 1)), std::span(kKnown).first(num_known));
    if (!query) return tl::unexpected(query.error());
    call.with_content = query->content;
    fields.cache_salt = std::move(query->cache_salt);
    if (method == "POST") {
        auto read = read_body(body);
        if (!read) return tl::unexpected(read.error());
        if (!read->cache_salt) read->cache_salt = fields.cache_salt;
        fields = *std::move(read);
        if (auto absent = field_problem(fields, call.kind)) return tl::unexpected(*std::move(absent));
    }
    call.key.salt = salt_of(tenant, fields.cache_salt);
    call.to = fields.to.value_or("");
    call.num_turns = fields.num_turns;
    call.parent_head = std::move(fields.parent_head);
    return call;
}

std::string_view response_methods(std::string_view path) {
    const std::string_view id = path.substr(kResponsesPath.size());
    const std::string_view deed = id.substr(std::min(id.find('/'), id.size()));
    if (deed.empty()) return "GET, DELETE";
    return deed == kInputItemsPath ? "GET" : "";
}

ApiResult<ResponseCall> parse_response_call(std::string_view target, const std::optional<std::string>& tenant) {
    constexpr std::array<std::string_view, 4> kKnown = {"cache_salt", "limit", "after", "order"};
    const size_t question = std::min(target.find('?'), target.size());
    std::string_view path = target.substr(0, question);
    CHECK(!response_methods(path).empty(), "{}", path);
    const bool is_of_items = path.ends_with(kInputItemsPath);
    if (is_of_items) path.remove_suffix(kInputItemsPath.size());
    const auto query =
        read_query(target.substr(std::min(target.size(), question + 1)), std::span(kKnown).first(is_of_items ? 4 : 1));
    if (!query) return tl::unexpected(query.error());
    auto id = name_of(path.substr(kResponsesPath.size()), "response_id");
    if (!id) return tl::unexpected(id.error());
    ResponseCall asked;
    asked.call.kind = Verb::kRemoveResponse;
    asked.call.key = {salt_of(tenant, query->cache_salt), conversation_of_response(*id)};
    if (asked.call.key.conversation_id.empty()) return tl::unexpected(unknown_response(*id, ""));
    asked.call.to = *std::move(id);
    if (is_of_items) asked.items = ItemPage{query->limit, query->is_ascending, query->after.value_or("")};
    return asked;
}

void add_content(const ConversationView& view, const text::Tokenizer& tokenizer, Json& shown) {
    CHECK_EQ(shown["turns"].size(), view.turns.size());
    const auto messages = messages_of(view, tokenizer);
    shown["messages"] = messages ? Json::array() : Json();
    if (messages) {
        for (const std::string& message : *messages) shown["messages"].push_back(Json::parse(message));
    }
    for (size_t i = 0; i < view.turns.size(); ++i) {
        Json& turn = shown["turns"][i];
        if (messages) {
            turn["num_messages"] = view.turns[i]->num_messages;
            continue;
        }
        turn["prompt"] = prompt_text(*view.turns[i], tokenizer);
        turn["text"] = answer_text(*view.turns[i], tokenizer);
    }
}

ApiResult<ConversationPage> parse_conversation_page(std::string_view target, const std::optional<std::string>& tenant) {
    constexpr std::array<std::string_view, 3> kKnown = {"limit", "after", "cache_salt"};
    const size_t question = std::min(target.find('?'), target.size());
    auto query = read_query(target.substr(std::min(target.size(), question + 1)), kKnown);
    if (!query) return tl::unexpected(query.error());
    return ConversationPage{salt_of(tenant, query->cache_salt), query->after.value_or(""), query->limit + 1};
}

Json conversation_list(const ConversationPage& page, std::vector<ListedConversation> listed) {
    const bool has_more = std::ssize(listed) == page.limit;
    if (has_more) listed.pop_back();
    Json list = {{"object", "list"}, {"data", Json::array()}, {"first_id", nullptr}, {"last_id", nullptr}};
    for (const ListedConversation& one : listed) {
        list["data"].push_back({{"id", one.id},
                                {"object", "conversation"},
                                {"head_id", one.head},
                                {"num_turns", one.num_turns},
                                {"num_tokens", one.num_tokens}});
    }
    if (!listed.empty()) list["first_id"] = listed.front().id;
    if (!listed.empty()) list["last_id"] = listed.back().id;
    list["has_more"] = has_more;
    return list;
}

}  // namespace verbatim::server
