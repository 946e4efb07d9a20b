#include "engine/drafting/adversary_drafter.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr uint64_t kMillion = 1'000'000;

}  // namespace

AdversaryDrafter::AdversaryDrafter(Oracle oracle, int32_t vocab_size, uint64_t seed,
                                   std::optional<int32_t> mismatch_ppm)
    : oracle_(std::move(oracle)), vocab_size_(vocab_size), prng_(seed), mismatch_ppm_(mismatch_ppm) {
    CHECK_GT(vocab_size, 1);
    CHECK(!mismatch_ppm || (*mismatch_ppm >= 0 && *mismatch_ppm <= static_cast<int32_t>(kMillion)));
}

void AdversaryDrafter::draft(std::span<DraftJob> jobs) {
    for (DraftJob& job : jobs) {
        CHECK(job.drafts.empty() && job.max_drafts >= 1, "{} drafts are there, {} wanted", job.drafts.size(),
              job.max_drafts);
        mismatch_ppm_ ? draft_at_rate(job) : draft_at_will(job);
        CHECK_LE(job.drafts.size(), static_cast<size_t>(job.max_drafts));
    }
}

TokenId AdversaryDrafter::any_token() { return static_cast<TokenId>(prng_.below(static_cast<uint64_t>(vocab_size_))); }

void AdversaryDrafter::draft_right(DraftJob& job, int64_t count) {
    CHECK_GE(count, 0);
    for (int64_t i = 0; i < count; ++i) {
        const auto token = oracle_(job, i);
        if (!token) return;
        CHECK(*token >= 0 && *token < vocab_size_, "the oracle says token {} of {}", *token, vocab_size_);
        job.drafts.push_back(*token);
    }
}

void AdversaryDrafter::draft_at_rate(DraftJob& job) {
    CHECK(mismatch_ppm_.has_value());
    draft_right(job, job.max_drafts);
    for (TokenId& token : job.drafts) {
        if (prng_.below(kMillion) < static_cast<uint64_t>(*mismatch_ppm_)) token = (token + 1) % vocab_size_;
    }
}

void AdversaryDrafter::draft_at_will(DraftJob& job) {
    const auto count = static_cast<int64_t>(prng_.below(static_cast<uint64_t>(job.max_drafts) + 1));
    const uint64_t kind = prng_.below(3);
    if (kind == 0) return draft_right(job, count);
    if (kind == 1) draft_right(job, static_cast<int64_t>(prng_.below(static_cast<uint64_t>(count) + 1)));
    CHECK_LE(static_cast<int64_t>(job.drafts.size()), count);
    while (static_cast<int64_t>(job.drafts.size()) < count) job.drafts.push_back(any_token());
}

}  // namespace verbatim
