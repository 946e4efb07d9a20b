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

auto Tiers::read(const Prompt& prompt, int64_t now_ns, int64_t& num_unrestored) -> std::optional<Read> {
    num_unrestored = 0;
    if (rule_.policy() == RestorePolicy::kNever || prompt.tokens.empty()) return std::nullopt;
    struct Candidate {
        Tier* tier = nullptr;
        const Head* head = nullptr;
    };
    std::vector<Candidate> candidates;
    for (const auto& tier : tiers_) {
        const Head* head = tier->find(prompt.salt, prompt.tokens, prompt.numerics_id, prompt.tokens.size() - 1);
        if (head != nullptr && head->length() > prompt.num_held) candidates.push_back({tier.get(), head});
    }
    std::ranges::stable_sort(candidates, std::greater{}, [](const Candidate& of) { return of.head->length(); });
    for (const auto& [tier, head] : candidates) {
        const int64_t bytes = tier->read_bytes(head->length(), std::min(prompt.num_resident, head->length()));
        const int64_t read_ns = tier->read_end_ns(head->id, bytes, now_ns) - now_ns;
        CHECK(bytes >= 0 && read_ns >= 0, "{} bytes in {} ns", bytes, read_ns);
        if (rule_.pays(head->length() - prompt.num_held, read_ns))
            return Read{head->tokens, prompt.num_held, tier->read(head->id, bytes, now_ns)};
    }
    if (!candidates.empty()) {
        ++num_not_worth_;
        num_unrestored = candidates.front().head->length();
    }
    return std::nullopt;
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
