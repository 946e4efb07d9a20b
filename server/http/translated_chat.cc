#include "server/http/translated_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "server/http/field_values.h"
#include "server/http/tools.h"

namespace verbatim::server {
namespace {

bool is_within(std::string_view param, std::string_view field) {
    return param.starts_with(field) &&
           (param.size() == field.size() || param[field.size()] == '.' || param[field.size()] == '[');
}

// Every place where the message names the field.
std::string renamed(const std::string& message, std::string_view field, std::string_view origin) {
    std::string out;
    for (size_t at = 0; at < message.size();) {
        const bool is_named = std::string_view(message).substr(at).starts_with(field) &&
                              (at == 0 || !is_of_variable(message[at - 1])) &&
                              (at + field.size() == message.size() || !is_of_variable(message[at + field.size()]));
        if (is_named)
            out += origin;
        else
            out += message[at];
        at += is_named ? field.size() : 1;
    }
    return out;
}

}  // namespace

ApiError with_origins(ApiError error, const std::vector<FieldOrigin>& origins) {
    const FieldOrigin* longest = nullptr;
    for (const FieldOrigin& one : origins) {
        const bool is_longer = longest == nullptr || one.field.size() > longest->field.size();
        if (is_longer && is_within(error.param, one.field)) longest = &one;
    }
    if (longest == nullptr) return error;
    error.message = renamed(error.message, longest->field, longest->origin);
    error.param.replace(0, longest->field.size(), longest->origin);
    return error;
}

ApiError unsupported_type(const std::string& path, const Json& type, std::string_view supported) {
    return {400, fmt::format("{} is of the type {}, which is not supported: {}", path, quoted(type), supported), path,
            "unsupported_value"};
}

const Json* member_of(const Json& object, std::string_view name) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

ApiResult<std::string> text_member(const std::string& path, const Json& object, const char* name) {
    const Json* member = member_of(object, name);
    const std::string place = fmt::format("{}.{}", path, name);
    if (member == nullptr) return tl::unexpected(missing_field(place));
    if (!member->is_string()) return tl::unexpected(wrong_field(place, *member, "a text"));
    return member->get<std::string>();
}

ApiResult<Json> text_content(const std::string& path, const Json& content, std::span<const std::string_view> types) {
    if (content.is_string()) return content;
    if (!content.is_array()) return tl::unexpected(wrong_field(path, content, "a text or a list of parts"));
    Json parts = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
        const Json& part = content[i];
        const std::string place = fmt::format("{}[{}]", path, i);
        if (!part.is_object()) return tl::unexpected(wrong_field(place, part, "an object with a type and a text"));
        const Json type = part.value("type", Json());
        if (!type.is_string()) return tl::unexpected(wrong_field(place + ".type", type, "a text"));
        if (std::ranges::find(types, type.get_ref<const std::string&>()) == types.end())
            return tl::unexpected(unsupported_type(place, type, "this server reads texts"));
        const Json own = part.value(type == "refusal" ? "refusal" : "text", Json());
        if (!own.is_string()) return tl::unexpected(wrong_field(place + ".text", own, "a text"));
        parts.push_back({{"type", "text"}, {"text", own}});
    }
    return parts.size() == 1 ? parts[0]["text"] : parts;
}

void MessageList::add(const std::string& path, Json message) {
    end_turn();
    origins_.push_back({fmt::format("messages[{}]", messages_.size()), path});
    messages_.push_back(std::move(message));
}

void MessageList::begin_turn(const std::string& path) {
    if (!turn_.is_null()) return;
    origins_.push_back({fmt::format("messages[{}]", messages_.size()), path});
    turn_ = {{"role", "assistant"}, {"content", nullptr}};
}

void MessageList::begin_before_text(const std::string& path) {
    const bool is_later = !turn_.is_null() && (!turn_["content"].is_null() || turn_.contains("tool_calls"));
    if (is_later) end_turn();
    begin_turn(path);
}

void MessageList::end_turn() {
    if (!turn_.is_null()) messages_.push_back(std::exchange(turn_, {}));
}

void MessageList::add_reasoning(const std::string& path, const std::string& text) {
    begin_before_text(path);
    CHECK(turn_["content"].is_null() && !turn_.contains("tool_calls"), "{}: reasoning behind its text", path);
    const std::string before = turn_.value("reasoning_content", "");
    turn_["reasoning_content"] = before.empty() ? text : before + "\n" + text;
}

void MessageList::add_text(const std::string& path, Json content) {
    begin_before_text(path);
    CHECK(turn_["content"].is_null() && !turn_.contains("tool_calls"), "{}: the turn has its text", path);
    turn_["content"] = std::move(content);
}

void MessageList::add_call(const std::string& path, const std::string& id, const std::string& name, Json arguments) {
    begin_turn(path);
    CHECK_EQ(turn_.at("role").get<std::string>(), "assistant");
    const size_t index = turn_.contains("tool_calls") ? turn_["tool_calls"].size() : 0;
    const std::string field = fmt::format("messages[{}].tool_calls[{}]", messages_.size(), index);
    if (index == 0) origins_.push_back({fmt::format("messages[{}].tool_calls", messages_.size()), path});
    for (const char* inner : {"", ".function"}) origins_.push_back({field + inner, path});
    turn_["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

Json MessageList::take() {
    end_turn();
    return std::exchange(messages_, Json::array());
}

}  // namespace verbatim::server
