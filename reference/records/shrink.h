// reference/records/shrink.h: reduces a record whose run differs to a minimal set of calls whose run still differs.
//
// Removed in this order: sessions (conversations), rows (calls), messages, tokens of messages and of answers, batch
// company (sequences in a step), the cache. The first three by delta debugging: halves, then quarters, and so on;
// tokens by bisection.
//   S1  every try is reported, and is one run
//   S2  the result differs, and so did every intermediate record
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/result.h"
#include "reference/records/format.h"

namespace verbatim::records {

// The contents of a set of calls.
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
    // Whether the run of these calls still differs; false if they cannot be run. Errors end the search.
    std::function<Result<bool>(const Record& record)> differs;
    // Called for every try.
    std::function<void(const std::string& what, const ShrunkSize& size, bool differs)> tried;
};

// The result has calls alone, no steps. The token store is `record`'s. REQUIRES: the record's run differs.
[[nodiscard]] Result<Record> shrink(const Record& record, const ShrinkOptions& options);

}  // namespace verbatim::records
