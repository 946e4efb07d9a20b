#include "reference/records/shrink.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "reference/records/rerun.h"

namespace verbatim::records {
namespace {

Record with_calls(const Record& record, std::vector<Call> calls) {
    Record made;
    made.run = record.run;
    made.store = record.store;
    for (Call& call : calls) made.entries.emplace_back(std::move(call));
    return made;
}

const ConversationKey& conversation_of(const Call& call) {
    return call.kind == CallKind::kSubmit ? call.request.conversation : call.key;
}

class Shrinking {
public:
    Shrinking(const Record& record, const ShrinkOptions& options)
        : record_(record), options_(options), calls_(calls_of(record)) {}

    Result<Record> run() {
        RETURN_IF_ERROR(drop_conversations());
        RETURN_IF_ERROR(drop("a call", [](std::vector<Call>& calls, size_t i) {
            calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
            return true;
        }));
        RETURN_IF_ERROR(drop("a message", [](std::vector<Call>& calls, size_t i) {
            auto& messages = calls[i].request.messages;
            if (messages.size() < 2) return false;
            messages.pop_back();
            return true;
        }));
        RETURN_IF_ERROR(halve_tokens());
        RETURN_IF_ERROR(try_change("without the cache", [](std::vector<Call>& calls) {
            for (Call& call : calls) call.request.use_cache = false;
        }));
        return with_calls(record_, calls_);
    }

private:
    template <typename Change>
    Result<bool> try_change(const std::string& what, const Change& change) {
        std::vector<Call> calls = calls_;
        change(calls);
        const Record candidate = with_calls(record_, calls);
        ASSIGN_OR_RETURN(const bool differs, options_.differs(candidate));
        if (options_.tried) options_.tried(what, size_of(candidate), differs);
        if (differs) calls_ = std::move(calls);
        return differs;
    }

    // Delta debugging over conversations: halves, then quarters, and so on.
    Status drop_conversations() {
        for (size_t num_parts = 2;;) {
            std::set<ConversationKey> all;
            for (const Call& call : calls_) {
                if (call.kind != CallKind::kAbort) all.insert(conversation_of(call));
            }
            const std::vector<ConversationKey> keys(all.begin(), all.end());
            if (keys.size() < 2) return {};
            num_parts = std::min(num_parts, keys.size());
            bool any = false;
            for (size_t part = 0; part < num_parts && !any; ++part) {
                const size_t begin = keys.size() * part / num_parts;
                const size_t end = keys.size() * (part + 1) / num_parts;
                const std::set<ConversationKey> gone(keys.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     keys.begin() + static_cast<std::ptrdiff_t>(end));
                ASSIGN_OR_RETURN(any, try_change("without conversations", [&](std::vector<Call>& calls) {
                                     std::erase_if(calls, [&](const Call& call) {
                                         return call.kind != CallKind::kAbort && gone.contains(conversation_of(call));
                                     });
                                 }));
            }
            if (any) {
                num_parts = std::max<size_t>(num_parts - 1, 2);
            } else if (num_parts == keys.size()) {
                return {};
            } else {
                num_parts *= 2;
            }
        }
    }

    // From the last call to the first, as often as it helps.
    template <typename Drop>
    Status drop(const std::string& what, const Drop& drop) {
        for (size_t i = calls_.size(); i-- > 0;) {
            for (bool more = true; more;) {
                std::vector<Call> tried = calls_;
                more = i < calls_.size() && drop(tried, i);
                if (!more) break;
                ASSIGN_OR_RETURN(more, try_change("without " + what, [&](std::vector<Call>& calls) { calls = tried; }));
            }
        }
        return {};
    }

    // The first half of a message's tokens, or all but one of them, or of what may be answered.
    Status halve_tokens() {
        for (size_t i = 0; i < calls_.size(); ++i) {
            for (size_t m = 0; m < calls_[i].request.messages.size(); ++m) {
                for (int64_t cut = calls_[i].request.messages[m].tokens.size() / 2; cut > 0;) {
                    const TokenSeq& tokens = calls_[i].request.messages[m].tokens;
                    const int64_t left = tokens.size() - cut;
                    if (left < 1) {
                        cut /= 2;
                        continue;
                    }
                    ASSIGN_OR_RETURN(const bool differs, try_change("with fewer tokens", [&](std::vector<Call>& calls) {
                                         TokenSeq& shorter = calls[i].request.messages[m].tokens;
                                         shorter = shorter.slice(0, left);
                                     }));
                    if (!differs) cut /= 2;
                }
            }
        }
        return {};
    }

    const Record& record_;
    const ShrinkOptions& options_;
    std::vector<Call> calls_;
};

}  // namespace

ShrunkSize size_of(const Record& record) {
    ShrunkSize size;
    std::set<ConversationKey> conversations;
    for (const Call& call : calls_of(record)) {
        ++size.calls;
        if (call.kind == CallKind::kSubmit) conversations.insert(call.request.conversation);
        for (const Message& message : call.request.messages) {
            ++size.messages;
            size.tokens += message.tokens.size();
        }
    }
    size.conversations = static_cast<int64_t>(conversations.size());
    return size;
}

Result<Record> shrink(const Record& record, const ShrinkOptions& options) { return Shrinking(record, options).run(); }

}  // namespace verbatim::records
