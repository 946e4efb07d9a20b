#include "simulator/eviction_policies.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int64_t kTypicalTokens = 4096;

// Bonuses are whole uses, so ranks are integers and equal in every build.
int64_t bonus(double share) {
    return static_cast<int64_t>(static_cast<double>(kHorizon) * std::clamp(share, 0.0, 1.0));
}

class LfuEviction final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        constexpr int64_t kUses = int64_t{1} << 40;  // greater than any `now`
        return std::min<int64_t>(use.num_uses, (int64_t{1} << 22) - 1) * kUses + use.now;
    }
};

class SizeEviction final : public EvictionPolicy {
public:
    explicit SizeEviction(const HeadWorth& worth) : worth_(worth) {}
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        const double smallest = bytes(1);
        return use.now + (smallest > 0 ? bonus(smallest / bytes(use.length)) : 0);
    }

private:
    [[nodiscard]] double bytes(int64_t tokens) const {
        return static_cast<double>(worth_.state_bytes) +
               static_cast<double>(tokens) * static_cast<double>(worth_.kv_bytes_per_token);
    }
    HeadWorth worth_;
};

class FlopsEviction final : public EvictionPolicy {
public:
    explicit FlopsEviction(const HeadWorth& worth) : worth_(worth) {}
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        const double typical = per_byte(kTypicalTokens);
        if (typical <= 0) return use.now;
        const double e = per_byte(use.length) / typical;
        return use.now + bonus(e / (1 + e));
    }

private:
    [[nodiscard]] double per_byte(int64_t tokens) const {
        const auto n = static_cast<double>(tokens);
        const double bytes =
            static_cast<double>(worth_.state_bytes) + n * static_cast<double>(worth_.kv_bytes_per_token);
        const double flops = n * worth_.flops_per_token + n * n / 2 * worth_.flops_per_token_squared;
        return bytes > 0 ? flops / bytes : 0;
    }
    HeadWorth worth_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionChoice choice, const HeadWorth& worth) {
    switch (choice) {
        case EvictionChoice::kValue: return std::make_unique<ValueEviction>();
        case EvictionChoice::kLru: return std::make_unique<LruEviction>();
        case EvictionChoice::kLfu: return std::make_unique<LfuEviction>();
        case EvictionChoice::kSize: return std::make_unique<SizeEviction>(worth);
        case EvictionChoice::kFlops: return std::make_unique<FlopsEviction>(worth);
    }
    CHECK(false, "eviction choice {}", static_cast<int>(choice));
}

}  // namespace verbatim
