// engine/restore_rule.h: decides whether a head that lies outside of memory is read, or its tokens are computed
// again. A server and its simulation decide by this rule.
#pragma once

#include <cstdint>

#include "engine/base/check.h"

namespace verbatim {

enum class RestorePolicy : uint8_t {
    kAuto,  // if reading it is expected to be quicker, by the steps so far
    kAlways,
    kNever,
};

class RestoreRule {
public:
    // A sequence with fewer new tokens in a step does not say what a token of a prompt takes.
    static constexpr int64_t kChunkTokens = 16;
    // A read that takes longer than so many times what was expected, and this, is not waited for.
    static constexpr int64_t kLateTimes = 4;
    static constexpr int64_t kLateNs = 30'000'000'000;

    // A step's tokens.
    struct StepTokens {
        int64_t of_chunks = 0;
        int64_t all = 0;
        void add(int64_t num_new_tokens) {
            all += num_new_tokens;
            of_chunks += num_new_tokens >= kChunkTokens ? num_new_tokens : 0;
        }
    };

    explicit RestoreRule(RestorePolicy policy) : policy_(policy) {}

    // A step took so long. Counts if most of its tokens are of chunks.
    void note_step(const StepTokens& tokens, int64_t took_ns) {
        CHECK(tokens.of_chunks >= 0 && tokens.of_chunks <= tokens.all && took_ns >= 0, "{} of {} tokens in {} ns",
              tokens.of_chunks, tokens.all, took_ns);
        if (2 * tokens.of_chunks <= tokens.all) return;
        compute_ns_ += took_ns;
        computed_tokens_ += tokens.all;
    }
    // Whether a head is read that saves computing `saved` tokens and takes `read_ns` to come. Before any step has shown
    // what computing takes, it is. REQUIRES: saved > 0.
    [[nodiscard]] bool pays(int64_t saved, int64_t read_ns) const {
        CHECK_GT(saved, 0);
        if (policy_ != RestorePolicy::kAuto) return policy_ == RestorePolicy::kAlways;
        return computed_tokens_ == 0 || read_ns / saved <= compute_ns_ / computed_tokens_;
    }
    // Whether a read is given up that was expected to take `expected_ns`, after so long: whatever is known of
    // computing, none is waited for without end. REQUIRES: saved > 0.
    [[nodiscard]] bool has_lost(int64_t saved, int64_t expected_ns, int64_t waited_ns) const {
        CHECK(expected_ns >= 0 && waited_ns >= 0, "{} ns of {} ns", waited_ns, expected_ns);
        return !pays(saved, waited_ns) || (waited_ns - kLateNs) / kLateTimes > expected_ns;
    }
    [[nodiscard]] RestorePolicy policy() const { return policy_; }

private:
    RestorePolicy policy_;
    int64_t compute_ns_ = 0;  // of steps that counted
    int64_t computed_tokens_ = 0;
};

}  // namespace verbatim
