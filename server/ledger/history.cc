#include "server/ledger/history.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "server/text/decoder.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

size_t num_generated(const TurnRow& turn) { return static_cast<size_t>(turn.end - turn.prompt_end); }

std::string plain_text(std::span<const TokenId> tokens, const text::Tokenizer& tokenizer) {
    text::Decoder decoder(tokenizer, /*skip_special=*/true);
    std::string text;
    for (const TokenId token : tokens) text += decoder.add(token);
    return text + decoder.finish();
}

std::string answer_message(const TurnRow& turn, const text::Tokenizer& tokenizer) {
    return text::written({{"role", "assistant"}, {"content", answer_text(turn, tokenizer)}});
}

// The last message, and the answer that goes on from it. Empty: its content is no text.
std::optional<std::string> continued_message(const std::string& message, const TurnRow& turn,
                                             const text::Tokenizer& tokenizer) {
    text::Json continued = text::Json::parse(message, nullptr, /*allow_exceptions=*/false);
    if (!continued.is_object() || !continued.value("content", text::Json()).is_string()) return std::nullopt;
    continued["content"].get_ref<std::string&>() += answer_text(turn, tokenizer);
    return text::written(continued);
}

// Of a list as written_list() writes it: how many messages from `at` on are all of its values. Empty: they are not.
std::optional<size_t> num_values(std::string_view list, const std::vector<std::string>& messages, size_t at) {
    if (list.empty()) return std::nullopt;
    const size_t first = at;
    for (list.remove_prefix(1); list.size() > 1; ++at) {
        if (at == messages.size() || !list.starts_with(messages[at])) return std::nullopt;
        list.remove_prefix(messages[at].size());
        if (list.empty() || (list.front() != ',' && list != "]")) return std::nullopt;
        if (list.front() == ',') list.remove_prefix(1);
    }
    return at - first;
}

// Empty: the list does not go on from all messages of the conversation, or it has rewritten some.
std::optional<size_t> num_of_all(const ConversationView& view, const text::Tokenizer& tokenizer,
                                 const std::vector<std::string>& messages) {
    size_t num = 0;
    for (const TurnPtr& turn : view.turns) {
        if (turn->num_old_messages != static_cast<int64_t>(num)) return std::nullopt;
        const auto own = num_values(turn->messages, messages, num);
        if (!own) return std::nullopt;
        num += *own;
        if (turn->num_messages == static_cast<int64_t>(num)) return std::nullopt;  // the answer goes on from the last
        if (num == messages.size() || messages[num] != answer_message(*turn, tokenizer)) return std::nullopt;
        ++num;
    }
    return num;
}

// With how many of the conversation's tokens the prompt begins.
int64_t num_equal_tokens(const ConversationView& view, std::span<const TokenId> prompt) {
    size_t num_equal = 0;
    for (const TurnPtr& turn : view.turns) {
        const auto differs = std::ranges::mismatch(turn->tokens, prompt.subspan(num_equal)).in1;
        num_equal += static_cast<size_t>(differs - turn->tokens.begin());
        if (differs != turn->tokens.end()) break;
    }
    return static_cast<int64_t>(num_equal);
}

}  // namespace

std::string prompt_text(const TurnRow& turn, const text::Tokenizer& tokenizer) {
    return plain_text(std::span(turn.tokens).first(turn.tokens.size() - num_generated(turn)), tokenizer);
}

std::string answer_text(const TurnRow& turn, const text::Tokenizer& tokenizer) {
    const std::span<const TokenId> generated = std::span(turn.tokens).last(num_generated(turn));
    std::string text = plain_text(generated.first(static_cast<size_t>(turn.num_text_tokens)), tokenizer);
    if (turn.num_text_bytes >= 0) text.resize(static_cast<size_t>(turn.num_text_bytes));
    return text;
}

std::optional<std::vector<std::string>> messages_of(const ConversationView& view, const text::Tokenizer& tokenizer) {
    std::vector<std::string> all;
    for (const TurnPtr& turn : view.turns) {
        const auto own = text::values_of_list(turn->messages);
        if (!own || turn->num_old_messages > std::ssize(all)) return std::nullopt;
        all.resize(static_cast<size_t>(turn->num_old_messages));
        all.insert(all.end(), own->begin(), own->end());
        const bool is_continued = !all.empty() && turn->num_messages == std::ssize(all);
        if (!is_continued) {
            all.push_back(answer_message(*turn, tokenizer));
            continue;
        }
        auto continued = continued_message(all.back(), *turn, tokenizer);
        if (!continued) return std::nullopt;
        all.back() = *std::move(continued);
    }
    if (all.empty()) return std::nullopt;
    return all;
}

std::optional<int64_t> rewritten_answer_end(const ConversationView& view, const text::Tokenizer& tokenizer,
                                            std::span<const TokenId> prompt) {
    if (view.turns.empty()) return std::nullopt;
    const TurnRow& last = *view.turns.back();
    const int64_t num_equal = num_equal_tokens(view, prompt);
    if (num_equal < last.prompt_end || num_equal == last.end) return std::nullopt;
    const std::string answer = answer_text(last, tokenizer);
    text::Decoder decoder(tokenizer, /*skip_special=*/true);
    std::string text;
    auto end = static_cast<size_t>(last.prompt_end);
    while (text.size() < answer.size() && end < prompt.size()) text += decoder.add(prompt[end++]);
    if (text != answer || end == prompt.size()) return std::nullopt;
    return static_cast<int64_t>(end);
}

int64_t num_equal_messages(const ConversationView& view, const text::Tokenizer& tokenizer,
                           const std::vector<std::string>& messages) {
    if (const auto all = num_of_all(view, tokenizer, messages)) return static_cast<int64_t>(*all);
    const auto before = messages_of(view, tokenizer);
    return before ? std::ranges::mismatch(*before, messages).in1 - before->begin() : 0;
}

}  // namespace verbatim::server
