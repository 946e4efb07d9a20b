// engine/drafting/ngram_drafter.h: prompt lookup: what followed the last time that the sequence's newest tokens stood
// in it. Owns an index of every running request's own tokens; looks at nothing else.
//
// Positions with the same pair of tokens are linked, newest first (as LZ77 compressors do). Of the newest
// kMaxCandidates the one is taken whose tokens agree furthest back; among equals the newest.
//   A1  drafts depend on the request's own tokens alone
//   A2  a token enters the index once; a lookup costs kMaxCandidates comparisons of up to kMaxContext tokens
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "engine/drafting/drafter.h"

namespace verbatim {

class NgramDrafter final : public Drafter {
public:
    static constexpr int32_t kMaxCandidates = 32;
    static constexpr int32_t kMaxContext = 16;  // tokens

    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId request) override { requests_.erase(request); }

private:
    struct Index {
        std::vector<TokenId> tokens;                   // prompt and output
        std::vector<int32_t> before;                   // by position of a pair's second token: the same pair, earlier
        std::unordered_map<uint64_t, int32_t> newest;  // pair -> position of its second token
    };
    static void extend(Index& index, const DraftJob& job);
    static void look_up(const Index& index, DraftJob& job);

    std::map<RequestId, Index> requests_;
};

}  // namespace verbatim
