// engine/cache/prefix_history.h: owns what is known of prompts and heads whose memory is gone (a ghost index).
//
// Prefixes are known at *boundaries*, every kStep tokens, by a digest of all tokens before them. A digest proposes a
// position; a head is found and attached by tokens alone (prefix_index.h).
//   G1  there are at most max_boundaries boundaries; the ones that were met longest ago are forgotten first
//   G2  a ghost stands for a head that is gone; it is forgotten with its boundary, or when kMaxGhostsPerBoundary newer
//       ones are there
//   G3  prefixes of different salts have different digests
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/index_table.h"
#include "engine/base/slot_map.h"
#include "engine/cache/not_reused.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// The digest of the first `length` tokens of a sequence; `length` is a multiple of PrefixHistory::kStep.
struct PrefixChain {
    int64_t length = 0;
    uint64_t digest = 0;
};

// Prefixes of some 67 million tokens of prompts, in some 20 MB.
inline constexpr int32_t kUsualHistoryBoundaries = 1 << 18;

class PrefixHistory {
public:
    static constexpr int64_t kStep = 256;  // tokens
    static constexpr size_t kMaxGhostsPerBoundary = 64;

    explicit PrefixHistory(size_t max_boundaries) : max_boundaries_(max_boundaries) {}

    // The chain of no tokens.
    [[nodiscard]] static PrefixChain begin(const CacheSalt& salt);
    // The same chain at the last boundary of `tokens`. REQUIRES: the chain is of the same tokens.
    [[nodiscard]] static PrefixChain extend(PrefixChain chain, const TokenSeq& tokens);

    struct Met {
        int64_t known_length = 0;        // the last boundary that an earlier prompt had, too; 0: none beyond `from`
        std::vector<HeadId> ghosts;      // of heads whose tokens are the first ones of the prompt, beyond `from`
        HeadId longest_ghost = kNoHead;  // the longest of these: had all stayed, the prompt would attach to it
        int64_t gone_length = 0;         // its tokens, and why it went
        NotReused gone_reason = NotReused::kEvicted;
    };
    // A prompt of which `from` and all tokens before are resident: what is known of the rest. Remembers the prompt.
    Met observe(PrefixChain from, int64_t resident_length, const TokenSeq& prompt);

    // The head went for this reason, and can be met again. `chain` is extend(…, tokens).
    void add_ghost(HeadId head, NotReused reason, PrefixChain chain, const TokenSeq& tokens);
    // The ghost of a head of the same tokens, which it ceases to be: the tokens are resident again.
    std::optional<HeadId> take_ghost(PrefixChain chain, const TokenSeq& tokens);
    // Called with every ghost that is forgotten (G1).
    void on_forgotten(std::function<void(HeadId)> listener) { forgotten_listener_ = std::move(listener); }

    [[nodiscard]] size_t num_boundaries() const { return numbers_.size(); }
    // About what the index takes.
    [[nodiscard]] int64_t num_bytes() const;
    void verify() const;  // G1 from scratch

private:
    struct Ghost {
        HeadId head = kNoHead;
        int64_t length = 0;   // tokens
        uint64_t digest = 0;  // of all of them
        NotReused reason = NotReused::kEvicted;
    };
    struct Boundary {
        uint64_t digest = 0;
        bool is_of_prompt = false;  // false: of ghosts alone
        bool is_recent = false;     // met again since it was looked at last
        std::vector<Ghost> ghosts;
    };
    Boundary& boundary(uint64_t digest);
    static void meet_ghosts(const Boundary& at, PrefixChain chain, int64_t resident_length, const TokenSeq& prompt,
                            Met& met);
    void forget_oldest();

    size_t max_boundaries_;
    SlotMap<Boundary, uint32_t> boundaries_;
    IndexTable numbers_;             // of boundaries, by digest
    std::deque<uint32_t> order_;     // oldest first (second chance)
    std::vector<uint64_t> digests_;  // observe's
    std::function<void(HeadId)> forgotten_listener_;
    int64_t num_ghosts_ = 0;
};

}  // namespace verbatim
