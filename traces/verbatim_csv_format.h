// traces/verbatim_csv_format.h: owns the columns and keywords of Verbatim's trace format, for its reader and writer.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/trace.h"

namespace verbatim::traces::csv_format {

inline constexpr std::string_view kFirstLine = "# verbatim-trace 1";

// In the writer's order.
enum Column : size_t {
    kRow,
    kEvent,
    kConversation,
    kSalt,
    kSession,
    kArrival,
    kStart,
    kWaitFor,
    kThink,
    kFrom,
    kTake,
    kTokens,
    kMaxTokens,
    kIgnoreStop,
    kStopTokens,
    kStopStrings,
    kTemperature,
    kTopK,
    kTopP,
    kRepetition,
    kPresence,
    kFrequency,
    kSeed,
    kDeterministic,
    kUseCache,
    kTurn,
    kParent,
    kAbortAfter,
    kExpect,
    kReplica,  // written where a row names one
    kNumColumns
};
inline constexpr std::array<const char*, kNumColumns> kColumnNames = {"row",
                                                                      "event",
                                                                      "conversation",
                                                                      "salt",
                                                                      "session",
                                                                      "arrival_ns",
                                                                      "start",
                                                                      "wait_for",
                                                                      "think_ns",
                                                                      "from",
                                                                      "take",
                                                                      "tokens",
                                                                      "max_tokens",
                                                                      "ignore_stop",
                                                                      "stop_tokens",
                                                                      "stop_strings",
                                                                      "temperature",
                                                                      "top_k",
                                                                      "top_p",
                                                                      "repetition_penalty",
                                                                      "presence_penalty",
                                                                      "frequency_penalty",
                                                                      "seed",
                                                                      "deterministic",
                                                                      "use_cache",
                                                                      "turn",
                                                                      "parent",
                                                                      "abort_after",
                                                                      "expect",
                                                                      "replica"};

// Index in the list = the enum's value; the first entry is the meaning of an empty field.
inline constexpr std::array<std::string_view, 6> kEvents = {"history", "suffix", "regenerate",
                                                            "fork",    "rewind", "delete"};
inline constexpr std::array<std::string_view, 3> kStarts = {"arrival", "answer", "running"};
inline constexpr std::array<std::string_view, 4> kExpects = {"served", "busy", "refused", "recorded"};

inline constexpr std::string_view kEmptySalt = "\"\"";   // an empty field is no salt
inline constexpr std::string_view kNoHeadWord = "none";  // column parent

// Limits of the values in a file; larger numbers are errors.
inline constexpr int64_t kMaxRowTokens = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxPromptTokens = int64_t{1} << 40;
inline constexpr int64_t kMaxBegin = int64_t{1} << 50;
inline constexpr size_t kMaxStopIds = 65536;

}  // namespace verbatim::traces::csv_format
