// audit/script.h: owns what a relation asks: waves of requests, which answers must be equal, and what must have
// happened for the comparison to mean something. A script is plain data: a bundle holds one, and shrinking edits one.
//
// Strings of a body may hold placeholders, which a run fills in:
//   {{fresh K}}     words that no earlier run has sent; equal K, equal words within one run
//   {{unique K}}    the same for names (salts): 16 hexadecimal digits
//   {{answer W A}}  the text that request A of wave W was answered with
//   {{half W A}}    its first half, cut between tokens
//   {{tokens W A}}  alone in a string: the list of token ids that it was answered with (/tokenize)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::audit {

struct Ask {
    std::string path = "/v1/completions";
    nlohmann::ordered_json body;
    int64_t abort_after_bytes = 0;  // of the reply: 0: never
    int server = 0;                 // 1: the one of --against
    friend bool operator==(const Ask&, const Ask&) = default;
};

// Requests that are sent at one time.
struct Wave {
    std::vector<Ask> asks;
    bool restarts = false;  // the server is restarted first
    friend bool operator==(const Wave&, const Wave&) = default;
};

struct Place {
    size_t wave = 0;
    size_t ask = 0;
    size_t choice = 0;
    friend bool operator==(const Place&, const Place&) = default;
};

// Two answers that must be equal.
struct Pair {
    Place left;
    Place right;
    bool continues = false;     // the right one continues {{half}} of the left one
    bool same_prompt = false;   // the two prompts must have as many tokens
    bool chosen_first = false;  // a greedy token of `left` is the first one of its list of the likeliest
    bool scores_only = false;   // only log-probabilities of `left` against `right`, whose answer echoes the left prompt
    friend bool operator==(const Pair&, const Pair&) = default;
};

enum class NeedKind : uint8_t {
    kReused,     // the server took a part of this prompt from its cache
    kFresh,      // it took none
    kTogether,   // this stream and another one of its wave came interleaved
    kStreamed,   // the text came in several pieces
    kAborted,    // the connection was cut while the answer came
    kDrafted,    // one side of the case accepted drafted tokens, and the other did not
    kRestarted,  // something shows that the server was restarted before this wave
};
struct Need {
    NeedKind kind = NeedKind::kReused;
    size_t wave = 0;
    size_t ask = 0;
    friend bool operator==(const Need&, const Need&) = default;
};

struct Case {
    std::string relation;
    std::string name;  // "512 tokens", "with 7 others"
    std::vector<Wave> waves;
    std::vector<Pair> pairs;
    std::vector<Need> needs;
    bool is_sampled = false;  // temperature above 0, with a seed
    friend bool operator==(const Case&, const Case&) = default;
};

[[nodiscard]] const char* name(NeedKind kind);
[[nodiscard]] nlohmann::ordered_json case_json(const Case& script);
// Errors: what is missing or wrong, by its name.
[[nodiscard]] Result<Case> parse_case(const nlohmann::ordered_json& json);

}  // namespace verbatim::audit
