// tests/server/http/request_bodies.h: owns random requests: valid ones, and small mutations of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace verbatim::tests {

enum class RequestKind : uint8_t {
    kChat,
    kCompletion,
    kTokenize,
    kDetokenize,
    kConversation,
    kResponse,
    kMessage,
    kCountTokens,
    kCount
};

struct RandomRequest {
    RequestKind kind = RequestKind::kChat;
    std::string method;  // of kConversation
    std::string target;  // of kConversation: path and query
    std::string body;
};

class RequestBodies {
public:
    explicit RequestBodies(uint64_t seed) : random_(seed) {}
    RandomRequest next();
    // 0 to below - 1.
    uint64_t below(uint64_t below) { return random_() % below; }

private:
    using Json = nlohmann::ordered_json;
    template <typename List>
    const auto& one_of(const List& list) {
        return list[below(list.size())];
    }
    [[nodiscard]] Json text();
    [[nodiscard]] Json token_ids();
    [[nodiscard]] Json messages();
    [[nodiscard]] Json any_value(int depth = 0);
    [[nodiscard]] Json valid_body(RequestKind kind);
    void add_options(Json& body, bool is_chat);
    [[nodiscard]] Json tool(const char* parameters);
    [[nodiscard]] Json response_body();
    [[nodiscard]] Json message_body(bool is_counted);
    void change_value(Json& body);
    void change_bytes(std::string& bytes);
    [[nodiscard]] std::string conversation_target();

    std::mt19937_64 random_;
};

}  // namespace verbatim::tests
