// tools/audit/hits_report.h: what `verbatim audit --expect-hits` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "audit/expected_hits.h"
#include "tools/audit/report.h"

namespace verbatim::tools {

// 0 where the server reuses what it should, 1 where it does not, 5 where it does not tell or the replay did not end.
[[nodiscard]] ExitCode hits_exit_code(const audit::HitsResult& result);
[[nodiscard]] std::string hits_table(const AuditReport& report, const audit::HitsResult& result);
[[nodiscard]] nlohmann::ordered_json hits_json(const AuditReport& report, const audit::HitsResult& result);

}  // namespace verbatim::tools
