// tools/program/host_tier.h: owns the heads that a device's memory has let go of and host memory keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/heads/head_tier.h"
#include "server/heads/memory_folder.h"

namespace verbatim::tools {

struct HostTier {
    std::unique_ptr<server::MemoryFolder> folder;  // outlives the tier
    std::unique_ptr<server::HeadTier> tier;        // null: none

    // `config` without folder and bytes. Errors: an executor whose memory is host memory; HeadTier's and the folder's.
    static Result<HostTier> open(int64_t num_bytes, const std::string& executor, server::HeadTierConfig config);
};

}  // namespace verbatim::tools
