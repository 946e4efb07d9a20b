// audit/answer.h: owns what a server's reply says: texts, tokens, log-probabilities, usage, whole or as a stream.
//
//   A1  what no complete answer can be (text that is no UTF-8, a stream that ends early) is a `fault`, not a problem
//   A2  an answer with a problem has nothing to compare
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/transport.h"

namespace verbatim::audit {

struct ScoredToken {
    std::string text;
    double log_prob = 0;
    std::vector<std::pair<std::string, double>> top;  // likeliest first
};

struct Choice {
    std::string text;
    std::string finish_reason;
    std::vector<ScoredToken> tokens;  // empty: no log-probabilities
};

struct Answer {
    std::string problem;  // empty: there is an answer
    int status = 0;
    std::vector<std::string> faults;
    std::vector<Choice> choices;
    std::optional<int64_t> prompt_tokens;
    std::optional<int64_t> completion_tokens;
    std::optional<int64_t> cached_tokens;  // of the prompt
    std::optional<int64_t> accepted_drafts;
    std::string fingerprint;
    bool is_stream = false;
    bool has_end_mark = false;     // [DONE]
    bool aborted = false;          // the auditor cut the connection
    std::vector<double> events_s;  // when the events with text came
    double sent_s = 0;
    double done_s = 0;
    [[nodiscard]] bool is_answer() const { return problem.empty() && !aborted; }
};

// The reply to a request for a completion or a chat completion.
[[nodiscard]] Answer parse_answer(const HttpReply& reply);

// The message of an error body, or its beginning.
[[nodiscard]] std::string error_text(const HttpReply& reply);

// Whether every character is whole (RFC 3629).
[[nodiscard]] bool is_utf8(const std::string& text);

// For bundles: texts, tokens, log-probabilities, usage.
[[nodiscard]] nlohmann::ordered_json answer_json(const Answer& answer);

}  // namespace verbatim::audit
