// tests/tools/replay/arguments.h: `verbatim replay` with the scenario, as several tests run it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

inline Outcome run_replay(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "replay");
    return run_verbatim(std::move(arguments));
}

inline std::string scenario() { return repository_path("traces/scenario.csv"); }

// The scenario under the memory pressure of the samples.
inline std::vector<std::string> pressed_scenario(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--trace", scenario(), "--kv-bytes", "160KiB",   "--state-bytes",
                                          "1MiB",    "--lookup", "prefix",     "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

// Two conversations of two turns, side by side: a tail copied, states handed on.
inline constexpr const char* kTwoConversations =
    "# verbatim-trace 1\n"
    "event,conversation,start,tokens,max_tokens\n"
    "history,a,arrival,1:0+21,4\n"
    "history,b,arrival,2:0+16,3\n"
    "suffix,a,answer,3:0+5,3\n"
    "suffix,b,answer,4:0+9,2\n";

}  // namespace verbatim::tools
