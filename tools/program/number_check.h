// tools/program/number_check.h: the check of flags that take a number with a fraction.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <string>

#include "traces/strict.h"

namespace verbatim::tools {

// As strict as a field of a trace: no "nan", no "inf", no hexadecimal. CLI11's own checks of a range let nan through,
// since it compares with nothing.
inline CLI::Validator finite_number() {
    const auto check = [](const std::string& text) {
        if (traces::parse_number<double>(text)) return std::string();
        return fmt::format("got {}, wanted a number", traces::shown(text));
    };
    return CLI::Validator(check, "", "finite");
}

}  // namespace verbatim::tools
