// reference/records/shrink.h: from a record whose run differs, the smallest set of calls whose run still does.
//
// What is taken away, in this order: sessions (conversations), rows (calls), messages, tokens of messages and of
// answers, batch company (sequences in a step), the cache. The first three by delta debugging: halves first, then
// quarters, and so on; tokens by cuts that are halved.
//   S1  every try is told, and is one run
//   S2  what is left differs, and so did every step on the way there
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/result.h"
#include "reference/records/format.h"

namespace verbatim::records {

// What a set of calls still consists of.
struct ShrunkSize {
    int64_t conversations = 0;
    int64_t calls = 0;
    int64_t messages = 0;
    int64_t tokens = 0;  // in messages
    int32_t batch = 0;   // sequences in a step, at most
    friend bool operator==(const ShrunkSize&, const ShrunkSize&) = default;
};
[[nodiscard]] ShrunkSize size_of(const Record& record);

struct ShrinkOptions {
    // Whether the run of these calls still differs; what cannot be run does not. Errors end the search.
    std::function<Result<bool>(const Record& record)> differs;
    // Told of every try.
    std::function<void(const std::string& what, const ShrunkSize& size, bool differs)> tried;
};

// What is left has calls alone: no steps. The token store is `record`'s. REQUIRES: the record's own run differs.
[[nodiscard]] Result<Record> shrink(const Record& record, const ShrinkOptions& options);

}  // namespace verbatim::records
