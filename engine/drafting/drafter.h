// engine/drafting/drafter.h: proposes the next tokens of running requests, so that a step computes a window of them.
// Drafts decide how many tokens a step yields, never which.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/sampling.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// One request that could use drafts in the step to come.
struct DraftJob {
    RequestId request{};
    const TokenSeq* prompt = nullptr;
    std::span<const TokenId> output;  // so far
    SamplingParams sampling;          // with its seed: a draft may be sampled as the token will be
    int32_t max_drafts = 0;           // that the step can use; at least 1
    int64_t num_behind = 0;           // Drafter::num_behind() of it
    std::vector<TokenId> drafts;      // filled in: at most max_drafts tokens that may follow, in order

    [[nodiscard]] int64_t num_known() const {
        return static_cast<int64_t>(prompt->size()) + static_cast<int64_t>(output.size());
    }
};

// A step in which every sequence decoded.
struct DecodeStep {
    int32_t num_requests = 0;
    int64_t num_tokens = 0;  // that it yielded
    int64_t num_drafts = 0;  // that it verified

    bool operator==(const DecodeStep&) const = default;
};

// Which drafts are worth their time in the step to come.
struct DraftTerms {
    int64_t least_acceptance = 0;        // how likely a draft must be to be worth its row, of kSure
    int32_t catch_up_to = INT32_MAX;     // requests catch up, the nearest first, until so many have drafts
    int64_t output_for_1024_behind = 0;  // tokens of output whose drafts save what 1024 of catching up take

    // Whether drafts of `num_output` tokens save what the drafter has to catch up for them.
    [[nodiscard]] bool repay(int64_t num_behind, int64_t num_output) const {
        return num_behind * output_for_1024_behind <= 1024 * num_output;
    }
    bool operator==(const DraftTerms&) const = default;
};

class Drafter {
public:
    virtual ~Drafter() = default;
    // Before every step in which the drafter may be asked, whether it is or not.
    virtual void step_begins() {}
    // In the place of step_begins(): the step has no drafts, because they cost more than they give.
    virtual void step_begins_undrafted() {}
    // With paced windows, the step came back; null: some sequence did not decode.
    virtual void step_ends(const DecodeStep* step) { static_cast<void>(step); }
    // With paced windows, what drafts of a step of num_requests are worth; nothing: the step shall have none. Asked
    // once a step, before it begins.
    virtual std::optional<DraftTerms> terms(int32_t num_requests) {
        static_cast<void>(num_requests);
        return DraftTerms{};
    }
    // Tokens that the drafter has to catch up before it can draft for a job, as the prompt of a new request; those of
    // the last window do not count.
    [[nodiscard]] virtual int64_t num_behind(const DraftJob& job) const {
        static_cast<void>(job);
        return 0;
    }
    // For all requests of a step at once. Tokens must lie in the vocabulary. May leave the jobs in another order.
    virtual void draft(std::span<DraftJob> jobs) = 0;
    // The request gets no more drafts.
    virtual void ended(RequestId request) = 0;
};

// Another drafter, whose drafts it takes part in.
class WrappingDrafter : public Drafter {
public:
    // Borrows it.
    explicit WrappingDrafter(Drafter& inner) : inner_(inner) {}
    void step_begins() override { inner_.step_begins(); }
    void step_begins_undrafted() override { inner_.step_begins_undrafted(); }
    void step_ends(const DecodeStep* step) override { inner_.step_ends(step); }
    std::optional<DraftTerms> terms(int32_t num_requests) override { return inner_.terms(num_requests); }
    [[nodiscard]] int64_t num_behind(const DraftJob& job) const override { return inner_.num_behind(job); }
    void draft(std::span<DraftJob> jobs) override { inner_.draft(jobs); }
    void ended(RequestId request) override { inner_.ended(request); }

protected:
    [[nodiscard]] Drafter& inner() { return inner_; }

private:
    Drafter& inner_;
};

}  // namespace verbatim
