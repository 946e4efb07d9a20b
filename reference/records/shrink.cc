#include "reference/records/shrink.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "reference/records/rerun.h"

namespace verbatim::records {
namespace {

const ConversationKey& conversation_of(const Call& call) {
    return call.kind == CallKind::kSubmit ? call.request.conversation : call.key;
}

// Others are about a request, or the executor's.
bool names_conversation(const Call& call) {
    return call.kind != CallKind::kAbort && call.kind != CallKind::kEndTurn && call.kind != CallKind::kFailStep &&
           call.kind != CallKind::kReplaceExecutor && call.kind != CallKind::kAwaitHead &&
           call.kind != CallKind::kStopAwaiting;
}

// What a run is made of.
struct Material {
    RunDescription run;
    std::vector<Call> calls;
};

// Message m of call i.
struct MessagePlace {
    size_t call = 0;
    size_t message = 0;
};

class Shrinking {
public:
    Shrinking(const Record& record, const ShrinkOptions& options)
        : record_(record), options_(options), now_{record.run, calls_of(record)} {}

    Result<Record> run() {
        RETURN_IF_ERROR(drop_sessions());
        RETURN_IF_ERROR(drop_rows());
        RETURN_IF_ERROR(drop_messages());
        RETURN_IF_ERROR(cut_tokens());
        RETURN_IF_ERROR(cut_answers());
        RETURN_IF_ERROR(drop_company());
        RETURN_IF_ERROR(attempt("without the cache", [](Material& tried) {
            for (Call& call : tried.calls) call.request.use_cache = false;
        }));
        return record_of(now_);
    }

private:
    [[nodiscard]] Record record_of(const Material& material) const {
        Record made;
        made.run = material.run;
        made.store = record_.store;
        for (const Call& call : material.calls) made.entries.emplace_back(call);
        return made;
    }

    template <typename Change>
    Result<bool> attempt(const std::string& what, const Change& change) {
        Material tried = now_;
        change(tried);
        const Record candidate = record_of(tried);
        ASSIGN_OR_RETURN(const bool differs, options_.differs(candidate));
        if (options_.tried) options_.tried(what, size_of(candidate), differs);
        if (differs) now_ = std::move(tried);
        return differs;
    }

    // Delta debugging over units that can go: `units()` lists them now, `drop` takes some of them away.
    template <typename Units, typename Drop>
    Status minimise(const std::string& what, size_t least, const Units& units, const Drop& drop) {
        for (size_t num_parts = 2;;) {
            const auto all = units();
            if (all.size() <= least) return {};
            num_parts = std::min(num_parts, all.size());
            bool any = false;
            for (size_t part = 0; part < num_parts && !any; ++part) {
                const size_t begin = all.size() * part / num_parts;
                const auto gone = std::span(all).subspan(begin, all.size() * (part + 1) / num_parts - begin);
                ASSIGN_OR_RETURN(any, attempt(what, [&](Material& tried) { drop(tried.calls, gone); }));
            }
            if (any) {
                num_parts = std::max<size_t>(num_parts - 1, 2);
            } else if (num_parts == all.size()) {
                return {};
            } else {
                num_parts *= 2;
            }
        }
    }

    Status drop_sessions() {
        const auto all = [this] {
            std::set<ConversationKey> keys;
            for (const Call& call : now_.calls) {
                if (names_conversation(call)) keys.insert(conversation_of(call));
            }
            return std::vector<ConversationKey>(keys.begin(), keys.end());
        };
        return minimise("without sessions", 1, all, [](std::vector<Call>& calls, auto gone) {
            std::erase_if(calls, [&](const Call& call) {
                return names_conversation(call) && std::ranges::count(gone, conversation_of(call)) > 0;
            });
        });
    }

    // Numbers from the last row to the first: what comes later is needed less.
    Status drop_rows() {
        const auto all = [this] {
            std::vector<size_t> rows(now_.calls.size());
            for (size_t i = 0; i < rows.size(); ++i) rows[i] = rows.size() - 1 - i;
            return rows;
        };
        return minimise("without rows", 1, all, [](std::vector<Call>& calls, auto gone) {
            for (const size_t row : gone) calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(row));
        });
    }

    // Later ones first; a request keeps one.
    Status drop_messages() {
        const auto all = [this] {
            std::vector<MessagePlace> places;
            for (size_t i = now_.calls.size(); i-- > 0;) {
                for (size_t m = now_.calls[i].request.messages.size(); m-- > 1;) places.push_back({i, m});
            }
            return places;
        };
        return minimise("without messages", 0, all, [](std::vector<Call>& calls, auto gone) {
            for (const MessagePlace& place : gone) {
                auto& messages = calls[place.call].request.messages;
                messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(place.message));
            }
        });
    }

    // Less of a number from `least` on, by cuts that are halved when they go too far: `size` says how large it is,
    // `set` makes it smaller.
    template <typename Set>
    Status cut(const std::string& what, int64_t size, int64_t least, const Set& set) {
        for (int64_t by = (size - least + 1) / 2; by > 0;) {
            const int64_t left = size - by;
            bool differs = false;
            if (left >= least) {
                ASSIGN_OR_RETURN(differs, attempt(what, [&](Material& tried) { set(tried.calls, left); }));
            }
            if (differs) {
                size = left;
            } else {
                by /= 2;
            }
        }
        return {};
    }

    Status cut_tokens() {
        for (size_t i = 0; i < now_.calls.size(); ++i) {
            for (size_t m = 0; m < now_.calls[i].request.messages.size(); ++m) {
                RETURN_IF_ERROR(cut("with fewer tokens", now_.calls[i].request.messages[m].tokens.size(), 1,
                                    [&](std::vector<Call>& calls, int64_t left) {
                                        TokenSeq& tokens = calls[i].request.messages[m].tokens;
                                        tokens = tokens.slice(0, left);
                                    }));
            }
        }
        return {};
    }

    Status cut_answers() {
        for (size_t i = 0; i < now_.calls.size(); ++i) {
            const Call& call = now_.calls[i];
            if (!call.request.max_tokens) continue;
            RETURN_IF_ERROR(cut("with shorter answers", *call.request.max_tokens, 1,
                                [&](std::vector<Call>& calls, int64_t left) { calls[i].request.max_tokens = left; }));
        }
        return {};
    }

    // The smallest batch that it takes: 1, 2, 4, ...
    Status drop_company() {
        for (int32_t batch = 1; batch < now_.run.engine.scheduler.max_num_sequences; batch *= 2) {
            ASSIGN_OR_RETURN(const bool differs, attempt("with less company in the batch", [&](Material& tried) {
                                 tried.run.engine.scheduler.max_num_sequences = batch;
                             }));
            if (differs) return {};
        }
        return {};
    }

    const Record& record_;
    const ShrinkOptions& options_;
    Material now_;
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
    size.batch = record.run.engine.scheduler.max_num_sequences;
    return size;
}

Result<Record> shrink(const Record& record, const ShrinkOptions& options) { return Shrinking(record, options).run(); }

}  // namespace verbatim::records
