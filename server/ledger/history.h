// server/ledger/history.h: what a conversation's messages are, and what a turn adds to them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/ledger/conversation_ledger.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// The messages of the conversation's turns, with the answers as the client has seen them. Empty: it has turns that
// were asked for by text or tokens, or none.
// Each as it is written.
[[nodiscard]] std::optional<std::vector<std::string>> messages_of(const ConversationView& view,
                                                                  const text::Tokenizer& tokenizer);

// Of a turn, as text without special tokens: what was new in its prompt, and the answer as the client has seen it.
[[nodiscard]] std::string prompt_text(const TurnRow& turn, const text::Tokenizer& tokenizer);
[[nodiscard]] std::string answer_text(const TurnRow& turn, const text::Tokenizer& tokenizer);

// Where the answer of the conversation's last turn ends in a prompt that has it in other tokens: as the client has seen
// it, without a stop text. Empty: the prompt has the turn's tokens, or another text.
[[nodiscard]] std::optional<int64_t> rewritten_answer_end(const ConversationView& view,
                                                          const text::Tokenizer& tokenizer,
                                                          std::span<const TokenId> prompt);

// With how many messages of the conversation the list begins. Where it goes on from all of them, as most do, they are
// compared as they are kept, and none is copied.
[[nodiscard]] int64_t num_equal_messages(const ConversationView& view, const text::Tokenizer& tokenizer,
                                         const std::vector<std::string>& messages);

}  // namespace verbatim::server
