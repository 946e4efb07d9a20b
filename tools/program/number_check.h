// tools/program/number_check.h: the checks of flags with fractional numbers.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <string>

#include "traces/strict.h"

namespace verbatim::tools {

// As strict as a field of a trace: no "nan", no "inf", no hexadecimal. CLI11's range checks accept nan, since every
// comparison with it is false.
inline CLI::Validator finite_number() {
    const auto check = [](const std::string& text) {
        if (traces::parse_number<double>(text)) return std::string();
        return fmt::format("got {}, wanted a number", traces::shown(text));
    };
    return CLI::Validator(check, "", "finite");
}

// A finite number above 0.
inline CLI::Validator positive_number() {
    const auto check = [](const std::string& text) {
        const auto number = traces::parse_number<double>(text);
        if (number && *number > 0) return std::string();
        return fmt::format("got {}, wanted a number above 0", traces::shown(text));
    };
    return CLI::Validator(check, "[above 0]", "positive");
}

// A share: 0 to 1.
inline CLI::Validator share() {
    const auto check = [](const std::string& text) {
        const auto number = traces::parse_number<double>(text);
        if (number && *number >= 0 && *number <= 1) return std::string();
        return fmt::format("got {}, wanted a share from 0 to 1", traces::shown(text));
    };
    return CLI::Validator(check, "[0 - 1]", "share");
}

}  // namespace verbatim::tools
