// simulator/restores.h: connects a simulated engine with its tiers, as server/heads/tier_link.h does with a server's:
// heads that are evicted go to the tiers, and a request waits for a head that is worth reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "simulator/step_cost.h"
#include "simulator/tiers.h"
#include "simulator/trace_driver.h"
#include "traces/requests.h"

namespace verbatim {

class Restores {
public:
    // Borrows engine and requests; the engine tells it of evicted heads until the end.
    Restores(const TiersConfig& config, Engine& engine, traces::RequestMaker& requests, size_t num_rows);
    Restores(const Restores&) = delete;
    Restores& operator=(const Restores&) = delete;
    ~Restores() { engine_.on_evict(nullptr); }

    // The row's request comes: when the head that it waits for is in memory; `now_ns` if it waits for none.
    [[nodiscard]] int64_t begin(traces::RowIndex row, ChatRequest& request, int64_t now_ns);
    // It is: the engine imports it, unless what runs leaves no room, or memory has come to have it.
    void finish(traces::RowIndex row, const ChatRequest& request);
    // A step that computed `work` has ended.
    void note_step(const StepWork& work, int64_t took_ns, int64_t now_ns);
    // At the end of the run.
    void take(std::vector<RowTimes>& times, RestoreCounts& restores, std::vector<TierCounts>& tiers);

private:
    [[nodiscard]] int64_t num_held(const ChatRequest& request, const TokenSeq& prompt) const;

    Engine& engine_;
    traces::RequestMaker& requests_;
    Tiers tiers_;
    std::unordered_map<traces::RowIndex, Tiers::Read> reads_;
    std::vector<int64_t> restored_tokens_;  // per row
    int64_t now_ns_ = 0;
    RestoreCounts counts_;
};

}  // namespace verbatim
