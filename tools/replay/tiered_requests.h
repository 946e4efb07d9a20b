// tools/replay/tiered_requests.h: tiers behind the cache of a replay. A request waits for its head, in no time but that
// of an empty step, so that a run with an empty folder depends on its flags alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "server/heads/head_tier.h"
#include "server/heads/tier_link.h"
#include "simulator/trace_driver.h"
#include "tools/program/host_tier.h"

namespace verbatim::tools {

class TieredRequests final : public DriverHooks {
public:
    // Borrows the engine. No folder in `folder`: there is host memory alone. Errors: HeadTier::open's.
    static Result<std::unique_ptr<TieredRequests>> open(HostTier host, server::HeadTierConfig folder, Engine& engine);

    void prepare(traces::RowIndex, ChatRequest&) override {}
    void accepted(traces::RowIndex, RequestId) override {}
    // Heads that requests wait for come in.
    void before_step(int64_t now_ns) override;
    void stepped(int64_t) override {}
    void deleted(const ConversationKey& key, const TokenSeq& committed) override { link_.forget(key, committed); }
    void forked(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed) override {
        link_.note_forked(from, to, committed);
    }
    // When everything is written; of the folder, and of host memory.
    [[nodiscard]] server::HeadTierCounts counts();
    [[nodiscard]] server::HeadTierCounts host_counts();

private:
    TieredRequests(HostTier host, std::unique_ptr<server::HeadTier> folder, Engine& engine)
        : host_(std::move(host)),
          folder_(std::move(folder)),
          link_(engine, {host_.tier.get(), folder_.get()}, RestorePolicy::kAlways) {}

    HostTier host_;
    std::unique_ptr<server::HeadTier> folder_;  // null: none
    server::TierLink link_;
};

}  // namespace verbatim::tools
