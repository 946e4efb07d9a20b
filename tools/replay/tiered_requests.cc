#include "tools/replay/tiered_requests.h"

#include <future>
#include <utility>

namespace verbatim::tools {

Result<std::unique_ptr<TieredRequests>> TieredRequests::open(server::HeadTierConfig config, Engine& engine,
                                                             traces::RequestMaker& requests) {
    const std::string numerics = config.numerics;
    ASSIGN_OR_RETURN(auto tier, server::HeadTier::open(std::move(config)));
    return std::unique_ptr<TieredRequests>(new TieredRequests(std::move(tier), numerics, engine, requests));
}

void TieredRequests::prepare(traces::RowIndex row, ChatRequest& request) {
    ChatRequest whole;
    whole.conversation = request.conversation;
    whole.messages.push_back({.tokens = requests_.prompt(row)});
    whole.use_cache = request.use_cache;
    const auto found = link_.worth_restoring(whole, numerics_);
    if (!found) return;
    std::promise<server::HeadTier::FilePtr> read;
    tier_->load(found->id, [&](server::HeadTier::FilePtr file) { read.set_value(std::move(file)); });
    if (const auto file = read.get_future().get()) link_.import(*file, *found, whole, numerics_);
}

}  // namespace verbatim::tools
