// tools/replay/dvr_view.h: `verbatim replay --show-dvr`: one request's tokens and KV through prefill, decode, drafting,
// verification and rollback, a line for each of its steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/recorder.h"
#include "kernels/executors/slot_requests.h"

namespace verbatim::tools {

class DvrView final : public Recorder {
public:
    explicit DvrView(int32_t block_size) : block_size_(block_size) {}

    void on_plan(const StepPlan& plan) override;
    void on_result(const StepResult& result) override;
    void on_token(RequestId, TokenId) override {}
    void on_event(const Event&) override {}

    // Shows the first request with a rollback; if there is none, the first that verified; if there is none, the first
    // that sampled.
    [[nodiscard]] std::string picture() const;

private:
    struct Story {
        std::vector<std::string> lines;
        bool has_verified = false;
        bool has_rolled_back = false;
    };
    void tell(const ScheduledSequence& sequence, const SampledTokens* drawn, const StepResult& result);
    [[nodiscard]] std::string bar(int64_t resident, int64_t fresh, int64_t other, char mark) const;

    int32_t block_size_;
    StepPlan plan_;
    executors::SlotRequests slots_;
    std::map<RequestId, Story> stories_;
    std::map<RequestId, int64_t> resident_;  // verified positions
};

}  // namespace verbatim::tools
