// tools/audit/report.h: what `verbatim audit` prints and writes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

struct AuditReport {
    std::string url;
    std::string against;  // of --against
    uint64_t seed = 0;
    audit::AuditResult result;
    std::vector<std::string> only;  // relations that were named
    bool interrupted = false;
    double elapsed_s = 0;
    std::vector<std::string> bundles;  // [relation]: the file; empty: none
};

// 1 for corruption, 5 where nothing was compared, a relation that was named was not tried, or Ctrl-C ended it; else 0.
[[nodiscard]] ExitCode audit_exit_code(const AuditReport& report);
[[nodiscard]] std::string audit_table(const AuditReport& report);
[[nodiscard]] nlohmann::ordered_json audit_json(const AuditReport& report);
[[nodiscard]] std::string audit_junit(const AuditReport& report);

}  // namespace verbatim::tools
