#include "simulator/tiers.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

void RestoreCounts::add(const RestoreCounts& more) {
    restores += more.restores;
    restored_tokens += more.restored_tokens;
    not_worth += more.not_worth;
    no_room += more.no_room;
}

Tiers::Tiers(const TiersConfig& config, bool is_timed) : rule_(config.restore) {
    for (const TierConfig& tier : config.tiers)
        tiers_.push_back(std::make_unique<Tier>(tier, config.cache, config.eviction, is_timed));
    rule_.note_step(config.step_tokens, config.step_ns);
}

void Tiers::keep(const Head& head, int64_t now_ns) {
    std::vector<Head> leaving;
    if (any()) tiers_.front()->keep(head, now_ns, leaving);
    for (size_t i = 1; i < tiers_.size(); ++i) {
        std::vector<Head> gone;
        for (const Head& next : leaving) tiers_[i]->keep(next, now_ns, gone);
        leaving = std::move(gone);
    }
}

void Tiers::tick() {
    for (const auto& tier : tiers_) tier->tick();
}

std::vector<FoundHead> Tiers::find(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics_id,
                                   int64_t max_length) const {
    std::vector<FoundHead> heads;
    for (size_t i = 0; i < tiers_.size(); ++i) {
        const Head* head = tiers_[i]->find(salt, tokens, numerics_id, max_length);
        if (head != nullptr)
            heads.push_back({.id = head->id, .length = head->length(), .tier = static_cast<int32_t>(i)});
    }
    return heads;
}

int64_t Tiers::expected_read_ns(const FoundHead& found, int64_t now_ns) const {
    const Tier& tier = *tiers_.at(found.tier);
    return tier.read_end_ns(found.id, tier.read_bytes(found.length, found.first_token), now_ns) - now_ns;
}

int64_t Tiers::read(const FoundHead& found, int64_t now_ns) {
    CHECK_LE(found.first_token, found.length);
    Tier& tier = *tiers_.at(found.tier);
    return tier.read(found.id, tier.read_bytes(found.length, found.first_token), now_ns);
}

const TokenSeq& Tiers::tokens_of(const FoundHead& found) const { return tiers_.at(found.tier)->tokens_of(found.id); }

HeadChoice Tiers::choose(std::vector<FoundHead> heads, int64_t num_held) const {
    return choose_head(rule_, std::move(heads), num_held,
                       [&](const FoundHead& head) { return expected_read_ns(head, 0); });
}

std::vector<TierCounts> Tiers::counts() const {
    std::vector<TierCounts> counts;
    for (const auto& tier : tiers_) counts.push_back(tier->counts());
    return counts;
}

void Tiers::verify() {
    for (const auto& tier : tiers_) tier->verify();
}

}  // namespace verbatim
