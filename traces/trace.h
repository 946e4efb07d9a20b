// traces/trace.h: owns a request trace in memory: rows (requests and events) that describe their tokens without storing
// them.
//
// A row's prompt is the part that it takes verbatim from its predecessor (an earlier row's prompt and generated
// output), then own tokens, as runs over derived spaces or explicit ids. Output tokens are not stored: a replay
// uses the engine's output. Readers and converters make a Trace (traces/read.h), a replay turns its rows into requests
// (traces/requests.h).
//   R1  `from`, `wait_for` and `parent` of a row are earlier rows
//   R2  rows are in the order of their arrival times
//   R3  row.prompt_tokens is the planned length: taken + own tokens, if every row generates exactly its max_tokens
//   R4  only requests (history, suffix, regenerate) have own tokens, limits and expectations
//   R5  a row takes only from a row of the same salt
//   R6  names are valid_name()s; row names are unique; only retries of one turn share a turn id
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/sampling.h"

namespace verbatim::traces {

enum class RowIndex : int32_t {};           // place in Trace::rows
enum class ConversationIndex : int32_t {};  // place in Trace::conversations
inline constexpr RowIndex kNoRow{-1};
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

enum class Event : uint8_t {
    kHistory,     // a request with the whole conversation: taken + own tokens. An edit takes less than all
    kSuffix,      // a request with own tokens only, which follow the conversation's committed tokens
    kRegenerate,  // a request: answer the prompt of the conversation's last turn again; no own tokens
    kFork,        // `conversation` (new) starts from the state that row `from` committed
    kRewind,      // `conversation` goes back to the state that row `from` committed
    kDelete,      // `conversation` is forgotten
};

// The part of row `from` with which a history begins.
enum class Take : uint8_t {
    kTokens,  // take_tokens tokens of its prompt and output
    kPrompt,  // its whole prompt
    kAll,     // its whole prompt and output
};

// When the client sends a row. An event that is no request is answered when it is done.
enum class Start : uint8_t {
    kArrival,       // at arrival_ns, or when wait_for (if any) is answered if that is later
    kAfterAnswer,   // think_ns after wait_for is answered; arrival_ns is the recorded time
    kWhileRunning,  // as soon as wait_for has been scheduled and while it is still running
};

// The result that the client must get; a replay checks it.
enum class Expect : uint8_t {
    kServed,    // an answer, or the client's own abort
    kBusy,      // refused: another request holds the conversation's lease
    kRefused,   // refused for any other reason, such as `parent`
    kRecorded,  // the recorded answer of the row with the same turn id
};

// A run of tokens: derived (token i is a function of (space, begin + i)) or explicit (ids[begin + i] of
// Trace::explicit_ids).
struct Piece {
    static constexpr uint64_t kExplicit = ~uint64_t{0};
    uint64_t space = 0;  // < 2^63, or kExplicit
    int64_t begin = 0;
    int32_t length = 0;         // > 0
    bool ends_message = false;  // true for the last piece of a row
    bool checkpoint = false;    // with ends_message: the message's end is a checkpoint
    friend bool operator==(const Piece&, const Piece&) = default;
};

// Options that many rows share.
struct RowOptions {
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<TokenId> stop_tokens;
    std::vector<std::vector<TokenId>> stop_strings;
    bool ignore_stop = false;
    bool use_cache = true;
    bool deterministic = true;
    friend bool operator==(const RowOptions&, const RowOptions&) = default;
};

inline constexpr int64_t kMaxTimeNs = int64_t{1} << 61;  // 73 years

struct Row {
    int64_t arrival_ns = 0;     // since the trace's start; at most kMaxTimeNs, as think_ns
    int64_t think_ns = 0;       // kAfterAnswer: from the answer to wait_for until this row
    int64_t take_tokens = 0;    // Take::kTokens: how many; 0 without `from`
    int64_t prompt_tokens = 0;  // R3
    int64_t max_tokens = -1;    // -1: the engine's default; 0: prefill only
    int64_t abort_after = -1;   // -1: never; n: the client leaves after n tokens (0: before the first one)
    uint64_t first_piece = 0;   // own tokens: Trace::pieces[first_piece ..]
    uint32_t num_pieces = 0;
    ConversationIndex conversation{};
    RowIndex from = kNoRow;      // predecessor of a request; for a fork or rewind the row whose state is used
    RowIndex wait_for = kNoRow;  // see Start
    RowIndex parent = kNoRow;    // with has_parent: this row's head must be the newest; kNoRow: no head
    uint32_t options = 0;        // Trace::options
    uint32_t name = 0;           // Trace::names: the name by which other rows refer to this one; 0: none
    uint32_t turn = 0;           // Trace::names: its turn_id; 0: none
    int32_t session = -1;        // the recorded session (an agent and its sub-agents); -1: none
    int32_t replica = -1;        // that serves it, where the trace says so (verbatim simulate --route trace); -1: any
    Event event = Event::kHistory;
    Take take = Take::kTokens;
    Start start = Start::kArrival;
    Expect expect = Expect::kServed;
    bool has_parent = false;
    friend bool operator==(const Row&, const Row&) = default;
};

struct Conversation {
    uint32_t name = 0;                // Trace::names
    std::optional<std::string> salt;  // no salt differs from the empty one
    friend bool operator==(const Conversation&, const Conversation&) = default;
};

struct Trace {
    std::vector<Row> rows;
    std::vector<Conversation> conversations;
    std::vector<Piece> pieces;
    std::vector<TokenId> explicit_ids;
    std::vector<RowOptions> options{RowOptions{}};  // distinct; [0] is the default
    std::vector<std::string> names{std::string{}};  // [0] is ""
    friend bool operator==(const Trace&, const Trace&) = default;

    [[nodiscard]] const Row& row(RowIndex i) const { return rows[static_cast<size_t>(index(i))]; }
    [[nodiscard]] const Conversation& conversation_of(const Row& row) const {
        return conversations[static_cast<size_t>(index(row.conversation))];
    }
};

// Letters, digits and . _ : - / only, 1 to 200 of them: needs no quoting in a file.
[[nodiscard]] bool valid_name(std::string_view name);

[[nodiscard]] inline bool is_request(Event event) { return event <= Event::kRegenerate; }
[[nodiscard]] inline int64_t num_requests(const Trace& trace) {
    return std::ranges::count_if(trace.rows, [](const Row& row) { return is_request(row.event); });
}

// How a history relates to its predecessor, by the rules of traces/README.md.
enum class Relation : uint8_t {
    kRoot,          // takes nothing
    kContinuation,  // takes prompt and output
    kRewrite,       // takes the prompt only: another answer replaces the first
    kEdit,          // takes less than the prompt
};
// REQUIRES: row.event == kHistory. A predecessor's output of 0 tokens makes a continuation, not a rewrite.
[[nodiscard]] Relation relation(const Trace& trace, const Row& row);

// Tokens that `row` is planned to take from its predecessor, also for a suffix or regenerate. 0 for events that are no
// requests.
[[nodiscard]] int64_t planned_take(const Trace& trace, const Row& row);

// The planned end of a row: prompt and output. max_tokens of -1 counts as 0 (the engine's default is not known here).
[[nodiscard]] int64_t planned_end(const Row& row);

// The derived space of row i's output where none was generated: forced tokens, or a refused or aborted row that a later
// row takes from. Token k of the output is derive(output_space(i), k).
[[nodiscard]] uint64_t output_space(RowIndex i);

// Checks R1..R6 and ranges; returns all problems at once. Readers and converters guarantee them, so a failure is a bug
// or a hand-made Trace.
[[nodiscard]] Status validate(const Trace& trace);

}  // namespace verbatim::traces
