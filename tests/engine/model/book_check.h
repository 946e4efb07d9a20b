// tests/engine/model/book_check.h: checks that a RequestBook and the engine that it records agree on requests and
// conversations.
#pragma once

#include "engine/engine.h"
#include "engine/request_book.h"
#include "tests/support/must.h"

namespace verbatim::tests {

inline void check_book(const RequestBook& book, const Engine& engine, RequestId request) {
    const AskedRequest* asked = book.find(request);
    const Sequence* sequence = engine.find(request);
    MUST(asked != nullptr && sequence != nullptr, "request {} runs", index(request));
    MUST(asked->prompt == sequence->turn.prompt, "request {}: a prompt of {} tokens in the book, {} in the engine",
         index(request), asked->prompt.size(), sequence->turn.prompt.size());
    MUST(asked->output == sequence->output, "request {}: {} tokens reported, {} generated", index(request),
         asked->output.size(), sequence->output.size());
    MUST(asked->sampling == sequence->request.sampling && asked->arithmetic == sequence->arithmetic() &&
             asked->draws == !sequence->prefill_only(),
         "request {} is drawn with other parameters", index(request));
}

inline void check_book(const RequestBook& book, const Engine& engine, const ConversationKey& key) {
    const Ledger::Conversation* conversation = engine.ledger().find(key);
    const TokenSeq committed = conversation == nullptr ? TokenSeq() : conversation->committed;
    MUST(book.committed(key) == committed, "'{}': {} tokens committed in the book, {} in the ledger",
         key.conversation_id, book.committed(key).size(), committed.size());
}

}  // namespace verbatim::tests
