// server/http/translated_chat.h: owns what the translations of /v1/responses and /v1/messages into the body of a chat
// have in common: messages that are put together from items, and errors that name the fields of the client's body.
//
//   T1  a translated body is one that a client of /v1/chat/completions could have sent: there is one way to the engine
//   T2  an error names the field that the client wrote, never the one that it was translated into
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/api.h"

namespace verbatim::server {

struct TranslatedChat {
    Json body = Json::object();
    std::vector<FieldOrigin> origins;  // the longest field that fits counts
};

// The error in the client's names (T2).
[[nodiscard]] ApiError with_origins(ApiError error, const std::vector<FieldOrigin>& origins);

// 400 unsupported_value: "PATH is of the type TYPE, which is not supported: ..".
[[nodiscard]] ApiError unsupported_type(const std::string& path, const Json& type, std::string_view supported);

// A member; null: it is absent or null.
[[nodiscard]] const Json* member_of(const Json& object, std::string_view name);

// A member that is a text. Errors: missing, or no text.
[[nodiscard]] ApiResult<std::string> text_member(const std::string& path, const Json& object, const char* name);

// A text, or a list of parts of the types, each with a `text`: as the content of a chat's message. Errors name the
// part.
[[nodiscard]] ApiResult<Json> text_content(const std::string& path, const Json& content,
                                           std::span<const std::string_view> types);

// Puts messages together. What the assistant said in a row is one message, as long as its order is reasoning, text,
// calls.
class MessageList {
public:
    explicit MessageList(std::vector<FieldOrigin>& origins) : origins_(origins) {}
    // `path`: the client's field.
    void add(const std::string& path, Json message);  // of another role than assistant
    void add_reasoning(const std::string& path, const std::string& text);
    void add_text(const std::string& path, Json content);
    void add_call(const std::string& path, const std::string& id, const std::string& name, Json arguments);
    [[nodiscard]] Json take();  // all of them

private:
    void begin_turn(const std::string& path);
    void begin_before_text(const std::string& path);  // of a turn that has neither text nor calls
    void end_turn();

    std::vector<FieldOrigin>& origins_;
    Json messages_ = Json::array();
    Json turn_;  // of the assistant; null: none is open
};

}  // namespace verbatim::server
