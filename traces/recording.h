// traces/recording.h: what a request log says, before it is known which tokens follow from which.
//
// Only lengths and which blocks are equal. Private to the readers; traces/conversations.h makes a Trace of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/read.h"
#include "traces/text_input.h"

namespace verbatim::traces {

// `count` blocks with consecutive ids.
using IdRun = BlockLog::Run;

struct RecordedRequest {
    int64_t source_row = 0;  // of the file, counted from 0
    int64_t time_ns = 0;     // since the trace's start; of closed strands: since the session's start
    int64_t api_ns = 0;      // closed strands: how long the answer took; 0 when not recorded
    int64_t think_ns = 0;    // closed strands: from the answer before to this request
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
    size_t first_run = 0;  // Recording::runs[first_run ..]: its full blocks
    size_t num_runs = 0;
    int64_t partial_id = -1;  // of the last block when it is not full; -1: it has none
    // Of a client whom the file names, in a strand that is not closed: the request before it, which it continues
    // think_ns after its answer; -1: it is the first one, and comes at its time.
    bool has_client = false;
    int64_t previous = -1;
};

// Requests whose ids can be compared: all of a trace, an agent session, a sub-agent; or one recorded session without
// ids.
struct Strand {
    std::string name;          // a valid_name; the requests are name.0, name.1, ...; "": 0, 1, ...
    size_t first_request = 0;  // Recording::requests[first_request ..]
    size_t num_requests = 0;
    int64_t session = -1;  // -1: every root begins a session of its own
    bool closed = false;   // one client: each request think_ns after the answer before it
    int64_t after =
        -1;  // sub-agent: it starts offset_ns after this request of the session is answered; -1: with the session
    int64_t offset_ns = 0;
    uint32_t tool_tokens = 0;  // shared text at the start, see traces/README.md
    uint32_t system_tokens = 0;
    bool has_ids = true;  // false: a request that is long enough continues the one before it
};

struct Recording {
    Format format = Format::kMooncake;
    int64_t block_tokens = 1;
    std::vector<RecordedRequest> requests;
    std::vector<IdRun> runs;
    std::vector<Strand> strands;
    int64_t num_sessions = 0;
    int64_t num_subagents = 0;
};

// Limits of what a recording may say.
inline constexpr int64_t kMaxRecordedTokens = 1 << 30;
inline constexpr int64_t kMaxBlockId = (int64_t{1} << 31) - 1;
// Readers number blocks that a file gives no id from kMaxBlockId + 1 to here.
inline constexpr int64_t kMaxGivenBlockId = (int64_t{1} << 40) - 1;

// Each stops after options.limit requests and leaves out other sessions than options.sessions where the file says what
// a session is.
Result<Recording> read_agentic(TextInput input, const ReadOptions& options);
Result<Recording> read_mooncake(TextInput input, const ReadOptions& options);
Result<Recording> read_azure(TextInput input, const ReadOptions& options);
Result<Recording> read_burstgpt(TextInput input, const ReadOptions& options);

// Its blocks as a block-aligned cache sees them: strands apart, shared text together, partial blocks by their id.
[[nodiscard]] BlockLog make_block_log(const Recording& recording);

}  // namespace verbatim::traces
