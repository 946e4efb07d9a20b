// audit/restart.h: owns what an audit sees of a server's restart: when it answers again, and what shows that it did
// restart. A command that ends well proves nothing.
#pragma once

#include <functional>
#include <string>

#include "audit/transport.h"
#include "engine/base/result.h"

namespace verbatim::audit {

struct WaitConfig {
    double timeout_s = 300;
    std::function<void(double seconds)> sleep;
    std::function<bool()> is_stopped;
};

// Asks GET /v1/models until it answers 200 and GET /health, where there is one, does not deny it. The answer may be
// that of a process which is about to end: for some seconds this waits for what shows a restart. Returns what did;
// empty: nothing. `metrics` is the text of /metrics before the restart. Errors: the time is over, with the last answer;
// interrupted.
[[nodiscard]] Result<std::string> wait_for_restart(Transport& server, const std::string& metrics,
                                                   const WaitConfig& config);

// What two texts of /metrics tell of a restart between them: process_start_time_seconds changed, or a counter fell.
// Empty: nothing.
[[nodiscard]] std::string restart_shown(const std::string& before, const std::string& after);

// The text of GET /metrics; empty: the server has none.
[[nodiscard]] std::string metrics_of(Transport& server);

}  // namespace verbatim::audit
