// engine/drafting/adversary_drafter.h: proposes, by seed, the right tokens, tokens that are wrong from some position
// on, or random ones. For tests, and to inject a rate of mismatches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/base/prng.h"
#include "engine/drafting/drafter.h"

namespace verbatim {

class AdversaryDrafter final : public Drafter {
public:
    // The token that will be drawn at position `output.size() + ahead` of the request's output; empty: not known.
    using Oracle = std::function<std::optional<TokenId>(const DraftJob& job, int64_t ahead)>;
    // mismatch_ppm: how many in a million drafts are wrong, drawn independently; empty: any mixture.
    AdversaryDrafter(Oracle oracle, int32_t vocab_size, uint64_t seed, std::optional<int32_t> mismatch_ppm = {});

    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId) override {}

private:
    [[nodiscard]] TokenId any_token();
    void draft_at_rate(DraftJob& job);
    void draft_at_will(DraftJob& job);
    void draft_right(DraftJob& job, int64_t count);

    Oracle oracle_;
    int32_t vocab_size_;
    Prng prng_;
    std::optional<int32_t> mismatch_ppm_;
};

}  // namespace verbatim
