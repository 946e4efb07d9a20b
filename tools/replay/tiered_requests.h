// tools/replay/tiered_requests.h: a tier of files behind the cache of a replay. A request waits for its head, in no
// time but that of an empty step, so that a run with an empty folder depends on its flags alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/heads/head_tier.h"
#include "server/heads/tier_link.h"
#include "simulator/trace_driver.h"

namespace verbatim::tools {

class TieredRequests final : public DriverHooks {
public:
    // Borrows the engine. Errors: HeadTier::open's.
    static Result<std::unique_ptr<TieredRequests>> open(server::HeadTierConfig config, Engine& engine);

    void prepare(traces::RowIndex, ChatRequest&) override {}
    void accepted(traces::RowIndex, RequestId) override {}
    // Heads that requests wait for come in.
    void before_step() override;
    void stepped(int64_t) override {}
    void deleted(const CacheSalt& salt, const TokenSeq& committed) override { link_.forget(salt, committed); }
    // When everything is written.
    [[nodiscard]] server::HeadTierCounts counts() const {
        tier_->wait_until_written();
        return tier_->counts();
    }

private:
    TieredRequests(std::unique_ptr<server::HeadTier> tier, Engine& engine)
        : tier_(std::move(tier)), link_(engine, *tier_, RestorePolicy::kAlways) {}

    std::unique_ptr<server::HeadTier> tier_;
    server::TierLink link_;
};

}  // namespace verbatim::tools
