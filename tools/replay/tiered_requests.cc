#include "tools/replay/tiered_requests.h"

#include <utility>

namespace verbatim::tools {

Result<std::unique_ptr<TieredRequests>> TieredRequests::open(server::HeadTierConfig config, Engine& engine) {
    ASSIGN_OR_RETURN(auto tier, server::HeadTier::open(std::move(config)));
    return std::unique_ptr<TieredRequests>(new TieredRequests(std::move(tier), engine));
}

void TieredRequests::before_step() {
    link_.wait_for_heads();
    link_.bring();
}

}  // namespace verbatim::tools
