// engine/scheduler/sequence.h: one accepted turn on its way: what is known of its tokens, and how far they are
// computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/drafting/pacing.h"
#include "engine/ledger/ledger.h"
#include "engine/request/request.h"
#include "engine/request/stop_matcher.h"
#include "engine/scheduler/draft_path.h"
#include "engine/scheduler/snapshots.h"
#include "engine/step_plan.h"

namespace verbatim {

enum class SequenceStatus : uint8_t {
    kWaiting,     // holds no memory
    kRunning,     // holds memory and a slot
    kCommitting,  // finished; its pending waits for its bytes
};

struct Sequence : SlotUse {
    RequestId id{};
    ChatRequest request;
    TurnStart turn;
    int64_t max_tokens = 0;

    SequenceStatus status = SequenceStatus::kWaiting;
    std::vector<TokenId> output;
    TokenSeq known;                   // the prompt and what has been stored of the output
    std::vector<Snapshot> snapshots;  // ascending; taken ones are removed
    bool publishes_snapshots = true;  // false: its conversation was deleted, nothing of it is to come back
    int64_t arrival_step = 0;         // the first that could have admitted it
    int64_t place = -1;               // in the order of admission, when it came in last; -1: not yet
    HeadId expected_head = kNoHead;   // while it waits: what it would attach to
    int64_t num_tokens_left = 0;  // the same: to compute, when it was looked up last (AdmissionOrder::kFewestTokens)

    bool awaits_head = false;  // the same: it is not admitted until the head comes, or does not

    int64_t first_scored = 0;  // the first position whose logits the request wants yet; scored_end(): none

    bool started = false;          // the executor knows the slot
    size_t num_sent_outputs = 0;   // of `output`, known to the executor
    int64_t first_step = -1;       // that computes something since the last attach
    int64_t planned_step = -1;     // the last step that it had a share in
    int64_t num_state_tokens = 0;  // that its row will have taken in after the last planned step
    std::vector<TokenId> drafts;   // for its next window
    DraftPacing pacing;
    std::optional<DraftPath> draft_path;  // where it drafts in ordinary arithmetic
    bool drafts_end = false;              // the path has nothing to add to them
    std::optional<FinishReason> ending;   // the turn is over, and its row has yet to move to where it ended
    std::string numerics_id;              // what makes all of its tokens' bytes, the attached ones among them

    // Accounting (I10). Positions below high_water were attached or computed before.
    int64_t high_water = 0;
    int64_t num_reused = 0;
    int64_t num_computed_prompt = 0;
    std::vector<NotReusedRange> not_reused;
    size_t num_emitted = 0;           // of `output`, streamed to the client
    std::deque<TokenMask> masks;      // of its next tokens, with a grammar
    bool expects_late_masks = false;  // it samples in steps that lack its mask
    bool is_late = false;             // the open step lacks its mask
    StopMatcher stops;                // has taken all of `output`, unless that may not stop

    [[nodiscard]] int64_t num_prompt_tokens() const { return turn.prompt.size(); }
    [[nodiscard]] int64_t num_tokens() const { return num_prompt_tokens() + static_cast<int64_t>(output.size()); }
    // All but its last token are computed, and it draws.
    [[nodiscard]] bool decodes() const {
        return started && num_tokens() - num_computed_tokens == 1 && !prefill_only() && !ending;
    }
    [[nodiscard]] bool has_grammar() const { return !request.grammar.empty(); }
    // Its next token cannot be sampled yet.
    [[nodiscard]] bool lacks_mask() const { return has_grammar() && masks.empty() && !prefill_only() && !ending; }
    [[nodiscard]] bool waits_for_mask() const { return lacks_mask() && !expects_late_masks; }
    [[nodiscard]] bool prefill_only() const { return max_tokens == 0; }
    // Behind the last position that is scored: a request that samples gets the logits of its prompt's last position
    // with its first token.
    [[nodiscard]] int64_t scored_end() const { return num_prompt_tokens() - (prefill_only() ? 0 : 1); }
    [[nodiscard]] bool is_scored() const { return first_scored < scored_end(); }
    // How many of the positions up to `end` are scored when they are computed next.
    [[nodiscard]] int32_t num_scored_up_to(int64_t end) const {
        const int64_t first = std::max(first_scored, num_computed_tokens);
        return static_cast<int32_t>(std::max<int64_t>(std::min(end, scored_end()) - first, 0));
    }
    [[nodiscard]] Arithmetic arithmetic() const {
        return request.deterministic ? Arithmetic::kDeterministic : Arithmetic::kOrdinary;
    }
    // `known` catches up with what has been generated.
    void store_output(TokenStore& store) {
        const auto num_stored = static_cast<size_t>(known.size() - num_prompt_tokens());
        known.append(store.store(std::span(output).subspan(num_stored)));
    }
};

}  // namespace verbatim
