#include "engine/cache/prefix_history.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/digest.h"

namespace verbatim {

PrefixChain PrefixHistory::begin(const CacheSalt& salt) {
    Digester digester;
    if (salt.value) digester.add(std::string_view(*salt.value));
    return {0, digester.digest().low};
}

PrefixChain PrefixHistory::extend(PrefixChain chain, const TokenSeq& tokens) {
    const int64_t last = tokens.size() / kStep * kStep;
    CHECK(chain.length % kStep == 0 && chain.length <= last, "a chain of {} tokens goes on to {}", chain.length, last);
    for (; chain.length < last; chain.length += kStep)
        chain.digest = tokens.prefix_digest(chain.length, chain.length + kStep, chain.digest);
    return chain;
}

auto PrefixHistory::boundary(uint64_t digest) -> Boundary& {
    const uint32_t found = numbers_.find(digest);
    if (found != IndexTable::kNone) {
        boundaries_[found].is_recent = true;
        return boundaries_[found];
    }
    const uint32_t made = boundaries_.add({.digest = digest});
    CHECK(numbers_.insert(digest, made), "boundary {:x} is there", digest);
    order_.push_back(made);
    CHECK_EQ(order_.size(), numbers_.size());
    return boundaries_[made];
}

auto PrefixHistory::observe(PrefixChain from, int64_t resident_length, const TokenSeq& prompt) -> Met {
    CHECK_LE(from.length, resident_length);
    Met met;
    const int64_t last = prompt.size() / kStep * kStep;
    CHECK(from.length % kStep == 0 && from.length <= last, "a chain of {} for a prompt of {} tokens", from.length,
          prompt.size());
    // All digests first: then looking one boundary up does not wait for the one before.
    digests_.assign(1, from.digest);
    for (int64_t length = from.length; length < last; length += kStep)
        digests_.push_back(prompt.prefix_digest(length, length + kStep, digests_.back()));
    bool is_known = true;
    for (PrefixChain chain = from; const uint64_t digest : digests_) {
        chain.digest = digest;
        Boundary& at = boundary(digest);
        is_known = is_known && (chain.length == from.length || at.is_of_prompt);
        if (is_known && chain.length > resident_length) met.known_length = chain.length;
        at.is_of_prompt = true;
        meet_ghosts(at, chain, resident_length, prompt, met);
        chain.length += kStep;
    }
    while (numbers_.size() > max_boundaries_) forget_oldest();
    return met;
}

// Those of the boundary whose tokens are the first ones of the prompt. Many are of one length, which has one digest.
void PrefixHistory::meet_ghosts(const Boundary& at, PrefixChain chain, int64_t resident_length, const TokenSeq& prompt,
                                Met& met) {
    if (at.ghosts.empty()) return;
    std::bitset<kStep> is_known;
    std::array<uint64_t, kStep> digests;  // of so many tokens behind the boundary
    for (const Ghost& ghost : at.ghosts) {
        if (ghost.length <= resident_length || ghost.length >= prompt.size()) continue;
        const auto tail = static_cast<size_t>(ghost.length - chain.length);
        CHECK(tail < digests.size(), "a ghost of {} tokens at boundary {}", ghost.length, chain.length);
        if (!is_known.test(tail)) digests[tail] = prompt.prefix_digest(chain.length, ghost.length, chain.digest);
        is_known.set(tail);
        if (digests[tail] != ghost.digest) continue;
        met.ghosts.push_back(ghost.head);
        if (ghost.length < met.gone_length) continue;
        met.longest_ghost = ghost.head;
        met.gone_length = ghost.length;
        met.gone_reason = ghost.reason;
    }
}

void PrefixHistory::add_ghost(HeadId head, NotReused reason, PrefixChain chain, const TokenSeq& tokens) {
    CHECK(chain.length <= tokens.size() && chain.length + kStep > tokens.size(), "a chain of {} for {} tokens",
          chain.length, tokens.size());
    Boundary& at = boundary(chain.digest);
    if (at.ghosts.size() == kMaxGhostsPerBoundary) {
        const HeadId oldest = at.ghosts.front().head;
        at.ghosts.erase(at.ghosts.begin());
        --num_ghosts_;
        if (forgotten_listener_) forgotten_listener_(oldest);
    }
    at.ghosts.push_back({head, tokens.size(), tokens.prefix_digest(chain.length, tokens.size(), chain.digest), reason});
    ++num_ghosts_;
    while (numbers_.size() > max_boundaries_) forget_oldest();
}

std::optional<HeadId> PrefixHistory::take_ghost(PrefixChain chain, const TokenSeq& tokens) {
    const uint32_t found = numbers_.find(chain.digest);
    if (found == IndexTable::kNone || boundaries_[found].ghosts.empty()) return std::nullopt;
    const uint64_t digest = tokens.prefix_digest(chain.length, tokens.size(), chain.digest);
    std::vector<Ghost>& ghosts = boundaries_[found].ghosts;
    const auto same = std::ranges::find_if(
        ghosts, [&](const Ghost& ghost) { return ghost.length == tokens.size() && ghost.digest == digest; });
    if (same == ghosts.end()) return std::nullopt;
    const HeadId head = same->head;
    ghosts.erase(same);
    --num_ghosts_;
    CHECK_GE(num_ghosts_, 0);
    return head;
}

// A boundary that was met since it was looked at last is looked at once more later.
void PrefixHistory::forget_oldest() {
    while (true) {
        CHECK_EQ(order_.size(), numbers_.size());
        CHECK(!order_.empty(), "{} boundaries are too many for {}", numbers_.size(), max_boundaries_);
        const uint32_t number = order_.front();
        order_.pop_front();
        Boundary& oldest = boundaries_[number];
        if (std::exchange(oldest.is_recent, false)) {
            order_.push_back(number);
            continue;
        }
        const std::vector<Ghost> ghosts = std::move(oldest.ghosts);
        numbers_.erase(oldest.digest);
        boundaries_.free(number);
        num_ghosts_ -= static_cast<int64_t>(ghosts.size());
        CHECK(num_ghosts_ >= 0 && boundaries_.size() == numbers_.size(), "{} ghosts, {} boundaries of {} numbers",
              num_ghosts_, boundaries_.size(), numbers_.size());
        if (!forgotten_listener_) return;
        for (const Ghost& ghost : ghosts) forgotten_listener_(ghost.head);
        return;
    }
}

int64_t PrefixHistory::num_bytes() const {
    const size_t boundaries = boundaries_.all().capacity() * sizeof(Boundary) + order_.size() * sizeof(uint32_t);
    return static_cast<int64_t>(boundaries + numbers_.num_bytes()) + num_ghosts_ * static_cast<int64_t>(sizeof(Ghost));
}

void PrefixHistory::verify() const {
    CHECK_LE(numbers_.size(), max_boundaries_);
    CHECK_EQ(order_.size(), numbers_.size());
    CHECK_EQ(boundaries_.size(), numbers_.size());
    int64_t num_ghosts = 0;
    for (const uint32_t number : order_) {
        CHECK_EQ(numbers_.find(boundaries_[number].digest), number);
        num_ghosts += static_cast<int64_t>(boundaries_[number].ghosts.size());
    }
    CHECK_EQ(num_ghosts, num_ghosts_);
}

}  // namespace verbatim
