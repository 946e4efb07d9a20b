// audit/relations_of_two.h: owns the relations of two endpoints, of two servers, and of a server before and after a
// restart.
#pragma once

#include <string>
#include <vector>

#include "audit/relations.h"

namespace verbatim::audit {

[[nodiscard]] std::string needs_rendering(const ServerInfo& info, const RelationConfig& config);
[[nodiscard]] std::vector<Case> template_cases(const ServerInfo& info, const RelationConfig& config);
[[nodiscard]] std::string needs_plain_server(const ServerInfo& info, const RelationConfig& config);
[[nodiscard]] std::vector<Case> speculation_cases(const ServerInfo& info, const RelationConfig& config);
[[nodiscard]] std::string needs_other_cache(const ServerInfo& info, const RelationConfig& config);
[[nodiscard]] std::vector<Case> cache_cases(const ServerInfo& info, const RelationConfig& config);

}  // namespace verbatim::audit
