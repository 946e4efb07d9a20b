// tests/audit/fake_server.h: an OpenAI-compatible server without sockets, whose model is a hash of the tokens before.
// It is exact, or noisy as an honest server is, or has one planted fault.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/transport.h"
#include "engine/base/prng.h"

namespace verbatim::tests {

enum class Fault : uint8_t {
    kNone,
    kForgetsItself,    // every third answer has another token
    kTokenOnceSeen,    // a prompt that was seen before is answered with another token
    kStalePrefix,      // what comes from the cache is another prompt's
    kNeighboursToken,  // among others, one token is the neighbour's
    kCutCharacter,     // a stream loses a part of a character
    kLostLastChunk,    // a stream lacks its last piece of text
    kPartialHit,       // a prompt that is computed in part is answered with another token
    kContinuedText,    // so is one that goes on from an answer
    kAfterAbort,       // so is the next one after a connection was cut
    kThirdChoice,      // n = 4: the third choice has another token
    kPreviousRequest,  // an answer depends on the request before
    kWithoutLogProbs,  // so does one that is asked for without log-probabilities
    kShiftedEcho,      // log-probabilities of prompts are those of the token before
    kOtherTemplate,    // chats are rendered in another way than /apply-template says
    kUncached,         // a request that is computed without the cache has another token
};

enum class NoiseKind : uint8_t { kNone, kEachRun, kByPath };

struct FakeServerConfig {
    Fault fault = Fault::kNone;
    NoiseKind noise = NoiseKind::kNone;
    double noise_scale = 0.02;  // nats, of a logit
    bool is_laplace = false;    // heavier tails than a normal distribution's
    uint64_t seed = 1;
    bool has_completions = true;
    bool has_log_probs = true;
    bool has_salts = true;
    bool reports_cached = true;
    bool caches = true;
    bool runs_together = true;  // streams of a wave are interleaved
    bool has_metrics = false;   // vLLM's counter of hits
    bool has_echo = true;
    bool honours_seed = true;
    bool ignores_n = false;
    int64_t accepted_drafts = -1;  // of every answer, in usage; -1: not reported
    int64_t counted_drafts = -1;   // the same in vLLM's counter
    std::string fingerprint = "fp_fake";
    int64_t max_model_len = 8192;
};

class FakeServer final : public audit::Transport {
public:
    explicit FakeServer(FakeServerConfig config = {}) : config_(std::move(config)), chance_(config_.seed) {}
    [[nodiscard]] std::vector<audit::HttpReply> send(std::span<const audit::HttpRequest> requests) override;
    // Its cache and counters are empty, and it does not answer the next `num_down` requests.
    void restart(int64_t num_down = 0);
    [[nodiscard]] FakeServerConfig& config() { return config_; }
    [[nodiscard]] int64_t num_requests() const { return num_requests_; }
    [[nodiscard]] const std::vector<std::string>& bodies() const { return bodies_; }

private:
    struct Scores;
    struct Draft;
    audit::HttpReply get(const std::string& path) const;
    audit::HttpReply answer(const audit::HttpRequest& request, size_t index, size_t wave_size);
    Draft make_draft(const nlohmann::json& body, bool is_chat, size_t wave_size);
    void generate(Draft& draft, int64_t choice);
    Scores score(uint64_t prefix, const Draft& draft, size_t position);
    bool is_faulty(const Draft& draft, size_t position, int64_t choice);
    void remember(const Draft& draft);
    audit::HttpReply whole(const Draft& draft) const;
    audit::HttpReply stream(const Draft& draft, const audit::HttpRequest& request, size_t index);

    FakeServerConfig config_;
    Prng chance_;
    std::set<uint64_t> cached_;     // prefixes of whole blocks, with their salt
    std::set<uint64_t> generated_;  // prefixes that end in an answer
    std::vector<std::string> bodies_;
    uint64_t previous_ = 0;
    bool aborted_ = false;
    int64_t num_requests_ = 0;
    int64_t num_hits_ = 0;
    int64_t num_drafts_ = 0;
    int64_t num_down_ = 0;
    double now_s_ = 0;
};

}  // namespace verbatim::tests
