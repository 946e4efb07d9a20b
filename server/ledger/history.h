// server/ledger/history.h: what a conversation's messages are, and what a turn adds to them.
#pragma once

#include <cstdint>
#include <optional>
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

// How many messages the two lists begin with in common.
[[nodiscard]] int64_t num_equal_messages(const std::vector<std::string>& a, const std::vector<std::string>& b);

}  // namespace verbatim::server
