// tools/replay/tiered_requests.h: a tier of files behind the cache of a replay. A request waits for its head, in no
// virtual time, so that a run with an empty folder depends on its flags alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/heads/head_tier.h"
#include "server/heads/tier_link.h"
#include "simulator/trace_driver.h"
#include "traces/requests.h"

namespace verbatim::tools {

class TieredRequests final : public DriverHooks {
public:
    // Borrows engine and requests. Errors: HeadTier::open's.
    static Result<std::unique_ptr<TieredRequests>> open(server::HeadTierConfig config, Engine& engine,
                                                        traces::RequestMaker& requests);

    // Reads the head that the prompt begins with, where memory has less of it.
    void prepare(traces::RowIndex row, ChatRequest& request) override;
    void accepted(traces::RowIndex, RequestId) override {}
    void stepped(int64_t) override {}
    // When everything is written.
    [[nodiscard]] server::HeadTierCounts counts() const {
        tier_->wait_until_written();
        return tier_->counts();
    }

private:
    TieredRequests(std::unique_ptr<server::HeadTier> tier, const std::string& numerics, Engine& engine,
                   traces::RequestMaker& requests)
        : tier_(std::move(tier)),
          link_(engine, *tier_, RestorePolicy::kAlways),
          numerics_(numerics),
          requests_(requests) {}

    std::unique_ptr<server::HeadTier> tier_;
    server::TierLink link_;
    std::string numerics_;
    traces::RequestMaker& requests_;
};

}  // namespace verbatim::tools
