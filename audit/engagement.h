// audit/engagement.h: owns the proof that a path was taken: that a prompt came from the cache, that requests ran
// together, that a text came in pieces. What is not proved is not compared.
#pragma once

#include <span>
#include <string>

#include "audit/runner.h"
#include "audit/server_info.h"

namespace verbatim::audit {

struct Engagement {
    bool happened = false;
    std::string proof;  // or why there is none
};

// All needs of a trial.
[[nodiscard]] Engagement engagement(const Trial& trial, const ServerInfo& info);

// Where neither usage nor /metrics tells: whether the prompts that should come from the cache were answered in much
// less time than the fresh ones of the same trials.
[[nodiscard]] Engagement engagement_by_time(std::span<const Trial> trials);

}  // namespace verbatim::audit
