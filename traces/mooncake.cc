// The Mooncake JSONL: one request per line, see traces/README.md.
#include <optional>

#include "traces/json_cursor.h"
#include "traces/recording.h"

namespace verbatim::traces {
namespace {

constexpr int64_t kMooncakeBlockTokens = 512;
constexpr int64_t kMaxMilliseconds = int64_t{1} << 40;

struct Line {
    std::optional<int64_t> timestamp_ms, input_length, output_length;
    bool has_ids = false;
    int64_t num_ids = 0;
};

Status read_once(JsonCursor& json, std::optional<int64_t>& value, std::string_view key, int64_t low, int64_t high) {
    if (value) return json.wrong(fmt::format("'{}' once", key));
    ASSIGN_OR_RETURN(value, json.integer(low, high));
    return {};
}

// Consecutive ids become one run.
Status read_ids(JsonCursor& json, Line& line, std::vector<IdRun>& runs, size_t first_run) {
    if (line.has_ids) return json.wrong("'hash_ids' once");
    line.has_ids = true;
    return json.array([&]() -> Status {
        ASSIGN_OR_RETURN(const int64_t id, json.integer(0, kMaxBlockId));
        ++line.num_ids;
        if (runs.size() > first_run && runs.back().first + runs.back().count == id) {
            ++runs.back().count;
        } else {
            runs.push_back({id, 1});
        }
        return {};
    });
}

Status read_line(JsonCursor& json, Recording& recording) {
    Line line;
    RecordedRequest request;
    request.first_run = recording.runs.size();
    const size_t begin = json.mark();
    RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
        if (key == "timestamp") return read_once(json, line.timestamp_ms, key, 0, kMaxMilliseconds);
        if (key == "input_length") return read_once(json, line.input_length, key, 1, kMaxRecordedTokens);
        if (key == "output_length") return read_once(json, line.output_length, key, 0, kMaxRecordedTokens);
        if (key == "hash_ids") return read_ids(json, line, recording.runs, request.first_run);
        return json.skip();
    }));
    RETURN_IF_ERROR(json.end());
    if (!line.timestamp_ms || !line.input_length || !line.output_length || !line.has_ids) {
        return json.wrong_at(begin, "a request with 'timestamp', 'input_length', 'output_length' and 'hash_ids'");
    }
    request.time_ns = *line.timestamp_ms * 1'000'000;
    request.prompt_tokens = *line.input_length;
    request.output_tokens = *line.output_length;
    const int64_t num_blocks = (request.prompt_tokens + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens;
    if (line.num_ids != num_blocks) {
        return json.wrong_at(
            begin, fmt::format("{} ids in 'hash_ids' (one per 512 tokens), not {}", num_blocks, line.num_ids));
    }
    if (!recording.requests.empty() && request.time_ns < recording.requests.back().time_ns) {
        return json.wrong_at(begin, "a 'timestamp' that is not before the line before");
    }
    if (request.prompt_tokens % kMooncakeBlockTokens != 0) {
        IdRun& last = recording.runs.back();
        request.partial_id = last.first + last.count - 1;
        if (--last.count == 0) recording.runs.pop_back();
    }
    request.num_runs = recording.runs.size() - request.first_run;
    request.source_row = static_cast<int64_t>(recording.requests.size());
    recording.requests.push_back(request);
    return {};
}

}  // namespace

Result<Recording> read_mooncake(TextInput input, const ReadOptions& options) {
    Recording recording;
    recording.format = Format::kMooncake;
    recording.block_tokens = kMooncakeBlockTokens;
    while (options.limit == 0 || static_cast<int64_t>(recording.requests.size()) < options.limit) {
        ASSIGN_OR_RETURN(const auto line, input.next_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        RETURN_IF_ERROR(read_line(json, recording));
    }
    Strand all;
    all.num_requests = recording.requests.size();
    recording.strands.push_back(all);
    return recording;
}

}  // namespace verbatim::traces
