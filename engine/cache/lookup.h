// engine/cache/lookup.h: a request's question to the cache (step 3), and the answer about every token of its
// prompt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache/head.h"
#include "engine/cache/name.h"

namespace verbatim {

enum class LookupMode : uint8_t {
    kConversation,  // heads of the conversation's name
    kPrefix,        // those, and the longest committed prefix in the salt
    // As caches of blocks do it, for comparison: full blocks that any tokens of the salt begin with. A model with state
    // has it at the end of a full block only, one per prompt (kept_block_prefix), and none at the end of a turn.
    kBlocks,
};

// Where a prompt's state is kept by LookupMode::kBlocks: max((n - 1 - block) / block * block, 0). The last block is
// computed again, as engines do that decide by whole blocks.
[[nodiscard]] int64_t kept_block_prefix(int64_t num_prompt_tokens, int32_t block_size);

// Prompt tokens [previous end, end) were not reused for this reason.
struct NotReusedRange {
    int64_t end = 0;
    NotReused reason = NotReused::kNewTokens;
    friend bool operator==(const NotReusedRange&, const NotReusedRange&) = default;
};

struct LookupQuery {
    const ConversationKey& key;
    const TokenSeq& tokens;
    int64_t num_committed = 0;    // the ledger's tokens and `tokens` agree on so many
    std::optional<int64_t> seam;  // position of the committed token that is not resident, when inside num_committed
    bool use_cache = true;
    bool deterministic = true;       // only heads of `numerics_id`
    bool is_first_admission = true;  // false: it was preempted, and its prompt is known from before
    std::string numerics_id;
    std::optional<int64_t> first_scored;  // the first position whose logits the request wants yet
    int64_t num_unrestored = 0;           // ChatRequest's

    // A request computes one token at least, and the positions whose logits it wants: at most so many are reused.
    [[nodiscard]] int64_t max_length() const {
        return std::min(tokens.size() - 1, first_scored.value_or(tokens.size() - 1));
    }
    [[nodiscard]] bool accepts(const Head& head) const { return !deterministic || *head.numerics_id == numerics_id; }
};

struct LookupResult {
    HeadId head = kNoHead;
    int64_t length = 0;                      // tokens reused by attaching to it
    std::vector<NotReusedRange> not_reused;  // of [length, tokens.size()), ascending
};

// The reasons of tokens [attached, tokens.size()), by what the ledger and the name know. `missed` is where a head lay
// that could not be used, and why; its end is 0 when there was none.
[[nodiscard]] std::vector<NotReusedRange> explain(const LookupQuery& query, int64_t attached, NotReusedRange missed);

// The same ranges, where the cache knows more of tokens that look new, or committed without a head: `known` says up to
// where they are known and for which reason they are not there; of several that say something of a token, the first
// one counts. At most `max_length` tokens could have been reused.
[[nodiscard]] std::vector<NotReusedRange> explain_known(const LookupResult& found, int64_t max_length,
                                                        std::initializer_list<NotReusedRange> known);

}  // namespace verbatim
