// audit/server_info.h: owns what an audit finds out about a server before it compares: its endpoints, what its answers
// carry, and how a prompt can be kept apart from what is cached.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "audit/answer.h"
#include "audit/script.h"
#include "audit/transport.h"
#include "audit/words.h"
#include "engine/base/result.h"

namespace verbatim::audit {

struct ServerInfo {
    std::string model;
    std::string engine;       // "vLLM", "SGLang", "llama.cpp", "Verbatim", by its metrics; empty: unknown
    std::string fingerprint;  // of its answers
    bool is_exact = false;    // it promises equal bits: the fingerprint of Verbatim's exact or tensor profile
    bool is_chat = false;     // no completions
    bool has_chat = false;
    bool has_log_probs = false;
    bool has_echo = false;      // prompt log-probabilities
    bool has_tokenize = false;  // POST /tokenize
    bool has_apply_template = false;
    bool has_end_mark = false;      // streams end in [DONE]
    bool has_finish_reason = true;  // answers, whole or streamed, say why they end
    bool has_stream_usage = false;
    bool reports_cached = false;        // usage.prompt_tokens_details.cached_tokens
    std::string hits_metric;            // a counter of /metrics: reused prompt tokens; empty: none
    std::string computed_metric;        // the same: computed prompt tokens
    std::optional<int64_t> max_tokens;  // of a prompt and its answer
    nlohmann::ordered_json isolation;   // fields that keep a request apart from the cache; null: none works
    nlohmann::ordered_json neutral;     // fields that switch penalties off, where the server takes them
    Words words;
};

struct DiscoverOptions {
    std::string model;     // empty: the first one that the server lists
    std::string endpoint;  // "completions", "chat"; empty: completions where the server has them
    uint64_t seed = 0;
};

// Errors: nothing answers, or what answers is no such server; the key is refused; no endpoint works.
[[nodiscard]] Result<ServerInfo> discover(Transport& transport, const DiscoverOptions& options);

// The value of the first counter with this name, summed over its labels.
[[nodiscard]] std::optional<double> metric_value(const std::string& metrics, const std::string& name);

struct AskOptions {
    int64_t max_tokens = 24;
    bool streams = false;
    bool isolated = false;  // REQUIRES: info.isolation
    bool log_probs = true;
    int64_t n = 1;
    std::optional<uint64_t> seed;  // temperature 1
    int64_t unique = 0;            // of {{unique K}} in the isolation
};
// The request for an answer to these turns: a user's, an assistant's, a user's, ...
[[nodiscard]] Ask make_ask(const ServerInfo& info, const std::vector<std::string>& turns,
                           const AskOptions& options = {});

}  // namespace verbatim::audit
