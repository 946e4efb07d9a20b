// engine/request/request.h: requests (step 1), as values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/sampling.h"
#include "engine/request/token_mask.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// Requests share cached state only under equal salts. An absent salt differs from the empty string.
struct CacheSalt {
    std::optional<std::string> value;
    friend auto operator<=>(const CacheSalt&, const CacheSalt&) = default;
};

struct ConversationKey {
    CacheSalt salt;
    std::string conversation_id;
    friend auto operator<=>(const ConversationKey&, const ConversationKey&) = default;
};

// A message as the token ids it stands for. Its end is a checkpoint position unless `checkpoint` says otherwise.
struct Message {
    TokenSeq tokens;
    bool checkpoint = true;
    friend bool operator==(const Message&, const Message&) = default;
};

enum class InputKind : uint8_t {
    kSuffix,      // `messages` follow the conversation's committed tokens
    kHistory,     // `messages` are the whole conversation; an unknown id is created
    kRegenerate,  // answer the last turn's prompt again; `messages` is empty
    kCount,
};

struct ChatRequest {
    ConversationKey conversation;
    InputKind input = InputKind::kHistory;
    std::vector<Message> messages;
    std::optional<std::string> turn_id;  // the same id again returns the recorded answer
    std::optional<Version> parent;       // compare-and-swap: refused unless this is the conversation's version
    std::optional<int64_t> max_tokens;   // default: EngineConfig::default_max_tokens; 0: prefill only
    SamplingParams sampling;
    std::optional<uint64_t> seed;                    // none: the engine draws one and records it
    std::vector<TokenId> stop_tokens;                // the token that stops is committed and reported
    std::vector<std::vector<TokenId>> stop_strings;  // over token ids: cut from the text, committed all the same
    bool ignore_stop = false;                        // exactly max_tokens tokens
    bool use_cache = true;                           // false: nothing is attached (reason: cache_off)
    // The request attaches only to heads that the deterministic arithmetic made. False: to any head, and the heads that
    // the request publishes then count as mixed.
    bool deterministic = true;
    TokenSeq forced_output;  // not empty: these tokens instead of the drawn ones, and as many
    // The logits that predict the prompt's tokens from this position on are computed (ScheduledSequence); of those
    // tokens at most the positions before are reused. Position 0 has no prediction. None: no logits of the prompt.
    std::optional<int64_t> scored_from;
    // The tokens of this turn that the client has from a try whose executor failed: a turn that samples other tokens
    // ends as kAnswerChanged.
    std::vector<TokenId> known_output;
    // So many tokens of the prompt are in a head outside of memory that takes longer to read than they take to compute.
    int64_t num_unrestored = 0;
    // What the answer must be, as a text that only its maker reads. Not empty: each token is sampled under a mask; the
    // request waits where it has none (Engine::allow). Such a request is not drafted.
    std::string grammar;
    std::vector<TokenMask> masks;  // of the answer's first tokens; with a grammar at least one
    friend bool operator==(const ChatRequest&, const ChatRequest&) = default;
};

// Identifies the request that a turn_id stands for. It leaves out `parent`, how the request is served, its seed and its
// known output: a turn that is sent again after a failure carries those of its first try.
[[nodiscard]] Digest content_digest(const ChatRequest& request);

inline constexpr int32_t kMaxLogitBias = 100;        // and -100 the least: what is finite stays so
inline constexpr size_t kMaxStopStrings = 256;       // of one request
inline constexpr size_t kMaxStopStringTokens = 256;  // of one of them: all of them are looked for at every token

// Every problem of the request that does not depend on the engine's state, in one message.
[[nodiscard]] Status validate(const ChatRequest& request, int32_t vocab_size);

enum class FinishReason : uint8_t {
    kLength,      // max_tokens
    kStopToken,   // one of stop_tokens
    kStopString,  // one of stop_strings
    kAborted,     // by the client
    kNonFinite,   // a NaN or infinity (N8): with layer and step
    kExecutorFailed,
    kLeaseLost,      // it ran to its end and could not commit: its lease had been revoked
    kAnswerChanged,  // known_output is not what the executor draws
};
[[nodiscard]] const char* name(FinishReason reason);

}  // namespace verbatim
