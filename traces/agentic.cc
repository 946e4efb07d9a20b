// The agentic session JSONL: one session per line, see traces/README.md.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/json_cursor.h"
#include "traces/recording.h"
#include "traces/strict.h"

namespace verbatim::traces {
namespace {

constexpr int64_t kAgenticBlockTokens = 64;

// The required members of a request, as bits of `seen`.
enum Seen : uint32_t {
    kT = 1,
    kIn = 2,
    kOut = 4,
    kBlocks = 8,
    kType = 16,
    kRequests = 32,
    kThink = 64,
    kApi = 128,
    kTool = 256,
    kSystem = 512
};

class SessionReader {
public:
    SessionReader(Recording& recording, const ReadOptions& options) : recording_(recording), options_(options) {}

    Status read(std::string_view line, const std::string& where) {
        JsonCursor json(line, where);
        json_ = &json;
        Strand session;
        session.session = recording_.num_sessions;
        session.closed = true;
        first_request_ = recording_.requests.size();
        pending_subagents_.clear();
        RETURN_IF_ERROR(read_session(session));
        RETURN_IF_ERROR(json.end());
        ++recording_.num_sessions;
        return {};
    }
    [[nodiscard]] bool full() const {
        return options_.limit > 0 && static_cast<int64_t>(recording_.requests.size()) >= options_.limit;
    }

private:
    // A sub-agent between the session's requests. Its requests are kept apart until the session is complete.
    struct Subagent {
        Strand strand;
        std::vector<RecordedRequest> requests;
        int64_t time_ns = 0;
    };

    Status once(uint32_t& seen, uint32_t member, std::string_view key) {
        if ((seen & member) != 0) return json_->wrong(fmt::format("'{}' once", key));
        seen |= member;
        return {};
    }

    Status read_session(Strand& session) {
        uint32_t seen = 0;
        const size_t begin = json_->mark();
        std::vector<RecordedRequest> requests;
        RETURN_IF_ERROR(json_->object([&](std::string_view key) -> Status {
            if (key == "id") return read_id(session.name);
            if (key == "block_size") return read_block_size();
            if (key == "tool_tokens") return read_count(session.tool_tokens, seen, kTool, key);
            if (key == "system_tokens") return read_count(session.system_tokens, seen, kSystem, key);
            if (key != "requests") return json_->skip();
            RETURN_IF_ERROR(once(seen, kRequests, key));
            return json_->array([&] { return read_request(&session, requests); });
        }));
        if ((seen & kRequests) == 0 || session.name.empty())
            return json_->wrong_at(begin, "a session with 'id' and 'requests'");
        append(session, requests);
        for (Subagent& subagent : pending_subagents_) finish_subagent(session, subagent);
        return {};
    }

    Status read_id(std::string& id) {
        const size_t begin = json_->mark();
        ASSIGN_OR_RETURN(id, json_->string());
        const bool valid =
            valid_name(id) && id.size() <= 150 && id.find('.') == std::string::npos;  // rows are named ID.NUMBER
        if (!valid) return json_->wrong_at(begin, "an id of letters, digits and _ : - /, at most 150");
        if (!ids_.insert(id).second) return json_->wrong_at(begin, "an id that no session before has");
        return {};
    }

    Status read_block_size() {
        const size_t begin = json_->mark();
        ASSIGN_OR_RETURN(const int64_t tokens, json_->integer(1, kMaxRecordedTokens));
        if (tokens != kAgenticBlockTokens) return json_->wrong_at(begin, "blocks of 64 tokens");
        return {};
    }

    Status read_count(uint32_t& count, uint32_t& seen, uint32_t member, std::string_view key) {
        RETURN_IF_ERROR(once(seen, member, key));
        ASSIGN_OR_RETURN(const int64_t value, json_->integer(0, kMaxRecordedTokens - 1));
        count = static_cast<uint32_t>(value);
        return {};
    }

    // Reads one element of "requests". `session`: may contain sub-agents; null: inside a sub-agent.
    Status read_request(Strand* session, std::vector<RecordedRequest>& requests) {
        RecordedRequest request;
        Subagent subagent;
        uint32_t seen = 0;
        std::string type;
        const size_t begin = json_->mark();
        request.first_run = recording_.runs.size();
        RETURN_IF_ERROR(json_->object([&](std::string_view key) -> Status {
            if (key == "type") {
                RETURN_IF_ERROR(once(seen, kType, key));
                ASSIGN_OR_RETURN(type, json_->string());
                return {};
            }
            if (session != nullptr && (key == "requests" || key == "tool_tokens" || key == "system_tokens")) {
                return read_subagent_member(key, subagent, seen);
            }
            return read_member(key, request, seen);
        }));
        if (type == "subagent") {
            if (session == nullptr) return json_->wrong_at(begin, "a request: a sub-agent has no sub-agents");
            return end_subagent(begin, seen, request.time_ns, std::move(subagent), requests);
        }
        return end_request(begin, seen, type, request, requests);
    }

    Status read_subagent_member(std::string_view key, Subagent& subagent, uint32_t& seen) {
        if (key == "tool_tokens") return read_count(subagent.strand.tool_tokens, seen, kTool, key);
        if (key == "system_tokens") return read_count(subagent.strand.system_tokens, seen, kSystem, key);
        RETURN_IF_ERROR(once(seen, kRequests, key));
        return json_->array([&] { return read_request(nullptr, subagent.requests); });
    }

    Status read_member(std::string_view key, RecordedRequest& request, uint32_t& seen) {
        if (key == "t") return read_seconds(request.time_ns, seen, kT, key);
        if (key == "api_time") return read_seconds(request.api_ns, seen, kApi, key);
        if (key == "think_time") return read_seconds(request.think_ns, seen, kThink, key);
        if (key == "in") return read_tokens(request.prompt_tokens, seen, kIn, key, 1);
        if (key == "out") return read_tokens(request.output_tokens, seen, kOut, key, 0);
        if (key == "hash_ids") {
            RETURN_IF_ERROR(once(seen, kBlocks, key));
            return json_->array([&] { return read_id_of_block(request); });
        }
        if (key != "h") return json_->skip();
        RETURN_IF_ERROR(once(seen, kBlocks, key));
        return json_->array([&] { return read_run(request); });
    }

    Status read_seconds(int64_t& ns, uint32_t& seen, uint32_t member, std::string_view key) {
        RETURN_IF_ERROR(once(seen, member, key));
        ASSIGN_OR_RETURN(ns, json_->seconds());
        return {};
    }

    Status read_tokens(int64_t& tokens, uint32_t& seen, uint32_t member, std::string_view key, int64_t low) {
        RETURN_IF_ERROR(once(seen, member, key));
        ASSIGN_OR_RETURN(tokens, json_->integer(low, kMaxRecordedTokens));
        return {};
    }

    // Consecutive ids become one run.
    Status read_id_of_block(RecordedRequest& request) {
        ASSIGN_OR_RETURN(const int64_t id, json_->integer(0, kMaxBlockId));
        std::vector<IdRun>& runs = recording_.runs;
        if (request.num_runs > 0 && runs.back().first + runs.back().count == id) {
            ++runs.back().count;
        } else {
            runs.push_back({id, 1});
            ++request.num_runs;
        }
        return {};
    }

    Status read_run(RecordedRequest& request) {
        IdRun run;
        int place = 0;
        const size_t begin = json_->mark();
        RETURN_IF_ERROR(json_->array([&]() -> Status {
            ASSIGN_OR_RETURN(const int64_t value, json_->integer(place == 0 ? 0 : 1, kMaxBlockId));
            if (place < 2) (place == 0 ? run.first : run.count) = value;
            ++place;
            return {};
        }));
        if (place != 2 || run.first + run.count - 1 > kMaxBlockId)
            return json_->wrong_at(begin, "[start, count] of block ids below 2^31");
        recording_.runs.push_back(run);
        ++request.num_runs;
        return {};
    }

    Status end_request(size_t begin, uint32_t seen, const std::string& type, RecordedRequest request,
                       std::vector<RecordedRequest>& requests) {
        constexpr uint32_t kNeeded = kT | kIn | kOut | kBlocks;
        if ((seen & kNeeded) != kNeeded) return lacks(begin, seen);
        if ((seen & kRequests) != 0)
            return json_->wrong_at(begin, "a request without 'requests', or of type 'subagent'");
        if (type != "s" && type != "n") return json_->wrong_at(begin, "a request of type 's', 'n' or 'subagent'");
        RETURN_IF_ERROR(check_blocks(begin, request));
        if (!requests.empty() && request.time_ns < requests.back().time_ns)
            return json_->wrong_at(begin, "a 't' that is not before the request before");
        request.source_row = next_source_row_++;
        requests.push_back(request);
        return {};
    }

    [[nodiscard]] tl::unexpected<Error> lacks(size_t begin, uint32_t seen) const {
        std::vector<std::string_view> missing;
        for (const auto& [member, key] : {std::pair{kT, "t"}, std::pair{kIn, "in"}, std::pair{kOut, "out"}})
            if ((seen & member) == 0) missing.emplace_back(key);
        const bool lacks_blocks = (seen & kBlocks) == 0;
        const std::string blocks = "'h' or 'hash_ids'";
        if (missing.empty()) return json_->wrong_at(begin, "a request with " + blocks);
        return json_->wrong_at(begin,
                               "a request with " + listed(missing) + (lacks_blocks ? ", and with " + blocks : ""));
    }

    // Requires the ids of the full blocks, optionally followed by one of a last partial block.
    Status check_blocks(size_t begin, RecordedRequest& request) {
        int64_t num_blocks = 0;
        for (size_t k = 0; k < request.num_runs; ++k) num_blocks += recording_.runs[request.first_run + k].count;
        const int64_t full = request.prompt_tokens / kAgenticBlockTokens;
        if (num_blocks == full + 1 && request.prompt_tokens % kAgenticBlockTokens != 0) {
            IdRun& last = recording_.runs[request.first_run + request.num_runs - 1];
            request.partial_id = last.first + last.count - 1;
            if (--last.count == 0) {
                recording_.runs.pop_back();
                --request.num_runs;
            }
            return {};
        }
        if (num_blocks == full) return {};
        return json_->wrong_at(begin, fmt::format("ids of {} blocks of 64 tokens, not of {}", full, num_blocks));
    }

    Status end_subagent(size_t begin, uint32_t seen, int64_t time_ns, Subagent subagent,
                        const std::vector<RecordedRequest>& session_requests) {
        if ((seen & kRequests) == 0 || (seen & kT) == 0)
            return json_->wrong_at(begin, "a sub-agent with 't' and 'requests'");
        if (!session_requests.empty() && time_ns < session_requests.back().time_ns) {
            return json_->wrong_at(begin, "a 't' that is not before the request before");
        }
        subagent.time_ns = time_ns;
        subagent.strand.closed = true;
        subagent.strand.after = static_cast<int64_t>(session_requests.size()) - 1;
        pending_subagents_.push_back(std::move(subagent));
        return {};
    }

    // Appends requests up to the limit.
    void append(Strand strand, std::vector<RecordedRequest>& requests) {
        size_t count = requests.size();
        if (options_.limit > 0) {
            count = std::min(count, static_cast<size_t>(options_.limit) - recording_.requests.size());
        }
        strand.first_request = recording_.requests.size();
        strand.num_requests = count;
        recording_.requests.insert(recording_.requests.end(), requests.begin(),
                                   requests.begin() + static_cast<ptrdiff_t>(count));
        if (count > 0) recording_.strands.push_back(std::move(strand));
    }

    void finish_subagent(const Strand& session, Subagent& subagent) {
        Strand strand = subagent.strand;
        strand.name = fmt::format("{}.s{}", session.name, number_of_subagent_in(session));
        strand.session = session.session;
        strand.offset_ns = subagent.time_ns;
        if (strand.after >= 0) {
            const size_t before = first_request_ + static_cast<size_t>(strand.after);
            if (before >= recording_.requests.size()) return;  // the limit cut the session off before it
            const RecordedRequest& request = recording_.requests[before];
            strand.offset_ns = std::max<int64_t>(0, subagent.time_ns - request.time_ns - request.api_ns);
            strand.after = static_cast<int64_t>(before);
        }
        for (RecordedRequest& request : subagent.requests) request.time_ns += subagent.time_ns;
        append(strand, subagent.requests);
        ++recording_.num_subagents;
    }

    [[nodiscard]] int64_t number_of_subagent_in(const Strand& session) const {
        return std::count_if(recording_.strands.begin(), recording_.strands.end(),
                             [&](const Strand& strand) { return strand.session == session.session; }) -
               1;
    }

    Recording& recording_;
    const ReadOptions& options_;
    JsonCursor* json_ = nullptr;
    std::vector<Subagent> pending_subagents_;
    std::set<std::string> ids_;
    size_t first_request_ = 0;
    int64_t next_source_row_ = 0;
};

}  // namespace

Result<Recording> read_agentic(TextInput input, const ReadOptions& options) {
    Recording recording;
    recording.format = Format::kAgentic;
    recording.block_tokens = kAgenticBlockTokens;
    SessionReader reader(recording, options);
    for (int64_t number = 0; !reader.full() && (!options.sessions || number <= options.sessions->last); ++number) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        if (options.sessions && number < options.sessions->first) continue;
        RETURN_IF_ERROR(reader.read(*line, fmt::format("{}:{}", input.path(), input.line_number())));
    }
    return recording;
}

}  // namespace verbatim::traces
