#include "engine/cache/prefix_history.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/digest.h"

namespace verbatim {

PrefixChain PrefixHistory::begin(const CacheSalt& salt) {
    Digester digester;
    digester.add(static_cast<uint8_t>(salt.value.has_value()));
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
    const auto [found, is_new] = boundaries_.try_emplace(digest);
    if (is_new) order_.push_back(digest);
    found->second.is_recent = !is_new;
    CHECK_EQ(order_.size(), boundaries_.size());
    return found->second;
}

auto PrefixHistory::observe(PrefixChain from, int64_t resident_length, const TokenSeq& prompt) -> Met {
    CHECK_LE(from.length, resident_length);
    Met met;
    const int64_t last = prompt.size() / kStep * kStep;
    CHECK(from.length % kStep == 0 && from.length <= last, "a chain of {} for a prompt of {} tokens", from.length,
          prompt.size());
    bool is_known = true;
    for (PrefixChain chain = from;; chain.length += kStep) {
        Boundary& at = boundary(chain.digest);
        is_known = chain.length == from.length || (is_known && at.is_of_prompt);
        if (is_known && chain.length > resident_length) met.known_length = chain.length;
        at.is_of_prompt = true;
        for (const Ghost& ghost : at.ghosts) {
            if (ghost.length > resident_length && ghost.length < prompt.size() &&
                prompt.prefix_digest(chain.length, ghost.length, chain.digest) == ghost.digest)
                met.ghosts.push_back(ghost.head);
        }
        if (chain.length == last) break;
        chain.digest = prompt.prefix_digest(chain.length, chain.length + kStep, chain.digest);
    }
    while (boundaries_.size() > max_boundaries_) forget_oldest();
    return met;
}

void PrefixHistory::add_ghost(HeadId head, PrefixChain chain, const TokenSeq& tokens) {
    CHECK(chain.length <= tokens.size() && chain.length + kStep > tokens.size(), "a chain of {} for {} tokens",
          chain.length, tokens.size());
    Boundary& at = boundary(chain.digest);
    if (at.ghosts.size() == kMaxGhostsPerBoundary) {
        const HeadId oldest = at.ghosts.front().head;
        at.ghosts.erase(at.ghosts.begin());
        --num_ghosts_;
        if (forgotten_listener_) forgotten_listener_(oldest);
    }
    at.ghosts.push_back({head, tokens.size(), tokens.prefix_digest(chain.length, tokens.size(), chain.digest)});
    ++num_ghosts_;
    while (boundaries_.size() > max_boundaries_) forget_oldest();
}

std::optional<HeadId> PrefixHistory::take_ghost(PrefixChain chain, const TokenSeq& tokens) {
    const auto found = boundaries_.find(chain.digest);
    if (found == boundaries_.end() || found->second.ghosts.empty()) return std::nullopt;
    const uint64_t digest = tokens.prefix_digest(chain.length, tokens.size(), chain.digest);
    std::vector<Ghost>& ghosts = found->second.ghosts;
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
        CHECK_EQ(order_.size(), boundaries_.size());
        const uint64_t digest = order_.front();
        order_.pop_front();
        const auto oldest = boundaries_.find(digest);
        CHECK(oldest != boundaries_.end(), "boundary {:x} is not there", digest);
        if (std::exchange(oldest->second.is_recent, false)) {
            order_.push_back(digest);
            continue;
        }
        const std::vector<Ghost> ghosts = std::move(oldest->second.ghosts);
        boundaries_.erase(oldest);
        num_ghosts_ -= static_cast<int64_t>(ghosts.size());
        if (!forgotten_listener_) return;
        for (const Ghost& ghost : ghosts) forgotten_listener_(ghost.head);
        return;
    }
}

int64_t PrefixHistory::num_bytes() const {
    // A map's node with its two pointers, its place in the order, and the ghosts.
    constexpr size_t kBoundary = sizeof(std::pair<const uint64_t, Boundary>) + 3 * sizeof(void*) + sizeof(uint64_t);
    return static_cast<int64_t>(boundaries_.size() * kBoundary) + num_ghosts_ * static_cast<int64_t>(sizeof(Ghost));
}

void PrefixHistory::verify() const {
    CHECK_LE(boundaries_.size(), max_boundaries_);
    CHECK_EQ(order_.size(), boundaries_.size());
    int64_t num_ghosts = 0;
    for (const auto& [digest, at] : boundaries_) num_ghosts += static_cast<int64_t>(at.ghosts.size());
    CHECK_EQ(num_ghosts, num_ghosts_);
}

}  // namespace verbatim
