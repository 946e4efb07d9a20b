#include "reference/records/asked_tokens.h"

#include "engine/request_book.h"

namespace verbatim::records {

std::vector<TokenId> asked_tokens(const Record& record, RequestId request) {
    RequestBook book(record.run.engine.token_template, *record.store);
    std::vector<TokenId> tokens;
    for (const Entry& entry : record.entries) {
        if (const Call* call = std::get_if<Call>(&entry)) book.on_call(*call);
        const Reported* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) continue;
        for (const ReportedToken& token : reported->tokens) {
            if (token.token < 0 || token.token >= record.store->vocab_size()) return tokens;  // it may be anything
            book.on_token(token.request, token.token);
        }
        if (const AskedRequest* asked = book.find(request)) tokens = book.tokens_of(*asked).to_vector();
        for (const Event& event : reported->events) book.on_event(event);
    }
    if (const AskedRequest* asked = book.find(request)) tokens = book.tokens_of(*asked).to_vector();
    return tokens;
}

}  // namespace verbatim::records
