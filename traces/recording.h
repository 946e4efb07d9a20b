// traces/recording.h: owns the content of a request log before conversations are inferred: lengths, and which blocks
// are equal.
//
// Private to the readers; traces/conversations.h turns it into a Trace.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "traces/read.h"
#include "traces/text_input.h"

namespace verbatim::traces {

// `count` blocks with consecutive ids.
using IdRun = BlockLog::Run;

struct RecordedRequest {
    int64_t source_row = 0;  // in the file, counted from 0
    int64_t time_ns = 0;     // since the trace's start; in closed strands: since the session's start
    int64_t api_ns = 0;      // closed strands: duration of the answer; 0 when not recorded
    int64_t think_ns = 0;    // closed strands: from the previous answer to this request
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
    size_t first_run = 0;  // Recording::runs[first_run ..]: its full blocks
    size_t num_runs = 0;
    int64_t partial_id = -1;  // of the last block if it is partial; -1: no partial block
    // For a client named by the file, in a strand that is not closed: the client's previous request, which this one
    // continues think_ns after its answer; -1: the client's first request, which has an arrival time.
    bool has_client = false;
    int64_t previous = -1;
};

// Requests with comparable ids: all of a trace, an agent session, a sub-agent; or one recorded session without ids.
struct Strand {
    std::string name;          // a valid_name; the requests are name.0, name.1, ...; "": 0, 1, ...
    size_t first_request = 0;  // Recording::requests[first_request ..]
    size_t num_requests = 0;
    int64_t session = -1;  // -1: every root starts a new session
    bool closed = false;   // one client: each request comes think_ns after the previous answer
    int64_t after =
        -1;  // sub-agent: starts offset_ns after this request of the session is answered; -1: with the session
    int64_t offset_ns = 0;
    uint32_t tool_tokens = 0;  // shared text at the start (traces/README.md)
    uint32_t system_tokens = 0;
    bool has_ids = true;  // false: a request that is long enough continues the previous one
};

struct Recording {
    Format format = Format::kMooncake;
    int64_t block_tokens = 1;
    std::vector<RecordedRequest> requests;
    std::vector<IdRun> runs;
    std::vector<Strand> strands;
    int64_t num_sessions = 0;
    int64_t num_subagents = 0;
    std::map<std::string, int64_t> left_out;  // as in ReadReport
};

// The median over requests of the rate at which the requests of one arrival time come, up to the next arrival time,
// per second. 0: all arrive at once.
[[nodiscard]] double median_rate(const Recording& recording);

// Limits of the values in a recording.
inline constexpr int64_t kMaxRecordedTokens = 1 << 30;
inline constexpr int64_t kMaxBlockId = (int64_t{1} << 31) - 1;
// Readers number blocks without an id in the file, and those with an id beyond kMaxBlockId, from kMaxBlockId + 1 to
// here.
inline constexpr int64_t kMaxGivenBlockId = (int64_t{1} << 40) - 1;

// The readers stop after options.limit requests and skip sessions outside options.sessions if the file has sessions.
Result<Recording> read_agentic(TextInput input, const ReadOptions& options);
// Mooncake and Bailian. REQUIRES: `format` is one of them.
Result<Recording> read_hash_id_log(TextInput input, Format format, const ReadOptions& options);
Result<Recording> read_azure(TextInput input, const ReadOptions& options);
Result<Recording> read_burstgpt(TextInput input, const ReadOptions& options);
Result<Recording> read_vllm_bench(TextInput input, const ReadOptions& options);
Result<Recording> read_ragpulse(TextInput input, const ReadOptions& options);
Result<Recording> read_vidur(TextInput input, const ReadOptions& options);
Result<Recording> read_otel(TextInput input, const ReadOptions& options);

// The recording's blocks as a block-aligned cache sees them: separate per strand except for shared text, partial blocks
// by their id.
[[nodiscard]] BlockLog make_block_log(const Recording& recording);

}  // namespace verbatim::traces
