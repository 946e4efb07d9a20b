// tools/audit/page.h: one HTML page of an audit, without scripts or anything from elsewhere.
#pragma once

#include <string>

#include "tools/audit/report.h"

namespace verbatim::tools {

[[nodiscard]] std::string audit_page(const AuditReport& report);

}  // namespace verbatim::tools
