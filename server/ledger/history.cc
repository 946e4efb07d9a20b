#include "server/ledger/history.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "server/text/decoder.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

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

std::optional<std::vector<std::string>> messages_of(const ConversationView& view, const text::Tokenizer& tokenizer) {
    std::vector<std::string> all;
    for (const TurnPtr& turn : view.turns) {
        const auto own = text::values_of_list(turn->messages);
        if (!own || turn->num_old_messages > std::ssize(all)) return std::nullopt;
        all.resize(static_cast<size_t>(turn->num_old_messages));
        all.insert(all.end(), own->begin(), own->end());
        all.push_back(text::written({{"role", "assistant"}, {"content", answer_text(*turn, tokenizer)}}));
    }
    if (all.empty()) return std::nullopt;
    return all;
}

int64_t num_equal_messages(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace verbatim::server
