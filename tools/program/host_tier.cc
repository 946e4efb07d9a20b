#include "tools/program/host_tier.h"

#include <algorithm>
#include <utility>

namespace verbatim::tools {

Result<HostTier> HostTier::open(int64_t num_bytes, const std::string& executor, server::HeadTierConfig config) {
    HostTier host;
    if (num_bytes == 0) return host;
    if (!executor.starts_with("cuda"))
        return error("--host-bytes: the memory of the executor {} is host memory: --cache-bytes says how much it is",
                     executor);
    ASSIGN_OR_RETURN(server::MemoryFolder folder, server::MemoryFolder::make(num_bytes));
    config.folder = folder.path();
    host.folder = std::make_unique<server::MemoryFolder>(std::move(folder));
    config.max_bytes = num_bytes;
    config.max_waiting_bytes = std::min(config.max_waiting_bytes, num_bytes);
    config.read_only = false;
    config.notes_owners = false;  // the folder goes with the process
    config.yields = false;
    ASSIGN_OR_RETURN(host.tier, server::HeadTier::open(std::move(config)));
    return host;
}

}  // namespace verbatim::tools
