#include "server/ledger/history.h"

#include <algorithm>
#include <span>

#include "server/text/decoder.h"

namespace verbatim::server {
namespace {

using text::Json;

std::string answer_text(const TurnRow& turn, const text::Tokenizer& tokenizer) {
    const std::span<const TokenId> tokens(turn.tokens);
    const auto num_generated = static_cast<size_t>(turn.end - turn.prompt_end);
    text::Decoder decoder(tokenizer, /*skip_special=*/true);
    std::string text;
    for (const TokenId token : tokens.last(num_generated).first(static_cast<size_t>(turn.num_text_tokens)))
        text += tokenizer.has(token) ? decoder.add(token) : "";
    if (turn.num_text_bytes < 0) return text + decoder.finish();
    return text.substr(0, static_cast<size_t>(turn.num_text_bytes));
}

}  // namespace

std::optional<Json> messages_of(const ConversationView& view, const text::Tokenizer& tokenizer) {
    Json all = Json::array();
    for (const TurnPtr& turn : view.turns) {
        const Json own = Json::parse(turn->messages, nullptr, /*allow_exceptions=*/false);
        if (!own.is_array() || turn->num_old_messages > static_cast<int64_t>(all.size())) return std::nullopt;
        all.erase(all.begin() + turn->num_old_messages, all.end());
        for (const Json& message : own) all.push_back(message);
        all.push_back({{"role", "assistant"}, {"content", answer_text(*turn, tokenizer)}});
    }
    if (all.empty()) return std::nullopt;
    return all;
}

int64_t num_equal_messages(const Json& a, const Json& b) {
    const size_t most = std::min(a.size(), b.size());
    for (size_t i = 0; i < most; ++i) {
        if (a[i] != b[i]) return static_cast<int64_t>(i);
    }
    return static_cast<int64_t>(most);
}

}  // namespace verbatim::server
