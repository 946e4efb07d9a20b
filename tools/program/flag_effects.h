// tools/program/flag_effects.h: refuses flags that would have no effect, given the other flags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::tools {

// A flag, whether it changes anything in this run, and the reason where it does not.
struct FlagEffect {
    const char* flag;
    bool has_effect;
    std::string otherwise;
};

// Error: the first of `flags` that is given without an effect. REQUIRES: the verb has all of them.
inline Status check_flag_effects(const CLI::App& verb, const std::vector<FlagEffect>& flags) {
    for (const FlagEffect& one : flags) {
        if (!one.has_effect && verb.get_option(one.flag)->count() > 0) return error("{}: {}", one.flag, one.otherwise);
    }
    return {};
}

// Reasons that verbs share.
inline constexpr const char* kHasNoSteps =
    "runs without timing, as with --cache-only, take one row after another: there are no steps and no waiting requests";
inline constexpr const char* kHasNoPrices =
    "runs without timing, as with --cache-only, have prices for restores alone; --host-memory or --disk has heads to "
    "restore";

}  // namespace verbatim::tools
