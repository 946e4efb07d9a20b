#include "tools/replay/tiered_requests.h"

namespace verbatim::tools {

using server::HeadTier;
using server::HeadTierCounts;

Result<std::unique_ptr<TieredRequests>> TieredRequests::open(HostTier host, server::HeadTierConfig folder,
                                                             Engine& engine) {
    std::unique_ptr<HeadTier> tier;
    if (!folder.folder.empty()) {
        ASSIGN_OR_RETURN(tier, HeadTier::open(std::move(folder)));
    }
    return std::unique_ptr<TieredRequests>(new TieredRequests(std::move(host), std::move(tier), engine));
}

// What goes from host memory to the folder is there when it is looked for.
void TieredRequests::before_step(int64_t /*now_ns*/) {
    if (host_.tier != nullptr && folder_ != nullptr) host_.tier->wait_until_written();
    link_.wait_for_heads();
    link_.bring();
}

HeadTierCounts TieredRequests::counts() {
    link_.keep_all();
    if (folder_ == nullptr) return {};
    folder_->wait_until_written();
    return folder_->counts();
}

HeadTierCounts TieredRequests::host_counts() { return host_.tier == nullptr ? HeadTierCounts() : host_.tier->counts(); }

}  // namespace verbatim::tools
