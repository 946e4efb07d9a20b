// tools/diff/report.h: the first difference of two records, and their schedules there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reference/records/comparison.h"
#include "reference/records/run_index.h"

namespace verbatim::tools {

// How a record computed a position of a request.
struct ScheduleThere {
    int64_t step = -1;
    int64_t num_sequences = 0;  // in the step
    int64_t num_tokens = 0;     // in the step
    int64_t begin = -1;         // the request's chunk
    int64_t end = -1;
    int64_t attached = 0;    // tokens that its first start attached from the cache
    int64_t num_starts = 0;  // above 1: it was preempted
    int64_t num_drafts = 0;
    int32_t block_size = 0;
};
[[nodiscard]] std::optional<ScheduleThere> schedule_there(const records::RunIndex& index, RequestId request,
                                                          int64_t step, int64_t position);

struct DiffResult {
    std::string a;
    std::string b;
    records::Comparison comparison;
    std::vector<std::string> runs_differ;  // models, arithmetic
    std::optional<ScheduleThere> there_a;
    std::optional<ScheduleThere> there_b;
};

std::string diff_table(const DiffResult& result, const records::RunIndex& a, const records::RunIndex& b);
nlohmann::ordered_json diff_json(const DiffResult& result);
// A test suite with one case: a difference is a failure, a verdict of not all compared is an error.
std::string diff_junit(const DiffResult& result);

}  // namespace verbatim::tools
