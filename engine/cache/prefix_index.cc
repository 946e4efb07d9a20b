#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "engine/base/check.h"

namespace verbatim {
bool PrefixIndex::Order::operator()(const Head* a, const Head* b) const {
    if (const auto salts = a->salt <=> b->salt; salts != 0) return salts < 0;
    if (const auto tokens = a->tokens <=> b->tokens; tokens != 0) return tokens < 0;
    return a->id < b->id;
}

bool PrefixIndex::Order::operator()(const Query& query, const Head* head) const {
    if (const auto salts = query.salt <=> head->salt; salts != 0) return salts < 0;
    return query.tokens < head->tokens;
}

void PrefixIndex::insert(const Head& head) {
    CHECK(head.in_prefix_index && !head.tokens.empty(), "head {} of {} tokens", index(head.id), head.length());
    CHECK(heads_.insert(&head).second);
}

void PrefixIndex::erase(const Head& head) { CHECK_EQ(heads_.erase(&head), 1u); }

void PrefixIndex::verify() const {
    const Head* before = nullptr;
    for (const Head* head : heads_) {
        CHECK(head->in_prefix_index, "head {} is in the index and does not know", index(head->id));
        CHECK(before == nullptr || Order()(before, head), "head {} comes after head {}", index(head->id),
              index(before->id));
        before = head;
    }
}

// In X1's order what has most in common with a query is next to it, before or behind.
auto PrefixIndex::longest_common(const CacheSalt& salt, const TokenSeq& tokens, const std::string* numerics_id) const
    -> std::optional<Common> {
    std::optional<Common> best;
    // False when nothing further away can be better.
    const auto look_at = [&](const Head& head) {
        if (head.salt != salt) return false;
        const int64_t common = tokens.common_prefix(head.tokens);
        if (common == 0 || (best && common <= best->length)) return false;
        if (numerics_id != nullptr && head.numerics_id != *numerics_id) return true;
        best = {head.id, common};
        return false;
    };
    const auto place = heads_.upper_bound(Query{salt, tokens});
    for (auto before = place; before != heads_.begin() && look_at(**std::prev(before)); --before) {
    }
    for (auto behind = place; behind != heads_.end() && look_at(**behind); ++behind) {
    }
    return best;
}

// The predecessor of a query in X1's order shares at least as long a prefix with it as any head that is a prefix of it.
// So either it is the answer, or the answer is found below the part they share.
std::optional<HeadId> PrefixIndex::longest_prefix(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length,
                                                  const std::string* numerics_id) const {
    TokenSeq wanted = tokens.slice(0, std::min(max_length, tokens.size()));
    auto place = heads_.upper_bound(Query{salt, wanted});
    while (place != heads_.begin()) {
        const Head& head = **std::prev(place);
        if (head.salt != salt) return std::nullopt;
        const int64_t common = wanted.common_prefix(head.tokens);
        if (common == head.length() && (numerics_id == nullptr || head.numerics_id == *numerics_id)) return head.id;
        if (common == 0 && head.length() > 0) return std::nullopt;
        if (common == head.length()) {
            --place;  // other numerics: look further down
        } else {
            wanted = wanted.slice(0, common);
            place = heads_.upper_bound(Query{salt, wanted});
        }
    }
    return std::nullopt;
}

}  // namespace verbatim
