// engine/cache/prefix_index.h: finds the longest head that is a prefix of a token sequence, inside one salt.
//   X1  heads are in order of (salt, tokens, id); a prefix comes before everything it is a prefix of
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "engine/cache/head.h"

namespace verbatim {

class PrefixIndex {
public:
    // The head must outlive its entry; its salt, tokens and id do not change.
    void insert(const Head& head);
    void erase(const Head& head);  // REQUIRES: inserted
    // The longest head of this salt and numerics (null: any) with at most `max_length` tokens, all of them the first
    // ones of `tokens`; the newest among equals.
    [[nodiscard]] std::optional<HeadId> longest_prefix(const CacheSalt& salt, const TokenSeq& tokens,
                                                       int64_t max_length, const std::string* numerics_id) const;
    [[nodiscard]] size_t size() const { return heads_.size(); }
    // A head of this salt and numerics that begins with more of `tokens` than any other, and how much of it. Empty when
    // none has the first token.
    struct Common {
        HeadId head = kNoHead;
        int64_t length = 0;
    };
    [[nodiscard]] std::optional<Common> longest_common(const CacheSalt& salt, const TokenSeq& tokens,
                                                       const std::string* numerics_id) const;
    void verify() const;  // X1 from scratch

private:
    struct Query {
        const CacheSalt& salt;
        const TokenSeq& tokens;
    };
    struct Order {
        using is_transparent = void;
        bool operator()(const Head* a, const Head* b) const;
        bool operator()(const Query& query, const Head* head) const;  // query and all its equals < head
    };
    std::set<const Head*, Order> heads_;
};

}  // namespace verbatim
