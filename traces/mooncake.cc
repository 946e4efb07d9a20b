// The Mooncake JSONL: one request per line, with AIPerf's additions: sessions, delays, fractions of a millisecond; see
// traces/README.md.
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/json_cursor.h"
#include "traces/recording.h"
#include "traces/strict.h"

namespace verbatim::traces {
namespace {

constexpr int64_t kMooncakeBlockTokens = 512;
constexpr int64_t kMaxMilliseconds = int64_t{1} << 40;

struct Line {
    std::optional<int64_t> timestamp_ns, delay_ns, input_length, output_length;
    std::optional<std::string> session;
    bool has_ids = false;
    int64_t num_ids = 0;
};

// A session under construction: the new tokens of its turns are concatenated.
struct Session {
    int64_t last_request = -1;  // index in the recording
    std::vector<IdRun> blocks;  // the full blocks of its text so far
};

Status once(JsonCursor& json, bool is_there, std::string_view key) {
    return is_there ? json.wrong(fmt::format("'{}' once", key)) : Status{};
}

Status read_once(JsonCursor& json, std::optional<int64_t>& value, std::string_view key, int64_t low, int64_t high) {
    RETURN_IF_ERROR(once(json, value.has_value(), key));
    ASSIGN_OR_RETURN(value, json.integer(low, high));
    return {};
}

// With or without a fraction.
Status read_milliseconds(JsonCursor& json, std::optional<int64_t>& ns, std::string_view key) {
    RETURN_IF_ERROR(once(json, ns.has_value(), key));
    const size_t begin = json.mark();
    ASSIGN_OR_RETURN(ns, json.milliseconds());
    if (*ns > kMaxMilliseconds * 1'000'000) {
        return json.wrong_at(begin, fmt::format("milliseconds from 0 to {}", kMaxMilliseconds));
    }
    return {};
}

// Consecutive ids become one run.
void add_block(std::vector<IdRun>& runs, size_t first_run, int64_t id) {
    if (runs.size() > first_run && runs.back().first + runs.back().count == id) {
        ++runs.back().count;
    } else {
        runs.push_back({id, 1});
    }
}

Status read_ids(JsonCursor& json, Line& line, std::vector<IdRun>& runs, size_t first_run) {
    if (line.has_ids) return json.wrong("'hash_ids' once");
    line.has_ids = true;
    return json.array([&]() -> Status {
        ASSIGN_OR_RETURN(const int64_t id, json.integer(0, kMaxBlockId));
        ++line.num_ids;
        add_block(runs, first_run, id);
        return {};
    });
}

class MooncakeReader {
public:
    explicit MooncakeReader(Recording& recording) : recording_(recording) {}

    Status read(JsonCursor& json);

private:
    [[nodiscard]] Status check(JsonCursor& json, size_t begin, const Line& line, bool opens) const;
    void add_blocks(RecordedRequest& request, Session* session, bool has_ids);

    Recording& recording_;
    std::map<std::string, Session, std::less<>> sessions_;
    int64_t next_id_ = kMaxBlockId + 1;  // for blocks without an id in the file: unique
};

// A turn that continues a session has a delay after the answer; all other requests have an arrival time.
Status MooncakeReader::check(JsonCursor& json, size_t begin, const Line& line, bool opens) const {
    std::vector<std::string_view> missing;
    if (opens && !line.timestamp_ns) missing.emplace_back("timestamp");
    if (!line.input_length) missing.emplace_back("input_length");
    if (!line.output_length) missing.emplace_back("output_length");
    if (!missing.empty()) return json.wrong_at(begin, "a request with " + listed(missing));
    if (!opens && line.timestamp_ns && line.delay_ns) return json.wrong_at(begin, "'timestamp' or 'delay', not both");
    if (opens && line.delay_ns.value_or(0) > 0) {
        return json.wrong_at(begin, "a 'delay' only where a line of the same 'session_id' was before");
    }
    const int64_t num_blocks = (*line.input_length + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens;
    if (line.has_ids && line.num_ids != num_blocks) {
        return json.wrong_at(
            begin, fmt::format("{} ids in 'hash_ids' (one per 512 tokens), not {}", num_blocks, line.num_ids));
    }
    const bool in_order = !opens || line.session || recording_.requests.empty() ||
                          *line.timestamp_ns >= recording_.requests.back().time_ns;
    if (!in_order) return json.wrong_at(begin, "a 'timestamp' that is not before the line before");
    return {};
}

// The blocks of the whole prompt. In the file, later turns of a session list only the blocks of their new tokens, which
// start behind earlier answers and are not aligned to the prompt's blocks. So from the second turn on the blocks get
// ids that are unique to the session.
void MooncakeReader::add_blocks(RecordedRequest& request, Session* session, bool has_ids) {
    std::vector<IdRun>& runs = recording_.runs;
    if (request.previous >= 0) {
        runs.resize(request.first_run);
        runs.insert(runs.end(), session->blocks.begin(), session->blocks.end());
        has_ids = false;
    } else if (has_ids && request.prompt_tokens % kMooncakeBlockTokens != 0) {
        IdRun& last = runs.back();
        request.partial_id = last.first + last.count - 1;
        if (--last.count == 0) runs.pop_back();
    }
    if (!has_ids) {
        int64_t num_blocks = 0;
        for (size_t k = request.first_run; k < runs.size(); ++k) num_blocks += runs[k].count;
        for (; num_blocks < request.prompt_tokens / kMooncakeBlockTokens; ++num_blocks) {
            add_block(runs, request.first_run, next_id_++);
        }
    }
    request.num_runs = runs.size() - request.first_run;
    if (session == nullptr) return;
    session->blocks.assign(runs.begin() + static_cast<int64_t>(request.first_run), runs.end());
    session->last_request = std::ssize(recording_.requests);
}

Status MooncakeReader::read(JsonCursor& json) {
    Line line;
    RecordedRequest request;
    request.first_run = recording_.runs.size();
    const size_t begin = json.mark();
    RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
        if (key == "timestamp") return read_milliseconds(json, line.timestamp_ns, key);
        if (key == "delay") return read_milliseconds(json, line.delay_ns, key);
        if (key == "input_length") return read_once(json, line.input_length, key, 1, kMaxRecordedTokens);
        if (key == "output_length") return read_once(json, line.output_length, key, 0, kMaxRecordedTokens);
        if (key == "hash_ids") return read_ids(json, line, recording_.runs, request.first_run);
        if (key != "session_id") return json.skip();
        RETURN_IF_ERROR(once(json, line.session.has_value(), key));
        ASSIGN_OR_RETURN(line.session, json.string());
        return {};
    }));
    RETURN_IF_ERROR(json.end());
    Session* session = line.session ? &sessions_[*line.session] : nullptr;
    const bool opens = session == nullptr || session->last_request < 0;
    RETURN_IF_ERROR(check(json, begin, line, opens));
    request.prompt_tokens = *line.input_length;
    request.output_tokens = *line.output_length;
    request.time_ns = line.timestamp_ns.value_or(0);
    request.has_client = line.session.has_value();
    if (!opens) {
        const RecordedRequest& before = recording_.requests[static_cast<size_t>(session->last_request)];
        request.previous = session->last_request;
        request.think_ns = line.delay_ns.value_or(0);
        request.time_ns = line.timestamp_ns.value_or(before.time_ns);
        request.prompt_tokens += before.prompt_tokens + before.output_tokens;
        if (request.prompt_tokens > kMaxRecordedTokens) {
            return json.wrong_at(begin, fmt::format("a session of at most {} tokens", kMaxRecordedTokens));
        }
    }
    if (next_id_ > kMaxGivenBlockId - request.prompt_tokens / kMooncakeBlockTokens) {
        return json.wrong_at(begin, "fewer blocks without an id: there are 2^40");
    }
    add_blocks(request, session, line.has_ids);
    request.source_row = static_cast<int64_t>(recording_.requests.size());
    recording_.requests.push_back(request);
    return {};
}

}  // namespace

Result<Recording> read_mooncake(TextInput input, const ReadOptions& options) {
    Recording recording;
    recording.format = Format::kMooncake;
    recording.block_tokens = kMooncakeBlockTokens;
    MooncakeReader reader(recording);
    while (options.limit == 0 || static_cast<int64_t>(recording.requests.size()) < options.limit) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        RETURN_IF_ERROR(reader.read(json));
    }
    Strand all;
    all.num_requests = recording.requests.size();
    recording.strands.push_back(all);
    return recording;
}

}  // namespace verbatim::traces
