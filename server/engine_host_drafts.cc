// Which requests are drafted.
#include <algorithm>

#include "server/engine_host.h"

namespace verbatim::server {

// A turn whose text may end it ends with the token that completes the text. In a window others would follow, and be
// committed: such a request is not drafted.
class EngineHost::DrafterOfPlainTurns final : public WrappingDrafter {
public:
    DrafterOfPlainTurns(Drafter& inner, const EngineHost& host) : WrappingDrafter(inner), host_(host) {}
    void draft(std::span<DraftJob> jobs) override {
        const auto others = std::ranges::partition(jobs, [this](const DraftJob& job) {
            const auto live = host_.live_.find(job.request);
            return live != host_.live_.end() && !live->second.reader;
        });
        const std::span<DraftJob> plain = jobs.first(jobs.size() - others.size());
        if (!plain.empty()) inner().draft(plain);
    }

private:
    const EngineHost& host_;
};

void EngineHost::begin_drafting() {
    if (config_.drafter == nullptr) return;
    drafter_ = std::make_unique<DrafterOfPlainTurns>(*config_.drafter, *this);
    engine_.draft_with(drafter_.get());
}

}  // namespace verbatim::server
