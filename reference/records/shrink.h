// reference/records/shrink.h: from a record whose run differs, the smallest set of calls whose run still does.
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
    friend bool operator==(const ShrunkSize&, const ShrunkSize&) = default;
};
[[nodiscard]] ShrunkSize size_of(const Record& record);

struct ShrinkOptions {
    // Whether the run of these calls still differs; what cannot be run does not. Errors end the search.
    std::function<Result<bool>(const Record& record)> differs;
    // Told of every try.
    std::function<void(const std::string& what, const ShrunkSize& size, bool differs)> tried;
};

// Takes away conversations, calls, messages and tokens, in that order, halves first and then less, as long as the run
// still differs; tries at last without the cache. What is left has calls alone: no steps. The token store is
// `record`'s. REQUIRES: the record's own run differs.
[[nodiscard]] Result<Record> shrink(const Record& record, const ShrinkOptions& options);

}  // namespace verbatim::records
