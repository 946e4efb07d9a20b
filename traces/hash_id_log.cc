// Mooncake JSONL and Bailian JSONL: one request per line, an id for each block of its prompt. Mooncake's lines may have
// AIPerf's additions: sessions, delays, fractions of a millisecond. See traces/README.md.
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/json_cursor.h"
#include "traces/recording.h"
#include "traces/strict.h"

namespace verbatim::traces {
namespace {

constexpr int64_t kMaxMilliseconds = int64_t{1} << 40;

struct NamedUnit {
    const char* flag;  // of --time-unit
    const char* word;
    int64_t ns = 1;
};
const NamedUnit& named(TimeUnit unit) {
    static constexpr std::array<NamedUnit, 4> kUnits = {{{"ns", "nanoseconds", 1},
                                                         {"us", "microseconds", 1'000},
                                                         {"ms", "milliseconds", 1'000'000},
                                                         {"s", "seconds", 1'000'000'000}}};
    return kUnits[static_cast<size_t>(unit)];
}

// How a file's numbers are meant.
struct Units {
    TimeUnit time = TimeUnit::kMilliseconds;
    int64_t block_tokens = 512;
};

Units units_of(Format format, const ReadOptions& options) {
    const bool is_bailian = format == Format::kBailian;
    Units units;
    units.time = options.time_unit.value_or(is_bailian ? TimeUnit::kSeconds : TimeUnit::kMilliseconds);
    units.block_tokens = options.block_tokens > 0 ? options.block_tokens : is_bailian ? 16 : 512;
    return units;
}

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
Status read_time(JsonCursor& json, TimeUnit unit, std::optional<int64_t>& ns, std::string_view key) {
    RETURN_IF_ERROR(once(json, ns.has_value(), key));
    const size_t begin = json.mark();
    ASSIGN_OR_RETURN(ns, json.time(named(unit).ns, named(unit).word));
    if (*ns > kMaxMilliseconds * 1'000'000) {
        return json.wrong_at(
            begin, fmt::format("{} from 0 to {}", named(unit).word, kMaxMilliseconds * 1'000'000 / named(unit).ns));
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

class HashIdLogReader {
public:
    HashIdLogReader(Recording& recording, const Units& units) : recording_(recording), units_(units) {}

    Status read(JsonCursor& json);

private:
    Status read_ids(JsonCursor& json, Line& line, size_t first_run);
    [[nodiscard]] Status check_ids(JsonCursor& json, size_t begin, const Line& line) const;
    [[nodiscard]] Status check(JsonCursor& json, size_t begin, const Line& line, bool opens) const;
    void add_blocks(RecordedRequest& request, Session* session, const Line& line);

    Recording& recording_;
    Units units_;
    std::unordered_map<uint64_t, int64_t> wide_ids_;  // ids beyond kMaxBlockId: what they are numbered here
    std::map<std::string, Session, std::less<>> sessions_;
    int64_t next_id_ = kMaxBlockId + 1;  // for blocks without an id in the file: unique
};

// Ids are hashes in some files: 64 bits.
Status HashIdLogReader::read_ids(JsonCursor& json, Line& line, size_t first_run) {
    if (line.has_ids) return json.wrong("'hash_ids' once");
    line.has_ids = true;
    return json.array([&]() -> Status {
        ASSIGN_OR_RETURN(const uint64_t id, json.unsigned_integer());
        ++line.num_ids;
        if (id <= kMaxBlockId) {
            add_block(recording_.runs, first_run, static_cast<int64_t>(id));
            return {};
        }
        const auto [place, is_new] = wide_ids_.emplace(id, next_id_);
        if (is_new && ++next_id_ > kMaxGivenBlockId) return json.wrong("fewer distinct blocks: there are 2^40");
        add_block(recording_.runs, first_run, place->second);
        return {};
    });
}

// One id for each full block, and one for a partial block at the end; Bailian's logs may leave the partial one out.
Status HashIdLogReader::check_ids(JsonCursor& json, size_t begin, const Line& line) const {
    const int64_t num_full = *line.input_length / units_.block_tokens;
    const int64_t num_blocks = num_full + (*line.input_length % units_.block_tokens != 0 ? 1 : 0);
    if (!line.has_ids || line.num_ids == num_blocks) return {};
    if (recording_.format == Format::kBailian && line.num_ids == num_full) return {};
    return json.wrong_at(begin, fmt::format("{} ids in 'hash_ids' (one per {} tokens; --block-tokens says how many), "
                                            "not {}",
                                            num_blocks, units_.block_tokens, line.num_ids));
}

// A turn that continues a session has a delay after the answer; all other requests have an arrival time.
Status HashIdLogReader::check(JsonCursor& json, size_t begin, const Line& line, bool opens) const {
    std::vector<std::string_view> missing;
    if (opens && !line.timestamp_ns) missing.emplace_back("timestamp");
    if (!line.input_length) missing.emplace_back("input_length");
    if (!line.output_length) missing.emplace_back("output_length");
    if (!missing.empty()) return json.wrong_at(begin, "a request with " + listed(missing));
    if (!opens && line.timestamp_ns && line.delay_ns) return json.wrong_at(begin, "'timestamp' or 'delay', not both");
    if (opens && line.delay_ns.value_or(0) > 0) {
        return json.wrong_at(begin, "a 'delay' only where a line of the same 'session_id' was before");
    }
    RETURN_IF_ERROR(check_ids(json, begin, line));
    const bool in_order = !opens || line.session || recording_.requests.empty() ||
                          *line.timestamp_ns >= recording_.requests.back().time_ns;
    if (!in_order) return json.wrong_at(begin, "a 'timestamp' that is not before the line before");
    return {};
}

// The blocks of the whole prompt. In the file, later turns of a session list only the blocks of their new tokens, which
// start behind earlier answers and are not aligned to the prompt's blocks. So from the second turn on the blocks get
// ids that are unique to the session.
void HashIdLogReader::add_blocks(RecordedRequest& request, Session* session, const Line& line) {
    std::vector<IdRun>& runs = recording_.runs;
    const int64_t num_full = request.prompt_tokens / units_.block_tokens;
    bool has_ids = line.has_ids;
    if (request.previous >= 0) {
        runs.resize(request.first_run);
        runs.insert(runs.end(), session->blocks.begin(), session->blocks.end());
        has_ids = false;
    } else if (has_ids && line.num_ids > num_full) {
        IdRun& last = runs.back();
        request.partial_id = last.first + last.count - 1;
        if (--last.count == 0) runs.pop_back();
    }
    if (!has_ids) {
        int64_t num_blocks = 0;
        for (size_t k = request.first_run; k < runs.size(); ++k) num_blocks += runs[k].count;
        for (; num_blocks < num_full; ++num_blocks) {
            add_block(runs, request.first_run, next_id_++);
        }
    }
    request.num_runs = runs.size() - request.first_run;
    if (session == nullptr) return;
    session->blocks.assign(runs.begin() + static_cast<int64_t>(request.first_run), runs.end());
    session->last_request = std::ssize(recording_.requests);
}

Status HashIdLogReader::read(JsonCursor& json) {
    Line line;
    RecordedRequest request;
    request.first_run = recording_.runs.size();
    const size_t begin = json.mark();
    RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
        if (key == "timestamp") return read_time(json, units_.time, line.timestamp_ns, key);
        if (key == "delay") return read_time(json, units_.time, line.delay_ns, key);
        if (key == "input_length") return read_once(json, line.input_length, key, 1, kMaxRecordedTokens);
        if (key == "output_length") return read_once(json, line.output_length, key, 0, kMaxRecordedTokens);
        if (key == "hash_ids") return read_ids(json, line, request.first_run);
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
    if (next_id_ > kMaxGivenBlockId - request.prompt_tokens / units_.block_tokens) {
        return json.wrong_at(begin, "fewer blocks without an id: there are 2^40");
    }
    add_blocks(request, session, line);
    request.source_row = static_cast<int64_t>(recording_.requests.size());
    recording_.requests.push_back(request);
    return {};
}

// A trace in another unit than its format's is read a thousand times too fast otherwise, without a word.
Status check_rate(const std::string& path, const Recording& recording, TimeUnit unit) {
    const double rate = median_rate(recording);
    if (rate <= kMaxPlausibleRate) return {};
    return error(
        "{}: with timestamps in {} the median rate is {:.0f} requests a second: are they in another unit? --time-unit "
        "s, ms, us or ns says which (--time-unit {}: they are right, read it so)",
        path, named(unit).word, rate, named(unit).flag);
}

}  // namespace

Result<Recording> read_hash_id_log(TextInput input, Format format, const ReadOptions& options) {
    const Units units = units_of(format, options);
    const std::string path = input.path();
    Recording recording;
    recording.format = format;
    recording.block_tokens = units.block_tokens;
    HashIdLogReader reader(recording, units);
    while (options.limit == 0 || static_cast<int64_t>(recording.requests.size()) < options.limit) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        RETURN_IF_ERROR(reader.read(json));
    }
    if (!options.time_unit) RETURN_IF_ERROR(check_rate(path, recording, units.time));
    Strand all;
    all.num_requests = recording.requests.size();
    recording.strands.push_back(all);
    return recording;
}

}  // namespace verbatim::traces
