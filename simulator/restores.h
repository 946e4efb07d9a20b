// simulator/restores.h: connects a simulated engine with its tiers, as server/heads/tier_link.h does with a server's:
// heads that are evicted go to the tiers, and requests wait for heads by the same rules (engine/head_waits.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/head_waits.h"
#include "simulator/step_cost.h"
#include "simulator/tiers.h"
#include "simulator/trace_driver.h"
#include "traces/requests.h"

namespace verbatim {

class Restores final : public HeadSource {
public:
    // Borrows engine and requests; the engine tells it of evicted heads until the end.
    Restores(const TiersConfig& config, Engine& engine, traces::RequestMaker& requests, size_t num_rows);
    Restores(const Restores&) = delete;
    Restores& operator=(const Restores&) = delete;
    ~Restores() override { engine_.on_evict(nullptr); }

    // The row's request comes: when the head that it waits for is in memory; `now_ns` if it waits for none.
    [[nodiscard]] int64_t begin(traces::RowIndex row, ChatRequest& request, int64_t now_ns);
    // It is: the engine imports it, unless what runs leaves no room, or memory has come to have it.
    void finish(traces::RowIndex row, const ChatRequest& request);
    // The engine has taken the row's request.
    void note_accepted(traces::RowIndex row, RequestId request);
    // Between steps: heads that are in memory come in, for requests that are about to attach.
    void bring(int64_t now_ns);
    // When the next one of these is in memory; the largest number: none is read.
    [[nodiscard]] int64_t next_read_ns() const;
    // A step that computed `work` has ended.
    void note_step(const StepWork& work, int64_t took_ns, int64_t now_ns);
    // At the end of the run.
    void take(std::vector<RowTimes>& times, RestoreCounts& restores, std::vector<TierCounts>& tiers);

private:
    struct Read {
        TokenSeq tokens;
        int64_t num_saved = 0;
        int64_t end_ns = 0;
        bool is_over = false;
    };
    [[nodiscard]] std::vector<FoundHead> find(const CacheSalt& salt, const TokenSeq& tokens,
                                              int64_t max_length) override;
    [[nodiscard]] int64_t expected_read_ns(const FoundHead& found) const override;
    void begin_read(RequestId request, const FoundHead& found) override;
    [[nodiscard]] bool import(RequestId request, const FoundHead& found) override;
    void let_go(RequestId request) override { awaited_.erase(request); }
    void note_not_worth() override { ++counts_.not_worth; }
    void note_no_room() override { ++counts_.no_room; }
    Read read(const FoundHead& found);
    bool import(const Read& read, const ConversationKey& key, traces::RowIndex row);

    Engine& engine_;
    traces::RequestMaker& requests_;
    Tiers tiers_;
    std::optional<HeadWaits> waits_;                        // none: there are no tiers
    std::unordered_map<traces::RowIndex, Read> reads_;      // before they are submitted
    std::map<RequestId, Read> awaited_;                     // about to attach
    std::unordered_map<RequestId, traces::RowIndex> rows_;  // of requests that were submitted
    std::vector<int64_t> restored_tokens_;                  // per row
    int64_t now_ns_ = 0;
    RestoreCounts counts_;
};

}  // namespace verbatim
